//! How the program gets onto nodes. A script with the name `ssh` stands for other nodes: it runs the command on this one, with
//! another home directory and another environment.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Command, Stdio},
};

use dvm::bootstrap::stage;
use nix::sys::signal::Signal;

use crate::harness::{DEADLINE, Finished, Running, Sandbox, dbgr, eventually};

const SSH: &str = r#"#!/bin/bash
while [[ $1 == -* ]]; do shift; done
host=$1; shift
home=$HOME/$host
mkdir -p "$home/tmp"
case $host in
endless) exec yes menu ;;
dead*) echo "ssh: connect to host $host port 22: No route to host" >&2; exit 255 ;;
chatty) echo "Welcome to $host"; printf '@rally? no'; echo "motd" >&2 ;;
homeless) home=/nonexistent ;;
esac
exec env -i PATH="$HOME/$host/bin:$HOME/bin:/usr/bin:/bin" HOME="$home" TMPDIR="$HOME/$host/tmp" \
    RALLY_STRESS="$RALLY_STRESS" /bin/bash -c "$*"
"#;

/// The program at the launcher's own path counts as another one, so that nodes need a copy.
const OTHER: &str = r#"#!/bin/sh
[ -e "$TMPDIR/asked" ] && exec /usr/bin/sha256sum
: >"$TMPDIR/asked"
echo "0 -"
"#;

fn program(sandbox: &Sandbox, path: &str, text: &str) -> String {
    let directory = sandbox.path(path);
    fs::create_dir_all(directory.parent().unwrap()).unwrap();
    let file = sandbox.file(path, text);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    file
}

fn nodes() -> Sandbox {
    let sandbox = Sandbox::new();
    program(&sandbox, "ssh", SSH);
    program(&sandbox, "bin/sha256sum", OTHER);
    program(&sandbox, "bin/stat", "#!/bin/sh\nexit 1\n");
    sandbox
}

fn over(sandbox: &Sandbox, hosts: &str) -> Command {
    let ssh = sandbox.path("ssh").display().to_string();
    sandbox.rally(&[
        "run", "--ssh", &ssh, "--host", hosts, "--map-by", "node", "-q",
    ])
}

fn run(sandbox: &Sandbox, hosts: &str) -> Finished {
    sandbox.run(over(sandbox, hosts).args(["--", "echo", "here"]))
}

/// Returns all files below a directory of the sandbox.
fn files(sandbox: &Sandbox, directory: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![sandbox.path(directory)];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.push(path);
            }
        }
    }
    found
}

/// Returns the programs that are stored below a directory, and fails if parts of one are left.
fn stored(sandbox: &Sandbox, directory: &str) -> Vec<PathBuf> {
    let mut found = files(sandbox, directory);
    let work = sandbox.work();
    let is_cached = |path: &PathBuf| {
        let path = path.strip_prefix(&work).unwrap().to_string_lossy();
        path.contains("rally")
    };
    found.retain(is_cached);
    for path in &found {
        assert!(path.ends_with("rally"), "{}", path.display());
        let mode = path
            .parent()
            .unwrap()
            .metadata()
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o700, "{}", path.display());
    }
    found
}

#[test]
fn a_node_without_the_program_gets_it_once() {
    let sandbox = nodes();
    run(&sandbox, "n1,n2").expect_code(0);
    let first: Vec<_> = ["n1", "n2"].map(|node| stored(&sandbox, node)).into();
    assert!(first.iter().all(|found| found.len() == 1), "{first:?}");
    let made = |path: &PathBuf| path.metadata().unwrap().modified().unwrap();
    let before = made(&first[0][0]);
    run(&sandbox, "n1,n2").expect_code(0);
    assert_eq!(made(&first[0][0]), before);
    sandbox.expect_clean();
}

/// The same file is recognized by its size and time, without its hash.
#[test]
fn a_node_with_the_same_file_needs_no_copy_and_no_hash() {
    let sandbox = nodes();
    fs::remove_file(sandbox.path("bin/stat")).unwrap();
    run(&sandbox, "n1").expect_code(0);
    assert_eq!(stored(&sandbox, "n1").len(), 0);
    assert!(
        !sandbox.path("n1/tmp/asked").exists(),
        "a hash was computed"
    );
}

