//! Jobs that tools spawn on a machine.

use pmix::value::{Nspace, PmixRank, Proc, Query};

use super::*;
use crate::{
    controller::usage::MEASURED_QUERIES_MAX,
    proto::{Door, FromServer, ProcUsage, Visitor},
    spec::HoldAt,
};

impl World {
    /// Lets a tool connect.
    fn tool_connects(&mut self) {
        let visitor = Visitor {
            door: Door::Ours,
            name: None,
            pid: Some(77),
            command: None,
        };
        self.server_says(FromServer::ToolConnects { conn: 1, visitor });
    }

    fn tool_leaves(&mut self, tool: u32) {
        let tool = JobId(tool);
        self.server_says(FromServer::ToolLeft { tool });
    }

    fn server_says(&mut self, message: FromServer) {
        let message = ToController::Server(Box::new(message));
        self.handle(ControllerInput::Daemon(NodeId(0), message));
    }

    /// Returns the directives of daemons for all procs of a job.
    fn target(&self, job: u32) -> Vec<Info> {
        let nspace = Nspace::from_text(&self.controller.nspace(JobId(job))).unwrap();
        let rank = PmixRank::WILDCARD;
        let target = Value::Proc(Box::new(Proc { nspace, rank }));
        vec![info(keys::DEBUG_TARGET, target)]
    }
}

#[test]
fn what_a_tool_spawns_waits_for_its_slots() {
    let mut world = World::new();
    world.tool_connects();
    let first = world.spawns(2, 10, &[]);
    assert_eq!(world.spawned(first).as_deref(), Some("3: 2@n0+8@n1"));
    let never = world.spawns(2, 17, &[]);
    assert_eq!(world.spawned(never).as_deref(), Some("OUT_OF_RESOURCE"));
    let waits = world.spawns(2, 8, &[]);
    assert_eq!(world.spawned(waits), None);
    // Daemons need no slots.
    let daemons = world.spawns(2, 1, &world.target(3));
    assert_eq!(world.spawned(daemons).as_deref(), Some("4: 1@n0+1@n1"));
    let of_other = world.spawns(2, 1, &world.target(1));
    assert_eq!(world.spawned(of_other).as_deref(), Some("5: 1@n0"));
    world.ends(3, ExitStatus::SUCCESS);
    assert_eq!(world.spawned(waits), None);
    world.ends(4, ExitStatus::SUCCESS);
    assert_eq!(world.spawned(waits).as_deref(), Some("6: 8@n1"));
    world.tool_leaves(2);
    assert_eq!(world.ended, [JobId(5), JobId(6)].into());
    world.ends(6, ExitStatus::SUCCESS);
    assert_eq!(world.held(), 0);
}

#[test]
fn a_tool_has_allocations_until_it_leaves() {
    let mut world = World::new();
    world.tool_connects();
    assert_eq!(world.told(2, AllocDirective::NEW, &[cpus(4)]), "2: 4 on n0");
    let waits = world.asks(2, AllocDirective::NEW, &[cpus(12)]);
    assert_eq!(world.answer(waits), None);
    let named = info(keys::ALLOC_ID, Value::text("2"));
    let inside = world.spawns(2, 4, std::slice::from_ref(&named));
    assert_eq!(world.spawned(inside).as_deref(), Some("3: 4@n0"));
    let full = world.spawns(2, 1, &[named]);
    assert_eq!(world.spawned(full).as_deref(), Some("OUT_OF_RESOURCE"));
    world.tool_leaves(2);
    world.ends(3, ExitStatus::SUCCESS);
    assert_eq!(world.held(), 0);
}

#[test]
fn a_request_of_a_tool_that_leaves_is_over() {
    let mut world = World::new();
    world.tool_connects();
    let stays = info(keys::NOHUP, Value::Bool(true));
    let first = world.spawns(2, 10, &[stays]);
    let second = world.spawns(2, 10, &[]);
    assert_eq!((world.held(), world.spawned(second)), (2, None));
    world.tool_leaves(2);
    assert_eq!(world.held(), 1);
    // The other job goes on, until the machine goes down.
    assert!(world.spawned(first).is_some());
    assert_eq!(world.ended, [].into());
    assert_eq!(world.order(Ask::Down(Down::Now)), Reply::Done);
    assert_eq!(world.ended, [JobId(1), JobId(3)].into());
    world.ends(3, ExitStatus::SUCCESS);
    assert_eq!(world.held(), 0);
}

