//! Tests of a session, with a client that is as strict as the real one.

use std::{collections::BTreeSet, time::Duration};

use base::{Rank, RankSet, Signal, Time};

use super::packet;
use crate::{
    ANSWERS_MAX, ASKED_BYTES_MAX, Charset, Config, Decoder, Dialect, ENDED_MAX, Fault, Framing,
    Input, JobKey, JobState, LEAVE, NodeFacts, Output, Over, Packet, ProcessFacts, RankState,
    SUB_ID_MAX, Session, Stream, Taken, Ticket, encode,
};

/// A client and a platform, which does what it is told.
struct World {
    session: Session,
    framing: Framing,
    now: Time,
    decoder: Decoder,
    /// Transactions of commands without an answer.
    pending: BTreeSet<u32>,
    /// The transaction of START_EVENTS.
    start: Option<u32>,
    said: String,
    orders: Vec<Output>,
}

const SUBMIT: [&str; 3] = ["jobSubId=JOB_1", "execName=a.out", "jobNumProcs=4"];
const JOB: JobKey = JobKey(17);

fn config(dialect: Option<Dialect>) -> Config {
    let node = |name: &str| NodeFacts {
        name: name.to_owned(),
        is_up: true,
    };
    Config {
        dialect,
        charset: Charset::Ascii,
        machine: "lab".to_owned(),
        queue: "default".to_owned(),
        nodes: vec![node("n0"), node("n1")],
    }
}

impl World {
    fn new(framing: Framing, dialect: Option<Dialect>) -> Self {
        Self {
            session: Session::new(config(dialect)),
            framing,
            now: Time::ZERO,
            decoder: Decoder::new(),
            pending: BTreeSet::new(),
            start: None,
            said: String::new(),
            orders: Vec::new(),
        }
    }

    /// A session in which events are sent. What was said until then is forgotten.
    fn started() -> Self {
        let mut world = Self::new(Framing::Binary, None);
        world.command(1, 0, &["version=2.0", "baseId=1000"]);
        world.command(3, 0, &[]);
        world.said.clear();
        world
    }

    fn handle(&mut self, input: Input<'_>) {
        self.session.handle(self.now, input);
        self.work();
    }

    fn work(&mut self) {
        while let Some(bytes) = self.session.packet() {
            self.decoder.push(&bytes);
        }
        while let Some(packet) = self.decoder.next_packet().unwrap() {
            self.hear(&packet);
        }
        while let Some(output) = self.session.poll() {
            self.orders.push(output);
        }
    }

    /// What real clients die of is an error here.
    fn hear(&mut self, packet: &Packet) {
        self.said += &format!("{packet:?}\n");
        assert!(packet.args.iter().flatten().all(u8::is_ascii), "{packet:?}");
        let is_event = matches!(packet.id, 1 | 220..=245);
        let transaction = packet.transaction;
        match (packet.id, self.start) {
            // The definitions precede the OK.
            (251, _) => assert!(self.pending.contains(&transaction), "{packet:?}"),
            _ if is_event => assert_eq!(Some(transaction), self.start, "{packet:?}"),
            (0, Some(start)) if transaction == start && !self.pending.contains(&transaction) => {
                self.start = None;
            }
            _ => assert!(self.pending.remove(&transaction), "{packet:?}"),
        }
        if matches!(packet.id, 220..=235) {
            self.check_counts(packet);
        }
    }

    /// The counts of an event about elements are those of its arguments.
    fn check_counts(&self, packet: &Packet) {
        let mut args = packet
            .args
            .iter()
            .map(|arg| std::str::from_utf8(arg).unwrap());
        let has_parent = packet.id < 230 || packet.id == 233 && self.said_dialect() == Dialect::V4;
        if has_parent {
            args.next().unwrap();
        }
        let number =
            |args: &mut dyn Iterator<Item = &str>| args.next().unwrap().parse::<usize>().unwrap();
        for _ in 0..number(&mut args) {
            args.next().unwrap().parse::<RankSet>().unwrap();
            for _ in 0..number(&mut args) {
                assert!(args.next().unwrap().contains('='), "{packet:?}");
            }
        }
        assert_eq!(args.next(), None, "{packet:?}");
    }

