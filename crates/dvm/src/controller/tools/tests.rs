//! Tools at the controller.

use base::{ExitStatus, ProcId, Rank, RankSet, Usage};
use bytes::Bytes;
use pmix::{
    codec::{Format, Writer},
    frame::Tag,
    keys,
    message::{GroupForm, Push, Request, Shape},
    server::KEPT_DEFAULT,
    value::{App, Info, Key, PmixRank, Proc, Value},
};

use super::*;
use crate::{
    controller::{
        ControllerInput, ControllerOutput,
        tests::{FRONT, JOB, World, to_daemons},
    },
    machine::Wall,
    proto::{
        AskId, Drained, EndClass, FromServer, Launch, Note, Refused, Started, ToController,
        ToDaemon, ToFront,
    },
    spec::ResourceLimits,
};

fn says(world: &mut World, node: u32, message: FromServer) -> Vec<ControllerOutput> {
    world.says(node, ToController::Server(Box::new(message)))
}

/// Lets a tool connect by this connection, and returns the decision.
fn connects(world: &mut World, conn: u64, name: Option<&str>) -> String {
    let visitor = Visitor {
        door: Door::Ours,
        name: name.map(|name| (name.to_owned(), 3)),
        pid: Some(77),
        command: None,
    };
    let outputs = says(world, 0, FromServer::ToolConnects { conn, visitor });
    to_daemons(outputs, |message| match message {
        ToDaemon::Server(message) => match *message {
            ToServer::ToolAdmitted {
                conn,
                result: Ok(named),
            } => Some(format!(
                "{conn} is tool {}, {}:{}",
                named.tool, named.nspace, named.rank
            )),
            ToServer::ToolAdmitted {
                conn,
                result: Err(status),
            } => Some(format!("{conn} is refused: {:?}", Status(status))),
            _ => None,
        },
        _ => None,
    })
}

/// Sends a request of a tool, and returns the status of the answer.
fn ask(world: &mut World, tool: u32, request: &Request) -> Status {
    let mut writer = Writer::new(Format::V4);
    request.encode(&mut writer);
    let ask = ToController::Ask {
        proc: ProcId {
            job: JobId(tool),
            rank: Rank(0),
        },
        ticket: AskId::Pmix(7),
        request: Bytes::from(writer.into_bytes()),
    };
    let shape = Shape::of(request.command(), GroupForm::Members);
    let outputs = world.says(0, ask);
    let answers = outputs.into_iter().filter_map(|output| match output {
        ControllerOutput::Daemon(NodeId(0), ToDaemon::Answer { answer, .. }) => Some(answer),
        _ => None,
    });
    let [answer] = &answers.collect::<Vec<_>>()[..] else {
        panic!("{request:?} is not answered once");
    };
    pmix::message::Answer::decode(Format::V4, shape, answer)
        .unwrap()
        .status()
}

fn publish(key: &str) -> Request {
    Request::Publish {
        uid: 0,
        infos: vec![Info::new(
            Key::new(&std::ffi::CString::new(key).unwrap()).unwrap(),
            Value::text("value"),
        )],
    }
}

#[test]
fn each_tool_has_a_number_that_no_job_has() {
    let mut world = World::new();
    assert_eq!(connects(&mut world, 5, None), "0: 5 is tool 2, test@2:0");
    assert_eq!(
        connects(&mut world, 6, Some("mine")),
        "0: 6 is tool 3, mine:3"
    );
    says(&mut world, 0, FromServer::ToolLeft { tool: JobId(2) });
    assert_eq!(connects(&mut world, 7, None), "0: 7 is tool 4, test@4:0");
}

#[test]
fn a_tool_has_no_name_of_ours_or_of_another_tool() {
    let mut world = World::new();
    connects(&mut world, 1, Some("mine"));
    for name in ["mine", "test", "test@1", "test@7"] {
        let refused = connects(&mut world, 2, Some(name));
        assert_eq!(refused, "0: 2 is refused: EXISTS", "{name}");
    }
    let admitted = connects(&mut world, 3, Some("tester"));
    assert_eq!(admitted, "0: 3 is tool 3, tester:3");
}

