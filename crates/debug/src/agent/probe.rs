//! One process in one sample: which questions to ask about it, in which order, and what the answers amount to.
//!
//! | state | answer | next |
//! |---|---|---|
//! | `Before` | it is not the process that is meant | over: *gone* |
//! | `Before` | it is, and its code is known | `Listing` |
//! | `Before` | it is | `Mapping` |
//! | `Mapping` | none | `Remaining` |
//! | `Mapping` | the mappings | `Listing`, or `Inspecting` the same thread again |
//! | `Listing` | the threads | `Inspecting` the first |
//! | `Inspecting` | it has ended | the next thread |
//! | `Inspecting` | what it does | `Stopping`, or where nothing reaches it as if it were late |
//! | `Stopping` | it stands | `Releasing`, after the frames of Python were read |
//! | `Stopping` | late, or refused; the kernel knows where it sleeps | `Copying` |
//! | `Stopping` | not permitted | `Tracing` |
//! | `Releasing`, `Copying` | | unwound: the next thread; `Stopping` again with more of its stack; or `Mapping`, where the stack leads to what was not mapped when we asked |
//! | `Tracing` | | the next thread |
//! | `Remaining` | what is left | `After`: *gone*, *zombie* or *not permitted* |
//! | no thread is left | | `After`; `Remaining` where nothing was seen |
//! | `After` | the same process with the same program | over |
//! | `After` | another program | `Before`; after [`TRIES`] over: *changed* |
//!
//! What a process has mapped is read before its threads are stopped. If it became another program in between, its addresses
//! mean something else, and names would be given to them all the same. So a sample counts only where the process is after it
//! what it was before.

use std::{mem, time::Duration};

use base::{InKernel, Registers};

use super::{
    activity::{activity, is_out_of_reach, missing, seen, wait_in},
    kernel::{Answer, Group, Identity, Lent, NotStopped, Question, ThreadFacts},
    reader::{Known, Reader},
};
use crate::{
    python,
    stack::{Activity, End, Missing, Seen, Stack, Thread, Wait},
    unwind::{Capture, Code},
};

/// How often a process is looked at that becomes another program meanwhile.
const TRIES: u32 = 3;
/// How long a thread may take to stop: far longer than any takes that can.
const PATIENCE: Duration = Duration::from_millis(500);
/// Bytes of a stack that are copied at first: nearly all are shorter.
const STACK_COPY: usize = 64 << 10;
/// Bytes of a stack that are copied where that was not enough.
pub const MAX_STACK_COPY: usize = 8 << 20;

/// What comes after an answer.
#[derive(Debug)]
pub(super) enum Step {
    /// Another question.
    Ask(Question),
    /// It was looked at.
    Done(Seen),
}

/// A process that is being looked at.
#[derive(Debug)]
pub(super) struct Probe {
    pid: i32,
    /// When it was started: another process may have its number now.
    started: u64,
    /// The number of the agent's own process.
    own: i32,
    tries: u32,
    /// A thread of it that lives.
    through: i32,
    identity: Option<Identity>,
    code: Option<(Code, Option<python::Process>)>,
    age: Age,
    group: Group,
    tids: std::vec::IntoIter<i32>,
    threads: Vec<Thread>,
    /// Who traces the first thread that we may not look at.
    refused: Option<Option<i32>>,
    current: Option<Current>,
    at: At,
}

/// The thread that is being looked at.
#[derive(Debug)]
struct Current {
    tid: i32,
    facts: ThreadFacts,
    in_kernel: Option<InKernel>,
    activity: Activity,
    stack: Stack,
    stopped: Duration,
    /// Bytes of its stack that are copied.
    limit: usize,
}

/// What was asked last.
#[derive(Debug)]
enum At {
    Before,
    Mapping(Wanted),
    Listing,
    Inspecting(i32),
    Stopping,
    Releasing(Capture, Option<python::Chain>),
    Copying { stack: u64, instruction: u64 },
    Tracing,
    Remaining,
    After(Seen),
    Over,
}

/// For what the mappings are asked for.
#[derive(Debug)]
enum Wanted {
    /// They are not known.
    First,
    /// They are out of date: this thread leads to where nothing was mapped.
    Again(Box<Thread>),
}

/// When the mappings were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Age {
    /// In an earlier sample.
    Kept,
    /// At the beginning of this one.
    New,
    /// In this one, because something was missing.
    Again,
}