    fn said_dialect(&self) -> Dialect {
        match self.framing {
            Framing::Ascii => Dialect::V2,
            Framing::Binary | Framing::Lines => Dialect::V4,
        }
    }

    /// The client sends a command.
    fn command(&mut self, id: u32, transaction: u32, args: &[&str]) {
        match id {
            3 if self.start.is_none() => self.start = Some(transaction),
            _ => assert!(self.pending.insert(transaction)),
        }
        let bytes = encode(&packet(id, transaction, args), self.framing).unwrap();
        self.handle(Input::Bytes(&bytes));
    }

    /// The platform takes what was submitted.
    fn take(&mut self, key: JobKey, procs: u32) {
        let Some(Output::Submit(ticket, _)) = self.orders.pop() else {
            panic!("nothing was submitted");
        };
        let taken = Taken {
            key,
            name: "a.out".to_owned(),
            procs,
        };
        self.handle(Input::Submitted(ticket, Ok(taken)));
    }

    /// Submits a job and starts it.
    fn run(&mut self, key: JobKey, procs: u32) {
        self.command(5, 1, &SUBMIT);
        self.take(key, procs);
        let process = |rank| ProcessFacts {
            node: rank % 2,
            pid: 100 + rank,
        };
        self.handle(Input::Started(key, (0..procs).map(process).collect()));
        self.handle(Input::Ranks(
            key,
            RankSet::range(0..procs),
            RankState::Running,
        ));
        self.handle(Input::Job(key, JobState::Running));
    }

    fn writes(&mut self, rank: u32, stream: Stream, bytes: &[u8]) {
        self.handle(Input::Output {
            job: JOB,
            rank: Rank(rank),
            stream,
            bytes: bytes.to_vec(),
        });
    }

    fn over(&self) -> Option<&Over> {
        self.orders.iter().find_map(|order| match order {
            Output::Close(over) => Some(over),
            _ => None,
        })
    }

    fn take_said(&mut self) -> String {
        std::mem::take(&mut self.said)
    }
}

/// A whole session, as a client of PTP 2.0 has it and as one of PTP 5.0.
/// `docs/ptp.md`: points 5, 7, 8, 9, 12, 13, 14, 17, 18 and 20.
#[test]
fn a_job_from_its_submission_to_its_end() {
    for framing in [Framing::Ascii, Framing::Binary] {
        let mut world = World::new(framing, Some(Dialect::V2));
        world.command(1, 0, &["version=2.0", "baseId=1000"]);
        world.command(2, 0, &[]);
        world.command(3, 0, &[]);
        world.run(JOB, 4);
        world.writes(1, Stream::Stdout, b"h\xe9llo\n");
        world.writes(1, Stream::Stderr, b"oh\n");
        world.handle(Input::Ranks(
            JOB,
            RankSet::range(0..3),
            RankState::Exited(0),
        ));
        world.handle(Input::Ranks(
            JOB,
            RankSet::single(Rank(3)),
            RankState::Signaled(Signal::SEGV),
        ));
        world.handle(Input::Job(JOB, JobState::Completed));
        world.command(4, 1, &[]);
        world.command(0, 0, &[]);
        world.handle(Input::End);
        assert_eq!(world.over(), Some(&Over::Quit));
        let name = match framing {
            Framing::Ascii => "session_of_ptp_2",
            Framing::Binary | Framing::Lines => "session_of_ptp_5",
        };
        insta::assert_snapshot!(name, world.said);
        assert!(world.pending.is_empty());
    }
}

