//! Output arrives complete, unmixed and in time, however slow a reader or rank is.

use std::{fs, path::Path, process::Stdio, time::Duration};

use mischief::check_lines;
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

use crate::harness::{DEADLINE, Sandbox, Stream, compiled, eventually, rally, testdata};

#[test]
fn lines_stay_whole() {
    // A line of 65,535 bytes is the longest that must not be cut: 64 KiB with its line feed.
    for (count, length) in [("20000", "100"), ("2000", "5000"), ("100", "65535")] {
        let sandbox = Sandbox::new();
        let run = sandbox
            .run_rally(&["run", "-n", "4", "mischief", "lines", count, length])
            .expect_code(0)
            .expect_quiet();
        check_lines(&run.stdout, 4, count.parse().unwrap()).unwrap();
    }
}

#[test]
fn both_streams_arrive_apart() {
    let sandbox = Sandbox::new();
    let script = r#""$MISCHIEF" lines 3000 300; "$MISCHIEF" lines 2000 200 stderr"#;
    let run = sandbox
        .run_rally(&["run", "-q", "-n", "3", "sh", "-c", script])
        .expect_code(0);
    check_lines(&run.stdout, 3, 3000).unwrap();
    check_lines(&run.stderr, 3, 2000).unwrap();
}

#[test]
fn a_line_of_ten_megabytes_passes() {
    let sandbox = Sandbox::new();
    let run = sandbox
        .run_rally(&["run", "-n", "2", "mischief", "long-line", "10000000"])
        .expect_code(0)
        .expect_quiet();
    assert_eq!(
        run.stdout.iter().filter(|byte| **byte == b'x').count(),
        20_000_000
    );
    assert_eq!(run.stdout.iter().filter(|byte| **byte == b'\n').count(), 2);
    assert_eq!(run.stdout.len(), 20_000_002);
}

#[test]
fn a_prompt_is_seen_before_its_answer() {
    let sandbox = Sandbox::new();
    let mut run = sandbox.start(
        sandbox
            .rally(&["run", "-n", "1", "mischief", "prompt"])
            .stdin(Stdio::piped()),
    );
    run.expect(Stream::Stdout, "name? ");
    let mut stdin = run.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, b"bob\n").unwrap();
    run.end().expect_code(0).expect_out("name? hello bob\n");
}

#[test]
fn a_last_line_without_its_end_is_not_lost() {
    let sandbox = Sandbox::new();
    sandbox
        .run_rally(&["run", "-n", "1", "printf", r"a\nb"])
        .expect_code(0)
        .expect_out("a\nb");
}

/// stdout has a reader that never reads. This must not affect stderr, signals, the end or memory use.
#[test]
fn a_blocked_reader_delays_nobody_else() {
    let sandbox = Sandbox::new();
    // The fifo's reader opens it and never reads.
    let script = r#"mkfifo full; sleep 1000 <full >/dev/null 2>&1 & exec "$RALLY" run -q -n 2 "$MISCHIEF" fill : \
        -n 1 sh -c '"$MISCHIEF" lines 5000 100 stderr; echo done >&2; exec "$MISCHIEF" live' >full"#;
    let mut run = sandbox.start(&mut sandbox.shell(script));
    run.expect(Stream::Stderr, "done\n");
    for process in sandbox
        .alive()
        .into_iter()
        .filter(|process| process.runs(&rally()))
    {
        let resident = process.status("VmRSS").unwrap_or_default();
        let kib = resident
            .split(' ')
            .next()
            .unwrap()
            .parse::<u64>()
            .unwrap_or(0);
        assert!(kib < 64 * 1024, "{} uses {resident}", process.args);
    }
    run.signal(Signal::SIGTERM);
    let gone = || sandbox.find("mischief").is_empty().then_some(());
    eventually(DEADLINE, gone).expect("the ranks end although their output cannot be written");
    // The front may wait for the reader, but not for ever after interrupts.
    for _ in 0..2 {
        if !run.has_ended_within(Duration::from_secs(1)) {
            run.signal(Signal::SIGINT);
        }
    }
    let run = run.end();
    assert!([143, 130].contains(&run.code()), "{run:?}");
    let reader = sandbox.find("sleep 1000");
    signal::kill(Pid::from_raw(reader[0].pid), Signal::SIGKILL).unwrap();
}

