//! Construction of groups over several nodes when not every call lists all members. One node, the coordinator, matches the
//! calls.
//!
//! Node [`COORDINATOR`] is the coordinator. Calls of processes on other nodes reach it as follows:
//!
//! | caller | its server |
//! |---|---|
//! | a leader (the directive GROUP_BOOTSTRAP; not the bootstrap of daemons) | sends its call to the coordinator ([`Question::Construct`]) |
//! | a follower, which names no members | sends its call to the coordinator |
//! | a member that names members | waits for the calls of all named members, in a gather ([`super::gather`]) if they are on several nodes. If any call adds members, it then sends the calls of its node to the coordinator |
//!
//! The coordinator handles these calls like those of its own processes, see [`super::construct`]. It waits for named and
//! added members on any node, and answers each call with the result. Each server with members then records the group and
//! answers its own clients.
//!
//! | who waits | for what | until |
//! |---|---|---|
//! | a server | the answer to a call | the answer arrives; all its callers disconnect; a caller's job ends; the coordinator is lost |
//! | the coordinator | calls of members on other nodes | all have called; `pmix.timeout`; a member is lost ([`Question::Loss`]); a job ends |
//! | a server that was asked to report a loss | the loss of one of the local processes in the question | the loss; their job ends; the construction ends |

use std::collections::{BTreeMap, BTreeSet};

use base::Time;

use super::{
    Conn, MAX_QUESTIONS, MAX_SENT_BYTES, Output, QuestionTicket, ReplyTo, Server,
    collective::{Arrival, Caller, Tracker},
    member::Member,
    question::{ConstructQuestion, Constructed, Question, read_lost, write_lost},
    share::{Joined, MAX_CARRIED},
};
use crate::{
    keys,
    planted::{self, Bug},
    value::{Nspace, Proc, Status},
};

/// The node that coordinates the construction of groups whose members do not all name each other. Every dvm has a node 0.
const COORDINATOR: u32 = 0;

/// Maximum size of a call for the coordinator, in bytes. A longer call makes its construction fail with OUT_OF_RESOURCE.
pub const MAX_CALL: usize = 16 << 20;

/// Calls and questions that are in progress between this node and others.
#[derive(Debug, Default)]
pub(super) struct Coordination {
    /// Calls of local processes that the coordinator has not answered.
    calls: BTreeMap<QuestionTicket, Call>,
    call_bytes: usize,
    /// Questions from this node, as the coordinator, about the loss of members on other nodes.
    watches: BTreeMap<QuestionTicket, Watch>,
    /// Remote members whose loss is watched, by the number of their collective.
    watched_members: BTreeMap<u64, BTreeSet<Member>>,
    /// Questions from the coordinator about the loss of local processes.
    watched: BTreeMap<(u32, QuestionTicket), Vec<Proc>>,
}

/// One message to the coordinator, with calls of local processes that have no answer yet.
#[derive(Debug)]
struct Call {
    group: Nspace,
    /// Each caller, with `None` if its connection has closed.
    callers: Vec<(Option<ReplyTo>, Member)>,
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

    fn has_room(&self, question: &[u8]) -> bool {
        question.len() <= MAX_CALL.min(MAX_SENT_BYTES.saturating_sub(self.call_bytes))
            && self.calls.len() < MAX_QUESTIONS
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
            && self.watches.is_empty()
            && self.watched_members.is_empty()
            && self.watched.is_empty()
    }
}

impl ConstructQuestion {
    /// Makes the construction fail. The question keeps only the directives that the coordinator needs to
    /// match and to end the construction.
    fn refuse(&mut self, status: Status) {
        self.refused = Some(status);
        let matters = [keys::GROUP_BOOTSTRAP, keys::GROUP_OPTIONAL, keys::TIMEOUT];
        for caller in &mut self.callers {
            let infos = &mut caller.infos;
            infos.retain(|info| matters.iter().any(|key| info.key == **key));
        }
    }
}

impl Server {
    /// Returns true if this node is the coordinator. `from` is a local process.
    pub(super) fn is_coordinator(&self, from: &Proc) -> bool {
        let job = self.jobs.get(&from.nspace);
        job.and_then(|job| job.node_here()) == Some(COORDINATOR)
    }

