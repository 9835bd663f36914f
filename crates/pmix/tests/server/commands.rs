//! The effects of single commands.

use std::time::Duration;

use base::ExitStatus;
use bytes::Bytes;
use pmix::{
    codec::Format,
    keys,
    message::{Answer, Command, Facts, Request},
    server::{Conn, Input, MAX_COMMITTED, MISSING_KEY_DELAY, SyslogPlace},
    value::{
        DataType, Elements, Info, InfoFlags, Kval, Packed, PmixRank, Proc, Query, Scope, Status,
        Value,
    },
};

use crate::world::{
    DESCRIBED, KILLED, V3, V5, V6, World, all, commit, commit_of, flag, get, info, job, key,
    nspace, proc, seconds, text, values_of,
};

fn query(key: &str, qualifiers: Vec<Info>) -> Request {
    Request::Query {
        queries: vec![Query {
            keys: vec![text(key)],
            qualifiers,
        }],
    }
}

/// Gets by rank 0 of two. Rank 1 has committed `there` = 1 if the case says so.
#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a table of cases, and what is said of them"
)]
fn gets() {
    enum Then {
        /// The value, immediately.
        Value(Value),
        /// An error, immediately.
        Nothing(Status),
        /// An error after this time.
        After(Duration, Status),
        /// No answer until a further event.
        Waits,
    }
    use Then::{After, Nothing, Value as Is, Waits};
    let one = proc("a", 1);
    let now = || vec![flag(keys::IMMEDIATE)];
    let cases: Vec<(&str, bool, Request, Then)> = vec![
        (
            "it is there",
            true,
            get(&one, "there", Vec::new()),
            Is(Value::Uint32(1)),
        ),
        (
            "whoever has put it",
            true,
            get(&proc("a", PmixRank::UNDEF.0), "there", Vec::new()),
            Is(Value::Uint32(1)),
        ),
        (
            "it may come with the next commit",
            true,
            get(&one, "missing", Vec::new()),
            After(MISSING_KEY_DELAY, Status::NOT_FOUND),
        ),
        (
            "it may come with the first commit",
            false,
            get(&one, "there", Vec::new()),
            Waits,
        ),
        (
            "somebody may put it",
            true,
            get(&proc("a", PmixRank::UNDEF.0), "missing", Vec::new()),
            Waits,
        ),
        (
            "now or not at all",
            true,
            get(&one, "missing", now()),
            Nothing(Status::NOT_FOUND),
        ),
        (
            "now or not at all, before the first commit",
            false,
            get(&one, "there", now()),
            Nothing(Status::NOT_FOUND),
        ),
        (
            "for a second",
            false,
            get(&one, "there", vec![seconds(1)]),
            After(Duration::from_secs(1), Status::TIMEOUT),
        ),
        (
            "for longer than the server would wait",
            true,
            get(&one, "missing", vec![seconds(5)]),
            After(Duration::from_secs(5), Status::TIMEOUT),
        ),
        (
            "for ever, which is 0",
            false,
            get(&one, "there", vec![seconds(0)]),
            Waits,
        ),
        (
            "a fact of the process",
            false,
            get(&one, "pmix.lrank", Vec::new()),
            Is(Value::Uint16(1)),
        ),
        (
            "a fact of its node",
            false,
            get(&one, "pmix.local.size", Vec::new()),
            Is(Value::Uint32(2)),
        ),
        (
            "a fact of its app",
            false,
            get(&one, "pmix.app.size", Vec::new()),
            Is(Value::Uint32(2)),
        ),
        (
            "a fact of the job",
            false,
            get(&all("a"), "pmix.job.size", Vec::new()),
            Is(Value::Uint32(2)),
        ),
        (
            "a fact of the session",
            false,
            get(&all("a"), "pmix.univ.size", Vec::new()),
            Is(Value::Uint32(2)),
        ),
        (
            "a fact that there is not",
            true,
            get(&one, "pmix.no.such.fact", Vec::new()),
            Nothing(Status::NOT_FOUND),
        ),
        (
            "a fact of the job that there is not",
            true,
            get(&all("a"), "pmix.no.such.fact", Vec::new()),
            Nothing(Status::NOT_FOUND),
        ),
        (
            "what a job as a whole has not put",
            true,
            get(&all("a"), "there", Vec::new()),
            Nothing(Status::NOT_FOUND),
        ),
        (
            "a rank that there is not",
            true,
            get(&proc("a", 2), "there", Vec::new()),
            Nothing(Status::NOT_FOUND),
        ),
        (
            "a rank that is none",
            true,
            get(&proc("a", PmixRank::INVALID.0), "there", Vec::new()),
            Nothing(Status::NOT_FOUND),
        ),
        (
            "a job that there is not",
            true,
            get(&proc("x", 0), "there", Vec::new()),
            Nothing(Status::NOT_FOUND),
        ),
    ];
    for (what, committed, request, then) in cases {
        let (mut world, conns) = World::of(2);
        if committed {
            world.put(conns[1], &[("there", 1)]);
        }
        let tag = world.send(conns[0], &request);
        match then {
            Is(value) => {
                let answer = world
                    .answer(conns[0], tag)
                    .unwrap_or_else(|| panic!("{what}"));
                let Request::Get {
                    nspace, rank, key, ..
                } = request
                else {
                    unreachable!();
                };
                let mut of = Proc { nspace, rank };
                if of.rank == PmixRank::UNDEF {
                    of.rank = PmixRank(1);
                }
                let values = values_of(Format::V4, &answer, &of);
                assert_eq!(values[&key.unwrap().to_string()], value, "{what}");
            }
            Nothing(status) => assert_eq!(world.status(conns[0], tag), Some(status), "{what}"),
            After(duration, status) => {
                world.pass(duration - Duration::from_millis(1));
                assert_eq!(world.answer(conns[0], tag), None, "{what}");
                world.pass(Duration::from_millis(1));
                assert_eq!(world.status(conns[0], tag), Some(status), "{what}");
            }
            Waits => {
                world.pass(Duration::from_secs(3600));
                assert_eq!(world.answer(conns[0], tag), None, "{what}");
                world.put(conns[1], &[("there", 1), ("missing", 1)]);
                assert_eq!(world.status(conns[0], tag), Some(Status::SUCCESS), "{what}");
            }
        }
        world.assert_no_state_left();
    }
}

