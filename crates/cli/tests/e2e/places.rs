//! The directory in which a running job is recorded, and how jobs are found if another user blocks its usual name.

use std::{
    fs::{self, DirBuilder},
    os::unix::{fs::DirBuilderExt, net::UnixDatagram},
    process::Command,
};

use crate::{
    harness::{DEADLINE, Sandbox, Stream, eventually, testdata},
    pmix,
};

/// Another user owns the directory of the usual name. `rally` has neither a runtime directory of its user nor one in
/// /dev/shm.
const SQUATTED: &str = "
    mount -t tmpfs none /dev/shm
    name=/dev/shm/rally-$(id -u)
    mkdir -m 700 $name && chown 12345 $name
    unset XDG_RUNTIME_DIR";

/// Returns a script with its own file systems. `None` if we may not mount.
fn alone(sandbox: &Sandbox, script: &str) -> Option<Command> {
    let probe = Command::new("unshare").args(["-m", "true"]).output();
    // Only root may mount.
    if !probe.is_ok_and(|output| output.status.success()) {
        return None;
    }
    let mut command = sandbox.command("unshare");
    command.args(["-m", "sh", "-e", "-c", script]);
    Some(command)
}

#[test]
fn held_ranks_are_found_although_somebody_has_the_usual_name() {
    let sandbox = Sandbox::new();
    let script = format!(
        r#"{SQUATTED}
        "$RALLY" run -n 2 --stop-on-exec echo ran &
        until "$RALLY" release 2>>tries; do sleep 0.05; done
        wait $!
        ls /dev/shm"#
    );
    let Some(mut command) = alone(&sandbox, &script) else {
        return;
    };
    let user = nix::unistd::Uid::effective();
    let run = sandbox.run(&mut command).expect_code(0).expect_err(&[
        "warning: the record of this job on",
        &format!("`/dev/shm/rally-{user}` belongs to user 12345"),
    ]);
    let out = run.out();
    assert!(out.contains("released ranks 0-1\n"), "{run:?}");
    assert_eq!(out.matches("ran\n").count(), 2, "{run:?}");
    // The replacement directory is removed with the job.
    assert!(out.ends_with(&format!("\nrally-{user}\n")), "{run:?}");
}

#[test]
fn what_a_killed_job_left_is_ended_although_somebody_has_the_usual_name() {
    let sandbox = Sandbox::new();
    let script = format!(
        r#"{SQUATTED}
        "$RALLY" run -q -n 1 sh -c 'setsid sleep 1000 & echo $! >left; echo $PPID >controller; exec sleep 1000' &
        until [ -s controller ]; do sleep 0.02; done
        controller=$(cat controller)
        kill -KILL $! $(ps -o ppid= -p $controller) $controller
        while ls -d $name.* >>tries 2>&1; do "$RALLY" run -q -n 1 true; done
        ls /dev/shm"#
    );
    let Some(mut command) = alone(&sandbox, &script) else {
        return;
    };
    let user = nix::unistd::Uid::effective();
    sandbox
        .run(&mut command)
        .expect_code(0)
        .expect_out(&format!("rally-{user}\n"));
}

/// A directory that others can enter is not used. A note says so, except with `-q`.
#[test]
fn an_open_directory_is_got_round() {
    let sandbox = Sandbox::new();
    let runtime = sandbox.path("runtime");
    fs::create_dir(&runtime).unwrap();
    DirBuilder::new()
        .mode(0o755)
        .create(runtime.join("rally"))
        .unwrap();
    let run = |options: &[&str]| {
        let mut command = sandbox.rally(&["run", "-n", "1"]);
        command.args(options).arg("true");
        command.env("XDG_RUNTIME_DIR", &runtime);
        sandbox.run(&mut command).expect_code(0)
    };
    run(&[]).expect_err(&["is open to other users (mode 755); `chmod 700` closes it"]);
    assert_eq!(run(&["-q"]).err(), "");
}

