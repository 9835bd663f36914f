//! Jobs over several nodes: `--bootstrap fork` stands in for a cluster, with a daemon process for each node.

mod explain;
mod holding;
mod preload;
mod spawned_files;

use std::time::Duration;

use mischief::Proc;
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

use crate::harness::{CLEAN_WITHIN, Finished, Sandbox, Stream, eventually};

/// Options for a run over three nodes, with one rank on each in turn.
pub(crate) const OVER_NODES: [&str; 6] =
    ["--bootstrap", "fork", "--nodes", "3", "--map-by", "node"];

/// Returns the name of a node of such a run.
pub(crate) fn node_name(sandbox: &Sandbox, number: usize) -> String {
    let host = sandbox.run(sandbox.command("uname").arg("-n")).out();
    format!("{}-n{number}", host.trim())
}

/// Runs a job over nodes, with one rank on each in turn.
fn run(sandbox: &Sandbox, nodes: &str, args: &[&str]) -> Finished {
    sandbox.run(&mut over(sandbox, nodes, args))
}

fn over(sandbox: &Sandbox, nodes: &str, args: &[&str]) -> std::process::Command {
    let mut command = sandbox.rally(&["run", "--bootstrap", "fork", "--nodes", nodes]);
    command.args(["--map-by", "node", "-q"]);
    for arg in args {
        match *arg {
            "mischief" => command.arg(crate::harness::mischief()),
            arg => command.arg(arg),
        };
    }
    command
}

/// Length of much output or input, which is more than all windows hold.
const BLOCKS: usize = 8 << 20;

/// Returns the processes of the daemons of other nodes: guardians, and below each its daemon.
pub(crate) fn processes(sandbox: &Sandbox) -> Vec<Proc> {
    let mut found = sandbox.alive();
    found.retain(|process| process.args.contains("__daemon"));
    found
}

#[test]
fn ranks_are_on_all_nodes_and_know_it() {
    let sandbox = Sandbox::new();
    let script = "echo $PMIX_RANK of $OMPI_COMM_WORLD_SIZE: $OMPI_COMM_WORLD_LOCAL_RANK of $OMPI_COMM_WORLD_LOCAL_SIZE on node $OMPI_COMM_WORLD_NODE_RANK";
    let run = run(&sandbox, "3", &["-n", "5", "--", "sh", "-c", script]).expect_code(0);
    assert_eq!(
        run.sorted(),
        "0 of 5: 0 of 2 on node 0\n1 of 5: 0 of 2 on node 0\n2 of 5: 0 of 1 on node 0\n3 of 5: 1 of 2 on node 1\n4 of 5: 1 of 2 on node 1"
    );
}

#[test]
fn a_deep_tree_runs_a_job() {
    let sandbox = Sandbox::new();
    let run = run(
        &sandbox,
        "8",
        &["--radix", "2", "-n", "16", "--", "echo", "here"],
    );
    assert_eq!(run.expect_code(0).out().lines().count(), 16);
}

#[test]
fn output_of_all_nodes_is_whole() {
    let sandbox = Sandbox::new();
    let script =
        "i=0; while [ $i -lt 2000 ]; do echo \"$PMIX_RANK line $i of a rank\"; i=$((i+1)); done";
    let run = run(
        &sandbox,
        "4",
        &["--radix", "1", "-n", "4", "--", "sh", "-c", script],
    )
    .expect_code(0);
    for rank in 0..4 {
        let lines = run.out();
        let of_rank = lines
            .lines()
            .filter(|line| line.starts_with(&format!("{rank} ")));
        let expected: Vec<_> = (0..2000)
            .map(|i| format!("{rank} line {i} of a rank"))
            .collect();
        assert_eq!(of_rank.collect::<Vec<_>>(), expected);
    }
}

/// Credit for equal blocks is a series of equal messages to one daemon, and each of them counts.
#[test]
fn equal_blocks_of_output_are_all_credited() {
    let sandbox = Sandbox::new();
    let script = format!("yes 0123456 | head -c {BLOCKS}");
    let run = run(&sandbox, "4", &["-n", "4", "--", "sh", "-c", &script]).expect_code(0);
    assert_eq!(run.out().len(), 4 * BLOCKS);
}

