//! Answers the questions of `debug` about living processes, from the kernel.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use bytes::Bytes;
use debug::{
    agent::kernel::{
        Answer, Group, Identity, LEFT_MAX, NotStopped, Process, Question, ThreadFacts,
    },
    image::Files,
    maps::Mapping,
    memory::{Memory, Unreadable},
    recorded::region,
};
use os::{Freezers, Pid, StoppedThread};

/// The memory of a living process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LiveMemory(pub(crate) Pid);

/// The files of a living process, in its own file system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LiveFiles(pub(crate) Pid);

impl Memory for LiveMemory {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Unreadable> {
        match os::read_memory(self.0, address, buffer) {
            Ok(read) if read == buffer.len() => Ok(()),
            _ => Err(Unreadable { address }),
        }
    }
}

impl Files for LiveFiles {
    fn open(&self, path: &Path) -> Option<Bytes> {
        os::map_file_of(self.0, path).map(Bytes::from_owner)
    }

    fn open_mapped(&self, mapping: &Mapping) -> Option<Bytes> {
        let same = |file: &os::Mapped| {
            let (device, inode) = file.identity();
            mapping
                .file
                .is_some_and(|file| file.device == device && file.inode == inode)
        };
        // On some file systems a mapping has another device number than its file. The path then decides.
        let named = || os::map_file_of(self.0, mapping.path.as_ref());
        let (start, end) = (mapping.range.start, mapping.range.end);
        named()
            .filter(same)
            .or_else(|| os::map_deleted_file_of(self.0, start, end))
            .or_else(|| named().filter(|_| !mapping.deleted))
            .map(Bytes::from_owner)
    }
}

/// Carries out the questions of an agent, and decides nothing.
#[derive(Debug)]
pub(super) struct Kernel {
    freezers: Freezers,
    /// The stopped thread. `None` once the agent has had it released.
    pub(super) stopped: Option<StoppedThread>,
    /// Directories in which ranks of our jobs have their recorded calls, as they were when the first rank was found dead.
    recorded: Option<Vec<PathBuf>>,
    /// The time that reading mappings has taken.
    pub(super) reading: Duration,
}

impl Kernel {
    pub(super) fn new() -> Self {
        Self {
            freezers: Freezers::find(),
            stopped: None,
            recorded: None,
            reading: Duration::ZERO,
        }
    }

    /// Returns the answer, and the thread whose `/proc` entries give access to memory and files of the process.
    pub(super) fn answer(&mut self, question: Question) -> (Answer, Pid) {
        let through = |pid| Pid::from_raw(pid);
        match question {
            Question::Processes => (Answer::Processes(processes()), os::current_pid()),
            Question::Owners { pids } => {
                let owners = pids.into_iter().map(|pid| os::owner_of(Pid::from_raw(pid)));
                (Answer::Owners(owners.collect()), os::current_pid())
            }
            Question::Identity { pid, through } => identity(pid, through),
            Question::Mappings { through } => {
                let through = Pid::from_raw(through);
                let begin = Instant::now();
                let mappings = os::mappings(through);
                let number = os::own_number(through);
                self.reading += begin.elapsed();
                (Answer::Mappings(mappings, number), through)
            }
            Question::Threads { pid, through } => {
                let process = Pid::from_raw(pid);
                let threads = os::threads_of(process).into_iter().map(Pid::as_raw);
                let threads = threads.collect();
                let group = if self.freezers.has_frozen(process) {
                    Group::Frozen
                } else {
                    Group::Runs
                };
                (Answer::Threads(threads, group), Pid::from_raw(through))
            }
            Question::Thread { pid, tid } => (thread(pid, tid), through(pid)),
            Question::Stop {
                tid,
                through,
                patience,
                copy,
                room,
            } => {
                let stopped = self.stop(tid, patience, copy, room);
                (stopped, Pid::from_raw(through))
            }
            Question::Release { through, .. } => {
                let stood = self.stopped.take().map(StoppedThread::release);
                let stood = stood.unwrap_or_default();
                (Answer::Released(stood), Pid::from_raw(through))
            }
            Question::Copy {
                through,
                address,
                limit,
            } => {
                let through = Pid::from_raw(through);
                let copied = copied(through, address, Vec::new(), limit);
                (Answer::Copied(copied), through)
            }
            Question::Tracer { tid } => {
                let tracer = os::tracer(Pid::from_raw(tid)).ok().flatten();
                (Answer::Tracer(tracer.map(Pid::as_raw)), through(tid))
            }
            Question::Remains { pid } => {
                let process = Pid::from_raw(pid);
                let remains = os::inspect(process);
                let remains = remains.map(|info| (info.state, os::threads_of(process).len()));
                (Answer::Remains(remains), process)
            }
            Question::Left { pid } => (Answer::Left(self.left(pid)), Pid::from_raw(pid)),
            Question::Arguments { pid } => {
                let process = Pid::from_raw(pid);
                let arguments = os::arguments_of(process);
                let started = os::start_time(process);
                (Answer::Arguments(arguments, started), process)
            }
            Question::Processor { tid } => {
                let thread = Pid::from_raw(tid);
                let processor = os::inspect_thread(thread, thread).map(|info| info.processor);
                (Answer::Processor(processor), thread)
            }
        }
    }

