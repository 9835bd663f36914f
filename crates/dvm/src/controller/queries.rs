//! Queries of processes that only the controller can answer: about all nodes, about the queue, and about what jobs use.
//!
//! What a job uses is measured on its nodes. The query is answered when all of them have said it.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::CStr,
};

use base::{JobId, NodeId, ProcId, Rank, Time};
use pmix::{
    keys,
    message::Answer,
    value::{DataType, Info, Key, Nspace, PmixRank, Proc, ProcInfo, Query, Status, Value},
};

use super::{
    Controller, Job, Phase,
    asks::Asker,
    spawned::find,
    usage::{MeasuredFor, Measuring, MemoryWish, Report},
};
use crate::{
    hold::State,
    machine::{RankUsage, UsageReport},
};

impl Controller {
    pub(super) fn on_query(&mut self, now: Time, asker: Asker, by: ProcId, queries: &[Query]) {
        let mut infos = Vec::new();
        let mut wishes = Vec::new();
        for query in queries {
            for key in query.distinct_keys() {
                let qualifiers = &query.qualifiers;
                if key == keys::QUERY_MEMORY_USAGE {
                    wishes.extend(self.memory_wish(asker, by, qualifiers));
                    continue;
                }
                let value = self.result(now, by, key, qualifiers);
                let key = Key::new(key).ok();
                infos.extend(key.zip(value).map(|(key, value)| Info::new(key, value)));
            }
        }
        if wishes.is_empty() || !self.measurements.has_room() {
            return self.answer_infos(asker, infos);
        }
        let wanted = |job: &Job| {
            wishes
                .iter()
                .any(|wish| wish.job.is_none_or(|id| id == job.id))
        };
        let jobs = self.jobs.values().filter(|job| wanted(job));
        let tasks: BTreeMap<JobId, u32> = jobs.map(|job| (job.id, 0)).collect();
        let daemons = wishes.iter().flat_map(|wish| wish.daemons.iter().copied());
        let daemons: BTreeSet<NodeId> = daemons.collect();
        let query = Measuring {
            asker,
            infos,
            wishes,
        };
        self.measure_for(MeasuredFor::Query(Box::new(query)), tasks, &daemons);
    }

    fn answer_infos(&mut self, asker: Asker, infos: Vec<Info>) {
        let status = match infos.is_empty() {
            true => Status::NOT_FOUND,
            false => Status::SUCCESS,
        };
        self.answer(asker, &Answer::Infos { status, infos });
    }

    /// Returns the result for a key; `None` if there is none.
    fn result(&self, now: Time, by: ProcId, key: &CStr, qualifiers: &[Info]) -> Option<Value> {
        match key {
            _ if key == keys::QUERY_PROC_TABLE => Some(table(self.job_of(qualifiers)?)),
            _ if key == keys::QUERY_JOB_STATUS => {
                Some(Value::Status(status_of(self.job_of(qualifiers)?)))
            }
            _ if key == keys::QUERY_QUEUE_LIST => {
                Some(Value::text(self.machine.as_ref()?.machine.name()))
            }
            _ if key == keys::QUERY_QUEUE_STATUS => self.queue_status(qualifiers),
            _ if key == keys::QUERY_AVAILABLE_SLOTS => {
                let free = self.machine.as_ref()?.machine.status().free;
                Some(Value::Uint32(u32::try_from(free).unwrap_or(u32::MAX)))
            }
            _ if key == keys::QUERY_ALLOC_STATUS => {
                let name = find(qualifiers, keys::ALLOC_ID);
                let name = name.or_else(|| find(qualifiers, keys::ALLOC_REQ_ID))?;
                Some(Value::text(self.allocation_status(by, name.as_text()?)?))
            }
            _ if key == keys::TIME_REMAINING => {
                let left = self.time_left(now, self.job_of(qualifiers)?)?;
                Some(Value::Uint32(
                    u32::try_from(left.as_secs()).unwrap_or(u32::MAX),
                ))
            }
            _ => None,
        }
    }

    /// Returns the job that a query is about. Servers always name one.
    fn job_of(&self, qualifiers: &[Info]) -> Option<&Job> {
        let name = find(qualifiers, keys::NSPACE)?.as_text()?;
        self.job_called(&Nspace::new(name).ok()?)
    }

