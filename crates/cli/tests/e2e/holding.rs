//! Ranks held at the points that the user chose, and released by `rally release`.

use std::{
    fs,
    io::Write as _,
    os::{fd::AsFd as _, unix::net::UnixStream},
    path::PathBuf,
    process::Command,
};

use dvm::proto::{FromFront, JobRef, ToFront};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use runtime::{ask::Inquirer, link::FrontLink};

use crate::harness::{DEADLINE, Running, Sandbox, Stream, eventually};

/// Gives a test its own directory in which `rally release` finds jobs, separate from other tests.
fn private(sandbox: &Sandbox, command: &mut Command) {
    command.env("XDG_RUNTIME_DIR", sandbox.work());
}

fn start(sandbox: &Sandbox, arguments: &[&str]) -> Running {
    let mut command = sandbox.rally(arguments);
    private(sandbox, &mut command);
    let run = sandbox.start(&mut command);
    run.expect(Stream::Stderr, " held ");
    run
}

fn release(sandbox: &Sandbox, arguments: &[&str]) -> crate::harness::Finished {
    let mut command = sandbox.rally(&["release"]);
    command.args(arguments);
    private(sandbox, &mut command);
    sandbox.run(&mut command)
}

#[test]
fn some_are_held_and_let_go_one_by_one() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.rally(&["run", "-n", "4", "--stop-on-exec=1,3"]);
    command.args(["sh", "-c", "echo ran $RALLY_RANK"]);
    private(&sandbox, &mut command);
    let run = sandbox.start(&mut command);
    run.expect(Stream::Stderr, "2 ranks held at the first instruction");
    run.expect(Stream::Stdout, "ran 0\n");
    run.expect(Stream::Stdout, "ran 2\n");
    let front = run.pid.to_string();
    release(&sandbox, &[&front, "--ranks", "3"])
        .expect_code(0)
        .expect_out(&format!(
            "job {front}: released rank 3, still held rank 1\n"
        ));
    run.expect(Stream::Stdout, "ran 3\n");
    assert!(!run.so_far(Stream::Stdout).contains("ran 1"));
    let refused = release(&sandbox, &[&front, "--ranks", "3"]).expect_code(120);
    assert!(refused.err().contains("rank 3 of job"), "{refused:?}");
    // The only job needs no name.
    let said = release(&sandbox, &["--message-format", "json"]).expect_code(0);
    let said = said.out();
    assert!(said.contains("\"let_go\":{\"count\":"), "{said}");
    let run = run.end().expect_code(0);
    assert_eq!(run.sorted(), "ran 0\nran 1\nran 2\nran 3");
    let refused = release(&sandbox, &[&front, "--message-format=json"]).expect_code(120);
    let err = refused.err();
    assert!(err.starts_with('{') && err.contains("release/"), "{err}");
}

#[test]
fn in_init_ranks_have_their_library() {
    let sandbox = Sandbox::new();
    let program = crate::pmix::program("init_once");
    let program = program.to_str().unwrap();
    let run = start(&sandbox, &["run", "-n", "3", "--stop-in-init=0-1", program]);
    assert!(
        run.so_far(Stream::Stderr)
            .contains("2 ranks held in PMIx_Init")
    );
    let held = sandbox.find("init_once");
    assert!(
        held.iter().all(|rank| rank.state != 'T'),
        "they wait in a call: {held:?}"
    );
    release(&sandbox, &[]).expect_code(0);
    run.end().expect_code(0);
}

/// A program that does not use PMIx never reaches the hold.
#[test]
fn who_never_comes_there_is_not_waited_for() {
    let sandbox = Sandbox::new();
    sandbox
        .run_rally(&["run", "-n", "2", "--stop-in-init", "echo", "a"])
        .expect_code(0)
        .expect_out("a\na\n");
}

