//! The life of a rank: its initial state, its possible ends, and what its end does to other ranks.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::harness::{DEADLINE, Sandbox, Stream, eventually};

#[test]
fn the_ranks_code_is_ours() {
    let cases: &[(&[&str], i32)] = &[
        (&["-n", "4", "/bin/true"], 0),
        (&["-n", "1", "mischief", "exit", "7"], 7),
        (&["-n", "1", "mischief", "exit", "255"], 255),
        (&["-n", "1", "mischief", "crash"], 139),
        (&["-n", "1", "sh", "-c", "kill -KILL $$"], 137),
        (
            &[
                "-n",
                "2",
                "/bin/true",
                ":",
                "-n",
                "1",
                "mischief",
                "exit",
                "4",
            ],
            4,
        ),
        (&["-n", "1", "/no/such/program"], 127),
        (&["-n", "1", "no-such-program-in-the-path"], 127),
        (&["-n", "1", "/etc/passwd"], 126),
        (&["-n", "1", "/tmp"], 126),
    ];
    for (args, code) in cases {
        let sandbox = Sandbox::new();
        sandbox
            .run_rally(&[&["run"], *args].concat())
            .expect_code(*code);
    }
}

#[test]
fn the_first_failure_ends_the_job() {
    let sandbox = Sandbox::new();
    sandbox
        .run_rally(&[
            "run", "-n", "1", "mischief", "exit", "3", ":", "-n", "7", "mischief", "live",
        ])
        .expect_code(3)
        .expect_err(&["rank 0", "3"]);
}

#[test]
fn a_failure_can_be_let_be() {
    let sandbox = Sandbox::new();
    sandbox
        .run_rally(&[
            "run",
            "--kill-on-bad-exit=no",
            "-n",
            "1",
            "mischief",
            "exit",
            "3",
            ":",
            "-n",
            "1",
            "sh",
            "-c",
            "sleep 0.3; echo survived",
        ])
        .expect_code(3)
        .expect_out("survived\n");
}

#[test]
fn who_ignores_sigterm_is_killed_after_the_grace() {
    let sandbox = Sandbox::new();
    // The failing rank waits until the other one has set its trap.
    let failing = "while ! [ -e armed ]; do sleep 0.01; done; exit 3";
    let stubborn = "trap '' TERM; : >armed; while :; do sleep 0.05; done";
    sandbox
        .run_rally(&[
            "run", "--grace", "0.3", "-n", "1", "sh", "-c", failing, ":", "-n", "1", "sh", "-c",
            stubborn,
        ])
        .expect_code(3);
}

#[test]
fn whoever_ends_the_job_terminates_first_and_kills_later() {
    let sandbox = Sandbox::new();
    let failing = "while ! [ -e armed ]; do sleep 0.01; done; exit 3";
    let polite = "trap 'echo tidied up; exit 0' TERM; : >armed; while :; do sleep 0.01; done";
    sandbox
        .run_rally(&[
            "run", "-n", "1", "sh", "-c", failing, ":", "-n", "1", "sh", "-c", polite,
        ])
        .expect_code(3)
        .expect_out("tidied up\n");
}

#[test]
fn descendants_in_sessions_of_their_own_are_ended() {
    for habit in [&["double-fork"][..], &["fork-storm", "20"]] {
        let sandbox = Sandbox::new();
        sandbox
            .run_rally(&[&["run", "-n", "2", "mischief"], habit].concat())
            .expect_code(0);
        sandbox.expect_clean();
    }
}

#[test]
fn a_leaky_rank_is_named_and_does_not_hold_the_job() {
    let sandbox = Sandbox::new();
    let run = sandbox
        .run_rally(&[
            "run",
            "-n",
            "2",
            "/bin/true",
            ":",
            "-n",
            "1",
            "mischief",
            "leak-pipe",
        ])
        .expect_code(0)
        .expect_err(&["rank 2"]);
    assert!(run.elapsed < Duration::from_secs(20), "{run:?}");
}

#[test]
fn a_rank_that_stops_itself_can_be_continued() {
    let sandbox = Sandbox::new();
    let run = sandbox.start(&mut sandbox.rally(&["run", "-n", "2", "mischief", "stop-itself"]));
    let stopped = || {
        let stopped = sandbox
            .find("stop-itself")
            .iter()
            .filter(|rank| rank.state == 'T')
            .count();
        (stopped == 2).then_some(())
    };
    eventually(DEADLINE, stopped).expect("both ranks stop");
    run.signal(Signal::SIGCONT);
    let run = run.end().expect_code(0);
    assert_eq!(run.sorted(), "continued\ncontinued");
}

#[test]
fn a_stopped_rank_does_not_survive_the_job() {
    let sandbox = Sandbox::new();
    let run = sandbox.start(&mut sandbox.rally(&["run", "-n", "2", "mischief", "stop-itself"]));
    let stopped = || {
        (sandbox
            .find("stop-itself")
            .iter()
            .filter(|rank| rank.state == 'T')
            .count()
            == 2)
            .then_some(())
    };
    eventually(DEADLINE, stopped).expect("both ranks stop");
    run.signal(Signal::SIGTERM);
    run.end().expect_code(143);
}