#[test]
fn a_first_commit_without_the_key_starts_the_wait() {
    let (mut world, conns) = World::of(2);
    let tag = world.send(conns[0], &get(&proc("a", 1), "missing", Vec::new()));
    world.pass(Duration::from_secs(3600));
    world.put(conns[1], &[("there", 1)]);
    world.pass(MISSING_KEY_DELAY / 2);
    assert_eq!(world.answer(conns[0], tag), None);
    // A further commit does not extend the wait.
    world.put(conns[1], &[("another", 1)]);
    world.pass(MISSING_KEY_DELAY / 2);
    assert_eq!(world.status(conns[0], tag), Some(Status::NOT_FOUND));
    world.assert_no_state_left();
}

#[test]
fn a_get_of_everything() {
    let (mut world, conns) = World::of(2);
    let request = Request::Get {
        nspace: nspace("a"),
        rank: PmixRank(1),
        infos: Vec::new(),
        key: None,
    };
    let tag = world.send(conns[0], &request);
    assert_eq!(world.answer(conns[0], tag), None);
    world.put(conns[1], &[("one", 1), ("two", 2)]);
    let answer = world.answer(conns[0], tag).unwrap();
    let values = values_of(Format::V4, &answer, &proc("a", 1));
    assert_eq!(values.len(), 2);
    world.assert_no_state_left();
}

/// Gets for data of a process that has ended.
#[test]
fn the_dead_put_nothing() {
    for status in [KILLED, ExitStatus::SUCCESS] {
        let (mut world, conns) = World::of(2);
        world.put(conns[1], &[("there", 1)]);
        let waits = world.send(conns[0], &get(&proc("a", 1), "missing", vec![seconds(60)]));
        world.end("a", 1, status);
        assert_eq!(world.status(conns[0], waits), Some(Status::NOT_FOUND));
        let there = get(&proc("a", 1), "there", Vec::new());
        assert_eq!(world.status_of(conns[0], &there), Status::SUCCESS);
        let missing = get(&proc("a", 1), "missing", Vec::new());
        assert_eq!(world.status_of(conns[0], &missing), Status::NOT_FOUND);
        world.assert_no_state_left();
    }
}