#[test]
fn several_jobs_have_to_be_told_apart() {
    let sandbox = Sandbox::new();
    let arguments = ["run", "-n", "1", "--stop-on-exec", "true"];
    let runs = [start(&sandbox, &arguments), start(&sandbox, &arguments)];
    let refused = release(&sandbox, &[]).expect_code(120);
    for run in &runs {
        assert!(refused.err().contains(&run.pid.to_string()), "{refused:?}");
    }
    for run in runs {
        release(&sandbox, &[&run.pid.to_string()]).expect_code(0);
        run.end().expect_code(0);
    }
    let none = || {
        release(&sandbox, &[])
            .err()
            .contains("no running job")
            .then_some(())
    };
    eventually(DEADLINE, none).expect("both are over");
}

#[test]
fn a_rank_that_there_is_not_cannot_be_held() {
    let sandbox = Sandbox::new();
    let run = sandbox
        .run_rally(&["run", "-n", "2", "--stop-on-exec=2", "true"])
        .expect_code(120);
    assert!(
        run.err().contains("there is no rank 2 to be held"),
        "{run:?}"
    );
}

/// State of a connected socket in `/proc/net/unix`.
const CONNECTED: &str = "03";

/// The controller serves eight connections at a time. It closes all eight in one turn; no further event would wake it for
/// the ninth.
#[test]
fn who_waits_for_others_to_be_answered_is_answered() {
    let sandbox = Sandbox::new();
    let run = start(&sandbox, &["run", "-n", "1", "--stop-on-exec", "true"]);
    let name = format!("control-{}", run.pid);
    let path = eventually(DEADLINE, || {
        let sockets = fs::read_to_string("/proc/net/unix").unwrap();
        let mut paths = sockets.split_ascii_whitespace();
        paths.find(|path| path.ends_with(&name)).map(PathBuf::from)
    });
    let path = path.expect("the controller can be asked");
    let rank = sandbox.alive().into_iter().find(|it| it.state == 'T');
    let controller = rank.expect("the rank is held").ppid;
    // A connection in the backlog has no inode yet.
    let is_accepted = |line: &&str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        matches!(fields[..], [.., state, inode, path] if path.ends_with(&name) && state == CONNECTED && inode != "0")
    };
    let accepted = || {
        let sockets = fs::read_to_string("/proc/net/unix").unwrap();
        (sockets.lines().filter(is_accepted).count() == 8).then_some(())
    };
    let connect = || UnixStream::from(os::connect_at(&path, DEADLINE / 12).unwrap());
    let mut served: Vec<UnixStream> = (0..8).map(|_| connect()).collect();
    eventually(DEADLINE, accepted).expect("eight are served");
    let mut ninth = Inquirer::connect(&path, DEADLINE / 12).unwrap();
    let controller = Pid::from_raw(controller);
    kill(controller, Signal::SIGSTOP).unwrap();
    for stream in &mut served {
        let mut question = FrontLink::inline();
        question.send(FromFront::Holds);
        question.flush(stream.as_fd()).unwrap();
        // A frame of unknown kind, which is parsed only after the question was answered.
        stream.write_all(b"\x01\0\0\0\xff").unwrap();
    }
    kill(controller, Signal::SIGCONT).unwrap();
    for stream in &served {
        let mut answer = FrontLink::inline();
        let next = || {
            answer.link.receive(stream.as_fd()).unwrap();
            answer.next_message().unwrap()
        };
        let answer = eventually(DEADLINE, next);
        assert!(matches!(answer, Some(ToFront::Holding(_))), "{answer:?}");
    }
    let release = FromFront::Release {
        job: JobRef::OfFront(run.pid.try_into().unwrap()),
        ranks: None,
    };
    let answer = ninth.ask(release).unwrap();
    let ToFront::Released { ranks, held, .. } = answer else {
        panic!("{answer:?}");
    };
    assert_eq!((ranks.len(), held.len()), (1, 0));
    run.end().expect_code(0);
}
