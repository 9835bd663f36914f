//! Tests of what packets mean: commands as real clients send them, and events as real proxies do.

use base::{Rank, RankSet};

use super::packet;
use crate::{
    Attribute, Charset, Command, Debugger, Definition, Dialect, Elements, Event, Filters, JobState,
    Kind, Level, NoCommand, Packet, ProcessState, Procs, Program, Type,
};

/// `docs/ptp.md`: point 6.
#[test]
fn commands_of_a_client() {
    let decode = |id, args: &[&str]| Command::decode(&packet(id, 7, args));
    let init = decode(
        1,
        &["version=2.0", "baseId=1000", "ortedPath=/usr/bin/orted"],
    );
    assert_eq!(init, Ok(Command::Init { base_id: 1000 }));
    let both = Filters {
        stdout: true,
        stderr: true,
    };
    for (id, args, expected) in [
        (0, &[][..], Command::Quit),
        (2, &[], Command::ModelDef),
        (3, &[], Command::StartEvents),
        (4, &[], Command::StopEvents),
        (
            6,
            &["jobId=1004"],
            Command::TerminateJob { job: Some(1004) },
        ),
        (6, &["jobId=x"], Command::TerminateJob { job: None }),
        (6, &[], Command::TerminateJob { job: None }),
        (7, &["filterChildren=true"], Command::FilterEvents),
        (8, &[], Command::SuspendEvents),
        (9, &[], Command::ResumeEvents),
        (10, &["stdout", "stderr"], Command::SetFilters(both)),
        (11, &["else"], Command::ClearFilters(Filters::default())),
        (12, &[], Command::GetAttributes),
        (13, &[], Command::QueryAttributes),
    ] {
        assert_eq!(decode(id, args), Ok(expected));
    }
    let mut said = String::new();
    for (id, args) in [
        (14, &[][..]),
        (1, &[]),
        (1, &["version=3.0\n", "baseId=1"]),
        (1, &["version=2.0"]),
        (1, &["version=2.0", "baseId=-1"]),
        (1, &["version=2.0", "baseId=2147483648"]),
    ] {
        said += &format!("{}\n", decode(id, args).unwrap_err());
    }
    insta::assert_snapshot!(said, @r"
    there is no command 14
    INIT has no `version`
    the client speaks version 3.0\n, and the proxy 2.0
    INIT has no `baseId`
    the `baseId` -1 is no number below 2147483648
    the `baseId` 2147483648 is no number below 2147483648
    ");
    assert_eq!(decode(99, &[]), Err(NoCommand::Unknown(99)));
}

#[test]
fn what_a_client_submits() {
    let args = [
        "jobSubId=JOB_1",
        "execName=hello.sh",
        "execPath=/srv/demo",
        "workingDir=/srv/demo/run",
        "jobNumProcs=2",
        "progArgs=a=b",
        "progArgs",
        "progArgs=last",
        "env=FOO=bar",
        "queueId=1003",
        "debug=true",
        "debugStopInMain=true",
        "debugExecName=sdm",
        "debugArgs=--host=localhost",
        "debugArgs=--port=4711",
        "launchedByPTP=true",
    ];
    let Ok(Command::SubmitJob(submission)) = Command::decode(&packet(5, 1, &args)) else {
        panic!("it is a submission");
    };
    let bytes = |text: &str| Vec::from(text);
    assert_eq!(submission.sub_id, Some(bytes("JOB_1")));
    let program = Program {
        name: Some(bytes("hello.sh")),
        directory: Some(bytes("/srv/demo")),
        args: vec![bytes("a=b"), bytes(""), bytes("last")],
    };
    assert_eq!(submission.program, program);
    assert_eq!(submission.procs, Procs::Number(2));
    assert_eq!(submission.env, [bytes("FOO=bar")]);
    let debugger = Debugger {
        attaches: false,
        program: Program {
            name: Some(bytes("sdm")),
            directory: None,
            args: vec![bytes("--host=localhost"), bytes("--port=4711")],
        },
        stops_in_main: true,
    };
    assert_eq!(submission.debugger, Some(debugger));
    assert_eq!(submission.others, [(bytes("launchedByPTP"), bytes("true"))]);
}

#[test]
fn how_many_processes_is_a_number_above_0() {
    for (args, expected) in [
        (&[][..], Procs::Unsaid),
        (&["jobNumProcs=0"], Procs::Invalid(Vec::from("0"))),
        (&["jobNumProcs=-1"], Procs::Invalid(Vec::from("-1"))),
        (&["jobNumProcs"], Procs::Invalid(Vec::new())),
        (
            &["jobNumProcs=1", "jobNumProcs=3", "debug=false"],
            Procs::Number(3),
        ),
    ] {
        let Ok(Command::SubmitJob(submission)) = Command::decode(&packet(5, 1, args)) else {
            panic!("it is a submission");
        };
        assert_eq!((submission.procs, submission.debugger), (expected, None));
    }
}

fn elements(ids: impl IntoIterator<Item = u32>, attributes: Vec<Attribute>) -> Vec<Elements> {
    vec![Elements {
        ids: ids.into_iter().map(Rank).collect(),
        attributes,
    }]
}

/// The first events of a session of a real proxy of PTP 2.0, and those of a job.
fn session(dialect: Dialect) -> Vec<Event> {
    let state = |state: JobState| Attribute::new("jobState", state.name(dialect));
    let process = |state: ProcessState| vec![Attribute::new("processState", state.name(dialect))];
    let ranks = match dialect {
        Dialect::V2 => 1005..1007,
        Dialect::V4 => 0..2,
    };
    let new = |kind, parent, elements| Event::New {
        kind,
        parent,
        elements,
    };
    let change = |job, kind, elements| Event::Change {
        kind,
        job,
        elements,
    };
    let up = |key, name: &str| vec![Attribute::new("name", name), Attribute::new(key, "UP")];
    vec![
        new(
            Kind::Machine,
            1000,
            elements([1001], up("machineState", "vm")),
        ),
        new(Kind::Node, 1001, elements([1002], up("nodeState", "vm"))),
        new(
            Kind::Queue,
            1000,
            elements([1003], vec![Attribute::new("name", "default")]),
        ),
        new(
            Kind::Job,
            1003,
            elements(
                [1004],
                vec![
                    Attribute::new("jobSubId", "JOB_1"),
                    state(JobState::Starting),
                ],
            ),
        ),
        new(
            Kind::Process,
            1004,
            elements(ranks.clone(), process(ProcessState::Starting)),
        ),
        change(
            Some(1004),
            Kind::Process,
            elements(ranks.clone(), process(ProcessState::Suspended)),
        ),
        change(
            Some(1004),
            Kind::Process,
            elements(
                [ranks.start],
                vec![Attribute::new("processStdout", "=caf\u{e9}\n")],
            ),
        ),
        // Without its value, the attribute is not sent.
        change(
            Some(1004),
            Kind::Process,
            elements([ranks.start], vec![Attribute::new("processStderr", "")]),
        ),
        change(
            Some(1004),
            Kind::Process,
            elements(ranks.clone(), process(ProcessState::Signaled)),
        ),
        change(
            None,
            Kind::Job,
            elements([1004], vec![state(JobState::Completed)]),
        ),
        Event::Remove {
            kind: Kind::Process,
            job: Some(1004),
            ids: RankSet::range(ranks),
        },
        Event::Remove {
            kind: Kind::Job,
            job: None,
            ids: RankSet::single(Rank(1004)),
        },
    ]
}

fn lines(events: &[Event], dialect: Dialect, charset: Charset) -> String {
    let packets = events.iter().map(|event| event.encode(3, dialect, charset));
    packets
        .map(|packet: Packet| format!("{packet:?}\n"))
        .collect()
}

/// `docs/ptp.md`: points 13, 14 and 20.
#[test]
fn events_of_a_job() {
    let both =
        [Dialect::V2, Dialect::V4].map(|dialect| lines(&session(dialect), dialect, Charset::Ascii));
    insta::assert_snapshot!(both.join("\n"), @r"
    221 of 3: 1000 1 1001 2 name=vm machineState=UP
    222 of 3: 1001 1 1002 2 name=vm nodeState=UP
    224 of 3: 1000 1 1003 1 name=default
    220 of 3: 1003 1 1004 2 jobSubId=JOB_1 jobState=STARTED
    223 of 3: 1004 1 1005-1006 1 processState=STARTING
    233 of 3: 1 1005-1006 1 processState=STOPPED
    233 of 3: 1 1005 1 processStdout==caf\\xc3\\xa9\n
    233 of 3: 1 1005 0
    233 of 3: 1 1005-1006 1 processState=EXITED_SIGNALLED
    230 of 3: 1 1004 1 jobState=TERMINATED
    244 of 3: 1005-1006
    241 of 3: 1004

    221 of 3: 1000 1 1001 2 name=vm machineState=UP
    222 of 3: 1001 1 1002 2 name=vm nodeState=UP
    224 of 3: 1000 1 1003 1 name=default
    220 of 3: 1003 1 1004 2 jobSubId=JOB_1 jobState=STARTING
    223 of 3: 1004 1 0-1 1 processState=STARTING
    233 of 3: 1004 1 0-1 1 processState=SUSPENDED
    233 of 3: 1004 1 0 1 processStdout==caf\\xc3\\xa9\n
    233 of 3: 1004 1 0 0
    233 of 3: 1004 1 0-1 1 processState=COMPLETED
    230 of 3: 1 1004 1 jobState=COMPLETED
    244 of 3: 1004 0-1
    241 of 3: 1004
    ");
    let bytes = lines(&session(Dialect::V4)[6..7], Dialect::V4, Charset::Bytes);
    insta::assert_snapshot!(bytes, @r"233 of 3: 1004 1 0 1 processStdout==caf\xc3\xa9\n");
}

/// `docs/ptp.md`: points 5 and 8.
#[test]
fn events_about_commands() {
    let text = || Vec::from("no such program");
    let definition = |id, of| {
        Event::Definition(Definition {
            id,
            name: "Name",
            description: "What it is",
            is_shown: true,
            default: "none",
            of,
        })
    };
    let events = [
        Event::Ok,
        Event::Shutdown,
        Event::RemoveAll,
        Event::GotAttributes,
        Event::QueriedAttributes,
        Event::Message {
            level: Level::Warning,
            code: 3,
            text: text(),
        },
        Event::Error {
            code: 1200,
            text: text(),
        },
        Event::SubmitError {
            sub_id: Vec::from("JOB_1"),
            code: 1202,
            text: text(),
        },
        Event::TerminateError {
            job: 1004,
            code: 1203,
            text: text(),
        },
        definition("flag", Type::Boolean),
        definition("number", Type::Integer { min: 1, max: 64 }),
        definition("choice", Type::Enumerated(&["a", "b"])),
        definition("text", Type::String),
    ];
    insta::assert_snapshot!(lines(&events, Dialect::V4, Charset::Ascii), @r"
    0 of 3:
    6 of 3:
    240 of 3:
    252 of 3: 0
    253 of 3: 0
    1 of 3: 3 messageLevel=WARNING messageCode=3 messageText=no such program
    5 of 3: 2 errorCode=1200 errorMsg=no such program
    211 of 3: 3 jobSubId=JOB_1 errorCode=1202 errorMsg=no such program
    212 of 3: 3 jobId=1004 errorCode=1203 errorMsg=no such program
    251 of 3: 1 6 flag BOOLEAN Name What it is true none
    251 of 3: 1 8 number INTEGER Name What it is true none 1 64
    251 of 3: 1 8 choice ENUMERATED Name What it is true none a b
    251 of 3: 1 6 text STRING Name What it is true none
    ");
}