#[test]
fn a_login_shell_may_print_what_it_likes() {
    let sandbox = nodes();
    let ended = run(&sandbox, "chatty").expect_code(0);
    assert!(!ended.out().contains("Welcome"), "{ended:?}");
    ended.expect_err(&[]);
}

#[test]
fn a_node_without_a_home_stores_it_elsewhere() {
    let sandbox = nodes();
    run(&sandbox, "homeless").expect_code(0);
    assert_eq!(stored(&sandbox, "homeless/tmp").len(), 1);
}

#[test]
fn a_damaged_program_in_the_cache_is_replaced() {
    let sandbox = nodes();
    run(&sandbox, "n1").expect_code(0);
    let file = stored(&sandbox, "n1").pop().unwrap();
    fs::write(&file, "#!/bin/sh\nexit 1\n").unwrap();
    fs::remove_file(sandbox.path("n1/tmp/asked")).unwrap();
    run(&sandbox, "n1").expect_code(0);
    assert!(file.metadata().unwrap().len() > 1000);
}

#[test]
fn a_node_of_another_architecture_is_named() {
    let sandbox = nodes();
    let uname = "#!/bin/sh\n[ \"$1\" = -m ] && echo sparc64 || /usr/bin/uname \"$@\"\n";
    program(&sandbox, "sun/bin/uname", uname);
    run(&sandbox, "sun")
        .expect_code(123)
        .expect_err(&["cannot start the daemon on `sun`: it is `Linux sparc64`"]);
    assert_eq!(stored(&sandbox, "sun").len(), 0);
}

#[test]
fn nodes_that_fail_are_named_with_the_words_of_ssh() {
    let sandbox = nodes();
    run(&sandbox, "dead1,dead2,n1")
        .expect_code(123)
        .expect_err(&[
            "cannot start the daemon on `dead[1-2]`: `ssh` exited with code 255",
            "ssh: connect to host HOST port 22: No route to host",
            "check that the node is up",
        ]);
}

/// As with Hydra, ranks get the launcher's environment, and in addition what only their node has. What describes a host or a
/// login stays there.
#[test]
fn ranks_on_a_node_get_the_environment_of_the_launcher_and_of_their_node() {
    let sandbox = nodes();
    let ssh = fs::read_to_string(sandbox.path("ssh")).unwrap();
    let ssh = ssh.replace(
        "exec env -i",
        "umask 027; exec env -i SHARED=node ONLY=node SSH_CONNECTION=node SLURM_STEP_ID=7 PMI_RANK=9",
    );
    program(&sandbox, "ssh", &ssh);
    let names = "SHARED|ONLY|SSH_CONNECTION|SSH_AUTH_SOCK|SLURM_STEP_ID|DISPLAY|HOSTNAME|XDG_RUNTIME_DIR|LEFT";
    let script = format!("env | grep -E '^({names})=' | sort; umask; pwd");
    let mut command = over(&sandbox, "n1");
    command.args(["-n", "1", "--unset-env", "LEFT", "--", "sh", "-c", &script]);
    for (name, value) in [
        ("SHARED", "head"),
        ("SSH_CONNECTION", "head"),
        ("SSH_AUTH_SOCK", "/head"),
        ("DISPLAY", ":0"),
        ("HOSTNAME", "head"),
        ("XDG_RUNTIME_DIR", "/head"),
        ("LEFT", "head"),
    ] {
        command.env(name, value);
    }
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let work = sandbox.work();
    let expected = format!(
        "HOSTNAME={}\nONLY=node\nSHARED=head\nSSH_CONNECTION=node\n0022\n{}\n",
        host.trim_end(),
        work.display()
    );
    sandbox
        .run(&mut command)
        .expect_code(0)
        .expect_out(&expected);
}

/// A job on this machine, which an agent of `dbgr` for another node finds by the name of its program.
fn job(sandbox: &Sandbox) -> (Running, String) {
    let name = format!("sleep-{}", sandbox.marker().replace('/', "-"));
    let copy = sandbox.path(&name);
    fs::copy("/bin/sleep", &copy).unwrap();
    let copy = copy.to_str().unwrap().to_owned();
    let running = sandbox.start(&mut sandbox.rally(&["run", "-n", "2", &copy, "1000"]));
    eventually(DEADLINE, || (sandbox.find(&copy).len() == 2).then_some(())).expect("the ranks run");
    (running, copy)
}

