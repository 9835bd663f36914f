//! Tools, from the handshake to the end of their connection.

use pmix::{
    handshake::{ConnectorKind, Owner, Welcome},
    keys,
    message::{Answer, Push, Request},
    server::{
        Conn, Door, Elsewhere, Event, Input, NodeFacts, Output, PeerOwner, Redirected, Refusal,
    },
    value::{Info, IofChannels, Proc, Query, Range, Status, Text, Value},
};

use crate::world::{
    KILLED, Tongue, UID, V5, V6, V42, World, all, hello, info, job, key, nspace, proc,
};

/// Lets a tool say hello: with its name, or without one.
fn greet(world: &mut World, kind: ConnectorKind, name: Option<Proc>, tongue: Tongue) -> Conn {
    let mut hello = hello("a", 0, tongue);
    hello.kind = kind;
    hello.owner = Some(Owner { uid: UID, gid: UID });
    hello.proc = name;
    let conn = world.accept(PeerOwner::Uid(UID));
    world.hello(conn, &hello);
    conn
}

/// Lets a tool connect that gets this name.
pub(crate) fn connect(world: &mut World, name: &str, tongue: Tongue) -> Conn {
    let conn = greet(world, ConnectorKind::Tool, None, tongue);
    let name = Ok(proc(name, 0));
    world.handle(Input::ToolAdmitted { conn, name });
    conn
}

#[test]
fn a_tool_that_has_started_the_launcher_is_served_when_the_host_has_decided() {
    let mut world = World::with_door();
    let tool = proc("caller", 0);
    let conn = world.call(tool.clone());
    assert_eq!(world.visitors.len(), 1);
    assert_eq!(world.visitors[0].1.door, Door::Theirs);
    // What it has sent before is answered then.
    let tag = world.send(conn, &Request::JobInfo);
    assert_eq!(world.answer(conn, tag), None);
    let name = Ok(tool.clone());
    world.handle(Input::ToolAdmitted { conn, name });
    assert!(matches!(
        world.answer(conn, tag),
        Some(Answer::JobInfo { .. })
    ));
    world.close(conn);
    assert_eq!(world.left, std::slice::from_ref(&tool));
    // A refusal closes the connection, without a word.
    let conn = world.call(tool);
    let name = Err(Status::EXISTS);
    world.handle(Input::ToolAdmitted { conn, name });
    assert!(!world.is_open(conn));
    world.assert_no_state_left();
}

fn table_of(job: &str) -> Request {
    Request::Query {
        queries: vec![Query {
            keys: vec![Text::Some(keys::QUERY_PROC_TABLE.to_owned())],
            qualifiers: vec![info(keys::NSPACE, Value::text(job))],
        }],
    }
}

#[test]
fn a_tool_is_welcome_when_the_host_has_decided() {
    let given = proc("mine", 3);
    let kinds = [
        (ConnectorKind::Tool, None),
        (ConnectorKind::Launcher, None),
        (ConnectorKind::NamedTool, Some(given.clone())),
        (ConnectorKind::NamedLauncher, Some(given.clone())),
        (ConnectorKind::Scheduler, Some(given)),
    ];
    for (kind, name) in kinds {
        let mut world = World::with_door();
        let conn = greet(&mut world, kind, name.clone(), V5);
        assert_eq!(world.visitors.len(), 1, "{kind:?}");
        assert_eq!(world.visitors[0].1.name, name);
        assert_eq!(world.welcome(conn), None);
        let admitted = name.clone().unwrap_or_else(|| proc("tool", 0));
        let assigned = name.is_none().then(|| admitted.clone());
        world.handle(Input::ToolAdmitted {
            conn,
            name: Ok(admitted.clone()),
        });
        let Some(Welcome::Tool {
            assigned: told,
            server,
            security: Status::SUCCESS,
        }) = world.welcome(conn)
        else {
            panic!("{kind:?}: {:?}", world.welcome(conn));
        };
        assert_eq!((told, server), (assigned, proc("server", 0)), "{kind:?}");
        let Answer::JobInfo { nspace, facts } = world.ask(conn, &Request::JobInfo) else {
            panic!("{kind:?}");
        };
        assert_eq!((nspace, facts.len()), (admitted.nspace.clone(), 0));
        world.finalize(conn);
        assert_eq!(world.left, [admitted]);
        world.assert_no_state_left();
    }
}

