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

mod thread;

use std::{mem, time::Duration};

use base::Registers;

use super::{
    activity::{missing, seen},
    kernel::{Answer, Group, Identity, Lent, Question},
    reader::{Known, Reader},
};
use crate::{
    python,
    stack::{Activity, Missing, Seen, Thread},
    unwind::{Capture, Code},
};

/// How often a process is looked at that becomes another program meanwhile.
const TRIES: u32 = 3;
use self::thread::Current;
pub use self::thread::MAX_STACK_COPY;

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
