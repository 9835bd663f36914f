//! What several processes do together: each calls, and all are answered when the last has called.
//!
//! A collective is known by its kind and by the set of those who take part. As soon as all of them are in, it is no
//! longer known, so that the next one over the same set is a new one. A process that calls again before the others have
//! called once is in the next one already.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::Time;
use bytes::Bytes;

use super::{Conn, Output, ReplyTo, Server, is_set, timeout};
use crate::{
    codec::Writer,
    keys,
    message::Answer,
    value::{Info, Nspace, PmixRank, Proc, Status},
};

/// What is done together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Fence,
    Connect,
    Disconnect,
    /// A group is made; by its name.
    Construct(Bytes),
    /// A group is ended.
    Destruct(Bytes),
}

/// What a collective is known by.
type Id = (Kind, BTreeSet<Proc>);

/// Those under way.
#[derive(Debug, Default)]
pub(super) struct Collectives {
    under_way: BTreeMap<Id, VecDeque<Tracker>>,
}

/// One collective.
#[derive(Debug)]
struct Tracker {
    /// Whom it still waits for.
    missing: BTreeSet<(Nspace, u32)>,
    arrived: Vec<Arrival>,
    deadline: Option<Time>,
}

/// One process in a collective.
#[derive(Debug)]
pub(super) struct Arrival {
    reply: ReplyTo,
    pub(super) proc: Proc,
    pub(super) infos: Vec<Info>,
}

impl Collectives {
    pub(super) fn deadline(&self) -> Option<Time> {
        self.under_way
            .values()
            .flatten()
            .filter_map(|tracker| tracker.deadline)
            .min()
    }

    /// A connection is gone: its requests need no answer. Whether its process is gone as well is told separately.
    pub(super) fn forget(&mut self, conn: Conn) {
        for tracker in self.under_way.values_mut().flatten() {
            tracker.arrived.retain(|arrival| arrival.reply.conn != conn);
        }
    }

    /// Takes those out that a test is true of.
    fn take(&mut self, test: impl Fn(&Id, &Tracker) -> bool) -> Vec<Tracker> {
        let mut taken = Vec::new();
        for (id, trackers) in &mut self.under_way {
            let (out, keep) = std::mem::take(trackers)
                .into_iter()
                .partition(|tracker| test(id, tracker));
            *trackers = keep;
            taken.extend::<VecDeque<Tracker>>(out);
        }
        self.under_way.retain(|_, trackers| !trackers.is_empty());
        taken
    }
}

impl Server {
    pub(super) fn on_collective(
        &mut self,
        now: Time,
        reply: ReplyTo,
        from: &Proc,
        kind: Kind,
        procs: Vec<Proc>,
        infos: Vec<Info>,
    ) {
        let procs: BTreeSet<Proc> = procs.into_iter().collect();
        let id = (kind, procs);
        let arrival = Arrival {
            reply,
            proc: from.clone(),
            infos,
        };
        let who = (from.nspace.clone(), from.rank.0);
        let trackers = self.collectives.under_way.get_mut(&id);
        let waiting = trackers.and_then(|trackers| {
            trackers
                .iter_mut()
                .find(|tracker| tracker.missing.contains(&who))
        });
        let deadline = timeout(now, &arrival.infos);
        if let Some(tracker) = waiting {
            tracker.missing.remove(&who);
            tracker.deadline = tracker.deadline.into_iter().chain(deadline).min();
            tracker.arrived.push(arrival);
        } else {
            let mut missing = match self.members(&id.1) {
                Ok(missing) => missing,
                Err(status) => return self.status(arrival.reply, status),
            };
            // A process that is named by nobody has no part in it.
            if !missing.remove(&who) {
                return self.status(arrival.reply, Status::BAD_PARAM);
            }
            let tracker = Tracker {
                missing,
                arrived: vec![arrival],
                deadline,
            };
            self.collectives
                .under_way
                .entry(id.clone())
                .or_default()
                .push_back(tracker);
        }
        self.complete(&id);
    }

    /// Everybody who takes part, one by one.
    fn members(&self, procs: &BTreeSet<Proc>) -> Result<BTreeSet<(Nspace, u32)>, Status> {
        let mut members = BTreeSet::new();
        for proc in procs {
            let job = self.jobs.get(&proc.nspace).ok_or(Status::NOT_FOUND)?;
            let one = [proc.rank.0];
            let all: Vec<u32>;
            let ranks: &[u32] = match proc.rank {
                PmixRank::WILDCARD => {
                    all = (0..job.size()).collect();
                    &all
                }
                PmixRank::LOCAL_PEERS | PmixRank::LOCAL_NODE => {
                    all = job.local_ranks().collect();
                    &all
                }
                _ => &one,
            };
            for rank in ranks {
                if !job.is_local(PmixRank(*rank)) {
                    // On another node, or of no node.
                    return Err(if *rank < job.size() {
                        Status::NOT_SUPPORTED
                    } else {
                        Status::BAD_PARAM
                    });
                }
                if job.is_gone(*rank) {
                    return Err(Status::LOST_CONNECTION);
                }
                members.insert((proc.nspace.clone(), *rank));
            }
        }
        Ok(members)
    }

