//! Jobs of all kinds on a machine on which nodes come and go.

mod change;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use base::{JobId, NodeId, Rank, RankSet, Time};
use dvm::queue::{
    Amounts, Array, Demand, Dependency, DependencyKind, Estimate, Hold, Limits, NodeState, Outcome,
    Output, Queue, Refusal, Request, Requeue, Resources, Sharing, Spread, TaskId, Why,
};

use super::model::{Have, Model, Node, Wanted};
use crate::{
    agenda::Agenda,
    record::{Played, Record, Recorded, Report},
    rng::Rng,
};

const GPU: &str = "gpu";
const LICENSE: &str = "license";
/// Events after which a run counts as an endless loop.
const EVENTS_MAX: u64 = 100_000;

#[derive(Clone, Debug)]
enum Event {
    Submit,
    /// A task ends, unless it was started again meanwhile.
    End {
        task: TaskId,
        start: u64,
        outcome: Outcome,
    },
    User,
    /// A running task gets more, or gives some back.
    Change,
    Admin,
    Explain,
    /// From now on nobody disturbs the machine.
    Calm,
}

struct World {
    queue: Queue,
    model: Model,
    resources: Resources,
    agenda: Agenda<Event>,
    record: Record,
    rng: Rng,
    /// The last start of each task that runs.
    starts: BTreeMap<TaskId, u64>,
    last_start: u64,
    /// When the time limits of these tasks are over.
    limits: BTreeMap<TaskId, Time>,
    last_job: u32,
    last_node: u32,
    events: u64,
    faults: u32,
    is_calm: bool,
    /// Tasks whose end the queue has to request.
    to_end: BTreeSet<TaskId>,
}

pub(super) fn run(rng: &mut Rng, recorded: Recorded) -> Played {
    let limit = |rng: &mut Rng, low, high| rng.chance(25).then(|| rng.number(low, high));
    let limits = Limits {
        user_jobs: limit(rng, 5, 20),
        user_running: limit(rng, 1, 5),
        user_slots: limit(rng, 4, 12).map(u64::from),
        task_slots: limit(rng, 4, 16).map(u64::from),
        task_time: limit(rng, 50, 200).map(|seconds| Duration::from_secs(seconds.into())),
        running: None,
    };
    let mut world = World {
        queue: Queue::new(limits),
        model: Model::new(limits),
        resources: Resources::default(),
        agenda: Agenda::new(),
        record: Record::new(recorded),
        rng: rng.clone(),
        starts: BTreeMap::new(),
        last_start: 0,
        limits: BTreeMap::new(),
        last_job: 0,
        last_node: 0,
        events: 0,
        faults: 0,
        is_calm: false,
        to_end: BTreeSet::new(),
    };
    world.plan();
    world.play();
    let report = Report {
        events: world.events,
        faults: world.faults,
        finished: world.agenda.now,
    };
    world.record.into_played(report)
}

impl World {
    fn plan(&mut self) {
        for _ in 0..self.rng.length(1, 5) {
            self.add_node();
        }
        let licenses = self.rng.between(0, 3);
        self.model.licenses = licenses;
        let shared = self.amounts(0, LICENSE, licenses);
        let was_set = self.queue.set_shared(shared);
        self.fault((!was_set).then(|| "nothing runs, and resources are in use".to_owned()));
        let span = self.rng.between(10, 1_000);
        let scatter = |world: &mut Self, count, event: Event| {
            for _ in 0..count {
                let when = Time::ZERO + world.rng.micros(0, span * 1_000_000);
                world.agenda.at(when, event.clone());
            }
        };
        let jobs = self.rng.length(1, 40);
        scatter(self, jobs, Event::Submit);
        let (of_user, of_admin) = match self.rng.below(3) {
            0 => (0, 0),
            1 => (self.rng.length(0, 5), 0),
            _ => (self.rng.length(0, 10), self.rng.length(0, 10)),
        };
        scatter(self, of_user, Event::User);
        scatter(self, of_admin, Event::Admin);
        let changes = self.rng.length(0, 10);
        scatter(self, changes, Event::Change);
        scatter(self, 3, Event::Explain);
        let end = Time::ZERO + Duration::from_secs(span + 1);
        self.agenda.at(end, Event::Calm);
    }