#[test]
fn a_get_across_jobs_brings_the_facts_of_the_job() {
    let mut world = World::new(&[("a", 1), ("b", 1)]);
    let conns = [world.connect_as("a", 0, V3), world.connect("b", 0)];
    world.put(conns[1], &[("there", 5)]);
    let answer = world.ask(conns[0], &get(&proc("b", 0), "there", Vec::new()));
    let format = world.format(conns[0]);
    let Answer::Buffers { buffers, .. } = &answer else {
        panic!("{answer:?}");
    };
    assert_eq!(buffers.len(), 2);
    let facts = Facts::<Proc>::decode(format, &buffers[0]).unwrap();
    assert_eq!(facts.owner, all("b"));
    let values = values_of(format, &answer, &proc("b", 0));
    assert_eq!(values["there"], Value::Uint32(5));
    // A get does not wait for a job that is not yet known.
    let later = get(&proc("c", 0), "there", Vec::new());
    assert_eq!(world.status_of(conns[0], &later), Status::NOT_FOUND);
    world.assert_no_state_left();
}

#[test]
fn a_commit_replaces_and_adds() {
    let (mut world, conns) = World::of(2);
    world.put(conns[1], &[("one", 1), ("two", 2)]);
    world.put(conns[1], &[("two", 22), ("three", 3)]);
    let answer = world.ask(conns[0], &get(&proc("a", 1), "one", Vec::new()));
    let values = values_of(Format::V4, &answer, &proc("a", 1));
    let numbers: Vec<_> = values.into_iter().collect();
    let expected = [("one", 1), ("three", 3), ("two", 22)];
    assert_eq!(
        numbers,
        expected.map(|(key, number)| (key.to_owned(), Value::Uint32(number)))
    );
    world.assert_no_state_left();
}

#[test]
fn scopes() {
    let (mut world, conns) = World::of(2);
    for (name, scope, visible) in [
        ("local", Scope::LOCAL, true),
        ("remote", Scope::REMOTE, false),
        ("global", Scope::GLOBAL, true),
    ] {
        let request = commit(Format::V4, scope, &[(name, 1)]);
        assert_eq!(world.status_of(conns[1], &request), Status::SUCCESS);
        let request = get(&proc("a", 1), name, vec![flag(keys::IMMEDIATE)]);
        let expected = match visible {
            true => Status::SUCCESS,
            false => Status::NOT_FOUND,
        };
        assert_eq!(world.status_of(conns[0], &request), expected, "{name}");
    }
    world.assert_no_state_left();
}

#[test]
fn data_passes_between_libraries() {
    let mut world = World::new(&[("a", 4)]);
    let conns = [
        world.connect_as("a", 0, V3),
        world.connect_as("a", 1, V5),
        world.connect_as("a", 2, V6),
        world.connect_as("a", 3, DESCRIBED),
    ];
    for (rank, conn) in (0..).zip(conns) {
        world.put(conn, &[("rank", rank)]);
    }
    for conn in conns {
        for rank in 0..4 {
            let answer = world.ask(conn, &get(&proc("a", rank), "rank", Vec::new()));
            let values = values_of(world.format(conn), &answer, &proc("a", rank));
            assert_eq!(values["rank"], Value::Uint32(rank));
        }
    }
    world.assert_no_state_left();
}

