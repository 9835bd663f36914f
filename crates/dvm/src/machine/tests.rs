//! A machine with nodes of some slots, driven by hand.

mod allocations;
mod coming;
mod control;
mod ends;
mod history;
mod nodes;
mod resources;

use base::{ExitStatus, HostList, Rank, RankSet};
use bytes::Bytes;

use self::control::SPENT;
use super::*;
use crate::{
    alloc::Slots,
    place,
    proto::{Cause, EndReason, Outcome},
    queue::{Array, Dependency, DependencyKind, Requeue},
    spec::{
        App, EndPolicy, GpuPlan, GpuShare, HoldPlan, MapFor, NodeResources, Recorder, StdinTarget,
        StdioPlan, Tracers,
    },
};

const FRONT: FrontId = FrontId(7);

/// A machine, and what it has stored.
struct World {
    machine: Machine,
    now: Time,
    stored: BTreeMap<Key, Bytes>,
    /// The batch that is being written.
    batch: Option<Batch>,
    outputs: VecDeque<MachineOutput>,
    next_run: u32,
    slots: Vec<u32>,
}

impl World {
    fn new(slots: &[u32]) -> Self {
        Self::with_store(slots, BTreeMap::new())
    }

    fn with_store(slots: &[u32], stored: BTreeMap<Key, Bytes>) -> Self {
        let live = stored
            .iter()
            .filter(|(key, _)| !matches!(key, Key::Past(_)));
        let last = stored.last_key_value();
        let live = live.chain(last.filter(|(key, _)| matches!(key, Key::Past(_))));
        let setup = Setup {
            limits: Default::default(),
            declared: Default::default(),
            name: "main".to_owned(),
            epoch: Wall(1_000_000),
            nodes: (0..slots.len()).map(|node| format!("n{node}")).collect(),
            local: None,
            stored: live.map(|(key, value)| (*key, value.clone())).collect(),
            model: None,
        };
        let mut world = Self {
            machine: Machine::new(&setup),
            now: Time::ZERO,
            stored,
            batch: None,
            outputs: VecDeque::new(),
            next_run: 1,
            slots: slots.to_vec(),
        };
        for (node, slots) in (0..).zip(slots) {
            let said = Slots::Explicit(*slots);
            world.machine.node_up(
                world.now,
                NodeId(node),
                (*slots, said),
                &NodeResources::default(),
            );
        }
        world.pump();
        world
    }

    /// Collects outputs, and takes batches for the store.
    fn pump(&mut self) {
        while let Some(output) = self.machine.poll() {
            match output {
                MachineOutput::Store(batch) => {
                    assert!(
                        self.batch.is_none(),
                        "two batches are written at the same time"
                    );
                    self.batch = Some(batch);
                }
                output => self.outputs.push_back(output),
            }
        }
    }

    /// Stores all that is to be stored.
    fn store(&mut self) {
        while let Some(Batch(writes)) = self.batch.take() {
            for write in writes {
                match write.value {
                    Some(value) => drop(self.stored.insert(write.key, value)),
                    None => drop(self.stored.remove(&write.key)),
                }
            }
            self.machine.stored(self.now, Ok(()));
            self.pump();
        }
    }

    fn fail_to_store(&mut self) {
        assert!(self.batch.take().is_some(), "nothing is to be stored");
        self.machine.stored(self.now, Err("no space".to_owned()));
        self.pump();
    }

    fn ask(&mut self, ask: Ask) {
        self.machine.ask(self.now, FRONT, ask);
        self.pump();
    }

    fn submit(&mut self, submission: Submission) {
        self.ask(Ask::Submit(Box::new(submission)));
    }