    fn play(&mut self) {
        while let Some(event) = self.agenda.next() {
            self.events += 1;
            self.act(event);
            self.queue.schedule(self.agenda.now);
            self.carry_out();
            let kept = std::mem::take(&mut self.to_end);
            let wrong = format!("{kept:?} have lost a node, and are not ended");
            self.fault((!kept.is_empty()).then_some(wrong));
            let head = self.queue.head();
            if !self.record.is_faulty() {
                let wrong = self.model.on_rest(self.agenda.now, head);
                self.fault(wrong);
            }
            if self.record.is_faulty() {
                return;
            }
            if self.events > EVENTS_MAX {
                return self.fault(Some("it does not end".to_owned()));
            }
        }
        let left: Vec<JobId> = self.model.jobs.keys().copied().collect();
        let wrong = format!("{left:?} are never over");
        self.fault((!left.is_empty()).then_some(wrong));
        let still = self.queue.jobs().count() + self.queue.running();
        let wrong = format!("the queue still has {still} jobs and tasks");
        self.fault((still > 0).then_some(wrong));
    }

    fn fault(&mut self, wrong: Option<String>) {
        if let Some(wrong) = wrong {
            self.record.fault(self.agenda.now, wrong);
        }
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        self.record.note(self.agenda.now, what);
    }

    fn amounts(&mut self, slots: u32, name: &str, count: u64) -> Amounts {
        let counted = BTreeMap::from([(name.to_owned(), count)]);
        // There are two names.
        self.resources.amounts(slots, &counted)
    }

    fn add_node(&mut self) {
        let id = NodeId(self.last_node);
        self.last_node += 1;
        let slots = self.rng.number(1, 8);
        let gpus = if self.rng.chance(40) {
            self.rng.between(1, 4)
        } else {
            0
        };
        let capacity = self.amounts(slots, GPU, gpus);
        self.note(|| format!("node {id} is added: {slots} slots, {gpus} GPUs"));
        self.queue.add_node(id, capacity);
        let has = Have {
            slots: slots.into(),
            gpus,
        };
        let state = NodeState::Up;
        self.model.nodes.insert(id, Node { has, state });
    }

    fn act(&mut self, event: Event) {
        match event {
            Event::Submit => self.submit(),
            Event::End {
                task,
                start,
                outcome,
            } => {
                if self.starts.get(&task) == Some(&start) {
                    self.end(task, outcome);
                    self.queue.ended(task, outcome);
                }
            }
            Event::User => self.act_as_user(),
            Event::Change => self.change_task(),
            Event::Admin => self.act_as_admin(),
            Event::Explain => self.explain(),
            Event::Calm => self.calm(),
        }
    }

    fn submit(&mut self) {
        let id = JobId(self.last_job + 1);
        let wanted = self.request();
        let request = wanted.request.clone();
        let unknown = request
            .after
            .iter()
            .find(|after| !self.model.jobs.contains_key(&after.on));
        let unknown = unknown.map(|after| Refusal::UnknownDependency(after.on));
        let result = self.queue.submit(id, request.clone());
        self.note(|| format!("{id} is submitted: {request:?}: {result:?}"));
        match result {
            Ok(()) => {
                self.last_job = id.0;
                self.model.submit(id, wanted);
            }
            Err(refusal @ Refusal::UnknownDependency(_)) => {
                self.fault((Some(refusal) != unknown).then(|| format!("{refusal:?}")));
            }
            Err(_) => {}
        }
    }

