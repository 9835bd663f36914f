//! Tools beside the ranks of a job: `rally start-tool`, `--tool`, and the servers of a debugger (`MPIR_executable_path`).

mod servers;

use std::{collections::BTreeMap, process::Command};

use nix::sys::signal::Signal;

use crate::{
    harness::{DEADLINE, Finished, Running, Sandbox, Stream, eventually},
    machine::Machine,
};

/// Gives a test its own directory in which jobs are found, separate from other tests.
fn private(sandbox: &Sandbox, command: &mut Command) {
    command.env("XDG_RUNTIME_DIR", sandbox.work());
}

/// Starts a job, and waits until its ranks run: each prints `up`.
fn job(sandbox: &Sandbox, ranks: usize, options: &[&str], script: &str) -> Running {
    let script = format!("echo up; {script}");
    let count = ranks.to_string();
    let mut command = sandbox.rally(&["run", "-n", &count]);
    command.args(options).args(["sh", "-c", &script]);
    private(sandbox, &mut command);
    let run = sandbox.start(&mut command);
    run.expect_times(Stream::Stdout, "up\n", ranks);
    run
}

fn start_tool(sandbox: &Sandbox, arguments: &[&str]) -> Command {
    let mut command = sandbox.rally(&["start-tool"]);
    command.args(arguments);
    private(sandbox, &mut command);
    command
}

fn run_tool(sandbox: &Sandbox, arguments: &[&str]) -> Finished {
    sandbox.run(&mut start_tool(sandbox, arguments))
}

/// Returns the variables of a line of `env`.
fn variables(text: &str) -> BTreeMap<&str, &str> {
    text.lines()
        .filter_map(|line| line.split_once('='))
        .collect()
}

/// Two nodes, for which this computer stands, with two ranks each.
const TWO_NODES: [&str; 4] = [
    "--bootstrap=fork",
    "--nodes=2",
    "--per-node=2",
    "--oversubscribe",
];
/// The same with one rank each.
const ONE_EACH: [&str; 4] = [
    "--bootstrap=fork",
    "--nodes=2",
    "--per-node=1",
    "--oversubscribe",
];

/// Returns the number of processes with exactly these words.
fn count(sandbox: &Sandbox, words: &str) -> usize {
    let found = sandbox.find(words).into_iter();
    found.filter(|process| process.args == words).count()
}

/// one process on each node, in the environment of the ranks.
#[test]
fn one_process_on_each_node_has_what_the_ranks_have() {
    let sandbox = Sandbox::new();
    let wdir = format!("--wdir={}", sandbox.work().display());
    let options = ["--set-env=OF_THE_JOB=yes", &wdir];
    let run = job(
        &sandbox,
        4,
        &[&TWO_NODES[..], &options].concat(),
        "exec sleep 1000",
    );
    let pid = run.pid.to_string();
    let script =
        "echo $RALLY_TOOL_INDEX/$RALLY_TOOL_COUNT $RALLY_TOOL_RANKS $OF_THE_JOB $HOME $PWD";
    let told = run_tool(&sandbox, &[&pid, "--", "sh", "-c", script]).expect_code(0);
    let sorted = told.sorted();
    let lines: Vec<Vec<&str>> = sorted
        .lines()
        .map(|line| line.split(' ').collect())
        .collect();
    let home = sandbox.run(&mut sandbox.shell("echo $HOME")).out();
    let work = sandbox.work();
    for (index, line) in lines.iter().enumerate() {
        assert_eq!(line[0], format!("{index}/2"));
        assert_eq!(line[2..], ["yes", home.trim(), work.to_str().unwrap()]);
        // The pids are those of the ranks.
        for (rank, word) in (2 * index..).zip(line[1].split(',')) {
            let (number, pid) = word.split_once(':').unwrap();
            assert_eq!(number, rank.to_string());
            let proc = mischief::Proc::read(pid.parse().unwrap()).unwrap();
            let environment = std::fs::read(format!("/proc/{}/environ", proc.pid)).unwrap();
            let environment = String::from_utf8_lossy(&environment).into_owned();
            assert!(environment.contains(&format!("RALLY_RANK={rank}\0")));
        }
        assert_eq!(line[1].split(',').count(), 2);
    }
    assert_eq!(lines.len(), 2);
    run.signal(Signal::SIGTERM);
    run.end();
}

