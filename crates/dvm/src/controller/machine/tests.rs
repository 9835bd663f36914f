//! Where a run is placed, and what happens if its files hang.

use base::{ExitStatus, Rank, Signal, Topology, Usage};

use super::{watch::WATCHED_MAX, *};
use crate::{
    NotWatched,
    alloc::AllocatedNode,
    controller::{ControllerInput, spawned::tests::job, tests::hello},
    machine::{Down, Failure, OutputFiles, State, Submission, Wishes},
    place::{AppRequest, Request, TopologyDigest},
    proto::{
        ChunkEnd, Drained, EndClass, FromFront, NotEnforced, Started, ToController, ToDaemon,
        Unenforced,
    },
    spec::{JobSpec, LimitedResource, OnFailure},
};

/// Creates a controller of two nodes with so many cores, whose daemons have connected.
pub(in crate::controller) fn controller(cores: u32) -> Controller {
    let nodes = ["n0", "n1"].map(|name| AllocatedNode {
        name: name.to_owned(),
        slots: Slots::Explicit(8),
        max_slots: None,
        granted: None,
    });
    let allocation = Allocation {
        nodes: nodes.into(),
    };
    let mut controller = Controller::new(allocation, "test".to_owned());
    for node in 0..2 {
        let ToController::Hello {
            version,
            node,
            host,
            ..
        } = hello(node)
        else {
            panic!()
        };
        let said = ToController::Hello {
            resources: Default::default(),
            version,
            node,
            host,
            topology: TopologyDigest::of(&Topology::flat(cores)),
        };
        controller.handle(Time::ZERO, ControllerInput::Daemon(node, said));
        let topology = ToController::Topology(Box::new(Topology::flat(cores)));
        controller.handle(Time::ZERO, ControllerInput::Daemon(node, topology));
    }
    controller
}

/// Returns how many ranks of a job are on each node, if it is granted these slots.
fn placed(cores: u32, request: &Request, slots: [u32; 2], sharing: Sharing) -> String {
    let controller = controller(cores);
    let slots = (0..).map(NodeId).zip(slots);
    let grant = Grant {
        gpus: BTreeMap::new(),
        slots: slots.filter(|(_, slots)| *slots > 0).collect(),
        sharing,
    };
    let (request, allocation) = controller.within(request, &grant).unwrap();
    let topologies = controller.topologies.of(&controller.nodes).unwrap();
    let map = match place::place(&request, &allocation, &topologies) {
        Ok(map) => map,
        Err(error) => return format!("{error:?}"),
    };
    let nodes = map.nodes().map(|node| {
        let ranks = map.ranks_on(node).len();
        format!("{ranks}@n{node}")
    });
    nodes.collect::<Vec<_>>().join("+")
}

fn request(count: u32, map: &str) -> Request {
    Request {
        apps: vec![AppRequest {
            count: Some(count),
            ..AppRequest::default()
        }],
        map_by: Some(place::map_by(map).unwrap()),
        ..Request::default()
    }
}

#[test]
fn procs_with_several_cpus_use_the_slots_that_were_granted() {
    let job = request(4, "slot:PE=2");
    let cases = [
        // Half of each node is that of other jobs.
        (8, [4, 4], Sharing::Shared, "2@n0+2@n1"),
        (8, [8, 0], Sharing::Shared, "4@n0"),
        (8, [2, 6], Sharing::Shared, "1@n0+3@n1"),
        // The user has said that there are more slots than cores. Nobody is bound.
        (4, [8, 0], Sharing::Shared, "4@n0"),
        (4, [2, 6], Sharing::Shared, "1@n0+3@n1"),
        // Whole nodes are used as without a machine.
        (8, [8, 8], Sharing::Exclusive, "4@n0"),
        (4, [8, 8], Sharing::Exclusive, "2@n0+2@n1"),
    ];
    for (cores, slots, sharing, expected) in cases {
        let shown = placed(cores, &job, slots, sharing);
        assert_eq!(shown, expected, "{cores} cores, {slots:?}, {sharing:?}");
    }
    let by_node = request(4, "node:PE=2");
    assert_eq!(placed(8, &by_node, [2, 6], Sharing::Shared), "1@n0+3@n1");
    let per_node = request(4, "ppr:2:node:PE=2");
    assert_eq!(placed(8, &per_node, [4, 4], Sharing::Shared), "2@n0+2@n1");
    // Who asks for a binding needs the cores.
    let mut bound = request(4, "slot");
    bound.bind_to = Some(place::bind_to("core:2").unwrap());
    assert_eq!(placed(8, &bound, [4, 4], Sharing::Shared), "2@n0+2@n1");
    let refused = placed(4, &bound, [8, 0], Sharing::Shared);
    assert!(refused.starts_with("NotEnough"), "{refused}");
}