#[test]
fn a_commit_that_is_none_changes_nothing() {
    let (mut world, conns) = World::of(2);
    world.put(conns[1], &[("there", 1)]);
    let Request::Commit { mut buckets } = commit(Format::V4, Scope::GLOBAL, &[("there", 2)]) else {
        unreachable!();
    };
    let mut bytes = buckets[0].1.bytes.to_vec();
    bytes.extend_from_slice(&[2, 8, b'x']);
    buckets[0].1.bytes = bytes.into();
    assert_eq!(
        world.status_of(conns[1], &Request::Commit { buckets }),
        Status::UNPACK_FAILURE
    );
    // A buffer of another kind has no effect either.
    let buckets = vec![(
        Scope::GLOBAL,
        Packed {
            kind: 2,
            bytes: Vec::new().into(),
        },
    )];
    assert_eq!(
        world.status_of(conns[1], &Request::Commit { buckets }),
        Status::UNPACK_FAILURE
    );
    let answer = world.ask(conns[0], &get(&proc("a", 1), "there", Vec::new()));
    let values = values_of(Format::V4, &answer, &proc("a", 1));
    assert_eq!(values["there"], Value::Uint32(1));
    // An empty commit is valid.
    let nothing = Request::Commit {
        buckets: Vec::new(),
    };
    assert_eq!(world.status_of(conns[1], &nothing), Status::SUCCESS);
    world.assert_no_state_left();
}

#[test]
fn a_process_can_commit_so_much() {
    for scope in [Scope::LOCAL, Scope::REMOTE, Scope::GLOBAL] {
        commit_until_refused(scope);
    }
}

fn commit_until_refused(scope: Scope) {
    let (mut world, conns) = World::of(1);
    let part = MAX_COMMITTED / 4;
    let large = |name: String| {
        let value = Value::ByteObject(vec![0; part].into());
        commit_of(
            Format::V4,
            scope,
            &[Kval {
                key: key(&name),
                value,
            }],
        )
    };
    let mut refused = None;
    for at in 0..20 {
        let status = world.status_of(conns[0], &large(format!("key {at}")));
        if status != Status::SUCCESS {
            refused = Some((at, status));
            break;
        }
    }
    let (at, status) = refused.unwrap();
    assert_eq!(status, Status::OUT_OF_RESOURCE);
    // Names take some bytes, so that the fourth part does not fit.
    assert_eq!(at, 3, "{scope:?}");
    // Values that were stored before remain available, except to ranks that the scope excludes.
    if scope != Scope::REMOTE {
        let answer = world.ask(conns[0], &get(&proc("a", 0), "key 0", Vec::new()));
        assert_eq!(answer.status(), Status::SUCCESS);
    }
    world.assert_no_state_left();
}

#[test]
fn qualified_values() {
    let (mut world, conns) = World::of(2);
    let colour = |number: u32| {
        let mut colour = info(c"colour", Value::Uint32(number));
        colour.flags = InfoFlags::QUALIFIER;
        colour
    };
    let paint = |number: u32, colours: Vec<Info>| {
        let mut infos = vec![info(c"paint", Value::Uint32(number))];
        infos.extend(colours);
        Kval {
            key: key("pmix.qual.val"),
            value: Value::infos(infos),
        }
    };
    let kvals = [
        paint(10, vec![colour(1)]),
        paint(20, vec![colour(2)]),
        // This value replaces the first one.
        paint(11, vec![colour(1)]),
    ];
    let request = commit_of(Format::V4, Scope::GLOBAL, &kvals);
    assert_eq!(world.status_of(conns[1], &request), Status::SUCCESS);
    let ask = |qualifiers: Vec<Info>| {
        let mut infos = vec![flag(keys::IMMEDIATE)];
        infos.extend(qualifiers);
        get(&proc("a", 1), "paint", infos)
    };
    for (qualifiers, status) in [
        (vec![colour(1)], Status::SUCCESS),
        (vec![colour(2)], Status::SUCCESS),
        (vec![colour(3)], Status::NOT_FOUND),
        // Qualifiers must match exactly: these name other values.
        (Vec::new(), Status::NOT_FOUND),
        (vec![colour(1), colour(2)], Status::NOT_FOUND),
    ] {
        assert_eq!(world.status_of(conns[0], &ask(qualifiers)), status);
    }
    // The answer has all qualified values, because other gets may wait for the same answer.
    let answer = world.ask(conns[0], &ask(vec![colour(1)]));
    let Answer::Buffers { buffers, .. } = &answer else {
        panic!("{answer:?}");
    };
    let facts = Facts::<Proc>::decode(Format::V4, &buffers[0])
        .unwrap()
        .facts;
    assert_eq!(facts.len(), 2);
    assert!(facts.contains(&kvals[2]) && facts.contains(&kvals[1]));
    world.assert_no_state_left();
}