/// The list may be longer than the kernel takes for a variable.
#[test]
fn the_ranks_are_listed_in_a_file_too() {
    let sandbox = Sandbox::new();
    let run = job(&sandbox, 4, &TWO_NODES, "exec sleep 1000");
    let pid = run.pid.to_string();
    let script = "f=$RALLY_TOOL_RANKS_FILE; \
                  echo $(cat $f) $RALLY_TOOL_RANKS $(wc -l < $f) $(stat -c %a $f ${f%/*}) $f";
    let told = run_tool(&sandbox, &[&pid, "--", "sh", "-c", script]).expect_code(0);
    let out = told.out();
    let mut files: Vec<&str> = Vec::new();
    for line in out.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [listed, set, lines, mode, above, file] = words[..] else {
            panic!("{line}");
        };
        assert_eq!((listed, lines, mode, above), (set, "1", "600", "700"));
        assert_eq!(listed.split(',').count(), 2);
        files.push(file);
    }
    files.sort_unstable();
    files.dedup();
    assert_eq!(files.len(), 2, "each node has its own: {files:?}");
    // The tool has ended, and its job goes on.
    for file in files {
        let directory = std::path::Path::new(file).parent().unwrap();
        assert!(!directory.exists(), "{file}");
    }
    let script = "echo ${RALLY_TOOL_RANKS_FILE-none}";
    let told = run_tool(&sandbox, &["--per-rank", &pid, "--", "sh", "-c", script]);
    told.expect_code(0).expect_out("none\nnone\nnone\nnone\n");
    run.signal(Signal::SIGTERM);
    run.end();
}

/// what is loaded into ranks is not loaded into tools, and nothing makes these ranks.
#[test]
fn a_tool_is_no_rank() {
    let sandbox = Sandbox::new();
    let ranks = [
        "--set-env=LD_PRELOAD=/nonexistent/of-ranks.so",
        "--set-env=LD_LIBRARY_PATH=/of/ranks",
    ];
    let run = job(&sandbox, 2, &ranks, "exec sleep 1000");
    let pid = run.pid.to_string();
    let mut command = start_tool(
        &sandbox,
        &[&pid, "--", "sh", "-c", "env; ls -l /proc/self/fd"],
    );
    command.env("LD_LIBRARY_PATH", "/of/tools");
    let told = sandbox.run(&mut command).expect_code(0);
    let out = told.out();
    let found = variables(&out);
    assert_eq!(found.get("LD_LIBRARY_PATH"), Some(&"/of/tools"));
    assert_eq!(found.get("LD_PRELOAD"), None);
    let of_ranks = [
        "PMI",
        "PMIX_",
        "OMPI_COMM",
        "MPI_LOCAL",
        "SLURM_PROCID",
        "RALLY_RANK",
        "RALLY_SIZE",
        "RALLY_LOCAL",
    ];
    for (name, value) in &found {
        assert!(
            !of_ranks.iter().any(|start| name.starts_with(start)),
            "{name}={value}"
        );
    }
    assert!(
        !out.contains("socket:"),
        "it has no connection of a rank: {out}"
    );
    run.signal(Signal::SIGTERM);
    run.end();
}

