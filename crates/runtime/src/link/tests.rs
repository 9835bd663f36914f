//! Frames over a socket pair, and the encoding of every message.

mod seeds;

use std::os::fd::AsFd;

use base::{NodeId, RankSet, Signal, Topology};
use dvm::{
    alloc::{AllocatedNode, Slots},
    bootstrap::NotJoined,
    machine::{
        Added, Additions, Ask, Down, Explained, OutputFiles, Reason, Record, Reply, RunLine,
        Sooner, Start, Submission, Tasks, Wall, Way, Wishes,
    },
    place,
    prompts::{Asked, Prompt, PromptId, Secret},
    proto::{
        CannotRun, Cause, EndReason, HoldingJob, JobRef, NotReleased, Note, OnePer, Outcome,
        OutputCredit, PreloadProgress, RankChoice, Refusal, TableRow, ToolNews, ToolRequest,
    },
    queue::{Array, Dependency, DependencyKind, TaskId},
    spec::{
        App, EndPolicy, HoldPlan, JobSpec, Recorder, ResourceLimits, SetName, StdinTarget,
        StdioPlan, Tracers, WindowSize,
    },
};

use super::{
    shared::{PLACE, SHARED_MIN},
    *,
};

fn region() -> os::SharedRegion {
    os::SharedRegion::new(4096, 1).unwrap()
}

/// What follows the opening is received in the same read, and must not be lost.
#[test]
fn what_comes_with_the_opening_is_not_lost() {
    let (ours, theirs) = os::socket_pair().unwrap();
    let mut front = FrontLink::new(region().into_reader(), region().into_writer());
    let opening = Opening {
        allocation: Allocation { nodes: Vec::new() },
        daemons: None,
        recording: None,
        machine: Some(MachinePlan {
            name: "main".to_owned(),
            directory: "/home/u/.local/state/rally/h/main".into(),
            origin: String::new(),
            debugger: None,
            model: None,
            declared: dvm::machine::Declared::default(),
            limits: dvm::queue::Limits::default(),
        }),
        slurm: None,
    };
    front.open(&opening);
    front.send(FromFront::StdinEof);
    assert_eq!(front.flush(ours.as_fd()).unwrap(), Received::Open);
    let (opened, link) = receive_opening(theirs.as_fd()).unwrap().unwrap();
    assert_eq!(opened, opening);
    let mut controller = ControllerLink::new(link, region().into_writer(), region().into_reader());
    let next = controller.next_message().unwrap();
    assert_eq!(next, Some(FromFront::StdinEof));
    assert_eq!(controller.next_message().unwrap(), None);
}

#[test]
fn without_a_job_there_is_no_opening() {
    let (ours, theirs) = os::socket_pair().unwrap();
    drop(ours);
    assert!(receive_opening(theirs.as_fd()).unwrap().is_none());
}