#[test]
fn the_time_limit_ends_the_job() {
    let sandbox = Sandbox::new();
    let run = sandbox
        .run_rally(&["run", "--timeout", "0.3", "-n", "2", "mischief", "live"])
        .expect_err(&["time limit"]);
    assert_ne!(run.code(), 0);
}

#[test]
fn a_rank_starts_in_a_clean_state() {
    let sandbox = Sandbox::new();
    let run = sandbox
        .run(&mut sandbox.shell(r#"umask 0027; trap '' USR2; exec "$RALLY" run -n 2 --bind-to none "$MISCHIEF" print-self"#))
        .expect_code(0)
        .expect_quiet();
    let directory = format!("directory={}", sandbox.work().display());
    for line in run.out().lines() {
        let field = |name: &str| {
            line.split(' ')
                .find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
                .unwrap_or_else(|| panic!("{name} in {line}"))
        };
        assert_eq!(
            field("pid"),
            field("pgid"),
            "a process group of its own: {line}"
        );
        assert_eq!(field("pid"), field("sid"), "a session of its own: {line}");
        assert!(line.contains(&directory), "{line}");
        assert_eq!(field("umask"), "0027");
        assert_eq!(field("blocked"), "0000000000000000");
        // A signal ignored by the user stays ignored (nohup depends on it). SIGPIPE (bit 12) is ignored by mischief's Rust
        // runtime; signals from 32 up belong to the C library.
        let ignored = u64::from_str_radix(field("ignored"), 16).unwrap() & !(1 << 12) & 0x7fff_ffff;
        assert_eq!(ignored, 1 << 11, "{line}");
    }
    assert_eq!(run.out().lines().count(), 2);
}

#[test]
fn sigpipe_is_not_ignored_in_a_rank() {
    let sandbox = Sandbox::new();
    // `head` exits immediately. If SIGPIPE were ignored, `yes` would complain about a broken pipe.
    sandbox
        .run_rally(&["run", "-n", "1", "sh", "-c", "yes | head -n 1"])
        .expect_code(0)
        .expect_out("y\n")
        .expect_quiet();
}

#[test]
fn no_descriptor_of_ours_reaches_a_rank() {
    let sandbox = Sandbox::new();
    let run = sandbox
        .run_rally(&["run", "-n", "3", "sh", "-c", "ls -l /proc/self/fd"])
        .expect_code(0);
    let foreign = run
        .out()
        .lines()
        .filter_map(|line| line.split_once("-> "))
        .filter(|(_, target)| {
            !target.starts_with("/proc/") && *target != "/dev/null" && !target.starts_with("pipe:")
        })
        .map(|(_, target)| target.to_owned())
        .collect::<Vec<_>>();
    // `PMI_FD` is supposed to be open.
    assert!(
        foreign.iter().all(|target| target.starts_with("socket:")) && foreign.len() <= 3,
        "{run:?}"
    );
}

#[test]
fn limits_are_the_users() {
    let sandbox = Sandbox::new();
    let run = sandbox
        .run(&mut sandbox.shell(
            r#"ulimit -S -n 321; ulimit -S -c 0; exec "$RALLY" run -n 1 "$MISCHIEF" print-limits"#,
        ))
        .expect_code(0);
    let out = run.out();
    let limit = |name: &str| {
        let line = out.lines().find(|line| line.starts_with(name)).unwrap();
        line[name.len()..]
            .split_whitespace()
            .next()
            .unwrap()
            .to_owned()
    };
    assert_eq!(limit("Max open files"), "321");
    assert_eq!(limit("Max core file size"), "0");
}

#[test]
fn every_rank_knows_its_place() {
    let sandbox = Sandbox::new();
    let run = sandbox
        .run(
            sandbox
                .rally(&[
                    "run",
                    "-n",
                    "3",
                    "--set-env",
                    "GIVEN=by x",
                    "--set-env",
                    "KEPT",
                    "mischief",
                    "print-environment",
                ])
                .env("KEPT", "from outside"),
        )
        .expect_code(0);
    let out = run.out();
    let count = |line: &str| out.lines().filter(|own| *own == line).count();
    for name in ["PMI_RANK", "MPI_LOCALRANKID", "RALLY_RANK"] {
        for rank in 0..3 {
            let line = format!("{name}={rank}");
            assert_eq!(count(&line), 1, "{line} in {out}");
        }
    }
    for line in [
        "PMI_SIZE=3",
        "RALLY_SIZE=3",
        "GIVEN=by x",
        "KEPT=from outside",
    ] {
        assert_eq!(count(line), 3, "{line} in {out}");
    }
}

#[test]
fn the_working_directory_is_chosen_or_refused() {
    let sandbox = Sandbox::new();
    sandbox
        .run_rally(&["run", "-n", "1", "-wdir", "/usr", "pwd"])
        .expect_code(0)
        .expect_out("/usr\n");
    let run = sandbox
        .run_rally(&["run", "-n", "2", "-wdir", "/no/such/directory", "pwd"])
        .expect_err(&["/no/such/directory"]);
    assert_ne!(run.code(), 0);
}

#[test]
fn programs_are_found_in_the_search_path_given() {
    let sandbox = Sandbox::new();
    let script = sandbox.file("hidden", "#!/bin/sh\necho found\n");
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let directory = sandbox.work();
    sandbox
        .run_rally(&[
            "run",
            "-n",
            "1",
            "-path",
            directory.to_str().unwrap(),
            "hidden",
        ])
        .expect_code(0)
        .expect_out("found\n");
}

#[test]
fn many_ranks_of_a_program_that_becomes_another() {
    let sandbox = Sandbox::new();
    let run = sandbox
        .run_rally(&[
            "run",
            "-n",
            "64",
            "mischief",
            "exec-other",
            "/bin/echo",
            "here",
        ])
        .expect_code(0)
        .expect_quiet();
    assert_eq!(run.out(), "here\n".repeat(64));
}

#[test]
fn nothing_runs_when_one_program_is_missing() {
    let sandbox = Sandbox::new();
    let run = sandbox
        .run_rally(&[
            "run",
            "-n",
            "1",
            "sh",
            "-c",
            "sleep 1; echo ran",
            ":",
            "-n",
            "3",
            "/no/such/program",
        ])
        .expect_code(127)
        .expect_err(&["/no/such/program", "1-3"]);
    assert_eq!(
        run.err().matches("/no/such/program").count(),
        1,
        "one message for many ranks: {run:?}"
    );
}

#[test]
fn a_rank_may_close_its_output_and_go_on() {
    let sandbox = Sandbox::new();
    let run = sandbox.start(&mut sandbox.rally(&[
        "run",
        "-n",
        "1",
        "mischief",
        "close-stdout-then-live",
        "200",
    ]));
    assert_eq!(run.so_far(Stream::Stdout), "");
    run.end().expect_code(0).expect_quiet();
}

/// A shell that execs us leaves us its children, which the job does not wait for.
#[test]
fn children_that_we_inherit_are_not_waited_for() {
    let sandbox = Sandbox::new();
    let script = r#"sleep 1000 >/dev/null 2>&1 & exec "$RALLY" run -n 2 /bin/true"#;
    sandbox.run(&mut sandbox.shell(script)).expect_code(0);
    let sleeper = sandbox.find("sleep 1000");
    assert_eq!(sleeper.len(), 1, "it lives on");
    let pid = nix::unistd::Pid::from_raw(sleeper[0].pid);
    nix::sys::signal::kill(pid, Signal::SIGKILL).unwrap();
}

/// An error that is known before the first start keeps every rank from starting.
#[test]
fn nothing_runs_where_an_app_cannot_start() {
    let cases = [
        (&["./nosuch"][..], 127),
        (&["--wdir", "/no/such", "/bin/true"], 121),
        (&["/etc/passwd"], 126),
    ];
    for (app, code) in cases {
        let sandbox = Sandbox::new();
        let mut args = vec!["run", "-n", "4", "touch", "mark", ":", "-n", "1"];
        args.extend(app);
        sandbox.run_rally(&args).expect_code(code);
        assert!(!sandbox.path("mark").exists(), "{app:?}");
    }
}

#[test]
fn ranks_that_do_not_exist_are_refused() {
    for option in ["--stdin=7", "--pty=7"] {
        let sandbox = Sandbox::new();
        sandbox
            .run_rally(&["run", option, "-n", "2", "/bin/true"])
            .expect_code(120)
            .expect_err(&["error:", "no rank 7"]);
    }
}

#[test]
fn ranks_find_the_variables_of_the_launcher_whose_name_we_have() {
    let sandbox = Sandbox::new();
    let script = "echo $OMPI_COMM_WORLD_RANK $OMPI_COMM_WORLD_SIZE $OMPI_COMM_WORLD_LOCAL_RANK $SLURM_PROCID";
    let run = sandbox
        .run_rally(&["run", "-n", "2", "sh", "-c", script])
        .expect_code(0);
    assert_eq!(run.sorted(), "0 2 0\n1 2 1");
    let script = "echo $SLURM_PROCID $SLURM_NTASKS $SLURM_LOCALID $OMPI_COMM_WORLD_RANK";
    let srun = sandbox.path("srun");
    std::os::unix::fs::symlink(crate::harness::rally(), &srun).unwrap();
    let run = sandbox
        .run(&mut sandbox.face(&srun, &["-n", "2", "sh", "-c", script]))
        .expect_code(0);
    assert_eq!(run.sorted(), "0 2 0\n1 2 1");
}
