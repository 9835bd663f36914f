//! The operations that a tool has in addition to a program, with a scripted server.

use pmix::{
    client::{Config, Connector, Done, Input, Lost, ProgramEvent, Ticket},
    codec::Format,
    handshake::Welcome,
    keys,
    message::{Answer, Push, Request},
    tool::{Control, Event, Extent, Follow, JobEnd, Stage, Tool},
    value::{
        DataType, Info, IofChannels, Key, Nspace, PmixRank, Proc, ProcInfo, ProcState, Query,
        Range, Status, Value,
    },
};

use crate::host::{Host, NOW, config, proc};

fn nspace(name: &str) -> Nspace {
    proc(name, 0).nspace
}

fn ok() -> Answer {
    Answer::Status(Status::SUCCESS)
}

/// Creates a tool that is connected.
fn tool() -> Host<Tool> {
    let config = Config {
        connector: Connector::Tool,
        ..config()
    };
    let mut host = Host::new(Tool::new(NOW, config), Format::V4);
    host.handle(Input::Opened);
    let welcome = Welcome::Tool {
        assigned: Some(proc("tool", 0)),
        server: proc("daemon", 0),
        security: Status::SUCCESS,
    };
    host.bytes(&welcome.encode());
    let (tag, request) = host.asked_one();
    assert_eq!(request, Request::JobInfo);
    // A directive to hold processes applies to the processes of a job, not to a tool.
    host.answer(
        tag,
        &Answer::JobInfo {
            nspace: nspace("tool"),
            facts: vec![crate::host::fact("pmix.dbg.init", Value::Bool(true))],
        },
    );
    let ready = ProgramEvent::Ready {
        me: proc("tool", 0),
        server: proc("daemon", 0),
    };
    assert_eq!(host.news(), [Event::Program(ready)]);
    host
}

fn done(ticket: Ticket, result: Result<Done, Status>) -> Event {
    Event::Program(ProgramEvent::Done { ticket, result })
}

fn info(key: &std::ffi::CStr, value: Value) -> Info {
    Info::new(Key::new(key).unwrap(), value)
}

fn end_of(name: &str, status: Status, code: Option<i32>) -> Push {
    let about = Value::Proc(Box::new(Proc::all(nspace(name))));
    let mut infos = vec![
        info(keys::EVENT_NON_DEFAULT, Value::Bool(true)),
        info(keys::JOB_TERM_STATUS, Value::Status(status)),
        info(keys::EVENT_AFFECTED_PROC, about),
    ];
    infos.extend(code.map(|code| info(keys::EXIT_CODE, Value::Int(code))));
    Push::Event {
        status: Status::EVENT_JOB_END,
        source: proc(name, 0),
        infos,
        range: None,
    }
}

/// Spawns a job and returns the ticket and the tag of the request. The registration for job ends is answered with `registered`.
fn spawn(host: &mut Host<Tool>, registered: Option<Status>) -> (Ticket, u32) {
    let ticket = host.machine.spawn(Vec::new(), Vec::new());
    host.drain();
    let mut asked = host.asked();
    if let Some(status) = registered {
        let (tag, request) = asked.remove(0);
        let codes = vec![Status::EVENT_JOB_END];
        let infos = Vec::new();
        assert_eq!(request, Request::Register { codes, infos });
        host.answer(tag, &Answer::Status(status));
    }
    let (tag, request) = asked.remove(0);
    let infos = vec![info(c"pmix.notecomp", Value::Bool(true))];
    let apps = Vec::new();
    assert_eq!(request, Request::Spawn { infos, apps });
    assert_eq!(asked, []);
    (ticket, tag)
}

fn spawned(name: &str) -> Answer {
    Answer::Spawned {
        status: Status::SUCCESS,
        nspace: Some(nspace(name).as_c_str().to_owned()),
        facts: Vec::new(),
    }
}

fn ended(name: &str, status: Status, exit_code: Option<i32>) -> Event {
    Event::JobEnded {
        nspace: nspace(name),
        end: JobEnd {
            status: Some(status),
            exit_code,
            failed: None,
        },
    }
}

/// An event about a stage of a job, as a server sends it.
fn stage_of(name: &str, status: Status) -> Push {
    Push::Event {
        status,
        source: proc("daemon", 0),
        infos: vec![
            info(keys::EVENT_NON_DEFAULT, Value::Bool(true)),
            info(keys::NSPACE, Value::text(name)),
        ],
        range: Some(Range::CUSTOM),
    }
}

fn reached(name: &str, stage: Stage) -> Event {
    Event::JobStage {
        nspace: nspace(name),
        stage,
    }
}

