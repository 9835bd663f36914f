//! A job that waits for a tool.

use std::{
    ffi::{CStr, OsStr},
    time::Duration,
};

use base::{ExitStatus, RankSet, Usage};
use pmix::{
    codec::Writer,
    frame::Tag,
    message::Push,
    value::{Envar, InfoFlags, Key, Range},
};

use super::*;
use crate::{
    controller::{
        ControllerInput, ControllerOutput,
        job::{LoggedNews, StartNews, WhenItLeaves},
        spawned::cospawn::Partner,
        tests::{FRONT, JOB, NODES, World, hello},
    },
    proto::{
        Chunk, ChunkEnd, Door, Drained, Dropped, EndClass, FromFront, FromServer, JobNews, Keeping,
        Launch, Relation, Started, Stream, ToController, ToDaemon, ToServer, Visitor,
    },
};

const TOOL: ProcId = ProcId {
    job: JobId(2),
    rank: Rank(0),
};

fn info(key: &CStr, value: Value) -> Info {
    Info::new(Key::new(key).unwrap(), value)
}

fn started(directives: &[Info]) -> Control {
    let mut writer = Writer::new(Format::V4);
    writer.list(directives);
    Control::Started {
        directives: writer.into_bytes().into(),
    }
}

/// Creates a world whose job waits for a tool. All daemons have joined.
fn controlled(control: Control) -> (World, Vec<ControllerOutput>) {
    let mut world = World::after(Some(ControllerInput::Controlled(control)));
    let mut outputs = Vec::new();
    for node in 0..NODES {
        outputs.extend(world.says(node, hello(node)));
    }
    (world, outputs)
}

fn says(world: &mut World, message: FromServer) -> Vec<ControllerOutput> {
    world.says(0, ToController::Server(Box::new(message)))
}

fn connects(world: &mut World, door: Door) -> Vec<ControllerOutput> {
    let visitor = Visitor {
        name: Some(("vm:7".to_owned(), 0)),
        pid: None,
        command: None,
        door,
    };
    says(world, FromServer::ToolConnects { conn: 1, visitor })
}

/// Returns true if a tool is told that the launcher is ready.
fn is_ready(outputs: &[ControllerOutput]) -> bool {
    let mut events = outputs.iter().filter_map(|output| match output {
        ControllerOutput::Daemon(NodeId(0), ToDaemon::Event { event }) => Some(event),
        _ => None,
    });
    events.any(|event| {
        let event = Push::decode(Format::V4, Tag::Event, event).unwrap();
        matches!(
            event,
            Some(Push::Event {
                status: Status::LAUNCHER_READY,
                range: Some(Range::CUSTOM),
                ..
            })
        )
    })
}

fn releases(world: &mut World) -> Vec<ControllerOutput> {
    says(world, FromServer::LauncherReleased { by: TOOL })
}

fn launch(outputs: &[ControllerOutput]) -> Option<&Launch> {
    outputs.iter().find_map(|output| match output {
        ControllerOutput::Daemon(_, ToDaemon::Launch(launch)) => Some(&**launch),
        _ => None,
    })
}

fn refusal(outputs: &[ControllerOutput]) -> Option<&Refusal> {
    outputs.iter().find_map(|output| match output {
        ControllerOutput::Front(FRONT, ToFront::Refused(refusal)) => Some(refusal),
        _ => None,
    })
}

#[test]
fn a_job_waits_for_the_release_and_takes_the_directives() {
    let variable = Envar {
        name: Some(c"COLOR".into()),
        value: Some(c"blue".into()),
        separator: b':',
    };
    let directives = [
        info(keys::STOP_IN_INIT, Value::Bool(true)),
        info(keys::FWD_STDOUT, Value::Bool(true)),
        info(keys::SET_ENVAR, Value::Envar(Box::new(variable))),
        info(keys::EXEC_AGENT, Value::text("checks -q")),
        info(keys::IOF_CACHE_SIZE, Value::Uint32(100)),
        info(c"pmix.unknown", Value::Bool(true)),
    ];
    let (mut world, outputs) = controlled(started(&directives));
    assert!(launch(&outputs).is_none());
    let outputs = connects(&mut world, Door::Theirs);
    assert!(launch(&outputs).is_none());
    assert!(is_ready(&outputs));
    let released = releases(&mut world);
    let launched = launch(&released).expect("the job is launched");
    assert_eq!(launched.hold.at, HoldAt::Init);
    let env = &launched.apps[0].env;
    assert_eq!(env.get(OsStr::new("COLOR")), Some(OsStr::new("blue")));
    let parent = launched.parent.as_ref().unwrap();
    assert_eq!(parent.relation, Relation::Controller);
    assert_eq!((parent.proc, parent.nspace.as_str()), (TOOL, "vm:7"));
    assert_eq!(parent.forward, [Stream::Stdout]);
    let (bytes, dropped) = (100, Dropped::Newest);
    assert_eq!(parent.keep, Some(Keeping { bytes, dropped }));
    assert_eq!(launched.apps[0].program, "checks");
    assert_eq!(launched.apps[0].args[0], "-q");
    // What is forwarded is not printed.
    let mut printed = |stream| {
        let chunk = Chunk {
            job: JOB,
            rank: Rank(1),
            stream,
            bytes: "text\n".into(),
            end: ChunkEnd::Line,
        };
        let outputs = world.says(1, ToController::Output { job: JOB, chunk });
        let mut outputs = outputs.iter();
        outputs.any(|output| {
            matches!(
                output,
                ControllerOutput::Front(FRONT, ToFront::Output { .. })
            )
        })
    };
    assert!(!printed(Stream::Stdout));
    assert!(printed(Stream::Stderr));
    // A second release does nothing.
    assert!(launch(&releases(&mut world)).is_none());
}

