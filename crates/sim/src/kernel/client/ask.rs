//! Translates the PMIx operations of a script into calls of the PMIx client.

use std::ffi::{CStr, CString};

use base::Time;
use pmix::{
    client::{Collect, Search, Ticket},
    keys,
    value::{App, Info, Key, Proc, Range, Scope, Status, Value},
};

use super::{
    super::{Effect, Kernel, Pid},
    Ask, Client, GARBAGE, News, Together,
};
use crate::files::FILES;
use crate::script::{
    CONSTRUCT_MAX, Circle, Data, EVENT_NUMBER, Notify, Number, Party, Patience, PmixOp, Reach,
    Site, Way, value_of,
};

impl Kernel {
    /// Begins a PMIx operation. Returns true if [`Self::listen`] must send its requests or wait for an answer. Returns false if
    /// the operation is already complete or cannot be performed.
    #[expect(clippy::too_many_lines, reason = "one arm for each operation")]
    pub(super) fn begin(&mut self, now: Time, pid: Pid, op: &PmixOp) -> bool {
        if *op == PmixOp::Init {
            return self.init(now, pid);
        }
        if let PmixOp::Knock(stranger) = op {
            self.knock(pid, *stranger);
            return false;
        }
        let Some(proc) = self.procs.get_mut(&pid) else {
            return false;
        };
        let Some(client) = proc.client.as_mut().filter(|client| !client.is_over) else {
            return false;
        };
        // The caller calls `listen` next. It handles the messages that have arrived before it sends these requests.
        let mut asks = Vec::new();
        match op {
            PmixOp::Init | PmixOp::Knock(_) => {}
            PmixOp::Put(key) => {
                let (Some(me), Ok(name)) = (client.me(), Key::from_text(key)) else {
                    return false;
                };
                let value = Value::text(&value_of(me, key));
                let put = client.program().put(Scope::GLOBAL, name, value);
                client.puts.push(key.clone());
                if let Err(why) = put {
                    self.effects
                        .push(Effect::Fault(format!("`{key}` cannot be put: {why}")));
                }
                return false;
            }
            PmixOp::Garbage | PmixOp::HangUp => {
                client.is_guilty = true;
                let news = News::Left;
                self.effects.push(Effect::Told { pid, news });
                if *op == PmixOp::HangUp {
                    client.program().close();
                    return true;
                }
                let (id, bytes) = (client.id, GARBAGE.to_vec());
                self.effects.push(Effect::ClientSent { id, bytes });
                return false;
            }
            PmixOp::Commit => {
                let ticket = client.program().commit();
                asks.push((ticket, Ask::Commit(std::mem::take(&mut client.puts))));
            }
            PmixOp::Fence(parties, data) => {
                let Some(procs) = client.resolve_all(parties) else {
                    return false;
                };
                let collect = match data {
                    Data::With => Collect::Data,
                    Data::Without => Collect::Nothing,
                };
                let ticket = client.program().fence(procs.clone(), collect);
                asks.push((ticket, Ask::Together(Together::Fence(*data), procs)));
            }
            PmixOp::Connect(parties) => {
                let Some(procs) = client.resolve_all(parties) else {
                    return false;
                };
                let ticket = client.program().connect(procs.clone(), Vec::new());
                asks.push((ticket, Ask::Together(Together::Connect, procs)));
            }
            PmixOp::Disconnect(parties) => {
                let Some(procs) = client.resolve_all(parties) else {
                    return false;
                };
                let ticket = client.program().disconnect(procs.clone(), Vec::new());
                asks.push((ticket, Ask::Together(Together::Disconnect, procs)));
            }
            PmixOp::Construct(circle) => {
                let Some((procs, infos)) = client.part_in(circle) else {
                    return false;
                };
                let name = CString::new(circle.name.clone()).ok();
                let ticket = client.program().group_construct(name, procs, infos);
                client.constructs.insert(ticket, circle.name.clone());
                let Some(members) = client.members_of(circle) else {
                    return false;
                };
                asks.push((ticket, Ask::Construct(circle.clone(), members)));
            }
            PmixOp::Destruct(circle) => {
                let Some(members) = client.members_of(circle) else {
                    return false;
                };
                if !client.groups.remove(&circle.name) {
                    return false;
                }
                let name = CString::new(circle.name.clone()).ok();
                let ticket = client
                    .program()
                    .group_destruct(name, Vec::new(), Vec::new());
                asks.push((ticket, Ask::Together(Together::Destruct, members)));
            }
            PmixOp::Get(wanted) => {
                for (party, key) in wanted {
                    let (Some(of), Ok(name)) = (client.resolve(*party), Key::from_text(key)) else {
                        continue;
                    };
                    let ticket = client.program().get(of.clone(), name, Search::Anywhere);
                    asks.push((ticket, Ask::Get(of, key.clone())));
                }
            }
            PmixOp::Publish(service) => {
                let me = client.me().cloned();
                let (Some(me), Ok(key)) = (me, Key::from_text(service)) else {
                    return false;
                };
                let info = Info::new(key, Value::text(&value_of(&me, service)));
                let ticket = client.program().publish(vec![info]);
                asks.push((ticket, Ask::Publish(service.clone())));
            }
            PmixOp::Lookup(lookup) => {
                let of = client.resolve(Party::Rank(lookup.of));
                let (Some(of), Ok(key)) = (of, Key::from_text(&lookup.service)) else {
                    return false;
                };
                let infos = lookup.wait.map_or_else(Vec::new, |wait| {
                    let seconds = u32::try_from(wait.as_secs()).unwrap_or(u32::MAX);
                    infos([
                        (keys::WAIT, Value::Bool(true)),
                        (keys::TIMEOUT, Value::Uint32(seconds)),
                    ])
                });
                let ticket = client.program().lookup(vec![key], infos);
                asks.push((ticket, Ask::Lookup(of, lookup.clone())));
            }
            PmixOp::Unpublish(service) => {
                let Ok(key) = Key::from_text(service) else {
                    return false;
                };
                let ticket = client.program().unpublish(vec![key], Vec::new());
                asks.push((ticket, Ask::Unpublish(service.clone())));
            }
            PmixOp::Register(codes) => {
                let (_, ticket) = client.program().register(codes.clone(), Vec::new());
                asks.push((ticket, Ask::Register(codes.clone())));
            }
            PmixOp::Notify(notify) => {
                let Some(ticket) = client.notify(notify) else {
                    return false;
                };
                asks.push((ticket, Ask::Notify(notify.clone())));
            }
            PmixOp::Group(invitation, step) => {
                let Some(begun) = client.begin_step(now, invitation, *step) else {
                    return false;
                };
                asks = begun;
            }
            PmixOp::Watch => {
                client.watches = true;
                let news = News::Watches;
                self.effects.push(Effect::Told { pid, news });
                return false;
            }
            PmixOp::Release(child, ranks) => {
                let parties = match ranks {
                    None => vec![Party::Child(*child)],
                    Some(ranks) => {
                        let ranks = ranks.iter();
                        ranks.map(|rank| Party::ChildRank(*child, *rank)).collect()
                    }
                };
                let Some(procs) = client.resolve_all(&parties) else {
                    return false;
                };
                let ticket = client.tool.release(procs.clone());
                asks.push((ticket, Ask::Release(procs)));
            }
            PmixOp::Spawn(child, procs, site, patience) => {
                let infos = match site {
                    Site::Anywhere => Vec::new(),
                    Site::Nowhere => infos([(keys::HOST, Value::text("nowhere"))]),
                    Site::WithFiles => infos([(keys::PRELOAD_FILES, Value::text(FILES))]),
                    Site::Held => infos([(keys::STOP_ON_EXEC, Value::Bool(true))]),
                    Site::HeldWithFiles => infos([
                        (keys::PRELOAD_FILES, Value::text(FILES)),
                        (keys::STOP_ON_EXEC, Value::Bool(true)),
                    ]),
                };
                let app = |procs: &u32| App {
                    command: CString::new(child.to_string()).ok(),
                    argv: vec![CString::new(child.to_string()).ok()],
                    maxprocs: i32::try_from(*procs).unwrap_or(1),
                    ..App::default()
                };
                let apps = procs.iter().map(app).collect();
                let ticket = if client.watches {
                    client.tool.spawn(infos, apps)
                } else {
                    client.program().spawn(infos, apps)
                };
                if *patience == Patience::GoesOn {
                    let news = News::Asked(ticket, Ask::Spawn(*child, *site));
                    self.effects.push(Effect::Told { pid, news });
                    return true;
                }
                client.waits.insert(ticket, Some(*child));
                asks.push((ticket, Ask::Spawn(*child, *site)));
            }
            PmixOp::Abort(code, ranks) => {
                let some: Vec<Party> = ranks.iter().map(|rank| Party::Rank(*rank)).collect();
                let procs = client.resolve_all(&some).unwrap_or_default();
                let message = CString::new("gave up").ok();
                let status = Status(i32::from(*code));
                let ticket = client.program().abort(status, message, procs.clone());
                asks.push((ticket, Ask::Abort(procs)));
            }
            PmixOp::Ask(questions, patience) => {
                let asked = client.inquire(questions, *patience);
                if *patience == Patience::GoesOn {
                    // The answers come while the process does something else, or never.
                    for (ticket, ask) in asked {
                        let news = News::Asked(ticket, ask);
                        self.effects.push(Effect::Told { pid, news });
                    }
                    return true;
                }
                asks = asked;
            }
            PmixOp::Finalize => {
                let ticket = client.program().finalize(now);
                asks.push((ticket, Ask::Finalize));
            }
        }
        for (ticket, ask) in asks {
            if ask != Ask::Finalize {
                client.waits.entry(ticket).or_insert(None);
            }
            let news = News::Asked(ticket, ask);
            self.effects.push(Effect::Told { pid, news });
        }
        true
    }
}

