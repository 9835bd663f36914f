//! The fronts: what they ask, and what they hear.

use std::collections::{BTreeMap, BTreeSet};

use base::{HostList, JobId, NodeId, Rank, RankSet, Signal};
use dvm::{
    machine::{Ask, Down, MachineOutput, NoResource, NotDone, Reply, Wishes},
    proto::FrontId,
    queue::{Over, Refusal},
};

use super::{
    Call, Event, World,
    model::{Known, Needs, Standing},
    questions::{Asked, Front, Moment},
    shape::{self, Shape},
};

impl World {
    pub(super) fn new_front(&mut self) -> FrontId {
        self.last_front += 1;
        let front = FrontId(self.last_front);
        self.fronts.insert(front, Front::default());
        front
    }

    /// Returns a front that has no question, or a new one.
    fn some_front(&mut self) -> FrontId {
        let idle = self
            .fronts
            .iter()
            .filter(|(_, front)| front.asked.is_none() && front.job.is_none() && !front.is_gone);
        // What becomes of the job of an owner and the end of the machine are stored one after the other, and the model has one moment for both.
        let idle = idle.filter(|(id, _)| !self.owners.has(**id));
        let idle: Vec<FrontId> = idle.map(|(id, _)| *id).collect();
        let place = self.rng.length(0, idle.len());
        match idle.get(place) {
            Some(front) => *front,
            None => self.new_front(),
        }
    }

    pub(super) fn act_as_front(&mut self) {
        let front = self.some_front();
        if self.rng.chance(10) {
            let wait = match self.rng.below(2) {
                0 => self.rng.micros(0, 1_000),
                _ => self.rng.millis(0, 5_000),
            };
            self.later(wait, Event::FrontLost(front));
        }
        let id = shape::some_job(&mut self.rng, &self.model);
        let (ask, asked) = match self.rng.below(48) {
            0..12 => {
                let (submission, shape) = shape::submission(&mut self.rng, &self.model);
                let submission = Box::new(submission);
                let asked = Asked::Submit(submission.clone(), shape, None);
                (Ask::Submit(submission), Some(asked))
            }
            12..16 => return self.attach(front),
            16..19 => {
                let jobs = self.rng.length(1, 3);
                let jobs: BTreeSet<JobId> = (0..jobs)
                    .map(|_| shape::some_job(&mut self.rng, &self.model))
                    .collect();
                let asked = Asked::Wait(jobs.clone());
                (Ask::Wait(jobs.into_iter().collect()), Some(asked))
            }
            19..22 => (Ask::Cancel(id, None), None),
            22..24 => {
                let tasks = (0..self.rng.number(1, 4)).map(|_| Rank(self.rng.number(0, 14)));
                (Ask::Cancel(id, Some(tasks.collect::<RankSet>())), None)
            }
            24..26 => (Ask::Hold(id), None),
            26..28 => (Ask::Release(id), None),
            28 => (Ask::Prioritize(id, self.rng.pick([-9, 1, 9])), None),
            29..31 => {
                let over = self.rng.pick([0, 1, 3, 1_000]);
                (Ask::Jobs { over, before: None }, Some(Asked::List(over)))
            }
            31..33 => (Ask::Job(id), Some(Asked::Job(id))),
            33 => (Ask::Explain(id), Some(Asked::Explain(id))),
            34 => (Ask::Status, Some(Asked::Status)),
            35 => (Ask::Nodes, Some(Asked::Nodes)),
            36 => return self.drain(front),
            37 => {
                let all = self.listed().into_iter();
                let some: Vec<String> = all.filter(|_| self.rng.chance(50)).collect();
                return self.resume(front, &some);
            }
            38 => return self.withdraw_one(),
            39..41 => {
                let signal = self.rng.pick([Signal::STOP, Signal::CONT]);
                (Ask::Signal(id, None, signal), Some(Asked::Signal(id)))
            }
            41..43 => {
                let all = (0..self.capacity.len()).map(|_| NodeId(self.rng.number(0, 4)));
                let all: BTreeSet<NodeId> = all.collect();
                let known = all.into_iter().filter(|id| self.nodes.contains_key(id));
                let known: Vec<NodeId> = known.collect();
                return self.add_nodes(front, &known);
            }
            43..45 => {
                let id = NodeId(self.rng.number(0, 4));
                return self.drop_node(front, id);
            }
            _ => match self.rng.below(5) {
                0 => (Ask::Ready, Some(Asked::Ready)),
                1 => (Ask::Down(Down::IfIdle), Some(Asked::DownIfIdle)),
                2 => (Ask::Down(Down::WhenIdle), None),
                3 => (Ask::Down(Down::Now), None),
                _ => (Ask::Status, Some(Asked::Status)),
            },
        };
        self.ask(front, ask, asked);
    }