    /// Submits, stores, and returns the number of the job.
    fn submitted(&mut self, submission: Submission) -> JobId {
        self.submit(submission);
        self.store();
        match self.reply() {
            Reply::Submitted(id) => id,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the next reply.
    fn reply(&mut self) -> Reply {
        let is_reply = |output: &MachineOutput| matches!(output, MachineOutput::Reply(..));
        let place = self.outputs.iter().position(is_reply).expect("no answer");
        match self.outputs.remove(place) {
            Some(MachineOutput::Reply(FRONT, reply)) => reply,
            other => panic!("{other:?}"),
        }
    }

    /// Launches what is to be launched, and returns the tasks with their runs.
    fn launches(&mut self) -> Vec<(String, JobId)> {
        let mut launched = Vec::new();
        let mut others = VecDeque::new();
        while let Some(output) = self.outputs.pop_front() {
            match output {
                MachineOutput::Launch(run) => {
                    let id = JobId(self.next_run);
                    self.next_run += 1;
                    self.machine.launched(self.now, run.task, id);
                    let slots: Vec<String> = run
                        .grant
                        .slots
                        .iter()
                        .map(|(node, slots)| format!("{slots}@n{node}"))
                        .collect();
                    launched.push((format!("{} on {}", run.task, slots.join("+")), id));
                    self.pump();
                }
                output => others.push_back(output),
            }
        }
        self.outputs.append(&mut others);
        launched
    }

    fn ends(&mut self, run: JobId, cause: Cause) {
        self.machine
            .run_ended(self.now, run, &outcome(cause), &SPENT);
        self.pump();
    }

    /// Starts the machine again as if it had been killed.
    fn restart(self) -> Self {
        Self::with_store(&self.slots, self.stored)
    }

    /// Starts the machine again, with the old records that a store finds.
    fn restart_with_old(self) -> Self {
        let mut world = Self::new(&[]);
        world.slots = self.slots;
        world.stored = self.stored;
        let stored = world.stored.clone().into_iter();
        let setup = Setup {
            limits: Default::default(),
            declared: Default::default(),
            name: "main".to_owned(),
            epoch: Wall(1_000_000),
            nodes: vec!["n0".to_owned()],
            local: None,
            stored: stored.collect(),
            model: None,
        };
        world.machine = Machine::new(&setup);
        let now = world.now;
        world.machine.node_up(
            now,
            NodeId(0),
            (1, Slots::Explicit(1)),
            &NodeResources::default(),
        );
        world.pump();
        world
    }

    fn record(&mut self, id: JobId) -> Record {
        self.ask(Ask::Job(id));
        match self.reply() {
            Reply::Job(record) => *record,
            other => panic!("{other:?}"),
        }
    }

    fn past(&self, id: JobId) -> Option<Record> {
        Some(restore::record(self.stored.get(&Key::Past(id))?).unwrap())
    }
}

fn outcome(cause: Cause) -> Outcome {
    Outcome {
        cause,
        size: 1,
        ended: Vec::new(),
        not_started: RankSet::new(),
        failed_on: Vec::new(),
        ended_by_us: RankSet::new(),
        left: RankSet::new(),
    }
}

fn failed() -> Cause {
    Cause::Failed {
        rank: Rank(0),
        status: ExitStatus::Exited(3),
    }
}

pub(super) fn spec(procs: u32) -> Box<JobSpec> {
    spec_of(Some(procs), None)
}

fn spec_of(procs: Option<u32>, map: Option<&str>) -> Box<JobSpec> {
    Box::new(JobSpec {
        needs: Default::default(),
        sets: Default::default(),
        recorder: Recorder::Off,
        limits: Default::default(),
        apps: vec![App {
            program: "./a".into(),
            args: Vec::new(),
            env: Environment::default(),
            directory: "/".into(),
            search: "/bin".into(),
            elsewhere: std::sync::Arc::default(),
            umask: 0o022,
            tracers: Tracers::Ancestors,
        }],
        placement: place::Request {
            apps: vec![place::AppRequest {
                count: procs,
                ..place::AppRequest::default()
            }],
            map_by: map.map(|map| place::map_by(map).unwrap()),
            ..place::Request::default()
        },
        universe: None,
        stdin: StdinTarget::None,
        stdio: StdioPlan::default(),
        end: EndPolicy::default(),
        hold: HoldPlan::NOWHERE,
        variables: BTreeSet::new(),
        gpus: None,
        preload: None,
        map: MapFor::Launch,
        watch: None,
    })
}

fn job(procs: u32) -> Submission {
    Submission {
        spec: spec(procs),
        name: "a".to_owned(),
        command: "./a".to_owned(),
        wishes: Wishes::default(),
        output: OutputFiles {
            stdout: "/out-%j-%i".into(),
            stderr: None,
        },
    }
}

fn array(tasks: u32) -> Submission {
    Submission {
        wishes: Wishes {
            array: Some(Array {
                indexes: RankSet::range(1..tasks + 1),
                running_max: None,
            }),
            ..Wishes::default()
        },
        ..job(1)
    }
}

#[test]
fn a_job_is_told_and_launched_only_after_it_is_stored() {
    let mut world = World::new(&[4]);
    world.submit(job(2));
    assert!(world.outputs.is_empty(), "{:?}", world.outputs);
    world.store();
    assert_eq!(world.reply(), Reply::Submitted(JobId(1)));
    // Its start goes into the next batch, or into the same one.
    world.store();
    let launches = world.launches();
    assert_eq!(launches[0].0, "1 on 2@n0");
    world.ends(launches[0].1, Cause::Success);
    world.store();
    let past = world.past(JobId(1)).unwrap();
    assert_eq!(past.state(), State::Succeeded);
    let left: Vec<&Key> = world.stored.keys().collect();
    assert_eq!(left, [&Key::Next, &Key::Past(JobId(1))]);
}

#[test]
fn a_killed_machine_forgets_no_job_and_runs_none_twice() {
    let mut world = World::new(&[2]);
    let lost = world.submitted(job(2));
    world.store();
    assert_eq!(world.launches().len(), 1);
    let again = Submission {
        wishes: Wishes {
            on_node_loss: Requeue::OnNodeLoss,
            ..Wishes::default()
        },
        ..job(1)
    };
    let waiting = world.submitted(job(2));
    let mut world = world.restart();
    assert_eq!(world.machine.restored.lost, [lost]);
    assert_eq!(world.machine.restored.waiting, 1);
    world.store();
    let launches = world.launches();
    assert_eq!(launches[0].0, format!("{waiting} on 2@n0"));
    assert_eq!(world.past(lost).unwrap().state(), State::Failed);
    assert_eq!(
        *world.past(lost).unwrap().failure.unwrap().1,
        Failure::MachineLost
    );
    world.ends(launches[0].1, Cause::Success);
    world.store();

    let requeued = world.submitted(again);
    assert_eq!(requeued, JobId(3), "no number is used twice");
    world.store();
    assert_eq!(world.launches().len(), 1);
    let mut world = world.restart();
    assert_eq!(world.machine.restored.requeued, [requeued]);
    world.store();
    assert_eq!(world.launches()[0].0, format!("{requeued} on 1@n0"));
}

#[test]
fn an_array_goes_on_where_it_was() {
    let mut world = World::new(&[2]);
    let id = world.submitted(array(5));
    world.store();
    let first = world.launches();
    let names: Vec<&str> = first.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["1[1] on 1@n0", "1[2] on 1@n0"]);
    world.ends(first[0].1, Cause::Success);
    world.store();
    assert_eq!(world.launches()[0].0, "1[3] on 1@n0");
    world.ends(first[1].1, failed());
    world.store();
    assert_eq!(world.launches()[0].0, "1[4] on 1@n0");

    // 3 and 4 run when it is killed: they are lost, 5 is not.
    let mut world = world.restart();
    world.store();
    let last = world.launches();
    assert_eq!(last[0].0, "1[5] on 1@n0");
    world.ends(last[0].1, Cause::Success);
    world.store();
    let past = world.past(id).unwrap();
    assert_eq!(past.tasks.succeeded.to_string(), "1,5");
    assert_eq!(past.tasks.failed.to_string(), "2-4");
    assert_eq!(past.state(), State::Failed);
    let (index, failure) = past.failure.unwrap();
    assert_eq!((index, *failure), (2, Failure::Ended(outcome(failed()))));
}

#[test]
fn a_full_disk_refuses_new_jobs_and_keeps_the_others_waiting() {
    let mut world = World::new(&[1]);
    let running = world.submitted(job(1));
    world.store();
    let run = world.launches()[0].1;
    let waiting = world.submitted(job(1));
    world.submit(job(1));
    world.fail_to_store();
    assert_eq!(
        world.reply(),
        Reply::Refused(NotDone::NotStored("no space".to_owned()))
    );
    world.ask(Ask::Status);
    let Reply::Status(status) = world.reply() else {
        panic!()
    };
    assert_eq!(status.trouble.as_deref(), Some("no space"));
    // The next one could start, but not before that is stored.
    world.ends(run, Cause::Success);
    assert!(world.launches().is_empty());
    assert!(world.batch.is_none(), "it is too early");
    let due = world.machine.deadline().unwrap();
    world.now = due;
    world.machine.tick(due);
    world.pump();
    world.fail_to_store();
    assert!(world.launches().is_empty());
    world.now = world.machine.deadline().unwrap();
    world.machine.tick(world.now);
    world.pump();
    world.store();
    assert_eq!(world.launches()[0].0, format!("{waiting} on 1@n0"));
    assert_eq!(world.past(running).unwrap().state(), State::Succeeded);
    world.ask(Ask::Status);
    let Reply::Status(status) = world.reply() else {
        panic!()
    };
    assert_eq!(status.trouble, None);
    // The refused job has left nothing.
    let restarted = world.restart();
    assert!(!restarted.machine.jobs.contains_key(&JobId(3)));
}

#[test]
fn a_job_that_is_canceled_before_its_launch_is_not_launched() {
    let mut world = World::new(&[1]);
    world.submit(job(1));
    // Its start is being stored.
    world.ask(Ask::Cancel(JobId(1), None));
    world.store();
    assert!(world.launches().is_empty());
    assert_eq!(world.past(JobId(1)).unwrap().state(), State::Canceled);
    world.outputs.clear();

    let id = world.submitted(job(1));
    // Its launch is ordered.
    world.ask(Ask::Cancel(id, None));
    assert_eq!(world.reply(), Reply::Done);
    let launched = world.launches();
    assert_eq!(
        world.outputs.pop_back(),
        Some(MachineOutput::End(launched[0].1))
    );
    world.ends(launched[0].1, Cause::Ended(EndReason::Canceled));
    world.store();
    assert_eq!(world.past(id).unwrap().state(), State::Canceled);
    world.ask(Ask::Hold(id));
    assert_eq!(world.reply(), Reply::Refused(NotDone::IsOver(id)));
    world.ask(Ask::Hold(JobId(99)));
    assert_eq!(world.reply(), Reply::Refused(NotDone::NoSuchJob(JobId(99))));
}

#[test]
fn a_front_waits_for_its_turn_and_can_give_up() {
    let mut world = World::new(&[1]);
    world.machine.attach(world.now, FrontId(1), spec(1));
    world.pump();
    let first = world.launches();
    assert_eq!(first[0].0, "1 on 1@n0", "it is not stored first");
    world.machine.attach(world.now, FrontId(2), spec(1));
    world.pump();
    assert_eq!(
        world.outputs.pop_back(),
        Some(MachineOutput::Queued(FrontId(2), JobId(2)))
    );
    world.machine.attach(world.now, FrontId(3), spec(1));
    world.pump();
    world.outputs.clear();
    assert!(world.machine.withdraw(world.now, FrontId(2)));
    assert!(!world.machine.withdraw(world.now, FrontId(2)));
    world.pump();
    assert!(world.outputs.is_empty());
    world.ask(Ask::Cancel(JobId(3), None));
    let told = world
        .outputs
        .iter()
        .any(|output| *output == MachineOutput::Withdrawn(FrontId(3), NotDone::IsOver(JobId(3))));
    assert!(told, "{:?}", world.outputs);
    world.machine.attach(world.now, FrontId(4), spec(9));
    world.pump();
    let refused = world.outputs.pop_back();
    assert!(
        matches!(
            refused,
            Some(MachineOutput::Withdrawn(
                FrontId(4),
                NotDone::NotAccepted(_)
            ))
        ),
        "{refused:?}"
    );
}

#[test]
fn waiting_for_jobs_ends_when_all_are_over() {
    let mut world = World::new(&[1]);
    let one = world.submitted(job(1));
    let two = world.submitted(job(1));
    world.store();
    let run = world.launches()[0].1;
    world.ask(Ask::Wait(vec![one, two]));
    world.ends(run, Cause::Success);
    world.store();
    assert!(
        world
            .outputs
            .iter()
            .all(|output| !matches!(output, MachineOutput::Reply(..)))
    );
    let run = world.launches()[0].1;
    world.ends(run, failed());
    let Reply::Over(records) = world.reply() else {
        panic!()
    };
    let states: Vec<State> = records.iter().map(Record::state).collect();
    assert_eq!(states, [State::Succeeded, State::Failed]);
    world.ask(Ask::Wait(vec![two]));
    assert!(matches!(world.reply(), Reply::Over(_)));
    world.ask(Ask::Wait(vec![JobId(50)]));
    assert_eq!(world.reply(), Reply::Refused(NotDone::NoSuchJob(JobId(50))));
}

#[test]
fn a_machine_goes_down_when_nothing_runs() {
    let mut world = World::new(&[1]);
    world.submitted(job(1));
    world.store();
    let run = world.launches()[0].1;
    let waiting = world.submitted(job(1));
    world.store();
    world.ask(Ask::Down(Down::IfIdle));
    assert_eq!(world.reply(), Reply::Refused(NotDone::Busy(1)));
    world.ask(Ask::Down(Down::WhenIdle));
    assert_eq!(world.reply(), Reply::Done);
    world.submit(job(1));
    assert_eq!(world.reply(), Reply::Refused(NotDone::GoingDown));
    assert!(!world.machine.is_over());
    world.ends(run, Cause::Success);
    world.store();
    assert!(world.machine.is_over());
    assert!(world.launches().is_empty());
    // What waits is kept for the next machine.
    let mut world = world.restart();
    world.store();
    assert_eq!(world.launches()[0].0, format!("{waiting} on 1@n0"));
}

#[test]
fn a_job_that_loses_a_node_is_requeued_if_it_may() {
    let mut world = World::new(&[1, 1]);
    let requeue = Submission {
        wishes: Wishes {
            on_node_loss: Requeue::OnNodeLoss,
            ..Wishes::default()
        },
        ..job(2)
    };
    let id = world.submitted(requeue);
    world.store();
    let run = world.launches()[0].1;
    world.machine.node_lost(world.now, NodeId(1), "no answer");
    world.pump();
    let lost = Cause::NodeLost {
        node: NodeId(1),
        why: "no answer".to_owned(),
    };
    world.ends(run, lost);
    world.store();
    assert!(world.launches().is_empty(), "it needs two nodes");
    let record = world.record(id);
    assert_eq!(record.state(), State::Waiting);
    assert_eq!(record.tasks.count(), 1, "{:?}", record.tasks);
    assert_eq!(record.failure, None);
    world.ask(Ask::Nodes);
    let Reply::Nodes(nodes) = world.reply() else {
        panic!()
    };
    assert_eq!(nodes[1].state, NodeStanding::Bad("no answer".to_owned()));
    world.ask(Ask::Explain(id));
    let Reply::Explained(explained) = world.reply() else {
        panic!()
    };
    let lost: HostList = ["n1"].into_iter().collect();
    let expected = Reason::NodesClosed {
        room: 1,
        closed: lost.clone(),
        lost,
    };
    assert_eq!(explained.why, expected);
}

#[test]
fn drained_nodes_get_no_job_until_they_are_resumed() {
    let mut world = World::new(&[1, 1]);
    world.ask(Ask::Drain(["n0"].into_iter().collect()));
    assert_eq!(world.reply(), Reply::Done);
    world.submitted(job(1));
    world.submitted(job(1));
    world.store();
    assert_eq!(world.launches()[0].0, "1 on 1@n1");
    world.ask(Ask::Resume(["n0"].into_iter().collect()));
    assert_eq!(world.reply(), Reply::Done);
    world.store();
    assert_eq!(world.launches()[0].0, "2 on 1@n0");
    world.ask(Ask::Drain(["n7"].into_iter().collect()));
    assert_eq!(
        world.reply(),
        Reply::Refused(NotDone::NoSuchNode("n7".to_owned()))
    );
}

#[test]
fn dependencies_on_jobs_that_are_over_are_met_or_refused() {
    let mut world = World::new(&[1]);
    let good = world.submitted(job(1));
    world.store();
    let run = world.launches()[0].1;
    world.ends(run, Cause::Success);
    let bad = world.submitted(job(1));
    world.store();
    let run = world.launches()[0].1;
    world.ends(run, failed());
    world.store();
    let after = |on, kind| Submission {
        wishes: Wishes {
            after: vec![Dependency { on, kind }],
            ..Wishes::default()
        },
        ..job(1)
    };
    world.submit(after(bad, DependencyKind::Succeeded));
    assert_eq!(
        world.reply(),
        Reply::Refused(NotDone::DependencyFailed(bad))
    );
    let ends = world.submitted(after(bad, DependencyKind::Ended));
    let succeeds = world.submitted(after(good, DependencyKind::Succeeded));
    world.store();
    let run = world.launches();
    assert_eq!(run[0].0, format!("{ends} on 1@n0"));
    world.ends(run[0].1, Cause::Success);
    world.store();
    assert_eq!(world.launches()[0].0, format!("{succeeds} on 1@n0"));
}

#[test]
fn old_records_are_read_from_the_store() {
    let mut world = World::new(&[1]);
    let id = world.submitted(job(1));
    world.store();
    let run = world.launches()[0].1;
    world.ends(run, Cause::Success);
    world.store();
    let mut world = world.restart();
    world.ask(Ask::Job(id));
    let fetch = MachineOutput::Fetch {
        before: JobId(2),
        most: 1,
    };
    assert_eq!(world.outputs.pop_back(), Some(fetch));
    let value = world.stored[&Key::Past(id)].clone();
    world.machine.fetched(world.now, Ok(vec![value.clone()]));
    world.pump();
    assert!(matches!(world.reply(), Reply::Job(_)));
    world.ask(Ask::Wait(vec![id]));
    world.machine.fetched(world.now, Ok(vec![value]));
    world.pump();
    assert!(matches!(world.reply(), Reply::Over(_)));
    world.ask(Ask::Jobs {
        over: 10,
        before: None,
    });
    world.machine.fetched(world.now, Err("broken".to_owned()));
    world.pump();
    assert_eq!(
        world.reply(),
        Reply::Refused(NotDone::NotRead("broken".to_owned()))
    );
}

#[test]
fn what_cannot_be_read_is_told_and_nothing_else_is_lost() {
    let mut world = World::new(&[1]);
    let one = world.submitted(job(1));
    let two = world.submitted(job(1));
    world.store();
    let mut stored = world.stored.clone();
    stored.insert(Key::Job(one), Bytes::from_static(b"\x01garbage"));
    stored.insert(Key::Job(JobId(40)), Bytes::from_static(&[200, 1, 2]));
    let world = World::with_store(&[1], stored);
    let damaged = &world.machine.restored.damaged;
    assert_eq!(*damaged, [Damage::Record(one), Damage::Newer(200)]);
    assert!(world.machine.jobs.contains_key(&two));
}

#[test]
fn a_job_needs_the_same_after_a_restart() {
    let mut world = World::new(&[2, 2]);
    let held = |spec| Submission {
        spec,
        wishes: Wishes {
            hold: Hold::ByUser,
            ..Wishes::default()
        },
        ..job(1)
    };
    let all = world.submitted(held(spec_of(None, None)));
    let two = world.submitted(held(spec(2)));
    // No node of the next machine has joined when it reads its store.
    let mut world = world.restart();
    for id in [two, all] {
        world.ask(Ask::Release(id));
        assert_eq!(world.reply(), Reply::Done);
    }
    world.store();
    let launches = world.launches();
    let names: Vec<&str> = launches.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["2 on 2@n0"], "the other one needs all nodes");
    world.ends(launches[0].1, Cause::Success);
    world.store();
    assert_eq!(world.launches()[0].0, "1 on 2@n0+2@n1");
}

