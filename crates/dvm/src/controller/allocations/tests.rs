//! Allocations of procs, from their requests to the ends of the jobs that run in them.

use std::{ffi::CStr, time::Duration};

use base::{ExitStatus, Rank, RankSet, Signal, Usage};
use bytes::Bytes;
use pmix::{
    codec::{Format, Writer},
    keys,
    message::{Answer, Command, GroupForm, Request, Shape},
    value::{App, InfoFlags, Key, Value},
};

mod slurm;
mod tools;

use super::*;
use crate::{
    controller::{
        ControllerInput, ControllerOutput, machine::tests::controller, spawned::tests::job,
    },
    machine::{Ask, Down, Record, Reply, Setup, State as Shown, Wall},
    proto::{
        AskId, Drained, EndClass, FromFront, FrontId, Launch, Note, Started, ToController,
        ToDaemon, ToFront,
    },
    spec::OnFailure,
};

const FRONT: FrontId = FrontId(5);
/// A front without a job.
const USER: FrontId = FrontId(4);

/// A machine of two nodes with eight slots each. Daemons start what they are to start.
struct World {
    controller: Controller,
    now: Time,
    asked: u64,
    /// Answers by the number of the request.
    answers: BTreeMap<u64, Bytes>,
    launches: Vec<Launch>,
    /// Jobs for which a daemon got an `End`.
    ended: BTreeSet<JobId>,
    replies: Vec<Reply>,
    notes: Vec<Note>,
    /// Jobs that were stopped, on each of their nodes.
    stopped: Vec<JobId>,
    /// Commands of Slurm: the words of the last one, and how it was ended.
    commands: Vec<String>,
    /// Fronts that have got all messages.
    finished: BTreeSet<FrontId>,
    /// Starts of daemons on further nodes, and the ends of daemons.
    daemons: Vec<String>,
}

impl World {
    /// Creates a world with a job of one rank, which runs. Its run is number 1.
    fn new() -> Self {
        let mut world = Self::with(controller(8));
        let setup = Setup {
            limits: Default::default(),
            declared: Default::default(),
            name: "main".to_owned(),
            epoch: Wall(0),
            nodes: vec!["n0".to_owned(), "n1".to_owned()],
            local: None,
            stored: Vec::new(),
            model: Some(Box::new(job(OnFailure::EndJob))),
        };
        world.handle(ControllerInput::Machine(setup.into()));
        let (front, pid) = (USER, 8);
        world.handle(ControllerInput::FrontConnected { front, pid });
        world.submit(FRONT);
        world
    }

    fn with(controller: Controller) -> Self {
        Self {
            controller,
            now: Time::ZERO,
            asked: 0,
            answers: BTreeMap::new(),
            launches: Vec::new(),
            ended: BTreeSet::new(),
            replies: Vec::new(),
            notes: Vec::new(),
            stopped: Vec::new(),
            commands: Vec::new(),
            finished: BTreeSet::new(),
            daemons: Vec::new(),
        }
    }

    fn submit(&mut self, front: FrontId) {
        self.handle(ControllerInput::FrontConnected { front, pid: 7 });
        let job = Box::new(job(OnFailure::EndJob));
        self.handle(ControllerInput::Front(front, FromFront::Submit(job)));
    }

