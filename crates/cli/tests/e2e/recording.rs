//! Recordings: what `--record` writes is what the state machines did, on every node.

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use mischief::Proc;
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};
use sim::replay::{Replay, Replayed};

use crate::{
    harness::{Sandbox, Stream},
    mpi::Library,
};

/// Returns a command that records a job in the file `rec`.
fn recorded(sandbox: &Sandbox, args: &[&str]) -> Command {
    let mut command = sandbox.rally(&["run", "-q", "--record", "rec"]);
    for arg in args {
        match *arg {
            "mischief" => command.arg(crate::harness::mischief()),
            arg => command.arg(arg),
        };
    }
    command
}

const OVER_NODES: [&str; 6] = ["--bootstrap", "fork", "--nodes", "3", "--map-by", "node"];

/// Replays a file, which must not differ.
fn replay(sandbox: &Sandbox, file: &str) -> Replayed {
    let bytes = fs::read(sandbox.path(file)).unwrap();
    let mut replay = Replay::default();
    for piece in bytes.chunks(1000) {
        if let Err(error) = replay.take(piece) {
            panic!("{file}: {error}");
        }
    }
    replay.end().unwrap()
}

#[test]
fn a_job_on_one_node_is_repeated() {
    let sandbox = Sandbox::new();
    let input = sandbox.file("input", "first\nsecond\n".repeat(5000));
    let script =
        "cat; echo $RALLY_RANK >&2; (sleep 60 &) ; printf prompt; exit $((RALLY_RANK % 2))";
    let args = ["--input", &input, "-n", "3", "--", "sh", "-c", script];
    sandbox.run(&mut recorded(&sandbox, &args)).expect_code(1);
    let replayed = replay(&sandbox, "rec");
    assert_eq!((replayed.machines, replayed.is_cut), (2, false));
    assert!(replayed.compared > 20, "{replayed:?}");
    let mode = fs::metadata(sandbox.path("rec"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn every_node_has_a_file_and_none_holds_a_secret() {
    let sandbox = Sandbox::new();
    let input = sandbox.file("input", "of-the-input\n");
    let script = "cat; echo of-the-$NAME";
    let mut args = OVER_NODES.to_vec();
    args.extend([
        "--input", &input, "--stdin", "all", "-n", "6", "--", "sh", "-c", script,
    ]);
    let mut command = recorded(&sandbox, &args);
    command
        .env("NAME", "variable")
        .env("SECRET", "of-the-variables");
    let run = sandbox.run(&mut command).expect_code(0);
    assert_eq!(run.out().matches("of-the-input").count(), 6);
    for (file, machines) in [("rec", 2), ("rec.1", 1), ("rec.2", 1)] {
        let replayed = replay(&sandbox, file);
        assert_eq!(
            (replayed.machines, replayed.is_cut),
            (machines, false),
            "{file}"
        );
        let bytes = fs::read(sandbox.path(file)).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        // The script is an argument, and arguments are recorded.
        let text = text.replace(script, "");
        assert!(!text.contains("of-the-"), "{file}: {text}");
    }
}

#[test]
fn a_killed_rank_and_the_end_of_the_others_are_repeated() {
    let sandbox = Sandbox::new();
    let mut args = OVER_NODES.to_vec();
    args.extend(["-n", "3", "--grace", "100ms", "--", "sh", "-c"]);
    args.push("trap '' TERM; [ $RALLY_RANK != 1 ] || kill -9 $$; sleep 60 & wait; wait");
    sandbox.run(&mut recorded(&sandbox, &args)).expect_code(137);
    for file in ["rec", "rec.1", "rec.2"] {
        replay(&sandbox, file);
    }
}

/// Records a job on three nodes, and kills the process that `victim` chooses among the daemons and their guardians.
fn kill_one(victim: fn(&[Proc]) -> i32) {
    let sandbox = Sandbox::new();
    let mut args = OVER_NODES.to_vec();
    args.extend(["-n", "3", "--", "sh", "-c", "echo up; sleep 60"]);
    let job = sandbox.start(&mut recorded(&sandbox, &args));
    job.expect_times(Stream::Stdout, "up", 3);
    let mut daemons = sandbox.alive();
    daemons.retain(|process| process.args.contains("__daemon"));
    signal::kill(Pid::from_raw(victim(&daemons)), Signal::SIGKILL).unwrap();
    assert_eq!(job.end().code(), 125);
    sandbox.expect_no_process();
    for file in ["rec", "rec.1", "rec.2"] {
        assert!(replay(&sandbox, file).compared > 3, "{file}");
    }
}

/// The loss of a daemon is repeated, and so is what the killed daemon did before.
#[test]
fn a_killed_daemon_is_repeated() {
    kill_one(|daemons| {
        let is_below = |process: &&Proc| daemons.iter().any(|other| other.pid == process.ppid);
        daemons.iter().find(is_below).unwrap().pid
    });
}

/// The recording of a killed run is there up to its death.
#[test]
fn a_killed_controller_leaves_recordings_that_can_be_read() {
    kill_one(|daemons| {
        let is_above = |process: &&Proc| daemons.iter().all(|other| other.pid != process.ppid);
        daemons.iter().find(is_above).unwrap().ppid
    });
}

#[test]
fn a_program_of_pmi_is_repeated() {
    let sandbox = Sandbox::new();
    // A fence of PMI-1 over all nodes.
    let script = r#"exec 9<&$PMI_FD 8>&$PMI_FD
        ask() { printf "%s\n" "$1" >&8; read -r answer <&9; }
        ask "cmd=init pmi_version=1 pmi_subversion=1"
        ask "cmd=get_maxes"; ask "cmd=barrier_in"; ask "cmd=finalize"
        echo "$answer""#;
    let mut args = OVER_NODES.to_vec();
    args.extend(["-n", "6", "--", "sh", "-c", script]);
    let run = sandbox.run(&mut recorded(&sandbox, &args)).expect_code(0);
    assert_eq!(run.out().matches("cmd=finalize_ack").count(), 6);
    for file in ["rec", "rec.1", "rec.2"] {
        replay(&sandbox, file);
    }
}

/// Real MPI programs that spawn: PMIx of Open MPI, PMI of MPICH.
#[test]
fn programs_of_mpi_are_repeated() {
    for library in [Library::OpenMpi5, Library::Mpich4] {
        let sandbox = Sandbox::new();
        let program = library.program("spawn");
        let mut args = OVER_NODES.to_vec();
        args.extend(["-n", "2", "--oversubscribe", &program]);
        sandbox.run(&mut recorded(&sandbox, &args)).expect_code(0);
        for file in ["rec", "rec.1", "rec.2"] {
            assert!(replay(&sandbox, file).compared > 3, "{file}");
        }
    }
}

/// The digests of the contents are computed again.
#[test]
fn preloaded_files_are_repeated() {
    let sandbox = Sandbox::new();
    sandbox.file("data", "a line of the file\n".repeat(50_000));
    let mut args = OVER_NODES.to_vec();
    let script = "wc -c < $RALLY_PRELOAD_DIR/data";
    args.extend([
        "--preload-files",
        "data",
        "-n",
        "3",
        "--",
        "sh",
        "-c",
        script,
    ]);
    let run = sandbox.run(&mut recorded(&sandbox, &args)).expect_code(0);
    assert_eq!(run.out(), "950000\n".repeat(3));
    for file in ["rec", "rec.1", "rec.2"] {
        replay(&sandbox, file);
    }
}

#[test]
fn without_a_file_on_this_node_nothing_starts() {
    let sandbox = Sandbox::new();
    let run = sandbox.run_rally(&["run", "--record", "no/rec", "echo", "here"]);
    let run = run.expect_code(121).expect_err(&[
        "error: cannot record: cannot create `",
        "/no/rec`: No such file or directory",
        "effect: the job was not started",
    ]);
    assert_eq!(run.out(), "");
}

#[test]
fn without_a_file_on_another_node_the_job_runs() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("rec.1")).unwrap();
    let mut command = sandbox.rally(&["run", "--record", "rec"]);
    command.args(OVER_NODES).args(["-n", "3", "echo", "here"]);
    let run = sandbox.run(&mut command).expect_code(0);
    assert_eq!(run.out(), "here\n".repeat(3));
    run.expect_err(&["-n1` is not recorded any more", "Is a directory"]);
    for file in ["rec", "rec.2"] {
        replay(&sandbox, file);
    }
}

#[test]
fn on_a_full_disk_the_job_runs() {
    let sandbox = Sandbox::new();
    let run = sandbox.run_rally(&["run", "--record", "/dev/full", "-n", "1", "echo", "here"]);
    let run = run.expect_code(0).expect_err(&[
        "is not recorded any more",
        "cannot write `/dev/full`: No space left on device",
    ]);
    assert_eq!(run.out(), "here\n");
}
