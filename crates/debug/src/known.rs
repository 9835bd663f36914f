//! Functions that are known to wait. Frames below them usually belong to a library, and say nothing about the user's
//! program.
//!
//! The names are those of public interfaces: the MPI standard's C and Fortran bindings with their profiling names, NCCL, Gloo and
//! c10d of PyTorch, POSIX threads and system calls. Names of an implementation's internals are needed only where a public
//! function ends with a tail call and leaves no frame of its own (`mpi`).

mod callback;
mod mpi;
mod owner;
mod tables;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::stack::{Frame, FrameKind};
pub(crate) use callback::is_callback;
pub(crate) use mpi::{joins_jobs, spawns_jobs};
pub use owner::{Owner, is_interpreter, is_prologue, own, owner};
use tables::{
    ALIASES, ENDINGS, EVENT_LOOP, HELPER_NAMES, HELPERS, IDLE_OPENMP, LIBC, Listed,
    OWNERS_OF_EVENT_LOOPS, PREFIXES, PYTHON_PACKAGES, STANDARD_PYTHON, SYSTEM, SYSTEM_FILES,
    UCX_THREAD,
};

/// What a known function waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// For the other ranks of a communicator, all of which must call it.
    Collective,
    /// Like a collective among the live ranks: it completes although others have failed.
    Recovery,
    /// Like a collective, at the start of the program.
    Start,
    /// Like a collective, at the end of the program.
    Finish,
    /// For a message to arrive.
    Receive,
    /// For a message to be received.
    Send,
    /// For a message to arrive and one to be received.
    Exchange,
    /// For requests; the function does not show whether they send or receive.
    Completion,
    /// For the other side of an access epoch of a window.
    Epoch,
    /// For a lock on a window, or for the completion of accesses to it: no other rank has to call anything.
    Window,
    /// For a file, through MPI: often each rank for a file of its own.
    File,
    /// For another job.
    OtherJob,
    /// For something unknown, in another MPI function.
    UnknownMpi,
    /// For nothing: it tests for completion or starts an operation, and returns immediately.
    Test,
    /// For a lock that another thread holds.
    Lock,
    /// For the lock of a Python interpreter (GIL), with short timeouts.
    Interpreter,
    /// For a condition variable or a barrier of threads.
    Condition,
    /// For a semaphore, which threads and signal handlers can post.
    Semaphore,
    /// For a lock, a condition variable or a semaphore that is shared with other processes.
    Shared,
    /// For the end of a thread.
    Join,
    /// To read; from a file, or also from a terminal, a pipe or a socket.
    Read,
    /// To write.
    Write,
    /// For written data to reach the disk, which may legitimately take long.
    Sync,
    /// For one of several descriptors.
    Poll,
    /// For time to pass, or for something else with a timeout: that ends by itself.
    Sleep,
    /// For a child process.
    Child,
    /// For the GPU.
    Device,
    /// For the worker processes that prepare data.
    Data,
}

impl Kind {
    /// Returns true if a thread that runs in this function is waiting as well: MPI libraries poll until something arrives.
    #[must_use]
    pub const fn is_polled(self) -> bool {
        matches!(
            self,
            Self::Collective
                | Self::Recovery
                | Self::Start
                | Self::Finish
                | Self::Receive
                | Self::Send
                | Self::Exchange
                | Self::Completion
                | Self::Epoch
                | Self::Window
                | Self::OtherJob
        )
    }
}

/// A known function.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Known {
    /// The public name.
    pub name: Arc<str>,
    /// What it waits for.
    pub kind: Kind,
}

impl From<Listed> for Known {
    fn from(listed: Listed) -> Self {
        Self {
            name: listed.name.into(),
            kind: listed.kind,
        }
    }
}

impl Known {
    /// Returns true if this function calls user functions, which then show what the thread does.
    pub(crate) fn calls_back(&self) -> bool {
        self.name.starts_with("MPI") || &*self.name == "pthread_once"
    }

    /// Returns this function with the kind that the frames `below` it show. `Event.wait` of Python may have a timeout, which only
    /// the C library function below shows. A function that reads, writes or waits for a child there does not wait for a thread.
    pub(crate) fn given<'a>(self, below: impl Iterator<Item = &'a Frame>) -> Self {
        if !matches!(self.kind, Kind::Lock | Kind::Condition | Kind::Join) {
            return self;
        }
        let mut kinds = below.filter_map(|frame| Some(known(frame, Position::Inner)?.kind));
        let telling = |kind: &Kind| {
            use Kind::{Child, Poll, Read, Semaphore, Sleep, Write};
            matches!(kind, Sleep | Semaphore | Read | Write | Poll | Child)
        };
        let kind = match kinds.find(telling) {
            Some(Kind::Semaphore) if self.kind == Kind::Condition => Kind::Semaphore,
            None | Some(Kind::Semaphore) => self.kind,
            Some(kind) => kind,
        };
        Self { kind, ..self }
    }
}

