//! `rally mpir-check`: our launcher, others, and one with mistakes.

use std::{collections::BTreeMap, path::Path, process::Command};

use nix::{sys::signal, unistd::Pid};

use crate::harness::{Finished, Sandbox, Stream, compiled, rally, testdata, venv};

/// Runs a check. Returns the verdicts that are not `right`, by the ids of their statements.
pub(crate) fn verdicts(checked: &Finished) -> BTreeMap<String, String> {
    let whole: serde_json::Value =
        serde_json::from_str(&checked.out()).unwrap_or_else(|error| panic!("{error}: {checked:?}"));
    let findings = whole["findings"].as_array().expect("a list");
    assert_eq!(findings.len(), 25, "{checked:?}");
    let text = |finding: &serde_json::Value, key: &str| {
        let value = finding[key].as_str();
        value.expect("a text").to_owned()
    };
    findings
        .iter()
        .map(|finding| (text(finding, "id"), text(finding, "verdict")))
        .filter(|(_, verdict)| verdict != "right")
        .collect()
}

/// Returns the findings that are not `right`, a line each, for the message of a test that fails.
fn unusual(checked: &Finished) -> String {
    let whole: serde_json::Value = serde_json::from_str(&checked.out()).unwrap_or_default();
    let findings = whole["findings"].as_array().into_iter().flatten();
    let unusual = findings.filter(|finding| finding["verdict"] != "right");
    unusual
        .map(|finding| {
            let (id, verdict, seen) = (&finding["id"], &finding["verdict"], &finding["seen"]);
            format!("{id} {verdict}: {seen}\n")
        })
        .collect()
}

/// Returns the ids of the statements with a verdict.
pub(crate) fn with<'a>(all: &'a BTreeMap<String, String>, verdict: &str) -> Vec<&'a str> {
    let found = all.iter().filter(|(_, it)| *it == verdict);
    found.map(|(id, _)| id.as_str()).collect()
}

/// The options of a check whose job runs until it is ended.
const QUICK: [&str; 9] = [
    "mpir-check",
    "--message-format",
    "json",
    "--hold",
    "100ms",
    "--run",
    "300ms",
    "--limit",
    "40s",
];

fn check(sandbox: &Sandbox, launcher: &[&str]) -> Command {
    let mut command = sandbox.rally(&QUICK);
    command.arg("--").args(launcher);
    command
}

/// `rally` keeps to the interface, also behind a wrapper that executes it.
#[test]
fn our_launcher_does_everything_right() {
    let rally = rally();
    let rally = rally.to_str().unwrap();
    let plain = [rally, "run", "-n", "3", "sleep", "1000"];
    let script = r#"exec "$0" run -n 3 sleep 1000"#;
    for launcher in [&plain[..], &["sh", "-c", script, rally]] {
        let sandbox = Sandbox::new();
        let checked = sandbox.run(&mut check(&sandbox, launcher)).expect_code(0);
        let all = verdicts(&checked);
        assert_eq!(with(&all, "wrong"), [""; 0], "{checked:?}");
        assert_eq!(with(&all, "not-checked"), [""; 0], "{checked:?}");
    }
}

/// What users of Open MPI 4.1 find: see the comparison in the documentation. Its `mpirun` has races of its own, so one of three checks
/// is enough.
#[test]
fn open_mpi_4_1_holds_its_ranks_in_mpi_init() {
    let program = compiled("mpicc.openmpi".as_ref(), &testdata("mpi/stay.c"), &[]);
    let odd: Vec<String> = std::iter::repeat_with(|| odd_findings_of_open_mpi_4(&program))
        .take(3)
        .map_while(|odd| odd)
        .collect();
    assert!(odd.len() < 3, "{}", odd.join("\nagain:\n"));
}

/// Checks Open MPI 4.1. Returns the findings if they are not the expected ones.
fn odd_findings_of_open_mpi_4(program: &Path) -> Option<String> {
    let sandbox = Sandbox::new();
    let mut command = sandbox.rally(&["mpir-check", "--message-format", "json"]);
    // Its FIFO is used again without a breakpoint, for which the check waits as long as it may.
    command.args(["--hold", "4s", "--run", "500ms", "--limit", "25s", "--"]);
    command.args(["mpirun.openmpi", "--oversubscribe", "-n", "3"]);
    command.arg(program);
    for name in ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] {
        command.env(name, "1");
    }
    command.env("OMPI_MCA_btl", "^ofi");
    // It sometimes does not end at SIGTERM. When it is killed, it leaves its files, which no other process could remove.
    command.env("OMPI_MCA_orte_tmpdir_base", sandbox.work());
    let checked = sandbox.run(&mut command).expect_code(1);
    let all = verdicts(&checked);
    let is_usual = with(&all, "wrong") == ["row-type", "strings"]
        && with(&all, "not-applicable") == ["aborted", "again", "pre-main"]
        && with(&all, "not-checked").is_empty();
    (!is_usual).then(|| unusual(&checked))
}