#[test]
fn the_cache_is_refreshed() {
    let (mut world, conns) = World::of(2);
    let request = Request::RefreshCache {
        nspace: nspace("a"),
        rank: PmixRank(1),
    };
    assert_eq!(world.status_of(conns[0], &request), Status::NOT_FOUND);
    world.put(conns[1], &[("there", 1)]);
    world.put(conns[1], &[("there", 2)]);
    let Answer::Refreshed { facts, .. } = world.ask(conns[0], &request) else {
        panic!("no facts");
    };
    let expected = Kval {
        key: key("there"),
        value: Value::Uint32(2),
    };
    assert_eq!(facts, [expected]);
    world.assert_no_state_left();
}

/// The job info that a client requests in its init.
#[test]
fn job_info() {
    let mut world = World::new(&[("a", 3)]);
    for (rank, tongue) in [(0, V3), (1, V5), (2, DESCRIBED)] {
        let conn = world.connect_as("a", rank, tongue);
        let Answer::JobInfo { nspace: of, facts } = world.ask(conn, &Request::JobInfo) else {
            panic!("no job");
        };
        assert_eq!(of, nspace("a"));
        let find = |wanted: &str| facts.iter().find(|fact| fact.key == key(wanted));
        assert_eq!(find("pmix.job.size").unwrap().value, Value::Uint32(3));
        assert_eq!(find("pmix.nlist").unwrap().value, Value::text("node"));
        // libpmix 3 does not read the session array, so it gets session facts singly.
        assert_eq!(find("pmix.univ.size").is_some(), rank == 0);
        let blobs = facts.iter().filter(|fact| fact.key == key("pmix.pblob"));
        let ranks: Vec<u32> = blobs
            .map(|blob| {
                let Value::ByteObject(bytes) = &blob.value else {
                    panic!("{blob:?}");
                };
                let format = world.format(conn);
                let facts = Facts::<PmixRank>::decode(format, bytes).unwrap();
                let hname = facts
                    .facts
                    .iter()
                    .find(|fact| fact.key == key("pmix.hname"));
                assert_eq!(hname.unwrap().value, Value::text("node"));
                facts.owner.0
            })
            .collect();
        assert_eq!(ranks, [0, 1, 2]);
    }
    world.assert_no_state_left();
}

