//! A job as its server knows it, and the state of its local processes.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{CStr, CString},
};

use base::{ExitStatus, Rank, RankSet};
use bytes::Bytes;

use super::{
    Job, Output, RankFacts, ReplyTo, Server, StopIn,
    peer::Role,
    stored::{Stored, View, Wanted},
};
use crate::{
    codec::Format,
    message::Answer,
    planted::{self, Bug},
    value::{Nspace, PmixRank, Proc, ProcInfo, ProcState, Status, Value},
};

/// The state of a local process.
#[derive(Debug, Default)]
struct Local {
    pid: u32,
    /// Number of connections that have not finalized. A fork may have made more than one.
    connections: u32,
    presence: Presence,
    /// True if the process has requested an abort.
    is_aborting: bool,
}

/// Process numbers and states of processes of other nodes, by rank. A process that has not started has the number 0.
pub(super) type Remote = BTreeMap<u32, (u32, ProcState)>;

impl Local {
    /// Returns the state in the process table.
    const fn state(&self) -> ProcState {
        match self.presence {
            Presence::Expected if self.pid == 0 => ProcState::PREPPED,
            Presence::Expected | Presence::Finalized | Presence::Lost => ProcState::RUNNING,
            Presence::Connected => ProcState::CONNECTED,
            Presence::Ended(state) => state,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Presence {
    /// The process has not called PMIx_Init.
    #[default]
    Expected,
    Connected,
    Finalized,
    /// The connection broke and the process has not reconnected in time.
    Lost,
    /// The process has ended, with this state in the process table.
    Ended(ProcState),
}

/// The phase that a process was in when it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndPhase {
    /// Before PMIx_Init, or after PMIx_Finalize.
    Outside,
    /// Between PMIx_Init and PMIx_Finalize.
    Inside,
    /// After it had requested an abort.
    Aborting,
}

/// Returns how the end of a process is reported: the status code of its event, and its state in the process table.
pub(super) const fn end_codes(phase: EndPhase, status: ExitStatus) -> (Status, ProcState) {
    match (phase, status) {
        (EndPhase::Aborting, _) => (Status::PROC_REQUESTED_ABORT, ProcState::CALLED_ABORT),
        (_, ExitStatus::Signaled { .. } | ExitStatus::OutOfMemory { .. }) => {
            (Status::PROC_ABORTED_BY_SIG, ProcState::ABORTED_BY_SIG)
        }
        (EndPhase::Inside, ExitStatus::Exited(_)) => {
            (Status::PROC_TERM_WO_SYNC, ProcState::TERM_WO_SYNC)
        }
        (EndPhase::Outside, ExitStatus::Exited(0)) => {
            (Status::EVENT_PROC_TERMINATED, ProcState::TERMINATED)
        }
        (EndPhase::Outside, ExitStatus::Exited(_)) => {
            (Status::EXIT_NONZERO_TERM, ProcState::TERMINATED)
        }
    }
}

/// The reader of the facts of a job. Libraries take the facts of ranks in one form when they get those of their own job, or of one that they
/// have spawned or connect with, and in another form in answers to gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FactsFor {
    /// A process that stops there, or does not stop.
    Member(Option<StopIn>),
    /// A process of another job that gets something of this one.
    Others,
}

/// A job and the state of its local processes.
#[derive(Debug)]
pub(super) struct Namespace {
    pub(super) job: Job,
    /// Number that identifies the job; never reused.
    pub(super) number: u32,
    /// True while the host is ending the job: no events are sent about ends of its processes.
    pub(super) is_ending: bool,
    local: BTreeMap<u32, Local>,
    /// Number of local processes whose pid is not known yet.
    unstarted: usize,
    /// Ranks on each node, by index into [`Job::nodes`].
    by_node: Vec<Vec<u32>>,
    /// Other nodes that have ranks of the job.
    away: BTreeSet<u32>,
    /// Sets that were defined while the job runs, in that order, with their ranks.
    pub(super) defined_sets: Vec<(CString, RankSet)>,
    pub(super) stored: Stored,
    /// Packed facts, once per message format and kind of reader.
    pub(super) packed: BTreeMap<(Format, FactsFor), Bytes>,
}

impl Namespace {
    pub(super) fn new(number: u32, job: Job) -> Self {
        let local: BTreeMap<_, _> = (0..)
            .zip(&job.ranks)
            .filter(|(_, rank)| rank.node == job.here)
            .map(|(rank, _)| (rank, Local::default()))
            .collect();
        let mut by_node = vec![Vec::new(); job.nodes.len()];
        for (rank, facts) in (0..).zip(&job.ranks) {
            if let Some(ranks) = by_node.get_mut(facts.node as usize) {
                ranks.push(rank);
            }
        }
        let others = (0..).zip(&job.nodes).zip(&by_node);
        let away = others
            .filter(|((index, _), ranks)| *index != job.here && !ranks.is_empty())
            .map(|((_, node), _)| node.id)
            .collect();
        Self {
            job,
            number,
            is_ending: false,
            unstarted: local.len(),
            local,
            by_node,
            away,
            defined_sets: Vec::new(),
            stored: Stored::default(),
            packed: BTreeMap::new(),
        }
    }

