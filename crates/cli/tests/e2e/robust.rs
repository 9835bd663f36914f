//! Unusual environments: leftovers of other jobs, inherited state, files that are no programs.

use std::{
    fs::{self, DirBuilder, File},
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::PathBuf,
    process::{Command, Stdio},
};

use nix::sys::signal::Signal;

use crate::harness::{DEADLINE, Finished, Running, Sandbox, Stream, eventually, rally};

/// The record of a controller that is not visible here, and a process of its job, marked by `RALLY_OWNER`.
struct Hidden {
    path: PathBuf,
    process: Running,
}

/// The name of a controller whose pid is greater than any real one.
const OWNER: &str = "2000000000.1";

fn hidden(sandbox: &Sandbox) -> Hidden {
    let directory = sandbox.path("run");
    let records = directory.join("rally");
    fs::create_dir(&directory).unwrap();
    DirBuilder::new().mode(0o700).create(&records).unwrap();
    let path = records.join(OWNER);
    File::create(&path).unwrap();
    let mut sleep = sandbox.command("sleep");
    sleep.arg("1000").env("RALLY_OWNER", OWNER);
    Hidden {
        path,
        process: sandbox.start(&mut sleep),
    }
}

fn run_beside(sandbox: &Sandbox) {
    let mut command = sandbox.rally(&["run", "-n", "1", "/bin/true"]);
    command.env("XDG_RUNTIME_DIR", sandbox.path("run"));
    sandbox.run(&mut command).expect_code(0);
}

/// The pid in a record may be from another pid namespace.
#[test]
fn a_job_whose_record_is_locked_lives() {
    let sandbox = Sandbox::new();
    let mut hidden = hidden(&sandbox);
    let lock = File::options().write(true).open(&hidden.path).unwrap();
    lock.try_lock().unwrap();
    run_beside(&sandbox);
    assert!(hidden.path.exists());
    assert!(!hidden.process.has_ended_within(std::time::Duration::ZERO));

    drop(lock);
    run_beside(&sandbox);
    assert!(!hidden.path.exists());
    hidden.process.end().expect_code(137);
}

#[test]
fn a_job_in_another_pid_namespace_lives() {
    let sandbox = Sandbox::new();
    let namespace = ["-pf", "--mount-proc", "--kill-child"];
    let may = Command::new("unshare").args(namespace).arg("true").output();
    if !may.is_ok_and(|output| output.status.success()) {
        // Only root may create a namespace.
        return;
    }
    let mut command = sandbox.command("unshare");
    command.args(namespace).arg(rally()).args([
        "run",
        "-n",
        "2",
        "sh",
        "-c",
        ": >ready-$PMI_RANK; while ! [ -e go ]; do sleep 0.01; done; echo done",
    ]);
    let inner = sandbox.start(&mut command);
    let ready = || (0..2).all(|rank| sandbox.path(&format!("ready-{rank}")).exists());
    eventually(DEADLINE, || ready().then_some(())).expect("both ranks run");
    sandbox
        .run_rally(&["run", "-n", "1", "/bin/true"])
        .expect_code(0);
    sandbox.file("go", "");
    inner.end().expect_code(0).expect_out("done\ndone\n");
}

#[test]
fn a_script_without_a_first_line_runs_in_a_shell() {
    let sandbox = Sandbox::new();
    let script = "# a script, as execvp(3) runs it\necho \"$0 $1 $2 $#\"\n";
    executable(&sandbox, "script", script.as_bytes());
    // This applies to every rank, not only to the first.
    sandbox
        .run_rally(&["run", "-n", "2", "./script", "one", "two words"])
        .expect_code(0)
        .expect_out("./script one two words 2\n./script one two words 2\n");
}

/// The script is found by its name, in another directory than ours.
#[test]
fn a_script_without_a_first_line_is_looked_for_where_the_ranks_are() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("there")).unwrap();
    executable(&sandbox, "there/script", "echo caf\u{e9}\n".as_bytes());
    sandbox
        .run_rally(&["run", "--wdir", "there", "-n", "1", "./script"])
        .expect_code(0)
        .expect_out("caf\u{e9}\n");
}

