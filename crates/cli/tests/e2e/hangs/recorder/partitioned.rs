//! Messages in partitions: they match only each other, and are not followed.

use super::{OPTIONS, built, calls, last_call};
use crate::{
    hangs::{SETTLED_WITHIN, ranks, recorded::Library, started_with, stop, verdict},
    harness::{Sandbox, eventually},
};

/// Open MPI 4 has none.
const LIBRARIES: [Library; 2] = [Library::Mpich5, Library::OpenMpi5];

#[test]
fn nothing_is_proved_of_partitions_that_arrive() {
    for library in LIBRARIES {
        let sandbox = Sandbox::new();
        let program = built(library, "partitioned.c", &[]);
        let run = started_with(&sandbox, &OPTIONS, "2", &[&program, "healthy"]);
        for _ in 0..2 {
            let said = verdict(&sandbox, "3", "200", &ranks(&sandbox, &program));
            assert!(said.ends_with("\nno verdict"), "{library:?}: {said}");
        }
        stop(run);
    }
}

#[test]
fn a_partition_that_is_never_ready_is_shown_and_not_proved() {
    for library in LIBRARIES {
        let sandbox = Sandbox::new();
        let program = built(library, "partitioned.c", &[]);
        let run = started_with(&sandbox, &OPTIONS, "2", &[&program, "late"]);
        let mut shown = String::new();
        let hangs = eventually(SETTLED_WITHIN, || {
            shown = calls(&sandbox, &run, &[]);
            let is_last = |rank: &str, call: &str| last_call(&shown, rank) == call;
            let of_receive = "MPI_Precv_init (partitioned.c:15) from rank 1, tag 5, WORLD";
            let waits = format!("MPI_Wait for {of_receive} (partitioned.c:34)");
            let receives = "MPI_Recv from rank 0, tag 5, WORLD (partitioned.c:36)";
            (is_last("rank 0", &waits) && is_last("rank 1", receives)).then_some(())
        });
        assert!(hangs.is_some(), "{library:?}: {shown}");
        for call in [
            "3  MPI_Precv_init from rank 1, tag 5, WORLD (partitioned.c:15)\n",
            "3  MPI_Psend_init to rank 0, tag 5, WORLD (partitioned.c:17)\n",
            "5  MPI_Pready (partitioned.c:23), 4 times\n",
            "8  MPI_Pready (partitioned.c:23), 3 times\n",
            "5  MPI_Parrived (partitioned.c:26), ",
        ] {
            assert!(shown.contains(call), "{library:?}: {call}{shown}");
        }
        let said = verdict(&sandbox, "3", "300", &ranks(&sandbox, &program));
        assert!(!said.contains("proved"), "{library:?}: {said}");
        stop(run);
    }
}
