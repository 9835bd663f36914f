//! Files that are copied to the nodes of a job, and what becomes of them.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

use super::{OVER_NODES, over, processes, run};
use crate::harness::{DEADLINE, Finished, Sandbox, Stream, Terminal, eventually};

/// Length of a file without data, whose copy takes long enough to be interrupted.
const LARGE: u64 = 512 << 20;

/// Returns the directories of preloaded files.
fn directories(sandbox: &Sandbox) -> Vec<PathBuf> {
    let entries = fs::read_dir(sandbox.work().with_file_name("tmp")).unwrap();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.display().to_string().contains("rally-preload."));
    found
}

/// Makes a file of bytes that differ everywhere, with permissions.
fn make(sandbox: &Sandbox, name: &str, length: usize, mode: u32) -> String {
    let path = sandbox.path(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut state = 1u64;
    let bytes: Vec<u8> = (0..length)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state.to_le_bytes()[7]
        })
        .collect();
    fs::write(&path, bytes).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path.display().to_string()
}

fn make_large(sandbox: &Sandbox) {
    let file = fs::File::create(sandbox.path("large")).unwrap();
    file.set_len(LARGE).unwrap();
}

fn script(sandbox: &Sandbox, name: &str, text: &str) {
    sandbox.file(name, format!("#!/bin/sh\n{text}\n"));
    fs::set_permissions(sandbox.path(name), fs::Permissions::from_mode(0o750)).unwrap();
}

/// Every node of a deep tree gets the files, with their places, permissions and contents, and nothing of them remains.
#[test]
fn files_are_on_every_node_with_place_permissions_and_content() {
    let sandbox = Sandbox::new();
    let far = make(&sandbox, "far/in", 3_000_000, 0o640);
    make(&sandbox, "deep/down/in", 600_000, 0o600);
    make(&sandbox, "same", 600_000, 0o600);
    make(&sandbox, "empty", 0, 0o644);
    let look = "cd $RALLY_PRELOAD_DIR; for f in $(find . -type f); do echo $(stat -c '%a %h %s' $f) $f $(sha256sum <$f); done";
    let list = format!("deep/down/in,./same,,{far},empty");
    let args = ["--radix", "1", "--preload-files", &list, "-n", "4", "--"];
    let args = [&args[..], &["sh", "-c", look]].concat();
    let all = run(&sandbox, "4", &args).expect_code(0);
    let copied = [
        ("600 2 600000", "/deep/down/in", "deep/down/in"),
        ("600 2 600000", "/same", "same"),
        ("640 1 3000000", far.as_str(), "far/in"),
        ("644 1 0", "/empty", "empty"),
    ];
    let mut expected: Vec<String> = Vec::new();
    for (facts, name, original) in copied {
        let sum = sandbox.run(&mut sandbox.shell(&format!("sha256sum <{original}")));
        let line = format!("{facts} .{name} {}", sum.expect_code(0).out());
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        expected.extend(vec![line; 4]);
    }
    expected.sort();
    assert_eq!(all.sorted().lines().collect::<Vec<_>>(), expected);
    sandbox.expect_clean();
}

/// The program runs from the copy, also if it is found in `PATH`; the working directory stays.
#[test]
fn a_program_runs_from_its_copy() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("bin")).unwrap();
    script(&sandbox, "bin/tool", "echo $0 $PWD $(stat -c %a $0)");
    let name = |finished: &Finished, copy: &str| {
        for line in finished.out().lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [program, directory, mode] = words[..] else {
                panic!("{line}")
            };
            assert!(program.contains("/tmp/rally-preload."), "{line}");
            assert!(program.ends_with(copy), "{line}");
            assert_eq!(directory, sandbox.work().display().to_string());
            assert_eq!(mode, "750");
        }
    };
    let args = ["--preload-binary", "-n", "3", "--", "bin/tool"];
    name(&run(&sandbox, "3", &args).expect_code(0), "/bin/tool");
    // On one node, and under the names of other launchers.
    let bin = sandbox.path("bin");
    let path = format!("{}:/usr/bin:/bin", bin.display());
    let lines = [
        ("rally", &["run", "--preload-binary", "-n", "2", "tool"][..]),
        ("mpirun", &["--allow-run-as-root", "-s", "-np", "2", "tool"]),
        ("srun", &["--bcast", "-n", "2", "tool"]),
    ];
    for (face, args) in lines {
        let mut command = sandbox.rally(&[]);
        if face != "rally" {
            command.args(["run", "--personality", face]);
        }
        let finished = sandbox.run(command.args(args).env("PATH", &path));
        name(&finished.expect_code(0), "/tool");
    }
    sandbox.expect_clean();
}