    fn handle(&mut self, input: ControllerInput) {
        self.controller.handle(self.now, input);
        while let Some(output) = self.controller.poll() {
            match output {
                ControllerOutput::Store(_) => {
                    let stored = ControllerInput::Stored(Ok(()));
                    self.controller.handle(self.now, stored);
                }
                ControllerOutput::Daemon(node, ToDaemon::Launch(launch)) => {
                    self.started(node, &launch);
                    if !self.launches.iter().any(|one| one.job == launch.job) {
                        self.launches.push(Launch::clone(&launch));
                    }
                }
                ControllerOutput::Daemon(
                    _,
                    ToDaemon::Answer {
                        ticket: AskId::Pmix(ticket),
                        answer,
                    },
                ) => {
                    let before = self.answers.insert(ticket, answer);
                    assert_eq!(before, None, "request {ticket} is answered twice");
                }
                // Daemons have 5 MiB, and more on later nodes.
                ControllerOutput::Daemon(node, ToDaemon::MeasureDaemon { number }) => {
                    let memory = Some(u64::from(node.0 + 5) << 20);
                    let measured = ToController::DaemonMeasured { number, memory };
                    let measured = ControllerInput::Daemon(node, measured);
                    self.controller.handle(self.now, measured);
                }
                ControllerOutput::Daemon(_, ToDaemon::Signal { job, signal }) => {
                    assert_eq!(signal, Signal::STOP);
                    self.stopped.push(job);
                }
                ControllerOutput::Daemon(_, ToDaemon::End { job, .. }) => {
                    self.ended.insert(job);
                }
                ControllerOutput::RunCommand { number, words } => {
                    self.commands.push(format!("{number}: {}", words.join(" ")));
                }
                ControllerOutput::EndCommand(number, urgency) => {
                    self.commands.push(format!("{number}: {urgency:?}"));
                }
                ControllerOutput::Finished(front) => {
                    self.finished.insert(front);
                }
                ControllerOutput::AddNodes(added) => {
                    let nodes = added.nodes.iter().map(|(id, host)| format!("{id}={host}"));
                    let nodes: Vec<String> = nodes.collect();
                    let job = added.slurm_job.unwrap_or_default();
                    self.daemons.push(format!("{} of {job}", nodes.join(" ")));
                }
                ControllerOutput::Daemon(node, ToDaemon::Leave) => {
                    self.daemons.push(format!("{node} leaves"));
                }
                ControllerOutput::Front(_, ToFront::Reply(reply)) => self.replies.push(*reply),
                ControllerOutput::Front(FRONT, ToFront::Note(note)) => self.notes.push(note),
                _ => {}
            }
        }
    }

    fn started(&mut self, node: NodeId, launch: &Launch) {
        let ranks = launch.map.ranks_on(node);
        let started = Started {
            executable: "/a.out".into(),
            pids: ranks.iter().map(|rank| (rank, 1)).collect(),
        };
        let launched = ToController::Launched {
            job: launch.job,
            started: vec![started],
            failures: Vec::new(),
            unenforced: Vec::new(),
        };
        self.controller
            .handle(self.now, ControllerInput::Daemon(node, launched));
    }

    fn send(&mut self, by: u32, request: &Request) -> u64 {
        self.asked += 1;
        let mut writer = Writer::new(Format::V4);
        request.encode(&mut writer);
        let ask = ToController::Ask {
            proc: ProcId {
                job: JobId(by),
                rank: Rank(0),
            },
            ticket: AskId::Pmix(self.asked),
            request: Bytes::from(writer.into_bytes()),
        };
        self.handle(ControllerInput::Daemon(NodeId(0), ask));
        self.asked
    }

    /// Sends an allocation request of a job's rank 0, and returns its number.
    fn asks(&mut self, by: u32, directive: AllocDirective, infos: &[Info]) -> u64 {
        let infos = infos.to_vec();
        self.send(by, &Request::Allocate { directive, infos })
    }

    /// Returns the answer to an allocation request in words; `None` if there is none yet.
    fn answer(&self, number: u64) -> Option<String> {
        let shape = Shape::of(Command::Allocate, GroupForm::Infos);
        let answer = Answer::decode(Format::V4, shape, self.answers.get(&number)?).unwrap();
        let Answer::Infos { status, infos } = &answer else {
            // libpmix reports a success without infos as an error.
            assert_ne!(answer.status(), Status::SUCCESS);
            return Some(format!("{:?}", answer.status()));
        };
        assert_eq!(*status, Status::SUCCESS);
        if infos.is_empty() {
            return Some("done".to_owned());
        }
        let value = |key: &CStr| {
            infos
                .iter()
                .find(|info| info.key == *key)
                .map(|one| &one.value)
        };
        let text = |key| {
            value(key)
                .and_then(Value::as_text)
                .unwrap()
                .to_str()
                .unwrap()
        };
        let count = |key| value(key).and_then(Value::as_count).unwrap();
        Some(format!(
            "{}: {} on {}",
            text(keys::ALLOC_ID),
            count(keys::ALLOC_NUM_CPUS),
            text(keys::ALLOC_NODE_LIST)
        ))
    }