#[test]
fn one_process_for_each_rank() {
    let sandbox = Sandbox::new();
    let run = job(
        &sandbox,
        4,
        &TWO_NODES,
        "echo $RALLY_RANK $$; exec sleep 1000",
    );
    run.expect_times(Stream::Stdout, "\n", 8);
    let ranks = run.so_far(Stream::Stdout);
    let mut ranks: Vec<String> = ranks
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(rank, pid)| format!("{rank}/4 {rank}:{pid}"))
        .collect();
    ranks.sort();
    let pid = run.pid.to_string();
    let script = "echo $RALLY_TOOL_INDEX/$RALLY_TOOL_COUNT $RALLY_TOOL_RANKS";
    let told = run_tool(&sandbox, &["--per-rank", &pid, "--", "sh", "-c", script]).expect_code(0);
    assert_eq!(told.sorted(), ranks.join("\n"));
    run.signal(Signal::SIGTERM);
    run.end();
}

#[test]
fn exit_codes_and_input_are_those_of_a_job() {
    let sandbox = Sandbox::new();
    let run = job(&sandbox, 2, &ONE_EACH, "exec sleep 1000");
    let pid = run.pid.to_string();
    let failed = run_tool(
        &sandbox,
        &[&pid, "--", "sh", "-c", "exit $((RALLY_TOOL_INDEX * 3))"],
    );
    failed.expect_code(3);
    let missing = run_tool(&sandbox, &[&pid, "--", "/nonexistent/tool"]).expect_code(127);
    assert!(missing.err().contains("cannot start `/nonexistent/tool`"));
    let unknown = run_tool(&sandbox, &["999999999", "--", "true"]).expect_code(120);
    assert!(unknown.err().contains("no running job of yours"));
    let mut command = sandbox.shell("echo words | \"$RALLY\" start-tool $JOB -- cat");
    command
        .env("JOB", &pid)
        .env("RALLY", crate::harness::rally());
    private(&sandbox, &mut command);
    sandbox
        .run(&mut command)
        .expect_code(0)
        .expect_out("words\n");
    // The job has noticed nothing.
    assert_eq!(run.so_far(Stream::Stderr), "");
    run.signal(Signal::SIGTERM);
    run.end();
}

#[test]
fn a_tool_ends_with_the_job() {
    let sandbox = Sandbox::new();
    let run = job(&sandbox, 2, &ONE_EACH, "exec sleep 1000");
    let pid = run.pid.to_string();
    let script = "trap 'echo asked; exit 0' TERM; echo there; while :; do sleep 0.01; done";
    let tool = sandbox.start(&mut start_tool(&sandbox, &[&pid, "--", "sh", "-c", script]));
    tool.expect_times(Stream::Stdout, "there\n", 2);
    run.signal(Signal::SIGTERM);
    run.end().expect_code(143);
    let tool = tool.end().expect_code(0);
    assert_eq!(tool.sorted(), "asked\nasked\nthere\nthere");
    assert!(
        tool.err()
            .contains("note: the tool was ended because the job")
    );
    sandbox.expect_clean();
}

#[test]
fn a_tool_that_does_not_end_is_killed_after_its_grace() {
    let sandbox = Sandbox::new();
    let run = job(&sandbox, 1, &[], "sleep 0.5");
    let pid = run.pid.to_string();
    let script = "trap '' TERM; echo there; while :; do sleep 0.01; done";
    let arguments = ["--grace=0.2", &pid, "--", "sh", "-c", script];
    let tool = sandbox.start(&mut start_tool(&sandbox, &arguments));
    run.end().expect_code(0);
    let tool = tool.end().expect_code(0);
    assert!(tool.err().contains("needed SIGKILL"), "{tool:?}");
    sandbox.expect_clean();
}

/// Whatever becomes of `start-tool`, the job goes on.
#[test]
fn the_end_of_start_tool_ends_the_tool() {
    let sandbox = Sandbox::new();
    let run = job(&sandbox, 2, &ONE_EACH, "exec sleep 1000");
    let pid = run.pid.to_string();
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGKILL, 137)] {
        let arguments = [&pid, "--", "sh", "-c", "echo there; exec sleep 2000"];
        let tool = sandbox.start(&mut start_tool(&sandbox, &arguments));
        tool.expect_times(Stream::Stdout, "there\n", 2);
        tool.signal(signal);
        tool.end().expect_code(code);
        let gone = || (count(&sandbox, "sleep 2000") == 0).then_some(());
        eventually(DEADLINE, gone).expect("the tool is gone");
        assert_eq!(count(&sandbox, "sleep 1000"), 2, "the ranks run on");
    }
    run.signal(Signal::SIGKILL);
    run.end().expect_code(137);
    sandbox.expect_clean();
}

