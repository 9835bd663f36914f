//! A cluster seen from outside: where its files are, whether it is up, how to enter it, and how to end it.

use std::{
    collections::BTreeSet,
    fs,
    io::{ErrorKind, Read as _, Write as _},
    os::{fd::AsFd as _, unix::process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use nix::{
    fcntl::{Flock, FlockArg},
    sched::{CloneFlags, setns},
    sys::signal::{self, Signal},
    unistd::{Pid, gethostname},
};
use serde_json::Value;

use super::{
    init, network,
    plan::{self, FILES, Node, Plan, RECORD},
    relay::wait_for_input,
};
use crate::env::{own_file, target};

/// Maximum time for a whole cluster to start.
const UP_MAX: Duration = Duration::from_secs(120);
/// Maximum time for the kernel to end all processes of a cluster.
const DOWN_MAX: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(2);

/// Returns the directory of the clusters of this checkout.
fn directory_of_all() -> PathBuf {
    target().join("cluster")
}

/// A cluster that is up.
#[derive(Debug)]
pub(super) struct Bed {
    plan: Plan,
    entry: Entry,
}

/// Where this process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    /// On the machine, where the first process of the cluster has this pid.
    Outside { init: i32 },
    /// In the cluster, on the head or on a node.
    Inside,
}

/// A cluster that ends with this value, or with this process.
#[derive(Debug)]
pub(super) struct Owned {
    bed: Bed,
    child: Child,
    /// The end of the cluster, once it is closed.
    stdin: Option<ChildStdin>,
}

impl Owned {
    pub(super) const fn bed(&self) -> &Bed {
        &self.bed
    }

    /// Lets the cluster outlive this process.
    pub(super) fn disown(mut self) -> Result<()> {
        if let Some(mut stdin) = self.stdin.take() {
            writeln!(stdin, "{}", init::STAY)?;
        }
        Ok(())
    }

    /// Ends the cluster.
    pub(super) fn down(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        if self.stdin.take().is_some() {
            self.bed.kill()?;
            self.child.wait()?;
            remove(&directory_of_all().join(&self.bed.plan.name))?;
        }
        Ok(())
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            println!("{error:#}");
        }
    }
}

/// Creates a cluster. It is removed again if anything fails.
pub(super) fn create(plan: &Plan) -> Result<Owned> {
    if is_inside() {
        bail!("this is a node of a cluster: make another cluster on the machine itself");
    }
    let all = directory_of_all();
    fs::create_dir_all(&all)?;
    let _one_at_a_time = lock(&all)?;
    sweep(&all)?;
    let directory = all.join(&plan.name);
    if directory.exists() {
        bail!(
            "the cluster `{}` is up already: `cargo xtask cluster down` removes it",
            plan.name
        );
    }
    fs::create_dir_all(directory.join("log"))?;
    let owned = start(plan, &fs::canonicalize(&directory)?);
    if owned.is_err() {
        remove(&directory)?;
    }
    owned
}

/// Locks the directory of all clusters: one cluster at a time is made or removed.
fn lock(all: &Path) -> Result<Flock<fs::File>> {
    Flock::lock(fs::File::open(all)?, FlockArg::LockExclusive).map_err(|(_, error)| error.into())
}

fn start(plan: &Plan, directory: &Path) -> Result<Owned> {
    let mut command = init::unshare(&["--pid", "--fork", "--kill-child"]);
    command
        .arg(own_file()?)
        .args(super::words_for(plan, "init", directory));
    let log = fs::File::create(init::log_of(directory, "init"))?;
    // Signals of the terminal are for the owner, who removes the cluster.
    command.process_group(0);
    let child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn();
    let mut child = child.context("cannot run `unshare`")?;
    let stdin = child.stdin.take();
    let stdout = child.stdout.take().context("no stdout")?;
    let mut lines = Lines {
        stdout,
        buffer: Vec::new(),
    };
    let until = Instant::now() + UP_MAX;
    let mut said = Vec::new();
    let first = lines.next(until)?.unwrap_or_default();
    let pid = first
        .strip_prefix("pid ")
        .and_then(|pid| pid.parse::<i32>().ok());
    if let Some(init) = pid {
        let bed = Bed {
            plan: plan.clone(),
            entry: Entry::Outside { init },
        };
        bed.record(directory)?;
        let owned = Owned { bed, child, stdin };
        while let Some(line) = lines.next(until)? {
            if line == "up" {
                return Ok(owned);
            }
            said.push(line);
        }
        owned.down()?;
    } else {
        drop(stdin);
        child.kill()?;
        child.wait()?;
    }
    if said.is_empty() {
        said.push(fs::read_to_string(init::log_of(directory, "init")).unwrap_or_default());
    }
    bail!("the cluster cannot be made: {}", said.join("\n").trim())
}

