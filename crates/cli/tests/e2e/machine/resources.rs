//! Counted resources: what runs at the same time never has more of them than there is.

use super::*;

/// Prints the GPUs of the rank, and goes on until the file `go` is there.
const HOLDS: &str =
    "echo rank $RALLY_RANK has $CUDA_VISIBLE_DEVICES; until [ -e go ]; do sleep 0.02; done";

fn machine<'a>(sandbox: &'a Sandbox, args: &[&str]) -> Machine<'a> {
    let all = [&["up", "--host", "localhost:4"], args].concat();
    let mut command = sandbox.rally(&all);
    command.env("CUDA_VISIBLE_DEVICES", "5,GPU-ab,7");
    sandbox.run(&mut command).expect_code(0);
    Machine(sandbox)
}

#[test]
fn jobs_have_gpus_of_their_own() {
    let sandbox = Sandbox::new();
    let machine = machine(&sandbox, &[]);
    let each = ["--gpus-per-proc", "1", "sh", "-c", HOLDS];
    let two = machine.submit(&[&["-n", "2"], &each[..]].concat());
    let one = machine.submit(&[&["-n", "1"], &each[..]].concat());
    for job in [&two, &one] {
        machine.expect_state(job, "running");
    }
    let listed = machine.out(&["nodes"]);
    assert!(listed.contains("gpu=0/3"), "{listed}");
    let later = machine.submit(&[&["-n", "1"], &each[..]].concat());
    let why = machine.out(&["explain", &later]);
    assert!(why.contains("waits for the end of"), "{why}");
    // A job that shares a node may have none of its own.
    let none = machine.submit(&[
        "-n",
        "1",
        "--gpus",
        "0",
        "sh",
        "-c",
        "echo [$CUDA_VISIBLE_DEVICES]",
    ]);
    machine.run(&["wait", &none]).expect_code(0);
    assert_eq!(machine.out(&["output", &none]), "[]");
    sandbox.file("go", "");
    machine.run(&["wait", &two, &one, &later]).expect_code(0);
    let sorted = |job: &str| {
        let mut lines: Vec<String> = machine
            .out(&["output", job])
            .lines()
            .map(str::to_owned)
            .collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&two), ["rank 0 has 5", "rank 1 has GPU-ab"]);
    assert_eq!(sorted(&one), ["rank 0 has 7"]);
    // It has what one of the others had.
    let gpus = ["5", "GPU-ab", "7"].map(|gpu| format!("rank 0 has {gpu}"));
    assert!(gpus.contains(&sorted(&later)[0]), "{:?}", sorted(&later));
    machine
        .run(&["submit", "-n", "1", "--gpus-per-proc", "4", "true"])
        .expect_code(122)
        .expect_err(&["it needs 4 GPUs on a node, and no node has more than 3"]);
    machine.down();
    sandbox.expect_clean();
}

