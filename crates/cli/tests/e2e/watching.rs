//! The watchdog: `dbgr watch`, and `rally run --on-hang=report`.

use std::{
    fs,
    os::unix::fs::symlink,
    time::{SystemTime, UNIX_EPOCH},
};

use nix::{sys::signal::Signal, unistd::Pid};

use crate::harness::{
    DEADLINE, Sandbox, Stream, compiled, dbgr, eventually, rally, testdata, venv,
};

/// The message after a second without motion.
const HANGS: &str = "warning: nothing has moved for 1 s: the job may hang\n";

/// Returns the names of the pages in the working directory.
fn pages(sandbox: &Sandbox) -> Vec<String> {
    let files = fs::read_dir(sandbox.work()).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut pages: Vec<String> = names.filter(|name| name.ends_with(".html")).collect();
    pages.sort_unstable();
    pages
}

#[test]
fn a_job_that_hangs_is_reported_and_goes_on() {
    let sandbox = Sandbox::new();
    let compiler = venv("mpich").join("bin/mpicc");
    let program = compiled(&compiler, &testdata("hangs/missing_collective.c"), &[]);
    let program = program.to_str().unwrap();
    let args = [
        "run",
        "-n",
        "4",
        "--on-hang=report:2s",
        "--grace",
        "0",
        program,
    ];
    let run = sandbox.start(&mut sandbox.rally(&args));
    run.expect(
        Stream::Stderr,
        "nothing has moved for 2 s: the job may hang",
    );
    run.expect(Stream::Stderr, "MPI_");
    let page = format!("rally-{}-hang.html", run.pid);
    run.expect(Stream::Stderr, &format!("page: `{page}`"));
    // The page is complete, and no process was ended for it.
    assert!(sandbox.read(&page).trim_end().ends_with("</html>"));
    assert!(sandbox.find(program).len() >= 4);
    run.signal(Signal::SIGTERM);
    let run = run.end();
    assert_eq!(run.err().matches("nothing has moved").count(), 1);
    assert_eq!(pages(&sandbox), [page]);
    sandbox.expect_clean();
}

#[test]
fn a_job_that_writes_is_not() {
    let sandbox = Sandbox::new();
    let script = "for i in 1 2 3 4 5 6 7 8 9 10; do echo $i; sleep 0.3; done";
    let args = [
        "run",
        "-n",
        "2",
        "-q",
        "--on-hang=report:1s",
        "/bin/sh",
        "-c",
        script,
    ];
    let run = sandbox.run_rally(&args).expect_code(0);
    assert_eq!(run.err(), "");
    assert_eq!(pages(&sandbox), [""; 0]);
}

#[test]
fn a_rank_whose_child_works_is_not_reported() {
    let sandbox = Sandbox::new();
    let script = "timeout 2.5 sh -c 'while :; do :; done' | cat; true";
    let args = ["run", "-q", "--on-hang=report:1s", "/bin/sh", "-c", script];
    let run = sandbox.run_rally(&args).expect_code(0);
    assert_eq!(run.err(), "");
    assert_eq!(pages(&sandbox), [""; 0]);
}

#[test]
fn time_stands_while_a_job_is_stopped() {
    let sandbox = Sandbox::new();
    let job = sandbox.start(sandbox.command("sleep").arg("1000"));
    job.signal(Signal::SIGSTOP);
    let mut command = sandbox.command(dbgr());
    let pid = job.pid.to_string();
    command.args(["watch", &pid, "--idle", "1s", "--limit", "4s"]);
    let watch = sandbox.start(&mut command);
    // Until the limit, nothing else is reported.
    watch.expect(Stream::Stderr, "the time limit ends the job in ");
    assert!(!watch.so_far(Stream::Stderr).contains("nothing has moved"));
    job.signal(Signal::SIGCONT);
    watch.expect(Stream::Stderr, HANGS);
    job.signal(Signal::SIGTERM);
    job.end();
    watch.end().expect_code(0);
}

#[test]
fn the_report_comes_before_the_time_limit() {
    let sandbox = Sandbox::new();
    let args = [
        "run",
        "-n",
        "2",
        "-q",
        "--on-hang=report:1h",
        "--timeout",
        "10",
        "sleep",
        "1000",
    ];
    let run = sandbox.run_rally(&args).expect_code(124);
    let err = run.err();
    let warned = err
        .find("warning: the time limit ends the job in ")
        .unwrap();
    let ended = err
        .find("error: the job did not end within its time limit")
        .unwrap();
    assert!(warned < ended, "{err}");
    assert!(err.contains(" samples in "), "{err}");
    assert_eq!(pages(&sandbox).len(), 1);
}

#[test]
fn the_end_of_an_allocation_is_known() {
    let sandbox = Sandbox::new();
    let job = sandbox.start(sandbox.command("sleep").arg("1000"));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let mut command = sandbox.command(dbgr());
    command
        .args(["watch", &job.pid.to_string(), "--idle", "1h"])
        .env("SLURM_JOB_END_TIME", (now.as_secs() + 4).to_string());
    let watch = sandbox.start(&mut command);
    watch.expect(Stream::Stderr, "warning: the time limit ends the job in ");
    job.signal(Signal::SIGTERM);
    job.end();
    watch.end().expect_code(0);
}