impl Probe {
    /// Looks at every thread of the process that has this number since `started`, in ticks since boot.
    pub(super) fn new(pid: i32, started: u64, own: i32) -> (Self, Question) {
        let probe = Self {
            pid,
            started,
            own,
            tries: 0,
            through: pid,
            identity: None,
            code: None,
            age: Age::New,
            group: Group::Runs,
            tids: Vec::new().into_iter(),
            threads: Vec::new(),
            refused: None,
            current: None,
            at: At::Before,
        };
        let through = None;
        (probe, Question::Identity { pid, through })
    }

    /// Ends the sample of this process, with the answer to its last question. Returns the question that releases the thread
    /// which that answer says is stopped; `None` if no thread is stopped.
    pub(super) fn abandon(&mut self, answer: &Answer) -> Option<Question> {
        self.at = At::Over;
        let (tid, through) = (self.tid(), self.through);
        matches!(answer, Answer::Stopped(..)).then_some(Question::Release { tid, through })
    }

    /// Takes in an answer. One that belongs to no question of this state is a bug of the host.
    pub(super) fn handle(&mut self, reader: &mut Reader, answer: Answer, lent: Lent<'_>) -> Step {
        match (mem::replace(&mut self.at, At::Over), answer) {
            (At::Before, Answer::Identity(found)) => self.begin(reader, found, lent),
            (At::Mapping(wanted), Answer::Mappings(text)) => {
                self.map(reader, wanted, text.as_deref(), lent)
            }
            (At::Listing, Answer::Threads(tids, group)) => self.list(reader, tids, group),
            (At::Inspecting(tid), Answer::Thread(facts, in_kernel)) => {
                self.inspect(reader, tid, facts, in_kernel)
            }
            (At::Stopping, Answer::Stopped(registers, bytes)) => {
                let chain = self.chain(registers.pthread(), lent);
                let capture = Capture { registers, bytes };
                let (tid, through) = (self.tid(), self.through);
                self.at = At::Releasing(capture, chain);
                Step::Ask(Question::Release { tid, through })
            }
            (At::Stopping, Answer::NotStopped(why)) => self.not_stopped(reader, why),
            (At::Releasing(capture, chain), Answer::Released(stood)) => {
                self.unwind(reader, capture, chain, stood, lent)
            }
            (At::Copying { stack, instruction }, Answer::Copied(bytes)) => {
                let registers = Registers::of_blocked(instruction, stack);
                let capture = Capture { registers, bytes };
                let chain = self.chain(None, lent);
                self.unwind(reader, capture, chain, Duration::ZERO, lent)
            }
            // Asked to stop by us already, it has not stopped yet.
            (At::Tracing, Answer::Tracer(tracer)) if tracer == Some(self.own) => {
                self.end_thread(reader)
            }
            (At::Tracing, Answer::Tracer(tracer)) => {
                self.refused.get_or_insert(tracer);
                self.next(reader)
            }
            (At::Remaining, Answer::Remains(remains)) => {
                self.check(Seen::Missing(missing(remains)))
            }
            (At::After(seen), Answer::Identity(found)) => self.end(reader, seen, found),
            (at, answer) => {
                debug_assert!(false, "{answer:?} is no answer in {at:?}");
                Step::Done(Seen::Missing(Missing::Unreachable))
            }
        }
    }

    /// The process is known, before anything of it was read.
    fn begin(
        &mut self,
        reader: &mut Reader,
        found: Option<(i32, Identity)>,
        lent: Lent<'_>,
    ) -> Step {
        let found = found.filter(|(_, identity)| identity.started == self.started);
        let Some((through, identity)) = found else {
            reader.known.remove(&self.pid);
            return Step::Done(Seen::Missing(Missing::Gone));
        };
        (self.through, self.identity) = (through, Some(identity));
        self.threads.clear();
        self.refused = None;
        let known = reader.known.remove(&self.pid);
        match known.filter(|known| known.identity == identity) {
            Some(known) => {
                self.age = Age::Kept;
                self.take(known.code, known.python, lent);
                self.ask_threads()
            }
            None => self.ask_mappings(Wanted::First),
        }
    }

    fn take(&mut self, code: Code, mut python: Option<python::Process>, lent: Lent<'_>) {
        if let Some(python) = &mut python {
            python.list(lent.memory);
        }
        self.code = Some((code, python));
    }

    fn ask_threads(&mut self) -> Step {
        self.at = At::Listing;
        let (pid, through) = (self.pid, self.through);
        Step::Ask(Question::Threads { pid, through })
    }

    fn ask_mappings(&mut self, wanted: Wanted) -> Step {
        self.at = At::Mapping(wanted);
        let through = self.through;
        Step::Ask(Question::Mappings { through })
    }

