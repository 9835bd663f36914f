//! A session with a client that sends anything, while a platform does what it likes: nothing panics, each order is answered once, and
//! what is sent are packets.
#![no_main]

use std::collections::BTreeSet;

use arbitrary::Arbitrary;
use base::{Rank, RankSet, Signal, Time};
use libfuzzer_sys::fuzz_target;
use ptp::{
    Charset, Config, Decoder, Dialect, Fault, Framing, Input, JobKey, JobState, NodeFacts, Output,
    Packet, ProcessFacts, RankState, Session, Stream, Taken, Ticket, encode,
};

#[derive(Arbitrary, Debug)]
enum Op<'a> {
    Raw(&'a [u8]),
    Command {
        id: u8,
        transaction: u8,
        args: Vec<Arg>,
    },
    Answer {
        which: u8,
        is_refused: bool,
        procs: u8,
    },
    Started {
        job: u8,
        procs: u8,
    },
    Job {
        job: u8,
        state: u8,
    },
    Ranks {
        job: u8,
        from: u8,
        count: u8,
        state: u8,
    },
    Output {
        job: u8,
        rank: u8,
        is_stderr: bool,
        bytes: &'a [u8],
    },
    Node {
        index: u8,
        is_up: bool,
    },
    Read(u8),
    Tick(u8),
    End,
}

#[derive(Arbitrary, Debug)]
enum Arg {
    Version,
    Base(u32),
    SubId,
    Program,
    Procs(i8),
    Job(u8),
    Debug,
    Stdout,
    Stderr,
}

impl Arg {
    fn text(&self) -> String {
        match self {
            Self::Version => "version=2.0".to_owned(),
            Self::Base(base) => format!("baseId={base}"),
            Self::SubId => "jobSubId=JOB".to_owned(),
            Self::Program => "execName=a.out".to_owned(),
            Self::Procs(count) => format!("jobNumProcs={count}"),
            Self::Job(job) => format!("jobId={}", 1000 + u32::from(*job)),
            Self::Debug => "debug=true".to_owned(),
            Self::Stdout => "stdout".to_owned(),
            Self::Stderr => "stderr".to_owned(),
        }
    }
}

struct World {
    session: Session,
    now: Time,
    framing: Framing,
    decoder: Decoder,
    /// Orders that were not answered, and those among them that are submissions.
    asked: BTreeSet<Ticket>,
    submissions: BTreeSet<Ticket>,
    next: u64,
    is_over: bool,
}

impl World {
    fn handle(&mut self, input: Input<'_>) {
        self.session.handle(self.now, input);
        while let Some(output) = self.session.poll() {
            match output {
                Output::Submit(ticket, _) => {
                    assert!(self.asked.insert(ticket));
                    self.submissions.insert(ticket);
                }
                Output::Terminate(ticket, _) => assert!(self.asked.insert(ticket)),
                Output::Credit(..) => {}
                Output::Close(_) => assert!(!std::mem::replace(&mut self.is_over, true)),
            }
        }
    }

    fn read(&mut self, count: usize) {
        for _ in 0..count {
            let Some(bytes) = self.session.packet() else {
                return;
            };
            self.decoder.push(&bytes);
            assert!(
                self.decoder
                    .next_packet()
                    .expect("it is a packet")
                    .is_some()
            );
        }
    }