#[test]
fn a_job_that_chooses_among_whole_nodes_gets_whole_nodes() {
    let mut world = World::new(&[4, 2]);
    let submission = Submission {
        spec: spec_of(None, Some("ppr:1:numa")),
        ..job(1)
    };
    world.submitted(submission);
    world.store();
    assert_eq!(world.launches()[0].0, "1 on 4@n0+2@n1");
}

#[test]
fn the_number_of_a_job_that_is_over_before_it_is_stored_is_not_used_again() {
    let mut world = World::new(&[1]);
    world.submitted(job(1));
    // The start of the first one is being stored.
    world.submit(job(1));
    world.ask(Ask::Cancel(JobId(2), None));
    world.store();
    assert_eq!(world.reply(), Reply::Done);
    assert_eq!(world.reply(), Reply::Submitted(JobId(2)));
    let mut world = world.restart();
    assert_eq!(world.submitted(job(1)), JobId(3));
}

#[test]
fn a_job_that_depends_on_a_lost_one_does_not_run() {
    let mut world = World::new(&[1]);
    let lost = world.submitted(job(1));
    world.store();
    assert_eq!(world.launches().len(), 1);
    let after = |on, kind| Submission {
        wishes: Wishes {
            after: vec![Dependency { on, kind }],
            ..Wishes::default()
        },
        ..job(1)
    };
    let second = world.submitted(after(lost, DependencyKind::Succeeded));
    let third = world.submitted(after(second, DependencyKind::Succeeded));
    let other = world.submitted(after(second, DependencyKind::Ended));
    let mut world = world.restart();
    world.store();
    let ended = |world: &World, id| world.past(id).unwrap().ended.unwrap().1;
    assert_eq!(ended(&world, lost), Over::Failed);
    assert_eq!(ended(&world, second), Over::DependencyFailed(lost));
    assert_eq!(ended(&world, third), Over::DependencyFailed(second));
    assert_eq!(world.launches()[0].0, format!("{other} on 1@n0"));
}

