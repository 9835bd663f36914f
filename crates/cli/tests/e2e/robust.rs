//! Odd surroundings: what was left by others, what we are started with, files that are no programs.

use std::{
    fs::{self, DirBuilder, File},
    os::unix::fs::DirBuilderExt,
    path::PathBuf,
    process::Command,
};

use crate::harness::{CLEAN_WITHIN, Running, Sandbox, eventually};

/// A record and a process that carries its name, of a controller that nobody here can see.
struct Hidden {
    path: PathBuf,
    process: Running,
}

/// Higher than any pid can be.
const OWNER: &str = "2000000000.1";

fn hidden(sandbox: &Sandbox) -> Hidden {
    let directory = sandbox.path("run");
    let rally = directory.join("rally");
    fs::create_dir(&directory).unwrap();
    DirBuilder::new().mode(0o700).create(&rally).unwrap();
    let path = rally.join(OWNER);
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

/// Its pid may mean nothing to us: that of another pid namespace.
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
        // Only root may make one.
        return;
    }
    let mut command = sandbox.command("unshare");
    command.args(namespace).arg(crate::harness::rally()).args([
        "run",
        "-n",
        "2",
        "sh",
        "-c",
        ": >ready-$PMI_RANK; while ! [ -e go ]; do sleep 0.01; done; echo done",
    ]);
    let inner = sandbox.start(&mut command);
    let ready = || (0..2).all(|rank| sandbox.path(&format!("ready-{rank}")).exists());
    eventually(CLEAN_WITHIN * 10, || ready().then_some(())).expect("both ranks run");
    sandbox
        .run_rally(&["run", "-n", "1", "/bin/true"])
        .expect_code(0);
    sandbox.file("go", "");
    inner.end().expect_code(0).expect_out("done\ndone\n");
}
