//! Ranks with several threads that call MPI.

use super::{OPTIONS, built, calls, ends_with};
use crate::{
    hangs::{ranks, recorded::Library, started_with, stop, verdict},
    harness::Sandbox,
};

const LIBRARIES: [Library; 2] = [Library::Mpich5, Library::OpenMpi5];

#[test]
fn eight_threads_are_recorded_and_nothing_is_proved_of_them() {
    for library in LIBRARIES {
        let sandbox = Sandbox::new();
        let program = built(library, "threads.c", &["-lpthread"]);
        let run = started_with(&sandbox, &OPTIONS, "2", &[&program, "eight"]);
        super::settles(|| {
            let shown = calls(&sandbox, &run, &["--last", "1", "--ranks", "1"]);
            let has = |thread: usize| {
                let number = thread + 1;
                let call = format!(
                    "  MPI_Sendrecv to rank 0, tag {thread}, from rank 0, tag {thread}, WORLD#{number} (threads.c:17)\n"
                );
                shown.contains(&call)
            };
            (0..8).all(has).then_some(()).ok_or(shown)
        });
        for _ in 0..2 {
            let said = verdict(&sandbox, "3", "200", &ranks(&sandbox, &program));
            assert!(said.ends_with("\nno verdict"), "{library:?}: {said}");
        }
        stop(run);
    }
}

/// Two hundred threads take turns at the 64 entries, and all that they have sent and received counts.
#[test]
fn threads_that_have_ended_leave_exact_counts() {
    for library in LIBRARIES {
        let sandbox = Sandbox::new();
        let program = built(library, "threads.c", &["-lpthread"]);
        let run = started_with(&sandbox, &OPTIONS, "2", &[&program, "come-and-go"]);
        ends_with(
            &sandbox,
            &program,
            "proved: rank 0 waits in MPI_Recv (threads.c:44) from rank 1, tag 3, WORLD#4; rank 1 has sent it 25 with tag 3; \
             rank 1 waits in MPI_Recv (threads.c:44) from rank 0, tag 3, WORLD#4; rank 0 has sent it 25 with tag 3",
        );
        stop(run);
    }
}