    /// Sends an allocation request, and returns the answer.
    fn told(&mut self, by: u32, directive: AllocDirective, infos: &[Info]) -> String {
        let number = self.asks(by, directive, infos);
        self.answer(number).expect("no answer yet")
    }

    /// Sends a spawn request for so many procs, and returns its number.
    fn spawns(&mut self, by: u32, procs: i32, infos: &[Info]) -> u64 {
        let app = App {
            command: Some(c"./b".to_owned()),
            maxprocs: procs,
            ..App::default()
        };
        let infos = infos.to_vec();
        self.send(
            by,
            &Request::Spawn {
                infos,
                apps: vec![app],
            },
        )
    }

    /// Returns the answer to a spawn request: where its job runs, or the status.
    fn spawned(&self, number: u64) -> Option<String> {
        let shape = Shape::of(Command::Spawn, GroupForm::Infos);
        let answer = Answer::decode(Format::V4, shape, self.answers.get(&number)?).unwrap();
        let Answer::Spawned { nspace, .. } = &answer else {
            return Some(format!("{:?}", answer.status()));
        };
        let nspace = nspace.as_ref().unwrap().to_str().unwrap();
        let launch = self
            .launches
            .iter()
            .find(|one| one.nspace == nspace)
            .unwrap();
        let nodes = launch.map.nodes().map(|node| {
            let ranks = launch.map.ranks_on(node).len();
            format!("{ranks}@n{node}")
        });
        let nodes: Vec<String> = nodes.collect();
        Some(format!("{}: {}", launch.job, nodes.join("+")))
    }

    /// Lets all ranks of a job end.
    fn ends(&mut self, job: u32, status: ExitStatus) {
        let job = JobId(job);
        let launch = self.launches.iter().find(|one| one.job == job).unwrap();
        let nodes: Vec<(NodeId, RankSet)> = launch
            .map
            .nodes()
            .map(|node| (node, launch.map.ranks_on(node).iter().collect()))
            .collect();
        for (node, ranks) in nodes {
            let class = EndClass {
                status,
                drained: Drained::Whole,
                ranks,
            };
            let classes = vec![class];
            let ended = ToController::Ended { job, classes };
            self.handle(ControllerInput::Daemon(node, ended));
            let spent = Usage::default();
            let clean = ToController::Clean { job, spent };
            self.handle(ControllerInput::Daemon(node, clean));
        }
    }

    fn order(&mut self, ask: Ask) -> Reply {
        let order = FromFront::Ask(Box::new(ask));
        self.handle(ControllerInput::Front(USER, order));
        self.replies.pop().expect("no reply")
    }

    fn record(&mut self, job: u32) -> Record {
        match self.order(Ask::Job(JobId(job))) {
            Reply::Job(record) => *record,
            other => panic!("{other:?}"),
        }
    }

    fn state(&mut self, job: u32) -> Shown {
        self.record(job).state()
    }

    fn wait_until(&mut self, seconds: u64) {
        self.now = Time::ZERO + Duration::from_secs(seconds);
        self.handle(ControllerInput::Tick);
    }

    fn held(&self) -> usize {
        self.controller.allocations.0.len()
    }
}

fn info(key: &CStr, value: Value) -> Info {
    Info::new(Key::new(key).unwrap(), value)
}

