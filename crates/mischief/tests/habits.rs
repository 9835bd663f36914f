//! Checks that the helper programs do what the end-to-end tests rely on. (A test here also makes cargo build the binary.)

use std::{
    io::Write,
    os::unix::process::ExitStatusExt,
    process::{Command, Stdio},
};

use mischief::{Digest, check_lines};

fn mischief(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mischief"));
    command.args(args).env("PMI_RANK", "0");
    command
}

#[test]
fn ends_as_told() {
    assert_eq!(mischief(&["exit", "3"]).status().unwrap().code(), Some(3));
    assert_eq!(mischief(&["crash"]).status().unwrap().signal(), Some(11));
    let unknown = mischief(&["no-such-habit"]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(99));
}

#[test]
fn lines_check_themselves() {
    let out = mischief(&["lines", "1000", "200"]).output().unwrap();
    assert_eq!(check_lines(&out.stdout, 1, 1000).unwrap().bytes(), 201_000);
}

#[test]
fn digest_of_stdin() {
    let mut child = mischief(&["echo-stdin-digest"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"some text").unwrap();
    let out = child.wait_with_output().unwrap();
    let expected = format!("rank 0: {}\n", Digest::of(b"some text"));
    assert_eq!(String::from_utf8(out.stdout).unwrap(), expected);
}

#[test]
fn stdout_can_be_closed_and_full() {
    assert!(
        mischief(&["close-stdout-then-live", "1"])
            .status()
            .unwrap()
            .success()
    );
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let out = mischief(&["fill"])
        .stdout(full)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(out.stderr).unwrap(), "28\n");
}
