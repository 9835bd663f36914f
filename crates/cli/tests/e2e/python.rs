//! Compares `dbgr stacks` with `py-spy`: the same Python calls in every thread, with the same lines.

use serde_json::Value;

use crate::harness::{DEADLINE, Running, Sandbox, Stream, dbgr, eventually, rally, testdata, venv};

/// Function, file, line.
type Call = (String, String, u64);

/// The number of threads of the program, each in a different kind of call.
const THREADS: usize = 6;

fn call(name: &Value, file: &Value, line: &Value) -> Call {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(name), text(file), line.as_u64().unwrap())
}

/// Returns the calls of each thread, outermost first, with the threads sorted.
fn ours(sandbox: &Sandbox, pid: i32) -> Vec<Vec<Call>> {
    let mut command = sandbox.command(dbgr());
    command.args(["stacks", "--full", "--json", &pid.to_string()]);
    let said = sandbox.run(&mut command).expect_code(0).out();
    let said: Value = serde_json::from_str(&said).unwrap();
    let frames = said["frames"].as_array().unwrap();
    let mut stacks = Vec::new();
    for stack in said["samples"][0]["stacks"].as_array().unwrap() {
        let indices = stack["frames"].as_array().unwrap().iter();
        let calls: Vec<Call> = indices
            .map(|index| &frames[usize::try_from(index.as_u64().unwrap()).unwrap()])
            .filter(|frame| frame["kind"] == "python")
            .map(|frame| {
                let source = &frame["source"];
                call(&frame["function"], &source["file"], &source["line"])
            })
            .collect();
        stacks.push(calls);
    }
    stacks.sort();
    stacks
}

fn theirs(sandbox: &Sandbox, pid: i32) -> Vec<Vec<Call>> {
    let mut command = sandbox.command(venv("py-spy").join("bin/py-spy"));
    command.args(["dump", "--json", "--pid", &pid.to_string()]);
    let said = sandbox.run(&mut command).expect_code(0).out();
    let said: Value = serde_json::from_str(&said).unwrap();
    let mut stacks: Vec<Vec<Call>> = Vec::new();
    for thread in said.as_array().unwrap() {
        let frames = thread["frames"].as_array().unwrap().iter().rev();
        let calls = frames.map(|frame| call(&frame["name"], &frame["filename"], &frame["line"]));
        stacks.push(calls.collect());
    }
    stacks.sort();
    stacks
}

#[track_caller]
fn agree(sandbox: &Sandbox, running: Running, pid: i32) {
    // When the program prints that all threads exist, a thread may not yet be in its final call.
    let same = eventually(DEADLINE, || {
        let (ours, theirs) = (ours(sandbox, pid), theirs(sandbox, pid));
        (ours == theirs && ours.len() == THREADS).then_some(ours)
    });
    let Some(stacks) = same else {
        assert_eq!(ours(sandbox, pid), theirs(sandbox, pid));
        panic!("there are not {THREADS} threads");
    };
    let innermost = |name: &str| {
        let of_that_name = |stack: &&Vec<Call>| stack.last().unwrap().0 == name;
        stacks.iter().filter(of_that_name).count()
    };
    for name in [
        "Solver.exchange",
        "Solver.steps",
        "listen",
        "compute.<locals>.<lambda>",
        "Condition.wait",
        "main.<locals>.<lambda>",
    ] {
        assert_eq!(innermost(name), 1, "{name}: {stacks:?}");
    }
    running.signal(nix::sys::signal::Signal::SIGTERM);
    running.end();
}

fn program() -> String {
    let path = testdata("stacks/threads.py");
    path.to_str().unwrap().to_owned()
}

#[test]
fn threads_in_calls_of_all_kinds() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command("/usr/bin/python3");
    let running = sandbox.start(command.arg(program()));
    running.expect(Stream::Stdout, "ready");
    let pid = running.pid;
    agree(&sandbox, running, pid);
}

/// The interpreter of a virtual environment is a link, and the launcher of a rank is not Python.
#[test]
fn a_rank_in_a_virtual_environment() {
    let sandbox = Sandbox::new();
    let python = venv("py-spy").join("bin/python3");
    let mut command = sandbox.command(rally());
    command.args(["run", "-n", "1"]).arg(python).arg(program());
    let running = sandbox.start(&mut command);
    running.expect(Stream::Stdout, "ready");
    let found = sandbox.find("threads.py");
    assert_eq!(found.len(), 1, "{found:?}");
    let pid = found[0].pid;
    agree(&sandbox, running, pid);
}
