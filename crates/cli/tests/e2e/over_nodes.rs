//! `dbgr` over nodes. A script with the name `ssh` stands for other nodes: it runs the command on this one.

use std::{env, fs, os::unix::fs::PermissionsExt as _, process::Command};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::harness::{DEADLINE, Running, Sandbox, Stream, compiled, dbgr, eventually, testdata};

/// The number of SIGINT.
const SIGINT: u32 = 2;

/// A host whose name begins with `dead` cannot be reached.
const SSH: &str = r#"#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
case $host in
dead*) echo "ssh: connect to host $host port 22: No route to host" >&2; exit 255 ;;
esac
exec sh -c "$*"
"#;

/// Returns true if this `dbgr` has taken its first sample: it blocks SIGINT from the first wait between two samples on.
pub(crate) fn has_sampled(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    let blocked = blocked.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    blocked.is_some_and(|mask| mask & (1 << (SIGINT - 1)) != 0)
}

/// A sandbox with a program that waits for a file, and the stand-in for ssh.
struct Trial {
    sandbox: Sandbox,
    program: String,
    go: String,
}

impl Trial {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        fs::create_dir(sandbox.path("bin")).unwrap();
        let ssh = sandbox.file("bin/ssh", SSH);
        fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
        let program = compiled("cc".as_ref(), &testdata("stacks/wait.c"), &["-DPLAIN"]);
        Self {
            program: program.to_str().unwrap().to_owned(),
            go: sandbox.path("go").to_str().unwrap().to_owned(),
            sandbox,
        }
    }

    fn start(&self, mut command: Command, ranks: usize) -> Running {
        let running = self.sandbox.start(command.args([&self.program, &self.go]));
        running.expect_times(Stream::Stdout, "ready", ranks);
        running
    }

    /// Returns a pattern that only the processes of this sandbox match.
    fn private_copy(&mut self) -> String {
        // Without `=`, which would be a variable for env(1).
        let name = format!("wait-{}", self.sandbox.marker().replace(['/', '='], "-"));
        let copy = self.sandbox.path(&name);
        fs::copy(&self.program, &copy).unwrap();
        self.program = copy.to_str().unwrap().to_owned();
        self.program.clone()
    }

    fn dbgr(&self, args: &[&str]) -> Command {
        let mut command = self.sandbox.command(dbgr());
        let path = env::var("PATH").unwrap();
        let bin = self.sandbox.path("bin");
        command.env("PATH", format!("{}:{path}", bin.display()));
        command.args(args);
        command
    }

    /// Returns an agent. Its relay, which is its child, keeps the connection while the agent is stopped.
    fn agent(&self) -> Pid {
        let found = self.sandbox.find("__agent");
        let pids: Vec<i32> = found.iter().map(|it| it.pid).collect();
        let has_relay = |pid: &i32| {
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
            let children = children.unwrap_or_default();
            let mut children = children.split_whitespace().map(str::parse);
            children.any(|child| child.is_ok_and(|child: i32| pids.contains(&child)))
        };
        let agent = pids.iter().copied().find(has_relay);
        Pid::from_raw(agent.expect("a relay is the child of its agent"))
    }

    fn let_go(&self, running: Running) {
        self.sandbox.file("go", "");
        running.end().expect_code(0);
    }
}

#[test]
fn nodes_of_one_host_need_no_agents() {
    let trial = Trial::new();
    let mut rally = trial.sandbox.rally(&["run", "--bootstrap", "fork"]);
    rally.args(["--nodes", "3", "-n", "6"]);
    let job = trial.start(rally, 6);
    let pid = job.pid.to_string();
    let stacks = trial.sandbox.run(&mut trial.dbgr(&["stacks", &pid]));
    let stacks = stacks.expect_code(0);
    assert!(stacks.out().contains("6 [0-5] main"), "{}", stacks.out());
    assert_eq!(stacks.err(), "");
    trial.let_go(job);
    trial.sandbox.expect_clean();
}