#[test]
fn a_job_whose_array_has_started_before_a_restart_need_not_wait() {
    let mut world = World::new(&[1]);
    let first = world.submitted(array(2));
    world.store();
    let run = world.launches()[0].1;
    world.ask(Ask::Hold(first));
    world.ends(run, Cause::Success);
    world.ask(Ask::Drain(["n0"].into_iter().collect()));
    world.outputs.clear();
    let second = world.submitted(Submission {
        wishes: Wishes {
            after: vec![Dependency {
                on: first,
                kind: DependencyKind::Started,
            }],
            ..Wishes::default()
        },
        ..job(1)
    });
    let mut world = world.restart();
    world.store();
    assert_eq!(world.launches()[0].0, format!("{second} on 1@n0"));
}

#[test]
fn what_was_canceled_does_not_run_after_a_restart() {
    let again = |submission: Submission| Submission {
        wishes: Wishes {
            on_node_loss: Requeue::OnNodeLoss,
            ..submission.wishes
        },
        ..submission
    };
    let mut world = World::new(&[2]);
    let whole = world.submitted(again(array(4)));
    world.store();
    assert_eq!(world.launches().len(), 2);
    world.ask(Ask::Cancel(whole, None));
    world.outputs.clear();
    let record = world.record(whole);
    assert_eq!(record.tasks.canceled.to_string(), "3-4");
    assert_eq!(record.tasks.running.to_string(), "1-2");
    world.store();
    let mut world = world.restart();
    world.store();
    assert!(world.launches().is_empty());
    let past = world.past(whole).unwrap();
    assert_eq!(past.state(), State::Canceled);
    assert_eq!(past.tasks.canceled.to_string(), "1-4");

    let part = world.submitted(again(array(3)));
    world.store();
    assert_eq!(world.launches().len(), 2);
    world.ask(Ask::Cancel(part, Some(RankSet::range(2..3))));
    world.store();
    let mut world = world.restart();
    world.store();
    let launches = world.launches();
    let names: Vec<&str> = launches.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["2[1] on 1@n0", "2[3] on 1@n0"]);
}