    pub(super) fn size(&self) -> u32 {
        u32::try_from(self.job.ranks.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn is_local(&self, rank: PmixRank) -> bool {
        self.local.contains_key(&rank.0)
    }

    /// Returns the other nodes that have ranks of the job.
    pub(super) const fn away(&self) -> &BTreeSet<u32> {
        &self.away
    }

    /// Returns the node of a rank, as [`super::NodeFacts::id`]; `None` if the job has no such rank.
    pub(super) fn node_of(&self, rank: PmixRank) -> Option<u32> {
        let node = self.rank(rank)?.node;
        Some(self.job.nodes.get(node as usize)?.id)
    }

    /// Returns the part of a rank's data that local processes may see.
    pub(super) fn view(&self, rank: PmixRank) -> View {
        if self.is_local(rank) {
            View::Local
        } else {
            View::Remote
        }
    }

    /// Returns the lowest rank that has put a key, as far as this node knows.
    pub(super) fn who_has(&self, wanted: Wanted<'_>) -> Option<PmixRank> {
        self.stored.who_has(wanted, |rank| self.view(rank))
    }

    /// Returns the id of this node; `None` if the job does not use it.
    pub(super) fn node_here(&self) -> Option<u32> {
        Some(self.job.nodes.get(self.job.here as usize)?.id)
    }

    pub(super) fn local_ranks(&self) -> impl Iterator<Item = u32> {
        self.local.keys().copied()
    }

    pub(super) fn rank(&self, rank: PmixRank) -> Option<&RankFacts> {
        self.job.ranks.get(rank.0 as usize)
    }

    /// Returns true if a local process is lost or has ended. A lost process may still reconnect.
    pub(super) fn is_gone(&self, rank: u32) -> bool {
        self.local
            .get(&rank)
            .is_some_and(|local| matches!(local.presence, Presence::Lost | Presence::Ended(_)))
    }

    pub(super) fn has_ended(&self, rank: PmixRank) -> bool {
        self.local
            .get(&rank.0)
            .is_some_and(|local| matches!(local.presence, Presence::Ended(_)))
    }

    pub(super) fn started(&mut self, rank: PmixRank, pid: u32) {
        let Some(local) = self.local.get_mut(&rank.0) else {
            return;
        };
        if local.pid == 0 {
            self.unstarted -= 1;
            // Facts packed so far lack the pids of processes that started later. Packing again for every start would
            // take long.
            if self.unstarted == 0 {
                self.packed.clear();
            }
        }
        local.pid = pid;
    }

    /// Returns the pid of a local process; `None` before it has started.
    pub(super) fn pid(&self, rank: PmixRank) -> Option<u32> {
        let local = self.local.get(&rank.0)?;
        (local.pid != 0).then_some(local.pid)
    }

    /// Returns the place where a process stops for a debugger; `None` if it does not.
    fn stop_of(&self, proc: &Proc) -> Option<StopIn> {
        let stop = self.job.stop.as_ref()?;
        let is_meant = proc.nspace == self.job.nspace && stop.ranks.contains(Rank(proc.rank.0));
        is_meant.then_some(stop.place)
    }

    /// Returns true if some processes of the job stop for a debugger.
    pub(super) fn stops(&self) -> bool {
        let stop = self.job.stop.as_ref();
        stop.is_some_and(|stop| !stop.ranks.is_empty())
    }

    /// Returns true if a process stops for a debugger.
    pub(super) fn stops_at(&self, proc: &Proc) -> bool {
        self.stop_of(proc).is_some()
    }

    /// Removes ranks from those that stop. Returns true if they are all ranks of the job.
    pub(super) fn released(&mut self, ranks: &RankSet) -> bool {
        if let Some(stop) = &mut self.job.stop {
            stop.ranks = stop.ranks.difference(ranks);
        }
        ranks.len() == self.job.ranks.len()
    }

    /// Records that a process has requested an abort, possibly of itself.
    pub(super) fn aborts(&mut self, rank: PmixRank) {
        if let Some(local) = self.local.get_mut(&rank.0) {
            local.is_aborting = true;
        }
    }

    /// Records the end of a process and returns its phase; `None` if it is not local or had ended before.
    pub(super) fn ended(&mut self, rank: PmixRank, status: ExitStatus) -> Option<EndPhase> {
        let local = self.local.get_mut(&rank.0)?;
        let phase = match local.presence {
            Presence::Ended(_) => return None,
            _ if local.is_aborting => EndPhase::Aborting,
            Presence::Connected | Presence::Lost => EndPhase::Inside,
            Presence::Expected | Presence::Finalized => EndPhase::Outside,
        };
        let (_, state) = end_codes(phase, status);
        local.presence = Presence::Ended(state);
        Some(phase)
    }

    pub(super) fn connected(&mut self, rank: PmixRank) {
        if let Some(local) = self.local.get_mut(&rank.0) {
            local.connections += 1;
            if !matches!(local.presence, Presence::Ended(_)) {
                local.presence = Presence::Connected;
            }
        }
    }

    pub(super) fn finalized(&mut self, rank: PmixRank) {
        if let Some(local) = self.local.get_mut(&rank.0) {
            local.connections = local.connections.saturating_sub(1);
            if local.connections == 0 && local.presence == Presence::Connected {
                local.presence = Presence::Finalized;
            }
        }
    }

    /// Marks a process as lost, unless it has reconnected, finalized or ended.
    pub(super) fn lost(&mut self, rank: PmixRank) {
        if let Some(local) = self.local.get_mut(&rank.0)
            && local.presence == Presence::Connected
        {
            local.presence = Presence::Lost;
        }
    }

    /// Records that a connection closed without finalize. Returns true if it was the last one of a connected process.
    pub(super) fn disconnected(&mut self, rank: PmixRank) -> bool {
        let Some(local) = self.local.get_mut(&rank.0) else {
            return false;
        };
        local.connections = local.connections.saturating_sub(1);
        local.connections == 0 && local.presence == Presence::Connected
    }

    pub(super) fn node_name(&self, node: u32) -> Option<&CStr> {
        self.job
            .nodes
            .get(node as usize)
            .map(|node| node.name.as_c_str())
    }

    pub(super) fn ranks_on(&self, node: u32) -> &[u32] {
        self.by_node.get(node as usize).map_or(&[], Vec::as_slice)
    }

    /// Returns rows of the process table, in the order of these ranks. A process of another node has a row if it is in
    /// `remote`.
    pub(super) fn table(&self, ranks: impl Iterator<Item = u32>, remote: &Remote) -> Vec<Value> {
        let row = |rank: u32| {
            let facts = self.rank(PmixRank(rank))?;
            let app = self.job.apps.get(facts.app as usize)?;
            let executable = app.argv.as_ref().and_then(|argv| {
                let program = argv.to_bytes().split(|byte| *byte == b' ').next()?;
                CString::new(program).ok()
            });
            let (pid, state) = match self.local.get(&rank) {
                Some(local) => (local.pid, local.state()),
                None => *remote.get(&rank)?,
            };
            Some(Value::ProcInfo(Box::new(ProcInfo {
                proc: Proc {
                    nspace: self.job.nspace.clone(),
                    rank: PmixRank(rank),
                },
                hostname: self.node_name(facts.node).map(CStr::to_owned),
                executable,
                pid,
                state,
            })))
        };
        let mut rows: Vec<Value> = ranks.filter_map(row).collect();
        if planted::is(Bug::RowTwice) {
            rows.extend(rows.first().cloned());
        }
        rows
    }
}

impl Answer {
    /// Returns the refusal of a request for job info. The answer has no status, but clients reject the name of another
    /// job.
    pub(super) fn no_job() -> Self {
        Self::JobInfo {
            nspace: Nspace::default(),
            facts: Vec::new(),
        }
    }
}

impl Server {
    pub(super) fn tell_job(&mut self, reply: ReplyTo, nspace: &Nspace) {
        let ReplyTo { conn, tag } = reply;
        let Some(peer) = self.peers.get_mut(&conn) else {
            return;
        };
        let Some(format) = peer.known().map(|known| known.format) else {
            return;
        };
        let parts = match self.jobs.get_mut(nspace) {
            // All clients of the job share the same bytes, which may be many: no copies.
            Some(job) => {
                let stop = peer.connected().and_then(|known| job.stop_of(&known.proc));
                let facts = job.packed(format, stop);
                peer.shared_answer(tag, facts).map(Vec::from)
            }
            None => {
                let connected = peer.connected();
                let is_tool = connected.is_some_and(|known| known.role == Role::Tool);
                let answer = match is_tool {
                    true => Answer::JobInfo {
                        nspace: nspace.clone(),
                        facts: Vec::new(),
                    },
                    false => Answer::no_job(),
                };
                peer.answer(tag, &answer).map(|bytes| vec![bytes])
            }
        };
        let parts: Vec<Bytes> = parts.unwrap_or_default();
        self.out
            .extend(parts.into_iter().map(|bytes| Output::Send { conn, bytes }));
    }

    pub(super) fn forget_job(&mut self, now: base::Time, nspace: &Nspace) {
        let Some(job) = self.jobs.get(nspace) else {
            return;
        };
        let number = job.number;
        let concerns_others = job.local_ranks().next().is_some() && self.has_neighbors();
        self.fail_collectives_of(number);
        self.forget_coordination_of(nspace, number);
        self.forget_questions_about(nspace);
        self.jobs.remove(nspace);
        self.names.remove(&number);
        self.events.forget_job(nspace);
        self.retry_gets(now, nspace);
        self.groups.forget_job(nspace);
        self.connected_sets.forget_job(number);
        self.drop_subscriptions_to(nspace);
        self.monitors.forget_job(nspace, &mut self.timers);
        for proc in self.silent_of(nspace) {
            self.forget_silence(&proc);
        }
        if concerns_others {
            self.out.push_back(Output::MembersGone);
        }
    }
}
