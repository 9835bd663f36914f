//! Standard input arrives intact, including its end.

use std::{io::Write, process::Stdio};

use mischief::Digest;

use crate::harness::Sandbox;

fn bytes(count: usize) -> Vec<u8> {
    let mut state = 1u32;
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        })
        .collect()
}

const SIZES: [usize; 6] = [0, 1, 4096, 65_536, 65_537, 5_000_000];

#[test]
fn from_a_file() {
    for size in SIZES {
        let sandbox = Sandbox::new();
        let text = bytes(size);
        let file = std::fs::File::open(sandbox.file("input", &text)).unwrap();
        sandbox
            .run(
                sandbox
                    .rally(&["run", "-n", "2", "mischief", "echo-stdin-digest"])
                    .stdin(file),
            )
            .expect_code(0)
            .expect_quiet()
            .expect_set(&[(0, &text), (1, &[])]);
    }
}

#[test]
fn from_a_pipe() {
    for size in SIZES {
        let sandbox = Sandbox::new();
        let text = bytes(size);
        let mut command = sandbox.rally(&["run", "-n", "2", "mischief", "echo-stdin-digest"]);
        let mut run = sandbox.start(command.stdin(Stdio::piped()));
        let mut stdin = run.stdin.take().unwrap();
        stdin.write_all(&text).unwrap();
        drop(stdin);
        run.end()
            .expect_code(0)
            .expect_quiet()
            .expect_set(&[(0, &text), (1, &[])]);
    }
}