#[test]
fn tasks_that_a_job_does_not_have_cannot_be_canceled() {
    let mut world = World::new(&[1]);
    let one = world.submitted(job(1));
    let two = world.submitted(array(2));
    world.store();
    let run = world.launches()[0].1;
    world.ask(Ask::Cancel(one, Some(RankSet::range(1..u32::MAX))));
    world.ask(Ask::Cancel(two, Some(RankSet::range(2..u32::MAX))));
    world.outputs.clear();
    assert_eq!(world.record(one).tasks.count(), 1);
    assert_eq!(world.record(two).tasks.canceled.to_string(), "2");
    world.ask(Ask::Cancel(one, Some(RankSet::range(0..1))));
    assert!(world.outputs.contains(&MachineOutput::End(run)));
}

#[test]
fn a_machine_that_ends_at_once_launches_nothing_more() {
    let mut world = World::new(&[2]);
    // Its start is being stored, and the other one waits for that.
    world.submit(job(1));
    world.submit(job(1));
    world.ask(Ask::Down(Down::Now));
    world.store();
    assert!(world.launches().is_empty());
    assert!(world.machine.is_over());
    let mut world = world.restart();
    assert_eq!(world.machine.restored.waiting, 2);
    world.store();
    let launches = world.launches();
    assert_eq!(launches.len(), 2);
    assert_eq!(launches[0].0, "1 on 1@n0");

    // A launch that is ordered is revoked.
    let mut world = World::new(&[1]);
    world.submitted(job(1));
    world.store();
    world.ask(Ask::Down(Down::Now));
    let run = world.launches()[0].1;
    assert!(world.outputs.contains(&MachineOutput::End(run)));
}

