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

/// `pbsdsh -o -h HOST -- COMMAND...` of Torque runs a command on a host of the job. It has no standard input.
const PBSDSH: &str = r#"#!/bin/sh
[ "$1 $2" = '-o -h' ] && [ "$4" = -- ] || { echo "pbsdsh: bad options: $*" >&2; exit 255; }
host=$3; shift 4
words=
for word do words="$words '$word'"; done
exec ssh -oBatchMode=yes "$host" "exec $words" </dev/null
"#;

/// `kubectl exec [-i] POD -- COMMAND...` runs a command in a container, with the container's variables. Without `-i` the command has an
/// empty standard input, and without `-t` no terminal.
const KUBECTL: &str = r#"#!/bin/sh
[ "$1" = exec ] || { echo "error: unknown command \"$1\"" >&2; exit 1; }
shift; input=no
[ "$1" = -i ] && { input=yes; shift; }
pod=$1; shift
[ "$1" = -- ] || { echo 'error: use -- before the command' >&2; exit 1; }
shift
getent hosts "$pod" >/dev/null || { echo "Error from server (NotFound): pods \"$pod\" not found" >&2; exit 1; }
words=
for word do words="$words '$word'"; done
[ $input = yes ] || exec </dev/null
exec ssh -T -oBatchMode=yes "$pod" "exec env -i PATH=/usr/bin:/bin HOME=/root $words"
"#;

/// `docker exec [-i] CONTAINER COMMAND...` does the same, without a word between the container and the command.
const DOCKER: &str = r#"#!/bin/sh
[ "$1" = exec ] || { echo "docker: '$1' is not a docker command." >&2; exit 1; }
shift; input=no
[ "$1" = -i ] && { input=yes; shift; }
container=$1; shift
case $1 in -*) echo "exec: \"$1\": executable file not found in \$PATH" >&2; exit 127 ;; esac
words=
for word do words="$words '$word'"; done
[ $input = yes ] || exec </dev/null
exec ssh -T -oBatchMode=yes "$container" "exec env -i PATH=/usr/bin:/bin HOME=/root $words"
"#;

/// `pbsdsh -n INDEX -- COMMAND...` runs a command on the host in a line of the file of nodes, from 0, with the variables of the job. The
/// command has no standard input, and prints into the output of the job. `pbsdsh` itself prints its exit status, and exits with code 0.
const PBSDSH_N: &str = r#"#!/bin/sh
[ -n "$PBS_ENVIRONMENT" ] || { echo 'pbsdsh: not executing under PBS' >&2; exit 1; }
[ "$1" = -n ] && [ "$3" = -- ] || { echo "Usage: pbsdsh [-n node_index][-s][-v][-o] -- program [args...]" >&2; exit 1; }
host=$(sed -n "$(($2 + 1))p" "$PBS_NODEFILE"); shift 3
words=
for word do words="$words '$word'"; done
ssh -oBatchMode=yes "$host" "exec env -i HOME=/root PATH=/usr/bin:/bin PBS_ENVIRONMENT=PBS_BATCH $words" </dev/null >>"$JOB_OUTPUT" 2>&1
status=$?
[ $status = 0 ] || echo "pbsdsh: task 0x00000000 exit status $status"
"#;

/// Puts a program into a directory of the sandbox, which is the first of its `PATH`.
pub(super) fn with_program(sandbox: &Sandbox, command: &mut Command, name: &str, text: &str) {
    let directory = sandbox.path("bin");
    fs::create_dir_all(&directory).unwrap();
    let file = directory.join(name);
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", directory.display()));
}

pub(super) const SAY: [&str; 4] = ["--", "sh", "-c", "echo on $(hostname)"];

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