impl World {
    /// Sends a query, and returns its number.
    fn queries(&mut self, by: u32, key: &CStr, qualifiers: &[Info]) -> u64 {
        let query = Query {
            keys: vec![Some(key.to_owned())],
            qualifiers: qualifiers.to_vec(),
        };
        let queries = vec![query];
        self.send(by, &Request::Query { queries })
    }

    /// Returns the result of a query in words; `None` if there is none yet.
    fn result(&self, number: u64) -> Option<String> {
        let shape = Shape::of(Command::Query, GroupForm::Infos);
        let answer = Answer::decode(Format::V4, shape, self.answers.get(&number)?).unwrap();
        let Answer::Infos { status, infos } = &answer else {
            panic!("{answer:?}");
        };
        Some(match &infos[..] {
            [] => format!("{status:?}"),
            [info] => match info.value.as_infos().as_deref() {
                Some([one]) => format!("{}: {:?}", one.key, one.value.as_text().unwrap()),
                _ => info.value.to_string(),
            },
            _ => panic!("{infos:?}"),
        })
    }

    fn found(&mut self, by: u32, key: &CStr, qualifiers: &[Info]) -> String {
        let number = self.queries(by, key, qualifiers);
        self.result(number).expect("no answer yet")
    }

    /// Spawns one program and daemons beside it by one request, and returns its number.
    fn cospawns(&mut self, by: u32, infos: &[Info], second: Vec<Info>) -> u64 {
        let app = |program: &CStr, procs, info: Vec<Info>| App {
            command: Some(program.to_owned()),
            maxprocs: procs,
            info,
            ..App::default()
        };
        let stop = info(keys::STOP_IN_INIT, Value::Bool(true));
        let request = Request::Spawn {
            infos: infos.to_vec(),
            apps: vec![app(c"./b", 10, vec![stop]), app(c"./daemon", 3, second)],
        };
        self.send(by, &request)
    }
}

fn of_job(name: &str) -> Info {
    info(keys::NSPACE, Value::text(name))
}