#[test]
fn a_reader_that_leaves_ends_the_job() {
    let sandbox = Sandbox::new();
    let script = r#"{ "$RALLY" run -n 2 yes; echo "code $?" >&2; } | head -n 3"#;
    let run = sandbox.run(&mut sandbox.shell(script));
    assert_eq!(run.out(), "y\ny\ny\n");
    assert!(run.err().contains("code 141"), "as SIGPIPE would: {run:?}");
}

#[test]
fn a_full_disk_is_reported() {
    let sandbox = Sandbox::new();
    let run = sandbox
        .run(&mut sandbox.shell(r#""$RALLY" run -n 2 "$MISCHIEF" fill >/dev/full"#))
        .expect_err(&["No space left on device"])
        .expect_code(123);
    assert!(!run.err().contains("nobody reads"), "{run:?}");
    // So little output that one write has it all: the ranks exit before they could be ended.
    let few = r#"exec "$RALLY" run -q -n 2 echo few >/dev/full"#;
    sandbox.run(&mut sandbox.shell(few)).expect_code(123);
}

#[test]
fn output_can_be_tagged() {
    let sandbox = Sandbox::new();
    for option in ["-l", "--tag-output"] {
        let run = sandbox
            .run_rally(&["run", option, "-n", "3", "sh", "-c", r"printf 'a\nb'"])
            .expect_code(0);
        for line in run.out().lines() {
            let (tag, text) = line.rsplit_once([' ', ':', '>']).unwrap();
            assert!(tag.contains(['0', '1', '2']), "{run:?}");
            assert!(text == "a" || text == "b", "{run:?}");
        }
        assert_eq!(run.out().lines().count(), 6, "{run:?}");
    }
}

#[test]
fn output_can_be_json() {
    let sandbox = Sandbox::new();
    let run = sandbox
        .run_rally(&[
            "run",
            "--json",
            "-n",
            "2",
            "sh",
            "-c",
            r"echo out; printf '\377' >&2; exit 0",
        ])
        .expect_code(0);
    let out = run.out();
    let lines = out
        .lines()
        .map(|line| {
            serde_json::from_str::<serde_json::Value>(line)
                .unwrap_or_else(|error| panic!("{line}: {error}"))
        })
        .collect::<Vec<_>>();
    for rank in 0..2 {
        assert!(
            lines
                .iter()
                .any(|line| line["rank"] == rank && line["stream"] == "stdout"),
            "{run:?}"
        );
    }
}

/// The controller opens the files: if it blocked there, it would miss its time limit.
#[test]
fn a_pipe_that_nobody_reads_is_an_error_not_a_hang() {
    let sandbox = Sandbox::new();
    let script = r#"mkfifo p; exec "$RALLY" run -n 2 --output-file p echo hi"#;
    let run = sandbox
        .run(&mut sandbox.shell(script))
        .expect_err(&["error:", "/p`"]);
    assert_ne!(run.code(), 0, "{run:?}");
    sandbox.expect_clean();
}

#[test]
fn each_rank_can_have_files() {
    let sandbox = Sandbox::new();
    let script = r#"echo "out of $PMI_RANK"; echo "err of $PMI_RANK" >&2"#;
    sandbox
        .run_rally(&[
            "run",
            "-n",
            "3",
            "--output-file",
            "out.%3r",
            "--error-file",
            "err.%r.%s",
            "sh",
            "-c",
            script,
        ])
        .expect_code(0)
        .expect_out("")
        .expect_quiet();
    for rank in 0..3 {
        assert_eq!(
            sandbox.read(&format!("out.00{rank}")),
            format!("out of {rank}\n")
        );
        assert_eq!(
            sandbox.read(&format!("err.{rank}.3")),
            format!("err of {rank}\n")
        );
    }
}

#[test]
fn a_file_that_cannot_be_made_is_reported() {
    let sandbox = Sandbox::new();
    let run = sandbox
        .run_rally(&[
            "run",
            "-n",
            "3",
            "--output-file",
            "/dev/null/no/%r",
            "/bin/true",
        ])
        .expect_err(&["/dev/null/no"]);
    assert_ne!(run.code(), 0);
}

#[test]
fn stderr_can_be_merged() {
    let sandbox = Sandbox::new();
    sandbox
        .run_rally(&[
            "run",
            "-n",
            "1",
            "--merge-stderr",
            "sh",
            "-c",
            "echo one; echo two >&2; echo three",
        ])
        .expect_code(0)
        .expect_out("one\ntwo\nthree\n")
        .expect_quiet();
}

#[test]
fn one_rank_can_have_a_terminal() {
    let sandbox = Sandbox::new();
    let run = sandbox
        .run_rally(&[
            "run",
            "-n",
            "2",
            "--pty=0",
            "sh",
            "-c",
            "test -t 1 && echo terminal || echo none",
        ])
        .expect_code(0);
    assert_eq!(run.sorted().replace('\r', ""), "none\nterminal");
}

/// Returns whether stdout and stderr of a rank are terminals with these options.
fn terminals(sandbox: &Sandbox, options: &[&str]) -> String {
    let script = "test -t 1; out=$?; test -t 2; echo $out $?";
    let mut words = vec!["run", "-n", "1"];
    words.extend(options);
    words.extend(["sh", "-c", script]);
    let run = sandbox.run_rally(&words).expect_code(0).expect_quiet();
    run.out()
}

#[test]
fn a_terminal_for_stdout_alone() {
    let sandbox = Sandbox::new();
    let cases: [(&[&str], &str); 5] = [
        (&[], "1 1\n"),
        (&["--line-buffered=no"], "1 1\n"),
        (&["--line-buffered"], "0 1\n"),
        (&["--line-buffered=yes", "--merge-stderr"], "0 0\n"),
        (&["--line-buffered=yes", "-o", "file"], ""),
    ];
    for (options, expected) in cases {
        assert_eq!(terminals(&sandbox, options), expected, "{options:?}");
    }
    assert_eq!(sandbox.read("file"), "1 1\n");
}

/// All bytes arrive unchanged, even those that are still unread when the rank has exited.
#[test]
fn output_through_terminals_is_whole() {
    let sandbox = Sandbox::new();
    let script = r#""$MISCHIEF" lines 5000 3000; kill -SEGV $$"#;
    let words = [
        "run",
        "-n",
        "2",
        "--line-buffered",
        "--kill-on-bad-exit=no",
        "sh",
        "-c",
        script,
    ];
    let run = sandbox.run_rally(&words).expect_code(139);
    check_lines(&run.stdout, 2, 5000).unwrap();
    let odd = r"printf 'a\r\tb\004\003\033\377\000c\n\n' | tee odd";
    let run = sandbox.run_rally(&["run", "-n", "1", "--line-buffered", "sh", "-c", odd]);
    assert_eq!(run.stdout, fs::read(sandbox.path("odd")).unwrap());
    let leak = ["run", "-n", "1", "--line-buffered", "mischief", "leak-pipe"];
    sandbox
        .run_rally(&leak)
        .expect_code(0)
        .expect_err(&["holds its output open"]);
}

/// The terminal is only for writing, and reopening it does not make it a controlling terminal.
#[test]
fn a_terminal_for_stdout_controls_nobody() {
    let sandbox = Sandbox::new();
    let script = "echo one >/dev/stdout; read line <&1 || echo two; cut -d' ' -f7 /proc/$$/stat";
    let words = [
        "run",
        "-n",
        "1",
        "--line-buffered",
        "setsid",
        "--wait",
        "sh",
        "-c",
        script,
    ];
    let run = sandbox.run_rally(&words).expect_code(0);
    assert_eq!(run.out(), "one\ntwo\n0\n");
}

#[test]
fn output_of_a_rank_that_dies_is_whole() {
    let sandbox = Sandbox::new();
    let script = r#""$MISCHIEF" lines 20000 100; kill -SEGV $$"#;
    let run = sandbox
        .run_rally(&[
            "run",
            "-n",
            "2",
            "--kill-on-bad-exit=no",
            "sh",
            "-c",
            script,
        ])
        .expect_code(139);
    check_lines(&run.stdout, 2, 20_000).unwrap();
}

#[test]
fn a_regular_file_as_stdout_works() {
    let sandbox = Sandbox::new();
    sandbox
        .run(&mut sandbox.shell(r#""$RALLY" run -n 4 "$MISCHIEF" lines 5000 200 >file"#))
        .expect_code(0)
        .expect_quiet();
    check_lines(&fs::read(sandbox.path("file")).unwrap(), 4, 5000).unwrap();
}

#[test]
fn closed_standard_streams_do_no_harm() {
    for script in [
        r#""$RALLY" run -n 2 /bin/true <&-"#,
        r#""$RALLY" run -n 2 /bin/true >&-"#,
        r#""$RALLY" run -n 2 /bin/true 2>&-"#,
        r#""$RALLY" run -n 2 /bin/true <&- >&- 2>&-"#,
    ] {
        let sandbox = Sandbox::new();
        sandbox.run(&mut sandbox.shell(script)).expect_code(0);
    }
}

/// A socket cannot be reopened as non-blocking, and no thread can be created for blocking writes.
#[test]
fn without_a_thread_everything_is_written() {
    let sandbox = Sandbox::new();
    let library = compiled(
        Path::new("gcc"),
        &testdata("preload/no_threads.c"),
        &["-shared", "-fPIC"],
    );
    let script = r#""$MISCHIEF" lines 2000 200; "$MISCHIEF" lines 20 200 stderr; exit 7"#;
    let mut command = sandbox.command("python3");
    command
        .arg(testdata("terminal/through_sockets.py"))
        .arg(library)
        .arg(rally())
        .args([
            "run",
            "-n",
            "2",
            "--kill-on-bad-exit=no",
            "sh",
            "-c",
            script,
        ]);
    let run = sandbox.run(&mut command).expect_code(7);
    check_lines(&run.stdout, 2, 2000).unwrap();
    let said = run.err();
    let (lines, messages): (Vec<_>, Vec<_>) = said
        .split_inclusive('\n')
        .partition(|line| line.starts_with(['0', '1']));
    check_lines(lines.concat().as_bytes(), 2, 20).unwrap();
    assert!(messages.concat().contains("exited with code 7"), "{run:?}");
}

#[test]
fn a_slow_reader_gets_everything() {
    let sandbox = Sandbox::new();
    // 40 MB through a reader that starts late: far more than any buffer holds.
    let script = r#""$RALLY" run -n 4 "$MISCHIEF" lines 50000 200 | { sleep 0.5; cat; }"#;
    let run = sandbox.run(&mut sandbox.shell(script)).expect_code(0);
    check_lines(&run.stdout, 4, 50_000).unwrap();
    assert!(eventually(DEADLINE, || sandbox.alive().is_empty().then_some(())).is_some());
}

/// With two queues for one pipe, one stream could interrupt a line of the other.
#[test]
fn both_streams_into_one_pipe_keep_their_lines() {
    let sandbox = Sandbox::new();
    let script = r#""$RALLY" run -q -n 4 sh -c '"$MISCHIEF" lines 3000 900 & "$MISCHIEF" lines 3000 900 stderr; wait' 2>&1 | { sleep 0.3; cat; }"#;
    let run = sandbox.run(&mut sandbox.shell(script)).expect_code(0);
    let text = run.out();
    let lengths: std::collections::BTreeSet<_> = text.lines().map(str::len).collect();
    assert_eq!(text.lines().count(), 24_000);
    assert_eq!(lengths.len(), 1, "{lengths:?}");
}

#[test]
fn a_time_out_does_not_wait_for_a_reader() {
    let sandbox = Sandbox::new();
    // The fifo's reader opens it and never reads.
    let script = r#"mkfifo full; sleep 1000 <full >/dev/null 2>&1 & echo $! >reader; "$RALLY" run --timeout 1 --grace 1 -n 2 yes >full; echo "code $?" >&2; kill -9 $(cat reader)"#;
    let run = sandbox.run(&mut sandbox.shell(script));
    assert!(
        run.err().contains("dropped because nobody reads"),
        "{run:?}"
    );
    assert!(run.err().contains("code 124"), "{run:?}");
}