/// Returns the known function of a frame; `None` if it is not in the tables. Short names of the C library, which programs use
/// too, count only in the innermost frame and in system libraries.
#[must_use]
pub fn known(frame: &Frame, position: Position) -> Option<Known> {
    let name = frame.function.as_deref()?;
    if frame.kind == FrameKind::Python {
        let file = frame.source.as_ref()?.file.as_ref();
        let function = name.rsplit('.').next().unwrap_or(name);
        let standard = owner::standard_file(file);
        let mut rows = STANDARD_PYTHON
            .iter()
            .filter(|(own, _, _)| standard == Some(own))
            .chain(
                PYTHON_PACKAGES
                    .iter()
                    .filter(|(end, _, _)| file.ends_with(end)),
            );
        return rows.find(|row| row.1 == function).map(|row| row.2.into());
    }
    if let Some(known) = mpi::known(name, frame.module.as_deref()) {
        return Some(known);
    }
    if let Some((_, known)) = PREFIXES.iter().find(|(start, _)| name.starts_with(start)) {
        return Some((*known).into());
    }
    // Programs use these names for functions of their own.
    if position == Position::Inner || is_system(frame) {
        let plain = plain(name);
        for (kind, names) in &LIBC {
            if let Some(name) = names.iter().find(|known| **known == plain) {
                return Some(Known {
                    name: (*name).into(),
                    kind: *kind,
                });
            }
        }
    }
    None
}

/// The position of a frame in its stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// It has called another function.
    Outer,
    /// It is the innermost frame.
    Inner,
}

/// Returns the name of a C library function without the prefixes and suffixes of its variants.
fn plain(name: &str) -> &str {
    let name = name.split('@').next().unwrap_or(name);
    let name = name.strip_prefix("__GI_").unwrap_or(name);
    let name = name.trim_start_matches('_');
    let name = name.strip_prefix("libc_").unwrap_or(name);
    let name = name.strip_suffix("_nocancel").unwrap_or(name);
    let name = name.strip_suffix("_time64").unwrap_or(name);
    let name = name.strip_suffix("64").unwrap_or(name);
    let alias = ALIASES.iter().find(|(own, _)| *own == name);
    alias.map_or(name, |(_, public)| public)
}

/// Returns true if a frame belongs to a library or file of the system, a language or MPI.
#[must_use]
pub fn is_system(frame: &Frame) -> bool {
    let file = frame.source.as_ref().map_or("", |source| &source.file);
    let function = frame.function.as_deref().unwrap_or_default();
    // Functions that Cython generates for its own use.
    if SYSTEM_FILES.iter().any(|part| file.contains(part)) || function.starts_with("__pyx_") {
        return true;
    }
    frame.module.as_deref().is_some_and(|module| {
        SYSTEM.iter().any(|start| module.starts_with(start)) || module.starts_with("libmca_")
    })
}

/// Returns true if a frame of this function shows that the program is exiting.
#[must_use]
pub fn is_ending(frame: &Frame) -> bool {
    let name = frame.function.as_deref().unwrap_or_default();
    let name = name.strip_prefix("__GI_").unwrap_or(name);
    let plain = name.trim_start_matches('_');
    ENDINGS.contains(&plain) || name.contains("::~")
}

/// Returns the name of a library's helper thread, by the thread's name and frames. `None` for a thread that may work for the
/// program. The result is meaningless for a process's first thread.
#[must_use]
pub fn helper<'a>(name: &str, frames: impl Iterator<Item = &'a Frame>) -> Option<&'static str> {
    if let Some((_, known)) = HELPER_NAMES
        .iter()
        .find(|(start, _)| name.starts_with(start))
    {
        return Some(known);
    }
    if name == UCX_THREAD {
        return Some("UCX");
    }
    let mut found = None;
    let mut idle = false;
    let (mut in_loop, mut of_library) = (false, false);
    for frame in frames {
        let function = frame.function.as_deref().unwrap_or_default();
        let module = frame.module.as_deref().unwrap_or_default();
        idle |= IDLE_OPENMP.contains(&function);
        in_loop |= function == EVENT_LOOP;
        of_library |= OWNERS_OF_EVENT_LOOPS
            .iter()
            .any(|start| module.starts_with(start));
        found = found.or_else(|| {
            let row = HELPERS.iter().find(|(part, _)| function.contains(part));
            row.map(|(_, known)| *known)
        });
    }
    // OpenMP threads compute, unless they are at a barrier.
    found
        .filter(|known| *known != "OpenMP" || idle)
        .or_else(|| (in_loop && of_library).then_some("events"))
}