/// A session of a script, line by line.
#[test]
fn a_script_drives_a_session() {
    let mut session = Session::new(config(None));
    let mut said = String::new();
    let mut say = |input: Input<'_>| {
        if let Input::Bytes(bytes) = &input {
            said += &format!("> {}", std::str::from_utf8(bytes).unwrap());
        }
        session.handle(Time::ZERO, input);
        while let Some(bytes) = session.packet() {
            said += std::str::from_utf8(&bytes).unwrap();
        }
        session.poll()
    };
    say(Input::Bytes(b"INIT 0 version=2.0 baseId=0\n"));
    say(Input::Bytes(b"START_EVENTS 0\n"));
    let submitted = say(Input::Bytes(
        b"SUBMIT_JOB 1 jobSubId=1 execName=sh progArgs=-c progArgs=echo\\x20hi jobNumProcs=1\n",
    ));
    let Some(Output::Submit(ticket, submission)) = submitted else {
        panic!("{submitted:?}");
    };
    assert_eq!(
        submission.program.args,
        [b"-c".to_vec(), b"echo hi".to_vec()]
    );
    let taken = Taken {
        key: JOB,
        name: "17".to_owned(),
        procs: 1,
    };
    say(Input::Submitted(ticket, Ok(taken)));
    say(Input::Started(JOB, vec![ProcessFacts { node: 1, pid: 7 }]));
    let output = Input::Output {
        job: JOB,
        rank: Rank(0),
        stream: Stream::Stdout,
        bytes: b"hi \\ there\n".to_vec(),
    };
    say(output);
    say(Input::Bytes(b"QUIT 2\n"));
    insta::assert_snapshot!(said);
}

/// `docs/ptp.md`: points 6, 7 and 11.
#[test]
fn what_is_wrong_with_a_command_is_said_once() {
    let mut world = World::new(Framing::Binary, None);
    world.command(2, 0, &[]);
    world.command(1, 0, &["version=1.0", "baseId=1"]);
    world.command(1, 0, &["version=2.0", "baseId=2147483646"]);
    world.command(1, 0, &["version=2.0", "baseId=1000"]);
    world.command(1, 0, &["version=2.0", "baseId=1000"]);
    world.command(99, 7, &[]);
    world.command(3, 0, &[]);
    world.command(3, 1, &[]);
    world.command(5, 1, &["execName=a.out"]);
    world.command(5, 2, &["jobSubId=A", "jobNumProcs=1"]);
    world.command(5, 2, &["jobSubId=B", "execName=a.out", "jobNumProcs=0"]);
    world.command(5, 2, &["jobSubId=C", "execName=a.out", "debug=true"]);
    world.command(6, 2, &["jobId=99"]);
    world.command(6, 2, &[]);
    assert!(world.orders.is_empty(), "{:?}", world.orders);
    // The platform has a fault of its own.
    world.command(5, 3, &SUBMIT);
    let Some(Output::Submit(ticket, _)) = world.orders.pop() else {
        panic!("it was submitted");
    };
    let fault = Fault {
        code: 1202,
        text: "there is no directory `/no`".to_owned(),
    };
    world.handle(Input::Submitted(ticket, Err(fault)));
    assert!(world.pending.is_empty());
    insta::assert_snapshot!(world.said);
}