#[test]
fn who_is_not_welcome_is_told_and_closed() {
    let taken = |name: &str| Refusal::NameTaken(proc(name, 7));
    let cases = [
        (ConnectorKind::LegacyTool, None, Refusal::LegacyTool),
        (ConnectorKind::LegacyLauncher, None, Refusal::LegacyTool),
        (ConnectorKind::NamedTool, Some("a"), taken("a")),
        (ConnectorKind::NamedLauncher, Some("other"), taken("other")),
        (ConnectorKind::NamedTool, Some("waits"), taken("waits")),
        (ConnectorKind::NamedTool, Some("server"), taken("server")),
    ];
    for (kind, name, refusal) in cases {
        let mut world = World::with_door();
        let other = connect(&mut world, "other", V5);
        let waiting = Some(proc("waits", 0));
        greet(&mut world, ConnectorKind::NamedTool, waiting, V5);
        let conn = greet(&mut world, kind, name.map(|name| proc(name, 7)), V5);
        assert!(!world.is_open(conn), "{kind:?}");
        assert_eq!(world.refusals, [refusal]);
        assert!(world.is_open(other));
    }
    let mut world = World::with_door();
    let conn = greet(&mut world, ConnectorKind::Tool, None, V5);
    let name = Err(Status::RESOURCE_BUSY);
    world.handle(Input::ToolAdmitted { conn, name });
    assert_eq!(
        world.welcome(conn),
        Some(Welcome::Refused(Status::RESOURCE_BUSY))
    );
    assert!(!world.is_open(conn));
    assert_eq!(world.left, []);
    world.assert_no_state_left();
}

#[test]
fn a_tool_that_goes_on_or_leaves_before_it_is_admitted_is_forgotten() {
    let mut world = World::with_door();
    let hasty = greet(&mut world, ConnectorKind::Tool, None, V5);
    world.bytes(hasty, b"x");
    assert!(!world.is_open(hasty));
    assert_eq!(world.refusals, [Refusal::TooEarly]);
    let gone = greet(&mut world, ConnectorKind::Tool, None, V5);
    world.close(gone);
    for conn in [hasty, gone] {
        let name = Ok(proc("late", 0));
        world.handle(Input::ToolAdmitted { conn, name });
        assert_eq!(world.welcome(conn), None);
        // The host has admitted it.
        assert_eq!(world.left, [proc("late", 0)]);
        world.left.clear();
    }
    let gone = greet(&mut world, ConnectorKind::Tool, None, V5);
    world.close(gone);
    world.handle(Input::ToolAdmitted {
        conn: gone,
        name: Err(Status::RESOURCE_BUSY),
    });
    assert_eq!(world.left, []);
    world.assert_no_state_left();
}