    /// Asks why the jobs wait that depend on others.
    pub(super) fn explain_all(&mut self) {
        let jobs = self.model.jobs.iter();
        let jobs = jobs.filter(|(_, job)| !job.wishes.after.is_empty());
        let jobs: Vec<JobId> = jobs.map(|(id, _)| *id).collect();
        for id in jobs {
            let front = self.new_front();
            self.ask(front, Ask::Explain(id), Some(Asked::Explain(id)));
            // It leaves at once.
            self.fronts.remove(&front);
        }
    }

    /// Asks the machine. An order is carried out by the model first, which says what the answer has to be.
    pub(super) fn ask(&mut self, front: FrontId, ask: Ask, asked: Option<Asked>) {
        self.model.call += 1;
        self.note(|| format!("{front:?} asks {}", short(&ask)));
        let asked = asked.unwrap_or_else(|| {
            if let Ask::Down(down @ (Down::WhenIdle | Down::Now)) = ask {
                self.model.go_down(down);
            }
            Asked::Order(self.model.order(&ask))
        });
        if let Some(front) = self.fronts.get_mut(&front) {
            front.asked = Some(asked);
            front.asked_at = self.model.call;
        }
        let now = self.agenda.now;
        self.call(Call::Asked(front), |machine| machine.ask(now, front, ask));
    }

    fn attach(&mut self, front: FrontId) {
        let shape = Shape::any(&mut self.rng);
        self.model.call += 1;
        self.note(|| format!("{front:?} wants to run {shape:?}"));
        let spec = shape.spec();
        if let Some(front) = self.fronts.get_mut(&front) {
            front.shape = Some(shape);
            front.waits = true;
        }
        if self.rng.chance(25) {
            let wait = self.rng.millis(0, 10_000);
            self.later(wait, Event::FrontLost(front));
        }
        let now = self.agenda.now;
        self.call(Call::Attached(front), |machine| {
            machine.attach(now, front, spec);
        });
    }

    fn drain(&mut self, front: FrontId) {
        let id = NodeId(self.rng.number(0, 4));
        let name = format!("n{id}");
        self.model.call += 1;
        let call = self.model.call;
        self.note(|| format!("{front:?} drains {name}"));
        let node = self.nodes.get_mut(&id);
        let expected = match node.filter(|node| node.standing != Standing::Gone) {
            Some(node) if node.standing == Standing::Lost => Err(NotDone::NodeBad(name.clone())),
            Some(node) => {
                node.is_drained = true;
                node.closed_since.get_or_insert(call);
                Ok(())
            }
            None => Err(NotDone::NoSuchNode(name.clone())),
        };
        if let Some(front) = self.fronts.get_mut(&front) {
            front.asked = Some(Asked::Order(expected));
        }
        let hosts: HostList = [name.as_str()].into_iter().collect();
        let now = self.agenda.now;
        self.call(Call::Asked(front), |machine| {
            machine.ask(now, front, Ask::Drain(hosts));
        });
    }

    pub(super) fn resume(&mut self, front: FrontId, names: &[String]) {
        self.model.call += 1;
        self.note(|| format!("{front:?} resumes {names:?}"));
        let mut nodes = self.nodes.iter();
        let refused = nodes.find_map(|(id, node)| {
            let name = format!("n{id}");
            if !names.contains(&name) {
                None
            } else if node.is_told {
                Some(NotDone::NodeEnds(name))
            } else {
                (node.standing == Standing::Lost).then_some(NotDone::NodeBad(name))
            }
        });
        let expected = refused.map_or(Ok(()), Err);
        for (id, node) in &mut self.nodes {
            if expected.is_ok() && names.contains(&format!("n{id}")) {
                node.is_drained = false;
                node.is_dropped = false;
                node.closed_since = None;
            }
        }
        if let Some(front) = self.fronts.get_mut(&front) {
            front.asked = Some(Asked::Order(expected));
        }
        let hosts: HostList = names.iter().map(String::as_str).collect();
        let now = self.agenda.now;
        self.call(Call::Asked(front), |machine| {
            machine.ask(now, front, Ask::Resume(hosts));
        });
    }