#[test]
fn queries() {
    let mut world = World::new(&[("a", 2), ("b", 1)]);
    let conn = world.connect("a", 0);
    world.handle(Input::Started {
        proc: proc("b", 0),
        pid: 77,
    });
    let of_b = || vec![info(keys::NSPACE, Value::text("b"))];
    let value = |world: &mut World, request: &Request| {
        let Answer::Infos { status, infos } = world.ask(conn, request) else {
            panic!("no infos");
        };
        assert_eq!(status, Status::SUCCESS);
        infos[0].value.clone()
    };
    let names = value(&mut world, &query("pmix.qry.ns", Vec::new()));
    assert_eq!(names, Value::text("a,b"));
    // Name and command line of each job, or of one.
    for (qualifiers, jobs) in [(Vec::new(), &["a", "b"][..]), (of_b(), &["b"])] {
        let told = value(&mut world, &query("pmix.qry.nsinfo", qualifiers));
        let expected = jobs.iter().map(|job| {
            let facts = vec![
                info(keys::NSPACE, Value::text(job)),
                info(keys::COMMAND_LINE, Value::text("program argument")),
            ];
            Value::Info(Box::new(info(keys::JOB_ARRAY, Value::infos(facts))))
        });
        assert_eq!(told, Value::array(DataType::INFO, expected.collect()));
    }
    assert_eq!(
        value(&mut world, &query("pmix.job.size", of_b())),
        Value::Uint32(1)
    );
    assert_eq!(
        value(&mut world, &query("pmix.job.size", Vec::new())),
        Value::Uint32(2)
    );
    let mut rank = of_b();
    rank.push(info(keys::RANK, Value::Rank(PmixRank(0))));
    assert_eq!(
        value(&mut world, &query("pmix.hname", rank)),
        Value::text("node")
    );
    let Value::Array(table) = value(&mut world, &query("pmix.qry.ptable", of_b())) else {
        panic!("no table");
    };
    assert_eq!(table.kind, DataType::PROC_INFO);
    let Elements::Values(rows) = &table.elements else {
        panic!("no rows");
    };
    let Value::ProcInfo(row) = &rows[0] else {
        panic!("no row");
    };
    assert_eq!((row.pid, &row.proc), (77, &proc("b", 0)));
    assert_eq!(row.executable, text("program"));
    // None of the keys has an answer.
    let unknown = query("no.such.key", Vec::new());
    assert_eq!(world.status_of(conn, &unknown), Status::NOT_FOUND);
    let nowhere = query(
        "pmix.qry.ptable",
        vec![info(keys::NSPACE, Value::text("nowhere"))],
    );
    assert_eq!(world.status_of(conn, &nowhere), Status::NOT_FOUND);
    // Some of the keys have an answer.
    let both = Request::Query {
        queries: vec![Query {
            keys: vec![text("pmix.qry.ns"), text("no.such.key")],
            qualifiers: Vec::new(),
        }],
    };
    let Answer::Infos { status, infos } = world.ask(conn, &both) else {
        panic!("no infos");
    };
    assert_eq!((status, infos.len()), (Status::SUCCESS, 1));
    // In the order in which they were asked for, and each once.
    let names = ["pmix.job.size", "pmix.qry.ns", "pmix.job.napps"];
    let thrice = Request::Query {
        queries: vec![Query {
            keys: names.iter().chain(&names).map(|name| text(name)).collect(),
            qualifiers: Vec::new(),
        }],
    };
    let Answer::Infos { infos, .. } = world.ask(conn, &thrice) else {
        panic!("no infos");
    };
    let told = infos
        .iter()
        .map(|info| info.key.as_c_str().to_str().unwrap());
    assert_eq!(told.collect::<Vec<_>>(), names);
    world.assert_no_state_left();
}

#[test]
fn who_is_where() {
    let mut world = World::new(&[("a", 2), ("b", 1)]);
    let conn = world.connect("a", 0);
    let peers = |node: Option<&str>, of: Option<&str>| Request::ResolvePeers {
        node: node.and_then(text),
        nspace: of.and_then(text),
    };
    for (request, expected) in [
        (peers(None, Some("a")), vec![proc("a", 0), proc("a", 1)]),
        (
            peers(Some("node"), None),
            vec![proc("a", 0), proc("a", 1), proc("b", 0)],
        ),
        (peers(Some("elsewhere"), None), Vec::new()),
        (peers(None, Some("nowhere")), Vec::new()),
    ] {
        match world.ask(conn, &request) {
            Answer::Procs { status, procs } => {
                assert_eq!((status, procs), (Status::SUCCESS, expected));
            }
            answer => {
                assert_eq!(answer.status(), Status::NOT_FOUND);
                assert!(expected.is_empty());
            }
        }
    }
    let nodes = |of: Option<&str>| Request::ResolveNode {
        nspace: of.and_then(text),
    };
    let Answer::Nodes { nodes: found, .. } = world.ask(conn, &nodes(None)) else {
        panic!("no nodes");
    };
    assert_eq!(found, text("node"));
    assert_eq!(
        world.status_of(conn, &nodes(Some("nowhere"))),
        Status::NOT_FOUND
    );
    world.assert_no_state_left();
}

#[test]
fn a_log_is_written() {
    let (mut world, conns) = World::of(1);
    let log = |data: Vec<Info>| Request::Log {
        time: 0,
        data,
        directives: Vec::new(),
    };
    let both = log(vec![
        info(keys::LOG_STDERR, Value::text("one")),
        info(keys::LOG_STDOUT, Value::text("two")),
    ]);
    assert_eq!(world.status_of(conns[0], &both), Status::SUCCESS);
    assert_eq!(world.log, [&b"one"[..], b"two"]);
    let nowhere = log(vec![info(c"pmix.log.email", Value::text("three"))]);
    assert_eq!(world.status_of(conns[0], &nowhere), Status::NOT_SUPPORTED);
    world.assert_no_state_left();
}