const FRONT: FrontId = FrontId(5);

/// A machine of two nodes whose store answers at once, and whose files do not.
struct World {
    controller: Controller,
    now: Time,
    /// What the files were to do, without an answer.
    files: Vec<Captured>,
    /// What was to be written.
    written: Vec<Bytes>,
    outputs: Vec<ControllerOutput>,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            controller: controller(8),
            now: Time::ZERO,
            files: Vec::new(),
            written: Vec::new(),
            outputs: Vec::new(),
        };
        let setup = Setup {
            limits: Default::default(),
            declared: Default::default(),
            name: "main".to_owned(),
            epoch: crate::machine::Wall(0),
            nodes: vec!["n0".to_owned(), "n1".to_owned()],
            local: None,
            stored: Vec::new(),
            model: None,
        };
        world.handle(ControllerInput::Machine(setup.into()));
        world.handle(ControllerInput::FrontConnected {
            front: FRONT,
            pid: 7,
        });
        world
    }

    fn handle(&mut self, input: ControllerInput) {
        self.controller.handle(self.now, input);
        while let Some(output) = self.controller.poll() {
            match output {
                ControllerOutput::Store(_) => {
                    let stored = ControllerInput::Stored(Ok(()));
                    self.controller.handle(self.now, stored);
                }
                ControllerOutput::CaptureStart(output, _) => self.files.push(output),
                ControllerOutput::Capture { output, bytes } => {
                    self.files.push(output);
                    self.written.push(bytes);
                }
                output => self.outputs.push(output),
            }
        }
    }

    fn ask(&mut self, ask: Ask) {
        self.handle(ControllerInput::Front(FRONT, FromFront::Ask(Box::new(ask))));
    }

    fn says(&mut self, message: ToController) {
        self.handle(ControllerInput::Daemon(NodeId(0), message));
    }

    /// Submits a job of one rank, which starts.
    fn submit(&mut self) {
        self.submit_spec(job(OnFailure::EndJob));
    }

    fn submit_spec(&mut self, spec: JobSpec) {
        self.ask(Ask::Submit(Box::new(Submission {
            spec: Box::new(spec),
            name: "a".to_owned(),
            command: "./a".to_owned(),
            wishes: Wishes::default(),
            output: OutputFiles {
                stdout: "/hung/out".into(),
                stderr: None,
            },
        })));
    }

    /// Lets the rank of a run end. It has printed so many bytes.
    fn prints_and_ends(&mut self, job: JobId, bytes: usize, status: ExitStatus) {
        self.says(ToController::Output {
            job,
            chunk: Chunk {
                job,
                rank: Rank(0),
                stream: Stream::Stdout,
                bytes: Bytes::from(vec![b'x'; bytes]),
                end: ChunkEnd::Partial,
            },
        });
        let class = EndClass {
            status,
            drained: Drained::Whole,
            ranks: RankSet::single(Rank(0)),
        };
        let classes = vec![class];
        self.says(ToController::Ended { job, classes });
        self.says(ToController::Clean {
            job,
            spent: Usage::default(),
        });
    }

    /// Returns the state of a job.
    fn state(&mut self, id: JobId) -> (State, Option<Failure>) {
        self.outputs.clear();
        self.ask(Ask::Job(id));
        let record = self.outputs.iter().find_map(|output| match output {
            ControllerOutput::Front(_, ToFront::Reply(reply)) => match &**reply {
                Reply::Job(record) => Some(record.clone()),
                _ => None,
            },
            _ => None,
        });
        let record = record.expect("there is no answer");
        (record.state(), record.failure.map(|(_, why)| *why))
    }

    fn wait_until_due(&mut self) {
        self.now = self.controller.deadline().expect("nothing is awaited");
        self.handle(ControllerInput::Tick);
    }
}