#[test]
fn only_the_tool_that_may_release_it_is_told_that_the_launcher_is_ready() {
    let (mut world, _) = controlled(started(&[]));
    assert!(!is_ready(&connects(&mut world, Door::Ours)));
    says(&mut world, FromServer::ToolLeft { tool: TOOL.job });
    assert!(is_ready(&connects(&mut world, Door::Theirs)));
}

#[test]
fn without_its_tool_a_job_is_refused() {
    let ends: [fn(&mut World) -> Vec<ControllerOutput>; 2] = [
        |world| says(world, FromServer::ToolLeft { tool: TOOL.job }),
        |world| world.handle(ControllerInput::ControllingToolDied),
    ];
    for end in ends {
        let (mut world, _) = controlled(started(&[]));
        connects(&mut world, Door::Theirs);
        assert_eq!(refusal(&end(&mut world)), Some(&Refusal::ToolEnded));
        assert!(launch(&releases(&mut world)).is_none());
    }
    // It may die before its connection is known here.
    let (mut world, _) = controlled(started(&[]));
    let outputs = world.handle(ControllerInput::ControllingToolDied);
    assert_eq!(refusal(&outputs), Some(&Refusal::ToolEnded));
}

#[test]
fn the_death_of_the_tool_ends_a_job_that_runs_unless_it_is_to_go_on() {
    let is_ended = |outputs: Vec<ControllerOutput>| {
        let mut outputs = outputs.iter();
        outputs.any(|output| matches!(output, ControllerOutput::Daemon(_, ToDaemon::End { .. })))
    };
    for (directives, ends) in [
        (Vec::new(), true),
        (vec![info(keys::NOHUP, Value::Bool(true))], false),
    ] {
        let (mut world, _) = controlled(started(&directives));
        connects(&mut world, Door::Theirs);
        assert!(launch(&releases(&mut world)).is_some());
        // The end of its connection says nothing.
        assert!(!is_ended(says(
            &mut world,
            FromServer::ToolLeft { tool: TOOL.job }
        )));
        let outputs = world.handle(ControllerInput::ControllingToolDied);
        assert_eq!(is_ended(outputs), ends, "{directives:?}");
    }
}

/// What is kept begins with the first output, also of nodes that start the job before the server of the tool has asked for it.
#[test]
fn output_is_kept_from_the_start() {
    for (directives, copied) in [
        (Vec::new(), false),
        (vec![info(keys::IOF_CACHE_SIZE, Value::Uint32(100))], true),
    ] {
        let (mut world, _) = controlled(started(&directives));
        connects(&mut world, Door::Theirs);
        releases(&mut world);
        let chunk = Chunk {
            job: JOB,
            rank: Rank(1),
            stream: Stream::Stderr,
            bytes: "text\n".into(),
            end: ChunkEnd::Line,
        };
        let outputs = world.says(1, ToController::Output { job: JOB, chunk });
        let mut outputs = outputs.iter();
        let is_copied = outputs.any(|output| {
            matches!(
                output,
                ControllerOutput::Daemon(NodeId(0), ToDaemon::Server(message))
                    if matches!(**message, ToServer::Output { .. })
            )
        });
        assert_eq!(is_copied, copied, "{directives:?}");
    }
}