    /// Sends calls of local processes to the coordinator. If there is no room for them, the construction fails for all.
    pub(super) fn call_coordinator(
        &mut self,
        replies: Vec<Option<ReplyTo>>,
        mut question: ConstructQuestion,
    ) {
        let members = question.callers.iter();
        let members = members.filter_map(|caller| self.member_of(&caller.proc));
        let callers: Vec<(Option<ReplyTo>, Member)> = replies.into_iter().zip(members).collect();
        assert_eq!(callers.len(), question.callers.len(), "callers are local");
        if self.groups.is_full() {
            question.refuse(Status::OUT_OF_RESOURCE);
        }
        let group = question.group.clone();
        let mut text = Question::Construct(question.clone()).encode();
        if !self.coordination.has_room(&text) {
            question.refuse(Status::OUT_OF_RESOURCE);
            text = Question::Construct(question).encode();
        }
        let ticket = self.questions.ticket();
        let bytes = text.len();
        self.coordination.call_bytes += bytes;
        let call = Call {
            group,
            callers,
            bytes,
        };
        self.coordination.calls.insert(ticket, call);
        self.out.push_back(Output::Question {
            ticket,
            node: COORDINATOR,
            question: text,
        });
    }

    /// Hands a construction over to the coordinator, after all named members have called and some have added others. If
    /// this node is the coordinator, it coordinates the construction itself, for which it needs `now`. `None` means that this
    /// node is not the coordinator.
    pub(super) fn hand_over(
        &mut self,
        now: Option<Time>,
        group: &Nspace,
        tracker: Tracker,
        added: Vec<Proc>,
    ) {
        let named = self.procs(tracker.members());
        let (mut replies, mut callers) = (Vec::new(), Vec::new());
        for Arrival {
            reply,
            member,
            mut infos,
        } in tracker.arrived
        {
            if let Some(proc) = self.proc_of(member) {
                infos.retain(|info| info.key != *keys::GROUP_ADD_MEMBERS);
                callers.push(Joined { proc, infos });
                replies.push(reply);
            }
        }
        let added = match planted::is(Bug::AddedForgotten) {
            true => Vec::new(),
            false => added,
        };
        let question = ConstructQuestion {
            group: group.clone(),
            named,
            added,
            refused: None,
            callers,
        };
        let Some(first) = question.callers.first() else {
            return;
        };
        match now.filter(|_| self.is_coordinator(&first.proc)) {
            Some(now) => self.coordinate(now, replies, question),
            None => {
                let here = |caller| match caller {
                    Some(Caller::Here(reply)) => Some(reply),
                    Some(Caller::Node { .. }) | None => None,
                };
                self.call_coordinator(replies.into_iter().map(here).collect(), question);
            }
        }
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
                let callers = call.callers.into_iter();
                let callers = callers.map(|(reply, _)| reply.map(Caller::Here));
                return self.tell_callers(callers, status);
            }
        };
        // The first answer serves all calls of this node for the group.
        let others = constructed.tickets.into_iter().map(QuestionTicket);
        let others: Vec<Call> = others
            .filter(|other| *other != ticket)
            .filter_map(|other| self.coordination.take_call(other))
            .collect();
        let group = call.group.clone();
        let calls = std::iter::once(call).chain(others);
        let arrived = calls.flat_map(|call| call.callers).map(|(reply, member)| {
            let reply = reply.map(Caller::Here);
            Arrival {
                reply,
                member,
                infos: Vec::new(),
            }
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
        let mut nodes: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
        for arrival in arrived {
            match arrival.reply {
                Some(Caller::Here(reply)) => here.push((reply, arrival.member)),
                Some(Caller::Node { node, ticket }) => {
                    nodes.entry(node).or_default().insert(ticket.0);
                }
                None => {}
            }
        }
        for (node, tickets) in nodes {
            let result = Constructed {
                tickets: tickets.iter().copied().collect(),
                named: self.procs(named),
                context,
                members: joined.to_vec(),
            };
            // Each answer has the whole result: a call may be withdrawn while its answer is in flight.
            let answer = result.encode();
            let answer = if answer.len() > MAX_CARRIED {
                Err(Status::OUT_OF_RESOURCE)
            } else {
                Ok(answer)
            };
            for ticket in tickets {
                self.out.push_back(Output::QuestionAnswered {
                    node,
                    ticket: QuestionTicket(ticket),
                    result: answer.clone(),
                });
            }
        }
        here
    }

    /// Asks the other nodes to report the loss of these members of a collective.
    pub(super) fn watch_members(&mut self, collective: u64, members: &BTreeSet<Member>) {
        if !self.has_neighbors() {
            return;
        }
        let mut nodes: BTreeMap<u32, BTreeSet<Member>> = BTreeMap::new();
        for member in members {
            if let Some(node) = self.away_node_of(*member) {
                nodes.entry(node).or_default().insert(*member);
            }
        }
        for (node, mut members) in nodes {
            let watched = self.coordination.watched_members.entry(collective);
            let watched = watched.or_default();
            members.retain(|member| watched.insert(*member));
            if members.is_empty() {
                continue;
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

    /// Returns the node of a member, unless the member is local or unknown.
    fn away_node_of(&self, member: Member) -> Option<u32> {
        let proc = self.proc_of(member)?;
        let job = self.jobs.get(&proc.nspace)?;
        if job.is_local(proc.rank) {
            return None;
        }
        job.node_of(proc.rank)
    }

    fn on_members_lost(&mut self, watch: Watch, result: Result<&[u8], Status>) {
        let Watch {
            collective,
            mut members,
            ..
        } = watch;
        let lost = result.ok().and_then(|bytes| read_lost(bytes).ok());
        let lost = lost.unwrap_or_default();
        let lost: BTreeSet<Member> = lost
            .iter()
            .filter_map(|proc| self.member_of(proc))
            .collect();
        let mut lost: BTreeSet<Member> = lost.intersection(&members).copied().collect();
        if lost.is_empty() {
            // The node is lost, or its answer is useless: no node will report the loss of these members.
            lost.clone_from(&members);
        }
        if let Some(watched) = self.coordination.watched_members.get_mut(&collective) {
            watched.retain(|member| !members.contains(member));
        }
        members.retain(|member| !lost.contains(member));
        for member in lost {
            self.lose_member(member);
        }
        if self.collectives.has(collective) {
            self.watch_members(collective, &members);
        }
    }

    /// Answers a question about the loss of local processes, or keeps it until one of them is lost.
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

    /// Drops the requests of a closed connection, and withdraws each call whose callers have all disconnected.
    pub(super) fn forget_calls(&mut self, conn: Conn) {
        let mut deserted = Vec::new();
        for (ticket, call) in &mut self.coordination.calls {
            let mut is_concerned = false;
            for (reply, _) in &mut call.callers {
                let of_conn = |reply: &mut ReplyTo| reply.conn == conn;
                is_concerned |= reply.take_if(of_conn).is_some();
            }
            if is_concerned && call.callers.iter().all(|(reply, _)| reply.is_none()) {
                deserted.push(*ticket);
            }
        }
        self.withdraw_calls(deserted);
    }

    /// Withdraws the calls of a job that is over, and answers questions about its processes. The coordinator itself ends the
    /// collectives of the job.
    pub(super) fn forget_coordination_of(&mut self, nspace: &Nspace, job: u32) {
        let calls = self.coordination.calls.iter();
        let of_job = calls.filter(|(_, call)| {
            let mut callers = call.callers.iter();
            callers.any(|(_, member)| member.job == job)
        });
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

    /// Withdraws calls from the coordinator. Callers whose connection is open get LOST_CONNECTION: their own job continues,
    /// but another caller's job is over.
    fn withdraw_calls(&mut self, tickets: Vec<QuestionTicket>) {
        for ticket in tickets {
            if let Some(call) = self.coordination.take_call(ticket) {
                self.out.push_back(Output::NoLongerAsked {
                    ticket,
                    node: COORDINATOR,
                });
                let replies = call.callers.into_iter().map(|(reply, _)| reply);
                let callers = replies.map(|reply| reply.map(Caller::Here));
                self.tell_callers(callers, Status::LOST_CONNECTION);
            }
        }
    }

    /// Withdraws the questions about members of collectives that are over.
    pub(super) fn end_watches(&mut self) {
        let collectives = &self.collectives;
        let watched = &mut self.coordination.watched_members;
        let before = watched.len();
        watched.retain(|collective, _| collectives.has(*collective));
        if watched.len() == before {
            return;
        }
        let over = |_: &QuestionTicket, watch: &mut Watch| !collectives.has(watch.collective);
        let over = self.coordination.watches.extract_if(.., over);
        for (ticket, watch) in over {
            let node = watch.node;
            self.out.push_back(Output::NoLongerAsked { ticket, node });
        }
    }
}
