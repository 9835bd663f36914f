//! A job as its server knows it, and what has become of its processes here.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{CStr, CString},
};

use base::{ExitStatus, Rank, RankSet};
use bytes::Bytes;

use super::{
    Job, Output, RankFacts, ReplyTo, Server, StopIn,
    stored::{Stored, View, Wanted},
};
use crate::{
    codec::Format,
    message::Answer,
    value::{Nspace, PmixRank, Proc, ProcInfo, ProcState, Status, Value},
};

/// What has become of a process here.
#[derive(Debug, Default)]
struct Local {
    pid: u32,
    /// Connections that take part: a fork may have brought more than one.
    connections: u32,
    presence: Presence,
    /// It has asked for the end of processes.
    is_aborting: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Presence {
    /// It has not called PMIx_Init.
    #[default]
    Expected,
    Connected,
    Finalized,
    /// Its connection broke.
    Lost,
    /// It has ended, and what that is called.
    Ended(ProcState),
}

/// Where a process stood with its server when it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stood {
    /// It had not called PMIx_Init, or it had finalized.
    Outside,
    /// It took part.
    Inside,
    /// It had asked for the end of processes.
    Aborting,
}

/// What an end is called: the code of its event, and the state in the table of processes.
pub(super) const fn called(stood: Stood, status: ExitStatus) -> (Status, ProcState) {
    match (stood, status) {
        (Stood::Aborting, _) => (Status::PROC_REQUESTED_ABORT, ProcState::CALLED_ABORT),
        (_, ExitStatus::Signaled { .. }) => {
            (Status::PROC_ABORTED_BY_SIG, ProcState::ABORTED_BY_SIG)
        }
        (Stood::Inside, ExitStatus::Exited(_)) => {
            (Status::PROC_TERM_WO_SYNC, ProcState::TERM_WO_SYNC)
        }
        (Stood::Outside, ExitStatus::Exited(0)) => {
            (Status::EVENT_PROC_TERMINATED, ProcState::TERMINATED)
        }
        (Stood::Outside, ExitStatus::Exited(_)) => {
            (Status::EXIT_NONZERO_TERM, ProcState::TERMINATED)
        }
    }
}

/// The facts of a job, packed.
#[derive(Clone, Debug)]
pub(super) struct PackedFacts {
    /// Behind its name, as its own processes get them, and others that connect with them.
    pub(super) by_name: Bytes,
    /// Where they begin behind the name.
    pub(super) facts: usize,
}

/// A job and its processes here.
#[derive(Debug)]
pub(super) struct Namespace {
    pub(super) job: Job,
    /// No other job has had it or will have it.
    pub(super) number: u32,
    /// The host ends its processes.
    pub(super) is_ending: bool,
    local: BTreeMap<u32, Local>,
    /// Those of whom no pid is known.
    unstarted: usize,
    /// Its ranks by node.
    by_node: Vec<Vec<u32>>,
    /// The other nodes that have ranks of it.
    away: BTreeSet<u32>,
    pub(super) stored: Stored,
    /// Its facts, packed once for everybody who writes alike.
    pub(super) packed: BTreeMap<(Format, Option<StopIn>), PackedFacts>,
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

    /// The other nodes that have ranks of it.
    pub(super) const fn away(&self) -> &BTreeSet<u32> {
        &self.away
    }

    /// The node that a rank is on, whichever it is, by the number that all jobs have for it.
    pub(super) fn node_of(&self, rank: PmixRank) -> Option<u32> {
        let node = self.rank(rank)?.node;
        Some(self.job.nodes.get(node as usize)?.id)
    }

    /// What processes of this node may see of a rank's data.
    pub(super) fn view(&self, rank: PmixRank) -> View {
        if self.is_local(rank) {
            View::Local
        } else {
            View::Remote
        }
    }

    /// The rank that has put a key, as far as this node knows.
    pub(super) fn who_has(&self, wanted: Wanted<'_>) -> Option<PmixRank> {
        self.stored.who_has(wanted, |rank| self.view(rank))
    }

    /// The number of this node.
    pub(super) fn node_here(&self) -> Option<u32> {
        Some(self.job.nodes.get(self.job.here as usize)?.id)
    }

    pub(super) fn local_ranks(&self) -> impl Iterator<Item = u32> {
        self.local.keys().copied()
    }

    pub(super) fn rank(&self, rank: PmixRank) -> Option<&RankFacts> {
        self.job.ranks.get(rank.0 as usize)
    }