#[test]
fn declared_resources_and_memory_are_counted() {
    let sandbox = Sandbox::new();
    let machine = machine(
        &sandbox,
        &["--shared-resource", "matlab=2", "--node-resource", "fpga=1"],
    );
    let holds = ["sh", "-c", HOLDS];
    let license = ["-n", "1", "--resource", "matlab=2"];
    let first = machine.submit(&[&license[..], &holds].concat());
    let second = machine.submit(&[&license[..], &holds].concat());
    let board =
        machine.submit(&[&["-n", "1", "--resource-per-proc", "fpga=1"], &holds[..]].concat());
    for job in [&first, &board] {
        machine.expect_state(job, "running");
    }
    machine.expect_state(&second, "waiting");
    let status = machine.out(&["status"]);
    assert!(status.contains("resources: matlab=0/2 free"), "{status}");
    let listed = machine.out(&["nodes", "--message-format=json"]);
    let row: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(row["resources"]["fpga"]["free"], 0, "{row}");
    let memory = row["resources"]["memory"]["all"].as_u64().unwrap();
    assert!(memory > 1 << 30, "{row}");
    let shown = machine.out(&["queue", &second]);
    assert!(shown.contains("  resources: matlab=2\n"), "{shown}");
    // More memory than the node has: at no time.
    let limit = format!("{}G", (memory >> 30) + 1);
    machine
        .run(&["submit", "-n", "1", "--memory-limit", &limit, "true"])
        .expect_code(122)
        .expect_err(&["of memory on a node, and no node has more than"]);
    for (args, why) in [
        (
            ["--resource", "matlb=1"],
            "the machine has no resource `matlb`",
        ),
        (["--resource", "fpga=1"], "`fpga` is a resource of nodes"),
        (
            ["--resource-per-proc", "matlab=1"],
            "`matlab` is a resource of the machine",
        ),
        (
            ["--resource", "matlab=3"],
            "it needs 3 of `matlab`, and the machine has 2",
        ),
    ] {
        machine
            .run(&[&["submit", "-n", "1"], &args[..], &["true"]].concat())
            .expect_code(122)
            .expect_err(&[why]);
    }
    sandbox.file("go", "");
    machine
        .run(&["wait", &first, &second, &board])
        .expect_code(0);
    machine.down();
    // Without a machine, nobody counts.
    sandbox
        .run_rally(&["run", "-n", "1", "--resource", "matlab=1", "true"])
        .expect_code(122)
        .expect_err(&["are for jobs of a machine"]);
    sandbox.expect_clean();
}

#[test]
fn declarations_that_cannot_be() {
    let sandbox = Sandbox::new();
    for (args, why) in [
        (
            &["--shared-resource", "gpu=1"][..],
            "GPUs and memory are counted in any case",
        ),
        (
            &["--node-resource", "fpga"],
            "it is no amount of a resource",
        ),
        (&["--node-resource", "fpga=1@[x"], "it is no list of nodes"),
        (
            &["--node-resource", "a=1", "--shared-resource", "a=1"],
            "`a` is a resource of the machine and of nodes",
        ),
    ] {
        sandbox
            .run_rally(&[&["up"], args].concat())
            .expect_code(120)
            .expect_err(&[why]);
    }
    sandbox.expect_clean();
}

#[test]
fn limits_hold_for_the_user_and_for_each_job() {
    let sandbox = Sandbox::new();
    let limits = ["running=2", "jobs=4", "job-slots=2", "job-time=30s"];
    let limits: Vec<&str> = limits.iter().flat_map(|limit| ["--limit", limit]).collect();
    let machine = machine(&sandbox, &limits);
    let refused = |args: &[&str], why: &str| {
        let words = [&["submit"], args, &["true"]].concat();
        machine.run(&words).expect_code(122).expect_err(&[why]);
    };
    refused(&["-n", "3"], "a job may have at most 2 slots");
    refused(
        &["-n", "1", "--time", "1m"],
        "the time limit of a job may be at most 30s",
    );
    let holds = ["-n", "1", "sh", "-c", HOLDS];
    let jobs = [(); 4].map(|()| machine.submit(&holds));
    machine.expect_state(&jobs[0], "running");
    machine.expect_state(&jobs[1], "running");
    machine.expect_state(&jobs[2], "waiting");
    let why = machine.out(&["explain", &jobs[2]]);
    assert!(
        why.contains("its user runs 2 tasks, which is the limit"),
        "{why}"
    );
    assert!(
        machine
            .out(&["queue", &jobs[2]])
            .contains("  limit: 0:30\n")
    );
    refused(
        &["-n", "1"],
        "the user has 4 jobs in the queue, which is the limit",
    );
    sandbox.file("go", "");
    machine
        .run(&[&["wait"], &jobs.each_ref().map(String::as_str)[..]].concat())
        .expect_code(0);
    machine.down();
    sandbox
        .run_rally(&["up", "--limit", "running=0"])
        .expect_code(120)
        .expect_err(&["it is no limit"]);
    sandbox.expect_clean();
}
