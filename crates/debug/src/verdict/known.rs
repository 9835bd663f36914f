//! Functions that a person knows as the place where one waits: what is below them is somebody else's progress.
//!
//! Names come from the interfaces that programs are written against: the MPI standard's C and Fortran bindings with their
//! profiling names, NCCL, Gloo and c10d of PyTorch, POSIX threads and system calls. No name of an implementation's
//! internals is needed, but where a public function has left its frame to one ([`JUMPED_TO`]).

use crate::stack::{Frame, FrameKind};

/// For what a function waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// All ranks of a communicator must call it.
    Collective,
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
    /// It looks whether something has come, and returns at once.
    Test,
    /// For a lock that another holds.
    Lock,
    /// For a condition, a semaphore or a barrier of threads.
    Condition,
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
    /// For time to pass.
    Sleep,
    /// For a child process.
    Child,
    /// For the graphics processor.
    Device,
    /// For the workers that prepare data.
    Data,
}

/// A known function, as its table names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Known {
    /// The name that people know.
    pub name: &'static str,
    /// What it waits for.
    pub kind: Kind,
}

/// Operations of MPI without `MPI_`, lower case: the name compares without case, since Fortran has none.
const MPI: [(Kind, &[&str]); 7] = [
    (
        Kind::Collective,
        &[
            "MPI_Allgather",
            "MPI_Allgatherv",
            "MPI_Allreduce",
            "MPI_Alltoall",
            "MPI_Alltoallv",
            "MPI_Alltoallw",
            "MPI_Barrier",
            "MPI_Bcast",
            "MPI_Exscan",
            "MPI_Gather",
            "MPI_Gatherv",
            "MPI_Reduce",
            "MPI_Reduce_scatter",
            "MPI_Reduce_scatter_block",
            "MPI_Scan",
            "MPI_Scatter",
            "MPI_Scatterv",
            "MPI_Neighbor_allgather",
            "MPI_Neighbor_alltoall",
            "MPI_Comm_create",
            "MPI_Comm_dup",
            "MPI_Comm_split",
            "MPI_Comm_split_type",
            "MPI_Comm_disconnect",
            "MPI_Comm_spawn",
            "MPI_Intercomm_create",
            "MPI_Intercomm_merge",
            "MPI_Cart_create",
            "MPI_Dist_graph_create",
            "MPI_Dist_graph_create_adjacent",
            "MPI_Win_allocate",
            "MPI_Win_allocate_shared",
            "MPI_Win_create",
            "MPI_Win_fence",
            "MPI_Win_free",
            "MPI_File_open",
            "MPI_File_close",
            "MPI_File_read_all",
            "MPI_File_read_at_all",
            "MPI_File_write_all",
            "MPI_File_write_at_all",
        ],
    ),
    (
        Kind::Start,
        &["MPI_Init", "MPI_Init_thread", "MPI_Session_init"],
    ),
    (Kind::Finish, &["MPI_Finalize", "MPI_Session_finalize"]),
    (
        Kind::Receive,
        &["MPI_Recv", "MPI_Mrecv", "MPI_Probe", "MPI_Mprobe"],
    ),
    (
        Kind::Send,
        &["MPI_Send", "MPI_Ssend", "MPI_Rsend", "MPI_Bsend"],
    ),
    (Kind::Exchange, &["MPI_Sendrecv", "MPI_Sendrecv_replace"]),
    (
        Kind::Completion,
        &["MPI_Wait", "MPI_Waitall", "MPI_Waitany", "MPI_Waitsome"],
    ),
];

/// Functions that public ones end in with a jump instead of a call, so that no frame of the public one is left: in Open
/// MPI 5, `MPI_Finalize` does nothing after this one.
const JUMPED_TO: [(&str, &str); 1] = [("ompi_mpi_finalize", "MPI_Finalize")];

/// Functions of MPI that return at once.
const MPI_TESTS: [&str; 6] = [
    "MPI_Test",
    "MPI_Testall",
    "MPI_Testany",
    "MPI_Testsome",
    "MPI_Iprobe",
    "MPI_Improbe",
];

