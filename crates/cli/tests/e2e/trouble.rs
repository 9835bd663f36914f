//! `dbgr stacks` of a job with one problematic rank: the other ranks' stacks are shown, and that rank is named.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

use crate::harness::{
    DEADLINE, Finished, Running, Sandbox, Stream, compiled, dbgr, eventually, testdata,
};

/// The stack of the other ranks.
const OTHERS: &str = "[0-2] main (trouble.c:29) > wait_here (trouble.c:12) > pause";

const OPTIONS: [&str; 5] = ["-n", "4", "--kill-on-bad-exit=no", "--grace", "0"];

fn program(options: &[&str]) -> PathBuf {
    let source = testdata("stacks/trouble.c");
    let options = [&["-g", "-pthread"], options].concat();
    compiled("gcc".as_ref(), &source, &options)
}

/// Starts a job of four ranks, the last of which does `what`.
fn start(sandbox: &Sandbox, what: &str) -> Running {
    let program = program(&[]);
    let mut command = sandbox.rally(&["run"]);
    command.args(OPTIONS).arg(program).arg(what);
    let job = ready(sandbox, &mut command);
    if what == "wait" {
        settled(sandbox, &["3"]);
    }
    job
}

fn ready(sandbox: &Sandbox, command: &mut Command) -> Running {
    let job = sandbox.start(command);
    job.expect_times(Stream::Stdout, "ready", 4);
    settled(sandbox, &["0", "1", "2"]);
    job
}

/// Waits until these ranks sleep: a rank may still be inside the write that prints `ready`.
#[track_caller]
fn settled(sandbox: &Sandbox, ranks: &[&str]) {
    let sleeps = |rank: &str| status(of_rank(sandbox, rank), "State:").starts_with('S');
    let all_sleep = || ranks.iter().all(|rank| sleeps(rank)).then_some(());
    assert!(eventually(DEADLINE, all_sleep).is_some());
}

fn looking(sandbox: &Sandbox, args: &[&str], job: &Running) -> Command {
    let mut command = sandbox.command(dbgr());
    command.args(["stacks", "--width=300"]).args(args);
    command.arg(job.pid.to_string());
    command
}

fn look(sandbox: &Sandbox, args: &[&str], job: &Running) -> Finished {
    sandbox.run(&mut looking(sandbox, args, job))
}

/// Checks the exit code and the stacks of the other ranks. Returns the output.
#[track_caller]
fn said(looked: Finished) -> String {
    let text = looked.expect_code(0).out();
    assert!(text.contains(OTHERS), "{text}");
    text
}

/// Returns the pid of the last rank.
fn last(sandbox: &Sandbox) -> i32 {
    of_rank(sandbox, "3")
}

fn of_rank(sandbox: &Sandbox, rank: &str) -> i32 {
    let variable = format!("RALLY_RANK={rank}");
    let found = sandbox.alive().into_iter().find(|process| {
        let environment = fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|entry| entry == variable.as_bytes())
    });
    found.unwrap().pid
}

/// Returns a line of `/proc/PID/status`; empty if the process is gone.
fn status(pid: i32, name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_default().trim().to_owned()
}

/// Checks that no process is stopped or traced any more, and ends the job.
#[track_caller]
fn end(sandbox: &Sandbox, job: Running) {
    for process in sandbox.alive() {
        let (state, tracer) = (
            status(process.pid, "State:"),
            status(process.pid, "TracerPid:"),
        );
        let alone = matches!(&*tracer, "0" | "");
        assert!(
            alone && !state.starts_with(['T', 't']),
            "{process}: {state}, {tracer}"
        );
    }
    job.signal(Signal::SIGTERM);
    job.end();
}

#[test]
fn a_rank_that_dies_between_two_looks() {
    let sandbox = Sandbox::new();
    let job = start(&sandbox, "wait");
    let pid = last(&sandbox);
    let mut command = looking(&sandbox, &["--samples", "6", "--every", "250ms"], &job);
    let dbgr = sandbox.start(&mut command);
    // `dbgr` sleeps only between two samples. Whichever pause this is, the result must be the same.
    let rests = || status(dbgr.pid, "State:").starts_with('S').then_some(());
    for _ in 0..3 {
        assert!(eventually(DEADLINE, rests).is_some());
    }
    signal::kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    let text = said(dbgr.end());
    assert!(text.contains("missing: 1 [3] ended"), "{text}");
    end(&sandbox, job);
}

