//! Tests of spawned jobs: their specification, and which jobs end together.

use std::ffi::CString;

use base::{NodeId, Rank, Topology};
use pmix::{
    codec::Reader,
    pmi,
    server::{KEPT_DEFAULT, MAX_KEPT},
    value::Envar,
};

use super::{
    spec::{hold, input, program, told},
    *,
};
use crate::{
    alloc::{AllocatedNode, Allocation, Slots},
    controller::{ControllerInput, ControllerOutput, job::StartNews},
    place::{self, AppRequest, TopologyDigest},
    proto::{
        AskId, Drained, Dropped, EndClass, FromFront, FrontId, JobNews, Keeping, Launch, Started,
        Stream, ToController, ToDaemon, VERSION,
    },
    spec::{
        App, EndPolicy, HoldAt, HoldPlan, JobSpec, MapFor, OnFailure, Recorder, SetName,
        StdinTarget, StdioPlan,
    },
};

fn directive(key: &CStr, value: Value) -> Info {
    Info::new(Key::new(key).unwrap(), value)
}

#[test]
fn daemons_find_a_target_that_has_the_old_attribute() {
    let target = Nspace::from_text("job@1").unwrap();
    let old = directive(keys::DEBUG_JOB, Value::text("job@1"));
    let new = Value::Proc(Box::new(Proc::all(target)));
    let new = directive(keys::DEBUG_TARGET, new);
    for (infos, expected) in [
        (vec![old.clone()], vec![old.clone(), new.clone()]),
        (vec![new.clone(), old.clone()], vec![new.clone(), old]),
        (vec![new.clone()], vec![new]),
        (Vec::new(), Vec::new()),
    ] {
        let packed = told(&infos);
        let read = Reader::new(Format::V4, &packed).list::<Info>();
        assert_eq!(read.unwrap_or_default(), expected);
    }
}

#[test]
fn who_reads_what_is_pushed() {
    let cases = [
        (vec![], Ok(StdinTarget::None)),
        (
            vec![directive(keys::FWD_STDIN, Value::Bool(true))],
            Ok(StdinTarget::Rank(Rank(0))),
        ),
        (
            vec![directive(keys::FWD_STDIN, Value::Bool(false))],
            Ok(StdinTarget::None),
        ),
        (
            vec![directive(keys::FWD_STDIN, Value::Rank(PmixRank(2)))],
            Ok(StdinTarget::Rank(Rank(2))),
        ),
        (
            vec![directive(keys::STDIN_TARGET, Value::Uint32(u32::MAX - 1))],
            Ok(StdinTarget::All),
        ),
        (
            vec![
                directive(keys::FWD_STDIN, Value::Bool(true)),
                directive(keys::STDIN_TARGET, Value::Uint32(1)),
            ],
            Ok(StdinTarget::Rank(Rank(1))),
        ),
        (
            vec![directive(
                keys::STDIN_TARGET,
                Value::Proc(Box::new(Proc::all(Nspace::from_text("a").unwrap()))),
            )],
            Ok(StdinTarget::All),
        ),
        (
            vec![directive(keys::STDIN_TARGET, Value::text("2"))],
            Ok(StdinTarget::Rank(Rank(2))),
        ),
        (
            vec![directive(keys::STDIN_TARGET, Value::text("all"))],
            Ok(StdinTarget::All),
        ),
        (
            vec![directive(keys::STDIN_TARGET, Value::text("none"))],
            Ok(StdinTarget::None),
        ),
        (
            vec![directive(keys::STDIN_TARGET, Value::text("first"))],
            Err(Status::BAD_PARAM),
        ),
        (
            vec![directive(keys::STDIN_TARGET, Value::Int(-1))],
            Err(Status::BAD_PARAM),
        ),
        (
            vec![directive(keys::STDIN_TARGET, Value::String(None))],
            Err(Status::BAD_PARAM),
        ),
    ];
    for (infos, expected) in cases {
        assert_eq!(input(&infos), expected, "{infos:?}");
    }
}

