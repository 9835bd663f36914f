//! What fronts ask, and whether the answer is right.

use std::collections::{BTreeMap, BTreeSet};

use base::{JobId, NodeId, RankSet};
use dvm::{
    machine::{Ask, Down, NoResource, NodeLine, NotDone, Reason, Record, Reply, Submission},
    queue::{DependencyKind, Refusal},
};

use super::{
    model::{Job, Model, Task},
    shape::Shape,
};

/// A front that is connected.
#[derive(Clone, Debug, Default)]
pub(super) struct Front {
    /// What it has asked, until the answer.
    pub(super) asked: Option<Asked>,
    /// The call with which it has asked.
    pub(super) asked_at: u64,
    /// Its job.
    pub(super) job: Option<JobId>,
    /// What its job asks for.
    pub(super) shape: Option<Shape>,
    /// Its job waits in the queue, and the front was not told that it is over.
    pub(super) waits: bool,
    pub(super) is_gone: bool,
}

/// A question without an answer.
#[derive(Clone, Debug)]
pub(super) enum Asked {
    /// A job, and the number that it has if it was accepted.
    Submit(Box<Submission>, Shape, Option<JobId>),
    Job(JobId),
    List(u32),
    Wait(BTreeSet<JobId>),
    Ready,
    Status,
    /// Answered with one of these at once.
    Order(Result<(), NotDone>),
    /// Refused if the job does not run.
    Signal(JobId),
    /// Refused if more runs.
    DownIfIdle,
    Explain(JobId),
    Nodes,
    /// Nodes that are to come.
    Add,
    /// A node that is to go.
    Drop(NodeId),
    /// The status of a machine on which nothing runs, and nothing can start.
    Quiet,
}

/// What the machine says at a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment<'a> {
    pub(super) model: &'a Model,
    /// The call with the question.
    pub(super) asked_at: u64,
    /// What runs and allocations have of each node.
    pub(super) granted: &'a BTreeMap<NodeId, (u32, u32)>,
    /// The answer of the store that has led to this, if one has.
    pub(super) read: Option<bool>,
    /// The job can be placed on the nodes.
    pub(super) fits: bool,
    /// The batch with the job of the question was not stored.
    pub(super) has_failed: bool,
    /// The number of a job that the store has.
    pub(super) is_stored: bool,
}