#[test]
fn the_queue_is_asked() {
    let mut world = World::new();
    world.tool_connects();
    let none: &[Info] = &[];
    let queue = |name| [info(keys::ALLOC_QUEUE, Value::text(name))];
    let status = r#"main: "1 jobs run, 0 wait, 15 of 16 slots are free""#;
    for (key, qualifiers, expected) in [
        (keys::QUERY_QUEUE_LIST, none, r#""main""#),
        (keys::QUERY_QUEUE_STATUS, none, status),
        (keys::QUERY_QUEUE_STATUS, &queue("main"), status),
        (keys::QUERY_QUEUE_STATUS, &queue("debug"), "NOT_FOUND"),
        (keys::QUERY_AVAILABLE_SLOTS, none, "15:UINT32"),
        (keys::QUERY_ALLOC_STATUS, &[id("mine")], "NOT_FOUND"),
        (keys::QUERY_ALLOC_STATUS, none, "NOT_FOUND"),
        (keys::TIME_REMAINING, &[of_job("test@1")], "NOT_FOUND"),
    ] {
        let found = world.found(2, key, qualifiers);
        assert_eq!(found, expected, "{key:?} {qualifiers:?}");
    }
    let mine = [cpus(12), seconds(60), request("mine")];
    assert_eq!(world.told(2, NEW, &mine), "2: 12 on n0,n1");
    let waits = world.asks(2, NEW, &[cpus(12), request("later")]);
    for (name, expected) in [
        ("mine", r#""granted""#),
        ("2", r#""granted""#),
        ("later", r#""waits""#),
    ] {
        let found = world.found(2, keys::QUERY_ALLOC_STATUS, &[id(name)]);
        assert_eq!(found, expected, "{name}");
    }
    // They are of the tool.
    assert_eq!(
        world.found(1, keys::QUERY_ALLOC_STATUS, &[id("mine")]),
        "NOT_FOUND"
    );
    let inside = world.spawns(2, 1, &[id("mine")]);
    assert_eq!(world.spawned(inside).as_deref(), Some("3: 1@n0"));
    world.now = Time::ZERO + Duration::from_secs(20);
    let left = world.found(2, keys::TIME_REMAINING, &[of_job("test@3")]);
    assert_eq!(left, "40:UINT32");
    assert_eq!(world.answer(waits), None);
}

#[test]
fn the_status_of_a_job_is_its_last_event() {
    let mut world = World::new();
    world.tool_connects();
    let status = |world: &mut World, job| {
        let name = world.controller.nspace(JobId(job));
        world.found(2, keys::QUERY_JOB_STATUS, &[of_job(&name)])
    };
    assert_eq!(status(&mut world, 1), "LAUNCH_COMPLETE (-174)");
    assert_eq!(status(&mut world, 9), "NOT_FOUND");
    let stops = info(keys::STOP_ON_EXEC, Value::Bool(true));
    world.spawns(2, 1, &[stops]);
    assert_eq!(status(&mut world, 3), "LAUNCH_COMPLETE (-174)");
    let held = ToController::Held {
        job: JobId(3),
        ranks: RankSet::single(Rank(0)),
    };
    world.handle(ControllerInput::Daemon(NodeId(0), held));
    assert_eq!(status(&mut world, 3), "READY_FOR_DEBUG (-58)");
    // It waits for the job that it has spawned.
    let child = world.spawns(1, 1, &[]);
    assert_eq!(world.spawned(child).as_deref(), Some("4: 1@n0"));
    world.ends(1, ExitStatus::SUCCESS);
    assert_eq!(status(&mut world, 1), "EVENT_JOB_END (-145)");
}

#[test]
fn what_jobs_use_is_measured() {
    let mut world = World::new();
    world.tool_connects();
    // Nodes without ranks have daemons.
    let flag = |key| info(key, Value::Bool(true));
    let all = [of_job("test@2"), flag(keys::QUERY_REPORT_AVG)];
    let asked = world.queries(2, keys::QUERY_MEMORY_USAGE, &all);
    assert_eq!(world.result(asked), None);
    world.measures(1, 0, 1);
    assert_eq!(world.memory(asked), "n0: 100+5, n1: +6");
    let both = world.spawns(2, 10, &[]);
    assert_eq!(world.spawned(both).as_deref(), Some("3: 2@n0+8@n1"));
    let job = world.controller.nspace(JobId(3));
    let rank = info(keys::RANK, Value::Rank(PmixRank(1)));
    let written = info(keys::RANK, Value::text("1"));
    let average = flag(keys::QUERY_REPORT_AVG);
    let cases = [
        (vec![of_job(&job), rank], vec![3], "rank 1 on n0: 2"),
        // The command `pquery` gives it as a text.
        (vec![of_job(&job), written], vec![3], "rank 1 on n0: 2"),
        (
            vec![of_job(&job), average.clone()],
            vec![3],
            "n0: 1.5+5, n1: 6.5+6",
        ),
        (
            vec![of_job(&job), flag(keys::QUERY_REPORT_MINMAX)],
            vec![3],
            "rank 0 on n0: 1, rank 9 on n1: 10",
        ),
        (
            vec![of_job(&job), average.clone(), flag(keys::QUERY_LOCAL_ONLY)],
            vec![3],
            "n0: 1.5+5",
        ),
        // A tool that names no job means all.
        (
            vec![of_job("test@2"), average],
            vec![1, 3],
            "n0: 34.333332+5, n1: 6.5+6",
        ),
    ];
    for (number, (qualifiers, jobs, expected)) in (2..).zip(cases) {
        let asked = world.queries(2, keys::QUERY_MEMORY_USAGE, &qualifiers);
        for job in jobs {
            for node in [0, 1] {
                assert_eq!(world.result(asked), None, "{qualifiers:?}");
                world.measures(job, node, number);
                if job == 1 {
                    break;
                }
            }
        }
        assert_eq!(world.memory(asked), expected, "{qualifiers:?}");
    }
    let unknown = world.found(2, keys::QUERY_MEMORY_USAGE, &[of_job("nope")]);
    assert_eq!(unknown, "NOT_FOUND");
    // What does not answer any more is not waited for.
    let asked = world.queries(2, keys::QUERY_MEMORY_USAGE, &[of_job(&job)]);
    world.measures(3, 0, 8);
    let lost = ControllerInput::DaemonLost(NodeId(1), "gone".to_owned());
    world.handle(lost);
    assert_eq!(world.memory(asked), "rank 0 on n0: 1, rank 1 on n0: 2");
}

/// The queries of a process cannot make the controller keep any number of measurements.
#[test]
fn so_many_queries_wait_for_measurements() {
    let mut world = World::new();
    world.tool_connects();
    let of_first = [of_job("test@1")];
    for _ in 0..MEASURED_QUERIES_MAX {
        let asked = world.queries(2, keys::QUERY_MEMORY_USAGE, &of_first);
        assert_eq!(world.result(asked), None);
    }
    let refused = world.found(2, keys::QUERY_MEMORY_USAGE, &of_first);
    assert_eq!(refused, "NOT_FOUND");
}

impl World {
    /// Lets a node answer a measurement: each rank has as many MiB as its rank, and one.
    fn measures(&mut self, job: u32, node: u32, number: u64) {
        let (id, node) = (JobId(job), NodeId(node));
        let launch = self.launches.iter().find(|one| one.job == id).unwrap();
        // The first job has more.
        let more = if job == 1 { 99 << 20 } else { 0 };
        let usage = |rank: Rank| ProcUsage {
            rank,
            pid: 5,
            processes: 1,
            resident: more + (u64::from(rank.0 + 1) << 20),
            used: Usage::default(),
        };
        let procs = launch.map.ranks_on(node).iter().map(usage).collect();
        let measured = ToController::Measured {
            job: id,
            number,
            procs,
            counted: None,
        };
        self.handle(ControllerInput::Daemon(node, measured));
    }

    /// Returns the memory that a query has found, in words.
    fn memory(&self, number: u64) -> String {
        let shape = Shape::of(Command::Query, GroupForm::Infos);
        let answer = Answer::decode(Format::V4, shape, &self.answers[&number]).unwrap();
        let Answer::Infos { infos, .. } = answer else {
            panic!("{answer:?}");
        };
        let about = |info: &Info| {
            let infos = info.value.as_infos().unwrap();
            let value = |key: &CStr| {
                let found = infos.iter().find(|one| one.key == *key);
                found.map(|one| one.value.clone())
            };
            let host = value(keys::HOSTNAME).unwrap();
            let host = host.as_text().unwrap().to_str().unwrap().to_owned();
            let amount = |key| match value(key) {
                Some(Value::Float(memory)) => memory.to_string(),
                None => String::new(),
                value => panic!("{value:?}"),
            };
            if let Some(Value::Proc(proc)) = value(keys::PROC_ID) {
                let rank = proc.rank;
                return format!("rank {rank} on {host}: {}", amount(keys::PROC_RSS));
            }
            let average = amount(keys::CLIENT_AVG_MEMORY);
            format!("{host}: {average}+{}", amount(keys::DAEMON_MEMORY))
        };
        let found = infos[0].value.as_infos().unwrap();
        found.into_iter().map(about).collect::<Vec<_>>().join(", ")
    }
}

/// One request makes two jobs: the program, which is held, and its daemons, which find it.
#[test]
fn a_target_and_its_daemons_are_spawned_together() {
    let mut world = World::new();
    world.tool_connects();
    let daemons = info(keys::DEBUGGER_DAEMONS, Value::Bool(true));
    let asked = world.cospawns(2, &[], vec![daemons]);
    // The name of the program is the answer.
    assert_eq!(world.spawned(asked).as_deref(), Some("3: 2@n0+8@n1"));
    let [_, program, daemons] = &world.launches[..] else {
        panic!("{:?}", world.launches);
    };
    assert_eq!(program.hold.at, HoldAt::Init);
    assert_eq!(daemons.job, JobId(4));
    assert_eq!(daemons.hold.at, HoldAt::Nowhere);
    let nodes = daemons.map.nodes().map(|node| node.0);
    assert_eq!(nodes.collect::<Vec<_>>(), [0, 1], "one on each node");
    // Daemons are numbered for themselves, and the program is numbered as without them.
    let first = |launch: &Launch| launch.nodes.iter().map(|node| node.load.first).max();
    assert_eq!(first(program), Some(1));
    assert_eq!(first(daemons), Some(0));
    let told = &daemons.parent.as_ref().unwrap().told;
    let target = world.controller.nspace(JobId(3));
    assert!(String::from_utf8_lossy(told).contains(&target));
    let later = world.spawns(1, 1, &[]);
    assert_eq!(world.spawned(later).as_deref(), Some("5: 1@n0"));
    assert_eq!(first(world.launches.last().unwrap()), Some(3));
}

/// If the second job cannot be, the first one does not go on alone.
#[test]
fn two_jobs_of_a_request_are_spawned_or_none() {
    let mut world = World::new();
    world.tool_connects();
    let apart = info(keys::COSPAWN_APP, Value::Bool(true));
    // It needs slots of its own, which it waits for.
    let asked = world.cospawns(2, &[], vec![apart]);
    assert_eq!(world.spawned(asked).as_deref(), Some("3: 2@n0+8@n1"));
    assert_eq!(world.launches.last().unwrap().job, JobId(4));
    let contradicts = vec![
        info(keys::DEBUGGER_DAEMONS, Value::Bool(true)),
        info(keys::HOST, Value::text("n0")),
    ];
    let asked = world.cospawns(1, &[], contradicts);
    assert_eq!(world.spawned(asked).as_deref(), Some("BAD_PARAM"));
    assert_eq!(world.launches.last().unwrap().job, JobId(5));
    assert_eq!(world.ended, [JobId(5)].into());
}