    /// Answers everybody when nobody is missing.
    fn complete(&mut self, id: &Id) {
        let Some(trackers) = self.collectives.under_way.get_mut(id) else {
            return;
        };
        let Some(at) = trackers
            .iter()
            .position(|tracker| tracker.missing.is_empty())
        else {
            return;
        };
        let Some(tracker) = trackers.remove(at) else {
            return;
        };
        if trackers.is_empty() {
            self.collectives.under_way.remove(id);
        }
        let (kind, procs) = id;
        match kind {
            Kind::Fence => self.fence_done(tracker),
            Kind::Disconnect => self.all(tracker, Status::SUCCESS),
            Kind::Connect => self.connected(tracker, procs),
            Kind::Construct(group) => self.constructed(group.clone(), procs, tracker.arrived),
            Kind::Destruct(group) => {
                self.groups.remove(group);
                self.all(tracker, Status::SUCCESS);
            }
        }
    }

    fn fence_done(&mut self, tracker: Tracker) {
        let collect = |arrival: &Arrival| is_set(&arrival.infos, keys::COLLECT_DATA);
        let first = tracker.arrived.first().is_some_and(collect);
        let agree = tracker
            .arrived
            .iter()
            .all(|arrival| collect(arrival) == first);
        let status = if agree {
            Status::SUCCESS
        } else {
            Status::INVALID_ARG
        };
        self.all(tracker, status);
    }

    /// Everybody is told about the jobs of the others.
    fn connected(&mut self, tracker: Tracker, procs: &BTreeSet<Proc>) {
        let jobs: BTreeSet<Nspace> = procs.iter().map(|proc| proc.nspace.clone()).collect();
        for Arrival { reply, proc, .. } in tracker.arrived {
            let others = jobs.iter().filter(|job| **job != proc.nspace);
            self.tell_jobs(reply, others, |_| {}, Writer::nested);
        }
    }

    /// Answers with success, something, and the facts of jobs as buffers.
    pub(super) fn tell_jobs<'a>(
        &mut self,
        reply: ReplyTo,
        jobs: impl Iterator<Item = &'a Nspace>,
        before: impl FnOnce(&mut Writer),
        each: impl Fn(&mut Writer, &[u8]),
    ) {
        let ReplyTo { conn, tag } = reply;
        let Some(peer) = self.peers.get_mut(&conn) else {
            return;
        };
        let Some(format) = peer.known().map(|known| known.format) else {
            return;
        };
        let packed: Vec<Bytes> = jobs
            .filter_map(|job| Some(self.jobs.get_mut(job)?.packed(format)))
            .collect();
        let bytes = peer.packed_answer(tag, |writer| {
            writer.item(&Status::SUCCESS);
            before(writer);
            for packed in &packed {
                each(writer, packed);
            }
        });
        if let Some(bytes) = bytes {
            self.out.push_back(Output::Send { conn, bytes });
        }
    }

    fn all(&mut self, tracker: Tracker, status: Status) {
        for arrival in tracker.arrived {
            self.answer(arrival.reply, &Answer::Status(status));
        }
    }

    /// A process will not come: those who wait for it are told, once.
    pub(super) fn on_gone(&mut self, proc: &Proc) {
        let who = (proc.nspace.clone(), proc.rank.0);
        let broken = self
            .collectives
            .take(|_, tracker| tracker.missing.contains(&who));
        for tracker in broken {
            self.all(tracker, Status::LOST_CONNECTION);
        }
    }

    /// A job is over: no collective can have its processes.
    pub(super) fn collectives_without(&mut self, nspace: &Nspace) {
        let broken = self
            .collectives
            .take(|(_, procs), _| procs.iter().any(|proc| proc.nspace == *nspace));
        for tracker in broken {
            self.all(tracker, Status::LOST_CONNECTION);
        }
    }

    pub(super) fn expire_collectives(&mut self, now: Time) {
        let expired = self
            .collectives
            .take(|_, tracker| tracker.deadline.is_some_and(|at| at <= now));
        for tracker in expired {
            self.all(tracker, Status::TIMEOUT);
        }
    }
}

impl Arrival {
    pub(super) fn into_reply(self) -> ReplyTo {
        self.reply
    }

    pub(super) const fn conn(&self) -> Conn {
        self.reply.conn
    }
}