/// Follows jobs. The server accepts all registrations.
fn follow(host: &mut Host<Tool>, follow: Follow) {
    let ticket = host.machine.follow(follow);
    host.drain();
    for (tag, request) in host.asked() {
        assert!(matches!(request, Request::Register { .. }), "{request:?}");
        host.answer(tag, &ok());
    }
    assert_eq!(host.news(), [done(ticket, Ok(Done::Nothing))]);
}

#[test]
fn a_tool_hears_of_the_stages_of_its_jobs_once() {
    use Status as S;
    let mut host = tool();
    follow(&mut host, Follow::Spawned);
    // A second order needs no registration.
    follow(&mut host, Follow::Job(nspace("watched")));
    let (ticket, tag) = spawn(&mut host, None);
    // The job is ready before the answer to its spawn comes, and some events come twice.
    for status in [S::EVENT_JOB_START, S::READY_FOR_DEBUG, S::READY_FOR_DEBUG] {
        host.push(&stage_of("a", status));
        host.push(&stage_of("other", status));
    }
    assert_eq!(host.news(), []);
    host.answer(tag, &spawned("a"));
    host.push(&stage_of("a", S::LAUNCH_COMPLETE));
    host.push(&stage_of("watched", S::LAUNCH_COMPLETE));
    host.push(&end_of("a", S::SUCCESS, Some(0)));
    host.push(&stage_of("a", S::LAUNCH_COMPLETE));
    host.push(&end_of("watched", S::SUCCESS, None));
    host.push(&end_of("watched", S::SUCCESS, None));
    let expected = [
        done(ticket, Ok(Done::Spawned(nspace("a")))),
        reached("a", Stage::Started),
        reached("a", Stage::ReadyForDebug),
        reached("a", Stage::Launched),
        reached("watched", Stage::Launched),
        ended("a", S::SUCCESS, Some(0)),
        ended("watched", S::SUCCESS, None),
    ];
    assert_eq!(host.news(), expected);
}

#[test]
fn an_end_names_the_process_that_has_failed() {
    let mut host = tool();
    follow(&mut host, Follow::All);
    let about = Value::Proc(Box::new(proc("a", 3)));
    let code = info(keys::EXIT_CODE, Value::Int(7));
    for _ in 0..2 {
        host.push(&Push::Event {
            status: Status::EVENT_JOB_END,
            source: proc("daemon", 0),
            infos: vec![info(keys::EVENT_AFFECTED_PROC, about.clone()), code.clone()],
            range: None,
        });
    }
    let end = JobEnd {
        status: None,
        exit_code: Some(7),
        failed: Some(PmixRank(3)),
    };
    let nspace = nspace("a");
    assert_eq!(host.news(), [Event::JobEnded { nspace, end }]);
}

#[test]
fn a_tool_hears_of_the_end_of_its_jobs_once() {
    let mut host = tool();
    let (ticket, tag) = spawn(&mut host, Some(Status::SUCCESS));
    let success = Status::SUCCESS;
    // The server repeats old events.
    host.push(&end_of("old", success, None));
    host.push(&end_of("old", success, None));
    assert_eq!(host.news(), []);
    host.answer(tag, &spawned("a"));
    assert_eq!(host.news(), [done(ticket, Ok(Done::Spawned(nspace("a"))))]);
    host.push(&end_of("old", success, None));
    host.push(&end_of("b", success, None));
    let killed = Status::JOB_KILLED_BY_CMD;
    host.push(&end_of("a", killed, Some(137)));
    host.push(&end_of("a", killed, Some(137)));
    assert_eq!(host.news(), [ended("a", killed, Some(137))]);
    // Only a job end that arrives between the spawn request and its answer can belong to the spawned job.
    let (first, first_tag) = spawn(&mut host, None);
    let (second, second_tag) = spawn(&mut host, None);
    host.push(&end_of("c", success, None));
    host.push(&end_of("e", success, None));
    host.answer(second_tag, &spawned("d"));
    host.answer(first_tag, &spawned("c"));
    let expected = [
        done(second, Ok(Done::Spawned(nspace("d")))),
        done(first, Ok(Done::Spawned(nspace("c")))),
        ended("c", success, None),
    ];
    assert_eq!(host.news(), expected);
    host.push(&end_of("c", success, None));
    assert_eq!(host.news(), []);
    // Without an unanswered spawn no job end is kept.
    let (again, tag) = spawn(&mut host, None);
    host.answer(tag, &spawned("e"));
    assert_eq!(host.news(), [done(again, Ok(Done::Spawned(nspace("e"))))]);
}

