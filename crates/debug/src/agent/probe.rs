//! Samples one process: which questions to ask about it, in which order, and what the answers mean.
//!
//! | state | answer | next |
//! |---|---|---|
//! | `Before` | the pid belongs to another process | over: *gone* |
//! | `Before` | the pid belongs to the process, whose code is known | `Listing` |
//! | `Before` | the pid belongs to the process, whose code is not known | `Mapping` |
//! | `Mapping` | no mappings | `Remaining` |
//! | `Mapping` | the mappings | `Listing`, or `Inspecting` the same thread again |
//! | `Listing` | the threads | `Inspecting` the first |
//! | `Inspecting` | the thread has exited | the next thread |
//! | `Inspecting` | the activity of the thread | `Stopping`; a thread that no signal can reach counts as late |
//! | `Stopping` | the thread is stopped | `Releasing`, after the frames of Python were read |
//! | `Stopping` | late, or refused; the kernel knows where the thread sleeps | `Copying` |
//! | `Stopping` | not permitted | `Tracing` |
//! | `Releasing`, `Copying` | any; the stack is complete | the next thread |
//! | `Releasing`, `Copying` | any; the copy was too short, and the thread runs | `Stopping` again, with a larger copy |
//! | `Releasing`, `Copying` | any; the stack leads to addresses without a known mapping | `Mapping` |
//! | `Tracing` | the tracer | the next thread |
//! | `Remaining` | the state of the process | `After`: *gone*, *zombie* or *not permitted* |
//! | any | the last thread is done | `After`; `Remaining` if no thread was seen |
//! | `After` | the same process with the same program | over |
//! | `After` | the pid belongs to another process | over: *gone* |
//! | `After` | another program | `Before`; after [`TRIES`] over: *changed* |
//!
//! The mappings of a process are read before its threads are stopped. If the process executes another program in between, its
//! addresses mean something else, and would get wrong names. So a sample counts only if the process executes the same program
//! before and after it.

mod thread;

use std::{mem, time::Duration};

use base::Registers;

use self::thread::Current;
pub use self::thread::MAX_STACK_COPY;
use super::{
    activity::{missing, seen},
    kernel::{Answer, Group, Identity, Lent, Question},
    reader::{Known, Reader},
};
use crate::{
    call_site::CallSite,
    planted::{self, Bug},
    proto::Proc,
    python,
    recorded::{RankCalls, region},
    stack::{Activity, Missing, Seen, Thread},
    unwind::{Capture, Code},
};

/// Maximum number of attempts to sample a process that executes another program during the sample.
const TRIES: u32 = 3;

/// The next step after an answer.
#[derive(Debug)]
pub(super) enum Step {
    /// Ask another question.
    Ask(Question),
    /// The process is done.
    Done(Seen, Calls),
}

/// The calls of MPI of a process.
#[derive(Debug)]
pub(super) enum Calls {
    /// It has none, or nothing is known of them.
    Unknown,
    /// The recorder has written them.
    Recorded(Box<RankCalls>),
    /// It has, but they cannot be read.
    Unreadable,
    /// The code tells of the one that it is in.
    Read(Box<CallSite>),
}

impl From<region::Content> for Calls {
    fn from(content: region::Content) -> Self {
        match content {
            region::Content::Calls(calls) => Self::Recorded(calls),
            region::Content::Nothing => Self::Unknown,
            region::Content::Unreadable => Self::Unreadable,
        }
    }
}

/// The sample of one process.
#[derive(Debug)]
pub(super) struct Probe {
    pid: i32,
    /// When the process started; the pid may belong to another process now.
    started: u64,
    /// The pid of the agent.
    own: i32,
    tries: u32,
    /// A live thread of the process, through which it is read.
    through: i32,
    identity: Option<Identity>,
    code: Option<(Code, Option<python::Process>)>,
    recorded: region::Found,
    /// The call of MPI in which one of the threads is, if there is no recorder.
    call_site: Option<CallSite>,
    age: Age,
    group: Group,
    tids: std::vec::IntoIter<i32>,
    threads: Vec<Thread>,
    /// The tracer of the first thread that we may not trace. The inner `None`: that thread has no tracer.
    refused: Option<Option<i32>>,
    current: Option<Current>,
    at: At,
}

/// The outstanding question.
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
    Leaving,
    Over,
}

/// Why the mappings are read.
#[derive(Debug)]
enum Wanted {
    /// The mappings are not known.
    First,
    /// The mappings are out of date: the stack of this thread leads to addresses that were not mapped.
    Again(Box<Thread>),
}

/// When the mappings were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Age {
    /// In an earlier sample.
    Kept,
    /// At the beginning of this sample.
    New,
    /// During this sample, because a mapping was missing.
    Again,
}

