//! Groups over several nodes whose members do not all name each other: the coordinator brings the calls together.
//!
//! Node [`COORDINATOR`] coordinates them. How the calls of other nodes get there:
//!
//! | caller | its server |
//! |---|---|
//! | a leader of a bootstrap; a member that names no members | sends its call to the coordinator ([`Question::Construct`]) |
//! | a named member | collects the calls of all named members, in a gather if they are on several nodes; if one of them adds members, sends each call, with all added members, to the coordinator |
//!
//! The coordinator handles these calls like those of its own processes, see [`super::construct`]. It waits for named and
//! added members on any node, and answers each call with the result. Each server then records the group and answers its
//! own clients.
//!
//! | waits | until |
//! |---|---|
//! | a call, for the coordinator | its answer; its connection closes; its job ends. The host answers it if the coordinator is lost |
//! | the coordinator, for members of other nodes | they call; `pmix.timeout`; a server reports their loss ([`Question::Loss`]); a job ends |
//! | a node, for the loss of members of its own | the loss; their job ends; the coordinator does not wait for them any more |

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Conn, MAX_QUESTIONS, MAX_SENT_BYTES, Output, QuestionTicket, ReplyTo, Server,
    collective::{Arrival, Caller, Tracker},
    info,
    member::Member,
    question::{ConstructQuestion, Constructed, Question, read_lost, write_lost},
    share::Joined,
};
use crate::{
    keys,
    value::{Nspace, Proc, Status, Value},
};

/// The node that coordinates the construction of groups whose members do not all name each other. Every dvm has it.
const COORDINATOR: u32 = 0;

/// Calls and questions that are in progress between this node and others.
#[derive(Debug, Default)]
pub(super) struct Coordination {
    /// Calls of local processes that the coordinator has not answered.
    calls: BTreeMap<QuestionTicket, Call>,
    call_bytes: usize,
    /// Questions of the coordinator about the loss of members on other nodes.
    watches: BTreeMap<QuestionTicket, Watch>,
    /// Questions of other nodes about the loss of local processes.
    watched: BTreeMap<(u32, QuestionTicket), Vec<Proc>>,
}

#[derive(Debug)]
struct Call {
    /// `None` if its connection had closed before the call was sent.
    reply: Option<ReplyTo>,
    member: Member,
    group: Nspace,
    bytes: usize,
}

#[derive(Debug)]
struct Watch {
    collective: u64,
    node: u32,
    members: BTreeSet<Member>,
}

impl Coordination {
    fn take_call(&mut self, ticket: QuestionTicket) -> Option<Call> {
        let call = self.calls.remove(&ticket)?;
        self.call_bytes -= call.bytes;
        Some(call)
    }

    /// Removes a question of another node about the loss of local processes.
    pub(super) fn forget_watched(&mut self, node: u32, ticket: QuestionTicket) {
        self.watched.remove(&(node, ticket));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.watches.is_empty() && self.watched.is_empty()
    }
}

impl Server {
    /// Returns true if this node is the coordinator. `from` is a local process.
    pub(super) fn is_coordinator(&self, from: &Proc) -> bool {
        let job = self.jobs.get(&from.nspace);
        job.and_then(|job| job.node_here()) == Some(COORDINATOR)
    }

    /// Sends the call of a local process to the coordinator.
    pub(super) fn call_coordinator(&mut self, reply: Option<ReplyTo>, call: ConstructQuestion) {
        let refused = match self.member_of(&call.from) {
            None => Status::NOT_FOUND,
            Some(_) if self.groups.is_full() => Status::OUT_OF_RESOURCE,
            Some(member) => {
                let group = call.group.clone();
                let question = Question::Construct(call).encode();
                let bytes = question.len();
                let open = &mut self.coordination;
                let room = MAX_SENT_BYTES - open.call_bytes;
                if bytes <= room && open.calls.len() < MAX_QUESTIONS {
                    let ticket = self.questions.ticket();
                    open.call_bytes += bytes;
                    let call = Call {
                        reply,
                        member,
                        group,
                        bytes,
                    };
                    open.calls.insert(ticket, call);
                    return self.out.push_back(Output::Question {
                        ticket,
                        node: COORDINATOR,
                        question,
                    });
                }
                Status::OUT_OF_RESOURCE
            }
        };
        if let Some(reply) = reply {
            self.status(reply, refused);
        }
    }

