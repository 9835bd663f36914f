use super::{Kind, Position, helper, known};
use crate::stack::{Frame, FrameKind, Source};

fn frame(text: &str) -> Frame {
    let (function, module) = text.split_once('!').unwrap_or((text, "a.out"));
    Frame {
        function: Some(function.into()),
        module: Some(module.into()),
        source: None,
        kind: FrameKind::Native,
    }
}

/// Returns the known function of an outer frame.
fn outer(text: &str) -> Option<(String, Kind)> {
    let known = known(&frame(text), Position::Outer)?;
    Some((known.name.to_string(), known.kind))
}

#[test]
fn functions_of_mpi_in_all_spellings() {
    for (name, expected, kind) in [
        ("MPI_Barrier", "MPI_Barrier", Kind::Collective),
        ("PMPI_Barrier", "MPI_Barrier", Kind::Collective),
        ("MPI_Allreduce_c", "MPI_Allreduce", Kind::Collective),
        ("mpi_barrier_", "MPI_Barrier", Kind::Collective),
        ("mpi_barrier__", "MPI_Barrier", Kind::Collective),
        ("pmpi_barrier", "MPI_Barrier", Kind::Collective),
        ("MPI_BARRIER", "MPI_Barrier", Kind::Collective),
        ("PMPI_BARRIER", "MPI_Barrier", Kind::Collective),
        ("mpi_recv_f08_", "MPI_Recv", Kind::Receive),
        ("mpi_recv_f08ts_", "MPI_Recv", Kind::Receive),
        ("__mpi_f08_MOD_mpi_send_f08", "MPI_Send", Kind::Send),
        ("mpi_f08_mp_mpi_send_f08_", "MPI_Send", Kind::Send),
        ("PMPIR_Send_f08ts", "MPI_Send", Kind::Send),
        (
            "ompi_waitall_f!libmpi_mpifh.so.40",
            "MPI_Waitall",
            Kind::Completion,
        ),
        ("ompi_mpi_finalize", "MPI_Finalize", Kind::Finish),
        (
            "MPI_Neighbor_alltoallw",
            "MPI_Neighbor_alltoallw",
            Kind::Collective,
        ),
        ("MPI_Cart_create", "MPI_Cart_create", Kind::Collective),
        ("MPI_Win_wait", "MPI_Win_wait", Kind::Epoch),
        ("mpi_win_complete_", "MPI_Win_complete", Kind::Epoch),
        ("MPI_Win_lock", "MPI_Win_lock", Kind::Window),
        ("MPI_File_write_at_all", "MPI_File_write_at_all", Kind::File),
        ("MPI_Comm_accept", "MPI_Comm_accept", Kind::OtherJob),
        ("MPIX_Comm_agree", "MPIX_Comm_agree", Kind::Recovery),
        ("MPI_Type_commit", "MPI_Type_commit", Kind::UnknownMpi),
        (
            "PMPIX_Grequest_start",
            "MPIX_Grequest_start",
            Kind::UnknownMpi,
        ),
        (
            "mpi_type_commit_!libmpi_mpifh.so.40",
            "MPI_Type_commit",
            Kind::UnknownMpi,
        ),
        (
            "MPI_TYPE_COMMIT!libmpifort.so.12",
            "MPI_Type_commit",
            Kind::UnknownMpi,
        ),
        ("MPI_Iallreduce", "MPI_Iallreduce", Kind::Test),
        ("MPI_Isend_c", "MPI_Isend", Kind::Test),
        ("MPI_Info_set", "MPI_Info_set", Kind::UnknownMpi),
        ("MPI_Testall", "MPI_Testall", Kind::Test),
        ("mpi_wtime_", "MPI_Wtime", Kind::Test),
    ] {
        assert_eq!(outer(name), Some((expected.to_owned(), kind)), "{name}");
    }
}

#[test]
fn what_is_not_mpi() {
    for name in [
        "mpi_exchange_halo_",
        "mpi_exchange",
        "MPI_EXCHANGE",
        "MPIR_Barrier_impl!libmpi.so.12",
        "MPID_Progress_wait!libmpi.so.12",
        "ompi_request_default_wait!libmpi.so.40",
        "compute",
        "P",
        "mpi",
        "",
    ] {
        assert_eq!(outer(name), None, "{name}");
    }
}

#[test]
fn a_wait_for_some_time_is_a_sleep() {
    for (name, kind) in [
        ("___pthread_cond_timedwait64!libc.so.6", Kind::Sleep),
        ("__pthread_cond_clockwait!libc.so.6", Kind::Sleep),
        ("__sem_clockwait64!libc.so.6", Kind::Sleep),
        ("pthread_mutex_timedlock!libpthread.so.0", Kind::Sleep),
        ("__new_sem_wait!libc.so.6", Kind::Semaphore),
        (
            "pthread_cond_wait@@GLIBC_2.3.2!libpthread-2.31.so",
            Kind::Condition,
        ),
        ("__pthread_clockjoin_ex!libc.so.6", Kind::Join),
    ] {
        assert_eq!(outer(name).map(|it| it.1), Some(kind), "{name}");
    }
}