#[test]
fn apps_share_a_directory_and_may_run_in_it() {
    let sandbox = Sandbox::new();
    sandbox.file("in", "content\n");
    script(&sandbox, "a", "cat $RALLY_PRELOAD_DIR/in");
    let args = ["--preload-binary", "-n", "1", "./a", ":"];
    let other = [
        "--preload-wdir",
        "--preload-files",
        "in",
        "-n",
        "1",
        "cat",
        "in",
        "a",
    ];
    let both = run(&sandbox, "2", &[&args[..], &other].concat()).expect_code(0);
    let script = sandbox.read("a");
    let mut expected: Vec<String> = format!("content\ncontent\n{script}")
        .lines()
        .map(str::to_owned)
        .collect();
    expected.sort();
    assert_eq!(both.sorted().lines().collect::<Vec<_>>(), expected);
    sandbox.expect_clean();
}

#[test]
fn what_cannot_be_copied_is_said_before_anything_starts() {
    let sandbox = Sandbox::new();
    sandbox.file("in", "content\n");
    fs::create_dir(sandbox.path("d")).unwrap();
    sandbox.file("d/in", "another\n");
    sandbox.file("../in", "a third one\n");
    let cases: [(&[&str], i32, &str); 6] = [
        (
            &["--preload-files", "none"],
            121,
            "cannot read the file to copy `none`: No such file",
        ),
        (
            &["--preload-files", "d"],
            121,
            "cannot read the file to copy `d`: it is a directory",
        ),
        (
            &["--preload-files", "/dev/null"],
            121,
            "cannot read the file to copy `/dev/null`: it is not a regular file",
        ),
        (
            &["--preload-files", "in,d/in,../in"],
            120,
            "two files to copy would both be `in`",
        ),
        (
            &["--preload-files", "in", "--preload-dir", "/nowhere"],
            123,
            "tried:  `/nowhere`: No such file or directory",
        ),
        (
            &["--preload-files", "in", "--preload-dir", "/proc"],
            123,
            "`/proc` has 0 bytes, and they need 8 bytes",
        ),
    ];
    for (args, code, text) in cases {
        let args = [args, &["-n", "2", "--", "echo", "started"]].concat();
        let finished = run(&sandbox, "2", &args).expect_code(code);
        finished
            .expect_out("")
            .expect_err(&[text, "the job was not started"]);
    }
    let program = ["--preload-binary", "--", "./none"];
    run(&sandbox, "2", &program)
        .expect_code(127)
        .expect_err(&["cannot read the program to copy `./none`"]);
    sandbox.expect_clean();
}

/// Starts a job over three nodes with a copy on each, and waits until its ranks run.
fn running(sandbox: &Sandbox) -> crate::harness::Running {
    sandbox.file("in", "content\n");
    let script = "echo up; setsid sleep 77 & sleep 77";
    let args = ["--preload-files", "in", "-n", "3", "--", "sh", "-c", script];
    let job = sandbox.start(&mut over(sandbox, "3", &args));
    job.expect_times(Stream::Stdout, "up", 3);
    assert_eq!(directories(sandbox).len(), 3);
    job
}

fn expect_gone(sandbox: &Sandbox) {
    let gone = eventually(DEADLINE, || {
        (sandbox.alive().is_empty() && directories(sandbox).is_empty()).then_some(())
    });
    assert!(
        gone.is_some(),
        "{:?} {:?}",
        sandbox.alive(),
        directories(sandbox)
    );
    sandbox.expect_clean();
}

#[test]
fn the_copies_of_a_killed_daemon_are_removed() {
    let sandbox = Sandbox::new();
    let job = running(&sandbox);
    let all = processes(&sandbox);
    let is_below = |process: &&mischief::Proc| all.iter().any(|other| other.pid == process.ppid);
    let victim = all.iter().find(is_below).unwrap();
    signal::kill(Pid::from_raw(victim.pid), Signal::SIGKILL).unwrap();
    job.end().expect_code(125);
    expect_gone(&sandbox);
}