    /// Returns the state of the queue, of which a machine has one: its name with a sentence.
    fn queue_status(&self, qualifiers: &[Info]) -> Option<Value> {
        let status = self.machine.as_ref()?.machine.status();
        let wanted = find(qualifiers, keys::ALLOC_QUEUE).and_then(Value::as_text);
        if wanted.is_some_and(|wanted| wanted.to_bytes() != status.name.as_bytes()) {
            return None;
        }
        let text = format!(
            "{} jobs run, {} wait, {} of {} slots are free",
            status.running, status.waiting, status.free, status.slots
        );
        let name = Key::from_text(&status.name).ok()?;
        let about = Info::new(name, Value::text(&text));
        Some(Value::infos(vec![about]))
    }

    /// Returns what is wanted of the memory of jobs; `None` if the query names a job that does not exist.
    fn memory_wish(&self, asker: Asker, by: ProcId, qualifiers: &[Info]) -> Option<MemoryWish> {
        let is_local = find(qualifiers, keys::QUERY_LOCAL_ONLY).is_some_and(Value::is_set);
        let proc = match find(qualifiers, keys::PROC_ID) {
            Some(Value::Proc(proc)) => Some(proc),
            _ => None,
        };
        let name = find(qualifiers, keys::NSPACE).and_then(Value::as_text);
        let name = name.and_then(|name| Nspace::new(name).ok());
        let name = name.or_else(|| Some(proc?.nspace.clone()));
        let rank = match find(qualifiers, keys::RANK) {
            Some(Value::Rank(rank)) => Some(*rank),
            Some(value) => Some(PmixRank(u32::try_from(value.as_written_count()?).ok()?)),
            None => proc.map(|proc| proc.rank),
        };
        // Servers name the asker if the query names no job. A tool has none, and so means all.
        let is_own = |name: &Nspace| name.as_bytes() == self.nspace(by.job).as_bytes();
        let job = match &name {
            Some(name) if is_own(name) && self.tools.contains(by.job) => None,
            Some(name) => Some(self.job_called(name)?.id),
            None => None,
        };
        let rank = rank
            .filter(|rank| rank.is_number())
            .map(|rank| Rank(rank.0));
        let node = is_local.then_some(asker.node);
        let average = wanted(qualifiers, keys::QUERY_REPORT_AVG);
        let daemons = match average {
            Report::Wanted => self.daemons_of(job, rank),
            Report::Unwanted => BTreeSet::new(),
        };
        let is_meant = |one: &NodeId| node.is_none_or(|node| node == *one);
        Some(MemoryWish {
            job,
            rank,
            node,
            average,
            extremes: wanted(qualifiers, keys::QUERY_REPORT_MINMAX),
            daemons: daemons.into_iter().filter(is_meant).collect(),
        })
    }

    /// Returns the nodes with daemons that serve a job, or one of its ranks; without a job all nodes.
    fn daemons_of(&self, job: Option<JobId>, rank: Option<Rank>) -> BTreeSet<NodeId> {
        let Some(job) = job else {
            return self.nodes.keys().copied().collect();
        };
        let shares = self.jobs.get(&job).map(|job| &job.shares);
        let shares = shares.into_iter().flatten().filter(|(_, share)| {
            !share.clean && rank.is_none_or(|rank| share.ranks.contains(rank))
        });
        shares.map(|(node, _)| *node).collect()
    }

    /// Answers a query when what it asks about is measured.
    pub(super) fn answer_measuring(
        &mut self,
        query: Measuring,
        report: &UsageReport,
        daemons: &BTreeMap<NodeId, u64>,
    ) {
        let Measuring {
            asker,
            mut infos,
            wishes,
        } = query;
        let named: BTreeMap<JobId, String> = self
            .jobs
            .values()
            .map(|job| (job.id, job.nspace.clone()))
            .collect();
        for wish in wishes {
            let here = wish.node.map(|node| self.name_of(node));
            let is_meant = |rank: &&RankUsage| {
                wish.job.is_none_or(|job| job == rank.run)
                    && wish.rank.is_none_or(|one| one == rank.rank)
                    && here.is_none_or(|here| here == rank.host)
            };
            let ranks: Vec<&RankUsage> = report.ranks.iter().filter(is_meant).collect();
            let daemons = daemons
                .iter()
                .filter(|(node, _)| wish.daemons.contains(node));
            let daemons = daemons.map(|(node, bytes)| (self.name_of(*node), *bytes));
            let value = memory(&wish, &ranks, daemons.collect(), &named);
            let key = Key::new(keys::QUERY_MEMORY_USAGE).ok();
            infos.extend(key.map(|key| Info::new(key, value)));
        }
        self.answer_infos(asker, infos);
    }
}