fn cpus(count: u64) -> Info {
    info(keys::ALLOC_NUM_CPUS, Value::Uint64(count))
}

fn nodes(count: u64) -> Info {
    info(keys::ALLOC_NUM_NODES, Value::Uint64(count))
}

fn seconds(count: u32) -> Info {
    info(keys::ALLOC_TIME, Value::Uint32(count))
}

fn id(name: &str) -> Info {
    info(keys::ALLOC_ID, Value::text(name))
}

fn request(name: &str) -> Info {
    info(keys::ALLOC_REQ_ID, Value::text(name))
}

const NEW: AllocDirective = AllocDirective::NEW;
const EXTEND: AllocDirective = AllocDirective::EXTEND;
const RELEASE: AllocDirective = AllocDirective::RELEASE;
const REACQUIRE: AllocDirective = AllocDirective::REACQUIRE;

#[test]
fn an_allocation_is_requested_changed_and_released() {
    let mut world = World::new();
    let steps = [
        (NEW, vec![cpus(4), request("mine")], "2: 4 on n0"),
        (NEW, vec![nodes(1)], "3: 8 on n1"),
        (REACQUIRE, vec![id("2")], "2: 4 on n0"),
        (REACQUIRE, vec![request("mine")], "2: 4 on n0"),
        (EXTEND, vec![id("2"), cpus(2)], "2: 6 on n0"),
        (EXTEND, vec![id("2"), cpus(2)], "RESOURCE_BUSY"),
        (EXTEND, vec![id("3"), nodes(1)], "RESOURCE_BUSY"),
        (EXTEND, vec![id("3"), cpus(1)], "BAD_PARAM"),
        (RELEASE, vec![request("mine"), cpus(5)], "2: 1 on n0"),
        (RELEASE, vec![id("3")], "done"),
        (RELEASE, vec![id("3")], "NOT_FOUND"),
        (EXTEND, vec![id("2"), cpus(9)], "2: 10 on n0,n1"),
        (RELEASE, vec![id("2"), cpus(10)], "done"),
    ];
    for (directive, infos, expected) in steps {
        assert_eq!(
            world.told(1, directive, &infos),
            expected,
            "{directive:?} {infos:?}"
        );
    }
    assert_eq!(world.held(), 0);
    assert_eq!(world.state(2), Shown::Succeeded);
    assert_eq!(world.state(3), Shown::Succeeded);
}

#[test]
fn what_cannot_be_granted_is_refused_with_the_reason() {
    let mut world = World::new();
    let steps = [
        (NEW, vec![], "BAD_PARAM"),
        (NEW, vec![cpus(0)], "BAD_PARAM"),
        (NEW, vec![cpus(16)], "OUT_OF_RESOURCE"),
        (NEW, vec![nodes(2)], "OUT_OF_RESOURCE"),
        (
            NEW,
            vec![info(keys::ALLOC_NODE_LIST, Value::text("n7"))],
            "NOT_FOUND",
        ),
        (
            NEW,
            vec![cpus(1), info(keys::ALLOC_QUEUE, Value::text("debug"))],
            "NOT_FOUND",
        ),
        (EXTEND, vec![cpus(1)], "BAD_PARAM"),
        (EXTEND, vec![id("1"), cpus(1)], "NOT_FOUND"),
        (RELEASE, vec![id("no number")], "NOT_FOUND"),
        (REACQUIRE, vec![id("9")], "NOT_FOUND"),
        (NEW, vec![cpus(1), request("twice")], "2: 1 on n0"),
        (NEW, vec![cpus(1), request("twice")], "EXISTS"),
        (NEW, vec![cpus(1), id("twice")], "EXISTS"),
        (AllocDirective(128), vec![cpus(1)], "NOT_SUPPORTED"),
    ];
    for (directive, infos, expected) in steps {
        assert_eq!(
            world.told(1, directive, &infos),
            expected,
            "{directive:?} {infos:?}"
        );
    }
    world.order(Ask::Down(Down::WhenIdle));
    assert_eq!(world.told(1, NEW, &[cpus(1)]), "NOT_AVAILABLE");
}

