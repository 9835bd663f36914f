//! Job info: facts that the processes of a job and of other jobs can get (docs/formats/pmix.md, section 6.3).
//!
//! Each class of facts has a list of its keys, in the order in which they are sent, and a function that returns one
//! fact.

use std::ffi::{CStr, CString};

use bytes::Bytes;

use super::{
    StopIn,
    job::{FactsFor, Namespace},
};
use crate::{
    codec::{Family, Format, Writer},
    keys,
    value::{Info, Key, Kval, PmixRank, Proc, Value},
};

const JOB_KEYS: [&CStr; 12] = [
    keys::JOB_ID,
    keys::RANK_OFFSET,
    keys::NUM_NODES,
    keys::JOB_SIZE,
    keys::JOB_NUM_APPS,
    keys::MAX_PROCS,
    keys::NODE_LIST,
    keys::MAP_BY,
    keys::RANK_BY,
    keys::BIND_TO,
    keys::NSPACE_DIR,
    keys::HOSTNAME,
];

const SESSION_KEYS: [&CStr; 4] = [
    keys::SESSION_ID,
    keys::UNIVERSE_SIZE,
    keys::HOSTNAME_KEEP_FQDN,
    keys::TMPDIR,
];

const NODE_KEYS: [&CStr; 8] = [
    keys::HOSTNAME,
    keys::NODE_ID,
    keys::LOCAL_SIZE,
    keys::NODE_SIZE,
    keys::LOCAL_LEADER,
    keys::LOCAL_PEERS,
    keys::LOCAL_PROCS,
    keys::OVERSUBSCRIBED,
];

const APP_KEYS: [&CStr; 7] = [
    keys::APP_NUMBER,
    keys::APP_SIZE,
    keys::APP_LEADER,
    keys::WORKING_DIR,
    keys::APP_ARGV,
    keys::PSET_NAME,
    keys::PSET_MEMBERS,
];

const RANK_KEYS: [&CStr; 14] = [
    keys::LOCALITY,
    keys::GLOBAL_RANK,
    keys::APP_NUMBER,
    keys::APP_RANK,
    keys::LOCAL_RANK,
    keys::NODE_RANK,
    keys::PACKAGE_RANK,
    keys::NODE_ID,
    keys::REINCARNATION,
    keys::HOSTNAME,
    keys::CPUSET,
    keys::PROC_DIR,
    keys::PROC_PID,
    keys::PARENT_ID,
];

impl Namespace {
    /// Returns the facts of the job as a whole.
    pub(super) fn job_facts(&self) -> Vec<Kval> {
        let told = each(&JOB_KEYS, |key| self.told_of_job(key));
        told.chain(self.job.extra.iter().cloned()).collect()
    }

    /// Returns one fact of the job as a whole; `None` if it has no such fact.
    pub(super) fn job_fact(&self, key: &CStr) -> Option<Value> {
        self.told_of_job(key).or_else(|| {
            let mut extra = self.job.extra.iter();
            extra
                .find(|fact| fact.key == *key)
                .map(|fact| fact.value.clone())
        })
    }

    fn told_of_job(&self, key: &CStr) -> Option<Value> {
        let job = &self.job;
        let text = |text: &Option<CString>| text.is_some().then(|| Value::String(text.clone()));
        match key {
            _ if key == keys::JOB_ID => Some(string(Some(job.nspace.as_c_str()))),
            _ if key == keys::RANK_OFFSET => Some(Value::Rank(PmixRank(job.offset))),
            _ if key == keys::NUM_NODES => Some(count(job.nodes.len())),
            _ if key == keys::JOB_SIZE => Some(Value::Uint32(self.size())),
            _ if key == keys::JOB_NUM_APPS => Some(count(job.apps.len())),
            _ if key == keys::MAX_PROCS => Some(Value::Uint32(job.universe)),
            _ if key == keys::NODE_LIST => {
                let names = job.nodes.iter().map(|node| node.name.as_c_str());
                Some(Value::String(joined(names, b',')))
            }
            _ if key == keys::MAP_BY => text(&job.map_by),
            _ if key == keys::RANK_BY => text(&job.rank_by),
            _ if key == keys::BIND_TO => text(&job.bind_to),
            _ if key == keys::NSPACE_DIR => text(&job.job_dir),
            // libpmix 4.2.9 does not find the host name among the facts of the node, where it is also sent.
            _ if key == keys::HOSTNAME => Some(string(self.node_name(job.here))),
            _ => None,
        }
    }

    fn session_fact(&self, key: &CStr) -> Option<Value> {
        let job = &self.job;
        match key {
            _ if key == keys::SESSION_ID => Some(Value::Uint32(job.session)),
            _ if key == keys::UNIVERSE_SIZE => Some(Value::Uint32(job.universe)),
            _ if key == keys::HOSTNAME_KEEP_FQDN => Some(Value::Bool(true)),
            _ if key == keys::TMPDIR && job.session_dir.is_some() => {
                Some(Value::String(job.session_dir.clone()))
            }
            _ => None,
        }
    }