    fn request(&mut self) -> Wanted {
        let slots = match self.rng.below(4) {
            0 => self.rng.number(2, 4),
            _ => 1,
        };
        let gpus = if self.rng.chance(20) {
            self.rng.between(1, 2)
        } else {
            0
        };
        let once = if self.rng.chance(15) {
            self.rng.between(1, 2)
        } else {
            0
        };
        let licenses = if self.rng.chance(15) {
            self.rng.between(1, 2)
        } else {
            0
        };
        let units = match self.rng.below(3) {
            0 => 1,
            1 => self.rng.number(2, 6),
            _ => self.rng.number(1, 20),
        };
        let pick_node = |rng: &mut Rng| NodeId(rng.number(0, 4));
        let demand = Demand {
            units,
            unit: self.amounts(slots, GPU, gpus),
            per_node: self.amounts(0, GPU, once),
            spread: self.rng.pick([Spread::Pack, Spread::Pack, Spread::Scatter]),
            sharing: self.rng.pick([
                Sharing::Shared,
                Sharing::Shared,
                Sharing::Shared,
                Sharing::Exclusive,
            ]),
            shared: self.amounts(0, LICENSE, licenses),
            only: self
                .rng
                .chance(10)
                .then(|| (0..3).map(|_| pick_node(&mut self.rng)).collect()),
        };
        let mut after = Vec::new();
        if self.rng.chance(25) && self.last_job > 0 {
            for _ in 0..self.rng.length(1, 2) {
                after.push(Dependency {
                    on: JobId(
                        self.rng
                            .number(self.last_job.saturating_sub(5).max(1), self.last_job),
                    ),
                    kind: self.rng.pick(DependencyKind::ALL),
                });
            }
        }
        let array = self.rng.chance(20).then(|| Array {
            indexes: (0..self.rng.number(1, 8))
                .map(|index| Rank(index * 2))
                .collect::<RankSet>(),
            running_max: self.rng.chance(50).then(|| self.rng.number(1, 3)),
        });
        let request = Request {
            user: self.rng.number(1, 2),
            demand,
            priority: self.rng.pick([0, 0, 0, 5, -5]),
            time_limit: self
                .rng
                .chance(80)
                .then(|| Duration::from_secs(self.rng.between(5, 150))),
            after,
            array,
            hold: self
                .rng
                .pick([Hold::No, Hold::No, Hold::No, Hold::No, Hold::ByUser]),
            on_node_loss: self.rng.pick([Requeue::Never, Requeue::OnNodeLoss]),
        };
        let needs = Have {
            slots: slots.into(),
            gpus,
        };
        Wanted {
            request,
            needs,
            once,
            licenses,
        }
    }

    /// Carries out what the queue wants.
    fn carry_out(&mut self) {
        while let Some(output) = self.queue.poll() {
            if self.record.is_faulty() {
                return;
            }
            let now = self.agenda.now;
            self.note(|| format!("-> {output:?}"));
            match output {
                Output::Start { task, units } => {
                    let wrong = self.model.on_start(now, task, &units);
                    self.fault(wrong);
                    self.started(task);
                }
                Output::End { task } => {
                    self.to_end.remove(&task);
                    if let Some(start) = self.starts.get(&task) {
                        let outcome =
                            self.rng
                                .pick([Outcome::Failed, Outcome::Failed, Outcome::NodeLost]);
                        let end = Event::End {
                            task,
                            start: *start,
                            outcome,
                        };
                        let wait = self.rng.millis(0, 2_000);
                        self.agenda.at(now + wait, end);
                    }
                }
                Output::Requeued { .. } => {}
                Output::Held { job } => {
                    let held = self.model.jobs.get(&job).map(|job| job.request.hold);
                    let is_held = held == Some(Hold::ByRequeues);
                    self.fault((!is_held).then(|| format!("{job} is held without need")));
                    if self.is_calm {
                        self.model.on_release(job);
                        self.queue.release(job);
                    }
                }
                Output::Over { job, why } => {
                    let wrong = self.model.on_over(job, why);
                    self.fault(wrong);
                }
            }
        }
    }

    /// Chooses when and how a task ends.
    fn started(&mut self, task: TaskId) {
        self.last_start += 1;
        let start = self.last_start;
        self.starts.insert(task, start);
        let job = self.model.jobs.get(&task.job);
        let limit = job.and_then(|job| job.request.time_limit.or(self.model.limits.task_time));
        let has_limit = limit.is_some();
        let limit = limit.map_or(200_000, |limit| {
            u64::try_from(limit.as_millis()).unwrap_or(0)
        });
        let runs_for = match self.rng.below(10) {
            0..3 => Duration::from_millis(limit),
            _ => self.rng.millis(0, limit),
        };
        let outcome = match self.rng.below(20) {
            0..3 => Outcome::Failed,
            3 => Outcome::NodeLost,
            _ => Outcome::Succeeded,
        };
        let end = Event::End {
            task,
            start,
            outcome,
        };
        if has_limit {
            let end = self.agenda.now + Duration::from_millis(limit);
            self.limits.insert(task, end);
        }
        self.agenda.at(self.agenda.now + runs_for, end);
    }

    /// Notes the end of a task, before the queue hears of it.
    fn end(&mut self, task: TaskId, outcome: Outcome) {
        self.note(|| format!("{task} ends: {outcome:?}"));
        self.starts.remove(&task);
        self.limits.remove(&task);
        if self.model.on_end(task, outcome) {
            // It comes before others again.
            self.model.excuse();
        }
    }