/// The lines that a process prints.
struct Lines {
    stdout: ChildStdout,
    buffer: Vec<u8>,
}

impl Lines {
    /// Returns the next line; `None` at the end of the stream and after the deadline. No thread reads the lines, because
    /// [`super::relay`] needs a process of one thread.
    fn next(&mut self, deadline: Instant) -> Result<Option<String>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Ok(Some(String::from_utf8_lossy(&line[..end]).into_owned()));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            let mut part = [0; 4096];
            if wait_for_input(self.stdout.as_fd(), Some(deadline))? {
                match self.stdout.read(&mut part)? {
                    0 => return Ok(None),
                    count => self.buffer.extend_from_slice(&part[..count]),
                }
            }
        }
    }
}

/// Removes the directories of clusters that are not up: a crash left them.
fn sweep(all: &Path) -> Result<()> {
    for entry in fs::read_dir(all)? {
        let directory = entry?.path();
        if living(&directory).is_none() {
            remove(&directory)?;
        }
    }
    Ok(())
}

fn remove(directory: &Path) -> Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove `{}`", directory.display()))
        }
        _ => Ok(()),
    }
}

/// Removes the cluster with this name, if there is one.
pub(super) fn down(name: &str) -> Result<()> {
    if is_inside() {
        bail!("this is a node of the cluster: run `down` on the machine itself");
    }
    let all = directory_of_all();
    if !all.exists() {
        return Ok(());
    }
    let _one_at_a_time = lock(&all)?;
    let directory = all.join(name);
    if let Some(bed) = living(&directory) {
        bed.kill()?;
    }
    sweep(&all)?;
    // Fails if there are other clusters.
    let _ = fs::remove_dir(&all);
    Ok(())
}

/// Returns true if this process is in a cluster.
pub(super) fn is_inside() -> bool {
    Path::new(FILES).join(RECORD).exists()
}

/// Returns the cluster with this name; in a cluster, that one.
pub(super) fn find(name: &str) -> Result<Bed> {
    if is_inside() {
        if gethostname()? != plan::HEAD {
            bail!(
                "this is a node of a cluster, which sees nothing of the others: run this on the head"
            );
        }
        let text = fs::read_to_string(Path::new(FILES).join(RECORD))?;
        let plan = Plan::recorded(&serde_json::from_str(&text)?)
            .context("the record of the cluster is damaged")?;
        return Ok(Bed {
            plan,
            entry: Entry::Inside,
        });
    }
    match living(&directory_of_all().join(name)) {
        Some(bed) => Ok(bed),
        None => bail!("no cluster `{name}` is up: `cargo xtask cluster up 8` makes one"),
    }
}

/// Returns the cluster that is recorded in a directory, unless its first process has exited.
fn living(directory: &Path) -> Option<Bed> {
    let text = fs::read_to_string(directory.join(RECORD)).ok()?;
    let record: Value = serde_json::from_str(&text).ok()?;
    let init = i32::try_from(record["pid"].as_i64()?).ok()?;
    let is_same =
        record["start"].as_u64() == start_time(Path::new("/"), init) && record["boot"] == boot();
    let bed = Bed {
        plan: Plan::recorded(&record)?,
        entry: Entry::Outside { init },
    };
    is_same.then_some(bed)
}