#[test]
fn without_a_queue_there_is_nothing_to_grant() {
    let mut world = World::with(controller(8));
    world.submit(FRONT);
    for directive in [NEW, EXTEND, RELEASE, REACQUIRE] {
        assert_eq!(world.told(1, directive, &[cpus(1)]), "NOT_SUPPORTED");
    }
    // A spawn request may ask for what is not needed.
    let spawn = world.spawns(1, 2, &[seconds(5)]);
    assert_eq!(world.spawned(spawn).unwrap(), "2: 2@n0");
    let spawn = world.spawns(1, 2, &[seconds(0)]);
    assert_eq!(world.spawned(spawn).unwrap(), "3: 2@n0");
    let mut insists = seconds(5);
    insists.flags = InfoFlags::REQUIRED;
    let spawn = world.spawns(1, 2, &[insists]);
    assert_eq!(world.spawned(spawn).unwrap(), "NOT_SUPPORTED");
    let spawn = world.spawns(1, 2, &[id("1")]);
    assert_eq!(world.spawned(spawn).unwrap(), "4: 2@n0");
    let mut insists = id("1");
    insists.flags = InfoFlags::REQUIRED;
    let spawn = world.spawns(1, 2, &[insists]);
    assert_eq!(world.spawned(spawn).unwrap(), "NOT_SUPPORTED");
    // The user is told once.
    let by = ProcId {
        job: JobId(1),
        rank: Rank(0),
    };
    assert_eq!(world.notes, [Note::NoScheduler { by }]);
}

#[test]
fn allocations_of_others_are_not_found() {
    let mut world = World::new();
    assert_eq!(
        world.told(1, NEW, &[cpus(2), request("mine")]),
        "2: 2 on n0"
    );
    world.submit(FrontId(6));
    for directive in [EXTEND, RELEASE, REACQUIRE] {
        for name in [id("2"), request("mine")] {
            assert_eq!(world.told(2, directive, &[name, cpus(1)]), "NOT_FOUND");
        }
    }
    let spawn = world.spawns(2, 1, &[id("2")]);
    assert_eq!(world.spawned(spawn).unwrap(), "NOT_FOUND");
    // The name is free for them.
    assert_eq!(
        world.told(2, NEW, &[cpus(1), request("mine")]),
        "4: 1 on n0"
    );
}

#[test]
fn a_request_waits_until_there_is_room() {
    let mut world = World::new();
    assert_eq!(world.told(1, NEW, &[cpus(14)]), "2: 14 on n0,n1");
    let waits = world.asks(1, NEW, &[cpus(3), request("later")]);
    assert_eq!(world.answer(waits), None);
    for directive in [EXTEND, REACQUIRE] {
        let told = world.told(1, directive, &[request("later"), cpus(1)]);
        assert_eq!(told, "OPERATION_IN_PROGRESS");
    }
    let spawn = world.spawns(1, 1, &[id("3")]);
    assert_eq!(world.spawned(spawn).unwrap(), "OPERATION_IN_PROGRESS");
    assert_eq!(world.told(1, RELEASE, &[id("2")]), "done");
    assert_eq!(world.answer(waits).unwrap(), "3: 3 on n0");
    // Another one is not granted: it is withdrawn, its caller gives up, or a user cancels it.
    let timeout = info(keys::TIMEOUT, Value::Int(5));
    let impatient = world.asks(1, NEW, &[cpus(15), timeout]);
    let withdrawn = world.asks(1, NEW, &[cpus(15), request("no")]);
    let canceled = world.asks(1, NEW, &[cpus(15)]);
    assert_eq!(world.told(1, RELEASE, &[request("no")]), "done");
    assert_eq!(world.answer(withdrawn).unwrap(), "JOB_CANCELED");
    assert_eq!(world.answer(impatient), None);
    world.wait_until(5);
    assert_eq!(world.answer(impatient).unwrap(), "TIMEOUT");
    world.order(Ask::Cancel(JobId(6), None));
    assert_eq!(world.answer(canceled).unwrap(), "JOB_CANCELED");
    assert_eq!(world.held(), 1);
}