    /// Returns the regions of recorded calls that processes with this pid have left.
    fn left(&mut self, pid: i32) -> Vec<Vec<u8>> {
        let places = self
            .recorded
            .get_or_insert_with(|| runtime::recorder_directories(&crate::surroundings()));
        let files = places.iter().map(|place| region::file_of(place, pid));
        let regions = files.filter_map(|file| os::read_own_file(&file, region::BYTES).ok());
        regions.take(LEFT_MAX).collect()
    }

    /// Stops a thread, until the agent asks to release it.
    fn stop(&mut self, tid: i32, patience: Duration, copy: usize, room: Vec<u8>) -> Answer {
        let tid = Pid::from_raw(tid);
        let why = match StoppedThread::stop(tid, patience) {
            Ok(thread) => match thread.registers() {
                Ok(registers) => {
                    let bytes = copied(tid, registers.stack(), room, copy);
                    self.stopped = Some(thread);
                    return Answer::Stopped(registers, bytes);
                }
                // The thread was killed while it was stopped.
                Err(_) => NotStopped::Gone,
            },
            Err(os::NotStopped::Gone) => NotStopped::Gone,
            Err(os::NotStopped::NotPermitted) => NotStopped::NotPermitted,
            Err(os::NotStopped::Late | os::NotStopped::Refused(_)) => NotStopped::Late,
        };
        Answer::NotStopped(why)
    }
}

fn processes() -> Vec<Process> {
    let all = os::all_processes().into_iter().filter_map(os::inspect);
    let process = |info: os::ProcessInfo| Process {
        pid: info.pid.as_raw(),
        parent: info.ppid.as_raw(),
        name: info.name,
        state: info.state,
        started: info.start_time,
        cpu: info.cpu,
    };
    all.map(process).collect()
}

fn identity(pid: i32, through: Option<i32>) -> (Answer, Pid) {
    let pid = Pid::from_raw(pid);
    let Some(process) = os::inspect(pid) else {
        return (Answer::Identity(None), pid);
    };
    let through = match through {
        Some(through) => Pid::from_raw(through),
        // The state is that of the first thread. Other threads may be alive.
        None if matches!(process.state, 'Z' | 'X') => os::living_thread_of(pid),
        None => pid,
    };
    let loaded = if through == pid {
        process.loaded
    } else {
        os::inspect(through).map_or_else(os::Loaded::default, |thread| thread.loaded)
    };
    let identity = Identity {
        started: process.start_time,
        code: loaded.code,
        stack: loaded.stack,
    };
    (
        Answer::Identity(Some((through.as_raw(), identity))),
        through,
    )
}

fn thread(pid: i32, tid: i32) -> Answer {
    let (pid, tid) = (Pid::from_raw(pid), Pid::from_raw(tid));
    // The state is read before the thread is stopped by us.
    let Some(info) = os::inspect_thread(pid, tid) else {
        return Answer::Thread(None, None);
    };
    let in_kernel = os::in_kernel(pid, tid);
    let facts = ThreadFacts {
        state: info.state,
        cpu: info.cpu,
        name: info.name,
    };
    Answer::Thread(Some(facts), in_kernel)
}

/// Reads at most `limit` bytes of memory, and stops at the first unreadable byte.
fn copied(pid: Pid, address: u64, mut room: Vec<u8>, limit: usize) -> Vec<u8> {
    room.resize(limit, 0);
    let read = os::read_memory(pid, address, &mut room).unwrap_or(0);
    room.truncate(read);
    room
}

#[cfg(test)]
pub(super) mod tests;