fn wanted(qualifiers: &[Info], key: &CStr) -> Report {
    match find(qualifiers, key).is_some_and(Value::is_set) {
        true => Report::Wanted,
        false => Report::Unwanted,
    }
}

/// Returns the procs of a job on all nodes. Servers add the names of hosts and programs.
fn table(job: &Job) -> Value {
    let nspace = Nspace::from_text(&job.nspace).unwrap_or_default();
    let rows = job.procs().map(|(rank, pid, state)| {
        Value::ProcInfo(Box::new(ProcInfo {
            proc: Proc {
                nspace: nspace.clone(),
                rank: rank.into(),
            },
            hostname: None,
            executable: None,
            pid,
            state,
        }))
    });
    Value::array(DataType::PROC_INFO, rows.collect())
}

/// Returns the status of a job: the code of the last event about it. `OPERATION_IN_PROGRESS` until it runs.
fn status_of(job: &Job) -> Status {
    match job.phase {
        Phase::Waiting | Phase::Launching => Status::OPERATION_IN_PROGRESS,
        Phase::Over => Status::EVENT_JOB_END,
        Phase::Running | Phase::Ending if job.has_no_rank_left() => Status::EVENT_JOB_END,
        Phase::Running if job.hold.state() == State::AllHeld => Status::READY_FOR_DEBUG,
        Phase::Running | Phase::Ending => Status::LAUNCH_COMPLETE,
    }
}

/// Returns the memory of procs: of each, or on average for each node, with that of its daemon, and the least and the most. The memory of
/// daemons is by the names of their nodes.
fn memory(
    wish: &MemoryWish,
    ranks: &[&RankUsage],
    daemons: BTreeMap<&str, u64>,
    named: &BTreeMap<JobId, String>,
) -> Value {
    let info = |key, value| Key::new(key).ok().map(|key| Info::new(key, value));
    let array = |key, infos: [Option<Info>; 4]| {
        info(key, Value::infos(infos.into_iter().flatten().collect()))
    };
    let of_rank = |rank: &&RankUsage| {
        let proc = Proc {
            nspace: Nspace::from_text(named.get(&rank.run)?).ok()?,
            rank: rank.rank.into(),
        };
        let pid = u32::try_from(rank.pid).ok()?;
        array(
            keys::PROC_DATA,
            [
                info(keys::PROC_ID, Value::Proc(Box::new(proc))),
                info(keys::HOSTNAME, Value::text(&rank.host)),
                info(keys::PROC_PID, Value::Pid(pid)),
                info(keys::PROC_RSS, megabytes(rank.resident)),
            ],
        )
    };
    if wish.average == Report::Unwanted && wish.extremes == Report::Unwanted {
        return Value::infos(ranks.iter().filter_map(of_rank).collect());
    }
    let mut infos = Vec::new();
    if wish.average == Report::Wanted {
        let mut nodes: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        nodes.extend(daemons.keys().map(|host| (*host, (0, 0))));
        for rank in ranks {
            let (bytes, count) = nodes.entry(&rank.host).or_default();
            *bytes = bytes.saturating_add(rank.resident);
            *count += 1;
        }
        infos.extend(nodes.into_iter().filter_map(|(host, (bytes, count))| {
            let average = bytes.checked_div(count).map(megabytes);
            let daemon = daemons.get(host).copied().map(megabytes);
            array(
                keys::NODE_ARRAY,
                [
                    info(keys::HOSTNAME, Value::text(host)),
                    average.and_then(|average| info(keys::CLIENT_AVG_MEMORY, average)),
                    daemon.and_then(|daemon| info(keys::DAEMON_MEMORY, daemon)),
                    None,
                ],
            )
        }));
    }
    if wish.extremes == Report::Wanted {
        let least = ranks.iter().min_by_key(|rank| rank.resident);
        let most = ranks.iter().max_by_key(|rank| rank.resident);
        infos.extend([least, most].into_iter().flatten().filter_map(of_rank));
    }
    Value::infos(infos)
}

/// Returns an amount of memory in MiB, as the attributes about memory have it.
#[expect(clippy::cast_precision_loss, reason = "single precision is the type")]
fn megabytes(bytes: u64) -> Value {
    Value::Float(bytes as f32 / 1_048_576.0)
}