fn stacks(sandbox: &Sandbox, name: &str, options: &[&str]) -> Finished {
    let mut command = sandbox.command(dbgr());
    command.args(["stacks", "--hosts", "n1", "--name", name]);
    sandbox.run(command.args(options)).expect_code(0)
}

#[test]
fn a_node_without_the_debugger_gets_it() {
    let sandbox = nodes();
    let (job, name) = job(&sandbox);
    let ssh = sandbox.path("ssh").display().to_string();
    let shown = stacks(&sandbox, &name, &["--ssh", &ssh]);
    assert!(shown.out().contains("2 [0-1]"), "{shown:?}");
    let is_ours = |path: &PathBuf| path.ends_with("dbgr");
    let cached = files(&sandbox, "n1");
    assert_eq!(cached.iter().filter(|path| is_ours(path)).count(), 1);
    job.signal(Signal::SIGTERM);
    job.end();
    sandbox.expect_clean();
}

#[test]
fn an_agent_may_read_a_file() {
    let sandbox = nodes();
    let (job, name) = job(&sandbox);
    let script = "#!/bin/sh\nshift\nexec \"$@\" </dev/null\n";
    let bare = program(&sandbox, "bare", script);
    let template = format!("{bare} {{host}} {{daemon}} {{file}}");
    let shown = stacks(&sandbox, &name, &["--bootstrap-command", &template]);
    assert!(shown.out().contains("2 [0-1]"), "{shown:?}");
    assert_eq!(files(&sandbox, ".cache"), Vec::<PathBuf>::new());
    job.signal(Signal::SIGTERM);
    job.end();
    sandbox.expect_clean();
}

#[test]
fn a_command_without_input_reads_a_file_that_is_gone_afterwards() {
    let sandbox = nodes();
    let script = "#!/bin/sh\nshift\nexec \"$@\" </dev/null\n";
    let bare = program(&sandbox, "bare", script);
    let template = format!("{bare} {{host}} {{daemon}} {{file}}");
    let mut command = sandbox.rally(&[
        "run",
        "--bootstrap-command",
        &template,
        "--host",
        "n1",
        "-q",
    ]);
    sandbox
        .run(command.args(["--", "echo", "here"]))
        .expect_code(0);
    assert_eq!(files(&sandbox, ".cache"), Vec::<PathBuf>::new());
}

/// A login shell that prints its menu again and again, faster than it is read.
#[test]
fn a_node_that_prints_without_end_stops_nobody() {
    let sandbox = nodes();
    let mut command = over(&sandbox, "endless");
    let run = sandbox.run(command.args(["--timeout", "1s", "--", "echo", "here"]));
    run.expect_code(124);
}

/// What was printed before the daemon joined is no reason.
#[test]
fn a_lost_node_has_the_last_words_of_ssh() {
    let sandbox = nodes();
    let ssh = SSH.replace("exec env -i", "env -i");
    let parting = "echo \"Connection to $host closed by remote host.\" >&2; exit 255";
    program(&sandbox, "ssh", &format!("{ssh}{parting}\n"));
    let script = "kill -9 $(ps -o ppid= -p $$); sleep 60";
    let run = sandbox.run(over(&sandbox, "chatty").args(["--", "sh", "-c", script]));
    let run = run.expect_code(125);
    let reason = "reason: its connection was closed; its last words: Connection to chatty closed by remote host.";
    assert!(run.err().contains(reason), "{run:?}");
    sandbox.expect_clean();
}

/// Nodes that share a command get one standard input. `srun` takes a node that closes it early for broken, and ends the daemons
/// of all others.
#[test]
fn a_node_without_the_program_takes_what_the_others_get() {
    // More than a pipe holds.
    let frame = vec![0; 1 << 20];
    let check = stage::check(&stage::Program {
        size: 1,
        modified: None,
        path: b"/nonexistent/rally".to_vec(),
        argument: "__daemon".to_owned(),
    });
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(String::from_utf8(check).unwrap());
    shell.env("SLURMD_NODENAME", "n2");
    shell.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut shell = shell.spawn().unwrap();
    shell.stdin.take().unwrap().write_all(&frame).unwrap();
    let ended = shell.wait_with_output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(ended.stdout, b"\n@rally absent n2\n");
}