impl Client {
    /// Sends an event. Returns `None` if it cannot name the receivers.
    pub(super) fn notify(&mut self, notify: &Notify) -> Option<Ticket> {
        let mut told = infos([(EVENT_NUMBER, Value::Uint64(notify.number))]);
        let range = match &notify.reach {
            Reach::Node => Range::LOCAL,
            Reach::Job => Range::NAMESPACE,
            Reach::Session => Range::SESSION,
            Reach::Some(ranks) => {
                let some = ranks.iter().map(|rank| Party::Rank(*rank));
                let some: Vec<Party> = some.collect();
                let procs = self.resolve_all(&some)?;
                told.extend(infos([(keys::EVENT_CUSTOM_RANGE, Value::procs(procs))]));
                Range::CUSTOM
            }
        };
        if let Some(group) = &notify.group {
            told.extend(infos([
                (keys::EVENT_NON_DEFAULT, Value::Bool(true)),
                (keys::GROUP_ID, Value::text(group)),
            ]));
        }
        if let Some(members) = &notify.members {
            let members = Value::procs(members.clone());
            told.extend(infos([(keys::GROUP_MEMBERSHIP, members)]));
        }
        Some(self.program().notify(notify.code, range, told))
    }

    fn members_of(&self, circle: &Circle) -> Option<Vec<Proc>> {
        let mut members = circle.members.clone();
        members.sort_unstable();
        let members: Vec<Party> = members.into_iter().map(Party::Rank).collect();
        self.resolve_all(&members)
    }

