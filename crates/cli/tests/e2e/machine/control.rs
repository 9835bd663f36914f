//! Orders about running jobs, and what the jobs use.

use super::*;

fn sleeping(sandbox: &Sandbox) -> Vec<Proc> {
    let found = sandbox.find("sleep 1000").into_iter();
    found
        .filter(|process| process.args == "sleep 1000")
        .collect()
}

/// Waits until all processes that sleep are in this state, or none is.
fn expect_state(sandbox: &Sandbox, state: char, expected: bool) {
    let is_there = || {
        let found = sleeping(sandbox);
        let right = |process: &Proc| (process.state == state) == expected;
        (!found.is_empty() && found.iter().all(right)).then_some(())
    };
    assert!(
        eventually(DEADLINE, is_there).is_some(),
        "{:?}",
        sleeping(sandbox)
    );
}

#[test]
fn jobs_pause_and_go_on() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &["--host", "localhost:2"]);
    // What a rank has started is paused too, in whatever group and session it is.
    let both = "setsid sleep 1000 & sleep 1000";
    let job = machine.submit(&["-n", "1", "--", "sh", "-c", both]);
    let started = eventually(DEADLINE, || (sleeping(&sandbox).len() == 2).then_some(()));
    assert!(started.is_some());
    machine.run(&["pause", &job]).expect_code(0);
    expect_state(&sandbox, 'T', true);
    machine.expect_state(&job, "paused");
    let shown = machine.out(&["queue", &job]);
    assert!(shown.starts_with(&format!("job {job}, paused")), "{shown}");
    machine.run(&["resume", &job]).expect_code(0);
    expect_state(&sandbox, 'T', false);
    machine.expect_state(&job, "running");
    // A paused job can be canceled at once.
    machine.run(&["pause", &job]).expect_code(0);
    machine.run(&["cancel", &job]).expect_code(0);
    machine.expect_state(&job, "canceled");
    machine
        .run(&["pause", &job])
        .expect_code(120)
        .expect_err(&["is over"]);
    let held = machine.submit(&["--hold", "-n", "1", "true"]);
    machine
        .run(&["pause", &held])
        .expect_code(120)
        .expect_err(&["no such task of job 2 runs"]);
    machine.down();
}

#[test]
fn signals_reach_the_tasks_that_are_meant() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &["--host", "localhost:2"]);
    let waits =
        "trap 'echo $RALLY_ARRAY_INDEX; exit 0' USR1; echo ready; while :; do sleep 0.01; done";
    let job = machine.submit(&["-n", "1", "--array", "1-2", "--", "sh", "-c", waits]);
    for index in [1, 2] {
        let task = format!("{job}[{index}]");
        let is_ready = || {
            machine
                .run(&["output", &task])
                .out()
                .contains("ready")
                .then_some(())
        };
        assert!(eventually(DEADLINE, is_ready).is_some());
    }
    let second = format!("{job}[2]");
    machine.run(&["signal", "usr1", &second]).expect_code(0);
    // The shell also says that the signal has ended its child.
    let is_told = || {
        machine
            .run(&["output", &second])
            .out()
            .ends_with("\n2\n")
            .then_some(())
    };
    assert!(eventually(DEADLINE, is_told).is_some());
    assert_eq!(machine.out(&["output", &format!("{job}[1]")]), "ready");
    machine
        .run(&["signal", "NONE", &job])
        .expect_code(120)
        .expect_err(&["NONE"]);
    machine.down();
}

#[test]
fn what_jobs_use_is_shown_and_kept() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &["--host", "localhost:2"]);
    let works = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; exec sleep 1000";
    let job = machine.submit(&["-n", "2", "--", "sh", "-c", works]);
    let measured = eventually(DEADLINE, || {
        let shown = machine.run(&["usage", &job, "--message-format=json"]).out();
        let lines = shown
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        let lines: Vec<serde_json::Value> = lines.collect();
        let number = |line: &serde_json::Value, name: &str| line[name].as_f64().unwrap_or(0.0);
        let works = |line: &serde_json::Value| {
            number(line, "user_seconds") > 0.0 && number(line, "resident_bytes") > 0.0
        };
        let is_complete = lines.len() == 3 && lines.iter().all(works);
        (is_complete && lines[2]["procs"] == 2).then_some(())
    });
    assert!(measured.is_some());
    let table = machine.out(&["usage", &job]);
    assert!(table.starts_with("RANK  NODE"), "{table}");
    machine.run(&["signal", "TERM", &job]).expect_code(0);
    machine.expect_state(&job, "failed");
    let row: serde_json::Value =
        serde_json::from_str(&machine.out(&["queue", &job, "--message-format=json"])).unwrap();
    assert!(row["usage"]["user_seconds"].as_f64() > Some(0.0), "{row}");
    assert!(row["usage"]["peak_bytes"].as_u64() > Some(0), "{row}");
    machine
        .run(&["usage", &job])
        .expect_code(120)
        .expect_err(&["is over"]);
    machine.down();
}