#[test]
fn functions_of_python_by_their_files() {
    for (function, file, expected) in [
        (
            "Queue.get",
            "/usr/lib/python3.11/queue.py",
            Some(Kind::Condition),
        ),
        (
            "Thread.join",
            "/opt/conda/lib/python3.13t/threading.py",
            Some(Kind::Join),
        ),
        (
            "Popen.wait",
            "/usr/lib64/python3.9/subprocess.py",
            Some(Kind::Child),
        ),
        (
            "_SingleProcessDataLoaderIter._next_data",
            "/v/lib/python3.11/site-packages/torch/utils/data/dataloader.py",
            Some(Kind::Data),
        ),
        (
            "barrier",
            "/home/u/src/torch/distributed/distributed_c10d.py",
            Some(Kind::Collective),
        ),
        ("get", "/u/job_queue.py", None),
        ("get", "/u/queue.py", None),
        ("get", "queue.py", None),
        (
            "Queue.get",
            "/v/lib/python3.11/site-packages/ray/util/queue.py",
            None,
        ),
        (
            "Runner.wait",
            "/usr/lib/python3.11/asyncio/subprocess.py",
            None,
        ),
        (
            "_MultiProcessingDataLoaderIter._try_get_data",
            "/u/train/torch/utils/data/dataloader.py",
            Some(Kind::Data),
        ),
        ("_get_data", "/u/dataloader.py", None),
        ("_next_data", "/u/train/data/dataloader.py", None),
        ("_get_data", "/u/my_dataloader.py", None),
        ("barrier", "/u/distributed_c10d.py", None),
    ] {
        let frame = Frame {
            function: Some(function.into()),
            module: None,
            source: Some(Source {
                file: file.into(),
                line: 7,
            }),
            kind: FrameKind::Python,
        };
        let found = known(&frame, Position::Outer).map(|it| it.kind);
        assert_eq!(found, expected, "{function} of {file}");
    }
}

#[test]
fn threads_of_libraries() {
    for (name, stack, expected) in [
        ("async", "clone > epoll_wait!libc.so.6", Some("UCX")),
        ("async-io", "clone > epoll_wait!libc.so.6", None),
        ("async-std/runti", "clone > epoll_wait!libc.so.6", None),
        ("cuda-EvtHandlr", "clone > poll!libc.so.6", Some("CUDA")),
        (
            "a.out",
            "start_thread!libc.so.6 > progress_engine!libpmix.so.2 > event_base_loop!libevent_core-2.1.so.7",
            Some("progress"),
        ),
        (
            "a.out",
            "start_thread!libc.so.6 > ??!libopen-pal.so.40 > event_base_loop!libevent_core-2.1.so.7",
            Some("events"),
        ),
        (
            "a.out",
            "start_thread!libc.so.6 > ??!libpmix.so.2 > event_base_loop!libevent_core-2.1.so.7",
            Some("events"),
        ),
        (
            "a.out",
            "start_thread!libc.so.6 > serve!a.out > event_base_loop!libevent_core-2.1.so.7",
            None,
        ),
        ("a.out", "start_thread!libc.so.6 > wait!libpmix.so.2", None),
    ] {
        let frames: Vec<Frame> = stack.split(" > ").map(frame).collect();
        assert_eq!(helper(name, frames.iter()), expected, "{name}: {stack}");
    }
}

#[test]
fn symbols_that_join_jobs() {
    for (symbol, expected) in [
        ("MPI_Comm_connect", true),
        ("PMPI_Comm_accept", true),
        ("mpi_comm_join_", true),
        ("MPI_COMM_ACCEPT", true),
        ("mpi_comm_connect_f08_", true),
        ("mpi_comm_accept__", true),
        ("MPI_Comm_connect@@VERS_1", true),
        ("MPI_Comm_disconnect", false),
        ("MPI_Comm_spawn", false),
        ("connect", false),
        ("my_MPI_Comm_connection", false),
        ("", false),
    ] {
        assert_eq!(super::joins_jobs(symbol.as_bytes()), expected, "{symbol}");
    }
    for (symbol, expected) in [
        ("MPI_Comm_spawn", true),
        ("mpi_comm_spawn_multiple_", true),
        ("PMPI_Comm_spawn", true),
        ("MPI_Comm_accept", false),
        ("MPI_Comm_split", false),
    ] {
        assert_eq!(super::spawns_jobs(symbol.as_bytes()), expected, "{symbol}");
    }
    assert!(!super::joins_jobs(&[b'm'; 1 << 20]));
    assert!(!super::joins_jobs(&[0xff; 9]));
}