#[test]
fn a_tool_asks_hears_and_orders() {
    for tongue in [V42, V5, V6] {
        let mut world = World::with_door();
        let conn = connect(&mut world, "tool", tongue);
        let Answer::Infos { infos, .. } = world.ask(conn, &table_of("a")) else {
            panic!();
        };
        assert_eq!(infos.len(), 1);
        // Without the name of a job, there is no table: the tool has no job.
        let mut unnamed = table_of("a");
        if let Request::Query { queries } = &mut unnamed {
            queries[0].qualifiers.clear();
        }
        assert_eq!(world.status_of(conn, &unnamed), Status::NOT_FOUND);
        assert_eq!(world.status_of(conn, &table_of("nope")), Status::NOT_FOUND);
        let pull = Request::IofPull {
            procs: vec![all("a")],
            infos: Vec::new(),
            channels: IofChannels::STDOUT,
            id: 9,
        };
        assert_eq!(world.status_of(conn, &pull), Status::SUCCESS);
        assert_eq!(world.wanted, [(nspace("a"), IofChannels::STDOUT)]);
        world.handle(Input::Output {
            proc: proc("a", 1),
            channels: IofChannels::STDOUT,
            bytes: "line\n".into(),
        });
        let pushes = world.pushes(conn);
        assert!(
            matches!(&pushes[..], [Push::Output { id: 9, .. }]),
            "{pushes:?}"
        );
        world.register(conn, &[Status::EVENT_JOB_END]);
        world.handle(Input::Event(Box::new(Event {
            status: Status::EVENT_JOB_END,
            source: proc("a", 0),
            range: Range::SESSION,
            infos: vec![info(
                keys::EVENT_AFFECTED_PROC,
                Value::Proc(Box::new(all("a"))),
            )],
        })));
        assert_eq!(world.codes(conn), [Status::EVENT_JOB_END]);
        let kill = Request::JobControl {
            targets: vec![all("a")],
            infos: vec![info(keys::JOB_CTRL_KILL, Value::Bool(true))],
        };
        let tag = world.send(conn, &kill);
        assert_eq!(world.asks[0].from, proc("tool", 0));
        world.reply(Answer::Status(Status::SUCCESS));
        assert_eq!(world.status(conn, tag), Some(Status::SUCCESS));
        // It dies.
        world.close(conn);
        assert_eq!(world.left, [proc("tool", 0)]);
        assert_eq!(world.lost, []);
        assert_eq!(
            world.wanted.last(),
            Some(&(nspace("a"), IofChannels::default()))
        );
        world.assert_no_state_left();
    }
}

/// What only processes of jobs can do is refused, and does not wait.
#[test]
fn a_tool_takes_part_in_no_collective() {
    let mut world = World::with_door();
    let conn = connect(&mut world, "tool", V5);
    let own = Request::Fence {
        procs: vec![proc("tool", 0)],
        infos: Vec::new(),
    };
    let theirs = Request::Fence {
        procs: vec![all("a")],
        infos: Vec::new(),
    };
    for request in [own, theirs] {
        let status = world.status_of(conn, &request);
        assert_ne!(status, Status::SUCCESS, "{request:?}");
    }
    let commit = Request::Commit {
        buckets: Vec::new(),
    };
    assert_eq!(world.status_of(conn, &commit), Status::NOT_FOUND);
    let log = Request::Log {
        time: 0,
        data: vec![info(keys::LOG_STDERR, Value::text("word\n"))],
        directives: Vec::new(),
    };
    // It is shown on its own streams.
    assert_eq!(world.status_of(conn, &log), Status::SUCCESS);
    assert!(world.log.is_empty());
    let pushes = world.pushes(conn);
    assert!(
        matches!(&pushes[..], [Push::Output { source, channels: IofChannels::STDERR, id: 0, bytes, .. }]
            if *source == proc("tool", 0) && bytes == "word\n"),
        "{pushes:?}"
    );
    let get = Request::Get {
        nspace: nspace("a"),
        rank: pmix::value::PmixRank::WILDCARD,
        infos: Vec::new(),
        key: Some(key("pmix.job.size")),
    };
    assert_eq!(world.status_of(conn, &get), Status::SUCCESS);
    world.close(conn);
    world.assert_no_state_left();
}

pub(super) fn ask_for(keys: &[&std::ffi::CStr], qualifiers: Vec<Info>) -> Request {
    Request::Query {
        queries: vec![Query {
            keys: keys
                .iter()
                .map(|key| Text::Some((*key).to_owned()))
                .collect(),
            qualifiers,
        }],
    }
}