    /// Returns true if a key is about a node.
    pub(super) fn is_of_nodes(key: &CStr) -> bool {
        NODE_KEYS.contains(&key)
    }

    /// Returns one fact of a node, given by its index in the job.
    pub(super) fn node_fact(&self, index: u32, key: &CStr) -> Option<Value> {
        let node = self.job.nodes.get(index as usize)?;
        let ranks = self.ranks_on(index);
        match key {
            _ if key == keys::HOSTNAME => Some(string(Some(&node.name))),
            _ if key == keys::NODE_ID => Some(Value::Uint32(node.id)),
            _ if key == keys::LOCAL_SIZE => Some(count(ranks.len())),
            _ if key == keys::NODE_SIZE => Some(Value::Uint32(node.procs)),
            _ if key == keys::LOCAL_LEADER => {
                let first = ranks.first().copied().map(PmixRank);
                Some(Value::Rank(first.unwrap_or(PmixRank::INVALID)))
            }
            _ if key == keys::LOCAL_PEERS => {
                let ranks: Vec<String> = ranks.iter().map(u32::to_string).collect();
                Some(Value::text(&ranks.join(",")))
            }
            _ if key == keys::LOCAL_PROCS => {
                let proc = |rank: &u32| Proc {
                    nspace: self.job.nspace.clone(),
                    rank: PmixRank(*rank),
                };
                Some(Value::procs(ranks.iter().map(proc).collect()))
            }
            // Open MPI 5 checks only that the key is present and ignores the value, so the key must be absent for
            // false.
            _ if key == keys::OVERSUBSCRIBED => node.oversubscribed.then_some(Value::Bool(true)),
            _ => None,
        }
    }

    fn app_fact(&self, index: u32, key: &CStr) -> Option<Value> {
        let app = self.job.apps.get(index as usize)?;
        match key {
            _ if key == keys::APP_NUMBER => Some(Value::Uint32(index)),
            _ if key == keys::APP_SIZE => Some(Value::Uint32(app.size)),
            _ if key == keys::APP_LEADER => Some(Value::Rank(PmixRank(app.leader))),
            _ if key == keys::WORKING_DIR => Some(Value::String(app.wdir.clone())),
            _ if key == keys::APP_ARGV => Some(Value::String(app.argv.clone())),
            _ if key == keys::PSET_NAME => Some(string(Some(app.set.as_deref()?))),
            _ if key == keys::PSET_MEMBERS => {
                Some(Value::procs(self.set_members(app.set.as_deref()?)?))
            }
            _ => None,
        }
    }

    /// Returns the facts of one rank.
    pub(super) fn rank_facts(&self, rank: PmixRank) -> Vec<Kval> {
        each(&RANK_KEYS, |key| self.rank_fact(rank, key)).collect()
    }

    /// Returns one fact of one rank; `None` if it has no such fact.
    pub(super) fn rank_fact(&self, rank: PmixRank, key: &CStr) -> Option<Value> {
        let job = &self.job;
        let facts = self.rank(rank)?;
        match key {
            _ if key == keys::LOCALITY => Some(Value::String(facts.locality.clone())),
            _ if key == keys::GLOBAL_RANK => {
                let rank = job.offset.saturating_add(rank.0);
                Some(Value::Rank(PmixRank(rank)))
            }
            _ if key == keys::APP_NUMBER => Some(Value::Uint32(facts.app)),
            _ if key == keys::APP_RANK => Some(Value::Rank(PmixRank(facts.app_rank))),
            _ if key == keys::LOCAL_RANK => Some(Value::Uint16(facts.local_rank)),
            _ if key == keys::NODE_RANK => Some(Value::Uint16(facts.node_rank)),
            _ if key == keys::PACKAGE_RANK => facts.package_rank.map(Value::Uint16),
            _ if key == keys::NODE_ID => {
                let node = job.nodes.get(facts.node as usize);
                Some(Value::Uint32(node.map_or(facts.node, |node| node.id)))
            }
            _ if key == keys::REINCARNATION => Some(Value::Uint32(0)),
            _ if key == keys::HOSTNAME => Some(string(self.node_name(facts.node))),
            _ if key == keys::CPUSET && facts.cpuset.is_some() => {
                Some(Value::String(facts.cpuset.clone()))
            }
            _ if key == keys::PROC_DIR => {
                let mut path = job.job_dir.as_ref()?.as_bytes().to_vec();
                path.extend_from_slice(format!("/{rank}").as_bytes());
                Some(Value::String(CString::new(path).ok()))
            }
            _ if key == keys::PROC_PID => self.pid(rank).map(Value::Pid),
            _ if key == keys::PARENT_ID => Some(Value::Proc(Box::new(job.parent.clone()?))),
            // Libraries ask for it when they want it. All its sets, separated by commas: each process belongs to one at most.
            _ if key == keys::PSET_NAMES => Some(string(Some(self.set_of_app(facts.app)?))),
            _ => None,
        }
    }