#[test]
fn a_log_goes_to_the_syslog() {
    let (mut world, conns) = World::of(1);
    let log = |time, data: Vec<Info>, directives| Request::Log {
        time,
        data,
        directives,
    };
    let text = |key, text: &str| info(key, Value::text(text));
    let priority = |value| vec![info(keys::LOG_SYSLOG_PRIORITY, Value::Int(value))];
    let given = || vec![info(keys::LOG_TIMESTAMP, Value::Time(9))];
    // What the process says, the priority and the time that the host gets, its answer, and that to the process.
    let either = || text(keys::LOG_SYSLOG, "either");
    let cases = [
        (
            log(0, vec![either()], vec![]),
            11,
            None,
            Status::SUCCESS,
            Status::SUCCESS,
        ),
        (
            log(7, vec![either()], priority(6)),
            14,
            Some(7),
            Status::NOT_FOUND,
            Status::NOT_FOUND,
        ),
        (
            log(7, vec![either()], given()),
            11,
            Some(9),
            Status::SUCCESS,
            Status::SUCCESS,
        ),
        (
            log(0, vec![either()], priority(191)),
            191,
            None,
            Status::SUCCESS,
            Status::SUCCESS,
        ),
        (
            log(0, vec![text(keys::LOG_STDERR, "shown"), either()], vec![]),
            11,
            None,
            Status::NOT_FOUND,
            Status::PARTIAL_SUCCESS,
        ),
        (
            log(0, vec![either(), text(keys::LOG_STDOUT, "shown")], vec![]),
            11,
            None,
            Status::SUCCESS,
            Status::SUCCESS,
        ),
    ];
    for (request, priority, time, said, expected) in cases {
        let tag = world.send(conns[0], &request);
        let (ticket, from, log) = world.syslog.pop().unwrap();
        assert_eq!(from, proc("a", 0));
        assert_eq!((log.priority, log.time), (priority, time), "{request:?}");
        assert_eq!(
            log.texts,
            [(SyslogPlace::Either, Bytes::from_static(b"either"))]
        );
        assert_eq!(world.status(conns[0], tag), None);
        let answer = Answer::Status(said);
        world.handle(Input::Answer { ticket, answer });
        assert_eq!(world.status(conns[0], tag), Some(expected), "{request:?}");
    }
    assert_eq!(world.log, [&b"shown"[..], b"shown"]);
    let both = vec![
        text(keys::LOG_GLOBAL_SYSLOG, "global"),
        text(keys::LOG_LOCAL_SYSLOG, "local"),
    ];
    world.send(conns[0], &log(0, both, vec![]));
    let (_, _, both) = world.syslog.pop().unwrap();
    let places = both.texts.iter().map(|(place, _)| *place);
    assert!(places.eq([SyslogPlace::Global, SyslogPlace::Local]));
    for bad in [
        log(0, vec![either()], priority(192)),
        log(0, vec![either()], priority(-1)),
        log(
            0,
            vec![
                info(keys::LOG_SYSLOG, Value::Int(1)),
                text(keys::LOG_STDERR, "no"),
            ],
            vec![],
        ),
    ] {
        assert_eq!(
            world.status_of(conns[0], &bad),
            Status::BAD_PARAM,
            "{bad:?}"
        );
    }
    // The connection ends before the host has answered.
    let partly = vec![text(keys::LOG_STDERR, "shown"), either()];
    world.send(conns[0], &log(0, partly, vec![]));
    world.assert_no_state_left();
}

#[test]
fn credentials_are_those_of_the_user() {
    let (mut world, conns) = World::of(1);
    let request = Request::GetCredential { infos: Vec::new() };
    let Answer::Credential { credential, .. } = world.ask(conns[0], &request) else {
        panic!("no credential");
    };
    let validate = |credential: &[u8]| Request::ValidateCredential {
        credential: credential.to_vec().into(),
        infos: Vec::new(),
    };
    let valid = world.status_of(conns[0], &validate(&credential));
    assert_eq!(valid, Status::SUCCESS);
    for wrong in [&[0; 8][..], &credential[..7], b""] {
        let status = world.status_of(conns[0], &validate(wrong));
        assert_eq!(status, Status::INVALID_CRED);
    }
    world.assert_no_state_left();
}

