//! Subscriptions to the output of processes.

use std::collections::{BTreeMap, BTreeSet};

use base::{Rank, RankSet};
use bytes::Bytes;

use super::{
    Conn, Output, Redirected, ReplyTo, Server, Tools,
    event::packed,
    info, is_set,
    kept::{Keeping, Kept, MAX_KEPT_BYTES},
    peer::{Known, Role},
};
use crate::{
    codec::Format,
    keys,
    message::{Answer, Push},
    planted::{self, Bug},
    value::{Info, IofChannels, Nspace, PmixRank, Proc, Status, Value},
};

/// Subscriptions that one connection may have. The next one gets OUT_OF_RESOURCE.
pub const MAX_SUBSCRIPTIONS: usize = 256;
/// Processes that one subscription may name. More get BAD_PARAM; a wildcard for a job counts as one.
pub const MAX_SUBSCRIPTION_PROCS: usize = 4096;

/// All subscriptions.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    /// Subscriptions by the id that the server gave them.
    by_number: BTreeMap<u64, Subscription>,
    /// Channels of each job that the last [`Output::Wanted`] asked for.
    wanted: BTreeMap<Nspace, IofChannels>,
    /// What the last [`Output::Redirected`] said of each job; never empty sets.
    redirected: BTreeMap<Nspace, Redirected>,
    kept: Kept,
    next: u64,
}

#[derive(Clone, Debug)]
struct Subscription {
    conn: Conn,
    /// The handle that the receiver chose, sent with the output.
    id: u64,
    procs: Vec<Proc>,
    channels: IofChannels,
    mode: Mode,
}

/// What a subscription means for the other output of the same receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Copy,
    /// The receiver gets this output by this subscription, and by no other that is not a redirection. If it is a tool, whoever runs the
    /// job does not get this output.
    Redirect,
}

impl Subscription {
    fn wants(&self, proc: &Proc, channels: IofChannels) -> bool {
        self.channels.meets(channels) && self.procs.iter().any(|wanted| wanted.covers(proc))
    }
}

impl Subscriptions {
    fn insert(&mut self, subscription: Subscription) -> Result<u64, Status> {
        let same = |other: &&Subscription| other.conn == subscription.conn;
        if self.by_number.values().filter(same).count() >= MAX_SUBSCRIPTIONS {
            return Err(Status::OUT_OF_RESOURCE);
        }
        let number = self.next;
        self.next += 1;
        self.by_number.insert(number, subscription);
        Ok(number)
    }

    /// Forgets what is kept of a job of this name.
    pub(super) fn forget_kept(&mut self, nspace: &Nspace) {
        self.kept.forget(nspace);
    }

    pub(super) fn is_empty(&self) -> bool {
        let Self {
            by_number,
            wanted,
            redirected,
            kept,
            next: _,
        } = self;
        by_number.is_empty() && wanted.is_empty() && redirected.is_empty() && kept.is_empty()
    }
}

impl Server {
    pub(super) fn on_pull(
        &mut self,
        reply: ReplyTo,
        from: &Proc,
        procs: Vec<Proc>,
        channels: IofChannels,
        infos: &[Info],
        id: u64,
    ) {
        if procs.is_empty() || procs.len() > MAX_SUBSCRIPTION_PROCS {
            return self.status(reply, Status::BAD_PARAM);
        }
        let conn = reply.conn;
        let is_tool = self.is_tool(conn);
        let keeping = match is_tool {
            true => Keeping::asked(infos),
            false => Ok(None),
        };
        let keeping = match keeping {
            Ok(keeping) => keeping,
            Err(status) => return self.status(reply, status),
        };
        // A read may have many pulls, and each gets all that is kept.
        if is_tool && self.queued_for(conn) > MAX_KEPT_BYTES {
            return self.status(reply, Status::OUT_OF_RESOURCE);
        }
        let mut meant = BTreeSet::new();
        for proc in procs {
            match self.group_of(from, &proc) {
                Some(members) if !self.jobs.contains_key(&proc.nspace) => meant.extend(members),
                _ => drop(meant.insert(proc)),
            }
        }
        if meant.len() > MAX_SUBSCRIPTION_PROCS {
            return self.status(reply, Status::OUT_OF_RESOURCE);
        }
        let subscription = Subscription {
            conn,
            id,
            procs: meant.into_iter().collect(),
            channels,
            mode: match is_set(infos, keys::IOF_REDIRECT) {
                true => Mode::Redirect,
                false => Mode::Copy,
            },
        };
        match self.subscriptions.insert(subscription.clone()) {
            Ok(number) => {
                let status = Status::SUCCESS;
                self.answer(reply, &Answer::Number { status, number });
                if is_tool && !planted::is(Bug::KeptNotSent) {
                    self.catch_up(&subscription);
                }
                if let Some(keeping) = keeping {
                    for nspace in jobs_of(&subscription.procs) {
                        if self.jobs.contains_key(nspace) {
                            let kept = &mut self.subscriptions.kept;
                            kept.keep(nspace, channels, keeping, None);
                        }
                    }
                }
                self.say_wanted();
            }
            Err(status) => self.status(reply, status),
        }
    }