/// A message that is too long ends the link: neither an empty frame in its place nor any later message is sent.
#[test]
fn what_cannot_be_sent_ends_the_link() {
    let (ours, theirs) = os::socket_pair().unwrap();
    let mut front = FrontLink::new(region().into_reader(), region().into_writer());
    front.flush(ours.as_fd()).unwrap();
    front.send(FromFront::Stdin(vec![0; wire::FRAME_MAX].into()));
    front.send(FromFront::StdinEof);
    let length = wire::FRAME_MAX + 1;
    let error = WireError::Length { length };
    let flushed = front.flush(ours.as_fd());
    assert!(matches!(flushed, Err(LinkError::Wire(why)) if why == error));
    assert!(front.next_message().is_err());
    let mut link = Link::default();
    link.receive(theirs.as_fd()).unwrap();
    assert!(matches!(link.frame(), Ok(None)), "nothing was sent");
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn job() -> JobSpec {
    JobSpec {
        needs: Default::default(),
        sets: SetName::try_from("ocean".to_owned())
            .map(|set| (0, set))
            .into_iter()
            .collect(),
        recorder: Recorder::On,
        limits: ResourceLimits {
            memory: Some(1 << 30),
            milli_cpus: Some(500),
        },
        map: dvm::spec::MapFor::Launch,
        watch: None,
        preload: None,
        apps: vec![App {
            program: "a".into(),
            args: vec!["x".into()],
            env: [("A", "1")].into_iter().collect(),
            directory: "/".into(),
            search: "/bin".into(),
            elsewhere: std::sync::Arc::default(),
            umask: 0o022,
            tracers: Tracers::Ancestors,
        }],
        placement: place::Request::default(),
        universe: None,
        stdin: StdinTarget::None,
        stdio: StdioPlan::default(),
        end: EndPolicy::default(),
        hold: HoldPlan::NOWHERE,
        variables: std::collections::BTreeSet::new(),
        gpus: None,
    }
}

/// Returns one of each message to the controller that is sent as postcard. Add every new one here.
fn from_front() -> Vec<FromFront> {
    let ranks = RankSet::range(0..3);
    let all = vec![
        FromFront::Submit(Box::new(job())),
        FromFront::StdinEof,
        FromFront::OutputCredit(OutputCredit {
            job: JobId(2),
            node: NodeId(3),
            stream: Stream::Stderr,
            bytes: 524_288,
        }),
        FromFront::Signal(Signal::INT),
        FromFront::End(EndReason::Signal(Signal::TERM)),
        FromFront::Kill(EndReason::TimeLimit),
        FromFront::Release {
            job: JobRef::OfFront(77),
            ranks: Some(ranks),
        },
        FromFront::Resize(WindowSize {
            rows: 24,
            columns: 80,
        }),
        FromFront::Holds,
        FromFront::Prompt(Asked::new("Password: ".to_owned(), None)),
        FromFront::Answer(PromptId(3), Secret::new(b"ab".to_vec())),
        FromFront::LostNodes,
        FromFront::SubmitBeside(Box::new(job())),
        FromFront::Ask(Box::new(Ask::Submit(Box::new(Submission {
            spec: Box::new(job()),
            name: "a".to_owned(),
            command: "./a 1".to_owned(),
            wishes: Wishes {
                array: Some(Array {
                    indexes: RankSet::range(1..1001),
                    running_max: Some(50),
                }),
                after: vec![Dependency {
                    on: JobId(3),
                    kind: DependencyKind::Succeeded,
                }],
                ..Wishes::default()
            },
            output: OutputFiles {
                stdout: "/home/u/rally-%j.out".into(),
                stderr: None,
            },
        })))),
        FromFront::Ask(Box::new(Ask::Cancel(JobId(17), Some(RankSet::range(3..5))))),
        FromFront::Ask(Box::new(Ask::Run(TaskId {
            job: JobId(17),
            index: Some(3),
        }))),
        FromFront::Ask(Box::new(Ask::Add(Box::new(Additions {
            nodes: vec![AllocatedNode {
                name: "n5".to_owned(),
                slots: Slots::Explicit(4),
                max_slots: None,
                granted: None,
            }],
            environment: vec!["SSH_AUTH_SOCK=/a".into()],
        })))),
        FromFront::Ask(Box::new(Ask::Drop(
            ["n5"].into_iter().collect(),
            Down::WhenIdle,
        ))),
        FromFront::StartTool(Box::new(ToolRequest {
            target: JobRef::OfFront(77),
            one_per: OnePer::Rank,
            spec: Box::new(job()),
        })),
    ];
    for message in &all {
        match message {
            FromFront::Submit(_)
            | FromFront::Stdin(_)
            | FromFront::StdinEof
            | FromFront::OutputCredit(_)
            | FromFront::Signal(_)
            | FromFront::End(_)
            | FromFront::Kill(_)
            | FromFront::Release { .. }
            | FromFront::Resize(_)
            | FromFront::Holds
            | FromFront::Prompt(_)
            | FromFront::Answer(..)
            | FromFront::LostNodes
            | FromFront::SubmitBeside(_)
            | FromFront::Ask(_)
            | FromFront::StartTool(_) => {}
        }
    }
    all
}

/// Returns one of each message to the front that is sent as postcard. Add every new one here.
fn failures() -> [CannotRun; 4] {
    [
        CannotRun::System("why".to_owned()),
        CannotRun::NoMachine("why".to_owned()),
        CannotRun::MachineRuns("name".to_owned()),
        CannotRun::ToolFile("why".to_owned()),
    ]
}

fn to_front() -> Vec<ToFront> {
    let ranks = RankSet::range(0..3);
    let mut all = vec![
        ToFront::Accepted(JobId(2)),
        ToFront::Refused(Refusal::NoSuchRank {
            what: RankChoice::Input,
            rank: Rank(7),
            size: 4,
        }),
        ToFront::Launched {
            job: JobId(2),
            name: "n@2".to_owned(),
            table: vec![TableRow {
                rank: Rank(0),
                host: "h".to_owned(),
                executable: "/a".into(),
                pid: 1000,
            }],
        },
        ToFront::AllHeld {
            held: ranks.clone(),
            dead: RankSet::new(),
        },
        ToFront::Released {
            job: JobId(2),
            ranks: ranks.clone(),
            held: RankSet::new(),
        },
        ToFront::NotReleased(NotReleased::NothingHeld),
        ToFront::Holding(vec![HoldingJob {
            job: JobId(2),
            front: Some(77),
        }]),
        ToFront::Ending(Cause::Ended(EndReason::TimeLimit)),
        ToFront::StdinCredit(65_536),
        ToFront::StdinClosed,
        ToFront::Note(Note::Leaky(ranks.clone())),
        ToFront::Ended(Outcome {
            cause: Cause::Success,
            size: 3,
            ended: vec![(base::ExitStatus::SUCCESS, ranks)],
            not_started: RankSet::new(),
            failed_on: Vec::new(),
            ended_by_us: RankSet::new(),
            left: RankSet::new(),
        }),
        ToFront::Internal("what".to_owned()),
        ToFront::Preloading(PreloadProgress {
            done: 1,
            total: 300,
            nodes: 2,
        }),
        placed(),
        ToFront::Prompt(Prompt {
            id: PromptId(3),
            host: "n1".to_owned(),
            asked: Asked::new("Touch the key".to_owned(), Some("none")),
        }),
        ToFront::PromptWithdrawn(PromptId(3)),
        ToFront::Answer(Secret::new(b"ab".to_vec())),
        ToFront::Lost(vec!["n1".to_owned()]),
        ToFront::Queued(JobId(17)),
        ToFront::Numbered(JobId(17)),
        ToFront::Tool(Box::new(ToolNews::Ended {
            job: JobId(2),
            cause: Cause::Ended(EndReason::TargetEnded),
        })),
    ];
    let replies = replies().into_iter();
    all.extend(replies.map(|reply| ToFront::Reply(Box::new(reply))));
    all.extend(failures().map(ToFront::Failed));
    for message in &all {
        match message {
            ToFront::Accepted(_)
            | ToFront::Refused(_)
            | ToFront::Launched { .. }
            | ToFront::AllHeld { .. }
            | ToFront::Released { .. }
            | ToFront::NotReleased(_)
            | ToFront::Holding(_)
            | ToFront::Ending(_)
            | ToFront::Output { .. }
            | ToFront::StdinCredit(_)
            | ToFront::StdinClosed
            | ToFront::Note(_)
            | ToFront::Ended(_)
            | ToFront::Failed(_)
            | ToFront::Internal(_)
            | ToFront::Preloading(_)
            | ToFront::Placed { .. }
            | ToFront::Prompt(_)
            | ToFront::PromptWithdrawn(_)
            | ToFront::Answer(_)
            | ToFront::Lost(_)
            | ToFront::Reply(_)
            | ToFront::Queued(_)
            | ToFront::Numbered(_)
            | ToFront::Tool(_) => {}
        }
    }
    all
}

/// Returns some answers of a machine.
fn replies() -> Vec<Reply> {
    let explained = Explained {
        record: record(),
        why: Reason::Head {
            waits_for: vec![TaskId {
                job: JobId(4),
                index: None,
            }],
        },
        ahead: vec![JobId(4)],
        ahead_count: 1,
        start: Start::At(Wall(1_800_000_000_000)),
        sooner: vec![Sooner::Units(3)],
    };
    vec![
        Reply::Submitted(JobId(17)),
        Reply::Jobs {
            records: vec![record()],
            before: Some(JobId(17)),
        },
        Reply::Explained(Box::new(explained)),
        Reply::Run(Some(RunLine {
            nspace: "rally-n1-e68e2a20-7039@21".to_owned(),
            hosts: ["n1", "n2"].into_iter().collect(),
        })),
        Reply::Added(Box::new(Added {
            joined: ["n5"].into_iter().collect(),
            there: ["n1"].into_iter().collect(),
            failed: NotJoined {
                classes: Vec::new(),
                nodes: 1,
                joined: 1,
            },
        })),
    ]
}

/// Returns the record of an array whose first tasks have run.
fn record() -> Record {
    Record {
        needs: Default::default(),
        id: JobId(17),
        way: Way::Detached,
        name: "a".to_owned(),
        command: "./a 1".to_owned(),
        wishes: Wishes::default(),
        slots: 4,
        time_limit: Some(std::time::Duration::from_secs(600)),
        submitted: Wall(1_799_999_000_000),
        started: Some(Wall(1_799_999_500_000)),
        ended: None,
        tasks: Tasks {
            waiting: RankSet::range(5..9),
            running: RankSet::range(3..5),
            succeeded: RankSet::range(0..3),
            ..Tasks::default()
        },
        hosts: ["n1", "n2"].into_iter().collect(),
        output: Some(OutputFiles {
            stdout: "/home/u/rally-%j.out".into(),
            stderr: None,
        }),
        failure: None,
        requeued: RankSet::new(),
        paused: RankSet::new(),
        spent: base::Usage::default(),
        requeues: std::collections::BTreeMap::new(),
    }
}

/// Returns the map of two ranks on nodes of one core.
fn placed() -> ToFront {
    let node = |name: &str| AllocatedNode {
        name: name.to_owned(),
        slots: Slots::Explicit(1),
        max_slots: None,
        granted: None,
    };
    let allocation = Allocation {
        nodes: vec![node("a"), node("b")],
    };
    let topologies = place::Topologies::uniform(Topology::flat(1));
    let app = place::AppRequest {
        count: Some(2),
        ..place::AppRequest::default()
    };
    let request = place::Request {
        apps: vec![app],
        ..place::Request::default()
    };
    ToFront::Placed {
        map: Box::new(place::place(&request, &allocation, &topologies).unwrap()),
        topologies: Box::new(topologies),
    }
}

/// The encoded messages of this version. If this test fails, increment `wire::VERSION`: a front that connects may be of
/// another build than the controller. Then `UPDATE_SEEDS=1` writes the seeds of the fuzz targets.
#[test]
fn every_message_of_this_version() {
    let mut said = vec![format!("version {}", wire::VERSION)];
    said.extend(
        from_front()
            .iter()
            .map(|it| hex(&wire::encode(it).unwrap())),
    );
    said.push("---".to_owned());
    said.extend(to_front().iter().map(|it| hex(&wire::encode(it).unwrap())));
    insta::assert_snapshot!(said.join("\n"), @"
    version 17
    0001000161010001780100014100013100012f00042f62696e00001200000000000000000000000000000000000005000000000100000000000001808080800401f4030000000100056f6365616e01
    02
    03020301808020
    0404
    05001e
    0602
    07024d0101000201
    081850
    09
    0a000a50617373776f72643a20
    0b0301026162
    0c
    0d01000161010001780100014100013100012f00042f62696e00001200000000000000000000000000000000000005000000000100000000000001808080800401f4030000000100056f6365616e01
    0e0201000161010001780100014100013100012f00042f62696e00001200000000000000000000000000000000000005000000000100000000000001808080800401f4030000000100056f6365616e010161052e2f61203100010302010101e70701013200000000142f686f6d652f752f72616c6c792d256a2e6f757400
    0e0a110101030101
    0e07110103
    0e1201026e35010400000100105353485f415554485f534f434b3d2f61
    0e13026e3501
    0f024d0101000161010001780100014100013100012f00042f62696e00001200000000000000000000000000000000000005000000000100000000000001808080800401f4030000000100056f6365616e01
    ---
    0002
    0105000704
    0202036e40320100016800022f61d00f
    030100020100
    04020100020100
    0501
    060102014d
    070802
    09808004
    0a
    0b0201000201
    0c00030100000100020100000000
    0e0477686174
    0f01ac0202
    10010002010205000000000002000000000100020001010100000100000001010000000100000000000101000000010000
    1103026e31030d546f75636820746865206b6579
    1203
    1301026162
    1401026e31
    1611
    1811
    170202080b
    150111
    15020111010161052e2f6120310000000000000401d80400c09bb4c2b13401e0ddd2c2b134000105030101030101010002010000066e5b312d325d0100142f686f6d652f752f72616c6c792d256a2e6f7574000000000000000000000000000111
    150411010161052e2f6120310000000000000401d80400c09bb4c2b13401e0ddd2c2b134000105030101030101010002010000066e5b312d325d0100142f686f6d652f752f72616c6c792d256a2e6f757400000000000000000000000000070104000104010080a0f1c2b134010203
    1506011972616c6c792d6e312d65363865326132302d37303339403231066e5b312d325d
    150b026e35026e31000101
    0d0203776879
    0d0103776879
    0d00046e616d65
    0d0303776879
    ");
}

/// A front without shared memory gets the bytes in the frame, even if they lie in a slot.
#[test]
fn what_is_not_shared_travels_in_the_frame() {
    let (ours, theirs) = os::socket_pair().unwrap();
    for end in [&ours, &theirs] {
        os::set_nonblocking(end.as_fd()).unwrap();
    }
    let mut controller = ControllerLink::inline();
    let mut front = FrontLink::inline();
    let chunk = Chunk {
        job: JobId(2),
        rank: Rank(5),
        stream: Stream::Stderr,
        bytes: Bytes::from(vec![b'x'; SHARED_MIN]),
        end: ChunkEnd::Partial,
    };
    let node = NodeId(3);
    let output = ToFront::Output { node, chunk };
    controller.send(output.clone());
    controller.flush(ours.as_fd()).unwrap();
    let arrived = loop {
        front.link.receive(theirs.as_fd()).unwrap();
        if let Some(message) = front.next_message().unwrap() {
            break message;
        }
    };
    assert_eq!(arrived, output);
}

/// Output of another node lies in memory of the controller alone. It is copied into a slot while one is free.
#[test]
fn output_from_elsewhere_is_passed_in_a_slot() {
    let (ours, theirs) = os::socket_pair().unwrap();
    for end in [&ours, &theirs] {
        os::set_nonblocking(end.as_fd()).unwrap();
    }
    let region = || os::SharedRegion::new(2 * SHARED_MIN, 1).unwrap();
    let mut controller = ControllerLink::new(
        Link::default(),
        region().into_writer(),
        region().into_reader(),
    );
    let chunk = Chunk {
        job: JobId(2),
        rank: Rank(5),
        stream: Stream::Stdout,
        bytes: Bytes::from(vec![b'x'; SHARED_MIN]),
        end: ChunkEnd::Line,
    };
    let node = NodeId(3);
    controller.send(ToFront::Output { node, chunk });
    controller.flush(ours.as_fd()).unwrap();
    let mut front = Link::of(End::Front);
    front.receive(theirs.as_fd()).unwrap();
    let (kind, body) = front.frame().unwrap().unwrap();
    assert_eq!(
        (kind, body.len()),
        (KIND_OUTPUT_SHARED, OUTPUT_HEAD + PLACE)
    );
    // The only slot is lent.
    assert_eq!(controller.memory.slot().map(|slot| slot.index()), None);
}

/// A place from a peer that shares no memory with us is refused.
#[test]
fn a_place_from_a_front_that_has_connected_breaks_the_link() {
    for kind in [KIND_STDIN_SHARED, KIND_RELEASE] {
        let (ours, theirs) = os::socket_pair().unwrap();
        let mut link = Link::default();
        link.push(kind, &[0; PLACE], Bytes::new());
        link.flush(ours.as_fd()).unwrap();
        let mut controller = ControllerLink::inline();
        controller.link.receive(theirs.as_fd()).unwrap();
        let error = controller.next_message().unwrap_err();
        assert!(matches!(error, LinkError::Malformed(_)), "{error}");
    }
}
