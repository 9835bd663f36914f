//! Whichever process is killed, nothing is left.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, chown},
    path::Path,
};

use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

use crate::harness::{
    CLEAN_WITHIN, DEADLINE, Running, Sandbox, Stream, compiled, eventually, rally, testdata,
};

/// Ranks that have daemonized descendants, and wait.
const JOB: &str = r#""$MISCHIEF" double-fork; echo ready; exec sleep 1000"#;

/// A job whose ranks all run, with the pids of its helpers.
struct Job {
    front: Running,
    /// The front's child, which cleans up when both others are gone.
    guardian: i32,
    /// The guardian's child, which also contains the daemon.
    controller: i32,
}

fn start(sandbox: &Sandbox) -> Job {
    let mut command = sandbox.rally(&["run", "-n", "4", "sh", "-c", JOB]);
    started(sandbox, &mut command, 4)
}

fn started(sandbox: &Sandbox, command: &mut std::process::Command, ranks: usize) -> Job {
    let front = sandbox.start(command);
    front.expect_times(Stream::Stdout, "ready\n", ranks);
    let ours = sandbox
        .alive()
        .into_iter()
        .filter(|process| process.runs(&rally()))
        .collect::<Vec<_>>();
    let child = |parent: i32| {
        ours.iter()
            .find(|process| process.ppid == parent)
            .map(|process| process.pid)
    };
    let guardian = child(front.pid).expect("the front has a child");
    let controller = child(guardian).expect("the guardian has a child");
    Job {
        front,
        guardian,
        controller,
    }
}

fn kill(pid: i32) {
    signal::kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
}

/// Kills processes simultaneously: all are stopped first, so that none sees the death of another.
fn kill_together(pids: &[i32]) {
    for signal in [Signal::SIGSTOP, Signal::SIGKILL] {
        for pid in pids {
            signal::kill(Pid::from_raw(*pid), signal).unwrap();
        }
    }
}

#[test]
fn the_front() {
    let sandbox = Sandbox::new();
    let job = start(&sandbox);
    kill(job.front.pid);
    sandbox.expect_clean();
    job.front.end().expect_code(137);
}

#[test]
fn the_controller() {
    let sandbox = Sandbox::new();
    let job = start(&sandbox);
    kill(job.controller);
    let run = job.front.end().expect_err(&["error:"]);
    assert_ne!(run.code(), 0);
    sandbox.expect_clean();
}

#[test]
fn the_guardian() {
    let sandbox = Sandbox::new();
    let job = start(&sandbox);
    kill(job.guardian);
    // The guardian is needed only after the loss of the others: the job continues, and ends as requested.
    let alive = || (sandbox.find("sleep 1000").len() == 4).then_some(());
    eventually(DEADLINE, alive).expect("the ranks live on");
    job.front.signal(Signal::SIGTERM);
    job.front.end().expect_code(143);
    sandbox.expect_clean();
}

#[test]
fn two_at_once() {
    let pairs: [fn(&Job) -> [i32; 2]; 3] = [
        |job| [job.front.pid, job.controller],
        |job| [job.front.pid, job.guardian],
        |job| [job.guardian, job.controller],
    ];
    for pair in pairs {
        let sandbox = Sandbox::new();
        let job = start(&sandbox);
        kill_together(&pair(&job));
        sandbox.expect_clean();
        assert_ne!(job.front.end().code(), 0);
    }
}

/// No process is left to search for descendants. The ranks die by the parent-death signal; files may stay.
#[test]
fn everybody_at_once() {
    let sandbox = Sandbox::new();
    let front = sandbox.start(&mut sandbox.rally(&[
        "run",
        "-n",
        "4",
        "sh",
        "-c",
        "echo ready; exec sleep 1000",
    ]));
    front.expect_times(Stream::Stdout, "ready\n", 4);
    let ours = sandbox
        .alive()
        .into_iter()
        .filter(|process| process.runs(&rally()));
    kill_together(&ours.map(|process| process.pid).collect::<Vec<_>>());
    sandbox.expect_no_process();
    front.end().expect_code(137);
    sandbox
        .run_rally(&["run", "-n", "1", "/bin/true"])
        .expect_code(0);
    sandbox.expect_clean();
}