    /// Returns the bytes that wait for a connection until the host polls.
    fn queued_for(&self, conn: Conn) -> usize {
        let lengths = self.out.iter().filter_map(|output| match output {
            Output::Send { conn: to, bytes } if *to == conn => Some(bytes.len()),
            _ => None,
        });
        lengths.sum()
    }

    /// Sends a new subscriber what is kept of the output for which it asks.
    fn catch_up(&mut self, subscription: &Subscription) {
        let Some(known) = self.peers.get(&subscription.conn) else {
            return;
        };
        let Some(format) = known.connected().map(|known| known.format) else {
            return;
        };
        for nspace in jobs_of(&subscription.procs) {
            let kept = &self.subscriptions.kept;
            let kept = kept.of(nspace, |proc, channels| subscription.wants(proc, channels));
            for (source, channels, bytes) in kept {
                let message = output(source, channels, subscription.id, bytes);
                self.out.push_back(Output::Send {
                    conn: subscription.conn,
                    bytes: packed(&message, format),
                });
            }
        }
    }

    /// Keeps output of a job for tools that ask for it later, if tools can connect here.
    pub(super) fn keep(&mut self, nspace: &Nspace, spawner: Option<&Proc>, keeping: Keeping) {
        if self.config.tools == Tools::Refused {
            return;
        }
        let both = IofChannels::STDOUT.with(IofChannels::STDERR);
        let is_tool = |spawner: &&Proc| {
            let mut peers = self.peers.values();
            let is_one = |known: &Known| known.role == Role::Tool && known.proc == **spawner;
            peers.any(|peer| peer.connected().is_some_and(is_one))
        };
        let spawner = spawner.filter(is_tool).cloned();
        let kept = &mut self.subscriptions.kept;
        kept.keep(nspace, both, keeping, spawner);
    }

    /// Subscribes the spawner of a job to its output from the start, under the handle 0. No effect if it is not
    /// connected.
    pub(super) fn forward(&mut self, nspace: &Nspace, to: &Proc, channels: IofChannels) {
        let conn = self.peers.iter().find_map(|(conn, peer)| {
            let known = peer.connected()?;
            (known.proc == *to).then_some(*conn)
        });
        let Some(conn) = conn else {
            return;
        };
        let subscription = Subscription {
            conn,
            id: 0,
            procs: vec![Proc::all(nspace.clone())],
            channels,
            mode: Mode::Copy,
        };
        // Without room for it, it gets nothing.
        self.subscriptions.insert(subscription).ok();
    }

    pub(super) fn on_stop_pulling(&mut self, reply: ReplyTo, number: u64) {
        let subscriptions = &mut self.subscriptions.by_number;
        let own = subscriptions
            .get(&number)
            .is_some_and(|subscription| subscription.conn == reply.conn);
        let status = if own {
            subscriptions.remove(&number);
            Status::SUCCESS
        } else {
            Status::NOT_FOUND
        };
        self.status(reply, status);
        self.say_wanted();
    }

    /// Sends output of a process to its subscribers. Empty `bytes` mean EOF.
    pub(super) fn on_output(&mut self, proc: &Proc, channels: IofChannels, bytes: &Bytes) {
        self.subscriptions.kept.add(proc, channels, bytes);
        let mut due = Vec::new();
        let all = self.subscriptions.by_number.values();
        let wanted: Vec<&Subscription> = all.filter(|one| one.wants(proc, channels)).collect();
        let redirects = |conn: Conn| {
            let mut wanted = wanted.iter();
            wanted.any(|one| one.conn == conn && one.mode == Mode::Redirect)
        };
        for subscription in &wanted {
            let known = self.peers.get(&subscription.conn);
            if let Some(known) = known.and_then(|peer| peer.connected())
                && (subscription.mode == Mode::Redirect || !redirects(subscription.conn))
                // A process does not get its own output: it might write it again, in a loop.
                && known.proc != *proc
            {
                due.push((subscription.conn, subscription.id, known.format));
            }
        }
        // Packed once for consecutive subscribers with the same handle and format, such as spawners.
        let mut last: Option<(u64, Format, Bytes)> = None;
        for (conn, id, format) in due {
            let message = match last.take() {
                Some((last_id, last_format, message)) if (last_id, last_format) == (id, format) => {
                    message
                }
                _ => packed(&output(proc.clone(), channels, id, bytes.clone()), format),
            };
            self.out.push_back(Output::Send {
                conn,
                bytes: message.clone(),
            });
            last = Some((id, format, message));
        }
    }