/// What only the host knows is asked of it, with the job that is meant, and comes with what the server knows.
#[test]
fn the_host_answers_its_part_of_a_query() {
    let mut world = World::with_door();
    let conn = connect(&mut world, "tool", V5);
    let both = [keys::QUERY_NAMESPACES, keys::QUERY_QUEUE_LIST];
    let tag = world.send(conn, &ask_for(&both, Vec::new()));
    let Request::Query { queries } = &world.asks[0].request else {
        panic!("{:?}", world.asks);
    };
    let [query] = &queries[..] else {
        panic!("{queries:?}");
    };
    assert_eq!(query.keys, [Some(keys::QUERY_QUEUE_LIST.to_owned())]);
    assert_eq!(
        query.qualifiers,
        [info(keys::NSPACE, Value::text("tool"))],
        "the tool itself"
    );
    world.reply(Answer::Infos {
        status: Status::SUCCESS,
        infos: vec![info(keys::QUERY_QUEUE_LIST, Value::text("main"))],
    });
    let Some(Answer::Infos { status, infos }) = world.answer(conn, tag) else {
        panic!();
    };
    assert_eq!(status, Status::SUCCESS);
    let expected = [
        info(keys::QUERY_NAMESPACES, Value::text("a")),
        info(keys::QUERY_QUEUE_LIST, Value::text("main")),
    ];
    assert_eq!(infos, expected);
    // The host knows nothing, and the server knows its part.
    for (keys, status) in [
        (&both[..], Status::SUCCESS),
        (&[keys::QUERY_QUEUE_LIST], Status::NOT_FOUND),
    ] {
        let of_job = vec![info(keys::NSPACE, Value::text("a"))];
        let tag = world.send(conn, &ask_for(keys, of_job));
        world.reply(Answer::Status(Status::NOT_SUPPORTED));
        assert_eq!(world.status(conn, tag), Some(status));
    }
    world.close(conn);
    world.assert_no_state_left();
}

#[test]
fn lists_name_what_is_supported() {
    let mut world = World::with_door();
    let conn = connect(&mut world, "tool", V42);
    let lists = [
        (keys::QUERY_SPAWN_SUPPORT, keys::COSPAWN_APP),
        (keys::QUERY_DEBUG_SUPPORT, keys::DEBUG_TARGET),
        (keys::QUERY_SUPPORTED_KEYS, keys::QUERY_MEMORY_USAGE),
        (keys::QUERY_SUPPORTED_QUALIFIERS, keys::NSPACE),
    ];
    for (list, member) in lists {
        let Answer::Infos { infos, .. } = world.ask(conn, &ask_for(&[list], Vec::new())) else {
            panic!("{list:?}");
        };
        let text = infos[0].value.as_text().unwrap().to_str().unwrap();
        let mut names = text.split(',');
        assert!(
            names.any(|name| name.as_bytes() == member.to_bytes()),
            "{text}"
        );
    }
    let support = |qualifier: Info| ask_for(&[keys::QUERY_ATTRIBUTE_SUPPORT], vec![qualifier]);
    let functions = support(info(keys::HOST_FUNCTIONS, Value::Bool(true)));
    let Answer::Infos { infos, .. } = world.ask(conn, &functions) else {
        panic!();
    };
    assert_eq!(infos.len(), 1);
    assert_eq!(infos[0].key, key("pmix.host.fns"));
    let names = infos[0].clone();
    // Libraries from version 5 on look for the names inside.
    let newer = connect(&mut world, "newer", V5);
    let Answer::Infos { infos, .. } = world.ask(newer, &functions) else {
        panic!();
    };
    assert_eq!(infos.len(), 1);
    assert_eq!(infos[0].key, key("pmix.qry.attrs"));
    assert_eq!(infos[0].value.as_infos(), Some(vec![&names]));
    world.close(newer);
    let one = support(info(
        keys::HOST_ATTRIBUTES,
        Value::text("PMIx_Log,PMIx_Nope"),
    ));
    let Answer::Infos { infos, .. } = world.ask(conn, &one) else {
        panic!();
    };
    let functions = infos[0].value.as_infos().unwrap();
    assert_eq!(functions.len(), 1);
    assert_eq!(functions[0].key, key("PMIx_Log"));
    let text = format!("{:?}", functions[0].value);
    assert!(text.contains("PMIX_LOG_STDERR"), "{text}");
    let nothing = support(info(keys::HOST_ATTRIBUTES, Value::text("PMIx_Nope")));
    assert_eq!(world.status_of(conn, &nothing), Status::NOT_FOUND);
    world.close(conn);
    world.assert_no_state_left();
}