/// Blocks of input that are equal are not one block.
#[test]
fn equal_blocks_of_input_all_arrive() {
    let sandbox = Sandbox::new();
    let path = sandbox.file("input", "0123456\n".repeat(BLOCKS / 8));
    let args = [
        "--stdin",
        "1",
        "--input",
        &path,
        "-n",
        "2",
        "--",
        "sh",
        "-c",
        "[ $PMIX_RANK = 0 ] || wc -c",
    ];
    let run = run(&sandbox, "2", &args).expect_code(0);
    run.expect_out(&format!("{BLOCKS}\n"));
}

#[test]
fn input_reaches_a_rank_on_another_node() {
    let sandbox = Sandbox::new();
    let input: String = (0..50_000).map(|i| format!("line {i}\n")).collect();
    let path = sandbox.file("input", &input);
    let args = [
        "--stdin",
        "1",
        "--input",
        &path,
        "-n",
        "2",
        "--",
        "sh",
        "-c",
        "[ $PMIX_RANK = 0 ] || cat",
    ];
    run(&sandbox, "2", &args).expect_code(0).expect_out(&input);
}

#[test]
fn the_exit_code_of_a_rank_elsewhere_is_ours() {
    let sandbox = Sandbox::new();
    let script = "[ $PMIX_RANK = 2 ] && exit 7; sleep 60";
    let run = run(&sandbox, "3", &["-n", "3", "--", "sh", "-c", script]);
    run.expect_code(7)
        .expect_err(&["error: rank 2 on `", "exited with code 7"]);
}

#[test]
fn a_program_that_only_one_node_lacks_is_an_error_of_its_rank() {
    let sandbox = Sandbox::new();
    let run = run(&sandbox, "2", &["-n", "2", "--", "./nothing-here"]);
    run.expect_code(127).expect_err(&["nothing-here"]);
}

#[test]
fn a_killed_daemon_ends_the_job_and_its_node_is_named() {
    let sandbox = Sandbox::new();
    let job = sandbox.start(&mut over(
        &sandbox,
        "3",
        &["-n", "3", "--", "sh", "-c", "echo up; sleep 60"],
    ));
    job.expect_times(Stream::Stdout, "up", 3);
    let all = processes(&sandbox);
    let is_below = |process: &&Proc| all.iter().any(|other| other.pid == process.ppid);
    let victim = all.iter().find(is_below).unwrap();
    signal::kill(Pid::from_raw(victim.pid), Signal::SIGKILL).unwrap();
    job.end().expect_code(125).expect_err(&[
        "error: lost the node `",
        "reason: its connection was closed",
        "effect: the other 2 ranks were ended",
    ]);
}

/// In a chain of four nodes, the daemons of the last two connect to the launcher when the second one dies. What they were
/// sending meanwhile arrives.
#[test]
fn nodes_below_a_lost_node_connect_elsewhere() {
    const LINES: usize = 200_000;
    let sandbox = Sandbox::new();
    let script = format!(
        "echo up; while [ ! -e go ]; do sleep 0.05; done; wc -c; yes line of $RALLY_RANK | head -n {LINES}; echo done"
    );
    let input = sandbox.file("input", "y".repeat(BLOCKS));
    let mut command = sandbox.rally(&["run", "--bootstrap", "fork", "--nodes", "4", "-n", "4"]);
    command.args(["--radix", "1", "--map-by", "node"]);
    command.args(["--stdin", "all", "--input", &input]);
    command.args(["--on-node-loss=continue", "sh", "-c", &script]);
    let job = sandbox.start(&mut command);
    job.expect_times(Stream::Stdout, "up", 4);
    let mut ranks = sandbox.find("while [ ! -e go ]").into_iter();
    let is_second = |rank: &Proc| rank.variable("RALLY_RANK").as_deref() == Some("1");
    let second = ranks.find(is_second).expect("rank 1 runs");
    std::fs::write(sandbox.path("go"), "").unwrap();
    signal::kill(Pid::from_raw(second.ppid), Signal::SIGKILL).unwrap();
    job.expect_times(Stream::Stderr, "lost the node `", 1);
    let run = job.end().expect_code(125);
    let out = run.out();
    for line in ["done".to_owned(), BLOCKS.to_string()] {
        assert_eq!(out.lines().filter(|one| *one == line).count(), 3, "{line}");
    }
    for rank in [0, 2, 3] {
        let line = format!("line of {rank}");
        assert_eq!(out.lines().filter(|one| *one == line).count(), LINES);
    }
    run.expect_err(&["effect: the other 3 ranks ran on to their end"]);
}