#[test]
fn a_job_is_spawned_into_an_allocation() {
    let mut world = World::new();
    assert_eq!(world.told(1, NEW, &[nodes(1)]), "2: 8 on n1");
    // Elsewhere, it runs beside its spawner.
    let beside = world.spawns(1, 2, &[]);
    assert_eq!(world.spawned(beside).unwrap(), "2: 2@n0");
    let inside = world.spawns(1, 2, &[id("2")]);
    assert_eq!(world.spawned(inside).unwrap(), "3: 2@n1");
    // So does what that job spawns.
    let grandchild = world.spawns(3, 1, &[]);
    assert_eq!(world.spawned(grandchild).unwrap(), "4: 1@n1");
    // Nothing is given back under its feet.
    assert_eq!(world.told(1, RELEASE, &[id("2")]), "RESOURCE_BUSY");
    assert_eq!(
        world.told(1, RELEASE, &[id("2"), nodes(1)]),
        "RESOURCE_BUSY"
    );
    world.ends(3, ExitStatus::SUCCESS);
    assert_eq!(world.told(1, RELEASE, &[id("2")]), "RESOURCE_BUSY");
    world.ends(4, ExitStatus::SUCCESS);
    assert_eq!(world.told(1, RELEASE, &[id("2")]), "done");
}

#[test]
fn jobs_share_the_slots_of_an_allocation_only_if_they_want_to() {
    let mut world = World::new();
    world.told(1, NEW, &[cpus(9)]);
    let first = world.spawns(1, 4, &[id("2")]);
    assert_eq!(world.spawned(first).unwrap(), "2: 1@n0+3@n1");
    let second = world.spawns(1, 5, &[id("2")]);
    assert_eq!(world.spawned(second).unwrap(), "3: 5@n1");
    let third = world.spawns(1, 1, &[id("2")]);
    assert_eq!(world.spawned(third).unwrap(), "OUT_OF_RESOURCE");
    world.ends(2, ExitStatus::SUCCESS);
    let many = world.spawns(1, 5, &[id("2")]);
    assert_eq!(world.spawned(many).unwrap(), "OUT_OF_RESOURCE");
    let share = info(keys::MAP_BY, Value::text("slot:oversubscribe"));
    let many = world.spawns(1, 12, &[id("2"), share]);
    assert_eq!(world.spawned(many).unwrap(), "4: 3@n0+9@n1");
    // Its own allocation has to be large enough too.
    let small = world.spawns(1, 4, &[cpus(3)]);
    assert_eq!(world.spawned(small).unwrap(), "OUT_OF_RESOURCE");
    assert_eq!(world.held(), 1);
}

#[test]
fn a_paused_job_spawns_paused_ones() {
    let mut world = World::new();
    world.told(1, NEW, &[cpus(2)]);
    world.controller.signal_run(JobId(1), Signal::STOP);
    let spawn = world.spawns(1, 2, &[id("2")]);
    assert_eq!(world.spawned(spawn).unwrap(), "2: 2@n0");
    assert_eq!(world.stopped, [JobId(1), JobId(2)]);
}