fn end_of(job: &str) -> Input<'static> {
    Input::Event(Box::new(Event {
        status: Status::EVENT_JOB_END,
        source: proc(job, 0),
        range: Range::SESSION,
        infos: vec![info(
            keys::EVENT_AFFECTED_PROC,
            Value::Proc(Box::new(all(job))),
        )],
    }))
}

/// The event that all ranks of a job are held, as the launcher sends it: the source is the launcher.
fn ready(job: &str) -> Input<'static> {
    Input::Event(Box::new(Event {
        status: Status::READY_FOR_DEBUG,
        source: proc("launcher", 0),
        range: Range::SESSION,
        infos: vec![info(keys::NSPACE, Value::text(job))],
    }))
}

fn hear_of_ends(about: Option<&str>) -> Request {
    let about = about.map(|job| {
        let value = Value::Proc(Box::new(all(job)));
        info(keys::EVENT_AFFECTED_PROC, value)
    });
    Request::Register {
        codes: vec![Status::EVENT_JOB_END],
        infos: about.into_iter().collect(),
    }
}

/// A late tool hears what was, once, but not of jobs that were over before it came, unless it names them.
#[test]
fn a_late_tool_hears_what_concerns_it() {
    let mut world = World::with_door();
    let early = connect(&mut world, "early", V5);
    world.handle(end_of("old"));
    world.handle(end_of("a"));
    let late = connect(&mut world, "late", V5);
    world.handle(end_of("new"));
    let heard = |world: &mut World, conn: Conn| -> Vec<String> {
        let pushes = world.pushes(conn).into_iter();
        let of = |push| match push {
            Push::Event { source, .. } => source.nspace.to_string(),
            Push::Output { .. } => panic!("no event"),
        };
        pushes.map(of).collect()
    };
    for (conn, about, told) in [
        (early, None, &["old", "a", "new"][..]),
        (early, None, &[]),
        // The job `a` still exists.
        (late, Some("new"), &["new"]),
        (late, Some("old"), &["old"]),
        (late, None, &["a"]),
        (late, None, &[]),
        (late, Some("old"), &[]),
    ] {
        assert_eq!(world.status_of(conn, &hear_of_ends(about)), Status::SUCCESS);
        assert_eq!(heard(&mut world, conn), told, "{conn:?} {about:?}");
    }
    world.handle(end_of("next"));
    assert_eq!(heard(&mut world, early), ["next"]);
    assert_eq!(heard(&mut world, late), ["next"]);
    world.close(early);
    world.close(late);
    world.assert_no_state_left();
}

/// A tool that asks for what it missed hears of each job that existed when it came, whether or not it has ended.
#[test]
fn a_late_tool_hears_that_a_job_was_ready() {
    let mut world = World::with_door();
    world.handle(ready("a"));
    let before = connect(&mut world, "before", V5);
    world.handle(Input::Deregister(nspace("a")));
    let after = connect(&mut world, "after", V5);
    for (conn, told) in [(before, 1), (after, 0)] {
        world.register(conn, &[Status::READY_FOR_DEBUG]);
        assert_eq!(world.codes(conn).len(), told, "{conn:?}");
        world.close(conn);
    }
    world.assert_no_state_left();
}

/// A tool hears how processes end, though it belongs to no job.
#[test]
fn a_tool_hears_of_the_ends_of_processes() {
    let mut world = World::with_door();
    let conn = connect(&mut world, "tool", V6);
    let codes = [Status::EVENT_PROC_TERMINATED, Status::PROC_ABORTED_BY_SIG];
    world.register(conn, &codes);
    world.end("a", 0, base::ExitStatus::SUCCESS);
    world.end("a", 1, KILLED);
    assert_eq!(world.codes(conn), codes);
    world.close(conn);
    world.assert_no_state_left();
}

