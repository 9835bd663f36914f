//! The jobs that a tool follows: their stages and their ends, each reported once.
//!
//! Servers send the events of a job to every tool that has registered for them. They replay old ones to a tool that registers, some
//! of them twice, and an event may overtake the answer to the spawn that names its job. Here all of that is sorted out.

use std::collections::{BTreeMap, BTreeSet};

use super::MAX_EARLY_ENDS;
use crate::{
    client::{HandlerId, Notice, Ticket},
    keys,
    value::{Nspace, PmixRank, Status, Value},
};

/// Maximum number of jobs that are followed at once. Events of further ones are dropped.
pub const MAX_FOLLOWED: usize = 65_536;

/// The jobs whose stages and ends a tool wants to hear of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Follow {
    /// Those that it spawns.
    Spawned,
    /// Those that it spawns, and this one.
    Job(Nspace),
    /// All jobs of the server. This is for the tool that has started the server itself.
    All,
}

/// How far a job has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The server starts its processes.
    Started,
    /// All its processes are started.
    Launched,
    /// All its processes wait for a debugger.
    ReadyForDebug,
}

/// Outcome of a job, as far as the server reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobEnd {
    pub status: Option<Status>,
    pub exit_code: Option<i32>,
    /// The process whose failure has ended the job.
    pub failed: Option<PmixRank>,
}

/// News of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    Stage(Stage),
    Ended(JobEnd),
}

/// Event codes of the stages.
pub(super) const STAGES: [Status; 3] = [
    Status::EVENT_JOB_START,
    Status::LAUNCH_COMPLETE,
    Status::READY_FOR_DEBUG,
];

/// The jobs that a tool follows.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    /// Handler for ends.
    pub(super) ends: Option<HandlerId>,
    /// Handler for stages.
    pub(super) stages: Option<HandlerId>,
    all: bool,
    /// Unanswered spawns.
    spawning: BTreeSet<Ticket>,
    /// Jobs that are followed, with what was reported of each. With `all`, those that have ended stay here.
    followed: BTreeMap<Nspace, Reported>,
    /// News that may be of a job whose spawn is unanswered.
    early: Vec<(Nspace, News)>,
}

#[derive(Debug, Default)]
struct Reported {
    stages: BTreeSet<Stage>,
    ended: bool,
}

impl Jobs {
    /// Returns true if a handler is for jobs.
    pub(super) fn owns(&self, handler: HandlerId) -> bool {
        self.ends == Some(handler) || self.stages == Some(handler)
    }

    pub(super) fn follow(&mut self, follow: Follow) {
        match follow {
            Follow::Spawned => {}
            Follow::Job(nspace) => self.add(nspace),
            Follow::All => self.all = true,
        }
    }

    fn add(&mut self, nspace: Nspace) {
        if self.followed.len() < MAX_FOLLOWED {
            self.followed.entry(nspace).or_default();
        }
    }

    pub(super) fn spawning(&mut self, ticket: Ticket) {
        self.spawning.insert(ticket);
    }

    /// Takes the answer to a spawn. Returns the news that came before it.
    pub(super) fn spawned(&mut self, ticket: Ticket, nspace: Option<&Nspace>) -> Vec<News> {
        self.spawning.remove(&ticket);
        let mut news = Vec::new();
        if let Some(nspace) = nspace {
            self.add(nspace.clone());
            let (own, others) = std::mem::take(&mut self.early)
                .into_iter()
                .partition(|(job, _)| job == nspace);
            self.early = others;
            let own: Vec<(Nspace, News)> = own;
            for (_, one) in own {
                if self.is_new(nspace, one) {
                    news.push(one);
                }
            }
        }
        if self.spawning.is_empty() {
            self.early.clear();
        }
        news
    }

    /// Takes an event. Returns the news that are to be reported.
    pub(super) fn notice(&mut self, notice: &Notice) -> Vec<(Nspace, News)> {
        let (jobs, one) = match notice.status {
            Status::EVENT_JOB_END => (about(notice), News::Ended(end(notice))),
            Status::EVENT_JOB_START => (named(notice), News::Stage(Stage::Started)),
            Status::LAUNCH_COMPLETE => (named(notice), News::Stage(Stage::Launched)),
            Status::READY_FOR_DEBUG => (named(notice), News::Stage(Stage::ReadyForDebug)),
            _ => return Vec::new(),
        };
        let mut news = Vec::new();
        for nspace in jobs {
            if self.all {
                self.add(nspace.clone());
            }
            if self.followed.contains_key(&nspace) {
                if self.is_new(&nspace, one) {
                    news.push((nspace, one));
                }
            } else if !self.spawning.is_empty() && self.early.len() < MAX_EARLY_ENDS {
                self.early.push((nspace, one));
            }
        }
        news
    }

    /// Returns true if this was not reported of a followed job yet, and remembers it.
    fn is_new(&mut self, nspace: &Nspace, news: News) -> bool {
        let Some(reported) = self.followed.get_mut(nspace) else {
            return false;
        };
        match news {
            News::Stage(stage) => !reported.ended && reported.stages.insert(stage),
            News::Ended(_) if self.all => !std::mem::replace(&mut reported.ended, true),
            News::Ended(_) => self.followed.remove(nspace).is_some(),
        }
    }
}

/// Returns the job that an event names, else those of the processes that it is about.
fn named(notice: &Notice) -> BTreeSet<Nspace> {
    let name = notice.attribute(keys::NSPACE).and_then(Value::as_text);
    match name.and_then(|name| Nspace::new(name).ok()) {
        Some(nspace) => BTreeSet::from([nspace]),
        None => about(notice),
    }
}

/// Returns the jobs of the processes that an event is about. If it names none, that of its source.
fn about(notice: &Notice) -> BTreeSet<Nspace> {
    let affected = notice.affected();
    let mut jobs: BTreeSet<Nspace> = affected.iter().map(|proc| proc.nspace.clone()).collect();
    if jobs.is_empty() {
        jobs.insert(notice.source.nspace.clone());
    }
    jobs
}

fn end(notice: &Notice) -> JobEnd {
    let failed = notice.affected();
    let failed = failed.iter().find(|proc| proc.rank.is_number());
    JobEnd {
        status: match notice.attribute(keys::JOB_TERM_STATUS) {
            Some(Value::Status(status)) => Some(*status),
            _ => None,
        },
        exit_code: match notice.attribute(keys::EXIT_CODE) {
            Some(Value::Int(code) | Value::Int32(code)) => Some(*code),
            _ => None,
        },
        failed: failed.map(|proc| proc.rank),
    }
}