#[test]
fn an_allocation_ends_with_its_owner_and_what_runs_in_it() {
    let mut world = World::new();
    world.told(1, NEW, &[cpus(2)]);
    let spawn = world.spawns(1, 2, &[id("2")]);
    assert_eq!(world.spawned(spawn).unwrap(), "2: 2@n0");
    let waits = world.asks(1, NEW, &[cpus(15)]);
    world.ends(1, ExitStatus::SUCCESS);
    // It is not waited for any more. The job in the allocation goes on.
    assert_eq!(world.answer(waits).unwrap(), "JOB_CANCELED");
    assert_eq!(
        (world.state(2), world.state(3)),
        (Shown::Running, Shown::Canceled)
    );
    assert_eq!(world.told(2, REACQUIRE, &[id("2")]), "2: 2 on n0");
    world.ends(2, ExitStatus::SUCCESS);
    assert_eq!(world.state(2), Shown::Succeeded);
    assert_eq!(world.held(), 0);
    let mut world = World::new();
    world.told(1, NEW, &[cpus(2)]);
    world.ends(1, ExitStatus::Exited(3));
    assert_eq!((world.state(2), world.held()), (Shown::Succeeded, 0));
}

#[test]
fn a_request_of_a_proc_that_has_ended_is_not_waited_for() {
    let mut world = World::new();
    let spawn = world.spawns(1, 2, &[]);
    assert_eq!(world.spawned(spawn).unwrap(), "2: 2@n0");
    world.told(1, NEW, &[cpus(15)]);
    let waits = world.asks(2, NEW, &[cpus(2)]);
    let class = EndClass {
        status: ExitStatus::SUCCESS,
        drained: Drained::Whole,
        ranks: RankSet::single(Rank(0)),
    };
    let (job, classes) = (JobId(2), vec![class]);
    let ended = ToController::Ended { job, classes };
    world.handle(ControllerInput::Daemon(NodeId(0), ended));
    // The other rank of its job runs.
    assert_eq!(world.answer(waits).unwrap(), "JOB_CANCELED");
    assert_eq!(world.held(), 1);
    world.told(1, RELEASE, &[id("2")]);
    assert_eq!(world.held(), 0);
}

#[test]
fn the_time_of_an_allocation_ends_what_runs_in_it() {
    let mut world = World::new();
    world.told(1, NEW, &[cpus(2), seconds(60)]);
    world.told(1, NEW, &[cpus(2), seconds(60)]);
    let spawn = world.spawns(1, 2, &[id("2")]);
    assert_eq!(world.spawned(spawn).unwrap(), "2: 2@n0");
    assert_eq!(world.told(1, EXTEND, &[id("3"), seconds(10)]), "3: 2 on n0");
    world.wait_until(60);
    assert_eq!(world.ended, [JobId(2)].into());
    assert_eq!(world.told(1, REACQUIRE, &[id("2")]), "NOT_AVAILABLE");
    let late = world.spawns(1, 1, &[id("2")]);
    assert_eq!(world.spawned(late).unwrap(), "NOT_AVAILABLE");
    assert_eq!(world.state(2), Shown::Running, "its slots are in use");
    world.ends(2, ExitStatus::Exited(1));
    assert_eq!(world.state(2), Shown::Failed);
    let told = Note::SpawnedFailed {
        job: JobId(2),
        cause: Box::new(Cause::Ended(EndReason::TimeLimit)),
    };
    assert_eq!(world.notes, [told]);
    // Its spawner runs on, and so does the other allocation.
    assert_eq!(
        (world.state(1), world.state(3)),
        (Shown::Running, Shown::Running)
    );
    world.wait_until(70);
    assert_eq!((world.state(3), world.held()), (Shown::Failed, 0));
}

#[test]
fn a_canceled_allocation_ends_what_runs_in_it() {
    for (order, expected) in [
        (Ask::Cancel(JobId(2), None), Shown::Canceled),
        // As a job that ran then.
        (Ask::Down(Down::Now), Shown::Failed),
    ] {
        let mut world = World::new();
        world.told(1, NEW, &[cpus(2)]);
        let spawn = world.spawns(1, 2, &[id("2")]);
        assert_eq!(world.spawned(spawn).unwrap(), "2: 2@n0");
        world.order(order.clone());
        assert!(world.ended.contains(&JobId(2)), "{order:?}");
        world.ends(2, ExitStatus::Exited(1));
        assert_eq!(world.state(2), expected, "{order:?}");
        world.ends(1, ExitStatus::SUCCESS);
        let is_down = order == Ask::Down(Down::Now);
        assert_eq!(world.controller.is_idle(), is_down);
    }
}