/// The processes may be on other nodes only: their servers learn that a tool wants to hear of them.
#[test]
fn a_tool_hears_of_ends_on_other_nodes() {
    let far = |here: u32| {
        let mut far = job("far", 1);
        far.nodes.push(NodeFacts {
            name: c"other".to_owned(),
            id: 1,
            ..NodeFacts::default()
        });
        far.ranks[0].node = 1;
        far.here = here;
        Input::Register(Box::new(far))
    };
    let told = |world: &mut World| -> Vec<Event> {
        let away = world.away.drain(..).map(|output| match output {
            Output::Event {
                event,
                elsewhere: Elsewhere::Everywhere,
            } => *event,
            other => panic!("{other:?}"),
        });
        away.collect()
    };
    let mut world = World::with_door();
    world.handle(far(0));
    let mut other = World::on(1, (2, 2));
    other.handle(far(1));
    let conn = connect(&mut world, "tool", V5);
    world.register(conn, &[Status::PROC_ABORTED_BY_SIG]);
    for event in told(&mut world) {
        other.handle(Input::Event(Box::new(event)));
    }
    other.end("far", 0, KILLED);
    for event in told(&mut other) {
        world.handle(Input::Event(Box::new(event)));
    }
    assert_eq!(world.codes(conn), [Status::PROC_ABORTED_BY_SIG]);
    world.close(conn);
    world.assert_no_state_left();
}