/// Functions of the C library, without the underscores and suffixes that its versions put around them.
const LIBC: [(Kind, &[&str]); 10] = [
    (
        Kind::Lock,
        &[
            "pthread_mutex_lock",
            "pthread_mutex_timedlock",
            "pthread_rwlock_rdlock",
            "pthread_rwlock_wrlock",
            "pthread_once",
            "cxa_guard_acquire",
        ],
    ),
    (
        Kind::Condition,
        &[
            "pthread_cond_wait",
            "pthread_cond_timedwait",
            "pthread_cond_clockwait",
            "pthread_barrier_wait",
            "sem_wait",
            "sem_timedwait",
            "sem_clockwait",
        ],
    ),
    (Kind::Join, &["pthread_join", "pthread_timedjoin_np"]),
    (
        Kind::Read,
        &[
            "read", "pread", "readv", "recv", "recvfrom", "recvmsg", "accept", "accept4", "open",
            "openat", "stat", "fstat", "getdents",
        ],
    ),
    (
        Kind::Write,
        &[
            "write", "pwrite", "writev", "send", "sendto", "sendmsg", "connect",
        ],
    ),
    (
        Kind::Sync,
        &["fsync", "fdatasync", "msync", "sync", "syncfs"],
    ),
    (
        Kind::Poll,
        &[
            "poll",
            "ppoll",
            "select",
            "pselect",
            "epoll_wait",
            "epoll_pwait",
        ],
    ),
    (
        Kind::Sleep,
        &["nanosleep", "clock_nanosleep", "sleep", "usleep"],
    ),
    (Kind::Child, &["waitpid", "waitid", "system"]),
    (Kind::Read, &["flock", "lockf"]),
];

/// Names inside the C library that stand where the public one has left the stack.
const ALIASES: [(&str, &str); 4] = [
    ("pthread_clockjoin_ex", "pthread_join"),
    ("lll_lock_wait", "pthread_mutex_lock"),
    ("new_sem_wait_slow", "sem_wait"),
    ("wait4", "waitpid"),
];

/// Beginnings of names, in C++ with their namespaces.
const PREFIXES: [(&str, Known); 18] = [
    ("ncclAllReduce", collective("ncclAllReduce")),
    ("ncclAllGather", collective("ncclAllGather")),
    ("ncclReduceScatter", collective("ncclReduceScatter")),
    ("ncclBroadcast", collective("ncclBroadcast")),
    ("ncclReduce", collective("ncclReduce")),
    ("ncclGroupEnd", collective("ncclGroupEnd")),
    ("ncclCommInitRank", collective("ncclCommInitRank")),
    ("gloo::allreduce", collective("gloo::allreduce")),
    ("gloo::allgather", collective("gloo::allgather")),
    ("gloo::barrier", collective("gloo::barrier")),
    ("gloo::broadcast", collective("gloo::broadcast")),
    ("gloo::", collective("gloo")),
    ("c10d::ProcessGroup", collective("c10d::ProcessGroup")),
    ("c10d::Work::wait", collective("c10d::Work::wait")),
    ("cudaStreamSynchronize", device("cudaStreamSynchronize")),
    ("cudaDeviceSynchronize", device("cudaDeviceSynchronize")),
    ("cudaEventSynchronize", device("cudaEventSynchronize")),
    ("hipStreamSynchronize", device("hipStreamSynchronize")),
];

/// Functions of Python, with the end of their file's name.
const PYTHON: [(&str, &str, Known); 12] = [
    (
        "distributed_c10d.py",
        "all_reduce",
        collective("all_reduce"),
    ),
    (
        "distributed_c10d.py",
        "all_gather",
        collective("all_gather"),
    ),
    ("distributed_c10d.py", "barrier", collective("barrier")),
    ("distributed_c10d.py", "broadcast", collective("broadcast")),
    (
        "distributed_c10d.py",
        "reduce_scatter",
        collective("reduce_scatter"),
    ),
    ("dataloader.py", "_try_get_data", data("DataLoader")),
    ("dataloader.py", "_get_data", data("DataLoader")),
    ("dataloader.py", "_next_data", data("DataLoader")),
    ("threading.py", "join", of(Kind::Join, "Thread.join")),
    (
        "threading.py",
        "wait",
        of(Kind::Condition, "threading wait"),
    ),
    ("queue.py", "get", of(Kind::Condition, "Queue.get")),
    ("subprocess.py", "wait", of(Kind::Child, "Popen.wait")),
];

/// Functions below which a program ends.
const ENDINGS: [&str; 10] = [
    "exit",
    "run_exit_handlers",
    "cxa_finalize",
    "cxa_thread_atexit",
    "call_tls_dtors",
    "do_global_dtors_aux",
    "dl_fini",
    "dl_call_fini",
    "Py_FinalizeEx",
    "Py_RunMain_finalize",
];

/// Functions in which threads of libraries wait or make progress: what they do says nothing about the program.
const HELPERS: [(&str, &str); 16] = [
    ("progress_engine", "progress"),
    ("pmix_progress", "progress"),
    ("opal_progress_threads", "progress"),
    ("event_base_loop", "events"),
    ("uct_async", "UCX"),
    ("ucs_async", "UCX"),
    ("ncclProxy", "NCCL proxy"),
    ("ncclCommWatchdog", "NCCL watchdog"),
    ("gomp_thread_start", "OpenMP"),
    ("__kmp_launch_thread", "OpenMP"),
    ("MPIDI_OFI_progress", "progress"),
    ("blas_thread_server", "BLAS"),
    ("fi_eq_sread", "fabric"),
    ("cudaEvent", "CUDA"),
    ("cuEGL", "CUDA"),
    ("MPIR_Async_thread", "progress"),
];