/// If its guardian is killed too, the next start on the node removes them.
#[test]
fn the_copies_of_a_daemon_that_is_killed_with_its_guardian_go_with_the_next_start() {
    let sandbox = Sandbox::new();
    let job = running(&sandbox);
    let all = processes(&sandbox);
    let is_below = |process: &&mischief::Proc| all.iter().any(|other| other.pid == process.ppid);
    let victim = all.iter().find(is_below).unwrap();
    for pid in [victim.ppid, victim.pid] {
        signal::kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    }
    job.end().expect_code(125);
    assert_eq!(directories(&sandbox).len(), 1);
    sandbox
        .run_rally(&["run", "-n", "1", "true"])
        .expect_code(0);
    expect_gone(&sandbox);
}

#[test]
fn the_copies_of_a_killed_controller_and_a_killed_front_are_removed() {
    for victim in ["controller", "front", "front and controller"] {
        let sandbox = Sandbox::new();
        let job = running(&sandbox);
        // The controller is the parent of the daemons' guardians.
        let all = processes(&sandbox);
        let is_above = |process: &&mischief::Proc| all.iter().all(|one| one.pid != process.ppid);
        let controller = all.iter().find(is_above).unwrap().ppid;
        if victim.contains("front") {
            job.signal(Signal::SIGKILL);
        }
        if victim.contains("controller") {
            signal::kill(Pid::from_raw(controller), Signal::SIGKILL).unwrap();
        }
        drop(job.end());
        expect_gone(&sandbox);
    }
}

/// An interrupt, or the end of the front, in the middle of the copy leaves nothing.
#[test]
fn a_copy_that_is_interrupted_leaves_nothing() {
    for signal in [Signal::SIGINT, Signal::SIGKILL] {
        let sandbox = Sandbox::new();
        make_large(&sandbox);
        let args = [
            "--preload-files",
            "large",
            "-n",
            "3",
            "--",
            "echo",
            "started",
        ];
        let job = sandbox.start(&mut over(&sandbox, "3", &args));
        let began = eventually(DEADLINE, || {
            (directories(&sandbox).len() == 3).then_some(())
        });
        assert!(began.is_some(), "{}", job.so_far(Stream::Stderr));
        job.signal(signal);
        let ended = job.end();
        assert_eq!(ended.out(), "", "the copy was too fast: {ended:?}");
        expect_gone(&sandbox);
    }
}

#[test]
fn a_daemon_that_is_killed_during_the_copy_ends_it_everywhere() {
    let sandbox = Sandbox::new();
    make_large(&sandbox);
    let args = [
        "--preload-files",
        "large",
        "-n",
        "3",
        "--",
        "echo",
        "started",
    ];
    let job = sandbox.start(&mut over(&sandbox, "3", &args));
    let began = eventually(DEADLINE, || {
        (directories(&sandbox).len() == 3).then_some(())
    });
    assert!(began.is_some(), "{}", job.so_far(Stream::Stderr));
    let all = processes(&sandbox);
    let is_below = |process: &&mischief::Proc| all.iter().any(|other| other.pid == process.ppid);
    let victim = all.iter().find(is_below).unwrap();
    signal::kill(Pid::from_raw(victim.pid), Signal::SIGKILL).unwrap();
    let ended = job.end().expect_code(125);
    ended
        .expect_out("")
        .expect_err(&["error: the daemon on `", "the job was not started"]);
    expect_gone(&sandbox);
}

/// A terminal shows how far the copy is, and nothing of that remains on the screen.
#[test]
fn a_terminal_shows_the_progress() {
    let sandbox = Sandbox::new();
    make(&sandbox, "large", 3 << 20, 0o600);
    let options = OVER_NODES.join(" ");
    let script = format!("$RALLY run {options} -n 3 --preload-files large echo started");
    let (_terminal, run) = Terminal::run(&sandbox, &script);
    let out = run.end().expect_code(0).out();
    assert!(
        out.contains("\r\x1b[Kcopying 3072 KiB to 3 nodes: "),
        "{out:?}"
    );
    let last = out.rfind("copying").unwrap();
    let (_, behind) = out.split_at(last);
    assert!(behind.contains(" %\r\x1b[K"), "{behind:?}");
    assert_eq!(behind.matches("started").count(), 3, "{behind:?}");
    sandbox.expect_clean();
}
