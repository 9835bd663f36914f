//! A scripted kernel for tests, and an agent that runs on it.
//!
//! Every process executes one program with the functions `_start`, `main`, `solve` and `wait`, each of which calls the next.

use std::{
    cell::Cell,
    collections::{BTreeMap, VecDeque},
    path::Path,
    time::Duration,
};

use base::{InKernel, NodeId, Registers, Time};
use bytes::Bytes;

use super::super::{
    Agent, Input, Output,
    kernel::{Answer, Group, Identity, Lent, NotStopped, Process, Question, ThreadFacts},
};
use crate::{
    image::{
        Files,
        tests::made::{LENGTH, Program},
    },
    maps::Mapping,
    memory::{Memory, Unreadable},
    proto::{FromAgent, ToAgent},
    report::Detail,
};

/// The pid of the agent.
pub(crate) const OWN: i32 = 99;
const BASE: u64 = 0x10_0000;
const STACK: u64 = 0x7000_0000;
/// The addresses of the program's functions.
const FUNCTIONS: [(&str, u64); 4] = [
    ("_start", 0x1000),
    ("main", 0x2000),
    ("solve", 0x3000),
    ("wait", 0x4000),
];

/// Memory that contains only zeros.
struct Zeros;

impl Memory for Zeros {
    fn read(&self, _: u64, buffer: &mut [u8]) -> Result<(), Unreadable> {
        buffer.fill(0);
        Ok(())
    }
}

struct OneFile(Bytes);

impl Files for OneFile {
    fn open(&self, _: &Path) -> Option<Bytes> {
        None
    }

    fn open_mapped(&self, _: &Mapping) -> Option<Bytes> {
        Some(self.0.clone())
    }
}

/// A thread of a scripted process.
#[derive(Clone, Debug)]
pub(crate) struct FakeThread {
    pub(crate) tid: i32,
    /// The state letter of `/proc`.
    pub(crate) state: char,
    /// The function that it is in.
    pub(crate) at: &'static str,
    /// Why it is not stopped; `None` if it can be stopped.
    pub(crate) refusal: Option<NotStopped>,
    pub(crate) in_kernel: Option<InKernel>,
}

impl FakeThread {
    pub(crate) const fn running(tid: i32, at: &'static str) -> Self {
        Self {
            tid,
            state: 'R',
            at,
            refusal: None,
            in_kernel: Some(InKernel::Running),
        }
    }
}

/// A scripted process.
#[derive(Clone, Debug)]
pub(crate) struct FakeProcess {
    pub(crate) parent: i32,
    pub(crate) name: &'static str,
    pub(crate) threads: Vec<FakeThread>,
    /// The address of its stack at each request; the last one is repeated.
    pub(crate) stacks: VecDeque<Option<u64>>,
    /// The start time of the process that has the pid, at each request; the last one is repeated.
    pub(crate) starts: VecDeque<u64>,
    /// The pid of its tracer.
    pub(crate) tracer: Option<i32>,
    /// The length of its code mapping in bytes; `None` if its mappings cannot be read.
    pub(crate) mappings: Option<u64>,
}

/// The start time of every process.
pub(crate) const STARTED: u64 = 7;

impl FakeProcess {
    /// Returns a process with one thread, which is in the function `at`.
    pub(crate) fn new(pid: i32, parent: i32, name: &'static str, at: &'static str) -> Self {
        Self {
            parent,
            name,
            threads: vec![FakeThread::running(pid, at)],
            stacks: [Some(5)].into(),
            starts: [STARTED].into(),
            tracer: None,
            mappings: Some(LENGTH as u64),
        }
    }
}

/// A node: its processes, and the agent that samples them.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) agent: Agent,
    pub(crate) processes: BTreeMap<i32, FakeProcess>,
    /// The questions so far, in short form.
    pub(crate) asked: Vec<String>,
    /// The thread that is stopped now.
    pub(crate) stopped: Option<i32>,
    /// The duration of each step.
    pub(crate) step: Duration,
    pub(crate) now: Time,
    file: Bytes,
    /// The number of steps that [`Node::run`] may still carry out.
    pub(crate) steps: Cell<usize>,
}