#[test]
fn a_job_has_several_names() {
    let sandbox = Sandbox::new();
    let run = job(
        &sandbox,
        1,
        &[],
        "echo name $PMIX_NAMESPACE; exec sleep 1000",
    );
    run.expect(Stream::Stdout, "name ");
    run.expect_times(Stream::Stdout, "\n", 2);
    let out = run.so_far(Stream::Stdout);
    let nspace = out
        .lines()
        .find_map(|line| line.strip_prefix("name "))
        .unwrap();
    let own = format!("{}@1", run.pid);
    for name in [nspace, &own] {
        let told = run_tool(&sandbox, &[name, "--", "sh", "-c", "echo $RALLY_TOOL_JOB"]);
        told.expect_code(0).expect_out(&format!("{nspace}\n"));
    }
    run_tool(&sandbox, &[&format!("{}@7", run.pid), "--", "true"]).expect_code(120);
    let elsewhere = ["rally-far-00c0ffee-7@1", "--", "true"];
    let elsewhere = run_tool(&sandbox, &elsewhere).expect_code(120);
    assert!(elsewhere.err().contains("`ssh far rally start-tool ...`"));
    run.signal(Signal::SIGTERM);
    run.end();
}

#[test]
fn on_a_machine() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &["--host", "localhost:3"]);
    let script = "echo up; sleep 1000";
    let arguments = ["run", "--on-machine", "main", "-n", "2", "sh", "-c", script];
    let run = sandbox.start(&mut sandbox.rally(&arguments));
    run.expect_times(Stream::Stdout, "up\n", 2);
    let number = machine.submit(&["-n", "1", "sleep", "1000"]);
    machine.expect_state(&number, "running");
    let tool = |job: &str| {
        let script = "echo $RALLY_TOOL_RANKS | tr , '\\n' | wc -l";
        machine.run(&["start-tool", job, "--", "sh", "-c", script])
    };
    // All slots are taken.
    tool(&run.pid.to_string()).expect_code(0).expect_out("2\n");
    tool(&number).expect_code(0).expect_out("1\n");
    machine.run(&["cancel", &number]).expect_code(0);
    run.signal(Signal::SIGTERM);
    run.end();
    machine.down();
}

/// the arguments are split as in a shell, and the tool is there before held ranks run.
#[test]
fn the_launcher_starts_a_tool_with_its_job() {
    let sandbox = Sandbox::new();
    let script = "for one in \"$@\"; do echo \"<$one>\"; done; \
                  for one in $(echo $RALLY_TOOL_RANKS | tr , ' '); do \
                  sed -n s/^State:.//p /proc/${one#*:}/status; kill -CONT ${one#*:}; done";
    let tool = sandbox.file("tool", format!("#!/bin/sh\n{script}\n"));
    let mut chmod = sandbox.command("chmod");
    sandbox.run(chmod.args(["+x", &tool])).expect_code(0);
    let words = "one 'two words' \"three \\\"quoted\\\"\" fo\\ ur '' $HOME";
    let mut command = sandbox.rally(&["run", "--tool", &tool, "--tool-arguments", words]);
    command.args(["-n", "2", "--stop-on-exec", "sh", "-c", "echo ran"]);
    let run = sandbox.run(&mut command).expect_code(0);
    let expected = [
        "<one>",
        "<two words>",
        "<three \"quoted\">",
        "<fo ur>",
        "<>",
        "<$HOME>",
        "T (stopped)",
        "T (stopped)",
    ];
    let out = run.out();
    let of_tool: Vec<&str> = out.lines().filter(|line| *line != "ran").collect();
    assert_eq!(of_tool, expected);
    assert_eq!(out.matches("ran\n").count(), 2);
    let open = ["run", "--tool", "t", "--tool-arguments", "a 'b", "true"];
    let open = sandbox.run_rally(&open).expect_code(120);
    assert!(
        open.err().contains("the quote ' is never closed"),
        "{open:?}"
    );
}