    fn some_job(&mut self) -> JobId {
        JobId(
            self.rng
                .number(self.last_job.saturating_sub(8), self.last_job),
        )
    }

    fn act_as_user(&mut self) {
        let id = self.some_job();
        let is_there = self.model.jobs.contains_key(&id);
        let what = self.rng.below(5);
        self.note(|| format!("the user does {what} to {id}"));
        let (did, is_right) = match what {
            0 => {
                if let Some(job) = self.model.jobs.get_mut(&id) {
                    job.request.hold = Hold::ByUser;
                }
                (self.queue.hold(id), is_there)
            }
            1 => {
                self.model.on_release(id);
                (self.queue.release(id), is_there)
            }
            2 => {
                let priority = self.rng.pick([-10, 0, 10]);
                if let Some(job) = self.model.jobs.get_mut(&id) {
                    job.request.priority = priority;
                }
                self.model.excuse();
                (self.queue.set_priority(id, priority), is_there)
            }
            3 => {
                self.model.on_cancel(id);
                (self.queue.cancel(id), is_there)
            }
            _ => {
                let index = self.rng.number(0, 8);
                let task = TaskId {
                    job: id,
                    index: Some(index),
                };
                let is_there = self.model.on_cancel_task(task);
                (self.queue.cancel_task(task), is_there)
            }
        };
        self.fault((did != is_right).then(|| format!("{id}: the queue says {did}")));
    }

    fn act_as_admin(&mut self) {
        self.faults += 1;
        self.model.excuse();
        let id = NodeId(self.rng.number(0, self.last_node));
        match self.rng.below(4) {
            0 => self.add_node(),
            1 => {
                self.note(|| format!("node {id} is removed"));
                self.to_end = self.model.on_removed(id);
                self.queue.remove_node(id);
            }
            what => {
                let state = if what == 2 {
                    NodeState::Closed
                } else {
                    NodeState::Up
                };
                self.set_node(id, state);
            }
        }
    }

    fn set_node(&mut self, id: NodeId, state: NodeState) {
        self.note(|| format!("node {id} is {state:?}"));
        let node = self.model.nodes.get_mut(&id);
        let is_there = node.map(|node| node.state = state).is_some();
        let did = self.queue.set_node(id, state);
        self.fault((did != is_there).then(|| format!("node {id}: the queue says {did}")));
    }

    fn explain(&mut self) {
        let id = self.some_job();
        let now = self.agenda.now;
        let explanation = self.queue.explain(now, id);
        self.note(|| format!("{id}: {explanation:?}"));
        let head = self.queue.head();
        let wrong = match explanation {
            None => self
                .model
                .jobs
                .contains_key(&id)
                .then(|| "is unknown".to_owned()),
            Some(explanation) => {
                let is_head = matches!(explanation.why, Why::Head { .. });
                let promised = head.filter(|(head, _)| *head == id).and_then(|(_, at)| at);
                // Others that come before it may not be ready yet.
                let promised = promised.filter(|_| self.model.is_first(id));
                let is_late = match (explanation.start, promised) {
                    (Estimate::At(at), Some(promised)) => at > promised.max(now),
                    (Estimate::AfterUnlimited(_), Some(_)) => true,
                    _ => false,
                };
                if is_head != head.is_some_and(|(head, _)| head == id) {
                    Some(format!("{head:?} is the head, and not it"))
                } else {
                    is_late.then(|| {
                        format!(
                            "is to start at {:?}, not at {promised:?}",
                            explanation.start
                        )
                    })
                }
            }
        };
        self.fault(wrong.map(|wrong| format!("{id} is explained: {wrong}")));
    }

    /// Opens all nodes, releases all jobs, and cancels those that have no room.
    fn calm(&mut self) {
        self.is_calm = true;
        self.model.excuse();
        let nodes: Vec<NodeId> = self.model.nodes.keys().copied().collect();
        for id in nodes {
            self.set_node(id, NodeState::Up);
        }
        let jobs: Vec<JobId> = self.model.jobs.keys().copied().collect();
        for id in jobs {
            self.model.on_release(id);
            self.queue.release(id);
            if !self.model.has_room(id) {
                self.model.on_cancel(id);
                self.queue.cancel(id);
            }
        }
    }
}
