//! Processes as they are now: what `debug` asks of them, answered by the kernel.

mod capture;
mod steady;

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    path::Path,
    time::{Duration, Instant},
};

use base::Rank;
use bytes::Bytes;
use debug::{
    company::Joining,
    image::{self, Files},
    maps::{self, Mapping},
    memory::{Memory, Unreadable},
    python,
    report::{self, Part},
    stack::{Activity, End, Frames, Missing, Seen, Stack, Thread, Wait},
    unwind::{Build, Code, Images},
};
use os::{Freezers, NotStopped, Pid};

use self::{
    capture::{Group, activity, capture, from_outside, is_ours, wait_in},
    steady::{Identity, steady},
};

/// The memory of a process that lives.
#[derive(Clone, Copy, Debug)]
pub(super) struct LiveMemory(pub(super) Pid);

/// The files of a process that lives, in its own file system.
#[derive(Clone, Copy, Debug)]
pub(super) struct LiveFiles(pub(super) Pid);

/// Threads of one process that are looked at: for each more of them the first would have moved on further.
const MAX_THREADS: usize = 1 << 14;
/// Builds that a report names.
const MAX_BUILDS: usize = 64;
/// Bytes of a stack that are copied at first: nearly all are shorter.
const STACK_COPY: usize = 64 << 10;
/// Bytes of a stack that are copied where that was not enough.
const MAX_STACK_COPY: usize = 8 << 20;

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
        // On some file systems a mapping has another device than the file that it is of: then the name has to do.
        let named = || os::map_file_of(self.0, mapping.path.as_ref());
        let (start, end) = (mapping.range.start, mapping.range.end);
        named()
            .filter(same)
            .or_else(|| os::map_deleted_file_of(self.0, start, end))
            .or_else(|| named().filter(|_| !mapping.deleted))
            .map(Bytes::from_owner)
    }
}

/// Looks at processes, and keeps what does not change between two looks.
#[derive(Debug)]
pub(super) struct Looker {
    /// Every frame that was seen.
    pub(super) frames: Frames,
    /// How much of Python's interpreter is shown.
    plumbing: python::Plumbing,
    images: Images,
    runtimes: python::Runtimes,
    codes: BTreeMap<Pid, Known>,
    /// Room for the copy of a stack, used again for each.
    room: Vec<u8>,
    /// The time that reading mappings and files has taken.
    pub(super) reading: Duration,
    freezers: Freezers,
    /// Threads of one process that are looked at.
    max_threads: usize,
    /// Processes that have had more, and how many in their largest look.
    crowded: BTreeMap<Pid, usize>,
    /// Processes below ranks that were not looked at, of the look with the most.
    left_out: usize,
}

/// A process in one look.
#[derive(Clone, Copy, Debug)]
struct Process {
    pid: Pid,
    /// A thread of it that lives.
    through: Pid,
    group: Group,
}

/// What is known of a process from the last look.
#[derive(Debug)]
struct Known {
    /// Another process, or another program, may be there now.
    identity: Identity,
    code: Code,
    python: Option<python::Process>,
}

impl Looker {
    /// Has looked at nothing yet. For stacks that are shown in full, lines inside the system's libraries are read too.
    pub(super) fn new(detail: report::Detail) -> Self {
        let (reading, plumbing) = match detail {
            report::Detail::Folded => (image::Reading::Names, python::Plumbing::Hidden),
            report::Detail::Full => (image::Reading::Lines, python::Plumbing::Shown),
        };
        Self {
            frames: Frames::new(),
            plumbing,
            images: Images::new(base::Arch::NATIVE, reading),
            runtimes: python::Runtimes::default(),
            codes: BTreeMap::new(),
            room: Vec::new(),
            reading: Duration::ZERO,
            freezers: Freezers::find(),
            max_threads: MAX_THREADS,
            crowded: BTreeMap::new(),
            left_out: 0,
        }
    }

    /// Forgets what it knows of processes that are not looked at any more.
    pub(super) fn keep(&mut self, wanted: impl Fn(Pid) -> bool) {
        self.codes.retain(|&pid, _| wanted(pid));
        self.crowded.retain(|&pid, _| wanted(pid));
    }

    /// So many processes below ranks were not looked at.
    pub(super) fn leave_out(&mut self, processes: usize) {
        self.left_out = self.left_out.max(processes);
    }

