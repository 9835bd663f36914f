//! Invalid input: a clear error, a documented exit code, no leftovers.

use std::{fs, os::unix::fs::PermissionsExt};

use crate::harness::{Finished, Sandbox};

/// The command line is wrong (docs/exit-codes.md).
const USAGE: i32 = 120;

#[test]
fn what_cannot_be_meant_is_refused() {
    let cases: &[(&[&str], &[&str])] = &[
        (&["run", "-n", "0", "/bin/true"], &["error:", "-n", "0"]),
        (&["run", "-n", "x", "/bin/true"], &["error:", "`x`"]),
        (&["run", "-n", "-1", "/bin/true"], &["error:"]),
        (&["run"], &["error:"]),
        (&["run", "-n", "2"], &["error:"]),
        (
            &["run", "--no-such-option", "-n", "2", "/bin/true"],
            &["error:", "no-such-option"],
        ),
        (
            &["run", "--hostfil", "x", "/bin/true"],
            &["error:", "--hostfile"],
        ),
        (
            &["run", "--map-byy", "core", "/bin/true"],
            &["error:", "--map-by"],
        ),
        (
            &["run", "--map-by", "nonsense", "/bin/true"],
            &["error:", "nonsense"],
        ),
        (
            &["run", "-n", "1", "/bin/true", ":", "-n", "1"],
            &["error:"],
        ),
        (&["no-such-command"], &["error:", "no-such-command"]),
        (&["run", "-c", "2", "/bin/true"], &["error:", "-c"]),
    ];
    for (args, parts) in cases {
        let sandbox = Sandbox::new();
        sandbox
            .run_rally(args)
            .expect_code(USAGE)
            .expect_err(parts)
            .expect_out("");
    }
}

#[test]
fn a_million_ranks_are_refused_without_harm() {
    let sandbox = Sandbox::new();
    let run = sandbox
        .run_rally(&["run", "-n", "1000000", "/bin/true"])
        .expect_err(&["error:", "1000000"]);
    assert_ne!(run.code(), 0);
}

#[test]
fn an_unreadable_hostfile_is_named() {
    let sandbox = Sandbox::new();
    for path in ["/no/such/hostfile", "/"] {
        let run = sandbox
            .run_rally(&["run", "--hostfile", path, "-n", "2", "/bin/true"])
            .expect_err(&["error:", path]);
        assert_ne!(run.code(), 0);
    }
    let file = sandbox.file("hosts", "localhost slots=two\n");
    let run = sandbox
        .run_rally(&["run", "--hostfile", &file, "-n", "2", "/bin/true"])
        .expect_err(&["error:", &file, "two"]);
    assert_ne!(run.code(), 0);
}

#[test]
fn explicit_slots_refuse_and_say_what_helps() {
    let sandbox = Sandbox::new();
    let run = sandbox
        .run_rally(&["run", "--host", "localhost:2", "-n", "3", "/bin/true"])
        .expect_err(&["error:", "3", "2", "oversubscribe"]);
    assert_ne!(run.code(), 0);
    sandbox
        .run_rally(&[
            "run",
            "--host",
            "localhost:2",
            "--oversubscribe",
            "-n",
            "3",
            "/bin/true",
        ])
        .expect_code(0);
}

#[test]
fn implicit_slots_never_refuse() {
    let sandbox = Sandbox::new();
    sandbox
        .run_rally(&["run", "-n", "200", "/bin/true"])
        .expect_code(0);
}

