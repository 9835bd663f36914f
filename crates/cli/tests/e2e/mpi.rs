//! Real, unmodified MPI programs: MPICH's wheel, as PyPI has it.

use crate::harness::{Sandbox, mpich, testdata};

/// Compiles a program of `testdata/mpi` with the wheel's own compiler wrapper.
fn compile(sandbox: &Sandbox, name: &str) -> String {
    let program = sandbox.path(name);
    let mut command = sandbox.command(mpich().join("bin/mpicc"));
    command
        .args(["-O1", "-o"])
        .arg(&program)
        .arg(testdata(&format!("mpi/{name}.c")));
    sandbox.run(&mut command).expect_code(0);
    program.to_str().unwrap().to_owned()
}

#[test]
fn hello() {
    let sandbox = Sandbox::new();
    let program = compile(&sandbox, "hello");
    for ranks in 1..=4 {
        let count = ranks.to_string();
        let run = sandbox
            .run_rally(&["run", "-n", &count, &program])
            .expect_code(0)
            .expect_quiet();
        let expected = (0..ranks)
            .map(|rank| format!("hello from {rank} of {ranks}"))
            .collect::<Vec<_>>();
        assert_eq!(run.sorted(), expected.join("\n"));
    }
}

#[test]
fn ring() {
    let sandbox = Sandbox::new();
    let program = compile(&sandbox, "ring");
    sandbox
        .run_rally(&["run", "-n", "4", &program])
        .expect_code(0)
        .expect_quiet()
        .expect_out("the token came back as 400\n");
}

#[test]
fn alltoall() {
    let sandbox = Sandbox::new();
    let program = compile(&sandbox, "alltoall");
    sandbox
        .run_rally(&["run", "-n", "4", &program])
        .expect_code(0)
        .expect_quiet()
        .expect_out("4 ranks exchanged 65536 integers each, no error\n");
}

#[test]
fn two_programs_are_one_world() {
    let sandbox = Sandbox::new();
    let program = compile(&sandbox, "hello");
    let run = sandbox
        .run_rally(&["run", "-n", "1", &program, ":", "-n", "2", &program])
        .expect_code(0);
    assert_eq!(
        run.sorted(),
        "hello from 0 of 3\nhello from 1 of 3\nhello from 2 of 3"
    );
}

#[test]
fn abort_ends_the_job_with_its_code() {
    let sandbox = Sandbox::new();
    let program = compile(&sandbox, "abort");
    sandbox
        .run_rally(&["run", "-n", "4", &program])
        .expect_code(42);
}