    /// What is not in the looks until now, in sentences.
    pub(super) fn doubts(&self) -> impl Iterator<Item = String> {
        let looked_at = self.max_threads;
        let crowded = self.crowded.iter().map(move |(pid, threads)| {
            format!("process {pid} has {threads} threads, of which {looked_at} were looked at")
        });
        let left_out = (self.left_out > 0).then(|| {
            let were = if self.left_out == 1 { "was" } else { "were" };
            format!(
                "of the processes that ranks have started, {} {were} not looked at",
                self.left_out
            )
        });
        crowded.chain(left_out)
    }

    /// Which builds of programs and of MPI the processes have that it has looked at.
    pub(super) fn versions(&self) -> Vec<Part> {
        let builds = self.codes.values();
        let builds: BTreeSet<Build> = builds
            .flat_map(|known| self.images.builds(&known.code))
            .collect();
        let version = |build: Build| Part {
            of: build.file.to_string(),
            version: build.to_string(),
        };
        builds.into_iter().take(MAX_BUILDS).map(version).collect()
    }

    /// Whether one of these ranks can join its job with another, as far as they were looked at.
    pub(super) fn joining(&self, ranks: &BTreeMap<Rank, (Pid, u64)>) -> Joining {
        let known = ranks.values().filter_map(|(pid, _)| self.codes.get(pid));
        let joining = known.map(|known| self.images.joining(&known.code));
        joining.max().unwrap_or_default()
    }

    /// Looks at every thread of the process that has this number since `started`, in ticks since boot. Each is stopped for a
    /// moment.
    pub(super) fn look(&mut self, pid: Pid, started: u64) -> Seen {
        let known = |id: &Identity| id.started == started;
        self.images.begin();
        let through = os::living_thread_of(pid);
        let seen = steady(
            || Identity::of(pid, through).filter(known),
            |identity| self.look_once(pid, through, identity),
        );
        if matches!(seen, Seen::Missing(_)) {
            self.codes.remove(&pid);
        }
        seen
    }

    /// Looks at a process by one of its threads that lives.
    fn look_once(&mut self, pid: Pid, through: Pid, identity: Identity) -> Seen {
        let known = self.codes.remove(&pid);
        let code = match known.filter(|known| known.identity == identity) {
            Some(known) => Some((known.code, known.python, Age::Kept)),
            None => self
                .read_code(through)
                .map(|(code, python)| (code, python, Age::New)),
        };
        let Some((mut code, mut python, mut age)) = code else {
            return Seen::Missing(missing(pid));
        };
        if let Some(python) = &mut python {
            python.list(&LiveMemory(through));
        }
        let (mut threads, mut refused) = (Vec::new(), Vec::new());
        let mut tids = os::threads_of(pid);
        if tids.len() > self.max_threads {
            let most = self.crowded.entry(pid).or_default();
            *most = tids.len().max(*most);
            tids.truncate(self.max_threads);
        }
        let of = Process {
            pid,
            through,
            group: if self.freezers.has_frozen(pid) {
                Group::Frozen
            } else {
                Group::Runs
            },
        };
        for tid in tids {
            let mut thread = self.look_at(of, tid, &code, python.as_mut());
            // It may have loaded a library since we have read what it has.
            if matches!(&thread, Looked::At(thread) if self.is_outdated(age, &thread.stack))
                && let Some(new) = self.read_code(through)
            {
                (code, python) = new;
                age = Age::Again;
                if let Some(python) = &mut python {
                    python.list(&LiveMemory(through));
                }
                thread = self.look_at(of, tid, &code, python.as_mut());
            }
            match thread {
                Looked::At(thread) => threads.push(*thread),
                Looked::Gone => {}
                Looked::Refused => refused.push(tid),
            }
        }
        let known = Known {
            identity,
            code,
            python,
        };
        self.codes.insert(pid, known);
        if threads.iter().any(|it| it.activity != Activity::Ended) {
            return seen(threads);
        }
        // What is mapped may be read of more processes than memory and registers.
        let tracer = refused.first().map(|&tid| os::tracer(tid));
        Seen::Missing(match tracer {
            Some(Ok(Some(tracer))) if tracer != os::current_pid() => {
                Missing::TracedBy(tracer.as_raw())
            }
            Some(_) => Missing::NotPermitted,
            None => missing(pid),
        })
    }

    /// Whether a stack leads where nothing was mapped when we asked.
    fn is_outdated(&self, age: Age, stack: &Stack) -> bool {
        let unknown = || {
            let mut frames = stack.frames.iter();
            frames.any(|&frame| self.frames.get(frame).is_unknown())
        };
        match age {
            Age::Kept => stack.end == End::Lost || unknown(),
            Age::New => unknown(),
            // What is unknown still was made while the program ran.
            Age::Again => false,
        }
    }