    /// Returns one fact of the session, or of the node or app of a rank. Without a valid rank, the node is this
    /// server's, and the app is the first.
    pub(super) fn class_fact(&self, rank: PmixRank, key: &CStr) -> Option<Value> {
        let facts = self.rank(rank);
        let node = facts.map_or(self.job.here, |facts| facts.node);
        let app = facts.map_or(0, |facts| facts.app);
        self.session_fact(key)
            .or_else(|| self.node_fact(node, key))
            .or_else(|| self.app_fact(app, key))
    }

    /// Returns all facts of the job, as this reader expects them.
    fn facts(&self, format: Format, reader: FactsFor) -> Vec<Kval> {
        let job = &self.job;
        let session = || each(&SESSION_KEYS, |key| self.session_fact(key));
        let mut facts = self.job_facts();
        if format.family == Family::Fixed {
            // libpmix 3 expects session facts outside of arrays, as they were sent before arrays existed.
            facts.extend(session());
        }
        facts.extend(array(keys::SESSION_ARRAY, session()));
        for (index, _) in (0..).zip(&job.nodes) {
            let node = each(&NODE_KEYS, |key| self.node_fact(index, key));
            facts.extend(array(keys::NODE_ARRAY, node));
        }
        for (index, _) in (0..).zip(&job.apps) {
            let app = each(&APP_KEYS, |key| self.app_fact(index, key));
            facts.extend(array(keys::APP_ARRAY, app));
        }
        for rank in (0..self.size()).map(PmixRank) {
            let about = self.rank_facts(rank);
            facts.extend(match reader {
                FactsFor::Member(_) => {
                    let mut writer = Writer::new(format);
                    writer.item(&rank);
                    writer.each(&about);
                    let blob = Value::ByteObject(writer.into_bytes().into());
                    fact(keys::PROC_BLOB, blob)
                }
                FactsFor::Others => {
                    let first = fact(keys::RANK, Value::Rank(rank));
                    array(keys::PROC_DATA, first.into_iter().chain(about))
                }
            });
        }
        facts
    }

    /// Returns the packed name and facts of the job, for a process that stops at `stop`, or does not stop.
    pub(super) fn packed(&mut self, format: Format, stop: Option<StopIn>) -> Bytes {
        self.packed_once(format, FactsFor::Member(stop))
    }

    /// Returns the packed facts of the job after its wildcard process, which is how a get from another job receives
    /// them.
    pub(super) fn packed_facts(&mut self, format: Format) -> Bytes {
        self.packed_once(format, FactsFor::Others)
    }

    fn packed_once(&mut self, format: Format, reader: FactsFor) -> Bytes {
        if let Some(packed) = self.packed.get(&(format, reader)) {
            return packed.clone();
        }
        let mut writer = Writer::new(format);
        let mut told = self.facts(format, reader);
        match reader {
            FactsFor::Others => writer.item(&Proc::all(self.job.nspace.clone())),
            FactsFor::Member(stop) => {
                writer.item(&self.job.nspace);
                told.extend(stop.and_then(|place| {
                    let key = match place {
                        StopIn::Init => keys::STOP_IN_INIT,
                        StopIn::App => keys::STOP_IN_APP,
                    };
                    // libpmix 4 and 5 check only that the key is present; libpmix 6 wants true or a rank.
                    fact(key, Value::Bool(true))
                }));
            }
        }
        writer.each(&told);
        let packed = Bytes::from(writer.into_bytes());
        self.packed.insert((format, reader), packed.clone());
        packed
    }
}

/// Returns a fact; `None` only if the key is too long, which no key of this crate is.
pub(super) fn fact(key: &CStr, value: Value) -> Option<Kval> {
    Key::new(key).ok().map(|key| Kval { key, value })
}

/// Joins strings with a separator.
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

/// Returns the facts that exist among some keys.
fn each<'a>(
    keys: &'a [&CStr],
    one: impl Fn(&CStr) -> Option<Value> + 'a,
) -> impl Iterator<Item = Kval> + 'a {
    keys.iter().filter_map(move |key| fact(key, one(key)?))
}

/// Returns a fact whose value is an array of facts.
fn array(key: &CStr, facts: impl Iterator<Item = Kval>) -> Option<Kval> {
    let infos = facts.map(|Kval { key, value }| Info::new(key, value));
    fact(key, Value::infos(infos.collect()))
}

fn string(text: Option<&CStr>) -> Value {
    Value::String(text.map(CStr::to_owned))
}

fn count(count: usize) -> Value {
    Value::Uint32(u32::try_from(count).unwrap_or(u32::MAX))
}