/// Returns the start time of a process in ticks, unless it has exited. Together with the pid it identifies a process even if the
/// pid is reused.
fn start_time(root: &Path, pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(root.join(format!("proc/{pid}/stat"))).ok()?;
    let (_, behind_name) = stat.rsplit_once(')')?;
    let mut fields = behind_name.split_whitespace();
    if fields.next()? == "Z" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// Returns what distinguishes this start of the machine from all others.
fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .unwrap_or_default()
        .trim()
        .to_owned()
}

impl Bed {
    /// Writes the record of this cluster.
    fn record(&self, directory: &Path) -> Result<()> {
        let Entry::Outside { init } = self.entry else {
            return Ok(());
        };
        let mut record = self.plan.record();
        record["pid"] = init.into();
        record["start"] = start_time(Path::new("/"), init).into();
        record["boot"] = boot().into();
        Ok(fs::write(directory.join(RECORD), record.to_string())?)
    }

    /// Kills the first process, and waits until the kernel has killed all others.
    fn kill(&self) -> Result<()> {
        let Entry::Outside { init } = self.entry else {
            return Ok(());
        };
        let start = start_time(Path::new("/"), init);
        let until = Instant::now() + DOWN_MAX;
        if start.is_some() {
            // It may have exited since.
            let _ = signal::kill(Pid::from_raw(init), Signal::SIGKILL);
        }
        while start.is_some() && start_time(Path::new("/"), init) == start {
            if Instant::now() > until {
                bail!(
                    "the processes of the cluster `{}` cannot be killed",
                    self.plan.name
                );
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Returns the directory that contains the root directory of the head.
    fn root(&self) -> PathBuf {
        match self.entry {
            Entry::Outside { init } => PathBuf::from(format!("/proc/{init}/root")),
            Entry::Inside => PathBuf::from("/"),
        }
    }

    /// Returns a path of [`FILES`] as this process sees it.
    fn file(&self, name: &str) -> PathBuf {
        self.root().join(FILES.trim_start_matches('/')).join(name)
    }

    fn check(&self, node: Node) -> Result<()> {
        match node {
            Node::Number(number) if number == 0 || number > self.plan.nodes => {
                bail!(
                    "there is no node `{}`: the last one is `n{}`",
                    node.name(),
                    self.plan.nodes
                )
            }
            _ => Ok(()),
        }
    }

    /// Returns a command that runs `words` on a node, in the directory with the path of our working directory. It is a child of
    /// `nsenter`, which waits for it but passes no signals on.
    pub(super) fn command(&self, node: Node, words: &[String]) -> Result<Command> {
        self.prepare(node, words, &["--pid"])
    }

    /// Lets the next child of this process be in the pid namespace of a node, and returns the command for that child: it has the
    /// pid of `words` itself.
    pub(super) fn direct_command(&self, node: Node, words: &[String]) -> Result<Command> {
        self.check(node)?;
        let namespace = fs::File::open(self.holder(node)?.join("ns/pid"))?;
        setns(namespace.as_fd(), CloneFlags::CLONE_NEWPID)?;
        self.prepare(node, words, &[])
    }

    /// Returns the directory in `/proc` of the first process of a node.
    fn holder(&self, node: Node) -> Result<PathBuf> {
        Ok(self.root().join("proc").join(self.holder_pid(node)?))
    }

    /// Returns the pid on the head of the first process of a node.
    fn holder_pid(&self, node: Node) -> Result<String> {
        match node {
            Node::Head => Ok("1".to_owned()),
            Node::Number(_) => Ok(fs::read_to_string(self.file(&node.name()).join("holder"))?),
        }
    }

    fn prepare(&self, node: Node, words: &[String], more: &[&str]) -> Result<Command> {
        const SPACES: [&str; 4] = ["--net", "--uts", "--mount", "--ipc"];
        self.check(node)?;
        // The kernel kills the command when this process dies.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        if let Entry::Outside { init } = self.entry {
            command.args(["nsenter", "--target", &init.to_string()]);
            command.args(SPACES).args(more).arg("--");
        }
        if node != Node::Head || self.entry == Entry::Inside {
            command.args(["nsenter", "--target", &self.holder_pid(node)?]);
            command.args(SPACES).args(more).arg("--");
        }
        // Nodes have a `/tmp` of their own, where the caller's directory does not exist.
        command.env_remove("TMPDIR");
        if self.plan.slurm {
            command.env("SLURM_CONF", plan::SLURM_CONF);
        }
        // Our working directory belongs to another mount namespace, so the command enters its path again.
        command.args(["sh", "-c", "cd \"$0\" 2>/dev/null || cd /; exec \"$@\""]);
        command.arg(std::env::current_dir()?).args(words);
        Ok(command)
    }

    /// Returns the pids of all processes of the cluster, as the machine sees them; none inside the cluster.
    pub(super) fn pids(&self) -> BTreeSet<i32> {
        if self.entry == Entry::Inside {
            return BTreeSet::new();
        }
        let namespace = |process: PathBuf| fs::read_link(process.join("ns/pid")).ok();
        let nodes = std::iter::once(Node::Head).chain(self.plan.nodes());
        let own: BTreeSet<PathBuf> = nodes
            .filter_map(|node| namespace(self.holder(node).ok()?))
            .collect();
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|pid: &i32| {
                let found = namespace(PathBuf::from(format!("/proc/{pid}")));
                found.is_some_and(|found| own.contains(&found))
            })
            .collect()
    }

    fn feed(&self, node: Node, words: &[&str], text: &str) -> Result<()> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        network::feed(&mut self.command(node, &words)?, text)
    }