/// The directives of the job, and of two apps with two ranks each; the ranks that stop, and where.
#[test]
fn who_stops_and_where() {
    let yes = || Value::Bool(true);
    let rank = |rank| Value::Rank(PmixRank(rank));
    let procs = |ranks: &[u32]| {
        let nspace = || Nspace::from_text("any").unwrap();
        let proc = |rank: &u32| Proc {
            nspace: nspace(),
            rank: PmixRank(*rank),
        };
        Value::procs(ranks.iter().map(proc).collect())
    };
    type Directives = Vec<(&'static CStr, Value)>;
    let (exec, init, app) = (keys::STOP_ON_EXEC, keys::STOP_IN_INIT, keys::STOP_IN_APP);
    let cases: Vec<([Directives; 3], &str)> = vec![
        ([vec![], vec![], vec![]], "nobody"),
        ([vec![(exec, yes())], vec![], vec![]], "all in Exec"),
        ([vec![(init, rank(2))], vec![], vec![]], "2 in Init"),
        ([vec![(app, procs(&[1, 3]))], vec![], vec![]], "1,3 in App"),
        ([vec![], vec![(exec, yes())], vec![]], "0-1 in Exec"),
        ([vec![], vec![], vec![(init, yes())]], "2-3 in Init"),
        (
            [vec![], vec![(init, yes())], vec![(init, rank(3))]],
            "0-1,3 in Init",
        ),
        (
            [vec![], vec![(init, yes())], vec![(exec, yes())]],
            "NOT_SUPPORTED",
        ),
        ([vec![(exec, Value::Int(1))], vec![], vec![]], "BAD_PARAM"),
        (
            [
                vec![(keys::DEBUGGER_DAEMONS, yes()), (exec, yes())],
                vec![],
                vec![],
            ],
            "nobody",
        ),
    ];
    for ([of_job, first, second], expected) in cases {
        let infos = |said: Directives| -> Vec<Info> {
            let infos = said.into_iter();
            infos.map(|(key, value)| directive(key, value)).collect()
        };
        let apps = [(0..2, infos(first)), (2..4, infos(second))];
        let found = match hold(&infos(of_job), &apps) {
            Ok(plan) if plan == HoldPlan::NOWHERE => "nobody".to_owned(),
            Ok(HoldPlan { at, ranks: None }) => format!("all in {at:?}"),
            Ok(HoldPlan {
                at,
                ranks: Some(ranks),
            }) => format!("{ranks} in {at:?}"),
            Err(status) => format!("{status:?}"),
        };
        assert_eq!(found, expected);
    }
}

#[test]
fn who_hears_of_a_start() {
    let asks = |value| directive(keys::NOTIFY_JOB_EVENTS, Value::Bool(value));
    let tool = Spawner::Tool(WhenItLeaves::End);
    for (infos, spawner, expected) in [
        (vec![], Spawner::Rank, StartNews::Untold),
        (vec![asks(true)], Spawner::Rank, StartNews::Told),
        (vec![], tool, StartNews::Told),
        (vec![asks(false)], tool, StartNews::Untold),
    ] {
        assert_eq!(start_news(&infos, spawner), expected, "{infos:?}");
    }
}

#[test]
fn output_is_forwarded_where_it_is_asked_for() {
    let infos = [
        directive(keys::FWD_STDOUT, Value::Bool(false)),
        directive(keys::FWD_STDERR, Value::Bool(true)),
    ];
    assert_eq!(forwarded(&infos, Spawner::Rank), [Stream::Stderr]);
    // A tool gets what it does not refuse.
    let tool = Spawner::Tool(WhenItLeaves::End);
    assert_eq!(forwarded(&[], Spawner::Rank), []);
    assert_eq!(forwarded(&[], tool), [Stream::Stdout, Stream::Stderr]);
    let refused = directive(keys::FWD_STDOUT, Value::Bool(false));
    assert_eq!(forwarded(&[refused], tool), [Stream::Stderr]);
}

#[test]
fn output_is_kept_for_tools() {
    let tool = Spawner::Tool(WhenItLeaves::End);
    let size = |bytes| directive(keys::IOF_CACHE_SIZE, Value::Uint32(bytes));
    let flag = |key| directive(key, Value::Bool(true));
    let (oldest, newest) = (keys::IOF_DROP_OLDEST, keys::IOF_DROP_NEWEST);
    let keeps = |bytes, dropped| Ok(Some(Keeping { bytes, dropped }));
    let half = KEPT_DEFAULT / 2;
    let cases = [
        (vec![], Spawner::Rank, Ok(None)),
        (vec![], tool, keeps(KEPT_DEFAULT, Dropped::Newest)),
        (
            vec![size(half)],
            Spawner::Rank,
            keeps(half, Dropped::Newest),
        ),
        (vec![size(u32::MAX)], tool, keeps(MAX_KEPT, Dropped::Newest)),
        (vec![size(0)], tool, keeps(0, Dropped::Newest)),
        (
            vec![flag(oldest)],
            Spawner::Rank,
            keeps(KEPT_DEFAULT, Dropped::Oldest),
        ),
        (vec![size(7), flag(newest)], tool, keeps(7, Dropped::Newest)),
        (
            vec![flag(oldest), flag(newest)],
            tool,
            Err(Status::BAD_PARAM),
        ),
        (
            vec![directive(keys::IOF_CACHE_SIZE, Value::text("much"))],
            tool,
            Err(Status::BAD_PARAM),
        ),
    ];
    for (infos, spawner, expected) in cases {
        assert_eq!(kept(&infos, spawner), expected, "{infos:?}");
    }
}

pub(super) fn app(program: &str) -> App {
    App {
        program: program.into(),
        args: Vec::new(),
        env: crate::spec::Environment::default(),
        directory: "/home/u".into(),
        search: "/usr/bin:/bin".into(),
        elsewhere: Arc::default(),
        umask: 0o022,
        tracers: crate::spec::Tracers::Ancestors,
    }
}

pub(in crate::controller) fn job(on_failure: OnFailure) -> JobSpec {
    JobSpec {
        needs: Default::default(),
        sets: Default::default(),
        recorder: Recorder::Off,
        limits: Default::default(),
        map: MapFor::Launch,
        watch: None,
        preload: None,
        apps: vec![app("./a.out")],
        placement: place::Request {
            apps: vec![AppRequest {
                count: Some(1),
                ..AppRequest::default()
            }],
            ..place::Request::default()
        },
        universe: None,
        stdin: StdinTarget::None,
        stdio: StdioPlan::default(),
        end: EndPolicy {
            on_failure,
            on_node_loss: on_failure,
            ..EndPolicy::default()
        },
        hold: HoldPlan::NOWHERE,
        variables: std::collections::BTreeSet::new(),
        gpus: None,
    }
}

fn spawn(infos: &[(&str, &str)], preput: &[(&str, &str)]) -> pmi::Spawn {
    let owned = |pairs: &[(&str, &str)]| {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    };
    pmi::Spawn {
        apps: vec![pmi::SpawnApp {
            program: "./ice".to_owned(),
            args: vec!["x".to_owned()],
            count: 2,
            infos: owned(infos),
        }],
        preput: owned(preput),
    }
}

/// A controller of one node, `n1`, whose job 1 runs with one rank.
struct World {
    controller: Controller,
    outputs: Vec<ControllerOutput>,
    number: u64,
}

const NODE: NodeId = NodeId(0);
const FRONT: FrontId = FrontId(0);
/// The job that the front has submitted.
const FIRST: JobId = JobId(1);

fn ended(job: JobId, status: ExitStatus, ranks: RankSet) -> ToController {
    let class = EndClass {
        status,
        drained: Drained::Whole,
        ranks,
    };
    let classes = vec![class];
    ToController::Ended { job, classes }
}

impl World {
    fn new(on_failure: OnFailure) -> Self {
        let allocation = Allocation {
            nodes: vec![AllocatedNode {
                name: "n1".to_owned(),
                slots: Slots::Explicit(4),
                max_slots: None,
                granted: None,
            }],
        };
        let mut world = Self {
            controller: Controller::new(allocation, "test".to_owned()),
            outputs: Vec::new(),
            number: 0,
        };
        let job = Box::new(job(on_failure));
        world.handle(ControllerInput::FrontConnected {
            front: FRONT,
            pid: 77,
        });
        world.handle(ControllerInput::Front(FRONT, FromFront::Submit(job)));
        world.daemon(ToController::Hello {
            resources: Default::default(),
            version: VERSION,
            node: NODE,
            host: "n1".to_owned(),
            topology: TopologyDigest::of(&Topology::flat(4)),
        });
        world.daemon(ToController::Topology(Box::new(Topology::flat(4))));
        world.launched(FIRST, 1);
        world
    }

    fn handle(&mut self, input: ControllerInput) {
        self.controller.handle(Time::ZERO, input);
        self.outputs
            .extend(std::iter::from_fn(|| self.controller.poll()));
    }

    fn daemon(&mut self, message: ToController) {
        self.handle(ControllerInput::Daemon(NODE, message));
    }

    fn launched(&mut self, job: JobId, ranks: u32) {
        let started = Started {
            executable: "./a.out".into(),
            pids: (0..ranks).map(|rank| (Rank(rank), 1)).collect(),
        };
        self.daemon(ToController::Launched {
            job,
            started: vec![started],
            failures: Vec::new(),
            unenforced: Vec::new(),
        });
    }

    /// Sends a rank's spawn request by PMI, and reports the ranks of the new job as started.
    fn spawn(&mut self, by: JobId, spawn: pmi::Spawn) -> JobId {
        self.number += 1;
        let count = spawn.apps[0].count;
        self.daemon(ToController::Ask {
            proc: ProcId {
                job: by,
                rank: Rank(0),
            },
            ticket: AskId::Pmi {
                job: by,
                number: self.number,
            },
            request: pmi::Ask::Spawn(spawn).encode().unwrap(),
        });
        let id = self.launch().job;
        self.launched(id, count);
        let reply = pmi::Reply::Job(format!("test@{id}"));
        assert_eq!(self.reply(), Some(reply));
        id
    }

    /// Returns the last launch that was sent to a daemon.
    fn launch(&self) -> Launch {
        let launches = self.outputs.iter().rev().filter_map(|output| match output {
            ControllerOutput::Daemon(_, ToDaemon::Launch(launch)) => Some(launch),
            _ => None,
        });
        Launch::clone(launches.into_iter().next().unwrap())
    }

    /// Decodes the last answer to a spawn request.
    fn reply(&self) -> Option<pmi::Reply> {
        self.outputs.iter().rev().find_map(|output| match output {
            ControllerOutput::Daemon(_, ToDaemon::Answer { answer, .. }) => {
                Some(pmi::Reply::decode(pmi::Kind::Spawn, answer))
            }
            _ => None,
        })
    }

    /// Returns the jobs for which daemons got an `End`.
    fn ended(&self) -> Vec<u32> {
        let ended = self.outputs.iter().filter_map(|output| match output {
            ControllerOutput::Daemon(_, ToDaemon::End { job, .. }) => Some(job.0),
            _ => None,
        });
        ended.collect()
    }

    /// Ends every rank of a job with code 0, and reports the job as clean.
    fn gone(&mut self, job: JobId, ranks: u32) {
        self.daemon(ended(job, ExitStatus::SUCCESS, RankSet::range(0..ranks)));
        self.daemon(ToController::Clean {
            job,
            spent: base::Usage::default(),
        });
    }

    fn aborts(&mut self, job: JobId) {
        self.daemon(ToController::Abort {
            job,
            rank: Rank(1),
            code: 42,
            message: String::new(),
        });
    }

    fn fails(&mut self, job: JobId) {
        self.daemon(ended(job, ExitStatus::Exited(3), RankSet::single(Rank(1))));
    }

    fn notes(&self) -> usize {
        let note = |output: &&ControllerOutput| {
            matches!(
                output,
                ControllerOutput::Front(FRONT, ToFront::Note(Note::SpawnedFailed { .. }))
            )
        };
        self.outputs.iter().filter(note).count()
    }

    fn cause(&self) -> Option<Cause> {
        self.outputs.iter().find_map(|output| match output {
            ControllerOutput::Front(FRONT, ToFront::Ended(outcome)) => Some(outcome.cause.clone()),
            _ => None,
        })
    }
}

#[test]
fn a_job_that_pmi_has_spawned_knows_its_spawner() {
    let mut world = World::new(OnFailure::EndJob);
    let preput = [("PARENT_ROOT_PORT_NAME", "tag#0$")];
    world.spawn(FIRST, spawn(&[], &preput));
    let parent = world.launch().parent.unwrap();
    assert_eq!(parent.nspace, "test@1");
    let preput = preput.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(parent.preput.unwrap(), preput);
}

#[test]
fn what_a_spawned_job_has_used_is_counted_for_the_first_one() {
    let mut world = World::new(OnFailure::EndJob);
    let spawned = world.spawn(FIRST, spawn(&[], &[]));
    world.daemon(ended(spawned, ExitStatus::SUCCESS, RankSet::range(0..2)));
    let spent = base::Usage {
        read: 10,
        ..base::Usage::default()
    };
    world.daemon(ToController::Clean {
        job: spawned,
        spent,
    });
    assert!(!world.controller.jobs.contains_key(&spawned));
    assert_eq!(world.controller.jobs[&FIRST].spent, spent);
}

#[test]
fn what_mpi_says_of_a_program_is_heard() {
    let mut world = World::new(OnFailure::EndJob);
    let infos = [
        ("wdir", "ice"),
        ("host", "localhost"),
        ("path", "/opt/bin"),
        ("soft", "1:2"),
    ];
    world.spawn(FIRST, spawn(&infos, &[]));
    let launch = world.launch();
    assert_eq!(launch.size(), 2);
    let app = &launch.apps[0];
    assert_eq!(app.program, "/opt/bin/./ice");
    assert_eq!(app.args, ["x"]);
    assert_eq!(app.directory, "/home/u/ice");

    let mut by_name = spawn(&[("path", "/opt/bin:/opt/more")], &[]);
    by_name.apps[0].program = "ice".to_owned();
    world.spawn(FIRST, by_name);
    let app = &world.launch().apps[0];
    assert_eq!(app.program, "ice");
    assert_eq!(app.search, "/opt/bin:/opt/more:/usr/bin:/bin");
}

#[test]
fn a_host_that_is_not_there_is_an_answer() {
    let mut world = World::new(OnFailure::EndJob);
    world.daemon(ToController::Ask {
        proc: ProcId {
            job: FIRST,
            rank: Rank(0),
        },
        ticket: AskId::Pmi {
            job: FIRST,
            number: 1,
        },
        request: pmi::Ask::Spawn(spawn(&[("host", "n2")], &[]))
            .encode()
            .unwrap(),
    });
    let refused = pmi::Reply::Refused("cannot_be_placed");
    assert_eq!(world.reply(), Some(refused));
    assert_eq!(world.ended(), [0; 0]);
}

#[test]
fn an_mpi_program_of_several_jobs_ends_as_one() {
    for (end, cause) in [
        (
            World::aborts as fn(&mut World, JobId),
            Cause::Aborted {
                rank: Rank(1),
                code: 42,
                message: String::new(),
            },
        ),
        (
            World::fails,
            Cause::Failed {
                rank: Rank(1),
                status: ExitStatus::Exited(3),
            },
        ),
    ] {
        let mut world = World::new(OnFailure::EndJob);
        let second = world.spawn(FIRST, spawn(&[], &[]));
        let third = world.spawn(second, spawn(&[], &[]));
        let sibling = world.spawn(FIRST, spawn(&[], &[]));
        end(&mut world, third);
        assert_eq!(world.ended(), [3, 2, 4, 1]);
        for (job, ranks) in [(third, 2), (second, 2), (sibling, 2), (FIRST, 1)] {
            world.gone(job, ranks);
        }
        let cause = Box::new(cause);
        assert_eq!(world.cause(), Some(Cause::Spawned { job: third, cause }));
        assert_eq!(world.notes(), 0, "it is said once");
    }
}

#[test]
fn under_the_policy_to_go_on_a_failure_is_told_and_an_abort_ends_all() {
    let mut world = World::new(OnFailure::Continue);
    let second = world.spawn(FIRST, spawn(&[], &[]));
    world.fails(second);
    assert_eq!(world.ended(), [0; 0]);
    world.gone(second, 2);
    assert_eq!(world.notes(), 1);

    let third = world.spawn(FIRST, spawn(&[], &[]));
    world.aborts(third);
    assert_eq!(world.ended(), [3, 1]);
}

#[test]
fn what_pmix_has_spawned_fails_alone() {
    let mut world = World::new(OnFailure::EndJob);
    let infos = Vec::new();
    let asked = pmi::Ask::Spawn(spawn(&[], &[])).to_pmix().unwrap();
    let pmix::message::Request::Spawn { apps, .. } = asked else {
        panic!("{asked:?}");
    };
    let mut writer = Writer::new(Format::V4);
    pmix::message::Request::Spawn { infos, apps }.encode(&mut writer);
    world.daemon(ToController::Ask {
        proc: ProcId {
            job: FIRST,
            rank: Rank(0),
        },
        ticket: AskId::Pmix(1),
        request: writer.into_bytes().into(),
    });
    let second = world.launch();
    assert_eq!(second.parent.unwrap().preput, None);
    world.launched(second.job, 2);
    world.aborts(second.job);
    assert_eq!(world.ended(), [2]);
    world.gone(second.job, 2);
    assert_eq!(world.notes(), 1);
}

#[test]
fn a_program_that_cannot_be_started_is_an_answer_and_nothing_else() {
    let mut world = World::new(OnFailure::EndJob);
    let ticket = AskId::Pmi {
        job: FIRST,
        number: 1,
    };
    world.daemon(ToController::Ask {
        proc: ProcId {
            job: FIRST,
            rank: Rank(0),
        },
        ticket,
        request: pmi::Ask::Spawn(spawn(&[], &[])).encode().unwrap(),
    });
    let failure = StartFailure {
        step: StartStep::Find,
        errno: 2,
        subject: Some("./ice".into()),
    };
    world.daemon(ToController::Launched {
        unenforced: Vec::new(),
        job: JobId(2),
        started: Vec::new(),
        failures: vec![(failure, (0..2).map(Rank).collect())],
    });
    let refused = pmi::Reply::Refused("program_not_found");
    assert_eq!(world.reply(), Some(refused));
    assert_eq!(world.ended(), [2]);
}

/// Rank 0 of the front's job spawns a job by PMIx, whose ranks are to be held.
fn spawn_held(world: &mut World) -> HoldPlan {
    let request = pmix::message::Request::Spawn {
        infos: vec![directive(keys::STOP_ON_EXEC, Value::Bool(true))],
        apps: vec![SpawnedApp {
            command: CString::new("./a").ok(),
            maxprocs: 1,
            ..SpawnedApp::default()
        }],
    };
    let mut writer = Writer::new(Format::V4);
    request.encode(&mut writer);
    world.daemon(ToController::Ask {
        proc: ProcId {
            job: FIRST,
            rank: Rank(0),
        },
        ticket: AskId::Pmix(7),
        request: writer.into_bytes().into(),
    });
    world.launch().hold
}

/// The request of a process may arrive after its end. Nobody would release the ranks.
#[test]
fn nobody_is_held_for_a_spawner_that_has_ended() {
    let mut world = World::new(OnFailure::EndJob);
    assert_eq!(spawn_held(&mut world), HoldPlan::all(HoldAt::Exec));
    world.daemon(ended(FIRST, ExitStatus::SUCCESS, RankSet::single(Rank(0))));
    assert_eq!(spawn_held(&mut world), HoldPlan::NOWHERE);
}

/// Returns the number of ranks that a spawn by PMIx gets, or the status if it is refused. Rank 0 of the front's job
/// sends the request, after it has spawned a job of two ranks.
fn spawned_with(infos: Vec<Info>, maxprocs: i32) -> Result<u32, Status> {
    let mut world = World::new(OnFailure::EndJob);
    world.spawn(FIRST, spawn(&[], &[]));
    let request = pmix::message::Request::Spawn {
        infos,
        apps: vec![SpawnedApp {
            command: CString::new("./a").ok(),
            maxprocs,
            ..SpawnedApp::default()
        }],
    };
    let mut writer = Writer::new(Format::V4);
    request.encode(&mut writer);
    let before = world.outputs.len();
    world.daemon(ToController::Ask {
        proc: ProcId {
            job: FIRST,
            rank: Rank(0),
        },
        ticket: AskId::Pmix(7),
        request: writer.into_bytes().into(),
    });
    let shape = pmix::message::Shape::Spawned;
    for output in &world.outputs[before..] {
        if let ControllerOutput::Daemon(_, ToDaemon::Launch(launch)) = output {
            return Ok(launch.size());
        }
        if let ControllerOutput::Daemon(_, ToDaemon::Answer { answer, .. }) = output {
            return Err(Answer::decode(Format::V4, shape, answer).unwrap().status());
        }
    }
    panic!("the spawn is not answered");
}

#[test]
fn as_many_beside_others_as_is_said() {
    let procs = |procs: &[(&str, PmixRank)]| {
        let procs = procs.iter().map(|(name, rank)| Proc {
            nspace: Nspace::from_text(name).unwrap(),
            rank: *rank,
        });
        directive(keys::COLOCATE_PROCS, Value::procs(procs.collect()))
    };
    let per_proc = |count| directive(keys::COLOCATE_PER_PROC, Value::Uint16(count));
    let per_node = |count| directive(keys::COLOCATE_PER_NODE, Value::Uint16(count));
    let both = [("test@2", PmixRank(0)), ("test@2", PmixRank(1))];
    let whole = [("test@2", PmixRank::WILDCARD), ("test@2", PmixRank(1))];
    let other = [("test@1", PmixRank(0)), ("test@2", PmixRank(1))];
    let bad = Err(Status::BAD_PARAM);
    let cases = [
        (vec![procs(&both), per_proc(3)], 0, Ok(6)),
        (vec![procs(&whole), per_proc(2)], 0, Ok(4)),
        (vec![procs(&other), per_proc(1)], 0, Ok(2)),
        (vec![procs(&whole), per_node(3)], 0, Ok(3)),
        // `maxprocs` is an upper limit, and it is the number of procs if no colocation count is given.
        (vec![procs(&both), per_proc(3)], 4, Ok(4)),
        (vec![procs(&both)], 2, Ok(2)),
        (vec![procs(&both)], 0, Err(Status::JOB_FAILED_TO_MAP)),
        // The procs to be colocated with are mandatory, only one count may be given, and it must not be 0.
        (vec![per_proc(1)], 2, bad),
        (vec![procs(&both), per_proc(1), per_node(1)], 0, bad),
        (vec![procs(&both), per_proc(0)], 2, bad),
        (
            vec![
                procs(&both),
                directive(keys::HOST, Value::text("localhost")),
            ],
            2,
            bad,
        ),
        (
            vec![directive(keys::COLOCATE_PROCS, Value::Bool(true))],
            2,
            bad,
        ),
        (vec![procs(&[]), per_proc(1)], 0, Err(Status::NOT_FOUND)),
        (
            vec![procs(&[("test@2", PmixRank(2))]), per_proc(1)],
            0,
            Err(Status::NOT_FOUND),
        ),
        (
            vec![procs(&[("elsewhere@2", PmixRank(0))]), per_proc(1)],
            0,
            Err(Status::NOT_FOUND),
        ),
    ];
    for (infos, maxprocs, expected) in cases {
        let text = format!("{infos:?} {maxprocs}");
        assert_eq!(spawned_with(infos, maxprocs), expected, "{text}");
    }
}

#[test]
fn variables_change_as_directives_say() {
    let envar = |key, name: &str, value: &str| {
        let envar = Envar {
            name: CString::new(name).ok(),
            value: CString::new(value).ok(),
            separator: b':',
        };
        directive(key, Value::Envar(Box::new(envar)))
    };
    let base = App {
        program: "a".into(),
        args: Vec::new(),
        env: [("A", "1"), ("B", "2")].into_iter().collect(),
        directory: "/".into(),
        search: "/bin".into(),
        elsewhere: Arc::default(),
        umask: 0o022,
        tracers: crate::spec::Tracers::Ancestors,
    };
    let cases = [
        (envar(keys::SET_ENVAR, "A", "3"), "B=2 A=3"),
        (envar(keys::ADD_ENVAR, "A", "3"), "A=1 B=2"),
        (envar(keys::ADD_ENVAR, "C", "3"), "A=1 B=2 C=3"),
        (envar(keys::PREPEND_ENVAR, "A", "3"), "B=2 A=3:1"),
        (envar(keys::APPEND_ENVAR, "A", "3"), "B=2 A=1:3"),
        (envar(keys::APPEND_ENVAR, "C", "3"), "A=1 B=2 C=3"),
        (envar(keys::UNSET_ENVAR, "A", ""), "B=2"),
        (directive(keys::UNSET_ENVAR, Value::text("A")), "B=2"),
        (envar(keys::HOST, "A", "3"), "A=1 B=2"),
    ];
    for (info, expected) in cases {
        let app = SpawnedApp {
            command: CString::new("a").ok(),
            ..SpawnedApp::default()
        };
        let text = format!("{info:?}");
        let app = program(&base, &[info], app).unwrap();
        let variables = app.env.iter();
        let line: Vec<String> = variables
            .map(|(name, value)| format!("{}={}", name.display(), value.display()))
            .collect();
        assert_eq!(line.join(" "), expected, "{text}");
    }
}

/// The name of an app takes precedence over that of the job. Sets of the spawner's job are not inherited.
#[test]
fn apps_name_their_process_sets() {
    let name = |text: &str| directive(keys::PSET_NAME, Value::text(text));
    let set = |text: &str| SetName::try_from(text.to_owned()).unwrap();
    let mut spawner = job(OnFailure::EndJob);
    spawner.sets.insert(0, set("land"));
    let flag = directive(keys::PSET_NAME, Value::Bool(true));
    let cases = [
        (vec![], vec![], Ok(vec![])),
        (vec![], vec![name("ocean")], Ok(vec![(1, "ocean")])),
        (
            vec![name("air")],
            vec![name("ocean")],
            Ok(vec![(0, "air"), (1, "ocean")]),
        ),
        (vec![], vec![name("a,b")], Err(Status::BAD_PARAM)),
        (vec![name("")], vec![], Err(Status::BAD_PARAM)),
        (vec![], vec![flag], Err(Status::BAD_PARAM)),
    ];
    for (infos, of_second, expected) in cases {
        let app = |info: &[Info]| SpawnedApp {
            command: CString::new("a").ok(),
            maxprocs: 1,
            info: info.to_vec(),
            ..SpawnedApp::default()
        };
        let apps = vec![app(&[]), app(&of_second)];
        let here = LocalNames::new("n0");
        let made = spec(&here, &spawner, None, &infos, apps).map(|(spec, _)| spec.sets);
        let expected = expected.map(|sets| {
            let sets = sets.into_iter();
            sets.map(|(app, name)| (app, set(name))).collect()
        });
        assert_eq!(made, expected, "{infos:?} {of_second:?}");
    }
}

/// The front prints starts and ends where the spawner wants it, also that of a job that has failed.
#[test]
fn starts_and_ends_are_logged() {
    let asks = |key, value| directive(key, Value::Bool(value));
    let (all, end) = (keys::LOG_JOB_EVENTS, keys::LOG_COMPLETION);
    for (infos, expected) in [
        (vec![], &[][..]),
        (vec![asks(all, false)], &[]),
        (vec![asks(end, true)], &["ended 3"]),
        (vec![asks(all, true)], &["started 2", "ended 3"]),
        (
            vec![asks(end, true), asks(all, true)],
            &["started 2", "ended 3"],
        ),
    ] {
        let mut world = World::new(OnFailure::EndJob);
        let request = pmix::message::Request::Spawn {
            infos,
            apps: vec![SpawnedApp {
                command: CString::new("./a").ok(),
                maxprocs: 2,
                ..SpawnedApp::default()
            }],
        };
        let mut writer = Writer::new(Format::V4);
        request.encode(&mut writer);
        world.daemon(ToController::Ask {
            proc: ProcId {
                job: FIRST,
                rank: Rank(0),
            },
            ticket: AskId::Pmix(1),
            request: writer.into_bytes().into(),
        });
        let second = world.launch().job;
        world.launched(second, 2);
        world.fails(second);
        world.gone(second, 1);
        let logged = world.outputs.iter().filter_map(|output| match output {
            ControllerOutput::Front(FRONT, ToFront::Note(Note::Logged { job, news, .. })) => {
                assert_eq!(*job, second);
                Some(match news {
                    JobNews::Started { ranks } => format!("started {ranks}"),
                    JobNews::Ended { code, .. } => format!("ended {code}"),
                })
            }
            _ => None,
        });
        assert_eq!(logged.collect::<Vec<_>>(), expected);
        assert_eq!(world.notes(), 1);
    }
}