#[test]
fn jobs_that_are_over_and_not_stored_are_listed() {
    let mut world = World::new(&[1]);
    let one = world.submitted(job(1));
    world.store();
    let run = world.launches()[0].1;
    world.ask(Ask::Jobs {
        over: 10,
        before: None,
    });
    world.ends(run, Cause::Success);
    world.machine.fetched(world.now, Ok(Vec::new()));
    world.pump();
    let Reply::Jobs { records, .. } = world.reply() else {
        panic!()
    };
    let ids: Vec<JobId> = records.iter().map(|record| record.id).collect();
    assert_eq!(ids, [one]);
}

#[test]
fn a_job_may_depend_on_more_forgotten_jobs_than_are_kept_in_memory() {
    let mut world = World::new(&[1]);
    let id = world.submitted(job(1));
    world.store();
    let run = world.launches()[0].1;
    world.ends(run, Cause::Success);
    world.store();
    let last = world.record(id);
    let many = u32::try_from(RECENT_MAX).unwrap() + 44;
    let after = (1000..1000 + many).map(|on| Dependency {
        on: JobId(on),
        kind: DependencyKind::Ended,
    });
    world.submit(Submission {
        wishes: Wishes {
            after: after.collect(),
            ..Wishes::default()
        },
        ..job(1)
    });
    let mut read = 0;
    while let Some(MachineOutput::Fetch { before, .. }) = world.outputs.pop_front() {
        let record = Record {
            id: JobId(before.0 - 1),
            ..last.clone()
        };
        let mut value = vec![1];
        value.extend(postcard::to_allocvec(&record).unwrap());
        read += 1;
        world.machine.fetched(world.now, Ok(vec![value.into()]));
        world.pump();
    }
    assert_eq!(read, many);
    world.store();
    assert_eq!(world.reply(), Reply::Submitted(JobId(2)));
    world.ask(Ask::Jobs {
        over: 1,
        before: None,
    });
    let Reply::Jobs { records, .. } = world.reply() else {
        panic!()
    };
    assert_eq!(records[0].id, id, "it was over last");
}