/// Where threads of OpenMP stand between two parallel regions; in all other places they compute.
const IDLE_OPENMP: [&str; 8] = [
    "gomp_team_barrier_wait",
    "gomp_barrier_wait",
    "gomp_simple_barrier_wait",
    "gomp_dock_wait",
    "gomp_team_barrier_wait_end",
    "do_spin",
    "do_wait",
    "__kmp_fork_barrier",
];

/// Names of threads, of which only the beginning counts.
const HELPER_NAMES: [(&str, &str); 6] = [
    ("cuda-", "CUDA"),
    ("ucx_async", "UCX"),
    ("async", "UCX"),
    ("pt_nccl_watchdg", "NCCL watchdog"),
    ("pt_autograd", "autograd"),
    ("jemalloc_bg_thd", "allocator"),
];

const fn of(kind: Kind, name: &'static str) -> Known {
    Known { name, kind }
}

const fn collective(name: &'static str) -> Known {
    of(Kind::Collective, name)
}

const fn device(name: &'static str) -> Known {
    of(Kind::Device, name)
}

const fn data(name: &'static str) -> Known {
    of(Kind::Data, name)
}

/// What a frame is known as; `innermost` says whether nothing is called from it.
#[must_use]
pub fn known(frame: &Frame, position: Position) -> Option<Known> {
    let name = frame.function.as_deref()?;
    if frame.kind == FrameKind::Python {
        let file = frame.source.as_ref()?.file.as_ref();
        let function = name.rsplit('.').next().unwrap_or(name);
        let row = PYTHON
            .iter()
            .find(|(end, known, _)| file.ends_with(end) && *known == function)?;
        return Some(row.2);
    }
    if let Some(known) = mpi(name) {
        return Some(known);
    }
    if let Some((_, known)) = PREFIXES.iter().find(|(start, _)| name.starts_with(start)) {
        return Some(*known);
    }
    // Programs have functions of these names too.
    if position == Position::Inner || is_system(frame) {
        let plain = plain(name);
        for (kind, names) in &LIBC {
            if let Some(name) = names.iter().find(|known| **known == plain) {
                return Some(of(*kind, name));
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

fn mpi(name: &str) -> Option<Known> {
    let jumped = JUMPED_TO.iter().find(|(inner, _)| *inner == name);
    let name = jumped.map_or(name, |(_, public)| public);
    let lower = name.trim_end_matches('_').to_ascii_lowercase();
    let start = lower.strip_prefix('p').unwrap_or(&lower);
    if !start.starts_with("mpi_") {
        return None;
    }
    // The bindings of Fortran 2008, and those with large counts.
    let base = ["_f08ts", "_f08", "_c"]
        .iter()
        .find_map(|end| start.strip_suffix(end))
        .unwrap_or(start);
    for (kind, names) in &MPI {
        if let Some(name) = names.iter().find(|known| known.eq_ignore_ascii_case(base)) {
            return Some(of(*kind, name));
        }
    }
    let test = MPI_TESTS
        .iter()
        .find(|known| known.eq_ignore_ascii_case(base));
    test.map(|name| of(Kind::Test, name))
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

/// Libraries whose frames are never a user's.
const SYSTEM: [&str; 26] = [
    "libc.",
    "libc-",
    "libpthread",
    "ld-linux",
    "ld-",
    "libm.",
    "librt.",
    "libdl.",
    "libstdc++",
    "libgcc_s",
    "[vdso]",
    "libmpi",
    "libmpich",
    "libopen-pal",
    "libopen-rte",
    "libpmix",
    "libprrte",
    "libevent",
    "libucp",
    "libucs",
    "libuct",
    "libfabric",
    "libgomp",
    "libgfortran",
    "libnccl",
    "libcuda",
];

/// Parts of the names of files that compilers bring with them: their code is in the user's programs.
const SYSTEM_FILES: [&str; 3] = ["/usr/include/", "/include/c++/", "/rustc/"];

/// Whether a frame belongs to a library that the user has not written.
#[must_use]
pub fn is_system(frame: &Frame) -> bool {
    let file = frame.source.as_ref().map_or("", |source| &source.file);
    let function = frame.function.as_deref().unwrap_or_default();
    // What Cython makes is between a user's Python and a library, as that of mpi4py is.
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
    let mut found = None;
    let mut idle = false;
    for frame in frames {
        let function = frame.function.as_deref().unwrap_or_default();
        idle |= IDLE_OPENMP.contains(&function);
        found = found.or_else(|| {
            let row = HELPERS.iter().find(|(part, _)| function.contains(part));
            row.map(|(_, known)| *known)
        });
    }
    // Threads of OpenMP compute, as long as they do not stand at a barrier.
    found.filter(|known| *known != "OpenMP" || idle)
}