impl Probe {
    /// Begins to sample a process. `started` is its start time, in ticks since boot.
    pub(super) fn new(pid: i32, started: u64, own: i32) -> (Self, Question) {
        let probe = Self {
            pid,
            started,
            own,
            tries: 0,
            through: pid,
            identity: None,
            code: None,
            recorded: region::Found::Never,
            call_site: None,
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

    /// Takes in an answer. An answer to another question is a bug of the host.
    pub(super) fn handle(&mut self, reader: &mut Reader, answer: Answer, lent: Lent<'_>) -> Step {
        match (mem::replace(&mut self.at, At::Over), answer) {
            (At::Before, Answer::Identity(found)) => self.begin(reader, found, lent),
            (At::Mapping(wanted), Answer::Mappings(text, number)) => {
                let text = text.as_deref().map(|text| (text, number));
                self.map(reader, wanted, text, lent)
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
            // We have asked the thread to stop, but it has not stopped yet.
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
            (At::After(seen), Answer::Identity(found)) => self.end(reader, seen, found, lent),
            (At::Leaving, Answer::Left(regions)) => {
                let started = Some(self.started).filter(|it| *it != Proc::EXITED);
                let calls = region::read_left(&regions, started, reader.extent);
                Step::Done(Seen::Missing(Missing::Gone), calls.into())
            }
            (at, answer) => {
                debug_assert!(false, "{answer:?} is no answer in {at:?}");
                Step::Done(Seen::Missing(Missing::Unreachable), Calls::Unknown)
            }
        }
    }

    /// Begins the sample if the pid still belongs to the process.
    fn begin(
        &mut self,
        reader: &mut Reader,
        found: Option<(i32, Identity)>,
        lent: Lent<'_>,
    ) -> Step {
        let found = found.filter(|(_, identity)| identity.started == self.started);
        let Some((through, identity)) = found else {
            return self.ask_left(reader);
        };
        (self.through, self.identity) = (through, Some(identity));
        self.threads.clear();
        self.refused = None;
        self.call_site = None;
        let known = reader.known.remove(&self.pid);
        // The recorder maps its region with the first call of MPI.
        let is_kept =
            |known: &Known| known.identity == identity && known.recorded != region::Found::Later;
        match known.filter(is_kept) {
            Some(known) => {
                self.age = Age::Kept;
                self.recorded = known.recorded;
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
        mapped: Option<(&[u8], Option<i32>)>,
        lent: Lent<'_>,
    ) -> Step {
        let read = mapped.map(|mapped| reader.read(mapped, lent));
        match (wanted, read) {
            (Wanted::First, Some((code, python, recorded))) => {
                self.age = Age::New;
                self.recorded = recorded;
                self.take(code, python, lent);
                self.ask_threads()
            }
            (Wanted::First, None) => self.ask_remains(),
            (Wanted::Again(thread), Some((code, python, recorded))) => {
                self.age = Age::Again;
                self.recorded = recorded;
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
            let most = reader.many_threads.entry(self.pid).or_default();
            *most = tids.len().max(*most);
            tids.truncate(reader.max_threads);
        }
        self.group = group;
        self.tids = tids.into_iter();
        self.next(reader)
    }

    /// Continues with the next thread, or ends after the last one.
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
                recorded: self.recorded,
            };
            reader.known.insert(self.pid, known);
        }
        let threads = mem::take(&mut self.threads);
        if threads.iter().any(|it| it.activity != Activity::Ended) {
            return self.check(seen(threads));
        }
        // The kernel permits reading the mappings of more processes than may be traced.
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

    /// The process is gone, but its recorded calls may still be there.
    fn ask_left(&mut self, reader: &mut Reader) -> Step {
        reader.known.remove(&self.pid);
        self.at = At::Leaving;
        let pid = self.pid;
        Step::Ask(Question::Left { pid })
    }

    fn check(&mut self, seen: Seen) -> Step {
        self.at = At::After(seen);
        Step::Ask(Question::Identity {
            pid: self.pid,
            through: Some(self.through),
        })
    }

    /// Ends the sample, or repeats it if the process executes another program now.
    fn end(
        &mut self,
        reader: &mut Reader,
        seen: Seen,
        found: Option<(i32, Identity)>,
        lent: Lent<'_>,
    ) -> Step {
        let after = found.map(|(_, identity)| identity);
        let after = match after.filter(|after| after.started != self.started) {
            None => after,
            Some(_) if planted::is(Bug::ReusedPidShown) => None,
            // The process has exited, and these may be threads of the one that has its pid now.
            Some(_) => return self.ask_left(reader),
        };
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
        // After the threads: a thread that was stopped in a call has begun it by then.
        let recorded = reader.calls(self.pid, lent);
        let site = self.call_site.take();
        let site = site.filter(|_| matches!(seen, Seen::Threads(_)));
        // It cannot be read because its process has exited meanwhile, or may not be read any more.
        let is_lost = after.is_none_or(|after| after.stack == 0);
        let recorded = match recorded {
            region::Content::Unreadable if is_lost => region::Content::Nothing,
            other => other,
        };
        let calls = match (recorded, site) {
            (region::Content::Nothing, Some(site)) => Calls::Read(Box::new(site)),
            (recorded, _) => recorded.into(),
        };
        Step::Done(seen, calls)
    }
}

/// Returns true if a process executes another program. The addresses of a process that has exited, or that we may no longer read,
/// are 0: the sample was taken before, and counts.
fn became(before: Identity, after: Identity) -> bool {
    let unknown = after.stack == 0;
    !(unknown || (before.code, before.stack) == (after.code, after.stack))
}