#[test]
fn a_node_that_is_drained_while_it_starts_gets_no_job() {
    let mut world = World::new(&[]);
    let setup = Setup {
        limits: Default::default(),
        declared: Default::default(),
        name: "main".to_owned(),
        epoch: Wall(0),
        nodes: vec!["n0".to_owned()],
        local: None,
        stored: Vec::new(),
        model: None,
    };
    world.machine = Machine::new(&setup);
    world.ask(Ask::Drain(["n0"].into_iter().collect()));
    assert_eq!(world.reply(), Reply::Done);
    let now = world.now;
    world.machine.node_up(
        now,
        NodeId(0),
        (1, Slots::Explicit(1)),
        &NodeResources::default(),
    );
    world.submitted(job(1));
    world.store();
    assert!(world.launches().is_empty());
    world.ask(Ask::Resume(["n0"].into_iter().collect()));
    world.store();
    assert_eq!(world.launches().len(), 1);
}

#[test]
fn what_is_read_for_an_earlier_wait_does_not_concern_a_later_one() {
    let mut world = World::new(&[1]);
    for _ in 0..2 {
        world.submitted(job(1));
        world.store();
        let run = world.launches()[0].1;
        world.ends(run, Cause::Success);
    }
    let lives = world.submitted(job(1));
    world.store();
    let mut world = world.restart();
    world.store();
    world.ask(Ask::Wait(vec![JobId(1), JobId(2)]));
    let broken = || Err("broken".to_owned());
    world.machine.fetched(world.now, broken());
    world.pump();
    let refused = Reply::Refused(NotDone::NotRead("broken".to_owned()));
    assert_eq!(world.reply(), refused);
    let next = world.submitted(job(1));
    assert!(next > lives);
    world.ask(Ask::Wait(vec![next]));
    world.outputs.clear();
    world.machine.fetched(world.now, broken());
    world.pump();
    assert!(world.outputs.is_empty(), "{:?}", world.outputs);
}