/// The path of a socket is limited to 107 bytes, that of the directory is not.
#[test]
fn a_long_runtime_directory_is_no_obstacle() {
    let sandbox = Sandbox::new();
    let runtime = sandbox.path(&"long".repeat(40));
    fs::create_dir(&runtime).unwrap();
    let mut command = sandbox.rally(&["run", "-n", "1", "--stop-on-exec", "echo", "ran"]);
    command.env("XDG_RUNTIME_DIR", &runtime);
    let job = sandbox.start(&mut command);
    job.expect(Stream::Stderr, "held");
    let released = eventually(DEADLINE, || {
        let mut release = sandbox.rally(&["release"]);
        release.args([job.pid.to_string()]);
        release.env("XDG_RUNTIME_DIR", &runtime);
        let released = sandbox.run(&mut release);
        (released.code() == 0).then_some(())
    });
    released.expect("it is found");
    let job = job.end().expect_code(0).expect_out("ran\n");
    assert!(!job.err().contains("warning"), "{job:?}");
}

/// Devices of its own, with the link `log` to a socket of the test, or to nothing.
const OWN_DEVICES: &str = r#"
    mkdir dev
    mount -t tmpfs none dev
    for one in /dev/*; do
        to=dev/${one##*/}
        if [ -L "$one" ]; then cp -P "$one" $to
        elif [ -d "$one" ]; then mkdir $to && mount --rbind "$one" $to
        elif [ -c "$one" ]; then : >$to && mount --bind "$one" $to
        fi
    done
    ln -sfn $PWD/syslog dev/log
    mount --rbind dev /dev"#;

/// What processes log to the syslog arrives at the socket of the node. Without it they are told so.
#[test]
fn lines_for_the_syslog_arrive() {
    let sandbox = Sandbox::new();
    let program = pmix::compiled_from(&testdata("pmix/syslog.c"));
    let run = |options: &str| {
        let script = format!(r#"{OWN_DEVICES}; exec "$RALLY" run {options} "$PROGRAM""#);
        let mut command = alone(&sandbox, &script)?;
        command.env("PROGRAM", &program);
        let run = sandbox.run(&mut command).expect_code(0);
        fs::remove_dir(sandbox.path("dev")).unwrap();
        Some(run)
    };
    let Some(without) = run("-n 1") else {
        return;
    };
    // NOT_FOUND, and PARTIAL_SUCCESS because a part is on stderr.
    without
        .expect_out("0: either -46, local -46, global -46, both -52\n")
        .expect_err(&["shown"]);
    let syslog = UnixDatagram::bind(sandbox.path("syslog")).unwrap();
    syslog.set_nonblocking(true).unwrap();
    for nodes in ["-n 1", "-n 2 --bootstrap fork --nodes 2 --per-node 1"] {
        let run = run(nodes).expect("we may mount");
        let out = run.out();
        assert!(
            out.contains("0: either 0, local 0, global 0, both 0\n"),
            "{run:?}"
        );
        let mut lines = Vec::new();
        let mut bytes = [0; 1024];
        while let Ok(length) = syslog.recv(&mut bytes) {
            lines.push(String::from_utf8_lossy(&bytes[..length]).into_owned());
        }
        for line in [
            ("<11>", " rally: rally-", r"@1:0: either\nof them"),
            ("<30>", " rally: rally-", "@1:0: local"),
            (
                "<30>",
                " rally: 2026-11-21T11:35:48.000Z rally-",
                "@1:0: global",
            ),
            ("<11>", " rally: rally-", "@1:0: last"),
        ] {
            let (priority, source, text) = line;
            let is_it = |line: &&String| {
                line.starts_with(priority) && line.contains(source) && line.ends_with(text)
            };
            assert_eq!(lines.iter().filter(is_it).count(), 1, "{line:?} {lines:?}");
        }
        let ranks = out.lines().count();
        assert_eq!(lines.len(), 4 * ranks, "{lines:?}");
    }
}
