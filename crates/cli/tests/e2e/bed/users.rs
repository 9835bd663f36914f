//! Machines of several users on one host. Only root can act as two users, so that this runs on the test bed, which needs root and is
//! counted as skipped where there is none.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, chown},
    path::Path,
};

use crate::{
    harness::{Sandbox, rally},
    machine::Machine,
};

const NOBODY: u32 = 65_534;

/// Connects to a socket, and prints how many bytes come before the end, at most 4.
const CONNECT: &str = r#"
import socket, sys
with socket.socket(socket.AF_UNIX) as s:
    s.settimeout(60)
    s.connect(sys.argv[1])
    try:
        s.sendall(b"RLLY")
        print(len(s.recv(4)))
    except (ConnectionResetError, BrokenPipeError):
        print(0)
"#;

#[test]
fn a_user_neither_finds_nor_reaches_the_machine_of_another_one() {
    let (ours, theirs) = (Sandbox::new(), Sandbox::new());
    let machine = Machine::up(&ours, &["--default"]);
    let program = theirs.path("rally");
    fs::copy(rally(), &program).unwrap();
    let root = theirs.work().parent().unwrap().to_owned();
    let own = |path: &Path| chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    for entry in fs::read_dir(&root).unwrap() {
        own(&entry.unwrap().path());
    }
    own(&root);
    let as_nobody = |program: &Path, args: &[&str]| {
        let mut command = theirs.command("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(program).args(args);
        command
    };
    let unknown = theirs
        .run(&mut as_nobody(&program, &["queue"]))
        .expect_code(120);
    unknown.expect_err(&["no machine runs on this host"]);
    let alone = theirs.run(&mut as_nobody(&program, &["run", "-n", "1", "true"]));
    assert_eq!(alone.expect_code(0).err(), "");

    // The path in hand, and all permissions on the way.
    let state = ours.path(".local/state/rally");
    let host = ours.run(ours.command("uname").arg("-n")).out();
    let directory = state.join(host.trim()).join("main");
    let control = directory.join("control");
    let open =
        |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    for path in directory
        .ancestors()
        .take_while(|path| *path != Path::new("/tmp"))
    {
        open(path, 0o755);
    }
    open(&control, 0o666);
    let mut named = as_nobody(&program, &["queue", "--on-machine", "main"]);
    let named = theirs.run(named.env("RALLY_STATE_DIR", &state));
    assert_eq!(named.expect_code(120).out(), "");
    let script = theirs.file("connect.py", CONNECT);
    let control = control.to_str().unwrap();
    let python = Path::new("python3");
    let refused = theirs.run(&mut as_nobody(python, &[&script, control]));
    assert_eq!(refused.expect_code(0).out(), "0\n");
    let mut own = ours.command(python);
    let heard = ours.run(own.args([&script, control])).expect_code(0);
    assert_eq!(heard.out(), "4\n", "the script cannot fail");
    for path in directory.ancestors().take(2) {
        open(path, 0o700);
    }
    machine.down();
}
