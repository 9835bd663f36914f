//! Functions that a person knows as the place where one waits: what is below them is somebody else's progress.
//!
//! Names come from the interfaces that programs are written against: the MPI standard's C and Fortran bindings with their
//! profiling names, NCCL, Gloo and c10d of PyTorch, POSIX threads and system calls. No name of an implementation's
//! internals is needed, but where a public function has left its frame to one (`mpi`).

mod callback;
mod mpi;
mod owner;
mod tables;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::stack::{Frame, FrameKind};
pub(crate) use callback::is_callback;
pub(crate) use mpi::joins_jobs;
pub use owner::{Owner, is_interpreter, is_prologue, own, owner};
use tables::{
    ALIASES, ENDINGS, EVENT_LOOP, HELPER_NAMES, HELPERS, IDLE_OPENMP, LIBC, Listed,
    OWNERS_OF_EVENT_LOOPS, PREFIXES, PYTHON_PACKAGES, STANDARD_PYTHON, SYSTEM, SYSTEM_FILES,
    UCX_THREAD,
};

/// For what a function waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// All ranks of a communicator must call it.
    Collective,
    /// As a collective, of all that live: it ends although others do not live any more.
    Recovery,
    /// As a collective, at the start of the program.
    Start,
    /// As a collective, at its end.
    Finish,
    /// For a message to come.
    Receive,
    /// For a message to be taken.
    Send,
    /// Both.
    Exchange,
    /// For requests, of which nobody says here whether they send or receive.
    Completion,
    /// For the other side of an epoch of access to a window.
    Epoch,
    /// For a lock on a window, or until what was done to one is there: no other rank needs to call anything.
    Window,
    /// For a file, by MPI: often each rank for one of its own.
    File,
    /// For another job.
    Outside,
    /// In another function of MPI, of which nobody says here what it waits for.
    Call,
    /// It looks whether something has come, or begins something, and returns at once.
    Test,
    /// For a lock that another holds.
    Lock,
    /// For the lock of an interpreter, in small steps of time.
    Interpreter,
    /// For a condition or a barrier of threads.
    Condition,
    /// For a semaphore: threads release it, and signal handlers do.
    Semaphore,
    /// For a lock, a condition or a semaphore that other processes have too.
    Shared,
    /// For the end of a thread.
    Join,
    /// To read, which also may be from a terminal, a pipe or a socket.
    Read,
    /// To write.
    Write,
    /// Until all that was written is on the disk: long for honest reasons.
    Sync,
    /// For one of several descriptors.
    Poll,
    /// For time to pass, also while it waits for something else: that ends by itself.
    Sleep,
    /// For a child process.
    Child,
    /// For the graphics processor.
    Device,
    /// For the workers that prepare data.
    Data,
}

impl Kind {
    /// Whether a thread that runs in such a wait polls: libraries of MPI do, until something comes.
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
                | Self::Outside
        )
    }
}

/// A known function, as its table names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Known {
    /// The name that people know.
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
    /// Whether the user's functions are called below this one, which say what the thread does.
    pub(crate) fn calls_back(&self) -> bool {
        self.name.starts_with("MPI") || &*self.name == "pthread_once"
    }

    /// The same, where these frames are below it: `Event.wait` of Python waits for ever or for some time, which the function of
    /// the C library below tells. What reads, writes or waits for a child there waits for no thread.
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

/// What a frame is known as; `innermost` says whether nothing is called from it.
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
    // Programs have functions of these names too.
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

/// Where in its stack a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// It calls others.
    Outer,
    /// It is the innermost one.
    Inner,
}

/// A name of the C library without what its versions put around it.
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

/// Whether a frame belongs to a library that the user has not written.
#[must_use]
pub fn is_system(frame: &Frame) -> bool {
    let file = frame.source.as_ref().map_or("", |source| &source.file);
    let function = frame.function.as_deref().unwrap_or_default();
    // What Cython makes for itself.
    if SYSTEM_FILES.iter().any(|part| file.contains(part)) || function.starts_with("__pyx_") {
        return true;
    }
    frame.module.as_deref().is_some_and(|module| {
        SYSTEM.iter().any(|start| module.starts_with(start)) || module.starts_with("libmca_")
    })
}

/// Whether a program that is in this function, or below, is ending.
#[must_use]
pub fn is_ending(frame: &Frame) -> bool {
    let name = frame.function.as_deref().unwrap_or_default();
    let name = name.strip_prefix("__GI_").unwrap_or(name);
    let plain = name.trim_start_matches('_');
    ENDINGS.contains(&plain) || name.contains("::~")
}

/// What a thread that is not the first is known as, if it is a library's own and does nothing for the program now.
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
    // Threads of OpenMP compute, as long as they do not stand at a barrier.
    found
        .filter(|known| *known != "OpenMP" || idle)
        .or_else(|| (in_loop && of_library).then_some("events"))
}