    fn map(
        &mut self,
        reader: &mut Reader,
        wanted: Wanted,
        text: Option<&[u8]>,
        lent: Lent<'_>,
    ) -> Step {
        let read = text.map(|text| reader.read(text, lent));
        match (wanted, read) {
            (Wanted::First, Some((code, python))) => {
                self.age = Age::New;
                self.take(code, python, lent);
                self.ask_threads()
            }
            (Wanted::First, None) => self.ask_remains(),
            (Wanted::Again(thread), Some((code, python))) => {
                self.age = Age::Again;
                self.take(code, python, lent);
                self.ask_thread(thread.tid)
            }
            (Wanted::Again(thread), None) => {
                self.threads.push(*thread);
                self.next(reader)
            }
        }
    }

    fn list(&mut self, reader: &mut Reader, mut tids: Vec<i32>, group: Group) -> Step {
        if tids.len() > reader.max_threads {
            let most = reader.crowded.entry(self.pid).or_default();
            *most = tids.len().max(*most);
            tids.truncate(reader.max_threads);
        }
        self.group = group;
        self.tids = tids.into_iter();
        self.next(reader)
    }

    /// Goes on with the next thread, or ends with what was seen of all.
    fn next(&mut self, reader: &mut Reader) -> Step {
        self.current = None;
        if let Some(tid) = self.tids.next() {
            return self.ask_thread(tid);
        }
        if let Some(((code, python), identity)) = self.code.take().zip(self.identity) {
            let known = Known {
                identity,
                code,
                python,
            };
            reader.known.insert(self.pid, known);
        }
        let threads = mem::take(&mut self.threads);
        if threads.iter().any(|it| it.activity != Activity::Ended) {
            return self.check(seen(threads));
        }
        // What is mapped may be read of more processes than memory and registers.
        match self.refused {
            Some(Some(tracer)) if tracer != self.own => {
                self.check(Seen::Missing(Missing::TracedBy(tracer)))
            }
            Some(_) => self.check(Seen::Missing(Missing::NotPermitted)),
            None => self.ask_remains(),
        }
    }

    fn ask_thread(&mut self, tid: i32) -> Step {
        self.at = At::Inspecting(tid);
        let pid = self.pid;
        Step::Ask(Question::Thread { pid, tid })
    }

    fn ask_remains(&mut self) -> Step {
        self.at = At::Remaining;
        let pid = self.pid;
        Step::Ask(Question::Remains { pid })
    }

    fn inspect(
        &mut self,
        reader: &mut Reader,
        tid: i32,
        facts: Option<ThreadFacts>,
        in_kernel: Option<InKernel>,
    ) -> Step {
        let Some(facts) = facts else {
            return self.next(reader);
        };
        let Some(activity) = activity(&facts, in_kernel, self.group) else {
            // Of those that have ended the first one alone is of interest: it has its process's number.
            if tid == self.pid {
                self.threads.push(Thread {
                    tid,
                    name: facts.name,
                    stack: Stack {
                        frames: Vec::new(),
                        end: End::Start,
                    },
                    activity: Activity::Ended,
                    cpu: facts.cpu,
                    stopped: Duration::ZERO,
                });
            }
            return self.next(reader);
        };
        self.current = Some(Current {
            tid,
            facts,
            in_kernel,
            activity,
            stack: Stack {
                frames: Vec::new(),
                end: End::Lost,
            },
            stopped: Duration::ZERO,
            limit: STACK_COPY,
        });
        self.stop(reader)
    }

    fn tid(&self) -> i32 {
        self.current.as_ref().map_or(self.pid, |it| it.tid)
    }

    fn stop(&mut self, reader: &mut Reader) -> Step {
        let Some(current) = &self.current else {
            return self.next(reader);
        };
        if is_out_of_reach(&current.facts, current.in_kernel, self.group) {
            return self.not_stopped(reader, NotStopped::Late);
        }
        self.at = At::Stopping;
        Step::Ask(Question::Stop {
            tid: current.tid,
            through: self.through,
            patience: PATIENCE,
            copy: current.limit,
            room: mem::take(&mut reader.room),
        })
    }

    /// What can be had of a thread that does not stop for us: the kernel says where it sleeps.
    fn not_stopped(&mut self, reader: &mut Reader, why: NotStopped) -> Step {
        let Some(current) = &self.current else {
            return self.next(reader);
        };
        match (why, current.in_kernel) {
            (NotStopped::Gone, _) => self.next(reader),
            (
                _,
                Some(InKernel::Blocked {
                    stack, instruction, ..
                }),
            ) => {
                self.at = At::Copying { stack, instruction };
                Step::Ask(Question::Copy {
                    through: self.through,
                    address: stack,
                    limit: current.limit,
                })
            }
            (NotStopped::NotPermitted, _) => {
                self.at = At::Tracing;
                let tid = current.tid;
                Step::Ask(Question::Tracer { tid })
            }
            (NotStopped::Late, _) => self.end_thread(reader),
        }
    }