impl Moment<'_> {
    /// Checks an answer. Returns a description of an error.
    pub(super) fn check(self, asked: &Asked, reply: &Reply) -> Option<String> {
        let wrong = || Some(format!("{asked:?} is answered with {reply:?}"));
        let is_right = match (asked, reply) {
            (Asked::Submit(_, _, Some(id)), Reply::Submitted(told)) => {
                if !self.is_stored {
                    return Some(format!("job {told} is told, and not stored"));
                }
                id == told && self.model.job(*id).is_some()
            }
            (Asked::Submit(_, _, id), Reply::Refused(NotDone::NotStored(_))) => {
                id.is_some() && self.has_failed
            }
            (Asked::Submit(submission, _, None), Reply::Refused(why)) => {
                self.is_refused(submission, why)
            }
            (Asked::Job(id), Reply::Job(record)) => {
                if record.id == *id {
                    return self.model.check(record);
                }
                false
            }
            (Asked::Job(id), Reply::Refused(NotDone::NoSuchJob(_))) => self.was_unknown(*id),
            (Asked::Job(_) | Asked::List(_) | Asked::Wait(_), Reply::Refused(why)) => match why {
                NotDone::NotRead(_) => self.read == Some(false),
                NotDone::NoSuchJob(id) => self.was_unknown(*id),
                _ => false,
            },
            (
                Asked::List(most),
                Reply::Jobs {
                    records,
                    before: None,
                },
            ) => {
                return self.model.check_list(records, *most);
            }
            (Asked::Wait(jobs), Reply::Over(records)) => {
                return self.is_over(jobs, records);
            }
            (Asked::Order(Ok(())), Reply::Done) => true,
            (Asked::Order(Err(expected)), Reply::Refused(why)) => expected == why,
            (Asked::Signal(id), Reply::Done) => {
                let job = self.model.jobs.get(id);
                job.is_some_and(|job| job.count(Task::Running) > 0 && !job.is_allocation())
            }
            (Asked::Signal(id), Reply::Refused(NotDone::NotRunning(said))) => {
                let job = self.model.jobs.get(id);
                id == said && job.is_some_and(|job| !job.is_allocation())
            }
            (Asked::Signal(id), Reply::Refused(NotDone::IsAllocation(said))) => {
                let job = self.model.jobs.get(id);
                id == said && job.is_some_and(Job::is_allocation)
            }
            (Asked::Signal(id), Reply::Refused(why)) => {
                !self.model.jobs.contains_key(id) && self.is_missing(*id, why)
            }
            (Asked::DownIfIdle, Reply::Done) => self.model.running() == 0,
            (Asked::DownIfIdle, Reply::Refused(NotDone::Busy(_))) => true,
            (Asked::Explain(id), Reply::Explained(explained)) => {
                let blocked = match &explained.why {
                    Reason::Blocked(after) => after.as_slice(),
                    _ => &[],
                };
                let mut blocked = blocked.iter();
                if explained.record.id == *id && !blocked.any(|after| self.model.is_met(*after)) {
                    return self.model.check(&explained.record);
                }
                false
            }
            (Asked::Explain(id), Reply::Refused(why)) => {
                !self.model.jobs.contains_key(id) && self.is_missing(*id, why)
            }
            (Asked::Ready | Asked::Status, Reply::Status(status)) => {
                let running = usize::try_from(status.running).unwrap_or(usize::MAX);
                let jobs = self.model.jobs.len();
                status.free <= status.slots
                    && running >= self.model.running()
                    && usize::try_from(status.waiting).is_ok_and(|waiting| waiting <= jobs)
                    && status.restored.damaged.is_empty()
                    && status.is_going_down == self.model.down.is_some()
            }
            (Asked::Quiet, Reply::Status(status)) => {
                let waiting = usize::try_from(status.waiting).unwrap_or(usize::MAX);
                status.running == 0
                    && status.free == status.slots
                    && waiting == self.model.jobs.len()
            }
            (Asked::Add, Reply::Added(added)) => added.failed.classes.is_empty(),
            (Asked::Add, Reply::Refused(NotDone::GoingDown)) => self.model.down.is_some(),
            (Asked::Add, Reply::Refused(NotDone::NodeLeaves(_) | NotDone::NodeEnds(_)))
            | (Asked::Drop(_), Reply::Done | Reply::Refused(NotDone::NodeStays(_))) => true,
            (Asked::Nodes, Reply::Nodes(lines)) => lines.iter().all(|line| self.is_line(line)),
            _ => false,
        };
        if is_right { None } else { wrong() }
    }

    /// Returns true if this may be said of a node.
    fn is_line(self, line: &NodeLine) -> bool {
        let mut granted = self.granted.iter();
        let found = granted.find(|(id, _)| line.name == format!("n{id}"));
        let used = found.map_or(0, |(_, (slots, _))| *slots);
        let known = |id: &JobId| self.model.jobs.contains_key(id);
        // Starts that are being stored use more.
        line.free + used <= line.slots && line.jobs.iter().all(known)
    }

    /// Returns true if there was no such job when the question was asked.
    fn was_unknown(self, id: JobId) -> bool {
        let job = self.model.job(id);
        job.is_none_or(|job| job.since > self.asked_at)
    }

    fn is_missing(self, id: JobId, why: &NotDone) -> bool {
        *why == self.model.missing(id)
    }

    fn is_refused(self, submission: &Submission, why: &NotDone) -> bool {
        let mut after = submission.wishes.after.iter();
        match why {
            NotDone::GoingDown => self.model.down.is_some(),
            NotDone::NotRead(_) => self.read == Some(false),
            NotDone::NoSuchJob(id) => after.any(|after| after.on == *id) && self.was_unknown(*id),
            NotDone::DependencyFailed(id) => {
                let over = self.model.over(*id);
                over.is_some_and(|over| !over.has_succeeded())
                    && after.any(|after| after.on == *id && after.kind == DependencyKind::Succeeded)
            }
            NotDone::NotAccepted(Refusal::NeverFits { .. })
            | NotDone::NoResource(NoResource::TooMuch(_)) => !self.fits,
            _ => false,
        }
    }

    fn is_over(self, jobs: &BTreeSet<JobId>, records: &[Record]) -> Option<String> {
        let told: BTreeSet<JobId> = records.iter().map(|record| record.id).collect();
        if told != *jobs || records.len() != jobs.len() {
            return Some(format!("{jobs:?} are over, and {told:?} are told"));
        }
        let lives = records.iter().find(|record| record.ended.is_none());
        if let Some(lives) = lives {
            return Some(format!("job {} is told to be over", lives.id));
        }
        records.iter().find_map(|record| self.model.check(record))
    }
}

impl Model {
    /// Returns why a job that is not in the queue cannot be changed.
    pub(super) const fn missing(&self, id: JobId) -> NotDone {
        if id.0 == 0 || id.0 >= self.next {
            NotDone::NoSuchJob(id)
        } else {
            NotDone::IsOver(id)
        }
    }

    /// Applies an order for a job. Returns what the answer has to be.
    pub(super) fn order(&mut self, ask: &Ask) -> Result<(), NotDone> {
        let (Ask::Hold(id) | Ask::Release(id) | Ask::Prioritize(id, _) | Ask::Cancel(id, _)) = ask
        else {
            return Ok(());
        };
        if !self.jobs.contains_key(id) {
            return Err(self.missing(*id));
        }
        match ask {
            Ask::Hold(_) => self.hold(*id),
            Ask::Release(_) => self.release(*id),
            Ask::Prioritize(_, priority) => {
                if let Some(job) = self.jobs.get_mut(id) {
                    job.wishes.priority = *priority;
                }
            }
            Ask::Cancel(_, None) => self.cancel(*id),
            Ask::Cancel(_, Some(tasks)) => self.cancel_tasks(*id, &RankSet::clone(tasks)),
            _ => {}
        }
        Ok(())
    }

    pub(super) fn go_down(&mut self, down: Down) {
        // Who only wants it to end later does not change that.
        if self.down != Some(Down::Now) {
            self.down = Some(down);
        }
        self.down_since.get_or_insert(self.call);
        self.refuse_allocations();
    }
}