#[test]
fn so_many_tools_are_admitted_and_no_more() {
    let mut world = World::new();
    for conn in 0..TOOLS_MAX as u64 {
        connects(&mut world, conn, None);
    }
    let refused = "0: 999 is refused: RESOURCE_BUSY";
    assert_eq!(connects(&mut world, 999, None), refused);
    // A lost node takes its tools along.
    world.lose(0);
    assert!(world.controller.tools.is_empty());
}

#[test]
fn what_a_tool_has_published_goes_with_it() {
    let mut world = World::new();
    connects(&mut world, 1, Some("mine"));
    assert_eq!(ask(&mut world, 2, &publish("a")), Status::SUCCESS);
    assert_eq!(ask(&mut world, 2, &publish("a")), Status::DUPLICATE_KEY);
    says(&mut world, 0, FromServer::ToolLeft { tool: JobId(2) });
    connects(&mut world, 2, Some("mine"));
    assert_eq!(ask(&mut world, 3, &publish("a")), Status::SUCCESS);
}

/// Lets the job of the world run and end, and returns the events for the node of the tools.
fn ends(world: &mut World) -> Vec<Bytes> {
    let mut outputs = Vec::new();
    for node in 0..3 {
        let rank = Rank(node);
        let started = Started {
            executable: "/a.out".into(),
            pids: vec![(rank, 7)],
        };
        let class = EndClass {
            status: ExitStatus::SUCCESS,
            drained: Drained::Whole,
            ranks: RankSet::single(rank),
        };
        for message in [
            ToController::Launched {
                job: JOB,
                started: vec![started],
                failures: Vec::new(),
                unenforced: Vec::new(),
            },
            ToController::Ended {
                job: JOB,
                classes: vec![class],
            },
            ToController::Clean {
                job: JOB,
                spent: Usage::default(),
            },
        ] {
            outputs.extend(world.says(node, message));
        }
    }
    let events = outputs.into_iter().filter_map(|output| match output {
        ControllerOutput::Daemon(NodeId(0), ToDaemon::Event { event }) => Some(event),
        _ => None,
    });
    events.collect()
}

/// A job tells tools of its end, also if it was the last one; and does not wait for them.
#[test]
fn the_last_job_tells_tools_of_its_end() {
    let mut world = World::new();
    assert!(ends(&mut world).is_empty());
    let mut world = World::new();
    connects(&mut world, 1, None);
    assert_eq!(ends(&mut world).len(), 1);
    assert!(world.controller.is_idle());
}

/// An event about a job says when it was, if the time of day is known.
#[test]
fn the_end_of_a_job_has_a_time() {
    for (epoch, expected) in [(None, None), (Some(1_700_000_000_999), Some(1_700_000_000))] {
        let mut world = World::new();
        if let Some(epoch) = epoch {
            world.handle(ControllerInput::Epoch(Wall(epoch)));
        }
        connects(&mut world, 1, None);
        let [end] = &ends(&mut world)[..] else {
            panic!("not one event");
        };
        let event = Push::decode(Format::V4, Tag::Event, end).unwrap();
        let Some(Push::Event { infos, .. }) = event else {
            panic!("{event:?}");
        };
        let time = infos.iter().find(|info| info.key == *keys::EVENT_TIMESTAMP);
        let time = time.map(|info| info.value.as_count().unwrap());
        assert_eq!(time, expected);
    }
}

/// Lets tool 2 spawn a job, and returns its launch.
fn spawns(world: &mut World, infos: Vec<Info>, procs: i32) -> Launch {
    let app = App {
        command: Some(c"./b".to_owned()),
        maxprocs: procs,
        ..App::default()
    };
    let request = Request::Spawn {
        infos,
        apps: vec![app],
    };
    let mut writer = Writer::new(Format::V4);
    request.encode(&mut writer);
    let ask = ToController::Ask {
        proc: ProcId {
            job: JobId(2),
            rank: Rank(0),
        },
        ticket: AskId::Pmix(7),
        request: Bytes::from(writer.into_bytes()),
    };
    let outputs = world.says(0, ask);
    let launched = outputs.iter().find_map(|output| match output {
        ControllerOutput::Daemon(_, ToDaemon::Launch(launch)) => Some(launch.as_ref().clone()),
        _ => None,
    });
    launched.unwrap_or_else(|| panic!("{outputs:?}"))
}

