//! Messages that repeat the last one have a way of their own in the recorder: all of them are counted, and each for what it is.

use super::{OPTIONS, built, calls, ends_with, last_call, settles};
use crate::{
    hangs::{ranks, recorded::Library, started_with, stop, verdict},
    harness::Sandbox,
};

const LIBRARIES: [Library; 4] = [
    Library::Mpich5,
    Library::Standard,
    Library::OpenMpi5,
    Library::OpenMpi4,
];

/// How often a call is in the list of rank 0.
fn times(listed: &str, call: &str) -> usize {
    let of_rank = listed.split("\n\n").next().unwrap_or_default();
    of_rank.matches(call).count()
}

#[test]
fn each_message_is_counted_for_what_it_is() {
    for library in LIBRARIES {
        for (last, sent) in [
            (
                "world",
                "WORLD; rank 0 has sent it 14 with tag 1, and 3 with tag 2",
            ),
            ("twin", "WORLD#3; rank 0 has sent it 5 with tag 1"),
        ] {
            let sandbox = Sandbox::new();
            let program = built(library, "repeats.c", &[]);
            let run = started_with(&sandbox, &OPTIONS, "2", &[&program, last]);
            let expected = format!(
                "proved: rank 0 waits in MPI_Barrier (repeats.c:65) on WORLD, collective operation 4; rank 1 has begun 3; \
                 rank 1 waits in MPI_Recv (repeats.c:64) from rank 0, tag 1, {sent}"
            );
            ends_with(&sandbox, &program, &expected);
            let listed = calls(&sandbox, &run, &["--last", "63"]);
            for (call, number) in [
                ("MPI_Send to rank 1, tag 1, WORLD (", 11),
                ("MPI_Send to rank 1, tag 2, WORLD (", 3),
                ("MPI_Send to nobody, tag 1, WORLD (", 4),
                ("MPI_Ssend to rank 1, tag 1, WORLD (", 3),
                (" (repeats.c:12)\n", 27),
            ] {
                assert_eq!(
                    times(&listed, call),
                    number,
                    "{library:?}, {call}: {listed}"
                );
            }
            stop(run);
        }
    }
}

/// The library's own functions may be left when it waits: the recorder's name their function.
#[test]
fn a_message_that_repeats_one_and_waits_has_its_name() {
    for library in LIBRARIES {
        let sandbox = Sandbox::new();
        let program = built(library, "repeats.c", &[]);
        let run = started_with(&sandbox, &OPTIONS, "2", &[&program, "large"]);
        ends_with(
            &sandbox,
            &program,
            "proved: rank 0 waits in MPI_Send (repeats.c:62) to rank 1, tag 1, WORLD; rank 1 has begun to receive from it 14 with tag 1, \
             and 3 with tag 2; rank 1 waits in MPI_Barrier (repeats.c:65) on WORLD, collective operation 4; rank 0 has begun 3",
        );
        let said = verdict(&sandbox, "2", "200", &ranks(&sandbox, &program));
        assert!(said.contains(" main > MPI_Send"), "{library:?}: {said}");
        stop(run);
    }
}

/// What has failed may not have been sent.
#[test]
fn a_message_that_repeats_one_and_fails_is_no_ground_for_a_proof() {
    for library in LIBRARIES {
        let sandbox = Sandbox::new();
        let program = built(library, "repeats.c", &[]);
        let run = started_with(&sandbox, &OPTIONS, "2", &[&program, "fails"]);
        settles(|| {
            let listed = calls(&sandbox, &run, &[]);
            let ends = last_call(&listed, "rank 0").starts_with("MPI_Barrier")
                && last_call(&listed, "rank 1").starts_with("MPI_Recv");
            if ends { Ok(()) } else { Err(listed) }
        });
        let said = verdict(&sandbox, "3", "300", &ranks(&sandbox, &program));
        assert!(!said.contains("from rank 0, tag 1"), "{library:?}: {said}");
        stop(run);
    }
}