#[test]
fn ranks_of_other_nodes_run_on_without_a_lost_node() {
    let sandbox = Sandbox::new();
    let script = "echo up; while [ ! -e go ]; do sleep 0.05; done; echo done";
    // Not quiet: the note is one of the things to see.
    let mut command = sandbox.rally(&["run", "--bootstrap", "fork", "--nodes", "3", "-n", "3"]);
    command.args([
        "--map-by",
        "node",
        "--on-node-loss=continue",
        "sh",
        "-c",
        script,
    ]);
    let job = sandbox.start(&mut command);
    job.expect_times(Stream::Stdout, "up", 3);
    let all = processes(&sandbox);
    let is_below = |process: &&Proc| all.iter().any(|other| other.pid == process.ppid);
    let victim = all.iter().find(is_below).unwrap();
    signal::kill(Pid::from_raw(victim.pid), Signal::SIGKILL).unwrap();
    job.expect_times(Stream::Stderr, "lost the node `", 1);
    std::fs::write(sandbox.path("go"), "").unwrap();
    let run = job.end().expect_code(125);
    assert_eq!(run.out().matches("done").count(), 2, "{run:?}");
    run.expect_err(&["effect: the other 2 ranks ran on to their end"]);
}

/// A shell function for rank 0: spawns a rank on a node by PMI-1, and prints the answer.
pub(crate) const SPAWN_ON: &str = r#"
    ask() { printf "$1\n" >&$PMI_FD; read -r answer <&$PMI_FD; }
    spawn_on() {
        ask "mcmd=spawn\nnprocs=1\nexecname=/bin/echo\ntotspawns=1\nspawnssofar=1\nargcnt=1\narg1=spawned\npreput_num=0\ninfo_num=1\ninfo_key_0=host\ninfo_val_0=$1\nendcmd"
        echo $answer
    }
    ask 'cmd=init pmi_version=1 pmi_subversion=1'
"#;

#[test]
fn a_job_that_goes_on_without_a_node_spawns_on_the_others() {
    let sandbox = Sandbox::new();
    let [first, second, third] = [0, 1, 2].map(|number| node_name(&sandbox, number));
    let script = format!(
        "echo up; [ $RALLY_RANK = 0 ] || exec sleep 77; while [ ! -e go ]; do sleep 0.05; done
        {SPAWN_ON}
        spawn_on {third}; spawn_on {second}; spawn_on {first}; ask cmd=finalize"
    );
    let mut command = sandbox.rally(&["run", "--on-node-loss=continue"]);
    command
        .args(OVER_NODES)
        .args(["-n", "2", "bash", "-c", &script]);
    let job = sandbox.start(&mut command);
    job.expect_times(Stream::Stdout, "up", 2);
    let is_second = |rank: &Proc| rank.variable("RALLY_RANK").as_deref() == Some("1");
    let mut ranks = sandbox.find("sleep 77").into_iter();
    let rank = ranks.find(is_second).expect("rank 1 runs");
    signal::kill(Pid::from_raw(rank.ppid), Signal::SIGKILL).unwrap();
    job.expect(Stream::Stderr, "lost the node `");
    std::fs::write(sandbox.path("go"), "").unwrap();
    let run = job.end().expect_code(125).expect_err(&[
        &format!("rank 0 of job 1 cannot spawn a job: the daemon on `{second}` is gone"),
        &format!("lost: `{second}`"),
    ]);
    let out = run.out();
    assert_eq!(out.matches("spawned\n").count(), 2, "{run:?}");
    let answers: Vec<&str> = out.lines().filter(|line| line.contains("rc=")).collect();
    let [one, refused, other] = &answers[..] else {
        panic!("{run:?}");
    };
    assert!(one.contains("rc=0") && other.contains("rc=0"), "{run:?}");
    assert!(refused.contains("cannot_be_placed"), "{run:?}");
}