#[test]
fn a_search_over_nodes_names_those_that_cannot_be_reached() {
    let mut trial = Trial::new();
    let name = trial.private_copy();
    let job = trial.start(trial.sandbox.rally(&["run", "-n", "3"]), 3);
    let mut command = trial.dbgr(&["stacks", "--hosts", "dead[1-2],alpha", "--name", &name]);
    let stacks = trial.sandbox.run(&mut command).expect_code(0);
    let out = stacks.out();
    assert!(out.contains("3 [0-2] main"), "{out}");
    assert!(out.contains("wait_here"), "{out}");
    let why = "dead[1-2] could not be searched: `ssh` exited with code 255: ssh: connect to host HOST port 22: No route to host";
    assert!(stacks.err().contains(why), "{}", stacks.err());
    // The page has the name of the host that the agent runs for.
    let mut command = trial.dbgr(&["report", "--hosts", "alpha", "--name", &name]);
    command.args(["--samples", "2", "--every", "100ms", "-o", "hang.html"]);
    trial.sandbox.run(&mut command).expect_code(0);
    assert!(trial.sandbox.read("hang.html").contains("alpha"));
    let mut command = trial.dbgr(&["stacks", "--hosts", "dead1", "--name", &name]);
    let nothing = trial.sandbox.run(&mut command);
    assert!(
        nothing
            .err()
            .contains("none of the nodes could be searched")
    );
    let mut command = trial.dbgr(&["stacks", "--hosts", "alpha", "--name", "no-such-program"]);
    let nothing = trial.sandbox.run(&mut command);
    let said = "none of your processes on alpha is or belongs to `no-such-program`";
    assert!(nothing.err().contains(said), "{}", nothing.err());
    trial.let_go(job);
    // No agent, no relay and no ssh is left.
    trial.sandbox.expect_clean();
}

#[test]
fn a_node_with_several_names_is_searched_once() {
    let mut trial = Trial::new();
    let name = trial.private_copy();
    let job = trial.start(trial.sandbox.rally(&["run", "-n", "2"]), 2);
    for hosts in ["alpha,beta,gamma", "localhost,alpha", "alpha,alpha"] {
        let mut command = trial.dbgr(&["stacks", "--hosts", hosts, "--name", &name]);
        let stacks = trial.sandbox.run(&mut command).expect_code(0);
        assert!(stacks.out().contains(": 2 ranks of"), "{}", stacks.out());
        assert!(stacks.out().contains("2 [0-1] main"), "{}", stacks.out());
    }
    trial.let_go(job);
    trial.sandbox.expect_clean();
}

/// Six agents in a tree of radix 2: four of them are below others, which merge their answers.
#[test]
fn answers_are_merged_on_their_way() {
    let trial = Trial::new();
    let rank = |rank: usize| {
        let mut command = trial.sandbox.command(&trial.program);
        command.arg(&trial.go).env("PMI_RANK", rank.to_string());
        let running = trial.sandbox.start(&mut command);
        running.expect(Stream::Stdout, "ready");
        running
    };
    let ranks: Vec<Running> = (0..6).map(rank).collect();
    let launcher = compiled("cc".as_ref(), &testdata("stacks/table.c"), &[]);
    let mut command = trial.sandbox.command(&launcher);
    for (rank, running) in ranks.iter().enumerate() {
        command.args([format!("n{rank}"), running.pid.to_string()]);
    }
    let launcher = trial.sandbox.start(&mut command);
    launcher.expect(Stream::Stdout, "table");
    let pid = launcher.pid.to_string();
    let mut command = trial.dbgr(&["stacks", "--radix", "2", "--samples", "3", &pid]);
    let stacks = trial.sandbox.run(command.args(["--every", "100ms"]));
    let out = stacks.expect_code(0).out();
    assert!(out.contains("6 [0-5] main"), "{out}");
    assert!(!out.contains("missing"), "{out}");
    launcher.signal(Signal::SIGTERM);
    launcher.end();
    trial.sandbox.file("go", "");
    for rank in ranks {
        rank.end().expect_code(0);
    }
    trial.sandbox.expect_clean();
}