/// Requests to the host, and the delivery of its answers to the clients that asked.
#[test]
fn the_host_answers() {
    let (mut world, conns) = World::of(2);
    let lookup = Request::Lookup {
        uid: 0,
        keys: vec![key("name")],
        infos: Vec::new(),
    };
    let first = world.send(conns[0], &lookup);
    let second = world.send(conns[1], &lookup);
    let asks = std::mem::take(&mut world.asks);
    assert_eq!(asks[0].from, proc("a", 0));
    assert_eq!(asks[1].request, lookup);
    for (ask, status) in asks.iter().rev().zip([Status(-1), Status(-2)]) {
        let ticket = ask.ticket;
        let answer = Answer::Status(status);
        world.handle(Input::Answer { ticket, answer });
    }
    assert_eq!(world.status(conns[0], first), Some(Status(-2)));
    assert_eq!(world.status(conns[1], second), Some(Status(-1)));
    // A second answer is ignored.
    let ticket = asks[0].ticket;
    let answer = Answer::Status(Status::SUCCESS);
    world.handle(Input::Answer { ticket, answer });
    assert!(world.answers(conns[0]).is_empty());
    world.assert_no_state_left();
}

#[test]
fn a_silent_process_is_missed() {
    let (mut world, conns) = World::of(2);
    world.register(conns[1], &[Status::MONITOR_HEARTBEAT_ALERT, Status(-3001)]);
    let monitor = |what, error, drops| Request::Monitor {
        monitor: flag(what),
        error,
        infos: vec![
            info(keys::MONITOR_HEARTBEAT_TIME, Value::Uint32(1)),
            info(keys::MONITOR_HEARTBEAT_DROPS, Value::Uint32(drops)),
        ],
    };
    let beat = |world: &mut World, conn: Conn| {
        let bytes = pmix::frame::finish(pmix::frame::start(0), pmix::frame::Tag::Heartbeat);
        world.bytes(conn, &bytes);
    };
    let watch = monitor(keys::MONITOR_HEARTBEAT, Status::SUCCESS, 1);
    assert_eq!(world.status_of(conns[0], &watch), Status::SUCCESS);
    for _ in 0..10 {
        world.pass(Duration::from_millis(900));
        beat(&mut world, conns[0]);
    }
    assert_eq!(world.codes(conns[1]), []);
    // One missing heartbeat is allowed, two are not, and the alert comes once.
    world.pass(Duration::from_millis(1900));
    assert_eq!(world.codes(conns[1]), []);
    world.pass(Duration::from_secs(10));
    assert_eq!(world.codes(conns[1]), [Status::MONITOR_HEARTBEAT_ALERT]);
    // The alert can have another code; and monitoring can be cancelled.
    let watch = monitor(keys::MONITOR_HEARTBEAT, Status(-3001), 0);
    assert_eq!(world.status_of(conns[0], &watch), Status::SUCCESS);
    world.pass(Duration::from_secs(2));
    assert_eq!(world.codes(conns[1]), [Status(-3001)]);
    assert_eq!(world.status_of(conns[0], &watch), Status::SUCCESS);
    let cancel = monitor(keys::MONITOR_CANCEL, Status::SUCCESS, 0);
    assert_eq!(world.status_of(conns[0], &cancel), Status::SUCCESS);
    world.pass(Duration::from_secs(10));
    assert_eq!(world.codes(conns[1]), []);
    let files = monitor(c"pmix.monitor.fmon", Status::SUCCESS, 0);
    assert_eq!(world.status_of(conns[0], &files), Status::NOT_SUPPORTED);
    world.assert_no_state_left();
}

#[test]
fn a_job_that_comes_again_is_another_one() {
    let (mut world, conns) = World::of(1);
    world.put(conns[0], &[("there", 1)]);
    world.handle(Input::Register(Box::new(job("a", 1))));
    let again = world.connect("a", 0);
    let request = get(&proc("a", 0), "there", vec![flag(keys::IMMEDIATE)]);
    assert_eq!(world.status_of(again, &request), Status::NOT_FOUND);
    assert_eq!(Command::from_number(39), None);
    world.assert_no_state_left();
}
