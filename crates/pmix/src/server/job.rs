//! A job as its server knows it: its facts, and what has become of its processes here.

use std::{
    collections::BTreeMap,
    ffi::{CStr, CString},
};

use base::ExitStatus;
use bytes::Bytes;

use super::{
    ReplyTo, Server,
    fate::{self, Stood},
    stored::Stored,
};
use crate::{
    codec::{Family, Format, Writer},
    keys,
    message::Answer,
    value::{
        Info, IofChannels, Key, Kval, Nspace, PmixRank, Proc, ProcInfo, ProcState, Text, Value,
    },
};

/// What is known of a job when it starts (wire document, section 6.3).
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    pub nspace: Nspace,
    pub session: u32,
    /// Slots that the session has, the standard's universe.
    pub universe: u32,
    /// The number of the first rank among all ranks of the session.
    pub offset: u32,
    pub apps: Vec<AppFacts>,
    pub nodes: Vec<NodeFacts>,
    /// By rank.
    pub ranks: Vec<RankFacts>,
    /// The node that this server is on: an index into `nodes`.
    pub here: u32,
    /// Who has spawned it.
    pub parent: Option<Proc>,
    /// Who gets its output from the beginning, without having asked for it by a request of its own, and which.
    pub forward: Option<(Proc, IofChannels)>,
    pub map_by: Text,
    pub rank_by: Text,
    pub bind_to: Text,
    /// A directory for the session's files, and one in it for the job's.
    pub session_dir: Text,
    pub job_dir: Text,
    /// Facts that only some jobs have: that it stops in init, for example. Their keys must be in the standard that the
    /// oldest library among its peers knows: libpmix 4.2 refuses others.
    pub extra: Vec<Kval>,
}

/// One program of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AppFacts {
    /// Its command line in one string.
    pub argv: Text,
    pub wdir: Text,
    pub size: u32,
    /// Its first rank.
    pub leader: u32,
}

/// One node of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeFacts {
    pub name: CString,
    pub id: u32,
}

/// One rank of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankFacts {
    pub app: u32,
    pub app_rank: u32,
    /// An index into the job's nodes.
    pub node: u32,
    pub local_rank: u16,
    /// Its number among the processes of all jobs on the node.
    pub node_rank: u16,
    /// The CPUs it is bound to, as a list; absent when it is not bound.
    pub cpuset: Text,
    /// Where these are, in hwloc's notation.
    pub locality: Text,
}

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

/// A job and its processes here.
#[derive(Debug)]
pub(super) struct Namespace {
    pub(super) job: Job,
    /// No other job has had it or will have it.
    pub(super) number: u32,
    /// The host ends its processes.
    pub(super) is_ending: bool,
    local: BTreeMap<u32, Local>,
    pub(super) stored: Stored,
    /// Its facts, packed once for everybody who writes alike.
    packed: BTreeMap<Format, PackedFacts>,
}

/// The facts of a job as two buffers.
#[derive(Clone, Debug)]
struct PackedFacts {
    /// Behind its name, as its own processes get them, and others that connect with them.
    by_name: Bytes,
    /// Behind all of its processes, as others get them who ask for one of these.
    by_proc: Bytes,
}