    /// Returns whom this process names if it constructs a group, and its directives.
    fn part_in(&self, circle: &Circle) -> Option<(Vec<Proc>, Vec<Info>)> {
        let parties: Vec<Party> = circle.members.iter().copied().map(Party::Rank).collect();
        let all = self.resolve_all(&parties)?;
        let me = self.me()?;
        let at = all.iter().position(|one| one == me)?;
        let (named, mut directives) = match circle.way {
            Way::Together => (all, Vec::new()),
            Way::Added(first) | Way::Led(first) if at >= first => (Vec::new(), Vec::new()),
            Way::Added(first) => {
                let (named, added) = all.split_at(first);
                let added = Value::procs(added.to_vec());
                (named.to_vec(), infos([(keys::GROUP_ADD_MEMBERS, added)]))
            }
            Way::Led(leaders) => {
                let others = all.iter().enumerate().skip(leaders);
                let others = others.filter(|(other, _)| other % leaders == at);
                let named = others.map(|(_, proc)| proc.clone());
                let named = named.chain([me.clone()]).collect();
                let leaders = Value::Size(leaders as u64);
                (named, infos([(keys::GROUP_BOOTSTRAP, leaders)]))
            }
        };
        let is_numbered = match circle.number {
            Number::Unwanted => false,
            Number::ByFirst => at == 0,
            Number::ByAll => true,
        };
        if circle.way != Way::Together {
            let seconds = u32::try_from(CONSTRUCT_MAX.as_secs()).unwrap_or(u32::MAX);
            directives.extend(infos([(keys::TIMEOUT, Value::Uint32(seconds))]));
        }
        if is_numbered {
            directives.extend(infos([(keys::GROUP_ASSIGN_CONTEXT_ID, Value::Bool(true))]));
        }
        Some((named, directives))
    }
}

/// Returns PMIx infos for pairs of key and value. A pair whose key is too long is dropped.
fn infos<const N: usize>(pairs: [(&CStr, Value); N]) -> Vec<Info> {
    let pairs = pairs.into_iter();
    pairs
        .filter_map(|(key, value)| Some(Info::new(Key::new(key).ok()?, value)))
        .collect()
}
