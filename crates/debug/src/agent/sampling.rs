//! Takes a sample: process by process, and then the answer.

use std::{
    collections::{BTreeSet, VecDeque},
    mem,
};

use base::Rank;

use super::{
    Agent, Knowledge, Order, Output, Request, State,
    around::Around,
    kernel::{Answer, Lent, Process},
    probe::{Calls, Probe, Step},
};
use crate::{
    peers::{LocalPeers, Peers},
    proto::{Action, Extent, FromAgent, Proc},
    reply::{Partial, PartialSample, PartialStacks},
    report::Shown,
    snapshot::{Child, Snapshot},
    stack::{Missing, Seen},
};

/// The current sample.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) order: Order,
    peers: LocalPeers,
    /// The processes that are still to be sampled.
    queue: VecDeque<Subject>,
    /// The process that is sampled now.
    current: (Subject, Probe),
    snapshot: Snapshot,
}

/// A process of a sample.
#[derive(Debug)]
enum Subject {
    Rank(Rank, Proc),
    /// A descendant of this rank.
    Child(Rank, Process),
}

impl Subject {
    const fn proc(&self) -> Proc {
        match self {
            Self::Rank(_, proc) => *proc,
            Self::Child(_, process) => Proc {
                pid: process.pid,
                started: process.started,
            },
        }
    }
}

impl Agent {
    /// Begins to sample the ranks of a command and their descendants.
    pub(super) fn sample(&mut self, order: Order, around: Around) {
        let procs = self.chosen(&order.ranks);
        let (children, left_out) = around.children();
        let peers = around.into_peers();
        self.left_out = self.left_out.max(left_out);
        let ranks = procs.into_iter();
        let ranks = ranks.map(|(rank, proc)| Subject::Rank(rank, proc));
        let children = children.into_iter();
        let children = children.map(|(rank, process)| Subject::Child(rank, process));
        let mut queue: VecDeque<Subject> = ranks.chain(children).collect();
        if self.memory == Knowledge::Outdated {
            let pids: BTreeSet<i32> = queue.iter().map(|subject| subject.proc().pid).collect();
            self.reader.keep(&pids);
            self.memory = Knowledge::Current;
        }
        self.first_threads.clear();
        let Some(first) = queue.pop_front() else {
            self.reply(&order, peers, Snapshot::default());
            return;
        };
        let probe = self.probe(&first);
        self.state = State::Sampling(Box::new(Work {
            order,
            peers,
            queue,
            current: (first, probe),
            snapshot: Snapshot::default(),
        }));
    }

    fn probe(&mut self, subject: &Subject) -> Probe {
        let Proc { pid, started } = subject.proc();
        self.reader.images.begin();
        let (probe, question) = Probe::new(pid, started, self.own);
        self.ask(question);
        probe
    }

    pub(super) fn go_on(&mut self, mut work: Box<Work>, answer: Answer, lent: Lent<'_>) {
        let (_, probe) = &mut work.current;
        if self.request == Request::Cancelled {
            match probe.abandon(&answer) {
                Some(release) => {
                    self.ask(release);
                    self.state = State::Sampling(work);
                }
                None => self.outputs.push_back(Output::ReleaseLate),
            }
            return;
        }
        let (seen, calls) = match probe.handle(&mut self.reader, answer, lent) {
            Step::Ask(question) => {
                self.ask(question);
                self.state = State::Sampling(work);
                return;
            }
            Step::Done(seen, calls) => (seen, calls),
        };
        let next = work.queue.pop_front();
        let next = next.map(|subject| (self.probe(&subject), subject));
        let Some((probe, subject)) = next else {
            let Work {
                order,
                peers,
                current: (subject, _),
                mut snapshot,
                ..
            } = *work;
            self.add(&mut snapshot, subject, seen, calls);
            self.reply(&order, peers, snapshot);
            return;
        };
        let (subject, _) = mem::replace(&mut work.current, (subject, probe));
        self.add(&mut work.snapshot, subject, seen, calls);
        self.state = State::Sampling(work);
    }

    fn add(&mut self, snapshot: &mut Snapshot, subject: Subject, seen: Seen, calls: Calls) {
        match (&subject, calls) {
            (Subject::Rank(rank, _), Calls::Recorded(calls)) => {
                snapshot.calls.insert(*rank, *calls);
            }
            (Subject::Rank(rank, _), Calls::Read(site)) => {
                snapshot.call_sites.insert(*rank, *site);
            }
            (Subject::Rank(rank, _), Calls::Unreadable) => {
                snapshot.unreadable.insert(*rank);
            }
            (Subject::Rank(..), Calls::Unknown) | (Subject::Child(..), _) => {}
        }
        match (subject, seen) {
            (Subject::Rank(rank, _), seen) => {
                if let Seen::Threads(threads) = &seen
                    && let Some(first) = threads.first()
                {
                    self.first_threads.insert(rank, first.tid);
                }
                snapshot.procs.insert(rank, seen);
            }
            // A descendant that has already exited is not reported.
            (Subject::Child(..), Seen::Missing(Missing::Gone | Missing::Zombie)) => {}
            (Subject::Child(rank, process), seen) => {
                snapshot.children.entry(rank).or_default().push(Child {
                    pid: process.pid,
                    parent: process.parent,
                    name: process.name.into(),
                    seen,
                });
            }
        }
    }

    fn reply(&mut self, order: &Order, mut peers: LocalPeers, mut snapshot: Snapshot) {
        self.outputs.push_back(Output::ReleaseLate);
        let part = match order.action {
            Action::Sample(extent) => {
                if extent == Extent::Everybody {
                    let procs = self.chosen(&order.ranks);
                    peers.ranks = procs.keys().copied().collect();
                    peers.joining = self.reader.joining(procs.values().map(|proc| proc.pid));
                    snapshot.peers = Peers::of(self.node, peers);
                }
                Partial::Sample(PartialSample::cut(&self.reader.frames, snapshot))
            }
            Action::Stacks(detail) => {
                let PartialSample {
                    mut frames,
                    snapshot,
                } = PartialSample::cut(&self.reader.frames, snapshot);
                let shown = Shown::of(detail, std::iter::once(&snapshot), &mut frames);
                let (merged, missing) = shown.merged(&frames, &snapshot);
                let missing = missing.into_iter();
                Partial::Stacks(PartialStacks {
                    frames,
                    merged,
                    missing: missing.map(|absent| (absent.why, absent.ranks)).collect(),
                })
            }
            Action::Describe => return,
        };
        let id = order.id;
        self.send(FromAgent::Done { id, part });
    }
}