#[test]
fn an_agent_that_is_killed_is_missing_by_name() {
    let mut trial = Trial::new();
    let name = trial.private_copy();
    let job = trial.start(trial.sandbox.rally(&["run", "-n", "2"]), 2);
    let mut command = trial.dbgr(&["stacks", "--hosts", "alpha", "--name", &name]);
    command.args(["--samples", "3", "--every", "2s"]);
    let stacks = trial.sandbox.start(&mut command);
    let has_sampled = || has_sampled(stacks.pid).then_some(());
    eventually(DEADLINE, has_sampled).expect("the first sample is taken");
    let agents = trial.sandbox.find("__agent");
    assert!(!agents.is_empty());
    for agent in agents {
        // The relay may have exited because of its program.
        let _ = kill(Pid::from_raw(agent.pid), Signal::SIGKILL);
    }
    let stacks = stacks.end().expect_code(0);
    let why = "the agent on host alpha was lost";
    assert!(stacks.out().contains(why), "{}", stacks.out());
    trial.let_go(job);
    trial.sandbox.expect_clean();
}

/// The next sample is far away, and so is the next message that the agent gets.
#[test]
fn an_agent_releases_a_thread_that_was_late_to_stop() {
    let mut trial = Trial::new();
    let program = compiled("cc".as_ref(), &testdata("stacks/long_calls.c"), &["-O1"]);
    trial.program = program.to_str().unwrap().to_owned();
    let name = trial.private_copy();
    let mut command = trial.sandbox.command(&name);
    let job = trial.sandbox.start(command.arg(&trial.go));
    job.expect(Stream::Stdout, "ready");
    let is_traced = || {
        let status = fs::read_to_string(format!("/proc/{}/status", job.pid)).unwrap();
        !status.contains("TracerPid:\t0\n")
    };
    let session = || {
        let mut command = trial.dbgr(&["stacks", "--hosts", "alpha", "--name", &name]);
        command.args(["--samples", "2", "--every", "1000s"]);
        let stacks = trial.sandbox.start(&mut command);
        let has_sampled = || has_sampled(stacks.pid).then_some(());
        eventually(DEADLINE, has_sampled).expect("the first sample is taken");
        let was_late = is_traced();
        eventually(DEADLINE, || (!is_traced()).then_some(())).expect("the thread is released");
        stacks.signal(Signal::SIGINT);
        stacks.end().expect_code(130);
        was_late.then_some(())
    };
    // The thread stops in time if its call is about to end.
    eventually(DEADLINE, session).expect("the thread is late");
    trial.let_go(job);
    trial.sandbox.expect_clean();
}

/// Without the signal, each sample would wait for a minute.
#[test]
fn an_interrupt_ends_the_wait_for_an_agent_that_is_stopped() {
    let mut trial = Trial::new();
    let name = trial.private_copy();
    let job = trial.start(trial.sandbox.rally(&["run", "-n", "2"]), 2);
    let mut command = trial.dbgr(&["stacks", "--hosts", "alpha", "--name", &name]);
    command.args(["--samples", "1000", "--every", "10ms"]);
    let stacks = trial.sandbox.start(&mut command);
    let has_sampled = || has_sampled(stacks.pid).then_some(());
    eventually(DEADLINE, has_sampled).expect("the first sample is taken");
    let agent = trial.agent();
    kill(agent, Signal::SIGSTOP).unwrap();
    stacks.signal(Signal::SIGINT);
    let stacks = stacks.end().expect_code(130);
    assert!(stacks.out().contains("2 [0-1] main"), "{}", stacks.out());
    kill(agent, Signal::SIGCONT).unwrap();
    trial.let_go(job);
    trial.sandbox.expect_clean();
}

#[test]
fn agents_end_with_their_session_and_the_job_lives() {
    let mut trial = Trial::new();
    let name = trial.private_copy();
    let job = trial.start(trial.sandbox.rally(&["run", "-n", "2"]), 2);
    let mut command = trial.dbgr(&["stacks", "--hosts", "alpha,beta", "--name", &name]);
    command.args(["--samples", "1000", "--every", "10ms"]);
    let session = trial.sandbox.start(&mut command);
    // Each agent has a relay.
    let agents = || trial.sandbox.find("__agent").len();
    eventually(DEADLINE, || (agents() == 4).then_some(())).expect("both agents run");
    session.signal(Signal::SIGKILL);
    session.end().expect_code(137);
    eventually(DEADLINE, || (agents() == 0).then_some(())).expect("all agents end");
    // The ranks are neither stopped nor killed.
    trial.let_go(job);
    trial.sandbox.expect_clean();
}