    /// Sets the cable of a node up or down.
    pub(super) fn set_link(&self, node: Node, link: network::Link) -> Result<()> {
        self.check(node)?;
        self.feed(
            Node::Head,
            &["ip", "-batch", "-"],
            &network::link(node, link),
        )
    }

    /// Lets a node drop packets, in addition to those that it drops already.
    pub(super) fn drop_packets(&self, node: Node, dropped: network::Dropped) -> Result<()> {
        self.feed(node, &["nft", "-f", "-"], &network::rules(dropped))
    }

    /// Reconnects a node, and ends all dropping of packets.
    pub(super) fn restore(&self, node: Node) -> Result<()> {
        if crate::env::which("nft").is_some() {
            self.feed(node, &["nft", "-f", "-"], network::NO_RULES)?;
        }
        self.set_link(node, network::Link::Up)
    }

    /// Describes the cluster, one line for each node.
    pub(super) fn status(&self) -> Result<String> {
        let Plan { name, nodes, .. } = &self.plan;
        let mut text = match self.entry {
            Entry::Outside { init } => {
                format!("cluster {name}: {nodes} nodes, first process {init}\n")
            }
            Entry::Inside => format!("cluster {name}: {nodes} nodes\n"),
        };
        let words = ["ip", "-json", "link", "show", "type", "veth"].map(str::to_owned);
        let links = crate::env::text_of(&mut self.command(Node::Head, &words)?)?;
        let links: Value = serde_json::from_str(&links)?;
        for node in self.plan.nodes() {
            let cable = network::cable_of(node);
            let link = links
                .as_array()
                .into_iter()
                .flatten()
                .find(|link| link["ifname"] == cable);
            let flags = link.and_then(|link| link["flags"].as_array());
            let is_up = flags.is_some_and(|flags| flags.iter().any(|flag| flag == "UP"));
            let state = if is_up { "connected" } else { "cut off" };
            let (ipv4, ipv6) = (self.plan.ipv4(node), self.plan.ipv6(node));
            text += &format!("{:<5} {ipv4:<14} {ipv6:<14} {state}", node.name());
            for (service, pid) in self.services(node) {
                let root = self.holder(node).unwrap_or_default().join("root");
                let dead = if start_time(&root, pid).is_some() {
                    ""
                } else {
                    " (dead)"
                };
                text += &format!(", {service}{dead}");
            }
            text.push('\n');
        }
        Ok(text)
    }

    /// Returns the services of a node with their pids there.
    fn services(&self, node: Node) -> Vec<(String, i32)> {
        let text = fs::read_to_string(self.file(&node.name()).join("services")).unwrap_or_default();
        let service = |line: &str| {
            let (name, pid) = line.split_once(' ')?;
            Some((name.to_owned(), pid.parse().ok()?))
        };
        text.lines().filter_map(service).collect()
    }
}
