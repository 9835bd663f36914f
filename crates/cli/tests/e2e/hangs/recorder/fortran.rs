//! Fortran: its bindings call MPI with C's handles, so the recorder sees the same as from C.

use std::path::Path;

use super::{OPTIONS, calls, ends_with, last_call};
use crate::{
    hangs::{started_with, stop},
    harness::{Sandbox, compiled, testdata},
};

/// Compilers of Debian's MPI libraries. The wheels have no Fortran.
const OPEN_MPI_4: &str = "/usr/bin/mpif90.openmpi";
const MPICH_4: &str = "/usr/bin/mpif90.mpich";

#[track_caller]
fn is_proved(compiler: &str, options: &[&str]) {
    let sandbox = Sandbox::new();
    let options = [&["-g"], options].concat();
    let program = compiled(
        Path::new(compiler),
        &testdata("recorder/hang.F90"),
        &options,
    );
    let program = program.to_str().unwrap();
    let run = started_with(&sandbox, &OPTIONS, "2", &[program]);
    ends_with(
        &sandbox,
        program,
        "proved: rank 0 waits in MPI_Waitall for request 1: MPI_Irecv from rank 1, tag 6, \"pair\"; rank 1 has sent it 0 with tag 6, \
         and 1 with tag 5; rank 1 waits in MPI_Bcast on \"pair\", collective operation 1; rank 0 has begun 0",
    );
    let shown = calls(&sandbox, &run, &["--ranks", "1"]);
    let last = last_call(&shown, "rank 1");
    assert_eq!(last, "MPI_Bcast root 0, \"pair\", collective operation 1");
    assert!(
        shown.contains("5  MPI_Send to rank 0, tag 5, \"pair\"\n"),
        "{shown}"
    );
    stop(run);
}

#[test]
fn module_mpi_of_open_mpi() {
    is_proved(OPEN_MPI_4, &[]);
}

#[test]
fn module_mpi_f08_of_open_mpi() {
    is_proved(OPEN_MPI_4, &["-DF08"]);
}

#[test]
fn module_mpi_of_mpich() {
    is_proved(MPICH_4, &[]);
}

#[test]
fn module_mpi_f08_of_mpich() {
    is_proved(MPICH_4, &["-DF08"]);
}
