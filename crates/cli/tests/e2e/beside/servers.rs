//! a debugger has the launcher start its servers (`MPIR_executable_path`, `MPIR_server_arguments`).

use crate::{
    debugger::gdb,
    harness::{DEADLINE, Running, Sandbox, Stream, eventually, rally, testdata},
};

/// Runs two ranks on two nodes under a debugger that wants servers. It says what it wants at the start (0), or in the breakpoint (1).
fn debugged(sandbox: &Sandbox, when: u32) -> Running {
    let script = "echo \"server $RALLY_TOOL_INDEX $# <$0> <$1>\"; \
                  sed -n s/^State:.//p /proc/${RALLY_TOOL_RANKS#*:}/status; : > looked.$RALLY_TOOL_INDEX";
    let mut command = gdb(sandbox);
    command
        .arg(format!("-ex=set $when = {when}"))
        .arg(format!(
            "-ex=set $script = \"{}\"",
            script.replace('\\', "\\\\").replace('"', "\\\"")
        ))
        .arg("-x")
        .arg(testdata("mpir/servers.gdb"))
        .arg("--args")
        .arg(rally())
        .args([
            "run",
            "-n",
            "2",
            "--nodes=2",
            "--bootstrap=fork",
            "--per-node=1",
            "--oversubscribe",
        ])
        .args(["sh", "-c", "echo ran"]);
    let run = sandbox.start(&mut command);
    run.expect(Stream::Stdout, "at the breakpoint\n");
    run
}

fn check(run: &str) {
    for index in [0, 1] {
        let server = format!("server {index} 1 <two words> <'quoted'>\n");
        assert_eq!(run.matches(&server).count(), 1, "{run}");
    }
    assert_eq!(run.matches("ran\n").count(), 2, "{run}");
    assert!(run.contains("exited normally"), "{run}");
}

#[test]
fn servers_wanted_at_the_start_find_the_ranks_held() {
    let sandbox = Sandbox::new();
    let run = debugged(&sandbox, 0);
    let looked = || {
        let files = [0, 1].map(|index| sandbox.path(&format!("looked.{index}")));
        files.iter().all(|file| file.exists()).then_some(())
    };
    eventually(DEADLINE, looked).expect("they run while the debugger is at the breakpoint");
    // Their output is printed when the debugger continues the launcher.
    sandbox.file("go", "");
    let out = run.end().out();
    check(&out);
    assert_eq!(out.matches("T (stopped)\n").count(), 2, "{out}");
}

#[test]
fn servers_wanted_in_the_breakpoint_are_started_when_it_is_left() {
    let sandbox = Sandbox::new();
    let run = debugged(&sandbox, 1);
    assert!(!run.so_far(Stream::Stdout).contains("server"));
    sandbox.file("go", "");
    check(&run.end().out());
}
