//! What a machine keeps of a job, in memory while the job is in the queue, and in the store.

use std::{collections::BTreeMap, ffi::OsString, time::Duration};

use base::{HostList, JobId, Rank, RankSet, Usage};
use serde::{Deserialize, Serialize};

use super::{
    Wall,
    planted::{self, Bug},
};
use crate::{
    proto::Outcome,
    queue::{Array, Dependency, Hold, Over, Requeue, Sharing},
    spec::{GpuShare, JobSpec, ResourceLimits, ResourceNeeds},
};

/// Characters of a command line that are kept.
pub const COMMAND_MAX: usize = 200;

/// A job that runs without a front.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Submission {
    /// The job, or each task of the array.
    pub spec: Box<JobSpec>,
    /// Name for listings.
    pub name: String,
    /// The command line, for listings.
    pub command: String,
    pub wishes: Wishes,
    pub output: OutputFiles,
}

/// Where the output of a job without a front goes, on the machine's node. Both are absolute; `%j` stands for the number of the
/// job, `%i` for the index of the task in its array, and `%%` for a percent sign.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputFiles {
    pub stdout: OsString,
    /// `None`: with stdout.
    pub stderr: Option<OsString>,
}

/// What the user wants of the queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wishes {
    pub priority: i32,
    pub after: Vec<Dependency>,
    pub array: Option<Array>,
    pub hold: Hold,
    pub on_node_loss: Requeue,
    pub sharing: Sharing,
}

impl Default for Wishes {
    fn default() -> Self {
        Self {
            priority: 0,
            after: Vec::new(),
            array: None,
            hold: Hold::No,
            on_node_loss: Requeue::Never,
            sharing: Sharing::Shared,
        }
    }
}

/// A job as listings show it, and as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub id: JobId,
    pub way: Way,
    pub name: String,
    pub command: String,
    pub wishes: Wishes,
    /// Slots of a task.
    pub slots: u32,
    pub time_limit: Option<Duration>,
    pub submitted: Wall,
    /// The first start of a task.
    pub started: Option<Wall>,
    /// `None` while the job is in the queue.
    pub ended: Option<(Wall, Over)>,
    pub tasks: Tasks,
    /// Nodes of the task that has started last.
    pub hosts: HostList,
    /// Where its output goes; `None` if it has a front.
    pub output: Option<OutputFiles>,
    /// How the first task that has not succeeded ended, and its index.
    pub failure: Option<(u32, Box<Failure>)>,
    /// Tasks that have run and run again: they go on with their output files.
    pub requeued: RankSet,
    /// Running tasks that are stopped.
    pub paused: RankSet,
    /// What its runs that are over have used, except on lost nodes.
    pub spent: Usage,
    /// How often tasks were requeued that are not over. Only stored records have it: in memory, the queue counts.
    pub requeues: BTreeMap<u32, u32>,
    /// What it needs beside slots; `None`: nothing.
    pub needs: Option<Box<Needs>>,
}

/// What a job needs beside slots, and its limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Needs {
    pub limits: ResourceLimits,
    pub gpus: Option<GpuShare>,
    pub resources: ResourceNeeds,
}

impl Needs {
    /// Returns what a job needs; `None` if it needs nothing beside slots.
    fn of(spec: &JobSpec) -> Option<Box<Self>> {
        let needs = Self {
            limits: spec.limits,
            gpus: spec.gpus.as_ref().map(|plan| plan.share),
            resources: spec.needs.clone(),
        };
        (needs != Self::default()).then(|| Box::new(needs))
    }
}

/// Who waits for the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Way {
    /// A front. It ends with that.
    Attached,
    /// Nobody has to.
    Detached,
    /// It is an allocation, and ends with the job that has requested it.
    Allocation,
}

/// The tasks of a job by their state. A job that is no array has one task with the index 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tasks {
    pub waiting: RankSet,
    pub running: RankSet,
    pub succeeded: RankSet,
    pub failed: RankSet,
    pub canceled: RankSet,
}

