//! How the program gets onto a node, over ssh and on real file systems.

use super::{
    expect_no_daemon,
    host::{HOME, Host, over},
};
use crate::harness::{Finished, Sandbox};

fn run(sandbox: &Sandbox, host: &Host) -> Finished {
    let args = ["-n", "1", "--", "echo", "here"];
    let ended = sandbox.run(&mut over(sandbox, &host.name(), &args));
    expect_no_daemon();
    ended
}

/// A file system on the node: a directory with options for its mount.
type Mount = (&'static str, &'static str);

const NOEXEC: &str = "noexec";
/// A file system on which the program does not fit.
const SMALL: &str = "size=1m";
const READ_ONLY: &str = "ro";

#[test]
fn the_program_is_stored_in_the_first_directory_that_takes_it() {
    let cases: &[(&str, &[Mount], &str)] = &[
        ("absent", &[], "$HOME/.cache/rally/bin/"),
        (
            "noexec",
            &[("$HOME/.cache", NOEXEC)],
            "/dev/shm/rally-0/bin/",
        ),
        (
            "no space",
            &[("$HOME/.cache", SMALL)],
            "/dev/shm/rally-0/bin/",
        ),
        (
            "no home",
            &[("$HOME", READ_ONLY), ("/dev/shm", NOEXEC)],
            "/tmp/rally-0/bin/",
        ),
        (
            "only /var/tmp",
            &[
                ("$HOME/.cache", SMALL),
                ("/dev/shm", NOEXEC),
                ("/tmp", READ_ONLY),
            ],
            "/var/tmp/rally-0/bin/",
        ),
    ];
    for (name, mounts, expected) in cases {
        let sandbox = Sandbox::new();
        let mut host = Host::new(1);
        host.hide_program();
        for (at, options) in *mounts {
            host.mount(at, options);
        }
        for time in ["first", "second"] {
            let ended = run(&sandbox, &host);
            assert_eq!(
                (ended.code(), ended.out().as_str(), ended.err().as_str()),
                (0, "here\n", ""),
                "{name}, {time} run"
            );
        }
        let copies = host.copies();
        let [copy] = &copies[..] else {
            panic!("{name}: {copies:?}");
        };
        let copy = copy.replace(HOME, "$HOME");
        assert!(
            copy.starts_with(expected) && copy.ends_with("/rally"),
            "{name}: {copy}"
        );
    }
}

/// The second run starts the copy of the first.
#[test]
fn a_copy_is_used_again() {
    let sandbox = Sandbox::new();
    let mut host = Host::new(1);
    host.hide_program();
    run(&sandbox, &host).expect_code(0);
    let copies = host.copies();
    let facts = || host.run(&format!("stat -c '%i %y %s' {}", copies.join(" ")));
    let before = facts();
    run(&sandbox, &host).expect_code(0);
    assert_eq!((facts(), host.copies()), (before, copies));
}

/// A node whose file system was full while it took the program, or a program that somebody has changed.
#[test]
fn a_damaged_copy_is_replaced() {
    let sandbox = Sandbox::new();
    let mut host = Host::new(1);
    host.hide_program();
    run(&sandbox, &host).expect_code(0);
    let copies = host.copies();
    host.run(&format!("truncate -s 1000000 {}", copies.join(" ")));
    run(&sandbox, &host).expect_code(0).expect_out("here\n");
    assert_eq!(host.copies(), copies);
    let size = host.run(&format!("wc -c <{}", copies.join(" ")));
    assert!(size.trim().parse::<u64>().unwrap() > 1_000_000, "{size}");
}
