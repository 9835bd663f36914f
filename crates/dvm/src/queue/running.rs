//! The tasks that run, in the order of their ends.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use base::{JobId, NodeId, Time};

use super::{Shared, TaskId, nodes::Units};

/// When a task ends at the latest. Known ends come first, then the others in the order of their starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum End {
    At(Time),
    /// The task has no time limit; it has started at this time.
    Unknown(Time),
}

impl End {
    pub(super) fn new(now: Time, limit: Option<Duration>) -> Self {
        // A limit beyond all times is none.
        let end = limit.map(|limit| now + limit);
        let end = end.filter(|end| *end < Time::from_nanos(u64::MAX));
        end.map_or(Self::Unknown(now), Self::At)
    }
}

/// What has happened to a task whose end is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Nothing,
    /// One of its nodes was removed.
    Lost,
    Canceled,
}

/// What a running task has.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) mark: Mark,
    pub(super) demand: Shared,
    pub(super) units: Units,
    pub(super) end: End,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Running {
    tasks: BTreeMap<TaskId, Part>,
    ends: BTreeSet<(End, TaskId)>,
}

impl Running {
    pub(super) fn insert(&mut self, task: TaskId, part: Part) {
        self.ends.insert((part.end, task));
        let before = self.tasks.insert(task, part);
        assert!(before.is_none(), "{task} is started twice");
    }

    pub(super) fn remove(&mut self, task: TaskId) -> Option<Part> {
        let part = self.tasks.remove(&task)?;
        self.ends.remove(&(part.end, task));
        Some(part)
    }

    /// Changes what a running task has. Does nothing if it does not run.
    pub(super) fn replace(&mut self, task: TaskId, part: Part) {
        let Some(before) = self.tasks.get_mut(&task) else {
            return;
        };
        self.ends.remove(&(before.end, task));
        self.ends.insert((part.end, task));
        *before = part;
    }

    /// Marks a task, unless it was canceled before. Returns false if it does not run.
    pub(super) fn mark(&mut self, task: TaskId, mark: Mark) -> bool {
        let Some(part) = self.tasks.get_mut(&task) else {
            return false;
        };
        if part.mark != Mark::Canceled {
            part.mark = mark;
        }
        true
    }

    pub(super) fn get(&self, task: TaskId) -> Option<&Part> {
        self.tasks.get(&task)
    }

    /// Returns the running tasks of a job.
    pub(super) fn of(&self, job: JobId) -> impl Iterator<Item = TaskId> {
        let first = TaskId { job, index: None };
        let last = TaskId {
            job,
            index: Some(u32::MAX),
        };
        self.tasks.range(first..=last).map(|(task, _)| *task)
    }

    /// Returns the tasks that have part of a node.
    pub(super) fn on(&self, node: NodeId) -> Vec<TaskId> {
        let has_part = |part: &Part| part.units.iter().any(|(id, _)| *id == node);
        let tasks = self.tasks.iter().filter(|(_, part)| has_part(part));
        tasks.map(|(task, _)| *task).collect()
    }

    /// Returns the tasks in the order of their ends.
    pub(super) fn by_end(&self) -> impl Iterator<Item = (End, TaskId, &Part)> {
        let ends = self.ends.iter();
        ends.filter_map(|(end, task)| Some((*end, *task, self.tasks.get(task)?)))
    }

    pub(super) fn len(&self) -> usize {
        self.tasks.len()
    }
}