#[test]
fn ranks_that_are_held_are_not_watched() {
    let sandbox = Sandbox::new();
    let args = [
        "run",
        "-n",
        "2",
        "--on-hang=report:1s",
        "--stop-on-exec",
        "sleep",
        "1000",
    ];
    let run = sandbox.start(&mut sandbox.rally(&args));
    run.expect(Stream::Stderr, "2 ranks held at the first instruction");
    let watches = || sandbox.find("watch").len();
    assert_eq!(watches(), 0);
    sandbox
        .run(&mut sandbox.rally(&["release", &run.pid.to_string()]))
        .expect_code(0);
    run.expect(Stream::Stderr, HANGS);
    run.signal(Signal::SIGTERM);
    run.end();
}

#[test]
fn messages_can_be_json() {
    let sandbox = Sandbox::new();
    let args = [
        "run",
        "-n",
        "2",
        "--json",
        "--on-hang=report:1s",
        "sleep",
        "1000",
    ];
    let run = sandbox.start(&mut sandbox.rally(&args));
    run.expect(Stream::Stderr, "\"id\":\"watch/hang\"");
    run.signal(Signal::SIGTERM);
    for line in run.end().err().lines() {
        assert!(line.starts_with('{') && line.ends_with('}'), "{line}");
    }
}

#[test]
fn the_job_does_not_need_it() {
    let sandbox = Sandbox::new();
    let go = sandbox.path("go");
    let script = format!("while ! test -e {}; do sleep 0.1; done", go.display());
    let args = [
        "run",
        "-n",
        "2",
        "-q",
        "--on-hang=report:1h",
        "/bin/sh",
        "-c",
        &script,
    ];
    let run = sandbox.start(&mut sandbox.rally(&args));
    let watcher = eventually(DEADLINE, || {
        sandbox.find("--idle").first().map(|process| process.pid)
    });
    nix::sys::signal::kill(Pid::from_raw(watcher.unwrap()), Signal::SIGKILL).unwrap();
    sandbox.file("go", "");
    run.end().expect_code(0);
}

#[test]
fn without_dbgr_the_job_runs_and_it_is_said() {
    let sandbox = Sandbox::new();
    let alone = sandbox.path("alone");
    fs::create_dir(&alone).unwrap();
    fs::copy(rally(), alone.join("rally")).unwrap();
    let mut command = sandbox.command(alone.join("rally"));
    command
        .args(["run", "--on-hang=report", "/bin/true"])
        .env("PATH", &alone);
    sandbox
        .run(&mut command)
        .expect_code(0)
        .expect_err(&["warning: the job is not watched: there is no `dbgr`"]);
    // `dbgr` is also found in PATH.
    symlink(dbgr(), sandbox.path("dbgr")).unwrap();
    let mut command = sandbox.command(alone.join("rally"));
    command
        .args(["run", "--on-hang=report", "/bin/true"])
        .env("PATH", sandbox.work());
    sandbox.run(&mut command).expect_code(0);
}

#[test]
fn a_watch_ends_with_the_job_or_with_a_signal() {
    let sandbox = Sandbox::new();
    let job = sandbox.start(sandbox.command("sleep").arg("1000"));
    let pid = job.pid.to_string();
    let watch = |idle: &str| {
        let mut command = sandbox.command(dbgr());
        command.args(["watch", &pid, "--idle", idle, "-o", "hang.html"]);
        sandbox.start(&mut command)
    };
    let signalled = watch("1s");
    signalled.expect(Stream::Stderr, HANGS);
    signalled.signal(Signal::SIGINT);
    signalled.end().expect_code(130);
    assert_eq!(pages(&sandbox), ["hang.html"]);
    let other = watch("1s");
    other.expect(Stream::Stderr, HANGS);
    job.signal(Signal::SIGTERM);
    job.end();
    other.end().expect_code(0);
}

#[test]
fn what_cannot_be_watched_is_said() {
    let sandbox = Sandbox::new();
    let watch = |args: &[&str]| {
        let mut command = sandbox.command(dbgr());
        command.arg("watch").args(args);
        sandbox.run(&mut command)
    };
    watch(&["--name", "no-such-program-anywhere"])
        .expect_code(120)
        .expect_err(&["none of your processes on this node is called"]);
    // Reported immediately, and not only when there is a page to write.
    watch(&["1", "-o", "no/such/directory/hang.html"])
        .expect_code(121)
        .expect_err(&["cannot write `no/such/directory/hang.html`"]);
    watch(&["1", "--idle", "10ms"])
        .expect_code(120)
        .expect_err(&["invalid value '10ms' for '--idle <TIME>': it must be at least 1s"]);
}

/// The name of the page is predictable: in a directory that is writable for others, it may be a link.
#[test]
fn a_page_is_not_written_through_a_link() {
    let sandbox = Sandbox::new();
    sandbox.file("precious", "precious");
    let script = "ln -s precious rally-$$-hang.html; \
                  exec \"$RALLY\" run -n 1 --on-hang=report:1s --grace 0 sleep 1000";
    let run = sandbox.start(&mut sandbox.shell(script));
    run.expect(
        Stream::Stderr,
        "-hang.html`: it is a symbolic link, and links are not followed",
    );
    run.expect(Stream::Stderr, "nothing has moved for 1 s");
    run.signal(Signal::SIGTERM);
    run.end();
    assert_eq!(sandbox.read("precious"), "precious");
}