fn info(key: &std::ffi::CStr, value: Value) -> Info {
    Info::new(Key::new(key).unwrap(), value)
}

/// What an agent executes are the programs of a job, and no daemons that come with the same directives.
#[test]
fn an_agent_executes_programs_and_no_daemons() {
    let mut world = World::new();
    connects(&mut world, 1, None);
    let agent = || info(keys::EXEC_AGENT, Value::text("checks -q"));
    let line = |launch: Launch| {
        let app = &launch.apps[0];
        let words = std::iter::once(&app.program).chain(&app.args);
        let words: Vec<String> = words.map(|word| word.display().to_string()).collect();
        words.join(" ")
    };
    let launched = spawns(&mut world, vec![agent()], 1);
    assert_eq!(
        launched.parent.as_ref().unwrap().keep.unwrap().bytes,
        KEPT_DEFAULT
    );
    assert_eq!(line(launched), "checks -q ./b");
    let daemons = info(keys::DEBUGGER_DAEMONS, Value::Bool(true));
    assert_eq!(line(spawns(&mut world, vec![agent(), daemons], 1)), "./b");
}

/// Daemons are where their targets are, also if the nodes have too few or too many slots for that.
#[test]
fn each_target_has_its_daemons() {
    let mut world = World::new();
    connects(&mut world, 1, None);
    let at_first = info(keys::HOST, Value::text("n0"));
    assert_eq!(spawns(&mut world, vec![at_first], 2).job, JobId(3));
    let proc = |nspace: &str, rank| Proc {
        nspace: Nspace::from_text(nspace).unwrap(),
        rank,
    };
    let targets = vec![
        proc("test@1", PmixRank(0)),
        proc("test@1", PmixRank(2)),
        proc("test@3", PmixRank::WILDCARD),
    ];
    let cases = [
        (keys::DEBUG_DAEMONS_PER_PROC, 1, vec![0, 0, 0, 2]),
        (
            keys::DEBUG_DAEMONS_PER_PROC,
            2,
            vec![0, 0, 0, 0, 0, 0, 2, 2],
        ),
        (keys::DEBUG_DAEMONS_PER_NODE, 1, vec![0, 2]),
        (keys::DEBUG_DAEMONS_PER_NODE, 3, vec![0, 0, 0, 2, 2, 2]),
    ];
    for (key, count, expected) in cases {
        let infos = vec![
            info(keys::DEBUG_TARGET, Value::procs(targets.clone())),
            info(key, Value::Uint16(count)),
            // It is not for them.
            info(keys::MAP_BY, Value::text("ppr:7:node")),
        ];
        let launch = spawns(&mut world, infos, 1);
        let nodes = (0..launch.size()).map(|rank| launch.map.node_of(Rank(rank)).unwrap().0);
        assert_eq!(nodes.collect::<Vec<_>>(), expected, "{key:?} {count}");
    }
}

