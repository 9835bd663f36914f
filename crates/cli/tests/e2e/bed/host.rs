//! A node of the bed in which a test changes files or the network. The end of the value undoes all changes.

use std::{
    fs,
    os::unix::process::CommandExt as _,
    process::{Command, Stdio},
};

use crate::harness::{Sandbox, rally};

/// Home directory of the user of all nodes; scripts on nodes call it `$HOME`.
pub(super) const HOME: &str = "/root";
/// Directories in which a node stores the program, in the order in which they are tried.
pub(super) const PLACES: [&str; 4] = ["$HOME/.cache", "/dev/shm", "/tmp", "/var/tmp"];

#[derive(Debug)]
pub(super) struct Host {
    number: u32,
    /// Scripts that undo the changes on the node. The last one is the first to run.
    undo: Vec<String>,
    /// Scripts that undo changes on the head.
    undo_on_head: Vec<String>,
}

impl Host {
    pub(super) fn new(number: u32) -> Self {
        let host = Self {
            number,
            undo: Vec::new(),
            undo_on_head: Vec::new(),
        };
        host.forget_program();
        host
    }

    pub(super) fn name(&self) -> String {
        format!("n{}", self.number)
    }

    /// Runs a script on the node, and returns what it prints.
    pub(super) fn run(&self, script: &str) -> String {
        printed(&mut command_on(self.number, script))
    }

    /// Lets a script run on the node at the end.
    pub(super) fn undo(&mut self, script: &str) {
        self.undo.push(script.to_owned());
    }

    /// Mounts an empty file system on the node.
    pub(super) fn mount(&mut self, at: &str, options: &str) {
        self.run(&format!(
            "mkdir -p {at} && mount -t tmpfs -o {options} none {at}"
        ));
        // Lazily, because a process that ends later may still use it.
        self.undo.push(format!("umount -l {at}"));
    }

    /// Replaces the text of a file that all nodes share, on this node only.
    pub(super) fn replace(&mut self, file: &str, text: &str) {
        let own = self.path(&file.replace('/', "-"));
        fs::write(&own, text).unwrap();
        self.run(&format!("mount --bind {own} {file}"));
        self.undo.push(format!("umount -l {file}"));
    }

    /// Writes a file on the node. Its directory must exist.
    pub(super) fn write(&mut self, file: &str, text: &str) {
        let own = self.path("text");
        fs::write(&own, text).unwrap();
        self.run(&format!("cp {own} {file} && chmod 755 {file}"));
        self.undo.push(format!("rm -f {file}"));
    }

    /// Sets the home directory and the login shell of root.
    pub(super) fn set_login(&mut self, home: &str, shell: &str) {
        let line = |line: &str| match line.starts_with("root:") {
            true => format!("root:x:0:0:root:{home}:{shell}\n"),
            false => format!("{line}\n"),
        };
        let users = fs::read_to_string("/etc/passwd").unwrap();
        self.replace("/etc/passwd", &users.lines().map(line).collect::<String>());
    }

    /// Makes a script the login shell of root. It gets the options of a shell.
    pub(super) fn set_login_script(&mut self, script: &str) {
        self.write("/run/login", &format!("#!/bin/sh\n{script}\n"));
        self.set_login(HOME, "/run/login");
    }

    /// Hides the program at the path that it has on the head, so that the node needs a copy.
    pub(super) fn hide_program(&mut self) {
        let program = rally();
        self.mount(&program.parent().unwrap().display().to_string(), "size=4k");
    }

    /// Removes the copies of the program.
    pub(super) fn forget_program(&self) {
        self.run("rm -rf $HOME/.cache /dev/shm/rally-* /tmp/rally-* /var/tmp/rally-*");
    }

    /// Returns the paths of the copies of the program.
    pub(super) fn copies(&self) -> Vec<String> {
        let found = self.run(&format!(
            "find $(ls -d {} 2>/dev/null) -path '*rally*' -type f",
            PLACES.join(" ")
        ));
        found.lines().map(str::to_owned).collect()
    }

    /// Runs a script on the head, and `undo` at the end.
    pub(super) fn on_head(&mut self, script: &str, undo: &str) {
        self.undo_on_head.push(undo.to_owned());
        printed(Command::new("sh").args(["-c", script]));
    }

    /// Returns the path of a file of the node, as the head and the node see it.
    pub(super) fn path(&self, name: &str) -> String {
        path_of(self.number, name)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for script in self.undo_on_head.iter().rev() {
            let _ = Command::new("sh").args(["-c", script]).status();
        }
        for script in self.undo.iter().rev() {
            let _ = command_on(self.number, script).status();
        }
        if !std::thread::panicking() {
            self.forget_program();
        }
    }
}

/// The address of a node or of the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Four,
    Six,
}

/// Returns an address of a node or of the head.
pub(super) fn address(name: &str, family: Family) -> String {
    let hosts = fs::read_to_string("/etc/hosts").unwrap();
    let mut lines = hosts.lines().filter_map(|line| line.split_once(' '));
    let is_meant = |address: &str| address.contains(':') == (family == Family::Six);
    let found = lines.find(|(address, named)| *named == name && is_meant(address));
    found.expect(name).0.to_owned()
}

/// Returns the path of a file of a node, as the head and the node see it.
fn path_of(node: u32, name: &str) -> String {
    format!("/run/cluster/n{node}/{name}")
}

/// Returns a command that runs a script in the namespaces of a node.
pub(super) fn command_on(node: u32, script: &str) -> Command {
    let holder = path_of(node, "holder");
    let holder = fs::read_to_string(&holder).unwrap_or_else(|error| {
        panic!("{holder}: {error}; the tests need `cargo xtask cluster with 16 --slurm`")
    });
    let mut command = Command::new("nsenter");
    command.args([
        "--target", &holder, "--pid", "--net", "--uts", "--mount", "--ipc",
    ]);
    command.args(["--", "sh", "-c", script]).current_dir("/");
    command.env("HOME", HOME).stdin(Stdio::null());
    command
}

/// Returns true if a process is on this node.
pub(super) fn is_on(pid: i32, node: u32) -> bool {
    let network = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    let holder = fs::read_to_string(path_of(node, "holder")).unwrap();
    let own = network(&holder);
    own.is_some() && network(&pid.to_string()) == own
}

/// Returns the pid that a process of a node has there.
pub(super) fn pid_there(pid: i32) -> i32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let mut lines = status
        .lines()
        .filter_map(|line| line.strip_prefix("NSpid:"));
    let last = lines.next().unwrap().split_whitespace().next_back();
    last.unwrap().parse().unwrap()
}

/// Returns the pid on the head of the daemon of a node.
pub(super) fn daemon_on(node: u32) -> i32 {
    let mut all = mischief::all_procs();
    all.retain(|one| one.args.ends_with("__daemon") && is_on(one.pid, node));
    // Its parent is its guardian.
    let is_daemon = |one: &&mischief::Proc| all.iter().any(|other| other.pid == one.ppid);
    all.iter()
        .find(is_daemon)
        .expect("the node has a daemon")
        .pid
}

fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the command that runs `rally` on hosts, one rank on each in turn.
pub(super) fn over(sandbox: &Sandbox, hosts: &str, args: &[&str]) -> Command {
    let mut command = sandbox.rally(&["run", "--host", hosts, "--wdir", "/"]);
    command.args(["--map-by", "node"]).args(args);
    // In the background of a terminal, on which somebody may run the tests: ssh must not ask there.
    command.process_group(0);
    command
}