    /// Returns the calls of a construction, each with all added members, for the coordinator.
    pub(super) fn calls_with_added(
        &self,
        group: &Nspace,
        tracker: Tracker,
        added: &[Proc],
    ) -> Vec<(Option<ReplyTo>, ConstructQuestion)> {
        let named = self.procs(tracker.members());
        let calls = tracker.arrived.into_iter().filter_map(|arrival| {
            let mut infos = arrival.infos;
            infos.retain(|info| info.key != *keys::GROUP_ADD_MEMBERS);
            infos.extend(info(keys::GROUP_ADD_MEMBERS, Value::procs(added.to_vec())));
            let call = ConstructQuestion {
                from: self.proc_of(arrival.member)?,
                group: group.clone(),
                named: named.clone(),
                infos,
            };
            match arrival.reply {
                Some(Caller::Here(reply)) => Some((Some(reply), call)),
                Some(Caller::Node { .. }) | None => Some((None, call)),
            }
        });
        calls.collect()
    }

    /// Handles the answer to a call, or to a question about the loss of members. Returns false if the ticket is neither.
    pub(super) fn on_coordinated(
        &mut self,
        ticket: QuestionTicket,
        result: Result<&[u8], Status>,
    ) -> bool {
        if let Some(call) = self.coordination.take_call(ticket) {
            self.on_constructed(ticket, call, result);
        } else if let Some(watch) = self.coordination.watches.remove(&ticket) {
            self.on_members_lost(watch, result);
        } else {
            return false;
        }
        true
    }

    fn on_constructed(
        &mut self,
        ticket: QuestionTicket,
        call: Call,
        result: Result<&[u8], Status>,
    ) {
        let decoded = result.and_then(|bytes| {
            let constructed = Constructed::decode(bytes).map_err(|_| Status::UNPACK_FAILURE)?;
            let named = constructed.named.iter().map(|proc| self.member_of(proc));
            let named: Option<BTreeSet<Member>> = named.collect();
            Ok((named.ok_or(Status::NOT_FOUND)?, constructed))
        });
        let (named, constructed) = match decoded {
            Ok(decoded) => decoded,
            Err(status) => {
                if let Some(reply) = call.reply {
                    self.status(reply, status);
                }
                return;
            }
        };
        let group = call.group.clone();
        let others = constructed.tickets.into_iter().map(QuestionTicket);
        let others: Vec<Call> = others
            .filter(|other| *other != ticket)
            .filter_map(|other| self.coordination.take_call(other))
            .collect();
        let arrived = std::iter::once(call).chain(others).map(|call| Arrival {
            reply: call.reply.map(Caller::Here),
            member: call.member,
            infos: Vec::new(),
        });
        let arrived = arrived.collect();
        self.constructed(
            &group,
            &named,
            arrived,
            &constructed.members,
            constructed.context,
        );
    }

    /// Sends the result of a construction to the callers on other nodes. Returns the callers on this node.
    pub(super) fn tell_other_callers(
        &mut self,
        named: &BTreeSet<Member>,
        arrived: Vec<Arrival>,
        joined: &[Joined],
        context: Option<u64>,
    ) -> Vec<(ReplyTo, Member)> {
        let mut here = Vec::new();
        let mut nodes: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for arrival in arrived {
            match arrival.reply {
                Some(Caller::Here(reply)) => here.push((reply, arrival.member)),
                Some(Caller::Node { node, ticket }) => {
                    nodes.entry(node).or_default().push(ticket.0);
                }
                None => {}
            }
        }
        for (node, tickets) in nodes {
            let result = Constructed {
                tickets: tickets.clone(),
                named: self.procs(named),
                context,
                members: joined.to_vec(),
            };
            let mut answer = result.encode();
            for ticket in tickets {
                self.out.push_back(Output::QuestionAnswered {
                    node,
                    ticket: QuestionTicket(ticket),
                    result: Ok(std::mem::take(&mut answer)),
                });
            }
        }
        here
    }

    /// Asks the other nodes for the loss of the members that a collective names or has as callers there.
    pub(super) fn watch_members(&mut self, collective: u64) {
        let Some(tracker) = self.collectives.get_mut(collective) else {
            return;
        };
        let all: BTreeSet<Member> = tracker.awaited().chain(tracker.members_here()).collect();
        let mut nodes: BTreeMap<u32, BTreeSet<Member>> = BTreeMap::new();
        for member in all {
            if let Some(node) = self.away_node_of(member) {
                nodes.entry(node).or_default().insert(member);
            }
        }
        for (node, members) in nodes {
            let watches = &mut self.coordination.watches;
            let before = watches
                .iter()
                .find(|(_, watch)| (watch.collective, watch.node) == (collective, node))
                .map(|(ticket, watch)| (*ticket, watch.members == members));
            match before {
                Some((_, true)) => continue,
                Some((ticket, false)) => {
                    watches.remove(&ticket);
                    self.out.push_back(Output::NoLongerAsked { ticket, node });
                }
                None => {}
            }
            let ticket = self.questions.ticket();
            self.out.push_back(Output::Question {
                ticket,
                node,
                question: Question::Loss(self.procs(&members)).encode(),
            });
            let watch = Watch {
                collective,
                node,
                members,
            };
            self.coordination.watches.insert(ticket, watch);
        }
    }