/// Each of these is sampled a hundred times, at random moments.
#[test]
fn a_rank_that_is_never_the_same() {
    for what in ["exec", "fork", "threads"] {
        let sandbox = Sandbox::new();
        let job = start(&sandbox, what);
        for _ in 0..5 {
            let text = said(look(
                &sandbox,
                &["--samples", "20", "--every", "10ms"],
                &job,
            ));
            // The rank has either a stack or a reason for its absence.
            let named = text.lines().any(|line| line.contains("1 [3]"));
            assert!(named, "{what}: {text}");
        }
        end(&sandbox, job);
    }
}

#[test]
fn a_rank_that_a_debugger_has() {
    let sandbox = Sandbox::new();
    let job = start(&sandbox, "wait");
    let pid = last(&sandbox);
    let mut gdb = sandbox.command("gdb");
    gdb.args(["-nx", "-q", "-p", &pid.to_string()]);
    let gdb = sandbox.start(gdb.stdin(std::process::Stdio::piped()));
    let has = || (status(pid, "State:").starts_with('t')).then_some(());
    assert!(eventually(DEADLINE, has).is_some());
    let text = look(&sandbox, &[], &job).expect_code(0).out();
    for part in [
        "wait_here (trouble.c:12) > pause",
        "3 [0-2]",
        "stopped by a debugger 1 [3]",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // gdb still traces the process.
    assert_eq!(status(pid, "TracerPid:"), gdb.pid.to_string());
    gdb.end();
    let runs = || status(pid, "State:").starts_with('S').then_some(());
    assert!(eventually(DEADLINE, runs).is_some());
    end(&sandbox, job);
}

/// Root may access every process, unless it lacks the capability; then it is like any other user.
#[test]
fn a_rank_of_another_user() {
    let sandbox = Sandbox::new();
    if !nix::unistd::geteuid().is_root() {
        let mut command = sandbox.command(dbgr());
        let looked = sandbox.run(command.args(["stacks", "1"])).expect_code(120);
        looked.expect_err(&["cannot look at process 1", "it belongs to user 0"]);
        return;
    }
    let program = program(&[]);
    let script = "if [ $RALLY_RANK = 3 ]; then echo ready; \
         exec setpriv --reuid=65534 --regid=65534 --clear-groups sleep 1000; fi; exec $0 wait";
    let without = ["--bounding-set=-sys_ptrace", "--inh-caps=-all"];
    let mut command = sandbox.command("setpriv");
    command
        .args(without)
        .arg(crate::harness::rally())
        .arg("run");
    command
        .args(OPTIONS)
        .args(["sh", "-c", script])
        .arg(program);
    let job = ready(&sandbox, &mut command);
    let others = || (status(last(&sandbox), "Uid:").starts_with("65534")).then_some(());
    assert!(eventually(DEADLINE, others).is_some());
    let mut command = sandbox.command("setpriv");
    command.args(without).arg(dbgr());
    command.args(["stacks", "--width=300", &job.pid.to_string()]);
    let looked = sandbox.run(&mut command);
    let err = looked.err();
    assert!(
        err.contains("cannot look at 1 rank\n") && err.contains("ranks: 3\n"),
        "{err}"
    );
    assert!(err.contains("it belongs to user 65534"), "{err}");
    let text = said(looked);
    assert!(
        text.contains("missing: 1 [3] no permission to look at it"),
        "{text}"
    );
    end(&sandbox, job);
}

/// Limits on open files, and on address space in KiB.
#[test]
fn with_little_of_everything() {
    let sandbox = Sandbox::new();
    let job = start(&sandbox, "wait");
    for limits in ["ulimit -n 12", "ulimit -v 300000"] {
        let mut command = sandbox.command("/bin/sh");
        let script = format!("{limits}; exec \"$0\" stacks --width=300 {}", job.pid);
        let looked = sandbox.run(command.args(["-c", &script]).arg(dbgr()));
        let text = looked.expect_code(0).out();
        let all = OTHERS.replace("0-2", "0-3");
        assert!(text.contains(&all), "{limits}: {text}");
    }
    end(&sandbox, job);
}

/// Inside, its processes have other pids, and its program does not exist outside.
#[test]
fn a_rank_in_a_container() {
    // Other users need a user namespace, in which they are root.
    let unshare = if nix::unistd::geteuid().is_root() {
        "unshare -mpf"
    } else {
        "unshare -rmpf"
    };
    let sandbox = Sandbox::new();
    let root = sandbox.path("root");
    fs::create_dir(&root).unwrap();
    let (outside, inside) = (program(&[]), program(&["-static"]));
    let script = sandbox.file(
        "container.sh",
        format!(
            "if [ $RALLY_RANK != 3 ]; then exec $1 wait; fi\n\
             exec {unshare} sh -c 'mount -t tmpfs none $0 && mkdir $0/own && cp $1 $0/own/inside && \
             chroot $0 /own/inside wait; exit $?' $3 $2\n"
        ),
    );
    let mut command = sandbox.rally(&["run"]);
    command.args(OPTIONS).args(["sh", &script]);
    let job = ready(&sandbox, command.args([outside, inside, root.clone()]));
    assert!(!root.join("own").exists());
    let text = look(&sandbox, &["--full"], &job).expect_code(0).out();
    let explained = look(&sandbox, &["--explain"], &job).expect_code(0).out();
    assert!(explained.contains("inside`"), "{explained}");
    // The two classes differ in the function that called `main`.
    assert_eq!(
        text.matches("wait_here (trouble.c:12) in ").count(),
        2,
        "{text}"
    );
    assert!(
        text.contains("wait_here (trouble.c:12) in inside"),
        "{text}"
    );
    end(&sandbox, job);
}

/// A control group for the test, removed at its end.
struct Group {
    directory: PathBuf,
    /// The file that freezes the group, with the values that freeze and thaw it.
    freezer: (&'static str, &'static str, &'static str),
}

impl Group {
    /// Creates one for each mounted version of control groups. Returns none unless we are root, who owns the groups.
    fn all() -> Vec<Self> {
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let group = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            let options = || words[3].split(',');
            let freezer = match words[2] {
                "cgroup2" => ("cgroup.freeze", "1", "0"),
                "cgroup" if options().any(|it| it == "freezer") => {
                    ("freezer.state", "FROZEN", "THAWED")
                }
                _ => return None,
            };
            let directory = Path::new(words[1]).join(format!("rally-e2e-{}", std::process::id()));
            fs::create_dir(&directory).ok()?;
            Some(Self { directory, freezer })
        };
        mounts.lines().filter_map(group).collect()
    }

    fn put(&self, text: &str) {
        fs::write(self.directory.join(self.freezer.0), text).unwrap();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.put(self.freezer.2);
        let above = self.directory.parent().unwrap();
        let procs = fs::read_to_string(self.directory.join("cgroup.procs")).unwrap();
        for pid in procs.lines() {
            let _ = fs::write(above.join("cgroup.procs"), pid);
        }
        fs::remove_dir(&self.directory).unwrap();
    }
}

/// In neither version does the state of a process alone reveal that it is frozen.
#[test]
fn a_job_that_is_frozen() {
    for group in Group::all() {
        let sandbox = Sandbox::new();
        let script = "echo ready; while :; do :; done";
        let mut command = sandbox.rally(&["run", "-n", "2", "sh", "-c", script]);
        let job = sandbox.start(&mut command);
        job.expect_times(Stream::Stdout, "ready", 2);
        for process in sandbox.find(script) {
            let program = fs::read_link(format!("/proc/{}/exe", process.pid)).unwrap();
            if !program.ends_with("rally") {
                let procs = group.directory.join("cgroup.procs");
                fs::write(procs, process.pid.to_string()).unwrap();
            }
        }
        group.put(group.freezer.1);
        let options = ["--samples=3", "--every=600ms"];
        let looked = look(&sandbox, &options, &job).expect_code(0);
        let text = looked.out();
        assert!(text.contains("certain: rank"), "{looked:?}");
        assert!(
            text.contains("frozen by the control group in 3 of 3 samples"),
            "{looked:?}"
        );
        assert!(
            text.contains("- frozen") && !text.contains("disk"),
            "{looked:?}"
        );
        drop(group);
        end(&sandbox, job);
    }
}