#[test]
fn demands_are_the_least_that_can_be_placed() {
    let nodes: BTreeMap<NodeId, Node> = (0..3)
        .map(|id| {
            let mut node = Node::starting(format!("n{id}"), NodeId(id));
            node.slots = 4;
            node.standing = NodeStanding::Up;
            node.is_implicit = id == 9;
            (NodeId(id), node)
        })
        .collect();
    let request = |count: Option<u32>, map: Option<&str>, hosts: Option<&[&str]>| place::Request {
        apps: vec![place::AppRequest {
            count,
            hosts: hosts.map(|hosts| hosts.iter().copied().collect()),
            map_by: None,
        }],
        map_by: map.map(|map| place::map_by(map).unwrap()),
        ..place::Request::default()
    };
    let cases: [(_, _, _, &str); 9] = [
        (Some(3), None, None, "3 x 1 Pack"),
        (None, None, None, "12 x 1 Pack"),
        (None, None, Some(&["n1"][..]), "4 x 1 Pack on 1"),
        (Some(4), Some("slot:PE=2"), None, "4 x 2 Pack"),
        (Some(6), Some("ppr:2:node"), None, "3 x 2 Scatter"),
        (None, Some("ppr:1:node"), None, "3 x 1 Scatter"),
        (Some(40), Some("slot:oversubscribe"), None, "12 x 1 Pack"),
        (Some(40), None, None, "40 x 1 Pack"),
        (None, Some("ppr:1:numa"), None, "3 x 1 Scatter whole"),
    ];
    for (count, map, hosts, expected) in cases {
        let mut job = spec(1);
        job.placement = request(count, map, hosts);
        let mut counted = Counted::new(Declared::default());
        let demand = demand::demand(&job, Sharing::Shared, &nodes, &mut counted, None);
        let only = demand.only.as_ref().map(|only| {
            let names: Vec<String> = only.iter().map(ToString::to_string).collect();
            format!(" on {}", names.join(","))
        });
        let whole = if demand.sharing == Sharing::Exclusive {
            " whole"
        } else {
            ""
        };
        let shown = format!(
            "{} x {} {:?}{whole}{}",
            demand.units,
            demand.unit.slots,
            demand.spread,
            only.unwrap_or_default()
        );
        assert_eq!(shown, expected, "{count:?} {map:?}");
    }
}

#[test]
fn answers_to_submissions_keep_their_order() {
    let mut world = World::new(&[1]);
    world.submit(job(1));
    world.submit(job(9));
    world.submit(job(1));
    assert!(world.outputs.is_empty(), "{:?}", world.outputs);
    world.store();
    assert_eq!(world.reply(), Reply::Submitted(JobId(1)));
    assert!(matches!(
        world.reply(),
        Reply::Refused(NotDone::NotAccepted(_))
    ));
    assert_eq!(world.reply(), Reply::Submitted(JobId(2)));
    assert!(world.machine.submitting.is_empty());
}

#[test]
fn names_of_files_are_filled_in() {
    let task = |index| TaskId {
        job: JobId(17),
        index,
    };
    let cases = [
        ("out-%j", None, "out-17"),
        ("%j-%i.out", Some(3), "17-3.out"),
        ("100%%-%x-%", Some(3), "100%-%x-%"),
        ("%i", None, "0"),
    ];
    for (pattern, index, expected) in cases {
        assert_eq!(fill(pattern.as_ref(), task(index)), expected, "{pattern}");
    }
}

/// A store of this version has these bytes. If they change, [`books::FORMAT`] has to change too, and code has to read the old
/// ones.
#[test]
fn stored_values_have_a_format() {
    let mut world = World::new(&[2]);
    let mut submission = array(3);
    submission.wishes.after = Vec::new();
    world.submitted(submission);
    world.store();
    let run = world.launches()[0].1;
    world.ends(run, failed());
    world.store();
    let shown: Vec<String> = world
        .stored
        .iter()
        .map(|(key, value)| {
            let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{key:?}: {hex}")
        })
        .collect();
    insta::assert_snapshot!(shown.join("\n"));
}

#[test]
fn a_run_is_shown_while_it_runs() {
    let mut world = World::new(&[1]);
    let id = world.submitted(job(1));
    let task = TaskId {
        job: id,
        index: None,
    };
    world.ask(Ask::Run(task));
    assert_eq!(world.reply(), Reply::Run(None));
    world.store();
    let run = world.launches()[0].1;
    world.ask(Ask::Run(task));
    assert_eq!(
        world.outputs.pop_back(),
        Some(MachineOutput::ShowRun(FRONT, run))
    );
    world.ends(run, Cause::Success);
    world.store();
    world.ask(Ask::Run(task));
    assert_eq!(world.reply(), Reply::Refused(NotDone::IsOver(id)));
}