    /// Removes the subscriptions of a connection that was closed or has finalized.
    pub(super) fn drop_subscriptions_of(&mut self, conn: Conn) {
        self.subscriptions
            .by_number
            .retain(|_, subscription| subscription.conn != conn);
        self.say_wanted();
    }

    /// Forgets what is kept of jobs that have ended and that this tool has spawned.
    pub(super) fn forget_kept_for(&mut self, tool: &Proc) {
        self.subscriptions.kept.tool_left(tool);
    }

    /// Removes the subscriptions to a job that has ended.
    pub(super) fn drop_subscriptions_to(&mut self, nspace: &Nspace) {
        self.subscriptions.by_number.retain(|_, subscription| {
            subscription.procs.retain(|proc| proc.nspace != *nspace);
            !subscription.procs.is_empty()
        });
        // The host knows that the job has ended: no [`Output::Wanted`].
        self.subscriptions.wanted.remove(nspace);
        self.subscriptions.redirected.remove(nspace);
        self.subscriptions.kept.job_ended(nspace);
    }

    /// Tells the host which output tools have redirected, for each job where this has changed.
    fn say_redirected(&mut self) {
        let mut now: BTreeMap<Nspace, Redirected> = BTreeMap::new();
        for subscription in self.subscriptions.by_number.values() {
            if subscription.mode != Mode::Redirect || !self.is_tool(subscription.conn) {
                continue;
            }
            for proc in &subscription.procs {
                let Some(job) = self.jobs.get(&proc.nspace) else {
                    continue;
                };
                let ranks = match proc.rank {
                    PmixRank::WILDCARD => RankSet::range(0..job.size()),
                    PmixRank(rank) if rank < job.size() => RankSet::single(Rank(rank)),
                    _ => continue,
                };
                let redirected = now.entry(proc.nspace.clone()).or_default();
                for (channel, of) in [
                    (IofChannels::STDOUT, &mut redirected.stdout),
                    (IofChannels::STDERR, &mut redirected.stderr),
                ] {
                    if channel.meets(subscription.channels) {
                        of.append(&ranks);
                    }
                }
            }
        }
        now.retain(|_, redirected| *redirected != Redirected::default());
        let before = std::mem::replace(&mut self.subscriptions.redirected, now);
        let now = &self.subscriptions.redirected;
        let names: BTreeSet<&Nspace> = before.keys().chain(now.keys()).collect();
        for nspace in names {
            if before.get(nspace) != now.get(nspace) {
                self.out.push_back(Output::Redirected {
                    nspace: nspace.clone(),
                    redirected: now.get(nspace).cloned().unwrap_or_default(),
                });
            }
        }
    }

    /// Tells the host once what is wanted of a job that it has not known until now. A tool may have asked before.
    pub(super) fn say_wanted_of(&mut self, nspace: &Nspace) {
        self.subscriptions.wanted.remove(nspace);
        self.say_wanted();
    }

    /// Tells the host which channels are wanted, for each job where this has changed.
    fn say_wanted(&mut self) {
        self.say_redirected();
        let mut wanted: BTreeMap<Nspace, IofChannels> = BTreeMap::new();
        for subscription in self.subscriptions.by_number.values() {
            for proc in &subscription.procs {
                let channels = wanted.entry(proc.nspace.clone()).or_default();
                *channels = channels.with(subscription.channels);
            }
        }
        for (nspace, channel) in self.subscriptions.kept.wanted() {
            let channels = wanted.entry(nspace.clone()).or_default();
            *channels = channels.with(channel);
        }
        if wanted == self.subscriptions.wanted {
            return;
        }
        let before = std::mem::replace(&mut self.subscriptions.wanted, wanted);
        for (nspace, channels) in &self.subscriptions.wanted {
            if before.get(nspace) != Some(channels) {
                self.out.push_back(Output::Wanted {
                    nspace: nspace.clone(),
                    channels: *channels,
                });
            }
        }
        for nspace in before.into_keys() {
            if !self.subscriptions.wanted.contains_key(&nspace) {
                self.out.push_back(Output::Wanted {
                    nspace,
                    channels: IofChannels::default(),
                });
            }
        }
    }
}

/// Returns the jobs of these processes, each once.
fn jobs_of(procs: &[Proc]) -> BTreeSet<&Nspace> {
    procs.iter().map(|proc| &proc.nspace).collect()
}

/// Returns a message with output of a process. The last one about a stream says that it is complete.
fn output(source: Proc, channels: IofChannels, id: u64, bytes: Bytes) -> Push {
    let infos = match bytes.is_empty() {
        true => info(keys::IOF_COMPLETE, Value::Bool(true))
            .into_iter()
            .collect(),
        false => Vec::new(),
    };
    Push::Output {
        source,
        channels,
        id,
        infos,
        bytes,
    }
}