/// Several subscriptions of a tool, and of two tools, each get their copy, with the end of the stream.
#[test]
fn subscriptions_may_overlap() {
    let mut world = World::with_door();
    let conns = [
        connect(&mut world, "one", V42),
        connect(&mut world, "two", V6),
    ];
    let pull = |of, id| Request::IofPull {
        procs: vec![of],
        infos: Vec::new(),
        channels: IofChannels::STDOUT,
        id,
    };
    for (conn, of, id) in [
        (conns[0], all("a"), 1),
        (conns[0], proc("a", 1), 2),
        (conns[1], all("a"), 3),
    ] {
        assert_eq!(world.status_of(conn, &pull(of, id)), Status::SUCCESS);
    }
    // The host is told once.
    assert_eq!(world.wanted, [(nspace("a"), IofChannels::STDOUT)]);
    for bytes in ["line\n", ""] {
        world.handle(Input::Output {
            proc: proc("a", 1),
            channels: IofChannels::STDOUT,
            bytes: bytes.into(),
        });
        for (conn, ids) in [(conns[0], &[1, 2][..]), (conns[1], &[3])] {
            let got = world.pushes(conn).into_iter().map(|push| match push {
                Push::Output { id, infos, .. } => (id, infos),
                Push::Event { .. } => panic!("no output"),
            });
            let complete = vec![info(keys::IOF_COMPLETE, Value::Bool(true))];
            let infos = if bytes.is_empty() {
                complete
            } else {
                Vec::new()
            };
            let expected = ids.iter().map(|id| (*id, infos.clone()));
            assert_eq!(got.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        }
    }
    world.close(conns[0]);
    world.close(conns[1]);
    world.assert_no_state_left();
}

/// A tool that redirects output to a handle of its own gets it there alone. Others keep their copies.
#[test]
fn a_redirection_replaces_other_subscriptions_of_the_tool() {
    let mut world = World::with_door();
    let conns = [
        connect(&mut world, "one", V5),
        connect(&mut world, "two", V5),
    ];
    let pull = |infos, id| Request::IofPull {
        procs: vec![all("a")],
        infos,
        channels: IofChannels::STDOUT,
        id,
    };
    let redirect = vec![info(keys::IOF_REDIRECT, Value::Bool(true))];
    for (conn, infos, id) in [
        (conns[0], Vec::new(), 1),
        (conns[1], Vec::new(), 2),
        (conns[0], redirect, 3),
    ] {
        assert_eq!(world.status_of(conn, &pull(infos, id)), Status::SUCCESS);
    }
    world.handle(Input::Output {
        proc: proc("a", 0),
        channels: IofChannels::STDOUT,
        bytes: "line\n".into(),
    });
    for (conn, expected) in [(conns[0], 3), (conns[1], 2)] {
        let pushes = world.pushes(conn);
        let [Push::Output { id, .. }] = &pushes[..] else {
            panic!("{pushes:?}");
        };
        assert_eq!(*id, expected);
        world.close(conn);
    }
    world.assert_no_state_left();
}

/// What a tool redirects, whoever runs the job does not get, until the tool stops or leaves.
#[test]
fn a_redirection_of_a_tool_replaces_the_output_of_the_user() {
    let mut world = World::with_door();
    let tools = [
        connect(&mut world, "one", V5),
        connect(&mut world, "two", V5),
    ];
    let rank = world.connect("a", 0);
    let redirect = |procs: Vec<Proc>, channels| Request::IofPull {
        procs,
        infos: vec![info(keys::IOF_REDIRECT, Value::Bool(true))],
        channels,
        id: 1,
    };
    let both = IofChannels::STDOUT.with(IofChannels::STDERR);
    // Only tools take the output of others away.
    assert_eq!(
        world.status_of(rank, &redirect(vec![all("a")], both)),
        Status::SUCCESS
    );
    assert_eq!(world.redirected, []);
    let said = |world: &mut World| {
        let said = std::mem::take(&mut world.redirected);
        let said = said.into_iter().map(|(nspace, redirected)| {
            let Redirected { stdout, stderr } = redirected;
            format!("{nspace}: {stdout} {stderr}")
        });
        said.collect::<Vec<_>>().join(", ")
    };
    let one = redirect(vec![proc("a", 1), proc("a", 99), proc("unknown", 0)], both);
    assert_eq!(world.status_of(tools[0], &one), Status::SUCCESS);
    insta::assert_snapshot!(said(&mut world), @"a: 1 1");
    let two = redirect(vec![all("a")], IofChannels::STDERR);
    assert_eq!(world.status_of(tools[1], &two), Status::SUCCESS);
    insta::assert_snapshot!(said(&mut world), @"a: 1 0-1");
    world.close(tools[0]);
    insta::assert_snapshot!(said(&mut world), @"a:  0-1");
    world.close(tools[1]);
    insta::assert_snapshot!(said(&mut world), @"a:  ");
    world.close(rank);
    world.assert_no_state_left();
}

/// The bytes of a tool of another user are not even read, and one whose format is unknown is told what is known. Others do not notice.
#[test]
fn a_tool_of_a_foreign_user_or_format_is_refused() {
    let mut world = World::with_door();
    let other = connect(&mut world, "other", V5);
    let mut foreign = hello("a", 0, V5);
    foreign.kind = ConnectorKind::Tool;
    foreign.proc = None;
    let conn = world.accept(PeerOwner::Uid(UID + 1));
    assert!(!world.is_open(conn));
    world.hello(conn, &foreign);
    assert_eq!(world.welcome(conn), None);
    let owners = Refusal::WrongOwner {
        expected: UID,
        actual: UID + 1,
    };
    assert_eq!(world.refusals, [owners]);
    let tongue = Tongue { codec: "v99", ..V5 };
    let conn = greet(&mut world, ConnectorKind::Tool, None, tongue);
    assert!(!world.is_open(conn));
    assert!(world.visitors[1..].is_empty(), "{:?}", world.visitors);
    let refusal = world.refusals.last().unwrap().to_string();
    assert!(refusal.contains("v99"), "{refusal}");
    // It says nothing at all.
    let silent = world.accept(PeerOwner::Uid(UID));
    world.pass(std::time::Duration::from_secs(3600));
    assert!(world.is_open(silent) && world.is_open(other));
    assert_eq!(world.status_of(other, &table_of("a")), Status::SUCCESS);
    world.close(silent);
    world.close(other);
    world.assert_no_state_left();
}
