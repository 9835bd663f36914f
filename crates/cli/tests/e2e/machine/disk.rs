//! A machine whose disk is full.

use std::process::{Child, Command, Stdio};

use super::*;

/// A small file system for the state of machines, in a mount namespace of its own.
struct SmallDisk {
    holder: Child,
}

impl SmallDisk {
    /// Mounts one, and lets all further commands of the sandbox see it.
    fn mount(sandbox: &mut Sandbox) -> Self {
        let is_root = unistd::geteuid().is_root();
        // Other users need a user namespace, in which they are root.
        let unshare = if is_root { "-m" } else { "-rm" };
        let place = sandbox.path(".local");
        fs::create_dir(&place).unwrap();
        let script = "mount -t tmpfs -o size=3m,mode=700 none \"$0\" && : >\"$0/mounted\" && exec sleep infinity";
        let mut command = Command::new("unshare");
        command.args([unshare, "sh", "-c", script]).arg(&place);
        let disk = Self {
            holder: command.stdin(Stdio::null()).spawn().unwrap(),
        };
        let pid = disk.holder.id();
        let mounted = format!("/proc/{pid}/root{}/mounted", place.display());
        let is_there = || fs::exists(&mounted).unwrap_or(false).then_some(());
        assert!(
            eventually(DEADLINE, is_there).is_some(),
            "nothing is mounted"
        );
        let pid = pid.to_string();
        let mut words = vec!["nsenter", "--target", &pid, "--mount"];
        if !is_root {
            words.extend(["--user", "--preserve-credentials"]);
        }
        // The directory as it is inside.
        let work = sandbox.work().display().to_string();
        words.extend(["env", "-C", &work]);
        sandbox.run_through(&words);
        disk
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // It is gone already if somebody has killed it.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Submits jobs until one is refused because there is no room. Returns the numbers of those that were taken.
fn submit_until_full(machine: &Machine<'_>) -> Vec<String> {
    let mut told = Vec::new();
    // The store may have some room of its own, which large jobs use up soon.
    let large = format!("LARGE={}", "x".repeat(100_000));
    let args = ["submit", "--parsable", "--hold", "-n", "1", "--set-env"];
    let refused = eventually(DEADLINE, || {
        let submitted = machine.run(&[&args[..], &[&large, "true"]].concat());
        if submitted.code() != 0 {
            return Some(submitted);
        }
        told.push(submitted.out().trim_end().to_owned());
        None
    });
    let refused = refused.expect("the disk is never full").expect_code(123);
    refused.expect_err(&[
        "the machine cannot store the job, and has not taken it",
        "No space left on device",
        "make room in the directory of the machine",
    ]);
    told
}

#[test]
fn a_full_disk_refuses_jobs_and_loses_none() {
    let mut sandbox = Sandbox::new();
    let disk = SmallDisk::mount(&mut sandbox);
    let machine = Machine::up(&sandbox, &["--host", "localhost:2"]);
    let waits = "until test -e go; do sleep 0.01; done; echo ran";
    let first = machine.submit(&["-n", "1", "sh", "-c", waits]);
    machine.expect_state(&first, "running");
    let shell = |script: &str| sandbox.run(&mut sandbox.shell(script)).expect_code(0);
    shell(
        "dd if=/dev/zero of=.local/fill bs=4k count=1000 2>/dev/null; test $(stat -c %s .local/fill) -lt 4000000",
    );
    let taken = submit_until_full(&machine);
    let is_told = |status: &str| status.contains("store: cannot be written: ");
    let status = machine.out(&["status"]);
    assert!(
        is_told(&status) && status.contains("No space left on device"),
        "{status}"
    );
    // The job that runs goes on, and its end is known although it cannot be stored.
    assert_eq!(machine.states()[&first], "running");
    sandbox.file("go", "");
    machine.run(&["wait", &first]).expect_code(0);
    assert_eq!(machine.out(&["output", &first]), "ran");

    shell("rm .local/fill");
    let again = eventually(DEADLINE, || {
        let submitted = machine.run(&["submit", "--parsable", "-n", "1", "true"]);
        (submitted.code() == 0).then(|| submitted.out().trim_end().to_owned())
    });
    let again = again.expect("jobs are taken again");
    machine.run(&["wait", &again]).expect_code(0);
    let status = machine.out(&["status"]);
    assert!(!is_told(&status), "{status}");
    let expected = machine.states();
    machine.kill();

    let machine = Machine::up(&sandbox, &["--host", "localhost:2"]);
    assert_eq!(machine.states(), expected);
    assert_eq!(expected[&first], "succeeded");
    assert_eq!(expected[&again], "succeeded");
    for (job, state) in &expected {
        // Jobs that were refused are listed as canceled.
        let is_right = match state.as_str() {
            "held" => taken.contains(job),
            "canceled" => !taken.contains(job),
            _ => [&first, &again].contains(&job),
        };
        assert!(is_right, "job {job} is {state}");
    }
    assert_eq!(machine.out(&["output", &first]), "ran");
    machine.down();
    drop(disk);
}
