//! Sessions of a real client with a real proxy, replayed against us.
//!
//! Our answers have the same structure: the same events with the same transactions in the same order, as far as the real proxy does not say a
//! thing twice, which we never do.

use base::{RankSet, Time};

use crate::{
    Charset, Config, Decoder, Dialect, Fault, Framing, Input, JobKey, JobState, NodeFacts, Output,
    Packet, ProcessFacts, Procs, RankState, Session, Stream, Submission, Taken, Ticket, encode,
};

const TRACES: [(&str, &str); 10] = [
    ("run", include_str!("../../../../testdata/ptp/orte-run.txt")),
    (
        "path",
        include_str!("../../../../testdata/ptp/orte-path.txt"),
    ),
    (
        "noexec",
        include_str!("../../../../testdata/ptp/orte-err-noexec.txt"),
    ),
    (
        "nosub",
        include_str!("../../../../testdata/ptp/orte-err-nosub.txt"),
    ),
    (
        "np0",
        include_str!("../../../../testdata/ptp/orte-err-np0.txt"),
    ),
    (
        "notfound",
        include_str!("../../../../testdata/ptp/orte-err-notfound.txt"),
    ),
    (
        "nodbg",
        include_str!("../../../../testdata/ptp/orte-err-nodbg.txt"),
    ),
    (
        "notexec",
        include_str!("../../../../testdata/ptp/orte-err-notexec.txt"),
    ),
    (
        "debug",
        include_str!("../../../../testdata/ptp/orte-debug.txt"),
    ),
    (
        "debug-term",
        include_str!("../../../../testdata/ptp/orte-debug-term.txt"),
    ),
];

const JOB: JobKey = JobKey(1);

/// What one side sends in a row.
#[derive(Debug, PartialEq, Eq)]
struct Turn {
    is_client: bool,
    packets: Vec<Packet>,
}

/// Returns the packets of a recording. Consecutive ones of one side are a turn.
fn turns(trace: &str) -> Vec<Turn> {
    let mut turns: Vec<Turn> = Vec::new();
    for line in trace.lines().filter(|line| !line.starts_with('#')) {
        let (who, text) = line.split_once(' ').unwrap();
        let bytes = text.replace("\\n", "\n").replace("\\\\", "\\");
        let mut decoder = Decoder::new();
        decoder.push(bytes.as_bytes());
        let packet = decoder.next_packet().unwrap().unwrap();
        let is_client = who == "client";
        match turns.last_mut() {
            Some(last) if last.is_client == is_client => last.packets.push(packet),
            _ => turns.push(Turn {
                is_client,
                packets: vec![packet],
            }),
        }
    }
    turns
}

/// Returns what packets say of a job's course: each event once, without what differs in each run.
fn structure(packets: &[Packet]) -> Vec<String> {
    let mut said: Vec<String> = Vec::new();
    // The real proxy has no attributes of its own.
    for packet in packets.iter().filter(|packet| packet.id != 251) {
        let is_output = |arg: &Vec<u8>| arg.starts_with(b"processStd");
        let what = match packet.id {
            233 if packet.args.iter().any(is_output) => "output".to_owned(),
            id => id.to_string(),
        };
        said.push(format!("{what} of {}", packet.transaction));
    }
    said
}

/// The platform of the recording: programs that it does not find, and a job that runs to its end or until it is ended.
struct Platform {
    session: Session,
    is_debugged: bool,
    /// Debuggers end by themselves.
    debuggers_end: bool,
    heard: Vec<Packet>,
}

impl Platform {
    fn handle(&mut self, input: Input<'_>) {
        self.session.handle(Time::ZERO, input);
        while let Some(output) = self.session.poll() {
            match output {
                Output::Submit(ticket, submission) => self.submit(ticket, &submission),
                Output::Terminate(ticket, JOB) => {
                    self.handle(Input::Terminated(ticket, Ok(())));
                    self.handle(Input::Job(JOB, JobState::Completed));
                }
                Output::Credit(..) | Output::Close(_) => {}
                Output::Terminate(..) => panic!("{output:?}"),
            }
        }
        let mut decoder = Decoder::new();
        while let Some(bytes) = self.session.packet() {
            decoder.push(&bytes);
        }
        while let Some(packet) = decoder.next_packet().unwrap() {
            self.heard.push(packet);
        }
    }