#[test]
fn a_spawn_may_fail_and_so_may_the_registration() {
    let mut host = tool();
    let status = Status::NOT_SUPPORTED;
    let (ticket, tag) = spawn(&mut host, Some(status));
    assert_eq!(host.news(), [Event::EndsUnknown { status }]);
    host.answer(tag, &Answer::Status(Status::JOB_FAILED_TO_MAP));
    let failed = done(ticket, Err(Status::JOB_FAILED_TO_MAP));
    assert_eq!(host.news(), [failed]);
    // The next spawn registers again.
    let (ticket, tag) = spawn(&mut host, Some(Status::SUCCESS));
    host.answer(tag, &spawned("a"));
    host.push(&end_of("a", Status::SUCCESS, None));
    let expected = [
        done(ticket, Ok(Done::Spawned(nspace("a")))),
        ended("a", Status::SUCCESS, None),
    ];
    assert_eq!(host.news(), expected);
}

#[test]
fn a_handler_of_the_user_hears_ends_too() {
    let mut host = tool();
    let codes = vec![Status::EVENT_JOB_END];
    let (handler, _) = host.machine.program().register(codes, Vec::new());
    host.drain();
    let (tag, _) = host.asked_one();
    host.answer(tag, &ok());
    spawn(&mut host, Some(Status::SUCCESS));
    host.news();
    host.push(&end_of("old", Status::SUCCESS, None));
    let news = host.news();
    let [Event::Program(ProgramEvent::Notice { handlers, notice })] = &news[..] else {
        panic!("{news:?}");
    };
    assert_eq!(*handlers, [handler]);
    assert_eq!(notice.affected(), [&Proc::all(nspace("old"))]);
}

#[test]
fn an_end_may_name_its_job_by_the_source_alone() {
    let mut host = tool();
    let (_, tag) = spawn(&mut host, Some(Status::SUCCESS));
    host.answer(tag, &spawned("a"));
    host.news();
    host.push(&Push::Event {
        status: Status::EVENT_JOB_END,
        source: proc("a", 0),
        infos: Vec::new(),
        range: None,
    });
    let end = JobEnd::default();
    let nspace = nspace("a");
    assert_eq!(host.news(), [Event::JobEnded { nspace, end }]);
}

#[test]
fn output_is_pulled_and_stopped_by_the_right_numbers() {
    let mut host = tool();
    let procs = vec![Proc::all(nspace("a"))];
    let both = IofChannels::STDOUT.with(IofChannels::STDERR);
    let (pull, ticket) = host.machine.pull(procs.clone(), both, Vec::new());
    let (other, failing) = host.machine.pull(procs.clone(), both, Vec::new());
    let early = host.machine.stop_pull(pull);
    host.drain();
    assert_eq!(host.news(), [done(early, Err(Status::NOT_FOUND))]);
    let asked = host.asked();
    let request = |id| Request::IofPull {
        procs: procs.clone(),
        infos: Vec::new(),
        channels: both,
        id,
    };
    assert_eq!((pull.number(), other.number()), (1, 2));
    assert_eq!(asked[0].1, request(1));
    assert_eq!(asked[1].1, request(2));
    host.answer(
        asked[0].0,
        &Answer::Number {
            status: Status::SUCCESS,
            number: 40,
        },
    );
    host.answer(asked[1].0, &Answer::Status(Status::NOT_SUPPORTED));
    let expected = [
        done(ticket, Ok(Done::Nothing)),
        done(failing, Err(Status::NOT_SUPPORTED)),
    ];
    assert_eq!(host.news(), expected);

    let stop = host.machine.stop_pull(pull);
    let again = host.machine.stop_pull(pull);
    let never = host.machine.stop_pull(other);
    host.drain();
    let (tag, request) = host.asked_one();
    let infos = Vec::new();
    assert_eq!(request, Request::IofDeregister { infos, id: 40 });
    host.answer(tag, &ok());
    let expected = [
        done(again, Err(Status::NOT_FOUND)),
        done(never, Err(Status::NOT_FOUND)),
        done(stop, Ok(Done::Nothing)),
    ];
    assert_eq!(host.news(), expected);
}

