//! The starters of resource managers that are not free: stand-ins do what the manuals of `blaunch` and `pbsdsh` say.

use std::{fs, os::unix::fs::PermissionsExt as _, process::Command};

use super::{
    expect_no_daemon,
    host::{Host, over},
};
use crate::harness::{Sandbox, rally};

/// `blaunch [-no-shell] HOST COMMAND...` of LSF runs a command on a host of the job, like rsh: standard input, output and error are
/// passed on, and with `-no-shell` no shell interprets the words. It runs only inside of a job, and only on its hosts.
const BLAUNCH: &str = r#"#!/bin/sh
[ -n "$LSB_JOBID" ] || { echo 'blaunch: not in a job' >&2; exit 255; }
[ "$1" = -no-shell ] || { echo 'the stand-in needs -no-shell' >&2; exit 255; }
host=$2; shift 2
case " $LSB_MCPU_HOSTS " in *" $host "*) ;; *) echo "blaunch: $host is not a host of the job" >&2; exit 255 ;; esac
words=
for word do words="$words '$word'"; done
exec ssh -oBatchMode=yes "$host" "exec $words"
"#;

/// `pbsdsh -o -h HOST -- COMMAND...` of PBS runs a command on a host of the job. It has no standard input.
const PBSDSH: &str = r#"#!/bin/sh
[ "$1 $2" = '-o -h' ] && [ "$4" = -- ] || { echo "pbsdsh: bad options: $*" >&2; exit 255; }
host=$3; shift 4
words=
for word do words="$words '$word'"; done
exec ssh -oBatchMode=yes "$host" "exec $words" </dev/null
"#;

/// Puts a program into a directory of the sandbox, which is the first of its `PATH`.
fn with_program(sandbox: &Sandbox, command: &mut Command, name: &str, text: &str) {
    let directory = sandbox.path("bin");
    fs::create_dir_all(&directory).unwrap();
    let file = directory.join(name);
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", directory.display()));
}

const SAY: [&str; 4] = ["--", "sh", "-c", "echo on $(hostname)"];

/// One node has the program, and one gets a copy, through `blaunch`.
#[test]
fn blaunch_starts_the_daemons_in_a_job_of_lsf() {
    let sandbox = Sandbox::new();
    let mut host = Host::new(2);
    host.hide_program();
    let mut command = sandbox.rally(&["run", "--wdir", "/"]);
    command.args(SAY);
    with_program(&sandbox, &mut command, "blaunch", BLAUNCH);
    command
        .env("LSB_JOBID", "9")
        .env("LSB_MCPU_HOSTS", "n1 1 n2 2");
    // ssh, unless blaunch calls it, would fail.
    command.env("RALLY_SSH", "false");
    let ended = sandbox.run(&mut command);
    assert_eq!(
        (ended.code(), ended.sorted().as_str(), ended.err().as_str()),
        (0, "on n1\non n2\non n2", "")
    );
    assert_eq!(host.copies().len(), 1);
    expect_no_daemon();
}

#[test]
fn a_host_that_blaunch_refuses_is_named_with_its_words() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.rally(&["run", "--bootstrap", "lsf", "--wdir", "/"]);
    command.args(SAY);
    let refuse = "#!/bin/sh\necho \"blaunch: $2: host is closed\" >&2\nexit 255\n";
    with_program(&sandbox, &mut command, "blaunch", refuse);
    command
        .env("LSB_JOBID", "9")
        .env("LSB_MCPU_HOSTS", "n1 1 n2 1");
    let said = sandbox.run(&mut command).err();
    for words in [
        "cannot start the daemon on `n[1-2]`: `blaunch` exited with code 255",
        "host is closed",
    ] {
        assert!(said.contains(words), "{said}");
    }
    expect_no_daemon();
}

#[test]
fn ssh_starts_the_daemons_in_a_job_of_pbs() {
    let sandbox = Sandbox::new();
    let nodes = sandbox.path("nodes");
    fs::write(&nodes, "n1\nn1\nn2\n").unwrap();
    let mut command = sandbox.rally(&["run", "--wdir", "/"]);
    command.args(SAY);
    command
        .env("PBS_JOBID", "9.server")
        .env("PBS_NODEFILE", nodes);
    let ended = sandbox.run(&mut command);
    assert_eq!(
        (ended.code(), ended.sorted().as_str(), ended.err().as_str()),
        (0, "on n1\non n1\non n2", "")
    );
    expect_no_daemon();
}

/// The frame is in a file of a directory that all nodes see; nothing of it is left.
#[test]
fn pbsdsh_starts_daemons_without_standard_input() {
    let sandbox = Sandbox::new();
    // Each node has its own /tmp; the directory of the build is shared.
    let shared = tempfile::tempdir_in(rally().parent().unwrap()).unwrap();
    let cache = shared.path();
    let template = "pbsdsh -o -h {host} -- {daemon} {file}";
    let args = [&["-n", "2", "--bootstrap-command", template], &SAY[..]].concat();
    let mut command = over(&sandbox, "n1,n2", &args);
    with_program(&sandbox, &mut command, "pbsdsh", PBSDSH);
    command.env("XDG_CACHE_HOME", cache);
    let ended = sandbox.run(&mut command);
    assert_eq!(
        (ended.code(), ended.sorted().as_str(), ended.err().as_str()),
        (0, "on n1\non n2", "")
    );
    expect_no_daemon();
    let left = fs::read_dir(cache.join("rally")).unwrap().count();
    assert_eq!(
        left,
        0,
        "files with a secret are left in {}",
        cache.display()
    );
}