#[test]
fn ranks_of_a_table_are_identified_by_the_agents_of_their_nodes() {
    let trial = Trial::new();
    // The ranks are not below the launcher, so that this node knows nothing of them.
    let rank = |rank: &str| {
        let mut command = trial.sandbox.command(&trial.program);
        command.arg(&trial.go).env("PMI_RANK", rank);
        let running = trial.sandbox.start(&mut command);
        running.expect(Stream::Stdout, "ready");
        running
    };
    let ranks = [rank("0"), rank("1"), rank("9")];
    let launcher = compiled("cc".as_ref(), &testdata("stacks/table.c"), &[]);
    let mut command = trial.sandbox.command(&launcher);
    for (host, of) in [("alpha", 0), ("dead1", 1), ("beta", 2)] {
        command.args([host, &ranks[of].pid.to_string()]);
    }
    let launcher = trial.sandbox.start(&mut command);
    launcher.expect(Stream::Stdout, "table");
    let pid = launcher.pid.to_string();
    let report = |args: &[&str]| {
        let mut command = trial.dbgr(&["stacks", &pid]);
        let stacks = trial.sandbox.run(command.args(args)).expect_code(0);
        stacks.out()
    };
    let out = report(&["--width", "200"]);
    assert!(out.contains("1 [0] main"), "{out}");
    let missing = [
        "missing: 1 [1] the agent on host dead1 did not start: `ssh` exited with code 255: ssh: connect to host HOST port 22: No route to host",
        // The process is rank 9, and the launcher says that it is rank 2.
        "missing: 1 [2] nothing shows which process it is",
    ];
    for line in missing {
        assert!(out.contains(line), "{line:?} is not said: {out}");
    }
    let json = report(&["--json"]);
    assert!(json.contains("\"alpha\""), "{json}");
    let out = report(&["--local", "--width", "200"]);
    assert!(
        out.contains("missing: 3 [0-2] on hosts alpha,beta,dead1, where no agent was started"),
        "{out}"
    );
    launcher.signal(Signal::SIGTERM);
    launcher.end();
    trial.sandbox.file("go", "");
    for rank in ranks {
        rank.end().expect_code(0);
    }
    trial.sandbox.expect_clean();
}

#[test]
fn a_watch_reports_ranks_on_other_nodes_and_ends_with_them() {
    let mut trial = Trial::new();
    let name = trial.private_copy();
    let job = trial.start(trial.sandbox.rally(&["run", "-n", "2"]), 2);
    let args = ["watch", "--hosts", "alpha,dead1", "--name", &name];
    let mut command = trial.dbgr(&args);
    let watch = trial.sandbox.start(command.args(["--idle", "1s"]));
    watch.expect(
        Stream::Stderr,
        "nothing has moved for 1 s: the job may hang",
    );
    watch.expect(Stream::Stdout, "2 [0-1] main");
    watch.expect(Stream::Stderr, "dead1 could not be searched");
    trial.let_go(job);
    watch.end().expect_code(0);
    trial.sandbox.expect_clean();
}

/// The command that starts the agent never connects, so that `dbgr` waits for it.
#[test]
fn a_watch_that_waits_for_nodes_can_be_interrupted() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let trial = Trial::new();
        let silent = "#!/bin/sh\n: >asked\nexec sleep 1000\n";
        let ssh = trial.sandbox.file("bin/silent", silent);
        fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
        let args = ["watch", "--ssh", &ssh, "--hosts", "alpha", "--name", "none"];
        let watch = trial.sandbox.start(&mut trial.dbgr(&args));
        let asked = trial.sandbox.path("asked");
        eventually(DEADLINE, || asked.exists().then_some(())).expect("the command runs");
        watch.signal(signal);
        let watch = watch.end().expect_code(128 + signal as i32);
        assert_eq!(watch.err(), "");
        trial.sandbox.expect_clean();
    }
}