#[test]
fn input_ends_when_it_is_told_to() {
    let mut host = tool();
    let procs = vec![proc("a", 0)];
    let nothing = host
        .machine
        .push_stdin(procs.clone(), b"".as_slice().into());
    host.drain();
    assert_eq!(host.news(), [done(nothing, Ok(Done::Nothing))]);
    let push = host
        .machine
        .push_stdin(procs.clone(), b"x".as_slice().into());
    let close = host.machine.close_stdin(procs.clone());
    host.drain();
    let asked = host.asked();
    let request = |infos, bytes: &'static [u8]| Request::IofPush {
        procs: procs.clone(),
        infos,
        bytes: Some(bytes.into()),
    };
    let complete = vec![info(keys::IOF_COMPLETE, Value::Bool(true))];
    assert_eq!(asked[0].1, request(Vec::new(), b"x"));
    assert_eq!(asked[1].1, request(complete, b""));
    for (tag, _) in asked {
        host.answer(tag, &Answer::Status(Status::IOF_COMPLETE));
    }
    let expected = [
        done(push, Err(Status::IOF_COMPLETE)),
        done(close, Ok(Done::Nothing)),
    ];
    assert_eq!(host.news(), expected);
}

#[test]
fn a_table_is_read_from_its_query() {
    let row = ProcInfo {
        proc: proc("a", 0),
        hostname: Some(c"n1".into()),
        executable: Some(c"/bin/sleep".into()),
        pid: 77,
        state: ProcState::RUNNING,
    };
    let rows = Value::array(
        DataType::PROC_INFO,
        vec![Value::ProcInfo(Box::new(row.clone()))],
    );
    let wrong = Value::array(DataType::PROC_RANK, vec![Value::Rank(PmixRank(1))]);
    let infos = |value| Answer::Infos {
        status: Status::SUCCESS,
        infos: vec![info(keys::QUERY_PROC_TABLE, value)],
    };
    for (answer, result) in [
        (infos(rows), Ok(vec![row])),
        (infos(Value::Bool(true)), Err(Status::NOT_FOUND)),
        (infos(wrong), Err(Status::UNPACK_FAILURE)),
        (ok(), Err(Status::NOT_FOUND)),
        (
            Answer::Status(Status::NOT_SUPPORTED),
            Err(Status::NOT_SUPPORTED),
        ),
    ] {
        let mut host = tool();
        let ticket = host.machine.proc_table(&nspace("a"), Extent::Job);
        host.drain();
        let (tag, request) = host.asked_one();
        let query = Query {
            keys: vec![Some(keys::QUERY_PROC_TABLE.into())],
            qualifiers: vec![info(keys::NSPACE, Value::text("a"))],
        };
        let queries = vec![query];
        assert_eq!(request, Request::Query { queries });
        host.answer(tag, &answer);
        assert_eq!(host.news(), [Event::Table { ticket, result }]);
    }
}

#[test]
fn processes_are_steered() {
    let mut host = tool();
    let targets = vec![Proc::all(nspace("a"))];
    for (control, key, value) in [
        (Control::Kill, keys::JOB_CTRL_KILL, Value::Bool(true)),
        (
            Control::Terminate,
            keys::JOB_CTRL_TERMINATE,
            Value::Bool(true),
        ),
        (Control::Pause, keys::JOB_CTRL_PAUSE, Value::Bool(true)),
        (Control::Resume, keys::JOB_CTRL_RESUME, Value::Bool(true)),
        (Control::Signal(10), keys::JOB_CTRL_SIGNAL, Value::Int(10)),
    ] {
        let ticket = host.machine.control(targets.clone(), control);
        host.drain();
        let (tag, request) = host.asked_one();
        let infos = vec![info(key, value)];
        let targets = targets.clone();
        assert_eq!(request, Request::JobControl { targets, infos });
        host.answer(tag, &ok());
        assert_eq!(host.news(), [done(ticket, Ok(Done::Nothing))]);
    }
    let release = host.machine.release(targets.clone());
    host.drain();
    let (tag, request) = host.asked_one();
    let Request::Notify { status, range, .. } = &request else {
        panic!("{request:?}");
    };
    assert_eq!((*status, *range), (Status::DEBUGGER_RELEASE, Range::CUSTOM));
    host.answer(tag, &ok());
    assert_eq!(host.news(), [done(release, Ok(Done::Nothing))]);
}

#[test]
fn a_tool_may_leave_without_a_word() {
    let mut host = tool();
    let (ticket, _) = spawn(&mut host, Some(Status::SUCCESS));
    let table = host.machine.proc_table(&nspace("a"), Extent::Node);
    host.machine.program().close();
    host.drain();
    let result = Err(Status::UNREACH);
    let ticketed = Event::Table {
        ticket: table,
        result,
    };
    let why = Lost::Left;
    let expected = [
        done(ticket, Err(Status::UNREACH)),
        ticketed,
        Event::Program(ProgramEvent::Lost { why }),
    ];
    assert_eq!(host.news(), expected);
    assert_eq!(host.closes, 1);
}