impl Namespace {
    pub(super) fn new(number: u32, job: Job) -> Self {
        let local = (0..)
            .zip(&job.ranks)
            .filter(|(_, rank)| rank.node == job.here)
            .map(|(rank, _)| (rank, Local::default()))
            .collect();
        Self {
            job,
            number,
            is_ending: false,
            local,
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
        if let Some(local) = self.local.get_mut(&rank.0) {
            local.pid = pid;
        }
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
        let (_, state) = fate::called(stood, status);
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

    pub(super) fn ranks_on(&self, node: u32) -> impl Iterator<Item = u32> {
        (0..)
            .zip(&self.job.ranks)
            .filter(move |(_, rank)| rank.node == node)
            .map(|(rank, _)| rank)
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

    /// Facts of the job as a whole.
    pub(super) fn job_facts(&self) -> Vec<Kval> {
        let job = &self.job;
        let nodes: Vec<_> = job.nodes.iter().map(|node| node.name.as_c_str()).collect();
        let mut facts = vec![
            fact(keys::JOB_ID, string(Some(job.nspace.as_c_str()))),
            fact(keys::RANK_OFFSET, Value::Rank(PmixRank(job.offset))),
            fact(keys::NUM_NODES, count(job.nodes.len())),
            fact(keys::JOB_SIZE, Value::Uint32(self.size())),
            fact(keys::JOB_NUM_APPS, count(job.apps.len())),
            fact(keys::MAX_PROCS, Value::Uint32(job.universe)),
            fact(keys::NODE_LIST, Value::String(joined(nodes, b','))),
        ];
        let texts = [
            (keys::MAP_BY, &job.map_by),
            (keys::RANK_BY, &job.rank_by),
            (keys::BIND_TO, &job.bind_to),
            (keys::NSPACE_DIR, &job.job_dir),
        ];
        facts.extend(
            texts
                .into_iter()
                .filter(|(_, text)| text.is_some())
                .map(|(key, text)| fact(key, Value::String(text.clone()))),
        );
        facts.extend(job.extra.iter().cloned().map(Some));
        facts.into_iter().flatten().collect()
    }

    fn session_facts(&self) -> Vec<Info> {
        let job = &self.job;
        let mut facts = vec![
            super::info(keys::SESSION_ID, Value::Uint32(job.session)),
            super::info(keys::UNIVERSE_SIZE, Value::Uint32(job.universe)),
            super::info(keys::HOSTNAME_KEEP_FQDN, Value::Bool(true)),
        ];
        if job.session_dir.is_some() {
            let dir = Value::String(job.session_dir.clone());
            facts.push(super::info(keys::TMPDIR, dir));
        }
        facts.into_iter().flatten().collect()
    }

    fn node_facts(&self, index: u32, node: &NodeFacts) -> Vec<Info> {
        let ranks: Vec<u32> = self.ranks_on(index).collect();
        let peers = ranks.iter().map(u32::to_string).collect::<Vec<_>>();
        let procs = ranks
            .iter()
            .map(|rank| Proc {
                nspace: self.job.nspace.clone(),
                rank: PmixRank(*rank),
            })
            .collect();
        let leader = PmixRank(ranks.first().copied().unwrap_or(PmixRank::INVALID.0));
        [
            super::info(keys::HOSTNAME, string(Some(&node.name))),
            super::info(keys::NODE_ID, Value::Uint32(node.id)),
            super::info(keys::LOCAL_SIZE, count(ranks.len())),
            super::info(keys::NODE_SIZE, count(ranks.len())),
            super::info(keys::LOCAL_LEADER, Value::Rank(leader)),
            super::info(keys::LOCAL_PEERS, Value::text(&peers.join(","))),
            super::info(keys::LOCAL_PROCS, Value::procs(procs)),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn app_facts(&self, index: usize, app: &AppFacts) -> Vec<Info> {
        [
            super::info(keys::APP_NUMBER, count(index)),
            super::info(keys::APP_SIZE, Value::Uint32(app.size)),
            super::info(keys::APP_LEADER, Value::Rank(PmixRank(app.leader))),
            super::info(keys::WORKING_DIR, Value::String(app.wdir.clone())),
            super::info(keys::APP_ARGV, Value::String(app.argv.clone())),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Facts of one rank.
    pub(super) fn rank_facts(&self, rank: PmixRank) -> Vec<Kval> {
        let Some(facts) = self.rank(rank) else {
            return Vec::new();
        };
        let job = &self.job;
        let mut all = vec![
            fact(keys::LOCALITY, Value::String(facts.locality.clone())),
            fact(
                keys::GLOBAL_RANK,
                Value::Rank(PmixRank(job.offset.saturating_add(rank.0))),
            ),
            fact(keys::APP_NUMBER, Value::Uint32(facts.app)),
            fact(keys::APP_RANK, Value::Rank(PmixRank(facts.app_rank))),
            fact(keys::LOCAL_RANK, Value::Uint16(facts.local_rank)),
            fact(keys::NODE_RANK, Value::Uint16(facts.node_rank)),
            fact(
                keys::NODE_ID,
                Value::Uint32(
                    job.nodes
                        .get(facts.node as usize)
                        .map_or(facts.node, |node| node.id),
                ),
            ),
            fact(keys::REINCARNATION, Value::Uint32(0)),
            fact(keys::HOSTNAME, string(self.node_name(facts.node))),
        ];
        if facts.cpuset.is_some() {
            all.push(fact(keys::CPUSET, Value::String(facts.cpuset.clone())));
        }
        if let Some(dir) = &job.job_dir {
            let mut path = dir.as_bytes().to_vec();
            path.extend_from_slice(format!("/{rank}").as_bytes());
            all.push(fact(keys::PROC_DIR, Value::String(CString::new(path).ok())));
        }
        if let Some(parent) = &job.parent {
            all.push(fact(keys::PARENT_ID, Value::Proc(Box::new(parent.clone()))));
        }
        all.into_iter().flatten().collect()
    }

    /// Everything about the job, as a client wants it at its start.
    pub(super) fn facts(&self, format: Format) -> Vec<Kval> {
        let job = &self.job;
        let mut facts = self.job_facts();
        if format.family == Family::Fixed {
            // libpmix 3 looks for them there, as they were before there were arrays.
            let session = self.session_facts().into_iter();
            facts.extend(session.map(|Info { key, value, .. }| Kval { key, value }));
        }
        let arrays =
            [fact(
                keys::SESSION_ARRAY,
                Value::infos(self.session_facts()),
            )]
            .into_iter()
            .chain((0..).zip(&job.nodes).map(|(index, node)| {
                fact(keys::NODE_ARRAY, Value::infos(self.node_facts(index, node)))
            }))
            .chain(job.apps.iter().enumerate().map(|(index, app)| {
                fact(keys::APP_ARRAY, Value::infos(self.app_facts(index, app)))
            }))
            .chain((0..self.size()).map(|rank| {
                let mut writer = Writer::new(format);
                writer.item(&PmixRank(rank));
                for fact in self.rank_facts(PmixRank(rank)) {
                    writer.item(&fact);
                }
                fact(
                    keys::PROC_BLOB,
                    Value::ByteObject(writer.into_bytes().into()),
                )
            }));
        facts.extend(arrays.flatten());
        facts
    }

    /// The name and the facts, packed.
    pub(super) fn packed(&mut self, format: Format) -> Bytes {
        self.both(format).by_name.clone()
    }

    /// The facts behind the process that stands for all.
    pub(super) fn packed_facts(&mut self, format: Format) -> Bytes {
        self.both(format).by_proc.clone()
    }

    fn both(&mut self, format: Format) -> &PackedFacts {
        if !self.packed.contains_key(&format) {
            let facts = self.facts(format);
            let mut by_name = Writer::new(format);
            by_name.item(&self.job.nspace);
            by_name.each(&facts);
            let mut by_proc = Writer::new(format);
            by_proc.item(&Proc::all(self.job.nspace.clone()));
            by_proc.each(&facts);
            let packed = PackedFacts {
                by_name: by_name.into_bytes().into(),
                by_proc: by_proc.into_bytes().into(),
            };
            self.packed.insert(format, packed);
        }
        &self.packed[&format]
    }

    /// One fact of a node, an app or the session, by the rank that it is asked for.
    pub(super) fn class_fact(&self, rank: PmixRank, key: &CStr) -> Option<Value> {
        let find = |infos: Vec<Info>| {
            infos
                .into_iter()
                .find(|info| info.key == *key)
                .map(|info| info.value)
        };
        let facts = self.rank(rank);
        let node = facts.map_or(self.job.here, |facts| facts.node);
        let app = facts.map_or(0, |facts| facts.app);
        find(self.session_facts())
            .or_else(|| {
                let node_facts = self.job.nodes.get(node as usize)?;
                find(self.node_facts(node, node_facts))
            })
            .or_else(|| {
                let app_facts = self.job.apps.get(app as usize)?;
                find(self.app_facts(app as usize, app_facts))
            })
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
            Some(job) => peer.shared_answer(tag, job.packed(format)).map(Vec::from),
            None => peer.answer(tag, &Answer::no_job()).map(|bytes| vec![bytes]),
        };
        let parts: Vec<Bytes> = parts.unwrap_or_default();
        self.out.extend(
            parts
                .into_iter()
                .map(|bytes| super::Output::Send { conn, bytes }),
        );
    }

    pub(super) fn forget_job(&mut self, now: base::Time, nspace: &Nspace) {
        let Some(job) = self.jobs.get(nspace) else {
            return;
        };
        let number = job.number;
        self.collectives_without(number);
        self.jobs.remove(nspace);
        self.names.remove(&number);
        self.retry_gets(now, nspace);
        self.groups.forget_job(nspace);
        self.assemblies.forget_job(number);
        self.outlets_without(nspace);
        self.monitors.forget_job(nspace, &mut self.timers);
        for proc in self.silent_of(nspace) {
            self.forget_silence(&proc);
        }
    }
}

pub(super) fn fact(key: &CStr, value: Value) -> Option<Kval> {
    Key::new(key).ok().map(|key| Kval { key, value })
}

fn string(text: Option<&CStr>) -> Value {
    Value::String(text.map(CStr::to_owned))
}

fn count(count: usize) -> Value {
    Value::Uint32(u32::try_from(count).unwrap_or(u32::MAX))
}

/// Strings with something between.
pub(super) fn joined<'a>(
    parts: impl IntoIterator<Item = &'a CStr>,
    separator: u8,
) -> Option<CString> {
    let mut bytes = Vec::new();
    for part in parts {
        if !bytes.is_empty() {
            bytes.push(separator);
        }
        bytes.extend_from_slice(part.to_bytes());
    }
    CString::new(bytes).ok()
}