#[test]
fn a_spawn_request_makes_its_own_allocation() {
    let mut world = World::new();
    // As large as the job, if nothing else is said.
    let spawn = world.spawns(1, 9, &[seconds(60)]);
    assert_eq!(world.spawned(spawn).unwrap(), "2: 1@n0+8@n1");
    assert_eq!(world.record(2).slots, 9);
    world.ends(2, ExitStatus::SUCCESS);
    assert_eq!(world.state(2), Shown::Succeeded);
    assert_eq!(world.held(), 0);
    let whole = world.spawns(1, 3, &[nodes(1)]);
    assert_eq!(world.spawned(whole).unwrap(), "3: 3@n1");
    // The next one waits for it.
    let waits = world.spawns(1, 3, &[nodes(1), request("next")]);
    assert_eq!(world.spawned(waits), None);
    world.ends(3, ExitStatus::SUCCESS);
    assert_eq!(world.spawned(waits).unwrap(), "4: 3@n1");
    assert_eq!(world.told(1, REACQUIRE, &[request("next")]), "4: 8 on n1");
    let never = world.spawns(1, 16, &[seconds(60)]);
    assert_eq!(world.spawned(never).unwrap(), "OUT_OF_RESOURCE");
    let both = world.spawns(1, 1, &[id("4"), cpus(1)]);
    assert_eq!(world.spawned(both).unwrap(), "BAD_PARAM");
    // A job that cannot be placed leaves no allocation.
    let nowhere = info(keys::HOST, Value::text("n1"));
    let wrong = world.spawns(1, 1, &[cpus(1), nowhere]);
    assert_eq!(world.spawned(wrong).unwrap(), "JOB_FAILED_TO_MAP");
    assert_eq!(world.held(), 1);
}

#[test]
fn nothing_is_spawned_by_a_job_that_is_being_ended() {
    let mut world = World::new();
    world.submit(FrontId(6));
    assert_eq!(world.told(2, NEW, &[nodes(1)]), "3: 8 on n1");
    let waits = world.spawns(1, 1, &[nodes(1)]);
    assert_eq!(world.spawned(waits), None);
    world.handle(ControllerInput::FrontLost(FRONT));
    assert_eq!(world.ended, [JobId(1)].into());
    assert_eq!(world.told(2, RELEASE, &[id("3")]), "done");
    assert_eq!(world.spawned(waits).unwrap(), "NOT_AVAILABLE");
    assert_eq!((world.launches.len(), world.held()), (2, 0));
}

#[test]
fn lost_nodes_of_an_allocation_are_left_out() {
    let mut world = World::new();
    world.told(
        1,
        NEW,
        &[info(keys::ALLOC_NODE_LIST, Value::text("n0,n1")), cpus(4)],
    );
    let lost = ControllerInput::DaemonLost(NodeId(1), "it is off".to_owned());
    world.handle(lost);
    let spawn = world.spawns(1, 2, &[id("2")]);
    assert_eq!(world.spawned(spawn).unwrap(), "2: 2@n0");
}

#[test]
fn allocations_are_bounded() {
    let mut world = World::new();
    let first = world.asks(1, NEW, &[cpus(15)]);
    assert!(world.answer(first).is_some());
    for _ in 1..ALLOCATIONS_MAX {
        let waits = world.asks(1, NEW, &[cpus(1)]);
        assert_eq!(world.answer(waits), None);
    }
    assert_eq!(world.told(1, NEW, &[cpus(1)]), "OUT_OF_RESOURCE");
    world.ends(1, ExitStatus::SUCCESS);
    assert_eq!(world.held(), 0);
}