/// `docs/ptp.md`: point 16.
#[test]
fn a_job_is_ended_once() {
    let mut world = World::started();
    world.run(JOB, 1);
    world.said.clear();
    world.command(6, 2, &["jobId=1005"]);
    let Some(Output::Terminate(ticket, JOB)) = world.orders.pop() else {
        panic!("it is being ended");
    };
    world.command(6, 3, &["jobId=1005"]);
    world.handle(Input::Terminated(ticket, Ok(())));
    world.handle(Input::Job(JOB, JobState::Completed));
    world.command(6, 2, &["jobId=1005"]);
    insta::assert_snapshot!(world.said, @r"
    212 of 3: 3 jobId=1005 errorCode=1203 errorMsg=the job is being ended already
    0 of 2:
    230 of 0: 1 1005 1 jobState=COMPLETED
    212 of 2: 3 jobId=1005 errorCode=1203 errorMsg=job 1005 is over
    ");
    // An answer that nobody waits for changes nothing.
    world.handle(Input::Terminated(Ticket(99), Ok(())));
    assert!(world.pending.is_empty());
}

/// Nothing is lost while the client suspends events, and what it filters comes never.
/// `docs/ptp.md`: point 15.
#[test]
fn events_are_suspended_and_output_is_filtered() {
    let mut world = World::started();
    world.run(JOB, 2);
    world.said.clear();
    world.command(8, 1, &[]);
    world.command(10, 2, &["stderr"]);
    world.writes(0, Stream::Stdout, b"one\n");
    world.writes(0, Stream::Stderr, b"never\n");
    for rank in [0, 1] {
        world.handle(Input::Ranks(
            JOB,
            RankSet::single(Rank(rank)),
            RankState::Exited(0),
        ));
    }
    let credits = |world: &World| {
        world
            .orders
            .iter()
            .filter(|order| matches!(order, Output::Credit(..)))
            .count()
    };
    assert_eq!(credits(&world), 1);
    assert_eq!(world.take_said(), "0 of 1:\n0 of 2:\n");
    world.command(9, 1, &[]);
    world.command(11, 2, &["stderr"]);
    world.writes(1, Stream::Stderr, b"two\n");
    insta::assert_snapshot!(world.said, @r"
    0 of 1:
    233 of 0: 1005 1 0 1 processStdout=one\n
    233 of 0: 1005 1 0-1 2 processExitCode=0 processState=COMPLETED
    0 of 2:
    233 of 0: 1005 1 1 1 processStderr=two\n
    ");
    assert_eq!(credits(&world), 3);
}

/// After STOP_EVENTS the client hears nothing, and then of everything there is.
/// `docs/ptp.md`: point 17.
#[test]
fn events_stop_and_start_again() {
    let mut world = World::started();
    world.run(JOB, 2);
    world.said.clear();
    world.command(4, 9, &[]);
    world.handle(Input::Ranks(
        JOB,
        RankSet::single(Rank(1)),
        RankState::Exited(2),
    ));
    world.writes(0, Stream::Stdout, b"dropped\n");
    let down = NodeFacts {
        name: "n1".to_owned(),
        is_up: false,
    };
    world.handle(Input::Node(1, down));
    assert_eq!(world.take_said(), "0 of 0:\n0 of 9:\n");
    world.command(4, 9, &[]);
    world.command(3, 5, &[]);
    let new = NodeFacts {
        name: "n2".to_owned(),
        is_up: true,
    };
    world.handle(Input::Node(2, new));
    insta::assert_snapshot!(world.said, @r"
    0 of 9:
    221 of 5: 1000 1 1001 2 name=lab machineState=UP
    222 of 5: 1001 1 1002 3 name=n0 nodeState=UP nodeNumber=0
    222 of 5: 1001 1 1003 3 name=n1 nodeState=DOWN nodeNumber=1
    224 of 5: 1000 1 1004 2 name=default queueState=NORMAL
    220 of 5: 1004 1 1005 4 jobSubId=JOB_1 name=a.out jobState=RUNNING jobNumProcs=2
    223 of 5: 1005 2 0 5 name=0 processNodeId=1002 processIndex=0 processPID=100 processState=RUNNING 1 6 name=1 processNodeId=1003 processIndex=1 processPID=101 processExitCode=2 processState=COMPLETED
    222 of 5: 1001 1 1006 3 name=n2 nodeState=UP nodeNumber=2
    ");
}

/// A job that runs again has new processes.
#[test]
fn a_job_may_be_started_again() {
    let mut world = World::started();
    world.run(JOB, 2);
    world.said.clear();
    world.handle(Input::Started(JOB, vec![ProcessFacts { node: 1, pid: 7 }]));
    insta::assert_snapshot!(world.said, @r"
    244 of 0: 1005 0-1
    223 of 0: 1005 1 0 5 name=0 processNodeId=1003 processIndex=0 processPID=7 processState=STARTING
    ");
}

/// `docs/ptp.md`: points 18 and 19.
#[test]
fn how_a_session_ends() {
    let quit = encode(&packet(0, 0, &[]), Framing::Binary).unwrap();
    for (bytes, expected) in [
        (&b""[..], Over::Closed),
        (&quit[..2], Over::Cut),
        (&quit, Over::Quit),
    ] {
        let mut world = World::started();
        world.pending.insert(0);
        world.handle(Input::Bytes(bytes));
        world.handle(Input::End);
        world.handle(Input::End);
        assert_eq!(world.orders, [Output::Close(expected)]);
    }
    let mut world = World::started();
    world.handle(Input::Bytes(b"\0\0\0\x04\x01"));
    world.handle(Input::Bytes(b"\0\0\0\0\0"));
    let said = world.over().unwrap().to_string();
    insta::assert_snapshot!(said, @"the client has sent what is no packet: the flags of a packet are 0x01, and only 0x40 and 0x50 are known beside 0");
    // The client does not close the connection.
    let mut world = World::started();
    world.command(0, 0, &[]);
    assert_eq!(world.take_said(), "6 of 0:\n");
    world.handle(Input::Tick);
    assert_eq!(world.over(), None);
    assert_eq!(world.session.deadline(), Some(Time::ZERO + LEAVE));
    world.now = world.now + LEAVE + Duration::from_secs(1);
    world.handle(Input::Tick);
    assert_eq!(world.over(), Some(&Over::Quit));
}

/// A client that does not read is given up.
/// `docs/ptp.md`: point 15.
#[test]
fn what_waits_is_bounded() {
    let mut session = Session::new(config(None));
    let init = encode(&packet(1, 0, &["version=2.0", "baseId=1"]), Framing::Binary).unwrap();
    session.handle(Time::ZERO, Input::Bytes(&init));
    let resume = encode(&packet(9, 0, &[]), Framing::Binary).unwrap();
    for _ in 0..ANSWERS_MAX {
        assert_eq!(session.poll(), None);
        session.handle(Time::ZERO, Input::Bytes(&resume));
    }
    assert_eq!(session.poll(), Some(Output::Close(Over::Unread)));
    assert_eq!(session.packet(), None);
}

/// What a client sends at once and what a message repeats of it do not add up.
#[test]
fn long_submissions_are_refused() {
    let mut world = World::started();
    let name = format!("jobSubId={}", "x".repeat(SUB_ID_MAX + 1));
    world.command(5, 1, &[&name, "execName=a.out"]);
    let procs = format!("jobNumProcs={}", "9".repeat(1000));
    world.command(5, 1, &["jobSubId=A", "execName=a.out", &procs]);
    let variable = format!("env=X={}", "x".repeat(3 << 20));
    let submissions = u32::try_from(ASKED_BYTES_MAX / (3 << 20)).unwrap() + 1;
    for transaction in 1..=submissions {
        world.command(5, transaction, &["jobSubId=B", "execName=a.out", &variable]);
    }
    assert_eq!(world.orders.len(), submissions as usize - 1);
    insta::assert_snapshot!(world.said, @r"
    5 of 1: 2 errorCode=1202 errorMsg=the `jobSubId` has more than 256 bytes
    211 of 1: 3 jobSubId=A errorCode=1202 errorMsg=`jobNumProcs` is `9999999999999999999999999999999999999999999999999999999999999999...`, and no number above 0
    211 of 22: 3 jobSubId=B errorCode=1207 errorMsg=too many orders wait already: submit it again later
    ");
}

/// A client that has quit or is gone gets no answers of the platform.
#[test]
fn nothing_follows_the_end() {
    for is_gone in [false, true] {
        let mut world = World::started();
        world.command(5, 1, &SUBMIT);
        match is_gone {
            false => world.command(0, 2, &[]),
            true => world.handle(Input::End),
        }
        world.said.clear();
        let submit = world.orders.remove(0);
        world.orders.push(submit);
        world.take(JOB, 1);
        assert_eq!(world.said, "");
    }
}

/// Jobs that are over are forgotten one after another.
#[test]
fn a_session_of_many_jobs_does_not_grow() {
    let mut world = World::started();
    let jobs = 3 * ENDED_MAX as u64;
    for job in 0..jobs {
        world.run(JobKey(job), 1);
        world.handle(Input::Job(JobKey(job), JobState::Completed));
    }
    let removed = world
        .said
        .lines()
        .filter(|line| line.starts_with("241 "))
        .count();
    assert_eq!(removed as u64, jobs - ENDED_MAX as u64);
    world.command(4, 9, &[]);
    world.said.clear();
    world.command(3, 5, &[]);
    let told = world
        .said
        .lines()
        .filter(|line| line.starts_with("220 "))
        .count();
    assert_eq!(told, ENDED_MAX);
}