#[test]
fn a_job_goes_on_without_its_tool_and_does_not_wait_for_it() {
    let sandbox = Sandbox::new();
    let missing = ["run", "-n", "2", "--tool", "/nonexistent/tool", "sh", "-c"];
    let missing = sandbox.run_rally(&[&missing[..], &["sleep 0.3; echo ran"]].concat());
    let missing = missing.expect_code(0).expect_out("ran\nran\n");
    let said = missing.err();
    assert!(said.contains("warning: the tool was not started: cannot start `/nonexistent/tool`"));
    let failing = [
        "run",
        "-n1",
        "--tool",
        "false",
        "sh",
        "-c",
        "sleep 0.3; echo ran",
    ];
    let failing = sandbox
        .run_rally(&failing)
        .expect_code(0)
        .expect_out("ran\n");
    let said = failing.err();
    assert!(
        said.contains("warning: the tool failed: its process 0 exited with code 1"),
        "{said}"
    );
    let long = [
        "run",
        "--tool",
        "sleep",
        "--tool-arguments",
        "3000",
        "sh",
        "-c",
        "sleep 0.3; exit 5",
    ];
    sandbox.run_rally(&long).expect_code(5);
    sandbox.expect_clean();
}

/// the tool, its library and its data are copied, found through its own PATH and LD_LIBRARY_PATH, and removed.
#[test]
fn the_files_of_a_tool_are_on_its_nodes_while_it_runs() {
    let sandbox = Sandbox::new();
    let lib = sandbox.file("help.c", "const char *help(void) { return \"helped\"; }\n");
    let main = sandbox.file(
        "main.c",
        "#include <stdio.h>\n#include <stdlib.h>\nconst char *help(void);\nint main(void) { puts(help()); \
         fflush(stdout); return system(\"part; cat $RALLY_PRELOAD_DIR/data; echo $RALLY_PRELOAD_DIR; \
         grep -o '/.*libhelp.so' /proc/$PPID/maps | head -1\"); }\n",
    );
    sandbox.file("part", "#!/bin/sh\necho part\n");
    sandbox.file("data", "data\n");
    let list = sandbox.file("list", "# what it needs\npart data\n");
    let build = format!(
        "chmod +x part && mkdir lib && cc -shared -fPIC -o lib/libhelp.so {lib} && \
         cc -o tool {main} -Llib -lhelp -Wl,-rpath,'$ORIGIN/lib'"
    );
    sandbox.run(&mut sandbox.shell(&build)).expect_code(0);
    let run = job(&sandbox, 2, &ONE_EACH, "exec sleep 1000");
    let pid = run.pid.to_string();
    let files = format!("--tool-files=@{list}");
    let told = run_tool(&sandbox, &[&files, &pid, "--", "./tool"]).expect_code(0);
    let out = told.out();
    for text in ["helped\n", "part\n", "data\n"] {
        assert_eq!(out.matches(text).count(), 2, "{out}");
    }
    let directories: Vec<&str> = out
        .lines()
        .filter(|line| line.starts_with('/') && !line.ends_with("libhelp.so"))
        .collect();
    for directory in &directories {
        assert!(out.contains(&format!("{directory}/libhelp.so\n")), "{out}");
        assert!(!std::path::Path::new(directory).exists(), "it is removed");
    }
    assert_eq!(directories.len(), 2, "{out}");
    let missing = run_tool(&sandbox, &["--tool-files=no", &pid, "--", "./tool"]).expect_code(121);
    assert!(missing.err().contains("`no`"), "{missing:?}");
    run.signal(Signal::SIGTERM);
    run.end();
}