    /// Returns the node of a member on another node.
    fn away_node_of(&self, member: Member) -> Option<u32> {
        let proc = self.proc_of(member)?;
        let job = self.jobs.get(&proc.nspace)?;
        if job.is_local(proc.rank) {
            return None;
        }
        job.node_of(proc.rank)
    }

    fn on_members_lost(&mut self, watch: Watch, result: Result<&[u8], Status>) {
        let lost: BTreeSet<Member> = match result {
            Ok(bytes) => {
                let procs = read_lost(bytes).unwrap_or_default();
                let lost = procs.iter().filter_map(|proc| self.member_of(proc));
                lost.filter(|lost| watch.members.contains(lost)).collect()
            }
            // The node is lost.
            Err(_) => watch.members,
        };
        // An answer without one of these members is wrong; asking again would get it again.
        if lost.is_empty() {
            return;
        }
        for member in lost {
            self.lose_member(member);
        }
        self.watch_members(watch.collective);
    }

    /// Answers a question about the loss of local processes, or lets it wait.
    pub(super) fn on_loss_question(&mut self, node: u32, ticket: QuestionTicket, procs: Vec<Proc>) {
        let is_lost = |proc: &&Proc| {
            let job = self.jobs.get(&proc.nspace);
            job.is_none_or(|job| !job.is_local(proc.rank) || job.is_gone(proc.rank.0))
        };
        let lost: Vec<Proc> = procs.iter().filter(is_lost).cloned().collect();
        if lost.is_empty() && !procs.is_empty() {
            self.coordination.watched.insert((node, ticket), procs);
        } else {
            self.tell_lost(node, ticket, &lost);
        }
    }

    /// Answers the questions of other nodes about the loss of a process.
    pub(super) fn tell_watching_nodes(&mut self, proc: &Proc) {
        let concerned = |_: &(u32, QuestionTicket), procs: &mut Vec<Proc>| procs.contains(proc);
        let watched = self.coordination.watched.extract_if(.., concerned);
        let keys: Vec<(u32, QuestionTicket)> = watched.map(|(key, _)| key).collect();
        for (node, ticket) in keys {
            self.tell_lost(node, ticket, std::slice::from_ref(proc));
        }
    }

    fn tell_lost(&mut self, node: u32, ticket: QuestionTicket, procs: &[Proc]) {
        self.out.push_back(Output::QuestionAnswered {
            node,
            ticket,
            result: Ok(write_lost(procs)),
        });
    }

    /// Withdraws the calls of a closed connection.
    pub(super) fn forget_calls(&mut self, conn: Conn) {
        let calls = &self.coordination.calls;
        let of_conn = calls.iter().filter(|(_, call)| {
            let reply = call.reply.as_ref();
            reply.is_some_and(|reply| reply.conn == conn)
        });
        let tickets: Vec<QuestionTicket> = of_conn.map(|(ticket, _)| *ticket).collect();
        self.withdraw_calls(tickets);
    }

    /// Ends what concerns a job that is over. The coordinator ends its collectives itself.
    pub(super) fn forget_coordination_of(&mut self, nspace: &Nspace, job: u32) {
        let calls = self.coordination.calls.iter();
        let of_job = calls.filter(|(_, call)| call.member.job == job);
        let tickets: Vec<QuestionTicket> = of_job.map(|(ticket, _)| *ticket).collect();
        self.withdraw_calls(tickets);
        let concerned = |_: &(u32, QuestionTicket), procs: &mut Vec<Proc>| {
            procs.iter().any(|proc| proc.nspace == *nspace)
        };
        let watched = self.coordination.watched.extract_if(.., concerned);
        for ((node, ticket), mut procs) in watched.collect::<Vec<_>>() {
            procs.retain(|proc| proc.nspace == *nspace);
            self.tell_lost(node, ticket, &procs);
        }
    }

    fn withdraw_calls(&mut self, tickets: Vec<QuestionTicket>) {
        for ticket in tickets {
            if self.coordination.take_call(ticket).is_some() {
                self.out.push_back(Output::NoLongerAsked {
                    ticket,
                    node: COORDINATOR,
                });
            }
        }
    }

    /// Ends the questions about members of collectives that are over.
    pub(super) fn end_watches(&mut self) {
        let collectives = &self.collectives;
        let over = |_: &QuestionTicket, watch: &mut Watch| !collectives.has(watch.collective);
        let over = self.coordination.watches.extract_if(.., over);
        for (ticket, watch) in over {
            let node = watch.node;
            self.out.push_back(Output::NoLongerAsked { ticket, node });
        }
    }
}