    fn read_code(&mut self, pid: Pid) -> Option<(Code, Option<python::Process>)> {
        let begin = Instant::now();
        let maps = maps::parse(&os::mappings(pid)?);
        let memory = LiveMemory(pid);
        let code = self.images.code(&maps, &LiveFiles(pid), &memory);
        let python = python::Process::find(&mut self.runtimes, &self.images, &code, &memory);
        self.reading += begin.elapsed();
        Some((code, python))
    }

    fn look_at(
        &mut self,
        Process {
            pid,
            through,
            group,
        }: Process,
        tid: Pid,
        code: &Code,
        mut python: Option<&mut python::Process>,
    ) -> Looked {
        // Before it is stopped, for then it is stopped.
        let Some(info) = os::inspect_thread(pid, tid) else {
            return Looked::Gone;
        };
        let in_kernel = os::in_kernel(pid, tid);
        let mut stack = Stack {
            frames: Vec::new(),
            end: End::Lost,
        };
        let Some(mut activity) = activity(&info, in_kernel, group) else {
            if tid != pid {
                return Looked::Gone;
            }
            stack.end = End::Start;
            return Looked::At(Box::new(Thread {
                tid: tid.as_raw(),
                name: info.name,
                stack,
                activity: Activity::Ended,
                cpu: info.cpu,
                stopped: Duration::ZERO,
            }));
        };
        let (memory, files) = (LiveMemory(through), LiveFiles(through));
        let mut stopped = Duration::ZERO;
        for limit in [STACK_COPY, MAX_STACK_COPY] {
            let room = mem::take(&mut self.room);
            let chain_of = |base| python.as_deref()?.chain(base, tid.as_raw(), &memory);
            let taken = capture(tid, (&info, group), in_kernel, room, limit, chain_of);
            let (capture, chain, time) = match taken {
                Ok(capture) => capture,
                Err(NotStopped::Gone) => return Looked::Gone,
                Err(why) => match from_outside(in_kernel, &memory, limit) {
                    Some(capture) => (capture, chain_of(None), Duration::ZERO),
                    None if why == NotStopped::NotPermitted && !is_ours(tid) => {
                        return Looked::Refused;
                    }
                    None => break,
                },
            };
            stopped = stopped.max(time);
            let cut = capture.bytes.len() == limit;
            stack = self
                .images
                .unwind(code, &capture, &memory, &files, &mut self.frames);
            self.room = capture.bytes;
            if let (Some(python), Some(chain)) = (&mut python, chain) {
                let frames = &mut self.frames;
                stack = python.merge(&stack, &chain, &memory, self.plumbing, frames);
            }
            // What was not copied is read now, which is too late only where the thread runs.
            if stack.end == End::Start || !cut || activity != Activity::Running {
                break;
            }
        }
        if activity == Activity::Waiting(Wait::Other)
            && let Some(&inner) = stack.frames.last()
        {
            let function = self.frames.get(inner).function.as_deref();
            activity = Activity::Waiting(wait_in(function, in_kernel));
        }
        Looked::At(Box::new(Thread {
            tid: tid.as_raw(),
            name: info.name,
            stack,
            activity,
            cpu: info.cpu,
            stopped,
        }))
    }
}

/// What a look at a thread gives.
enum Looked {
    At(Box<Thread>),
    /// It has ended.
    Gone,
    /// We may not look at it.
    Refused,
}

/// When it was read what a process has mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Age {
    /// In an earlier look.
    Kept,
    /// At the beginning of this one.
    New,
    /// In this one, because something was missing.
    Again,
}

/// What was seen of a process with these threads.
fn seen(threads: Vec<Thread>) -> Seen {
    let unreachable =
        |thread: &Thread| thread.stack.frames.is_empty() && thread.activity == Activity::Disk;
    if threads.iter().all(unreachable) {
        return Seen::Missing(Missing::Unreachable);
    }
    Seen::Threads(threads)
}

/// Why nothing can be read of a process.
fn missing(pid: Pid) -> Missing {
    match os::inspect(pid) {
        None => Missing::Gone,
        Some(info) if matches!(info.state, 'Z' | 'X') && os::threads_of(pid).len() < 2 => {
            Missing::Zombie
        }
        Some(_) => Missing::NotPermitted,
    }
}

#[cfg(test)]
mod python_tests;
#[cfg(test)]
pub(super) mod tests;
