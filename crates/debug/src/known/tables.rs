//! Tables of known names.

use super::Kind;

/// A row of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listed {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
}

/// C library functions, without the underscores and suffixes of their variants.
pub(super) const LIBC: [(Kind, &[&str]); 11] = [
    (
        Kind::Lock,
        &[
            "pthread_mutex_lock",
            "pthread_rwlock_rdlock",
            "pthread_rwlock_wrlock",
            "pthread_once",
            "cxa_guard_acquire",
        ],
    ),
    (
        Kind::Condition,
        &["pthread_cond_wait", "pthread_barrier_wait"],
    ),
    (Kind::Semaphore, &["sem_wait"]),
    (Kind::Join, &["pthread_join"]),
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
        &[
            "nanosleep",
            "clock_nanosleep",
            "sleep",
            "usleep",
            "pthread_mutex_timedlock",
            "pthread_mutex_clocklock",
            "pthread_rwlock_timedrdlock",
            "pthread_rwlock_timedwrlock",
            "pthread_rwlock_clockrdlock",
            "pthread_rwlock_clockwrlock",
            "pthread_cond_timedwait",
            "pthread_cond_clockwait",
            "pthread_timedjoin_np",
            "pthread_clockjoin_np",
            "sem_timedwait",
            "sem_clockwait",
        ],
    ),
    (Kind::Child, &["waitpid", "waitid", "system"]),
    (Kind::Read, &["flock", "lockf"]),
];

/// Internal functions of the C library whose public caller has left no frame, with the public name.
pub(super) const ALIASES: [(&str, &str); 5] = [
    ("pthread_clockjoin_ex", "pthread_join"),
    ("lll_lock_wait", "pthread_mutex_lock"),
    ("new_sem_wait", "sem_wait"),
    ("new_sem_wait_slow", "sem_wait"),
    ("wait4", "waitpid"),
];

/// Prefixes of function names; C++ names with their namespaces.
pub(super) const PREFIXES: [(&str, Listed); 19] = [
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
    ("take_gil", of(Kind::Interpreter, "take_gil")),
];

/// Functions of Python's standard library: the file directly in its directory, function, and meaning.
pub(super) const STANDARD_PYTHON: [(&str, &str, Listed); 4] = [
    ("threading.py", "join", of(Kind::Join, "Thread.join")),
    (
        "threading.py",
        "wait",
        of(Kind::Condition, "threading wait"),
    ),
    ("queue.py", "get", of(Kind::Condition, "Queue.get")),
    ("subprocess.py", "wait", of(Kind::Child, "Popen.wait")),
];

/// Functions of Python packages: the end of the file's path, which is the whole path within the package; function; meaning.
pub(super) const PYTHON_PACKAGES: [(&str, &str, Listed); 8] = [
    (C10D, "all_reduce", collective("all_reduce")),
    (C10D, "all_gather", collective("all_gather")),
    (C10D, "barrier", collective("barrier")),
    (C10D, "broadcast", collective("broadcast")),
    (C10D, "reduce_scatter", collective("reduce_scatter")),
    (DATALOADER, "_try_get_data", data("DataLoader")),
    (DATALOADER, "_get_data", data("DataLoader")),
    (DATALOADER, "_next_data", data("DataLoader")),
];

const C10D: &str = "/torch/distributed/distributed_c10d.py";
const DATALOADER: &str = "/torch/utils/data/dataloader.py";

/// Functions that show that the program is exiting.
pub(super) const ENDINGS: [&str; 10] = [
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

/// Functions in which helper threads of libraries wait or make progress: these threads say nothing about the program.
pub(super) const HELPERS: [(&str, &str); 15] = [
    ("progress_engine", "progress"),
    ("pmix_progress", "progress"),
    ("opal_progress_threads", "progress"),
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

/// The event loop of libevent. Helper threads of libraries wait in it, but also servers and clients that users have written.
pub(super) const EVENT_LOOP: &str = "event_base_loop";

/// File name prefixes of libraries whose threads in that loop are only helpers.
pub(super) const OWNERS_OF_EVENT_LOOPS: [&str; 4] =
    ["libpmix", "libprrte", "libopen-pal", "libopen-rte"];

/// Functions where OpenMP threads wait between two parallel regions; anywhere else they compute.
pub(super) const IDLE_OPENMP: [&str; 8] = [
    "gomp_team_barrier_wait",
    "gomp_barrier_wait",
    "gomp_simple_barrier_wait",
    "gomp_dock_wait",
    "gomp_team_barrier_wait_end",
    "do_spin",
    "do_wait",
    "__kmp_fork_barrier",
];

/// Name prefixes of helper threads.
pub(super) const HELPER_NAMES: [(&str, &str); 5] = [
    ("cuda-", "CUDA"),
    ("ucx_async", "UCX"),
    ("pt_nccl_watchdg", "NCCL watchdog"),
    ("pt_autograd", "autograd"),
    ("jemalloc_bg_thd", "allocator"),
];

/// The full name of a thread of UCX. It cannot be a prefix, because names of unrelated threads begin with it.
pub(super) const UCX_THREAD: &str = "async";

/// File name prefixes of libraries that users do not write.
pub(super) const SYSTEM: [&str; 27] = [
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
    // The extension module of mpi4py, between a user's Python code and MPI.
    "MPI.",
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

/// Parts of the paths of source files that come with compilers, and whose code is compiled into user programs.
pub(super) const SYSTEM_FILES: [&str; 3] = ["/usr/include/", "/include/c++/", "/rustc/"];

pub(super) const fn of(kind: Kind, name: &'static str) -> Listed {
    Listed { name, kind }
}

const fn collective(name: &'static str) -> Listed {
    of(Kind::Collective, name)
}

const fn device(name: &'static str) -> Listed {
    of(Kind::Device, name)
}

const fn data(name: &'static str) -> Listed {
    of(Kind::Data, name)
}
