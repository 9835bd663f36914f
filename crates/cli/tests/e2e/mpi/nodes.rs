//! MPI programs with ranks on several nodes.

use std::process::Command;

use super::{Library, Trial};
use crate::{
    harness::{Finished, testdata},
    nodes::{OVER_NODES, node_name},
};

/// The nodes of a job, and how their daemons are started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nodes {
    /// Three daemons on this computer.
    Fork,
    /// Eight hosts of the test bed, over ssh.
    Bed,
}

impl Nodes {
    /// Returns options for a run with one rank on each node in turn.
    const fn options(self) -> &'static [&'static str] {
        match self {
            Self::Fork => &OVER_NODES,
            Self::Bed => &[
                "--host",
                "n1,n2,n3,n4,n5,n6,n7,n8",
                "--map-by",
                "node",
                "--wdir",
                "/",
            ],
        }
    }

    /// Returns a number of ranks that is enough for all nodes.
    const fn ranks(self) -> usize {
        match self {
            Self::Fork => 6,
            Self::Bed => 8,
        }
    }

    /// Returns the name of a node, by the number of the first rank on it.
    fn name(self, trial: &Trial, number: usize) -> String {
        match self {
            Self::Fork => node_name(&trial.sandbox, number),
            Self::Bed => format!("n{}", number + 1),
        }
    }

    /// Runs a program of `testdata/mpi`.
    fn run(self, trial: &Trial, ranks: usize, name: &str, arguments: &[&str]) -> Finished {
        let program = trial.library.program(name);
        let ranks = ranks.to_string();
        let mut words = self.options().to_vec();
        words.extend(["-n", &ranks, &program]);
        words.extend(arguments);
        trial.sandbox.run(&mut self.rally(trial, &words))
    }

    fn rally(self, trial: &Trial, words: &[&str]) -> Command {
        let mut command = trial.rally(words);
        if self == Self::Bed {
            // The libraries cannot know that these hosts share the processors of one computer.
            command.env("OMPI_MCA_mpi_yield_when_idle", "1");
            // The transport of MPICH 5 complains on stdout of a request that MPICH loses, and of connections to ranks that have
            // left.
            command.env("UCX_LOG_LEVEL", "fatal");
        }
        command
    }

    /// Returns the number of ranks for one-sided communication, and how often they wait for each other's lock. Ranks that wait
    /// poll, so that many of them would need many processors.
    const fn one_sided(self) -> (usize, &'static str) {
        match self {
            Self::Fork => (4, "15"),
            Self::Bed => (8, "0"),
        }
    }
}

/// Runs the usual programs.
pub(crate) fn programs(trial: &Trial, nodes: Nodes) {
    let ranks = nodes.ranks();
    let run = |ranks, name: &str, arguments: &[&str]| nodes.run(trial, ranks, name, arguments);
    let hello = run(ranks, "hello", &[]).expect_code(0).expect_quiet();
    let expected: Vec<String> = (0..ranks)
        .map(|rank| format!("hello from {rank} of {ranks}"))
        .collect();
    assert_eq!(hello.sorted(), expected.join("\n"));
    let ring = run(ranks, "ring", &[]).expect_code(0).expect_quiet();
    ring.expect_out(&format!("the token came back as {ranks}00\n"));
    let exchanged = format!("{ranks} ranks exchanged 65536 integers each, no error\n");
    run(ranks, "alltoall", &[])
        .expect_code(0)
        .expect_out(&exchanged);
    let (some, rounds) = nodes.one_sided();
    let one_sided = run(some, "rma", &["apart", rounds]);
    if trial.library == Library::OpenMpi4 {
        // It has no windows over TCP: its own mpirun over two hosts ends in the same way.
        let run = one_sided.expect_code(53);
        run.expect_err(&["An error occurred in MPI_Win_allocate", "MPI_ERR_WIN"]);
    } else {
        one_sided
            .expect_code(0)
            .expect_out("fences: right\nlocks: right\n");
    }
    let [first, second, third] = [0, 1, 2].map(|number| nodes.name(trial, number));
    run(2, "spawn_elsewhere", &[&third, &first])
        .expect_code(0)
        .expect_out("all were where they belong\n");
    run(ranks, "abort", &[])
        .expect_code(42)
        .expect_err(&[&format!(
            "error: rank 1 on `{second}` aborted the job with code 42"
        )]);
}

/// Runs a program whose rank on the second node leaves without `MPI_Finalize`.
pub(crate) fn leaving(trial: &Trial, nodes: Nodes) {
    let leaves = nodes.run(trial, 3, "leaves", &[]);
    if trial.library == Library::OpenMpi5 && leaves.code() == 14 {
        // It has noticed the closed connection first, and has aborted with a code of its own.
        leaves.expect_err(&[
            "An error occurred in Socket closed",
            "aborted the job with code 14",
        ]);
    } else {
        leaves.expect_code(125).expect_err(&[&format!(
            "rank 1 on `{}` ended with code 0, but without `MPI_Finalize`",
            nodes.name(trial, 1)
        )]);
    }
}

/// Runs a program in Python, with mpi4py.
pub(crate) fn python(trial: &Trial, nodes: Nodes) {
    let ranks = nodes.ranks();
    let mut command = nodes.rally(trial, nodes.options());
    command.args(["-n", &ranks.to_string()]);
    let run = trial.run_python(&mut command, &testdata("mpi/hello.py"));
    let expected = (0..ranks).map(|rank| format!("hello from {rank} of {ranks} in Python"));
    assert_eq!(run.sorted(), expected.collect::<Vec<_>>().join("\n"));
}
