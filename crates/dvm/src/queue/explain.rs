//! Why a job waits, when it should start, and what would let it start sooner.

use std::time::Duration;

use base::{JobId, NodeId, Time};

use super::{
    Dependency, Hold, JobState, LimitHit, NodeState, Outcome, Output, Queue, Sharing, TaskId,
    job::{Job, Quota},
    nodes::NoLimit,
    running::End,
};

/// Jobs that an explanation names as being ahead.
pub const AHEAD_MAX: usize = 10;
/// Jobs that the passes of an estimate look at, before it is given up.
const VISITS_MAX: usize = 10_000_000;

/// An explanation of the state of a job at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    pub why: Why,
    /// Jobs that may start and come before it, in their order: the first [`AHEAD_MAX`] of them.
    pub ahead: Vec<JobId>,
    /// Number of all of them.
    pub ahead_count: usize,
    pub start: Estimate,
    pub sooner: Vec<Hint>,
}

/// Why no task of a job starts now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// All its tasks run, or are over.
    NothingWaits,
    Held(Hold),
    Blocked(Vec<Dependency>),
    Limit(LimitHit),
    /// This job of the same user comes before it, and needs what is left of the user's limits.
    BehindLimit(JobId),
    /// The nodes, closed or not, have room for this many units.
    TooLarge {
        room: u64,
    },
    /// It needs nodes that are closed. The open ones have room for this many units.
    NodesClosed {
        room: u64,
        closed: Vec<NodeId>,
    },
    /// It is the head of the queue, and starts when these tasks have ended.
    Head {
        waits_for: Vec<TaskId>,
    },
    /// It does not fit, and is not the head.
    NoRoom,
    /// It would fit, but would delay this job, which is the head and is to start at this time, if that is known.
    WouldDelay {
        head: JobId,
        at: Option<Time>,
    },
}

/// When a job starts, if each task needs its whole time limit and nobody submits a job that comes before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Estimate {
    At(Time),
    /// When this task ends, which has no time limit, or later.
    AfterUnlimited(TaskId),
    /// Nobody can say: somebody has to release a job or open nodes first, tasks without time limits have to end, or too much would
    /// happen before. Also if nothing waits.
    Unknown,
}

/// What would let a job start now, or is needed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// It is held. Other obstacles may remain.
    Release,
    /// This time limit, or a shorter one.
    TimeLimit(Duration),
    /// So many units instead of those that it asks for.
    Units(u32),
    /// Nodes that are shared with other jobs.
    Shared,
}

impl Queue {
    /// Explains the state of a job; `None` if there is no such job.
    #[must_use]
    pub fn explain(&self, now: Time, id: JobId) -> Option<Explanation> {
        let job = self.jobs.get(&id)?;
        if matches!(job.state(), JobState::Running | JobState::Ending) {
            return Some(Explanation {
                why: Why::NothingWaits,
                ahead: Vec::new(),
                ahead_count: 0,
                start: Estimate::Unknown,
                sooner: Vec::new(),
            });
        }
        // A copy, in which we can let time pass.
        let mut copy = self.clone();
        copy.outputs.clear();
        copy.is_changed = true;
        copy.schedule(now);
        let job = copy.jobs.get(&id)?;
        let order = job.order(id);
        let before = copy.ready.range(..order).map(|((_, id), _)| *id);
        let ahead_count = before.clone().count();
        let ahead = before.take(AHEAD_MAX).collect();
        let why = copy.why(id, job);
        let sooner = copy.hints(now, job, &why);
        let start = copy.estimate(now, id);
        Some(Explanation {
            why,
            ahead,
            ahead_count,
            start,
            sooner,
        })
    }

    fn why(&self, id: JobId, job: &Job) -> Why {
        match job.state() {
            JobState::Running | JobState::Ending => return Why::NothingWaits,
            JobState::Held => return Why::Held(job.request.hold),
            JobState::Blocked => return Why::Blocked(job.unmet().iter().copied().collect()),
            JobState::Ready => {}
        }
        if let Some(hit) = self.limit_hit(job) {
            return Why::Limit(hit);
        }
        if let Some(first) = self.is_behind(id, job) {
            return Why::BehindLimit(first);
        }
        let plan = self.plan.as_ref();
        if let Some(plan) = plan.filter(|plan| plan.job == id) {
            let waits_for = plan.waits_for.iter().copied().collect();
            return Why::Head { waits_for };
        }
        let room = self
            .nodes
            .room(&job.demand, |_, state| state == NodeState::Up);
        if room < u64::from(job.demand.units) {
            let nodes = self.nodes.iter();
            let closed = nodes
                .filter(|(id, node)| node.state == NodeState::Closed && job.demand.admits(*id));
            let closed: Vec<NodeId> = closed.map(|(id, _)| id).collect();
            return match closed.is_empty() {
                true => Why::TooLarge { room },
                false => Why::NodesClosed { room, closed },
            };
        }
        match plan {
            Some(plan) if self.nodes.fit(&job.demand, &NoLimit).is_some() => Why::WouldDelay {
                head: plan.job,
                at: plan.at,
            },
            _ => Why::NoRoom,
        }
    }