/// A read error must not look like EOF, which would mean that the input is complete.
#[test]
fn what_cannot_be_read_does_not_end() {
    // An error that is known beforehand does not affect ranks that do not read.
    for input in ["</", "0>file"] {
        let sandbox = Sandbox::new();
        let script = format!(
            r#""$RALLY" run -n 2 sh -c '[ $PMI_RANK = 1 ] && exit; cat || echo "cannot read"; exit 5' {input}"#
        );
        let run = sandbox.run(&mut sandbox.shell(&script)).expect_code(5);
        assert!(run.out().contains("cannot read"), "{input}: {run:?}");
        let script = format!(r#""$RALLY" run -n 2 true {input}"#);
        sandbox
            .run(&mut sandbox.shell(&script))
            .expect_code(0)
            .expect_quiet();
    }
    let sandbox = Sandbox::new();
    let script = r#""$RALLY" run -n 1 sh -c 'cat; echo "the end"; sleep 1000' </proc/self/mem"#;
    sandbox
        .run(&mut sandbox.shell(script))
        .expect_code(123)
        .expect_out("")
        .expect_err(&[
            "error: the job was ended because its input cannot be read: input/output error",
            "effect: its only rank was ended",
        ]);
}

#[test]
fn from_nothing() {
    for script in [
        r#""$RALLY" run -n 2 "$MISCHIEF" echo-stdin-digest </dev/null"#,
        r#""$RALLY" run -n 2 "$MISCHIEF" echo-stdin-digest <&-"#,
        r#": | "$RALLY" run -n 2 "$MISCHIEF" echo-stdin-digest"#,
    ] {
        let sandbox = Sandbox::new();
        sandbox
            .run(&mut sandbox.shell(script))
            .expect_code(0)
            .expect_set(&[(0, &[]), (1, &[])]);
    }
}

#[test]
fn to_whom_it_is_meant() {
    let text = bytes(300_000);
    let none: &[u8] = &[];
    let cases: [(&str, [&[u8]; 3]); 5] = [
        ("all", [&text, &text, &text]),
        ("none", [none, none, none]),
        ("0", [&text, none, none]),
        ("1", [none, &text, none]),
        ("2", [none, none, &text]),
    ];
    for (target, expected) in cases {
        let sandbox = Sandbox::new();
        let file = std::fs::File::open(sandbox.file("input", &text)).unwrap();
        let mut command = sandbox.rally(&[
            "run",
            "--stdin",
            target,
            "-n",
            "3",
            "mischief",
            "echo-stdin-digest",
        ]);
        sandbox
            .run(command.stdin(file))
            .expect_code(0)
            .expect_set(&[(0, expected[0]), (1, expected[1]), (2, expected[2])]);
    }
}

#[test]
fn who_does_not_read_does_not_block() {
    for script in [
        r#""$RALLY" run -n 2 /bin/true </dev/zero"#,
        r#"yes | "$RALLY" run -n 2 /bin/true"#,
        r#"yes | "$RALLY" run -n 1 head -n 1"#,
        r#"yes | "$RALLY" run -n 2 --stdin none "$MISCHIEF" echo-stdin-digest"#,
    ] {
        let sandbox = Sandbox::new();
        sandbox.run(&mut sandbox.shell(script)).expect_code(0);
    }
}

/// One of the reading ranks exits early: the others still get the whole input.
#[test]
fn one_that_leaves_does_not_rob_the_others() {
    let sandbox = Sandbox::new();
    let text = bytes(3_000_000);
    let file = std::fs::File::open(sandbox.file("input", &text)).unwrap();
    let args = [
        "run",
        "--stdin",
        "all",
        "-n",
        "1",
        "mischief",
        "echo-stdin-digest",
        ":",
        "-n",
        "1",
        "/bin/true",
    ];
    sandbox
        .run(sandbox.rally(&args).stdin(file))
        .expect_code(0)
        .expect_set(&[(0, &text)]);
}

/// The writer keeps its end open and writes nothing. The end of the job must not wait for it.
#[test]
fn an_open_silent_stdin_does_not_hold_the_job() {
    let sandbox = Sandbox::new();
    let mut run = sandbox.start(
        sandbox
            .rally(&["run", "-n", "2", "/bin/true"])
            .stdin(Stdio::piped()),
    );
    let held = run.stdin.take();
    let run = run.end().expect_code(0);
    drop(held);
    run.expect_quiet();
}

/// All input comes out again, with both directions busy simultaneously.
#[test]
fn through_cat() {
    let sandbox = Sandbox::new();
    let text = bytes(20_000_000);
    let file = std::fs::File::open(sandbox.file("input", &text)).unwrap();
    let run = sandbox
        .run(sandbox.rally(&["run", "-n", "1", "cat"]).stdin(file))
        .expect_code(0);
    assert_eq!(Digest::of(&run.stdout), Digest::of(&text));
}

#[test]
fn a_directory_as_stdin_is_an_error_not_a_hang() {
    let sandbox = Sandbox::new();
    let directory = std::fs::File::open("/").unwrap();
    let mut command = sandbox.rally(&["run", "-n", "1", "mischief", "echo-stdin-digest"]);
    // The job may fail or read nothing, but it must end.
    let run = sandbox.run(command.stdin(directory));
    assert!(run.code() == 0 || !run.err().is_empty(), "{run:?}");
}

impl crate::harness::Finished {
    /// Checks that exactly these ranks printed exactly these digests, in any order.
    #[track_caller]
    fn expect_set(self, expected: &[(u32, &[u8])]) -> Self {
        let mut lines = expected
            .iter()
            .map(|(rank, text)| format!("rank {rank}: {}", Digest::of(text)))
            .collect::<Vec<_>>();
        lines.sort();
        assert_eq!(self.sorted(), lines.join("\n"), "{self:?}");
        self
    }
}

/// Opening such a pipe twice would lose the writer. Waiting for its writer with signals blocked would hang.
#[test]
fn a_named_pipe_is_input_like_any_other() {
    let sandbox = Sandbox::new();
    let script = r#"mkfifo in; (sleep 0.2; seq 100000; echo "writer $?" >&2) >in & exec "$RALLY" run -q --input in -n 1 md5sum"#;
    let run = sandbox.run(&mut sandbox.shell(script)).expect_code(0);
    let expected = sandbox.run(&mut sandbox.shell("seq 100000 | md5sum"));
    assert_eq!(run.out(), expected.out());
    assert!(run.err().contains("writer 0"), "{run:?}");
}

#[test]
fn a_named_pipe_without_a_writer_does_not_keep_us() {
    let sandbox = Sandbox::new();
    let script = r#"mkfifo in; exec "$RALLY" run --input in --timeout 1 -n 1 cat"#;
    sandbox.run(&mut sandbox.shell(script)).expect_code(124);
}