/// The limits of a job are for its ranks, and what a debugger uses is not counted for the job.
#[test]
fn daemons_are_beside_their_targets_and_not_limited() {
    let limits = ResourceLimits {
        memory: Some(1 << 30),
        milli_cpus: Some(500),
    };
    let target = || {
        let target = Proc::all(Nspace::from_text("test@1").unwrap());
        info(keys::DEBUG_TARGET, Value::Proc(Box::new(target)))
    };
    let are_daemons = || info(keys::DEBUGGER_DAEMONS, Value::Bool(true));
    let cases = [
        (vec![target(), are_daemons()], Some(JOB), 0),
        (vec![target()], Some(JOB), 0),
        (Vec::new(), None, 10),
    ];
    for (infos, expected, added) in cases {
        let mut world = World::new();
        world.controller.jobs.get_mut(&JOB).unwrap().spec.limits = limits;
        connects(&mut world, 1, None);
        let launch = spawns(&mut world, infos, 1);
        assert_eq!((launch.debugged, launch.job_beside()), (expected, expected));
        let expected = expected.map_or(limits, |_| ResourceLimits::default());
        assert_eq!(launch.limits, expected);
        world.controller.measure(FRONT, &[(0, JOB)]);
        let outputs: Vec<_> = std::iter::from_fn(|| world.controller.poll()).collect();
        let is_measured = |output: &ControllerOutput| {
            matches!(
                output,
                ControllerOutput::Daemon(_, ToDaemon::Measure { job, .. }) if *job == launch.job
            )
        };
        assert_eq!(outputs.iter().any(is_measured), added > 0);
        let ranks = RankSet::range(0..launch.size());
        let nodes: Vec<_> = launch.map.nodes().map(|node| node.0).collect();
        for node in &nodes {
            let node = *node;
            let here = ranks
                .iter()
                .filter(|rank| launch.map.node_of(*rank).map(|of_rank| of_rank.0) == Some(node));
            let classes = vec![EndClass {
                status: ExitStatus::SUCCESS,
                drained: Drained::Whole,
                ranks: here.collect(),
            }];
            let job = launch.job;
            world.says(node, ToController::Ended { job, classes });
            let spent = Usage {
                read: 10,
                ..Usage::default()
            };
            world.says(node, ToController::Clean { job, spent });
        }
        assert!(!world.controller.jobs.contains_key(&launch.job));
        assert_eq!(world.controller.jobs[&JOB].spent.read, added);
    }
}

/// Notes about a job of a tool are not for the user, but those about strangers are, whichever job brings them.
#[test]
fn the_user_hears_of_strangers_at_the_end_of_the_job_of_a_tool() {
    let mut world = World::new();
    connects(&mut world, 1, None);
    let job = spawns(&mut world, Vec::new(), 1).job;
    let refused = |ranks| {
        Note::Refused(Refused {
            node: NodeId(0),
            ranks,
            count: 3,
            reasons: vec![("tools are refused".to_owned(), 3)],
        })
    };
    for (note, is_told) in [
        (refused(None), true),
        (refused(Some(RankSet::single(Rank(0)))), false),
        (Note::Leaky(RankSet::single(Rank(0))), false),
    ] {
        let note = Box::new(note);
        let said = ToController::Note {
            job,
            note: (*note).clone(),
        };
        let told = world.says(0, said).into_iter().any(|output| {
            matches!(output, ControllerOutput::Front(FRONT, ToFront::Note(told)) if told == *note)
        });
        assert_eq!(told, is_told, "{note:?}");
    }
}

/// A request cannot make the controller list millions of places.
#[test]
fn daemons_are_not_too_many() {
    let mut world = World::new();
    connects(&mut world, 1, None);
    let target = Proc::all(Nspace::from_text("test@1").unwrap());
    let request = |per_proc| Request::Spawn {
        infos: vec![
            info(keys::DEBUG_TARGET, Value::Proc(Box::new(target.clone()))),
            info(keys::DEBUG_DAEMONS_PER_PROC, Value::Uint32(per_proc)),
        ],
        apps: vec![App {
            command: Some(c"./b".to_owned()),
            maxprocs: 1,
            ..App::default()
        }],
    };
    // Three procs, so one more than the bound is the next multiple of three.
    let most = u32::try_from(base::MAX_HOSTS).unwrap();
    let status = ask(&mut world, 2, &request(most / 3 + 1));
    assert_eq!(status, Status::OUT_OF_RESOURCE);
}

/// What a tool has spawned ends with it, unless it said otherwise.
#[test]
fn jobs_of_a_tool_that_leaves_end() {
    for (nohup, expected) in [(false, true), (true, false)] {
        let mut world = World::new();
        connects(&mut world, 1, None);
        let stays = info(keys::NOHUP, Value::Bool(nohup));
        assert_eq!(spawns(&mut world, vec![stays], 1).job, JobId(3));
        let outputs = says(&mut world, 0, FromServer::ToolLeft { tool: JobId(2) });
        let is_ended = |output: &ControllerOutput| {
            matches!(
                output,
                ControllerOutput::Daemon(_, ToDaemon::End { job: JobId(3), .. })
            )
        };
        assert_eq!(outputs.iter().any(is_ended), expected, "{nohup}");
    }
}