impl Node {
    pub(crate) fn new(node: u32, processes: impl IntoIterator<Item = (i32, FakeProcess)>) -> Self {
        let mut program = Program::new();
        for (name, at) in FUNCTIONS {
            program.function(name, at, 0x100);
        }
        Self {
            agent: Agent::new(NodeId(node), OWN, Detail::Folded),
            processes: processes.into_iter().collect(),
            asked: Vec::new(),
            stopped: None,
            step: Duration::ZERO,
            now: Time::ZERO,
            file: program.build(),
            steps: Cell::new(usize::MAX),
        }
    }

    pub(crate) fn tell(&mut self, message: ToAgent) {
        self.agent.handle(self.now, Input::Message(message));
    }

    /// Carries out the steps that the agent asks for, and returns its messages to the session.
    pub(crate) fn run(&mut self) -> Vec<FromAgent> {
        let mut said = Vec::new();
        while self.steps.get() > 0
            && let Some(output) = self.agent.poll()
        {
            self.steps.set(self.steps.get() - 1);
            match output {
                Output::Send(message) => said.push(message),
                Output::ReleaseLate => self.asked.push("let go".to_owned()),
                Output::Ask(question) => self.carry_out(question),
            }
        }
        said
    }

    /// Carries out one step, and gives the agent the answer.
    pub(crate) fn carry_out(&mut self, question: Question) {
        let answer = self.answer(question);
        self.now = self.now + self.step;
        let (memory, files) = (Zeros, OneFile(self.file.clone()));
        let lent = Lent {
            memory: &memory,
            files: &files,
        };
        self.agent.handle(self.now, Input::Answer(answer, lent));
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each question")]
    fn answer(&mut self, question: Question) -> Answer {
        let is_stopped = self.stopped.is_some();
        assert!(
            !is_stopped || matches!(question, Question::Release { .. }),
            "{question:?} is asked while a thread stands"
        );
        let (said, answer) = match question {
            Question::Processes => {
                let all = self.processes.iter();
                let all = all.map(|(&pid, process)| Process {
                    pid,
                    parent: process.parent,
                    name: process.name.to_owned(),
                    state: process.threads.first().map_or('Z', |it| it.state),
                    started: STARTED,
                    cpu: Duration::ZERO,
                });
                ("processes".to_owned(), Answer::Processes(all.collect()))
            }
            Question::Owners { pids } => {
                let owners = vec![Some(1000); pids.len()];
                ("owners".to_owned(), Answer::Owners(owners))
            }
            Question::Identity { pid, through } => {
                let mut process = self.processes.get_mut(&pid);
                let stack = process.as_mut().and_then(|it| match it.stacks.len() {
                    0 | 1 => it.stacks.front().copied().flatten(),
                    _ => it.stacks.pop_front().flatten(),
                });
                let started = process.and_then(|it| match it.starts.len() {
                    0 | 1 => it.starts.front().copied(),
                    _ => it.starts.pop_front(),
                });
                let identity = stack.zip(started).map(|(stack, started)| {
                    let code = 1;
                    let identity = Identity {
                        started,
                        code,
                        stack,
                    };
                    (through.unwrap_or(pid), identity)
                });
                (format!("who is {pid}"), Answer::Identity(identity))
            }
            Question::Mappings { through } => {
                let process = self.processes.get(&through);
                let length = process.and_then(|it| it.mappings);
                let text = length.map(|length| {
                    format!(
                        "{BASE:x}-{:x} r-xp 00000000 fe:00 7 /a.out\n",
                        BASE + length
                    )
                });
                let text = text.map(String::into_bytes);
                (
                    format!("mappings of {through}"),
                    Answer::Mappings(text, Some(through)),
                )
            }
            Question::Threads { pid, .. } => {
                let process = self.processes.get(&pid);
                let threads = process.map_or(&[][..], |it| &it.threads);
                let tids = threads.iter().map(|it| it.tid).collect();
                (
                    format!("threads of {pid}"),
                    Answer::Threads(tids, Group::Runs),
                )
            }
            Question::Thread { pid, tid } => {
                let thread = self.thread(tid);
                let facts = thread.map(|it| ThreadFacts {
                    state: it.state,
                    cpu: Duration::ZERO,
                    name: "a.out".to_owned(),
                });
                let in_kernel = thread.and_then(|it| it.in_kernel);
                let _ = pid;
                (format!("thread {tid}"), Answer::Thread(facts, in_kernel))
            }
            Question::Stop { tid, copy, .. } => {
                let thread = self.thread(tid).cloned();
                let answer = match thread {
                    None => Answer::NotStopped(NotStopped::Gone),
                    Some(thread) => match thread.refusal {
                        Some(why) => Answer::NotStopped(why),
                        None => {
                            self.stopped = Some(tid);
                            stopped_in(thread.at)
                        }
                    },
                };
                (format!("stop {tid} and copy {copy}"), answer)
            }
            Question::Release { tid, .. } => {
                assert_eq!(self.stopped.take(), Some(tid));
                (
                    format!("release {tid}"),
                    Answer::Released(Duration::from_micros(9)),
                )
            }
            Question::Copy { address, .. } => {
                let copied = Answer::Copied(vec![0; 64]);
                (format!("copy {address:#x}"), copied)
            }
            Question::Tracer { tid } => {
                let tracer = self.process(tid).and_then(|it| it.tracer);
                (format!("who traces {tid}"), Answer::Tracer(tracer))
            }
            Question::Remains { pid } => {
                let process = self.processes.get(&pid);
                let remains = process.map(|it| {
                    let state = it.threads.first().map_or('Z', |it| it.state);
                    (state, it.threads.len())
                });
                (format!("what is left of {pid}"), Answer::Remains(remains))
            }
            Question::Left { pid } => (format!("what {pid} has left"), Answer::Left(Vec::new())),
            Question::Arguments { pid } => {
                let process = self.processes.get(&pid);
                let arguments = process.map(|it| format!("{}\0-v\0", it.name).into_bytes());
                (
                    format!("arguments of {pid}"),
                    Answer::Arguments(arguments, process.map(|_| STARTED)),
                )
            }
            Question::Processor { tid } => {
                let processor = u32::try_from(tid).ok();
                (format!("processor of {tid}"), Answer::Processor(processor))
            }
        };
        self.asked.push(said);
        answer
    }

    fn process(&self, tid: i32) -> Option<&FakeProcess> {
        let mut processes = self.processes.values();
        processes.find(|it| it.threads.iter().any(|thread| thread.tid == tid))
    }

    fn thread(&self, tid: i32) -> Option<&FakeThread> {
        let threads = &self.process(tid)?.threads;
        threads.iter().find(|it| it.tid == tid)
    }
}

/// Returns the registers and stack of a thread in `function`, which was called through the functions before it.
fn stopped_in(function: &str) -> Answer {
    let Some(inner) = FUNCTIONS.iter().position(|(name, _)| *name == function) else {
        // Nothing is mapped there.
        return Answer::Stopped(
            Registers::X86_64 {
                instruction: 0x9000,
                stack: STACK,
                frame: STACK,
                thread: 0,
            },
            vec![0; 64],
        );
    };
    let mut bytes = Vec::new();
    for (above, (_, caller)) in (1_u64..).zip(FUNCTIONS[..inner].iter().rev()) {
        bytes.extend((STACK + 16 * above).to_le_bytes());
        bytes.extend((BASE + caller + 0x20).to_le_bytes());
    }
    bytes.extend([0; 64]);
    let registers = Registers::X86_64 {
        instruction: BASE + FUNCTIONS[inner].1 + 0x20,
        stack: STACK,
        frame: STACK,
        thread: 0,
    };
    Answer::Stopped(registers, bytes)
}