    /// Returns the job whose part of the user's limits keeps another job of the user from starting, if one does.
    fn is_behind(&self, id: JobId, job: &Job) -> Option<JobId> {
        let user = job.request.user;
        let before = self.ready.range(..job.order(id)).map(|((_, id), _)| *id);
        let mut of_user = before.filter_map(|id| Some((id, self.jobs.get(&id)?)));
        let (first, other) = of_user.find(|(_, other)| {
            other.request.user == user && self.limits.are_of_users() && self.reserves_quota(other)
        })?;
        let quota = Quota::beside(other, self.users.of(user), &self.limits);
        (!quota.covers(&job.demand)).then_some(first)
    }

    fn hints(&self, now: Time, job: &Job, why: &Why) -> Vec<Hint> {
        let demand = &job.demand;
        let mut hints = Vec::new();
        match why {
            Why::Held(_) => return vec![Hint::Release],
            Why::WouldDelay { at: Some(at), .. } => {
                let most = Duration::from_secs(at.since(now).as_secs());
                if !most.is_zero() {
                    hints.push(Hint::TimeLimit(most));
                }
            }
            Why::NothingWaits | Why::Blocked(_) | Why::Limit(_) | Why::BehindLimit(_) => {
                return hints;
            }
            _ => {}
        }
        let end = End::new(now, job.request.time_limit);
        let fits = |demand: &super::Demand| match &self.plan {
            // The head may take what is reserved for it.
            Some(plan) if !plan.is_over_before(end) && !matches!(why, Why::Head { .. }) => {
                self.nodes.fit(demand, plan).is_some()
            }
            _ => self.nodes.fit(demand, &NoLimit).is_some(),
        };
        let mut other = super::Demand::clone(demand);
        if demand.sharing == Sharing::Exclusive {
            other.sharing = Sharing::Shared;
            if fits(&other) {
                hints.push(Hint::Shared);
            }
            other.sharing = Sharing::Exclusive;
        }
        // The most units that fit, by bisection: fewer fit if more do.
        let (mut fit, mut not) = (0, demand.units);
        while fit + 1 < not {
            other.units = fit.midpoint(not);
            if fits(&other) {
                fit = other.units;
            } else {
                not = other.units;
            }
        }
        if fit > 0 {
            hints.push(Hint::Units(fit));
        }
        hints
    }

    /// Returns the estimate for a job when only tasks without time limits run.
    fn after_unlimited(&self, id: JobId) -> Estimate {
        let plan = self.plan.as_ref().filter(|plan| plan.job == id);
        let first = plan.and_then(|plan| plan.waits_for.first());
        first.map_or(Estimate::Unknown, |task| Estimate::AfterUnlimited(*task))
    }

    /// Ends the tasks whose time limits have passed.
    fn end_until(&mut self, now: Time) {
        let by_end = self.running.by_end();
        let over = by_end.take_while(|(end, ..)| matches!(end, End::At(at) if *at <= now));
        let over: Vec<TaskId> = over.map(|(_, task, _)| task).collect();
        for task in over {
            self.ended(task, Outcome::Succeeded);
        }
    }

    /// Lets each task end at its time limit until the job starts. Consumes what the queue would do.
    fn estimate(mut self, now: Time, id: JobId) -> Estimate {
        let mut now = now;
        let mut visits = 0;
        while visits < VISITS_MAX {
            visits += self.ready.len() + 1;
            while let Some(output) = self.poll() {
                match output {
                    Output::Start { task, .. } if task.job == id => return Estimate::At(now),
                    Output::End { task } => self.ended(task, Outcome::Failed),
                    _ => {}
                }
            }
            if self
                .jobs
                .get(&id)
                .is_none_or(|job| job.state() == JobState::Held)
            {
                return Estimate::Unknown;
            }
            let next = self.running.by_end().next();
            match next.map(|(end, task, _)| (end, task)) {
                Some((End::At(at), _)) => {
                    now = now.max(at);
                    self.end_until(now);
                }
                Some((End::Unknown(_), _)) => return self.after_unlimited(id),
                None => return Estimate::Unknown,
            }
            self.schedule(now);
        }
        Estimate::Unknown
    }
}