#[test]
fn a_hung_file_does_not_keep_a_run_that_has_ended() {
    let mut world = World::new();
    world.submit();
    assert_eq!(world.files.len(), 1, "a file is to be opened");
    assert_eq!(
        world.controller.deadline(),
        None,
        "the rank may run for days"
    );
    world.prints_and_ends(JobId(1), 10, ExitStatus::SUCCESS);
    assert_eq!(world.state(JobId(1)).0, State::Running);
    // An answer shows that the files do not hang.
    world.now = world.now + CAPTURE_MAX / 2;
    let opened = world.files.remove(0);
    world.handle(ControllerInput::Captured(opened, Ok(())));
    assert_eq!(world.controller.deadline(), Some(world.now + CAPTURE_MAX));
    world.wait_until_due();
    let (state, failure) = world.state(JobId(1));
    assert_eq!(state, State::Failed);
    let why = "no output was written for 5 s".to_owned();
    assert_eq!(failure, Some(Failure::OutputLost(why)));
    // A late answer is no trouble, and the next one is not awaited for ever either.
    let late = world.files.remove(0);
    world.handle(ControllerInput::Captured(late, Ok(())));
    world.submit();
    world.prints_and_ends(JobId(2), 10, ExitStatus::SUCCESS);
    for output in std::mem::take(&mut world.files) {
        world.handle(ControllerInput::Captured(output, Ok(())));
    }
    assert_eq!(world.state(JobId(2)), (State::Succeeded, None));
    assert_eq!(world.controller.deadline(), None);
}

#[test]
fn a_hung_file_does_not_keep_a_machine_that_is_ended() {
    let mut world = World::new();
    world.submit();
    let job = JobId(1);
    let started = vec![Started {
        executable: "/home/u/a.out".into(),
        pids: vec![(Rank(0), 77)],
    }];
    world.says(ToController::Launched {
        job,
        started,
        failures: Vec::new(),
        unenforced: Vec::new(),
    });
    // The node may print no more, until this is written.
    world.says(ToController::Output {
        job,
        chunk: Chunk {
            job,
            rank: Rank(0),
            stream: Stream::Stdout,
            bytes: Bytes::from(vec![b'x'; 1000]),
            end: ChunkEnd::Partial,
        },
    });
    world.ask(Ask::Down(Down::Now));
    world.outputs.clear();
    world.now = world.now + CAPTURE_MAX;
    world.handle(ControllerInput::Tick);
    let is_credited = world.outputs.iter().any(|output| {
        matches!(
            output,
            ControllerOutput::Daemon(_, ToDaemon::OutputCredit { bytes, .. }) if *bytes >= 1000
        )
    });
    assert!(is_credited, "{:?}", world.outputs);
    assert!(!world.controller.is_idle());
    let killed = ExitStatus::Signaled {
        signal: Signal::KILL,
        core_dumped: false,
    };
    world.prints_and_ends(job, 10, killed);
    assert!(world.controller.is_idle());
}

impl World {
    /// Submits a job of one rank that is watched. Its rank runs.
    fn watched(&mut self) -> JobId {
        let mut spec = job(OnFailure::EndJob);
        spec.watch = Some(Duration::from_secs(60));
        spec.end.time_limit = Some(Duration::from_secs(100));
        self.submit_spec(spec);
        let job = JobId(self.controller.next_job - 1);
        self.now = self.now + Duration::from_secs(1);
        self.says(ToController::Launched {
            job,
            started: Vec::new(),
            failures: Vec::new(),
            unenforced: Vec::new(),
        });
        job
    }

    /// Returns what is to be done about watches, and forgets all outputs.
    fn watches(&mut self) -> Vec<String> {
        let outputs = self.outputs.drain(..).filter_map(|output| match output {
            ControllerOutput::Watch(watch) => Some(format!("watch {watch:?}")),
            ControllerOutput::WatchEnd(job) => Some(format!("end {job}")),
            _ => None,
        });
        outputs.collect()
    }
}