    /// The frames of Python of the thread, by where its variables begin where that is known.
    fn chain(&self, base: Option<u64>, lent: Lent<'_>) -> Option<python::Chain> {
        let (_, python) = self.code.as_ref()?;
        python.as_ref()?.chain(base, self.tid(), lent.memory)
    }

    fn unwind(
        &mut self,
        reader: &mut Reader,
        capture: Capture,
        chain: Option<python::Chain>,
        stood: Duration,
        Lent { memory, files }: Lent<'_>,
    ) -> Step {
        let Some((current, (code, python))) = self.current.as_mut().zip(self.code.as_mut()) else {
            return self.next(reader);
        };
        current.stopped = current.stopped.max(stood);
        let was_cut = capture.bytes.len() == current.limit;
        let frames = &mut reader.frames;
        current.stack = reader.images.unwind(code, &capture, memory, files, frames);
        reader.room = capture.bytes;
        if let (Some(python), Some(chain)) = (python, chain) {
            let native = &current.stack;
            current.stack = python.merge(native, &chain, memory, reader.plumbing, frames);
        }
        // What was not copied is read now, which is too late only where the thread runs.
        let is_enough = current.stack.end == End::Start
            || !was_cut
            || current.activity != Activity::Running
            || current.limit == MAX_STACK_COPY;
        if is_enough {
            return self.end_thread(reader);
        }
        current.limit = MAX_STACK_COPY;
        self.stop(reader)
    }

    /// All is known of a thread that will be.
    fn end_thread(&mut self, reader: &mut Reader) -> Step {
        let Some(current) = self.current.take() else {
            return self.next(reader);
        };
        let mut activity = current.activity;
        if activity == Activity::Waiting(Wait::Other)
            && let Some(&inner) = current.stack.frames.last()
        {
            let function = reader.frames.get(inner).function.as_deref();
            activity = Activity::Waiting(wait_in(function, current.in_kernel));
        }
        let thread = Thread {
            tid: current.tid,
            name: current.facts.name,
            stack: current.stack,
            activity,
            cpu: current.facts.cpu,
            stopped: current.stopped,
        };
        // It may have loaded a library since we have read what it has.
        if self.is_outdated(reader, &thread.stack) {
            return self.ask_mappings(Wanted::Again(Box::new(thread)));
        }
        self.threads.push(thread);
        self.next(reader)
    }

    /// Whether a stack leads where nothing was mapped when we asked.
    fn is_outdated(&self, reader: &Reader, stack: &Stack) -> bool {
        let unknown = || {
            let mut frames = stack.frames.iter();
            frames.any(|&frame| reader.frames.get(frame).is_unknown())
        };
        match self.age {
            Age::Kept => stack.end == End::Lost || unknown(),
            Age::New => unknown(),
            // What is unknown still was made while the program ran.
            Age::Again => false,
        }
    }

    fn check(&mut self, seen: Seen) -> Step {
        self.at = At::After(seen);
        Step::Ask(Question::Identity {
            pid: self.pid,
            through: Some(self.through),
        })
    }

    /// What was seen counts where the process has not become another meanwhile.
    fn end(&mut self, reader: &mut Reader, seen: Seen, found: Option<(i32, Identity)>) -> Step {
        let after = found.map(|(_, identity)| identity);
        let after = after.filter(|after| after.started == self.started);
        let became = self
            .identity
            .zip(after)
            .is_some_and(|(before, after)| became(before, after));
        let seen = match (became, self.tries + 1 < TRIES) {
            (false, _) => seen,
            (true, true) => {
                self.tries += 1;
                self.at = At::Before;
                let (pid, through) = (self.pid, Some(self.through));
                return Step::Ask(Question::Identity { pid, through });
            }
            (true, false) => Seen::Missing(Missing::Changed),
        };
        if matches!(seen, Seen::Missing(_)) {
            reader.known.remove(&self.pid);
        }
        Step::Done(seen)
    }
}

/// Whether what was seen of one may be of the other. Who has ended, or is not ours any more, has no place where its program
/// would be: what was seen before was its own.
fn became(before: Identity, after: Identity) -> bool {
    let unknown = after.stack == 0;
    before.started != after.started
        || !(unknown || (before.code, before.stack) == (after.code, after.stack))
}
