//! The names themselves.

use super::{Kind, Known};

/// Operations of MPI without `MPI_`, lower case: the name compares without case, since Fortran has none.
pub(super) const MPI: [(Kind, &[&str]); 7] = [
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
pub(super) const JUMPED_TO: [(&str, &str); 1] = [("ompi_mpi_finalize", "MPI_Finalize")];

/// Functions of MPI that return at once.
pub(super) const MPI_TESTS: [&str; 6] = [
    "MPI_Test",
    "MPI_Testall",
    "MPI_Testany",
    "MPI_Testsome",
    "MPI_Iprobe",
    "MPI_Improbe",
];

/// Functions of the C library, without the underscores and suffixes that its versions put around them.
pub(super) const LIBC: [(Kind, &[&str]); 10] = [
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
pub(super) const ALIASES: [(&str, &str); 4] = [
    ("pthread_clockjoin_ex", "pthread_join"),
    ("lll_lock_wait", "pthread_mutex_lock"),
    ("new_sem_wait_slow", "sem_wait"),
    ("wait4", "waitpid"),
];

/// Beginnings of names, in C++ with their namespaces.
pub(super) const PREFIXES: [(&str, Known); 18] = [
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
pub(super) const PYTHON: [(&str, &str, Known); 12] = [
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

/// Functions in which threads of libraries wait or make progress: what they do says nothing about the program.
pub(super) const HELPERS: [(&str, &str); 16] = [
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

/// Names of threads, of which only the beginning counts.
pub(super) const HELPER_NAMES: [(&str, &str); 6] = [
    ("cuda-", "CUDA"),
    ("ucx_async", "UCX"),
    ("async", "UCX"),
    ("pt_nccl_watchdg", "NCCL watchdog"),
    ("pt_autograd", "autograd"),
    ("jemalloc_bg_thd", "allocator"),
];

/// Libraries whose frames are never a user's.
pub(super) const SYSTEM: [&str; 26] = [
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
pub(super) const SYSTEM_FILES: [&str; 3] = ["/usr/include/", "/include/c++/", "/rustc/"];

pub(super) const fn of(kind: Kind, name: &'static str) -> Known {
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