    /// A front takes its job back.
    fn withdraw_one(&mut self) {
        let with_job = self.fronts.iter().filter(|(_, front)| front.job.is_some());
        let with_job: Vec<FrontId> = with_job.map(|(id, _)| *id).collect();
        let place = self.rng.length(0, with_job.len().saturating_sub(1));
        let Some(front) = with_job.get(place).copied() else {
            return;
        };
        let waits = self.withdrawn(front);
        self.note(|| format!("{front:?} withdraws its job"));
        let now = self.agenda.now;
        let mut did = waits;
        self.call(Call::Other, |machine| did = machine.withdraw(now, front));
        let wrong = format!("the job of {front:?} is withdrawn: {did}, and it waits: {waits}");
        self.fault((did != waits).then_some(wrong));
    }

    /// Notes that a front takes its job back. Returns true if the job waits.
    fn withdrawn(&mut self, front: FrontId) -> bool {
        self.model.call += 1;
        let front = self.fronts.get_mut(&front);
        let Some(front) = front.filter(|front| front.waits) else {
            return false;
        };
        front.waits = false;
        if let Some(id) = front.job {
            self.model.cancel(id);
        }
        true
    }

    pub(super) fn lose_front(&mut self, front: FrontId) {
        let Some(lost) = self.fronts.get_mut(&front).filter(|front| !front.is_gone) else {
            return;
        };
        lost.is_gone = true;
        let is_starter = matches!(lost.asked, Some(Asked::Ready));
        match &lost.asked {
            // Whoever has asked: the job is stored, and the store is read.
            Some(Asked::Submit(..)) => {}
            _ => lost.asked = None,
        }
        self.note(|| format!("{front:?} is lost"));
        self.withdrawn(front);
        self.end_of(front);
        if is_starter {
            self.model.go_down(Down::Now);
        }
        self.disown(front);
        let now = self.agenda.now;
        self.call(Call::Other, |machine| machine.front_lost(now, front));
    }

    /// Notes whether the job of a call was accepted.
    pub(super) fn note_acceptance(&mut self, call: Call, outputs: &[MachineOutput]) {
        match call {
            Call::Asked(front) | Call::Read(front, _) => {
                let comes_later = outputs.iter().any(|output| match output {
                    MachineOutput::Reply(to, Reply::Refused(_)) => *to == front,
                    MachineOutput::Fetch { .. } => true,
                    _ => false,
                });
                let nodes = &self.nodes;
                if let Some(asked) = self.fronts.get_mut(&front)
                    && let Some(Asked::Submit(submission, shape, id @ None)) = &mut asked.asked
                    && !comes_later
                {
                    let needs = shape.needs(nodes);
                    let fits = fits(&needs, nodes);
                    *id = Some(self.model.accept(
                        None,
                        submission.wishes.clone(),
                        shape.clone(),
                        needs,
                    ));
                    self.fault((!fits).then(|| "a job is accepted that never fits".to_owned()));
                }
            }
            Call::Attached(front) => {
                let is_refused = outputs.iter().any(|output| {
                    matches!(output, MachineOutput::Withdrawn(to, why)
                        if *to == front && !matches!(why, NotDone::IsOver(_)))
                });
                if let Some(asked) = self.fronts.get_mut(&front)
                    && let Some(shape) = asked.shape.clone()
                    && !is_refused
                {
                    let needs = shape.needs(&self.nodes);
                    let wishes = Wishes::default();
                    asked.job = Some(self.model.accept(Some(front), wishes, shape, needs));
                }
            }
            Call::Stored(_) | Call::Other => {}
        }
    }