/// The launcher of the package has no symbols: they are stripped, and not exported.
#[test]
fn hydra_has_no_symbols() {
    let sandbox = Sandbox::new();
    let hydra = venv("mpich").join("bin/mpiexec.hydra");
    let launcher = [hydra.to_str().unwrap(), "-n", "2", "true"];
    let checked = sandbox.run(&mut check(&sandbox, &launcher)).expect_code(1);
    let all = verdicts(&checked);
    assert_eq!(with(&all, "wrong"), ["symbols"], "{checked:?}");
    assert_eq!(with(&all, "not-checked").len(), 24, "{checked:?}");
}

/// A made launcher, whose mistakes are found and no others. It calls the breakpoint in a thread, and fills its table when a byte
/// comes through its FIFO, again and again.
#[test]
fn mistakes_are_found() {
    let starter = compiled(
        "gcc".as_ref(),
        &testdata("mpir/starter.c"),
        &["-g", "-rdynamic", "-pthread"],
    );
    let cases: [(&str, &[&str]); 5] = [
        ("none", &[]),
        ("free", &["held"]),
        ("order", &["order"]),
        ("state", &["announced"]),
        ("crash", &["detached", "released"]),
    ];
    for (mistake, expected) in cases {
        let sandbox = Sandbox::new();
        // Its FIFO is beside it.
        let here = sandbox.path("starter");
        std::fs::copy(&starter, &here).unwrap();
        // What does not come is awaited for the whole limit.
        let limit = if mistake == "state" { "3s" } else { "12s" };
        let mut command = sandbox.rally(&["mpir-check", "--message-format", "json"]);
        command.args(["--limit", limit, "--hold", "100ms", "--run", "300ms", "--"]);
        command.args([here.to_str().unwrap(), mistake]);
        let code = i32::from(!expected.is_empty());
        let checked = sandbox.run(&mut command).expect_code(code);
        let all = verdicts(&checked);
        assert_eq!(with(&all, "wrong"), expected, "{mistake}: {checked:?}");
        if mistake == "none" {
            let absent = [
                "aborted",
                "again",
                "arguments",
                "attached",
                "colocated",
                "daemons",
                "partial",
                "pre-main",
            ];
            assert_eq!(with(&all, "not-applicable"), absent, "{checked:?}");
        }
    }
}

#[test]
fn what_cannot_be_checked_is_said() {
    let sandbox = Sandbox::new();
    let checked = sandbox.run(&mut check(&sandbox, &["true"])).expect_code(1);
    assert_eq!(with(&verdicts(&checked), "wrong"), ["symbols"]);
    sandbox
        .run(&mut check(&sandbox, &["no-such-launcher"]))
        .expect_code(127)
        .expect_err(&["mpir-check/not-found"]);
    let file = sandbox.file("launcher", "");
    sandbox
        .run(&mut check(&sandbox, &[&file]))
        .expect_code(126)
        .expect_err(&["mpir-check/not-executable"]);
}

/// Whichever process of the check is killed, and however it is ended, nothing is left.
#[test]
fn nothing_is_left_of_a_check_that_ends_early() {
    let rally = rally();
    for (target, code) in [
        (Target::Keeper(signal::Signal::SIGKILL), 137),
        (Target::Checker, 137),
        (Target::Keeper(signal::Signal::SIGTERM), 143),
    ] {
        let sandbox = Sandbox::new();
        let mut command = sandbox.rally(&["mpir-check", "--hold", "1000s", "--"]);
        command
            .arg(&rally)
            .args(["run", "-n", "3", "sleep", "1000"]);
        let run = sandbox.start(&mut command);
        // The ranks are held, and are watched for a long time.
        run.expect(Stream::Stdout, "right           strings");
        match target {
            Target::Keeper(signal) => run.signal(signal),
            Target::Checker => {
                let all = sandbox.alive();
                let checker = all.iter().find(|process| process.ppid == run.pid);
                let checker = checker.expect("the checker is a child").pid;
                signal::kill(Pid::from_raw(checker), signal::Signal::SIGKILL).unwrap();
            }
        }
        sandbox.expect_clean();
        run.end().expect_code(code);
    }
}

#[derive(Clone, Copy, Debug)]
enum Target {
    /// The process that the user has started.
    Keeper(signal::Signal),
    /// The one that traces the launcher.
    Checker,
}
