//! Submitted jobs that are watched for hangs.

use std::os::unix::fs::symlink;

use super::*;

#[test]
fn a_submitted_job_that_hangs_is_reported_in_its_files() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &["--host", "localhost:4"]);
    let errors = sandbox.path("errors");
    let asks = ["--on-hang=report:1s", "-n", "2", "--errors-to"];
    let rest = [errors.to_str().unwrap(), "--", "sleep", "1000"];
    let job = machine.submit(&[&asks[..], &rest].concat());
    let read = || fs::read_to_string(&errors).unwrap_or_default();
    let page = format!("rally-{job}-hang.html");
    let parts = [
        "nothing has moved for 1 s",
        &format!("{page}`"),
        "2 ranks of `sleep`",
    ];
    let is_told = || {
        let said = read();
        parts.iter().all(|part| said.contains(part)).then_some(())
    };
    assert!(eventually(DEADLINE, is_told).is_some(), "{}", read());
    let page = sandbox.read(&page);
    assert!(page.trim_end().ends_with("</html>"));
    // The watch ends with the job.
    machine.run(&["cancel", &job]).expect_code(0);
    machine.expect_state(&job, "canceled");
    let none = || sandbox.find("dbgr").is_empty().then_some(());
    assert!(eventually(DEADLINE, none).is_some());
    machine.down();
}

#[test]
fn each_task_has_its_report_before_its_time_limit() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &["--host", "localhost:4"]);
    let args = [
        "--array",
        "1-2",
        "-n",
        "1",
        "--time",
        "10",
        "--on-hang=report:1h",
    ];
    let job = machine.submit(&[&args[..], &["--", "sleep", "1000"]].concat());
    machine.expect_state(&job, "failed");
    for task in 1..=2 {
        let output = sandbox.read(&format!("rally-{job}-{task}.out"));
        let limit = "warning: the time limit ends the job in ";
        assert!(output.contains(limit), "{output}");
        let page = sandbox.read(&format!("rally-{job}-{task}-hang.html"));
        assert!(page.trim_end().ends_with("</html>"));
    }
    machine.down();
}

#[test]
fn a_job_that_ends_well_says_nothing_of_its_watch() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &["--host", "localhost:4"]);
    let script = "for i in 1 2 3 4; do echo $i; sleep 0.5; done";
    let job = machine.submit(&["--on-hang=report:1s", "-n", "1", "--", "sh", "-c", script]);
    machine.run(&["wait", &job]).expect_code(0);
    assert_eq!(sandbox.read(&format!("rally-{job}.out")), "1\n2\n3\n4\n");
    machine.down();
}

#[test]
fn a_job_without_dbgr_runs_and_says_so() {
    let sandbox = Sandbox::new();
    let alone = sandbox.path("alone");
    fs::create_dir(&alone).unwrap();
    fs::copy(rally(), alone.join("rally")).unwrap();
    symlink("/bin/sleep", alone.join("sleep")).unwrap();
    let run = |args: &[&str]| {
        let mut command = sandbox.command(alone.join("rally"));
        command.args(args).env("PATH", &alone);
        sandbox.run(&mut command).expect_code(0)
    };
    run(&["up", "--host", "localhost:1"]);
    run(&["submit", "--on-hang=report:1s", "-n", "1", "sleep", "0.1"]);
    run(&["wait", "1"]);
    insta::assert_snapshot!(sandbox.read("rally-1.out"), @"
    warning: the job is not watched for hangs: `dbgr` was not found when the machine was started
      effect: it runs on without `--on-hang`
      help:   install `dbgr` beside `rally`, and start the machine again: `rally down --wait`, `rally up`
    ");
    run(&["down"]);
}