#[test]
fn a_run_is_watched_from_its_start_to_its_end() {
    let mut world = World::new();
    let job = world.watched();
    insta::assert_snapshot!(world.watches().join("\n"), @r#"watch JobWatch { job: JobId(1), nspace: "test@1", hosts: HostList { names: ["n0"] }, idle: 60s, left: Some(99s), task: TaskId { job: JobId(1), index: None }, directory: "/home/u", files: OutputFiles { stdout: "/hung/out", stderr: None } }"#);
    world.prints_and_ends(job, 1, ExitStatus::SUCCESS);
    assert_eq!(world.watches(), [format!("end {job}")]);
    // One that does not ask for it is not.
    world.submit();
    let job = JobId(2);
    let started = Vec::new();
    let failures = Vec::new();
    world.says(ToController::Launched {
        job,
        started,
        failures,
        unenforced: Vec::new(),
    });
    world.prints_and_ends(job, 1, ExitStatus::SUCCESS);
    assert_eq!(world.watches(), [""; 0]);
}

#[test]
fn a_run_that_is_not_watched_says_so() {
    let mut world = World::new();
    let job = world.watched();
    world.watches();
    let why = NotWatched::NotStarted("no memory".to_owned());
    world.handle(ControllerInput::NotWatched(job, why));
    // It takes no place.
    assert!(
        world
            .controller
            .machine
            .as_ref()
            .unwrap()
            .watched
            .is_empty()
    );
    let jobs: BTreeSet<JobId> = (100..).map(JobId).take(WATCHED_MAX).collect();
    world.controller.machine.as_mut().unwrap().watched = jobs;
    world.watched();
    let texts = std::mem::take(&mut world.written).into_iter();
    let texts: Vec<String> = texts
        .map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
        .collect();
    insta::assert_snapshot!(texts.join("\n"), @"
    warning: the job is not watched for hangs: cannot start `dbgr`: no memory
      effect: it runs on without `--on-hang`

    warning: the job is not watched for hangs: 64 others are, which is the maximum
      effect: it runs on without `--on-hang`
      help:   `dbgr watch` watches a job from a terminal
    ");
    assert_eq!(world.watches(), [""; 0]);
}

#[test]
fn what_is_not_enforced_is_in_the_output_of_the_job() {
    let mut world = World::new();
    world.submit();
    let opened = world.files.remove(0);
    world.handle(ControllerInput::Captured(opened, Ok(())));
    world.says(ToController::Launched {
        job: JobId(1),
        started: Vec::new(),
        failures: Vec::new(),
        unenforced: vec![Unenforced {
            why: NotEnforced::NoCgroups,
            limits: [LimitedResource::Memory].into(),
        }],
    });
    let written = world.files.remove(0);
    assert_eq!(
        (written.root, written.stream, written.cost),
        (JobId(1), Stream::Stderr, 0)
    );
    let text = String::from_utf8(world.written.pop().unwrap().to_vec()).unwrap();
    let first = text.lines().next();
    assert_eq!(
        first,
        Some("warning: `--memory-limit` is not enforced on `n0`")
    );
    // The job is not over before this is written.
    let spent = Usage::default();
    let class = EndClass {
        status: ExitStatus::SUCCESS,
        drained: Drained::Whole,
        ranks: RankSet::single(Rank(0)),
    };
    let (job, classes) = (JobId(1), vec![class]);
    world.says(ToController::Ended { job, classes });
    world.says(ToController::Clean { job, spent });
    assert_eq!(world.state(job).0, State::Running);
    world.handle(ControllerInput::Captured(written, Ok(())));
    assert_eq!(world.state(job).0, State::Succeeded);
}

/// What only a front would hear is in the output, also what is known at the end.
#[test]
fn warnings_about_a_run_are_in_its_output() {
    let mut world = World::new();
    world.submit();
    let opened = world.files.remove(0);
    world.handle(ControllerInput::Captured(opened, Ok(())));
    let job = JobId(1);
    let class = EndClass {
        status: ExitStatus::SUCCESS,
        drained: Drained::Leaky,
        ranks: RankSet::single(Rank(0)),
    };
    let classes = vec![class];
    world.says(ToController::Ended { job, classes });
    let spent = Usage::default();
    world.says(ToController::Clean { job, spent });
    let text = String::from_utf8(world.written.pop().unwrap().to_vec()).unwrap();
    insta::assert_snapshot!(text, @"
    warning: rank 0 has exited, but something still holds its output open
      effect: output that is written more than 1 s after the exit is lost
      help:   a process started in the background should close or redirect its stdout and stderr
    ");
    assert_eq!(world.state(job).0, State::Running, "it is not written yet");
    let written = world.files.remove(0);
    world.handle(ControllerInput::Captured(written, Ok(())));
    assert_eq!(world.state(job).0, State::Succeeded);
}