#[test]
fn a_killed_controller_leaves_nothing_on_any_node() {
    let sandbox = Sandbox::new();
    let script = "setsid sleep 77 & echo up; sleep 77";
    let job = sandbox.start(&mut over(
        &sandbox,
        "3",
        &["-n", "3", "--", "sh", "-c", script],
    ));
    job.expect_times(Stream::Stdout, "up", 3);
    // The controller is the parent of the daemons' guardians.
    let all = processes(&sandbox);
    let is_above = |process: &&Proc| all.iter().all(|other| other.pid != process.ppid);
    let guardian = all.iter().find(is_above).unwrap();
    signal::kill(Pid::from_raw(guardian.ppid), Signal::SIGKILL).unwrap();
    let ended = job.end();
    assert_eq!(ended.code(), 125, "{ended:?}");
    let gone = eventually(CLEAN_WITHIN + Duration::from_secs(2), || {
        sandbox.alive().is_empty().then_some(())
    });
    assert_eq!(gone, Some(()), "{:?}", sandbox.alive());
}

#[test]
fn a_killed_front_leaves_nothing_on_any_node() {
    let sandbox = Sandbox::new();
    let script = "setsid sleep 77 & echo up; sleep 77";
    let args = ["-n", "3", "--", "sh", "-c", script];
    let job = sandbox.start(&mut over(&sandbox, "3", &args));
    job.expect_times(Stream::Stdout, "up", 3);
    job.signal(Signal::SIGKILL);
    job.end().expect_code(137);
    sandbox.expect_clean();
}

#[test]
fn an_interrupt_ends_the_ranks_of_all_nodes() {
    let sandbox = Sandbox::new();
    let job = sandbox.start(&mut over(
        &sandbox,
        "3",
        &["-n", "3", "--", "sh", "-c", "echo up; sleep 60"],
    ));
    job.expect_times(Stream::Stdout, "up", 3);
    job.signal(Signal::SIGINT);
    assert_eq!(job.end().code(), 130);
}

#[test]
fn what_ranks_of_all_nodes_leave_behind_is_ended() {
    let sandbox = Sandbox::new();
    let run = run(
        &sandbox,
        "3",
        &["-n", "6", "--", "sh", "-c", "setsid sleep 78 & echo done"],
    );
    assert_eq!(run.expect_code(0).out(), "done\n".repeat(6));
    sandbox.expect_no_process();
}

#[test]
fn held_ranks_of_all_nodes_are_released() {
    let sandbox = Sandbox::new();
    let job = sandbox.start(&mut over(
        &sandbox,
        "2",
        &["--stop-on-exec", "-n", "4", "--", "echo", "released"],
    ));
    let released = eventually(Duration::from_secs(20), || {
        let answer = sandbox.run_rally(&["release"]);
        (answer.code() == 0).then_some(())
    });
    assert_eq!(released, Some(()));
    let ended = job.end().expect_code(0);
    assert_eq!(ended.out(), "released\n".repeat(4));
}

/// The environment of each of many programs is in the launch, which must fit into one message to another node.
#[test]
fn a_launch_that_is_too_long_is_an_error() {
    let sandbox = Sandbox::new();
    let mut command = over(&sandbox, "2", &["-n", "2", "true"]);
    for _ in 0..40 {
        command.args([":", "-n", "1", "true"]);
    }
    for number in 0..12 {
        command.env(format!("LARGE_{number}"), "x".repeat(110_000));
    }
    let run = sandbox.run(&mut command).expect_code(125);
    run.expect_err(&["bytes, and 50331648 is the maximum"]);
}