#[test]
fn too_few_descriptors_is_an_error_not_a_hang() {
    for limit in 4..=40 {
        let sandbox = Sandbox::new();
        let script = format!(r#"ulimit -n {limit}; exec "$RALLY" run -n 32 /bin/true"#);
        let run = sandbox.run(&mut sandbox.shell(&script));
        // With very few descriptors, the dynamic loader itself may fail, with code 127 and its own message.
        assert!(run.code() == 0 || !run.err().is_empty(), "{run:?}");
        sandbox.expect_clean();
    }
    let sandbox = Sandbox::new();
    let run = sandbox
        .run(&mut sandbox.shell(r#"ulimit -n 20; exec "$RALLY" run -n 32 /bin/true"#))
        .expect_err(&["error:", "ulimit -n"]);
    assert_ne!(run.code(), 0);
}

/// Root has no limit of processes, so the test needs an unprivileged user, which `cargo xtask test` also uses. The first of
/// our processes that runs out of descriptors reports it.
#[test]
fn no_descriptors_for_ourselves_is_what_is_said() {
    for limit in 7..=20 {
        let sandbox = Sandbox::new();
        let script = format!(r#"ulimit -n {limit}; exec "$RALLY" run -n 1 /bin/true"#);
        let run = sandbox
            .run(&mut sandbox.shell(&script))
            .expect_code(123)
            .expect_err(&["error: ", "help: ", "ulimit -n"]);
        assert_eq!(run.err().matches("error: ").count(), 1, "{run:?}");
    }
}

#[test]
fn no_more_pids_is_an_error_not_a_hang() {
    let sandbox = Sandbox::new();
    // `prlimit`, because Debian's shell has no `ulimit -u`.
    let script = r#"exec prlimit --nproc=60:60 "$RALLY" run -n 500 sleep 0.2"#;
    let run = sandbox.run(&mut sandbox.shell(script));
    if nix::unistd::geteuid().is_root() {
        run.expect_code(0);
    } else {
        assert!(run.code() != 0 && run.err().contains("error:"), "{run:?}");
    }
    sandbox.expect_clean();
}

#[test]
fn a_misspelt_option_after_the_program_is_the_programs() {
    let sandbox = Sandbox::new();
    sandbox
        .run_rally(&["run", "-n", "1", "echo", "--no-such-option", "-n", "0"])
        .expect_code(0)
        .expect_out("--no-such-option -n 0\n");
}

/// Text chosen by others is shown without any effect on the terminal: names of files, values of options, variables and
/// settings, lines of host files.
#[test]
fn nothing_foreign_reaches_the_terminal_as_it_is() {
    const EVIL: &str = "\u{1b}[31m\u{9b}2J\r\u{7}x";
    let sandbox = Sandbox::new();
    let program = sandbox.file(&format!("p{EVIL}"), "#!/bin/sh\n");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    sandbox.file("hosts", format!("a slots={EVIL}\n"));
    let program = format!("./p{EVIL}");
    let lines: [&[&str]; 22] = [
        &["run", "-v", "-n", "1", &program],
        &["run", "--dry-run", "-n", "1", &program],
        &["run", "--explain", "-n", "1", &program],
        &["run", "--display", "map", "-n", "1", &program],
        &["run", "-n", "1", "none-@"],
        &["run", "--wdir", "/none-@", "-n", "1", "true"],
        &["run", "--@", "-n", "1", "true"],
        &["run", "-@", "-n", "1", "true"],
        &["run", "-n", "@", "true"],
        &["run", "--map-by", "@", "true"],
        &["run", "--map-by", "core:@", "true"],
        &["run", "--bind-to", "@", "true"],
        &["run", "--cpu-set", "@", "true"],
        &["run", "--host", "@", "-n", "1", "true"],
        &["run", "--host", "a@:2", "-n", "1", "true"],
        &["run", "--hostfile", "@", "-n", "1", "true"],
        &["run", "--hostfile", "hosts", "-n", "1", "true"],
        &["run", "--output-file", "%@", "-n", "1", "true"],
        &["run", "--stdin", "@", "-n", "1", "true"],
        &["run", "--personality", "@", "-n", "1", "true"],
        &["help", "@"],
        &["release", "@"],
    ];
    let shown = |run: Finished| {
        for text in [run.out(), run.err()] {
            let raw = |letter: char| letter.is_control() && letter != '\n';
            assert!(!text.contains(raw), "{run:?}");
        }
        run
    };
    for line in lines {
        let line: Vec<String> = line.iter().map(|word| word.replace('@', EVIL)).collect();
        let line: Vec<&str> = line.iter().map(String::as_str).collect();
        shown(sandbox.run_rally(&line));
    }
    for (name, value) in [
        ("RALLY_GRACE", EVIL),
        ("RALLY_MAP_BY", EVIL),
        ("RALLY_LABEL", EVIL),
        ("SLURM_JOB_NODELIST", EVIL),
    ] {
        for line in [&["run", "-n", "1", "true"][..], &["config"]] {
            let mut command = sandbox.rally(line);
            shown(sandbox.run(command.env(name, value).env("SLURM_JOB_ID", "1")));
        }
    }
    let config = sandbox.path(".config/rally");
    fs::create_dir_all(&config).unwrap();
    for settings in [format!("grace = \"{EVIL}\"\n"), format!("{EVIL} = 1\n")] {
        fs::write(config.join("config.toml"), settings).unwrap();
        for line in [&["run", "-n", "1", "true"][..], &["config"]] {
            shown(sandbox.run_rally(line));
        }
    }
}