    /// Whether a process will never take part in anything again, unless it connects anew.
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
            // What was packed before has no pids of those who started later. To pack anew for each would take long.
            if self.unstarted == 0 {
                self.packed.clear();
            }
        }
        local.pid = pid;
    }

    /// The pid of a process here, once it has started.
    pub(super) fn pid(&self, rank: PmixRank) -> Option<u32> {
        let local = self.local.get(&rank.0)?;
        (local.pid != 0).then_some(local.pid)
    }

    /// Where a process is to stop, if it is.
    fn stop_of(&self, proc: &Proc) -> Option<StopIn> {
        let stop = self.job.stop.as_ref()?;
        let is_meant = proc.nspace == self.job.nspace && stop.ranks.contains(Rank(proc.rank.0));
        is_meant.then_some(stop.place)
    }

    /// Whether some of its processes are to stop.
    pub(super) fn stops(&self) -> bool {
        let stop = self.job.stop.as_ref();
        stop.is_some_and(|stop| !stop.ranks.is_empty())
    }

    /// Whether a process is to stop.
    pub(super) fn stops_at(&self, proc: &Proc) -> bool {
        self.stop_of(proc).is_some()
    }

    /// These processes need not stop any more. True when that is all of the job.
    pub(super) fn released(&mut self, ranks: &RankSet) -> bool {
        if let Some(stop) = &mut self.job.stop {
            stop.ranks = stop.ranks.difference(ranks);
        }
        ranks.len() == self.job.ranks.len()
    }

    /// A process has asked for the end of processes, which may well be its own.
    pub(super) fn aborts(&mut self, rank: PmixRank) {
        if let Some(local) = self.local.get_mut(&rank.0) {
            local.is_aborting = true;
        }
    }

    /// A process has ended. Where it stood, unless it is none of those here or had ended already.
    pub(super) fn ended(&mut self, rank: PmixRank, status: ExitStatus) -> Option<Stood> {
        let local = self.local.get_mut(&rank.0)?;
        let stood = match local.presence {
            Presence::Ended(_) => return None,
            _ if local.is_aborting => Stood::Aborting,
            Presence::Connected | Presence::Lost => Stood::Inside,
            Presence::Expected | Presence::Finalized => Stood::Outside,
        };
        let (_, state) = called(stood, status);
        local.presence = Presence::Ended(state);
        Some(stood)
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

    /// A process is taken for lost.
    pub(super) fn lost(&mut self, rank: PmixRank) {
        if let Some(local) = self.local.get_mut(&rank.0)
            && local.presence == Presence::Connected
        {
            local.presence = Presence::Lost;
        }
    }

    /// A connection that took part has broken. True when it was the last of its process.
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

    /// The rows of the process table: of those here, whose pids are known.
    pub(super) fn table(&self) -> Vec<Value> {
        let row = |(rank, local): (&u32, &Local)| {
            let facts = self.rank(PmixRank(*rank))?;
            let app = self.job.apps.get(facts.app as usize)?;
            let executable = app.argv.as_ref().and_then(|argv| {
                let program = argv.to_bytes().split(|byte| *byte == b' ').next()?;
                CString::new(program).ok()
            });
            Some(Value::ProcInfo(Box::new(ProcInfo {
                proc: Proc {
                    nspace: self.job.nspace.clone(),
                    rank: PmixRank(*rank),
                },
                hostname: self.node_name(facts.node).map(CStr::to_owned),
                executable,
                pid: local.pid,
                state: match local.presence {
                    Presence::Expected if local.pid == 0 => ProcState::PREPPED,
                    Presence::Expected | Presence::Finalized | Presence::Lost => ProcState::RUNNING,
                    Presence::Connected => ProcState::CONNECTED,
                    Presence::Ended(state) => state,
                },
            })))
        };
        self.local.iter().filter_map(row).collect()
    }
}

impl Answer {
    /// The refusal of the facts of a job: nobody expects a status there, but the name of another job than its own is
    /// noticed.
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
            // All clients of the job get the same bytes, of which there may be many: they are not copied for each.
            Some(job) => {
                let stop = peer.connected().and_then(|known| job.stop_of(&known.proc));
                let facts = job.packed(format, stop);
                peer.shared_answer(tag, facts).map(Vec::from)
            }
            None => peer.answer(tag, &Answer::no_job()).map(|bytes| vec![bytes]),
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
        self.collectives_without(number);
        self.forget_direct_gets(nspace);
        self.jobs.remove(nspace);
        self.names.remove(&number);
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