/// The front may submit its job only when the tool has released the launcher and died.
#[test]
fn a_job_that_comes_after_the_death_of_its_tool_is_refused() {
    let spec = || crate::controller::spawned::tests::job(crate::spec::OnFailure::Continue);
    for (directives, refused) in [
        (Vec::new(), true),
        (vec![info(keys::NOHUP, Value::Bool(true))], false),
    ] {
        let mut world = World::empty(Some(ControllerInput::Controlled(started(&directives))));
        for node in 0..NODES {
            world.says(node, hello(node));
        }
        connects(&mut world, Door::Theirs);
        releases(&mut world);
        world.handle(ControllerInput::ControllingToolDied);
        world.connects(FRONT, 77);
        let outputs = world.hears(FRONT, FromFront::Submit(Box::new(spec())));
        let expected = refused.then_some(&Refusal::ToolEnded);
        assert_eq!(refusal(&outputs), expected, "{directives:?}");
        assert_eq!(launch(&outputs).is_none(), refused, "{directives:?}");
    }
}

#[test]
fn any_tool_ends_a_pause() {
    let mut world = World::after(Some(ControllerInput::Controlled(Control::Pause)));
    for node in 0..NODES {
        assert!(launch(&world.says(node, hello(node))).is_none());
    }
    assert!(is_ready(&connects(&mut world, Door::Ours)));
    says(&mut world, FromServer::ToolLeft { tool: TOOL.job });
    let visitor = Visitor {
        name: None,
        pid: None,
        command: None,
        door: Door::Ours,
    };
    says(&mut world, FromServer::ToolConnects { conn: 2, visitor });
    let by = ProcId {
        job: JobId(3),
        rank: Rank(0),
    };
    let outputs = says(&mut world, FromServer::LauncherReleased { by });
    let parent = launch(&outputs).unwrap().parent.as_ref().unwrap();
    assert_eq!((parent.proc, &parent.forward[..]), (by, &[][..]));
}

#[test]
fn the_time_limit_begins_with_the_release() {
    let limit = Duration::from_secs(60);
    let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
    let control = ControllerInput::Controlled(started(&[]));
    let mut world = World::limited(Some(control), Some(limit));
    for node in 0..NODES {
        world.says(node, hello(node));
    }
    connects(&mut world, Door::Theirs);
    assert_eq!(world.controller.deadline(), None);
    world.at(at(100));
    assert!(launch(&releases(&mut world)).is_some());
    assert_eq!(world.controller.deadline(), Some(at(160)));
}

#[test]
fn what_cannot_be_carried_out_is_refused() {
    let mut unknown = info(c"pmix.unknown", Value::Bool(true));
    unknown.flags = InfoFlags::REQUIRED;
    let cases = [
        (unknown, "pmix.unknown"),
        (info(keys::MAP_BY, Value::text("chance")), "pmix.mapby"),
        (info(keys::STOP_ON_EXEC, Value::text("x")), "pmix.dbg.init"),
        (info(keys::EXEC_AGENT, Value::text(" ")), "pmix.exec.agnt"),
        (
            info(keys::IOF_CACHE_SIZE, Value::text("x")),
            "pmix.iof.csize",
        ),
    ];
    for (directive, key) in cases {
        let (mut world, _) = controlled(started(&[directive]));
        connects(&mut world, Door::Theirs);
        let outputs = releases(&mut world);
        let Some(Refusal::Directive(said)) = refusal(&outputs) else {
            panic!("{key}: {outputs:?}");
        };
        assert_eq!(said, key);
    }
}

#[test]
fn agents_beside_a_job_do_not_wait() {
    // Only the first front's job is controlled: `dbgr` starts its agents as a job of another one.
    let (mut world, _) = controlled(started(&[info(keys::STOP_IN_INIT, Value::Bool(true))]));
    connects(&mut world, Door::Theirs);
    releases(&mut world);
    let job = crate::controller::spawned::tests::job(crate::spec::OnFailure::Continue);
    world.connects(FrontId(5), 88);
    let beside = FromFront::SubmitBeside(Box::new(job));
    let outputs = world.hears(FrontId(5), beside);
    let launch = launch(&outputs).unwrap();
    assert_eq!(
        (launch.hold.at, launch.parent.is_none()),
        (HoldAt::Nowhere, true)
    );
}

