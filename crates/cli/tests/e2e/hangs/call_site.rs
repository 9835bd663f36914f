//! Calls of MPI of ranks without a recorder: their arguments are read from the code.

use std::path::Path;

use super::{SETTLED_WITHIN, started_with, stop};
use crate::harness::{Sandbox, compiled, dbgr, eventually, testdata, venv};

/// What is shown, without where it is read from: that depends on whether a compiler keeps a variable in a register.
const EXPECTED: [&str; 4] = [
    "0: MPI_Recv from rank 1, tag 8, WORLD (waits.c:21)",
    "1: MPI_Ssend to rank 0, tag 5, WORLD (waits.c:23)",
    "2: MPI_Sendrecv to rank 3, tag 1, from any rank, tag 2, WORLD (waits.c:25)",
    // A communicator of the program has no name that the code tells.
    "3: MPI_Bcast root 2 (waits.c:27)",
];

/// Returns the calls that are read from the code, and those that are recorded.
fn calls(sandbox: &Sandbox, job: &str) -> (Vec<String>, usize) {
    let mut command = sandbox.command(dbgr());
    let report = sandbox.run(command.args(["stacks", "--json", job])).out();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap_or_default();
    let list = |key: &str| report[key].as_array().cloned().unwrap_or_default();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let read = list("calls_from_code");
    let read = read.iter().map(|it| {
        let call = text(&it["call"]);
        let call = call.split(", read from the code").next();
        format!("{}: {}", text(&it["ranks"]), call.unwrap_or_default())
    });
    (read.collect(), list("calls").len())
}

#[track_caller]
fn is_read(compiler: &Path, options: &[&str]) {
    let program = compiled(compiler, &testdata("call_site/waits.c"), options);
    let program = program.to_str().unwrap();
    let sandbox = Sandbox::new();
    let run = started_with(&sandbox, &[], "4", &[program]);
    let job = run.pid.to_string();
    let mut last = (Vec::new(), 0);
    let is_right = eventually(SETTLED_WITHIN, || {
        last = calls(&sandbox, &job);
        last.0.sort();
        (last.0 == EXPECTED && last.1 == 0).then_some(())
    });
    let mut command = sandbox.command(dbgr());
    let text = sandbox.run(command.args(["stacks", "--width=300", &job]));
    stop(run);
    assert!(is_right.is_some(), "{options:?}: {last:#?}");
    let (_, of_first) = EXPECTED[0].split_once(' ').unwrap();
    let line = format!("in: 1 [0] {of_first}, read from the code\n");
    assert!(text.out().contains(&line), "{}", text.out());
    sandbox.expect_clean();
}

macro_rules! read {
    ($($library:ident: $wheel:literal, $compiler:literal;)*) => {
        $(
            mod $library {
                fn is_read(options: &[&str]) {
                    super::is_read(&super::venv($wheel).join("bin").join($compiler), options);
                }

                #[test]
                fn without_optimization() {
                    is_read(&["-g", "-O0"]);
                }

                #[test]
                fn with_optimization() {
                    is_read(&["-g", "-O2"]);
                }
            }
        )*
    };
}

read! {
    mpich_5: "mpich", "mpicc";
    standard: "mpich", "mpicc_abi";
    open_mpi_5: "openmpi", "mpicc";
}

/// The code that catches an exception is far from the rest, and jumps into the middle of it: a tag that depends on it is right or unknown.
#[test]
fn code_that_is_entered_in_the_middle_is_not_believed() {
    let compiler = venv("mpich").join("bin/mpicxx");
    for option in ["-O0", "-O2"] {
        let program = compiled(&compiler, &testdata("call_site/caught.cc"), &["-g", option]);
        let sandbox = Sandbox::new();
        let run = started_with(&sandbox, &[], "2", &[program.to_str().unwrap()]);
        let job = run.pid.to_string();
        let mut last = (Vec::new(), 0);
        let is_right = eventually(SETTLED_WITHIN, || {
            last = calls(&sandbox, &job);
            let has = |ranks: &str, tag: &str| {
                let call =
                    format!("{ranks}: MPI_Recv from any rank, tag {tag}, WORLD (caught.cc:26)");
                last.0.contains(&call)
            };
            let is_known = has("0", "8") && has("1", "5");
            (is_known || has("0-1", "?")).then_some(())
        });
        stop(run);
        assert!(is_right.is_some(), "{option}: {last:#?}");
    }
}

/// What is recorded is exact, so nothing is read from the code beside it.
#[test]
fn nothing_is_read_of_ranks_with_a_recorder() {
    let compiler = venv("mpich").join("bin/mpicc");
    let program = compiled(&compiler, &testdata("call_site/waits.c"), &["-g", "-O2"]);
    let sandbox = Sandbox::new();
    let run = started_with(
        &sandbox,
        &["--mpi-recorder"],
        "4",
        &[program.to_str().unwrap()],
    );
    let job = run.pid.to_string();
    let mut last = (Vec::new(), 0);
    let is_right = eventually(SETTLED_WITHIN, || {
        last = calls(&sandbox, &job);
        (last.0.is_empty() && last.1 == 4).then_some(())
    });
    stop(run);
    assert!(is_right.is_some(), "{last:#?}");
}
