//! Where a run is placed, and what happens if its files hang.

use base::{ExitStatus, Rank, Signal, Topology, Usage};

use super::*;
use crate::{
    alloc::AllocatedNode,
    controller::{ControllerInput, spawned::tests::job, tests::hello},
    machine::{Down, Failure, OutputFiles, State, Submission, Wishes},
    place::{AppRequest, Request, TopologyDigest},
    proto::{ChunkEnd, Drained, EndClass, FromFront, Started, ToController, ToDaemon},
    spec::OnFailure,
};

/// Creates a controller of two nodes with so many cores, whose daemons have connected.
fn controller(cores: u32) -> Controller {
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
    outputs: Vec<ControllerOutput>,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            controller: controller(8),
            now: Time::ZERO,
            files: Vec::new(),
            outputs: Vec::new(),
        };
        let setup = Setup {
            name: "main".to_owned(),
            epoch: crate::machine::Wall(0),
            nodes: vec!["n0".to_owned(), "n1".to_owned()],
            local: None,
            stored: Vec::new(),
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
                ControllerOutput::CaptureStart(output, _)
                | ControllerOutput::Capture { output, .. } => self.files.push(output),
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
        let spec = job(OnFailure::EndJob);
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