    pub(super) fn on_reply(&mut self, call: Call, front: FrontId, reply: &Reply) {
        let Some(known) = self.fronts.get_mut(&front) else {
            return self.fault(Some(format!(
                "{front:?} gets an answer, and does not exist"
            )));
        };
        let (is_gone, asked_at) = (known.is_gone, known.asked_at);
        let Some(asked) = known.asked.take() else {
            let wrong = format!("{front:?} has asked nothing, and gets {reply:?}");
            return self.fault((!is_gone).then_some(wrong));
        };
        let fits = match &asked {
            Asked::Submit(_, shape, _) => fits(&shape.needs(&self.nodes), &self.nodes),
            _ => true,
        };
        let submitted = match &asked {
            Asked::Submit(_, _, id) => *id,
            _ => None,
        };
        let committed = &self.disk.committed;
        let granted = match &asked {
            Asked::Nodes => self.runs.granted(),
            _ => BTreeMap::new(),
        };
        let moment = Moment {
            model: &self.model,
            granted: &granted,
            asked_at,
            read: match call {
                Call::Read(_, result) => Some(result),
                _ => None,
            },
            fits,
            has_failed: call == Call::Stored(false)
                && submitted.is_some_and(|id| id.0 < self.disk.batch_next),
            is_stored: submitted.is_some_and(|id| committed.job(id).is_some()),
        };
        let wrong = moment.check(&asked, reply);
        self.fault(wrong);
        if let (Asked::DownIfIdle, Reply::Done) = (&asked, reply) {
            self.model.go_down(Down::IfIdle);
        }
        if let Reply::Submitted(id) = reply {
            let is_new = self.told.insert(*id);
            self.fault((!is_new).then(|| format!("two jobs have the number {id}")));
        }
    }

    pub(super) fn on_withdrawn(&mut self, front: FrontId, why: &NotDone) {
        let Some(known) = self.fronts.get_mut(&front).filter(|front| front.waits) else {
            let wrong = format!("{front:?} hears that its job is over, and none waits");
            return self.fault(Some(wrong));
        };
        known.waits = false;
        let needs = known.shape.as_ref().map(|shape| shape.needs(&self.nodes));
        let is_right = match (known.job, why) {
            (Some(id), NotDone::IsOver(told)) => {
                let over = self.model.past.get(&id);
                id == *told && over.is_some_and(|job| job.over == [Over::Canceled])
            }
            (None, NotDone::GoingDown) => self.model.down.is_some(),
            (
                None,
                NotDone::NotAccepted(Refusal::NeverFits { .. })
                | NotDone::NoResource(NoResource::TooMuch(_)),
            ) => needs.is_some_and(|needs| !fits(&needs, &self.nodes)),
            _ => false,
        };
        self.fault((!is_right).then(|| format!("{front:?} hears {why:?}")));
    }

    /// Checks that each front was told what it waits for. Returns a description of an error.
    pub(super) fn check_fronts(&self) -> Option<String> {
        let starts = |node: &Known| node.standing == Standing::Starting;
        let is_ready = !self.nodes.values().any(starts);
        let kept = self.fronts.iter().find(|(id, front)| {
            if front.is_gone {
                return false;
            }
            let lives = |id: &JobId| self.model.jobs.contains_key(id);
            match &front.asked {
                Some(Asked::Wait(jobs)) => !jobs.iter().any(lives) && !self.is_reading_for(**id),
                Some(Asked::Ready | Asked::Add) => is_ready,
                Some(Asked::Drop(id)) => {
                    let node = self.nodes.get(id);
                    node.is_none_or(|node| !node.is_dropped)
                }
                Some(Asked::Submit(_, _, None) | Asked::Job(_) | Asked::List(_)) => {
                    !self.is_reading_for(**id)
                }
                Some(Asked::Submit(_, _, Some(id))) => {
                    // It was told with the batch.
                    self.disk.committed.job(*id).is_some()
                }
                Some(_) => true,
                None => front.waits && !front.job.iter().any(lives),
            }
        });
        kept.map(|(id, front)| format!("{id:?} has no answer: {front:?}"))
    }
}

/// Returns true if a job fits if nothing runs, whether nodes are closed or not.
fn fits(needs: &Needs, nodes: &BTreeMap<NodeId, Known>) -> bool {
    needs.fit(nodes.iter().map(|(id, node)| (*id, node)))
}

/// Returns a question in few words.
fn short(ask: &Ask) -> String {
    match ask {
        Ask::Submit(submission) => format!(
            "Submit {:?} {:?}",
            submission.wishes, submission.spec.placement.apps
        ),
        other => format!("{other:?}"),
    }
}