#[test]
fn what_is_no_program_and_no_script_is_refused() {
    let files: [(&str, &[u8]); 4] = [
        ("empty", b""),
        // The start of a binary for another architecture.
        (
            "foreign",
            b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\xf7\0",
        ),
        ("damaged", b"\x7fELF"),
        ("garbage", b"looks like text\nat first\x01\xfe\xff"),
    ];
    for (name, contents) in files {
        let sandbox = Sandbox::new();
        let path = executable(&sandbox, name, contents);
        sandbox
            .run_rally(&["run", "-n", "2", &path])
            .expect_code(126)
            .expect_err(&["error:", name])
            .expect_out("");
    }
}

/// Runs a job whose PMIx port gets this many connections from processes that do not belong to it.
fn with_strangers(count: usize, options: &[&str]) -> Finished {
    let sandbox = Sandbox::new();
    let mut command = sandbox.rally(&["run", "-n", "1"]);
    command
        .args(options)
        .args(["sh", "-c", "echo \"$PMIX_SERVER_URI4:\"; cat"])
        .stdin(Stdio::piped());
    let run = sandbox.start(&mut command);
    run.expect(Stream::Stdout, ":\n");
    let uri = run.so_far(Stream::Stdout);
    let port = uri.trim_end_matches(":\n").rsplit(':').next().unwrap();
    let port: u16 = port.parse().unwrap();
    for _ in 0..count {
        let mut stranger = TcpStream::connect(("127.0.0.1", port)).unwrap();
        // The connection may be closed meanwhile. Its EOF means that it was counted.
        let _ = stranger.write_all(b"GET / HTTP/1.0 and more than a head\r\n\r\n");
        let _ = stranger.read(&mut [0; 16]);
    }
    run.end().expect_code(0)
}

/// Any process on the node can connect. The number of resulting messages is bounded.
#[test]
fn strangers_at_the_port_are_counted() {
    let run = with_strangers(200, &[]).expect_err(&[
        "warning: 200 connections to the PMIx port on ",
        "(200 times)",
    ]);
    assert_eq!(run.err().matches("connection").count(), 1, "{run:?}");
    assert_eq!(with_strangers(20, &["-q"]).err(), "");
    let run = with_strangers(20, &["--message-format", "json"]);
    let said: serde_json::Value = serde_json::from_str(run.err().trim_end()).unwrap();
    assert_eq!(said["id"], "pmix/refused", "{run:?}");
}

fn executable(sandbox: &Sandbox, name: &str, contents: &[u8]) -> String {
    let path = sandbox.file(name, contents);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Ignored signals are inherited, and some callers ignore SIGCHLD.
#[test]
fn ends_are_seen_although_our_caller_ignores_them() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command("perl");
    command
        .args(["-e", "$SIG{CHLD} = 'IGNORE'; exec @ARGV"])
        .arg(rally())
        .args(["run", "-n", "2", "sh", "-c"])
        .arg("grep SigIgn /proc/self/status; exit 3");
    let run = sandbox.run(&mut command).expect_code(3);
    for line in run.out().lines() {
        let ignored = u64::from_str_radix(line.trim_start_matches("SigIgn:").trim(), 16).unwrap();
        assert_eq!(ignored & (1 << (Signal::SIGCHLD as i32 - 1)), 0, "{run:?}");
    }
}

/// The first end-of-input character only submits an unfinished line.
#[test]
fn input_without_a_last_line_feed_ends_on_a_terminal() {
    for (input, expected) in [
        ("abc", "abc"),
        ("abc\nde", "abc\nde"),
        ("abc\n", "abc\n"),
        ("", ""),
    ] {
        let sandbox = Sandbox::new();
        let mut command = sandbox.rally(&["run", "--pty", "-n", "1", "sh"]);
        command
            .args(["-c", "stty -echo; : >ready; cat; echo"])
            .stdin(Stdio::piped());
        let mut run = sandbox.start(&mut command);
        eventually(DEADLINE, || sandbox.path("ready").exists().then_some(()))
            .expect("the rank runs");
        run.stdin
            .take()
            .unwrap()
            .write_all(input.as_bytes())
            .unwrap();
        let run = run.end().expect_code(0);
        assert!(
            run.out()
                .replace('\r', "")
                .starts_with(&format!("{expected}\n")),
            "{input:?}: {run:?}"
        );
    }
}
