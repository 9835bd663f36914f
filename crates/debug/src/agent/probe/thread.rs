//! Samples one thread of a process: stops and copies it, releases it, and unwinds the copy.

use std::{mem, time::Duration};

use base::InKernel;

use super::{
    super::{
        activity::{activity, is_out_of_reach, wait_in},
        kernel::{Lent, NotStopped, Question, ThreadFacts},
        reader::Reader,
    },
    Age, At, Probe, Step, Wanted,
};
use crate::{
    python,
    recorded::region,
    stack::{Activity, End, Stack, Thread, Wait},
    unwind::Capture,
};

/// Maximum time until a thread stops. A thread that can stop is far quicker.
const PATIENCE: Duration = Duration::from_millis(500);
/// Bytes of a stack in the first copy. Nearly all stacks are shorter.
const STACK_COPY: usize = 64 << 10;
/// Bytes of a stack in the second copy, if the first was too short.
pub const MAX_STACK_COPY: usize = 8 << 20;

/// The current thread.
#[derive(Debug)]
pub(super) struct Current {
    tid: i32,
    facts: ThreadFacts,
    in_kernel: Option<InKernel>,
    activity: Activity,
    stack: Stack,
    stopped: Duration,
    /// Maximum number of bytes of the stack to copy.
    limit: usize,
}

impl Probe {
    pub(super) fn inspect(
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
            // Of the exited threads only the first one is reported, because its thread id is the pid.
            if tid == self.pid {
                self.threads.push(Thread {
                    tid,
                    name: facts.name.into(),
                    stack: Stack {
                        frames: [].into(),
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
                frames: [].into(),
                end: End::Lost,
            },
            stopped: Duration::ZERO,
            limit: STACK_COPY,
        });
        self.stop(reader)
    }

    pub(super) fn tid(&self) -> i32 {
        self.current.as_ref().map_or(self.pid, |it| it.tid)
    }

    pub(super) fn stop(&mut self, reader: &mut Reader) -> Step {
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

    /// Continues with a thread that does not stop. The kernel may know where it sleeps.
    pub(super) fn not_stopped(&mut self, reader: &mut Reader, why: NotStopped) -> Step {
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

    /// Returns the Python frames of the thread. `base` is the address of its thread-local variables, if that is known.
    pub(super) fn chain(&self, base: Option<u64>, lent: Lent<'_>) -> Option<python::Chain> {
        let (_, python) = self.code.as_ref()?;
        python.as_ref()?.chain(base, self.tid(), lent.memory)
    }

    pub(super) fn unwind(
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
        if self.recorded == region::Found::Never && self.call_site.is_none() {
            let (images, stack) = (&mut reader.images, &current.stack);
            self.call_site = images.call_site(code, &capture, stack, memory, files, frames);
        }
        reader.room = capture.bytes;
        if let (Some(python), Some(chain)) = (python, chain) {
            let native = &current.stack;
            current.stack = python.merge(native, &chain, memory, reader.plumbing, frames);
        }
        // The rest of the stack was read live, after the thread was released. That is wrong only if the thread runs.
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

    /// Ends the current thread, and adds it to the sample.
    pub(super) fn end_thread(&mut self, reader: &mut Reader) -> Step {
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
            name: current.facts.name.into(),
            stack: current.stack,
            activity,
            cpu: current.facts.cpu,
            stopped: current.stopped,
        };
        // The process may have loaded a library since its mappings were read.
        if self.is_outdated(reader, &thread.stack) {
            return self.ask_mappings(Wanted::Again(Box::new(thread)));
        }
        self.threads.push(thread);
        self.next(reader)
    }

    /// Returns true if a stack leads to addresses that were not mapped when the mappings were read.
    fn is_outdated(&self, reader: &Reader, stack: &Stack) -> bool {
        let unknown = || {
            let mut frames = stack.frames.iter();
            frames.any(|&frame| reader.frames.get(frame).is_unknown())
        };
        match self.age {
            Age::Kept => stack.end == End::Lost || unknown(),
            Age::New => unknown(),
            // Code without a mapping was generated by the program.
            Age::Again => false,
        }
    }
}