/// A killed process needs CPU time to exit, which other processes use up here. Until it has exited, the job's file remains,
/// which the next start removes.
#[test]
fn what_ends_slowly() {
    let allowed = fs::read_to_string("/proc/self/status").unwrap();
    let allowed = allowed
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let mut numbers = allowed.unwrap().trim().split(|c: char| !c.is_ascii_digit());
    let cpu = numbers.next_back().unwrap();
    let sandbox = Sandbox::new();
    let shared = format!("/dev/shm/vader_segment.test.{}", std::process::id());
    let script = format!(
        "taskset -c {cpu} chrt --idle 0 sleep 1000 9>{shared} & echo ready; exec sleep 1000"
    );
    let mut command = sandbox.rally(&["run", "-n", "1", "sh", "-c", &script]);
    let job = started(&sandbox, &mut command, 1);
    let sleeps = || (sandbox.find("sleep 1000").len() == 2).then_some(());
    eventually(DEADLINE, sleeps).expect("it has the file");
    let mut busy = Busy::on(cpu);
    kill_together(&[job.front.pid, job.guardian, job.controller]);
    job.front.end().expect_code(137);
    let gone = || {
        sandbox
            .run_rally(&["run", "-n", "1", "/bin/true"])
            .expect_code(0);
        (!Path::new(&shared).exists()).then_some(())
    };
    let gone = eventually(DEADLINE, gone);
    busy.end();
    let _ = fs::remove_file(&shared);
    gone.expect("a later start removes the file");
    sandbox.expect_clean();
}

/// A busy loop on one CPU.
struct Busy(std::process::Child);

impl Busy {
    fn on(cpu: &str) -> Self {
        let mut command = std::process::Command::new("taskset");
        let command = command.args(["-c", cpu, "sh", "-c", "while :; do :; done"]);
        Self(command.spawn().unwrap())
    }

    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.end();
    }
}

#[test]
fn a_rank() {
    let sandbox = Sandbox::new();
    let job = start(&sandbox);
    let ranks = || (sandbox.find("sleep 1000").len() == 4).then(|| sandbox.find("sleep 1000"));
    kill(eventually(DEADLINE, ranks).expect("four ranks sleep")[2].pid);
    job.front.end().expect_code(137).expect_err(&["SIGKILL"]);
    sandbox.expect_clean();
}

#[test]
fn the_controller_of_a_stopped_front() {
    let sandbox = Sandbox::new();
    let job = start(&sandbox);
    job.front.signal(Signal::SIGSTOP);
    kill(job.controller);
    let gone = || sandbox.find("sleep 1000").is_empty().then_some(());
    eventually(CLEAN_WITHIN, gone)
        .expect("ranks die with their controller, whatever the front does");
    job.front.signal(Signal::SIGCONT);
    assert_ne!(job.front.end().code(), 0);
}

#[test]
fn a_stopped_controller_does_not_outlast_the_time_limit() {
    // The time limit ends the first job; a signal to the front ends the second.
    for options in [&["--timeout", "3"][..], &[]] {
        let sandbox = Sandbox::new();
        let mut command = sandbox.rally(&["run", "-n", "2", "--grace", "0.1"]);
        let job = started(&sandbox, command.args(options).args(["sh", "-c", JOB]), 2);
        signal::kill(Pid::from_raw(job.controller), Signal::SIGSTOP).unwrap();
        if options.is_empty() {
            job.front.signal(Signal::SIGTERM);
        }
        job.front.end().expect_code(125).expect_err(&[
            "error: the job had to end, but the controller was stopped, so it was killed",
        ]);
        sandbox.expect_clean();
    }
}

/// Only root can kill it. Its pid is reported, and nothing waits for it.
#[test]
fn a_rank_that_becomes_another_user_is_named_and_left() {
    const NOBODY: u32 = 65_534;
    let sandbox = Sandbox::new();
    let source = testdata("life/becomes_another_user.c");
    let (program, ours) = (sandbox.path("becomes"), sandbox.path("rally"));
    fs::copy(compiled(Path::new("gcc"), &source, &[]), &program).unwrap();
    fs::copy(rally(), &ours).unwrap();
    let is_root = nix::unistd::geteuid().is_root();
    let mut command = if is_root {
        // As root, the test runs as another user, who must own the test's files.
        let work = sandbox.work();
        let own = |path: &Path| chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        for entry in fs::read_dir(work.parent().unwrap()).unwrap() {
            own(&entry.unwrap().path());
        }
        own(work.parent().unwrap());
        fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
        let mut command = sandbox.command("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(ours);
        command
    } else {
        sandbox.command(&ours)
    };
    command.args(["run", "--timeout", "1", "--grace", "0", "-n", "1"]);
    let run = sandbox.run(command.arg(program)).expect_code(124);
    let said = run.out();
    let (who, pid) = said.trim().split_once(' ').unwrap();
    // On a file system without set-user-ID programs, it keeps its user.
    if who == "same" {
        // Without grace, either signal may be the first that it gets.
        run.expect_err(&["effect: its only rank was ended"]);
    } else {
        signal::kill(Pid::from_raw(pid.parse().unwrap()), Signal::SIGKILL).unwrap();
        run.expect_err(&[
            "error: 1 process on ",
            "runs on: it belongs to another user, and we may not end it",
            pid,
            "effect: rank 0 runs on",
        ]);
    }
}