impl Record {
    /// Makes the record of a job that is submitted now.
    pub(super) fn of(
        id: JobId,
        way: Way,
        submission: &Submission,
        slots: u32,
        submitted: Wall,
    ) -> Self {
        let output = match way {
            Way::Attached | Way::Allocation => None,
            Way::Detached => Some(submission.output.clone()),
        };
        let waiting = match &submission.wishes.array {
            Some(array) => array.indexes.clone(),
            None => RankSet::single(Rank(0)),
        };
        Self {
            id,
            way,
            name: submission.name.clone(),
            command: submission.command.chars().take(COMMAND_MAX).collect(),
            wishes: submission.wishes.clone(),
            slots,
            time_limit: submission.spec.end.time_limit,
            submitted,
            started: None,
            ended: None,
            tasks: Tasks {
                waiting,
                ..Tasks::default()
            },
            hosts: HostList::default(),
            output,
            failure: None,
            requeued: RankSet::new(),
            paused: RankSet::new(),
            spent: Usage::default(),
            requeues: BTreeMap::new(),
            needs: Needs::of(&submission.spec),
        }
    }

    /// Moves a task to one of the sets. What does not run is not paused.
    pub(super) fn put(&mut self, index: u32, place: impl FnOnce(&mut Tasks) -> &mut RankSet) {
        self.tasks.put(index, place);
        if !self.tasks.running.contains(Rank(index)) && !planted::is(Bug::PauseOutlivesRun) {
            self.paused = self.paused.difference(&RankSet::single(Rank(index)));
        }
    }

    /// Returns true if the job is an array.
    #[must_use]
    pub const fn is_array(&self) -> bool {
        self.wishes.array.is_some()
    }

    /// Returns true if a run of a task begins its output files anew: it is the first one, and no other task has the same files.
    pub(super) fn begins_files(&self, index: u32) -> bool {
        let is_first = !self.requeued.contains(Rank(index));
        let has_own = |pattern: &OsString| {
            pattern
                .as_encoded_bytes()
                .windows(2)
                .any(|two| two == b"%i")
        };
        let files = self
            .output
            .iter()
            .flat_map(|files| [Some(&files.stdout), files.stderr.as_ref()]);
        is_first && (!self.is_array() || files.flatten().all(has_own))
    }

    /// Returns true if tasks of the job that wait do not start because it is held. Others may run.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.ended.is_none() && self.wishes.hold != Hold::No
    }

    /// Returns the state in a word, for listings.
    #[must_use]
    pub fn state(&self) -> State {
        match &self.ended {
            Some((_, Over::Succeeded)) => State::Succeeded,
            Some((_, Over::Failed)) => State::Failed,
            Some((_, Over::Canceled | Over::DependencyFailed(_))) => State::Canceled,
            None if !self.tasks.running.is_empty() && self.paused == self.tasks.running => {
                State::Paused
            }
            None if !self.tasks.running.is_empty() => State::Running,
            None if self.wishes.hold != Hold::No => State::Held,
            None => State::Waiting,
        }
    }
}

/// State of a job for listings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    Waiting,
    Held,
    Running,
    /// All its tasks that run are stopped.
    Paused,
    Succeeded,
    Failed,
    Canceled,
}

impl Tasks {
    /// Moves a task to one of the sets.
    pub(super) fn put(&mut self, index: u32, place: impl FnOnce(&mut Self) -> &mut RankSet) {
        let one = RankSet::single(Rank(index));
        let all = [
            &mut self.waiting,
            &mut self.running,
            // A task that has lost a node has failed, or was canceled, and may wait again.
            &mut self.failed,
            &mut self.canceled,
            &mut self.succeeded,
        ];
        let count = if planted::is(Bug::RequeuedCountedTwice) {
            2
        } else {
            all.len()
        };
        for set in all.into_iter().take(count) {
            if set.contains(Rank(index)) {
                *set = set.difference(&one);
            }
        }
        place(self).insert(Rank(index));
    }

    /// Returns the number of all tasks.
    #[must_use]
    pub fn count(&self) -> usize {
        let sets = [
            &self.waiting,
            &self.running,
            &self.succeeded,
            &self.failed,
            &self.canceled,
        ];
        sets.into_iter().map(RankSet::len).sum()
    }
}

/// What is known of the end of a task that has not succeeded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Failure {
    /// It has run.
    Ended(Outcome),
    /// It was not started, for the reason given.
    Refused(String),
    /// It ran when the machine ended without warning.
    MachineLost,
    /// What it has printed cannot be written, for the reason given.
    OutputLost(String),
}