    fn submit(&mut self, ticket: Ticket, submission: &Submission) {
        let debugger = submission
            .debugger
            .as_ref()
            .and_then(|debugger| debugger.program.name.as_deref());
        let program = submission.program.name.as_deref();
        // `app.c` is no program.
        if matches!(program, Some(b"nosuch" | b"app.c")) || debugger == Some(b"nosdm") {
            let fault = Fault {
                code: 1202,
                text: "there is no such program".to_owned(),
            };
            return self.handle(Input::Submitted(ticket, Err(fault)));
        }
        let Procs::Number(procs) = submission.procs else {
            panic!("{submission:?}");
        };
        self.is_debugged = debugger.is_some();
        let taken = Taken {
            key: JOB,
            name: "job01".to_owned(),
            procs,
        };
        self.handle(Input::Submitted(ticket, Ok(taken)));
        let process = ProcessFacts { node: 0, pid: 5189 };
        self.handle(Input::Started(JOB, vec![process; procs as usize]));
        let ranks = RankSet::range(0..procs);
        // What becomes of the processes of a debugger is the debugger's.
        if !self.is_debugged {
            self.handle(Input::Ranks(JOB, ranks.clone(), RankState::Running));
        }
        self.handle(Input::Job(JOB, JobState::Running));
        if self.is_debugged {
            if self.debuggers_end {
                self.handle(Input::Job(JOB, JobState::Completed));
            }
            return;
        }
        for rank in ranks.iter() {
            for stream in [Stream::Stdout, Stream::Stderr] {
                let bytes = b"a line".to_vec();
                self.handle(Input::Output {
                    job: JOB,
                    rank,
                    stream,
                    bytes,
                });
            }
        }
        self.handle(Input::Ranks(JOB, ranks, RankState::Exited(0)));
        self.handle(Input::Job(JOB, JobState::Completed));
    }
}

/// `docs/ptp.md`: point 32.
#[test]
fn real_sessions_have_the_same_structure() {
    for (name, trace) in TRACES {
        let node = NodeFacts {
            name: "vm".to_owned(),
            is_up: true,
        };
        let config = Config {
            dialect: Some(Dialect::V2),
            charset: Charset::Ascii,
            machine: "vm".to_owned(),
            queue: "default".to_owned(),
            nodes: vec![node],
        };
        let mut platform = Platform {
            session: Session::new(config),
            is_debugged: false,
            debuggers_end: name == "debug",
            heard: Vec::new(),
        };
        let mut turns = turns(trace).into_iter().peekable();
        while let Some(turn) = turns.next() {
            assert!(turn.is_client, "{name}");
            let unknown = turn
                .packets
                .iter()
                .any(|packet| packet.args.iter().any(|arg| arg == b"jobId=999999"));
            for packet in &turn.packets {
                let bytes = encode(packet, Framing::Ascii).unwrap();
                platform.handle(Input::Bytes(&bytes));
            }
            let ours = std::mem::take(&mut platform.heard);
            let mut ours = structure(&ours);
            // The real proxy does not answer that at all.
            if unknown {
                assert_eq!(ours.remove(0), "212 of 1");
            }
            let theirs = turns
                .next_if(|turn| !turn.is_client)
                .map(|turn| turn.packets)
                .unwrap_or_default();
            assert_eq!(
                ours,
                structure(&once(theirs)),
                "{name}: after {:?}",
                turn.packets
            );
        }
    }
}

/// Returns the packets without those that say the same as one before, and with one for all processes.
fn once(packets: Vec<Packet>) -> Vec<Packet> {
    let mut rest: Vec<Packet> = Vec::new();
    for packet in packets {
        let is_same = |other: &Packet| packet.id >= 220 && *other == packet;
        let is_new_process = packet.id == 223 && rest.last().is_some_and(|last| last.id == 223);
        if !rest.iter().any(is_same) && !is_new_process {
            rest.push(packet);
        }
    }
    rest
}
