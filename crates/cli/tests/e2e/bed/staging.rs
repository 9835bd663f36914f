//! How the program gets onto a node, over ssh and on real file systems.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::Path,
    process::Command,
};

use super::{
    expect_no_daemon,
    host::{HOME, Host, PLACES, over},
};
use crate::harness::{Finished, Sandbox, rally};

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

/// Returns a command that runs a rank on each of three nodes, in an allocation of Slurm.
fn in_slurm(sandbox: &Sandbox) -> Command {
    let mut command = sandbox.command("salloc");
    command.args(["-Q", "-w", "n[1-3]"]).arg(rally());
    command.args(["run", "-n", "3", "--map-by", "node", "--wdir", "/", "--"]);
    command.args(["sh", "-c", "echo on $(hostname)"]);
    command.env("SLURM_CONF", std::env::var_os("SLURM_CONF").unwrap());
    command
}

/// One `srun` starts the nodes that have the program at the path of the head, and further ones send it to the others.
#[test]
fn nodes_of_slurm_without_the_program_get_it() {
    let sandbox = Sandbox::new();
    let (mut absent, mut copied) = (Host::new(2), Host::new(3));
    absent.hide_program();
    // The same content with another time of change.
    let program = rally();
    let (program, own) = (program.display().to_string(), "/run/own");
    copied.mount(own, "size=300m");
    copied.run(&format!(
        "cp {program} {own}/rally && mount --bind {own}/rally {program}"
    ));
    copied.undo(&format!("umount -l {program}"));
    for time in ["first", "second"] {
        let ended = sandbox.run(&mut in_slurm(&sandbox));
        assert_eq!(
            (ended.code(), ended.sorted().as_str(), ended.err().as_str()),
            (0, "on n1\non n2\non n3", ""),
            "{time} run"
        );
        expect_no_daemon();
    }
    assert_eq!((absent.copies().len(), copied.copies().len()), (1, 0));
}

#[test]
fn a_node_of_slurm_without_room_for_the_program_is_named() {
    let sandbox = Sandbox::new();
    let mut host = Host::new(2);
    host.hide_program();
    for place in PLACES {
        host.mount(place, READ_ONLY);
    }
    let ended = sandbox.run(&mut in_slurm(&sandbox));
    expect_no_daemon();
    let said = ended.err();
    assert_ne!(ended.code(), 0, "{said}");
    for words in [
        "error: cannot start the daemon on `n2`: the program cannot be stored there",
        "/dev/shm/rally-0: Read-only file system",
        "fine:   2 other nodes can be used",
    ] {
        assert!(said.contains(words), "{said}");
    }
}

/// Changes the identity that the linker has given to a program; size and time stay. A program without one changes at its end.
fn patch(program: &Path) {
    let bytes = fs::read(program).unwrap();
    let note = b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0";
    let at = bytes.windows(note.len()).position(|window| window == note);
    let at = at.map_or(bytes.len() - 1, |at| at + note.len());
    let time = fs::metadata(program).unwrap().modified().unwrap();
    let file = File::options().write(true).open(program).unwrap();
    file.write_all_at(&[!bytes[at]], at as u64).unwrap();
    file.set_modified(time).unwrap();
}

/// The file at the launcher's path has the launcher's size and time, and is another one.
#[test]
fn a_program_of_another_build_is_named() {
    let sandbox = Sandbox::new();
    let mut host = Host::new(1);
    let (program, other) = (rally(), host.path("other"));
    fs::copy(&program, &other).unwrap();
    let time = fs::metadata(&program).unwrap().modified().unwrap();
    File::options()
        .write(true)
        .open(&other)
        .unwrap()
        .set_modified(time)
        .unwrap();
    patch(Path::new(&other));
    let program = program.display().to_string();
    host.undo(&format!("rm {other}"));
    host.run(&format!("mount --bind {other} {program}"));
    host.undo(&format!("umount -l {program}"));
    run(&sandbox, &host).expect_code(123).expect_err(&[
        &format!("cannot start the daemon on `n1`: its program `{program}` is of another build"),
        "help:   give all nodes the same file",
    ]);
}

#[test]
fn a_copy_that_was_changed_is_named() {
    let sandbox = Sandbox::new();
    let mut host = Host::new(1);
    host.hide_program();
    run(&sandbox, &host).expect_code(0);
    let copies = host.copies();
    let copy = copies[0].replace(HOME, &host.path("home"));
    patch(Path::new(&copy));
    run(&sandbox, &host).expect_code(123).expect_err(&[
        &format!("cannot start the daemon on `n1`: its copy of the program was changed after it was stored: `{HOME}/.cache/rally/bin/"),
        "help:   remove it",
    ]);
    host.run(&format!("rm {}", copies[0]));
    run(&sandbox, &host).expect_code(0);
    assert_eq!(host.copies(), copies);
}

/// /tmp belongs to all users: another one may have made the directory of our name, or a link.
#[test]
fn a_cache_of_another_user_is_not_used() {
    let sandbox = Sandbox::new();
    let mut host = Host::new(1);
    host.hide_program();
    host.run("mkdir -p $HOME/.cache/rally/bin && chown -R 65534 $HOME/.cache/rally");
    host.run("mkdir /tmp/theirs && ln -s /tmp/theirs /dev/shm/rally-0");
    host.undo("rm -r /tmp/theirs");
    run(&sandbox, &host).expect_code(0);
    let copies = host.copies();
    assert_eq!(copies.len(), 1);
    assert!(copies[0].starts_with("/tmp/rally-0/bin/"), "{copies:?}");
    host.run("chown 65534 /tmp/rally-0 && mkdir /var/tmp/rally-0 && chown 65534 /var/tmp/rally-0");
    run(&sandbox, &host).expect_code(123).expect_err(&[
        "the program cannot be stored there",
        &format!("{HOME}/.cache/rally: it belongs to another user"),
        "/dev/shm/rally-0: it belongs to another user",
        "/tmp/rally-0: it belongs to another user",
        "/var/tmp/rally-0: it belongs to another user",
    ]);
}