/// The front prints what the tool wants to be logged of its job.
#[test]
fn the_start_and_the_end_are_logged() {
    let set = |key| info(key, Value::Bool(true));
    for (directives, expected) in [
        (vec![], &[][..]),
        (vec![set(keys::LOG_COMPLETION)], &["ended 0"]),
        (vec![set(keys::LOG_JOB_EVENTS)], &["started", "ended 0"]),
    ] {
        let (mut world, _) = controlled(started(&directives));
        connects(&mut world, Door::Theirs);
        let mut outputs = releases(&mut world);
        for node in 0..NODES {
            let started = vec![Started {
                executable: "./a".into(),
                pids: vec![(Rank(node), 7)],
            }];
            let launched = ToController::Launched {
                job: JOB,
                started,
                failures: Vec::new(),
                unenforced: Vec::new(),
            };
            outputs.extend(world.says(node, launched));
        }
        for node in 0..NODES {
            let classes = vec![EndClass {
                status: ExitStatus::SUCCESS,
                drained: Drained::Whole,
                ranks: RankSet::single(Rank(node)),
            }];
            outputs.extend(world.says(node, ToController::Ended { job: JOB, classes }));
            let spent = Usage::default();
            outputs.extend(world.says(node, ToController::Clean { job: JOB, spent }));
        }
        let mut is_over = false;
        let mut logged = Vec::new();
        for output in &outputs {
            match output {
                ControllerOutput::Front(FRONT, ToFront::Note(Note::Logged { job, news, .. })) => {
                    assert_eq!((*job, is_over), (JOB, false));
                    logged.push(match news {
                        JobNews::Started { .. } => "started".to_owned(),
                        JobNews::Ended { code, .. } => format!("ended {code}"),
                    });
                }
                ControllerOutput::Front(FRONT, ToFront::Ended(_)) => is_over = true,
                _ => {}
            }
        }
        assert!(is_over);
        assert_eq!(logged, expected, "{directives:?}");
    }
}

/// A tool may spawn a job while the launcher waits. It belongs to the job that waits, and does not outlive it.
#[test]
fn what_a_tool_has_spawned_ends_with_the_job_that_waits() {
    let signal = FromFront::Signal(base::Signal::INT);
    for end in [
        ControllerInput::ControllingToolDied,
        ControllerInput::Front(FRONT, signal),
    ] {
        let (mut world, _) = controlled(Control::Pause);
        connects(&mut world, Door::Ours);
        let spec = crate::controller::spawned::tests::job(crate::spec::OnFailure::EndJob);
        let origin = Origin::Spawned {
            by: TOOL,
            asker: None,
            forward: Vec::new(),
            keep: None,
            preput: None,
            wanted: Vec::new(),
            told: Bytes::new(),
            debugged: None,
            spawner: Spawner::Tool(WhenItLeaves::GoOn),
            start: StartNews::Untold,
            log: LoggedNews::Nothing,
            partner: Partner::Nothing,
        };
        let controller = &mut world.controller;
        controller.add(Time::ZERO, Box::new(spec), origin, FRONT, JOB);
        let spawned = JobId(3);
        assert!(controller.jobs.contains_key(&spawned));
        let outputs = world.handle(end);
        let is_ended = |output: &ControllerOutput| matches!(output, ControllerOutput::Daemon(_, ToDaemon::End { job, .. }) if *job == spawned);
        assert!(outputs.iter().any(is_ended), "{outputs:?}");
    }
}

/// Nobody else knows of the ranks that the directives of a tool hold. Those that the user holds stay held.
#[test]
fn ranks_that_directives_hold_run_when_the_tool_is_gone() {
    let stop = || info(keys::STOP_ON_EXEC, Value::Bool(true));
    let goes_on = || info(keys::NOHUP, Value::Bool(true));
    let gone = || FromServer::ToolLeft { tool: TOOL.job };
    let releases_ranks = |outputs: &[ControllerOutput]| {
        let mut all = outputs.iter();
        all.any(|output| {
            matches!(
                output,
                ControllerOutput::Daemon(_, ToDaemon::Release { .. })
            )
        })
    };
    for directives in [vec![stop()], vec![stop(), goes_on()]] {
        let (mut world, _) = controlled(started(&directives));
        connects(&mut world, Door::Theirs);
        let outputs = releases(&mut world);
        assert_eq!(launch(&outputs).unwrap().hold.at, HoldAt::Exec);
        for node in 0..NODES {
            let ranks = RankSet::single(Rank(node));
            world.says(node, ToController::Held { job: JOB, ranks });
        }
        assert!(releases_ranks(&says(&mut world, gone())));
    }
    // The user says where ranks are held.
    let (mut world, _) = controlled(started(&[]));
    let id = JOB;
    world.controller.jobs.get_mut(&id).unwrap().spec.hold.at = HoldAt::Exec;
    connects(&mut world, Door::Theirs);
    let outputs = releases(&mut world);
    assert_eq!(launch(&outputs).unwrap().hold.at, HoldAt::Exec);
    assert!(!releases_ranks(&says(&mut world, gone())));
}