#[test]
fn pbsdsh_starts_the_daemons_in_a_job_of_pbs() {
    let sandbox = Sandbox::new();
    let shared = tempfile::tempdir_in(rally().parent().unwrap()).unwrap();
    let nodes = sandbox.path("nodes");
    fs::write(&nodes, "n1\nn1\nn2\nn3\n").unwrap();
    let in_job = |options: &[&str]| {
        let mut command = sandbox.rally(&["run", "--wdir", "/", "--bootstrap", "pbs"]);
        command.args(options).args(SAY);
        with_program(&sandbox, &mut command, "pbsdsh", PBSDSH_N);
        command
            .env("PBS_JOBID", "9.server")
            .env("PBS_ENVIRONMENT", "PBS_BATCH")
            .env("PBS_NODEFILE", &nodes)
            .env("JOB_OUTPUT", sandbox.path("output"))
            .env("XDG_CACHE_HOME", shared.path())
            .env("RALLY_SSH", "false");
        command
    };
    let ended = sandbox.run(&mut in_job(&[]));
    assert_eq!(
        (ended.code(), ended.sorted().as_str(), ended.err().as_str()),
        (0, "on n1\non n1\non n2\non n3", "")
    );
    let ended = sandbox.run(&mut in_job(&["--host", "n3"]));
    assert_eq!((ended.code(), ended.out().as_str()), (0, "on n3\n"));
    let ended = sandbox
        .run(&mut in_job(&["--explain", "--dry-run"]))
        .expect_code(0);
    let why = "daemons are started by `pbsdsh`: the nodes belong to a job of PBS\n";
    assert!(ended.out().contains(why), "{ended:?}");
    // A node whose daemon fails: its words are in the output of the job.
    let mut host = Host::new(2);
    host.hide_program();
    let ended = sandbox.run(&mut in_job(&[])).expect_code(123);
    ended.expect_err(&[
        "cannot start the daemon on `n2`: `pbsdsh` exited with code 0",
        "task 0x00000000 exit status 127",
        "fine:   2 other nodes can be used",
        "try `pbsdsh -n 2 -- true`",
    ]);
    assert!(sandbox.read("output").contains("No such file or directory"));
    expect_no_daemon();
    let left = fs::read_dir(shared.path().join("rally")).unwrap().count();
    assert_eq!(left, 0);
}

/// One container has the program, and the other one gets a copy.
#[test]
fn containers_are_nodes_too() {
    for (name, text, template) in [
        ("kubectl", KUBECTL, "kubectl exec -i {host} -- {daemon}"),
        ("docker", DOCKER, "docker exec -i {host} {daemon}"),
    ] {
        let sandbox = Sandbox::new();
        let mut host = Host::new(2);
        host.hide_program();
        let args = [&["-n", "2", "--bootstrap-command", template], &SAY[..]].concat();
        let mut command = over(&sandbox, "n1,n2", &args);
        with_program(&sandbox, &mut command, name, text);
        let ended = sandbox.run(&mut command);
        assert_eq!(
            (ended.code(), ended.sorted().as_str(), ended.err().as_str()),
            (0, "on n1\non n2", ""),
            "{name}"
        );
        assert_eq!(host.copies().len(), 1, "{name}");
        expect_no_daemon();
    }
}

#[test]
fn a_container_that_cannot_be_used_is_named() {
    let sandbox = Sandbox::new();
    let cases = [
        (
            "kubectl exec -i {host} -- {daemon}",
            "n1,none",
            "pods \"none\" not found",
        ),
        // Without `-i`, the shell reads nothing, and ends.
        (
            "kubectl exec {host} -- {daemon}",
            "n1",
            "`kubectl` exited with code 0",
        ),
    ];
    for (template, hosts, words) in cases {
        let args = [&["--bootstrap-command", template], &SAY[..]].concat();
        let mut command = over(&sandbox, hosts, &args);
        with_program(&sandbox, &mut command, "kubectl", KUBECTL);
        let said = sandbox.run(&mut command).expect_code(123);
        said.expect_err(&["cannot start the daemon on `", words, "kubectl exec"]);
        expect_no_daemon();
    }
}
