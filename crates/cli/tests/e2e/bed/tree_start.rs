//! Starts in which daemons start the daemons of other nodes, over ssh between the nodes.

use std::{collections::BTreeMap, fs, time::Duration};

use mischief::Proc;
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

use super::{
    expect_no_daemon,
    host::{HOME, Host, daemon_on, over},
};
use crate::harness::{CLEAN_WITHIN, Finished, Running, Sandbox, Stream, eventually};

/// Each process starts so many others at a time.
const RADIX: usize = 2;

/// One start over nodes, with its log.
struct Trial {
    sandbox: Sandbox,
    log: String,
}

impl Trial {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        let log = sandbox.work().join("log").display().to_string();
        Self { sandbox, log }
    }

    fn command(&self, hosts: &str, radix: usize, args: &[&str]) -> std::process::Command {
        let radix = radix.to_string();
        let options = ["--tree-start", "on", "--radix", &radix];
        let mut command = over(&self.sandbox, hosts, &[&options[..], args].concat());
        command.env("RALLY_LOG", "bootstrap=debug,tree=info");
        command.env("RALLY_LOG_FILE", &self.log);
        command
    }

    fn run(&self, hosts: &str, radix: usize, args: &[&str]) -> Finished {
        let ended = self.sandbox.run(&mut self.command(hosts, radix, args));
        expect_nothing();
        ended
    }

    fn start(&self, hosts: &str, radix: usize, args: &[&str]) -> Running {
        self.sandbox.start(&mut self.command(hosts, radix, args))
    }

    /// Returns the lines of the log about the start, without time and level, in the order in which they were written.
    fn log(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.log).unwrap();
        let words = |line: &str| {
            let words: Vec<_> = line.split_whitespace().skip(2).collect();
            words.join(" ")
        };
        text.lines().map(words).collect()
    }
}

/// The start commands that run.
fn start_commands() -> Vec<Proc> {
    let mut all = mischief::all_procs();
    all.retain(|one| one.args.starts_with("ssh ") && one.args.ends_with("exec /bin/sh"));
    all
}

/// Returns once neither a daemon nor a start command is left on any node.
fn expect_nothing() {
    expect_no_daemon();
    let gone = eventually(CLEAN_WITHIN, || start_commands().is_empty().then_some(()));
    assert!(gone.is_some(), "{:?}", start_commands());
}

/// Returns the number after a word in a line of the log.
fn number(line: &str, word: &str) -> Option<usize> {
    let at = line.find(word)? + word.len();
    let digits: String = line[at..]
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    digits.parse().ok()
}

#[test]
fn daemons_start_others_and_none_more_than_its_share_at_a_time() {
    let trial = Trial::new();
    let args = [
        "-n",
        "6",
        "--",
        "sh",
        "-c",
        "echo up on $(hostname); exec sleep 66",
    ];
    let job = trial.start("n[1-6]", RADIX, &args);
    job.expect_times(Stream::Stdout, "up", 6);
    // Each ssh runs as long as its daemon.
    let commands = start_commands();
    assert_eq!(commands.len(), 6, "{commands:?}");
    let all = mischief::all_procs();
    let of_daemons = commands.iter().filter(|command| {
        let parent = all.iter().find(|one| one.pid == command.ppid);
        parent.is_some_and(|parent| parent.args.ends_with("__daemon"))
    });
    let of_daemons: Vec<_> = of_daemons.collect();
    assert!(of_daemons.len() >= 2, "{commands:?}");
    // Nobody could answer a question there, and it is the first value that counts.
    for command in of_daemons {
        assert!(
            command.args.starts_with("ssh -oBatchMode=yes "),
            "{command:?}"
        );
    }
    job.signal(Signal::SIGTERM);
    job.end();
    expect_nothing();

    // The commands in progress, in the words of the process that decides. A command has the number of its node.
    let mut open: BTreeMap<usize, Option<usize>> = BTreeMap::new();
    let mut most: BTreeMap<Option<usize>, usize> = BTreeMap::new();
    for line in trial.log().iter().filter(|line| line.starts_with("head[")) {
        if line.contains("starts a command ") {
            open.insert(number(line, "command=").unwrap(), None);
        } else if line.contains("lets a daemon start a command") {
            let at = number(line, "at=").unwrap();
            open.insert(number(line, "command=").unwrap(), Some(at));
        } else if let Some(node) = number(line, "joined node=") {
            open.remove(&node);
        }
        for place in open.values() {
            let count = open.values().filter(|other| *other == place).count();
            let seen = most.entry(*place).or_default();
            *seen = count.max(*seen);
        }
    }
    assert_eq!(most.get(&None), Some(&RADIX), "{most:?}");
    assert!(most.len() >= 2, "{most:?}");
    assert!(most.values().all(|most| *most <= RADIX), "{most:?}");
}