    fn apply(&mut self, op: &Op<'_>) {
        match op {
            Op::Raw(bytes) => self.handle(Input::Bytes(bytes)),
            Op::Command {
                id,
                transaction,
                args,
            } => {
                let packet = Packet {
                    id: u32::from(id % 16),
                    transaction: (*transaction).into(),
                    args: args.iter().map(|arg| arg.text().into_bytes()).collect(),
                };
                let bytes = encode(&packet, self.framing).expect("it is short");
                self.handle(Input::Bytes(&bytes));
            }
            Op::Answer {
                which,
                is_refused,
                procs,
            } => self.answer(*which, *is_refused, (*procs).into()),
            Op::Started { job, procs } => {
                let facts = |rank| ProcessFacts {
                    node: rank % 3,
                    pid: rank,
                };
                let all = (0..u32::from(*procs)).map(facts).collect();
                self.handle(Input::Started(JobKey((*job).into()), all));
            }
            Op::Job { job, state } => {
                let state = match state % 4 {
                    0 => JobState::Starting,
                    1 => JobState::Running,
                    2 => JobState::Suspended,
                    _ => JobState::Completed,
                };
                self.handle(Input::Job(JobKey((*job).into()), state));
            }
            Op::Ranks {
                job,
                from,
                count,
                state,
            } => {
                let from = u32::from(*from);
                let state = match state % 4 {
                    0 => RankState::Running,
                    1 => RankState::Suspended,
                    2 => RankState::Exited(1),
                    _ => RankState::Signaled(Signal::KILL),
                };
                let ranks = RankSet::range(from..from + u32::from(*count));
                self.handle(Input::Ranks(JobKey((*job).into()), ranks, state));
            }
            Op::Output {
                job,
                rank,
                is_stderr,
                bytes,
            } => self.handle(Input::Output {
                job: JobKey((*job).into()),
                rank: Rank((*rank).into()),
                stream: match is_stderr {
                    true => Stream::Stderr,
                    false => Stream::Stdout,
                },
                bytes: bytes.to_vec(),
            }),
            Op::Node { index, is_up } => {
                let name = format!("n{index}");
                let node = NodeFacts {
                    name,
                    is_up: *is_up,
                };
                self.handle(Input::Node(u32::from(index % 8), node));
            }
            Op::Read(count) => self.read((*count).into()),
            Op::Tick(seconds) => {
                self.now = self.now + std::time::Duration::from_secs((*seconds).into());
                self.handle(Input::Tick);
            }
            Op::End => self.handle(Input::End),
        }
    }

    /// The platform answers an order.
    fn answer(&mut self, which: u8, is_refused: bool, procs: u32) {
        let Some(ticket) = self.asked.iter().nth(which.into()).copied() else {
            return;
        };
        self.asked.remove(&ticket);
        let fault = Fault {
            code: 1202,
            text: "no".to_owned(),
        };
        let is_submission = self.submissions.remove(&ticket);
        match (is_submission, is_refused) {
            (true, true) => self.handle(Input::Submitted(ticket, Err(fault))),
            (true, false) => {
                let taken = Taken {
                    key: JobKey(self.next),
                    name: "a.out".to_owned(),
                    procs,
                };
                self.next += 1;
                self.handle(Input::Submitted(ticket, Ok(taken)));
            }
            (false, true) => self.handle(Input::Terminated(ticket, Err(fault))),
            (false, false) => self.handle(Input::Terminated(ticket, Ok(()))),
        }
    }
}

fuzz_target!(|input: (bool, bool, Vec<Op<'_>>)| {
    let (is_ascii, is_old, ops) = input;
    let node = NodeFacts {
        name: "n0".to_owned(),
        is_up: true,
    };
    let config = Config {
        dialect: is_old.then_some(Dialect::V2),
        charset: Charset::Ascii,
        machine: "lab".to_owned(),
        queue: "default".to_owned(),
        nodes: vec![node],
    };
    let mut world = World {
        session: Session::new(config),
        now: Time::ZERO,
        framing: if is_ascii {
            Framing::Ascii
        } else {
            Framing::Binary
        },
        decoder: Decoder::new(),
        asked: BTreeSet::new(),
        submissions: BTreeSet::new(),
        next: 0,
        is_over: false,
    };
    for op in &ops {
        world.apply(op);
    }
    world.read(usize::MAX);
    world.handle(Input::End);
    assert!(world.is_over);
    assert_eq!(world.session.packet(), None);
});