/// The nodes do not have the program where the head has it. The first one gets it from the head, the next from the first.
#[test]
fn a_daemon_passes_the_program_on() {
    let trial = Trial::new();
    let hosts: Vec<Host> = [1, 2, 3]
        .map(|number| {
            let mut host = Host::new(number);
            host.hide_program();
            host
        })
        .into();
    let ended = trial.run("n[1-3]", 1, &["-n", "3", "--", "uname", "-n"]);
    assert_eq!(ended.expect_code(0).sorted(), "n1\nn2\nn3");
    let log = trial.log();
    let is_first =
        |line: &String| line.starts_with("n1[") && line.contains("starts a command for the head");
    assert!(log.iter().any(is_first), "{log:?}");
    for host in &hosts {
        assert_eq!(host.copies().len(), 1, "{}", host.name());
    }
}

#[test]
fn the_head_starts_nodes_that_a_daemon_may_not_reach() {
    let trial = Trial::new();
    let mut host = Host::new(1);
    // No way out of this node.
    host.write(
        &format!("{HOME}/.ssh/config"),
        "Host *\n  ProxyCommand echo no ssh from here >&2; false\n",
    );
    let ended = trial.run("n[1-4]", 1, &["-n", "4", "--", "uname", "-n"]);
    let ended = ended.expect_code(0);
    assert_eq!(ended.sorted(), "n1\nn2\nn3\nn4");
    assert_eq!(ended.err(), "");
    let log = trial.log();
    let failed = log.iter().find(|line| {
        line.starts_with("head[")
            && line.contains("the command of a daemon has ended: exited with code 255")
    });
    let command = number(failed.expect("n1 has tried"), "command=").unwrap();
    let again = |line: &&String| {
        let is_head = line.starts_with("head[") && line.contains("starts a command ");
        is_head && number(line, "command=") == Some(command)
    };
    assert_eq!(log.iter().filter(again).count(), 1, "{log:?}");
}

#[test]
fn a_host_that_nobody_reaches_is_one_message_with_the_words_of_ssh() {
    let trial = Trial::new();
    let ended = trial.run("n1,nowhere,n2,n3", 1, &["-n", "4", "--", "true"]);
    let ended = ended.expect_code(123).expect_err(&[
        "cannot start the daemon on `nowhere`",
        "from:   `n1` first, then the node of `rally`",
        "Could not resolve hostname",
        "effect: the job was not started",
    ]);
    assert_eq!(ended.err().matches("error:").count(), 1, "{ended:?}");
    assert!(!ended.err().contains("no such"), "{ended:?}");
}

/// What is killed while the daemon of n1 starts n2, which does not answer.
type Case = (&'static str, fn(&Running));

#[test]
fn nothing_remains_when_somebody_dies_during_the_start() {
    let cases: &[Case] = &[
        ("the daemon that starts it", |_| kill_pid(daemon_on(1))),
        ("its guardian too", |_| {
            let daemon = daemon_on(1);
            let all = mischief::all_procs();
            let guardian = all.iter().find(|one| one.pid == daemon).unwrap().ppid;
            kill_pid(guardian);
            kill_pid(daemon);
        }),
        ("the front", |job| job.signal(Signal::SIGKILL)),
        ("nobody: the user interrupts", |job| {
            job.signal(Signal::SIGINT)
        }),
    ];
    for (name, spoil) in cases {
        let trial = Trial::new();
        let mut host = Host::new(2);
        // It ends when its connection does.
        host.set_login_script("exec cat");
        let job = trial.start("n[1-3]", 1, &["-n", "3", "--", "true"]);
        let is_there = || {
            let all = start_commands();
            let is_of_n1 =
                |one: &Proc| one.args.contains(" n2 ") && one.args.contains("ssh -oBatchMode=yes ");
            all.iter().any(is_of_n1).then_some(())
        };
        let began = eventually(Duration::from_secs(20), is_there);
        assert!(began.is_some(), "{name}: {:?}", start_commands());
        spoil(&job);
        let ended = job.end();
        assert!(!ended.out().contains("up"), "{name}: {ended:?}");
        expect_nothing();
    }
}

fn kill_pid(pid: i32) {
    signal::kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
}

#[test]
fn an_explanation_says_who_starts_how_many() {
    let trial = Trial::new();
    let args = ["--explain", "--map-by", "slot", "--", "true"];
    let ended = trial.run("n[1-4]", RADIX, &args).expect_code(0);
    let said = "start 4 daemons by `ssh`: 2 at a time from this node, and 2 at a time from each daemon that runs\n";
    assert!(ended.out().contains(said), "{ended:?}");
}
