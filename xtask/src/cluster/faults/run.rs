//! One run: a job on all nodes, its fault, and the checks.

use std::{
    io::Read,
    os::unix::process::ExitStatusExt as _,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use mischief::Proc;
use nix::sys::signal::Signal;

use super::{
    fault::{Fault, Moment, Plan, Policy},
    nodes::{Nodes, eventually, kill},
};

/// Ranks on each node.
const RANKS: u32 = 2;
const LEASE: Duration = Duration::from_millis(300);
/// Time for a job to start. It is long, because other programs may use the computer.
const UP_MAX: Duration = Duration::from_secs(60);
/// Time after a fault, or after the request to end, within which the front must end: lease, reconnect window, grace, and reserve for a
/// busy computer.
const END_MAX: Duration = Duration::from_secs(30);
/// Time after the end of the front within which nothing may be left: lease, reconnect window, 2 s, and reserve.
const CLEAN_MAX: Duration = Duration::from_secs(12);
/// Time for which a job must go on: lease, reconnect window, and reserve.
const GO_ON: Duration = Duration::from_millis(3000);
/// Longest interruption that a job must survive. Longer ones may cost the node.
const SURVIVED: Duration = Duration::from_millis(500);
/// Time to read the rest of the output of a program that has exited.
const READ_MAX: Duration = Duration::from_secs(2);
/// What each rank runs: it leaves a process in a session of its own.
const PROGRAM: &str = "setsid sleep 2000 & echo up; exec sleep 1000";

#[derive(Debug)]
pub(super) struct Programs {
    pub(super) rally: PathBuf,
    pub(super) dbgr: PathBuf,
}

/// A running program and what it has printed.
#[derive(Debug)]
struct Running {
    child: Child,
    out: Text,
    err: Text,
}

/// What a program prints.
#[derive(Debug)]
struct Text {
    read: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
}

impl Text {
    fn so_far(&self) -> String {
        self.read
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Running {
    fn start(command: &mut Command) -> Result<Self> {
        let command = command.env_clear().env("LC_ALL", "C").current_dir("/");
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
        command
            .env("HOME", "/tmp")
            .env("XDG_RUNTIME_DIR", "/run/user/0");
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot start a program")?;
        let out = gather(child.stdout.take());
        let err = gather(child.stderr.take());
        Ok(Self { child, out, err })
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap_or(0)
    }

    fn out(&self) -> String {
        self.out.so_far()
    }

    fn err(&self) -> String {
        self.err.so_far()
    }

    /// Returns the exit code that a shell would show, if the program exits within this time.
    fn code(&mut self, within: Duration) -> Option<i32> {
        let status = eventually(within, || self.child.try_wait().ok()?)?;
        // A process that was left behind may hold the output open: that is found later.
        let is_read = || self.out.reader.is_finished() && self.err.reader.is_finished();
        eventually(READ_MAX, || is_read().then_some(()));
        Some(
            status
                .code()
                .unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
        )
    }

    fn is_running(&mut self) -> bool {
        self.code(Duration::ZERO).is_none()
    }
}

fn gather(stream: Option<impl Read + Send + 'static>) -> Text {
    let read = Arc::new(Mutex::new(String::new()));
    let shared = Arc::clone(&read);
    let reader = thread::spawn(move || {
        let mut block = [0; 4096];
        if let Some(mut stream) = stream {
            while let Ok(count @ 1..) = stream.read(&mut block) {
                let part = String::from_utf8_lossy(&block[..count]);
                shared
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push_str(&part);
            }
        }
    });
    Text { read, reader }
}

/// What must follow a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// The front ends by itself.
    End,
    GoesOn,
    Either,
}

/// Runs a job with its fault. Returns what has happened.
pub(super) fn once(programs: &Programs, nodes: &Nodes, plan: &Plan) -> Result<String> {
    let mut job = start(programs, plan)?;
    match plan.moment {
        Moment::Starting(after) => thread::sleep(after),
        Moment::Running => {
            let all = RANKS * super::NODES;
            let is_up = || (job.out().matches("up").count() >= all as usize).then_some(());
            if eventually(UP_MAX, is_up).is_none() {
                bail!("the job did not start: {}", job.err().trim());
            }
        }
    }
    let done = inject(programs, nodes, plan, &mut job);
    let result = done.and_then(|is_done| follow(plan, &mut job, is_done));
    // A front that hangs is shown before anything else ends it.
    if job.is_running() {
        let picture: String = nodes
            .processes()
            .iter()
            .map(|one| format!("\n  {one}"))
            .collect();
        let what = result.unwrap_or_else(|error| format!("{error:#}"));
        bail!("{what}; its processes:{picture}");
    }
    // A node that is still away must clean itself, unless it is stopped.
    if let Fault::Stop(node, None) = plan.fault {
        resume(nodes, node);
    }
    let clean = nodes.until_clean(CLEAN_MAX);
    if let Fault::Cut(node, None) = plan.fault {
        nodes.set_link(node, "up")?;
    }
    nodes.end_sessions();
    let said = job.err();
    let what = result.with_context(|| format!("stderr: {}", said.trim()))?;
    let clean = clean.with_context(|| format!("{what}; stderr: {}", said.trim()))?;
    Ok(format!("{what}, clean after {} ms", clean.as_millis()))
}

fn start(programs: &Programs, plan: &Plan) -> Result<Running> {
    let mut command = Command::new(&programs.rally);
    let (nodes, ranks) = (super::NODES, super::NODES * RANKS);
    command.args(["run", "--host", &format!("n[1-{nodes}]"), "--wdir", "/"]);
    command.args(["--map-by", "node", "-n", &ranks.to_string()]);
    command.args([
        "--oversubscribe",
        "--lease",
        &format!("{}ms", LEASE.as_millis()),
        "--radix",
        &plan.radix.to_string(),
    ]);
    if plan.policy == Policy::Continue {
        command.arg("--on-node-loss=continue");
    }
    Running::start(command.args(["--", "sh", "-c", PROGRAM]))
}

/// Lets the fault happen. Returns false if there was no such process.
fn inject(programs: &Programs, nodes: &Nodes, plan: &Plan, job: &mut Running) -> Result<bool> {
    let front = job.pid();
    let child_of = |parent: i32| {
        let mut all = nodes.processes().into_iter();
        all.find(|one| {
            one.ppid == parent && one.args.starts_with(&*programs.rally.to_string_lossy())
        })
    };
    let victim = match plan.fault {
        Fault::Front => Some(front),
        Fault::Controller => {
            let guardian = child_of(front);
            guardian
                .and_then(|guardian| child_of(guardian.pid))
                .map(|one| one.pid)
        }
        Fault::Daemon(node) => daemons(nodes, node).map(|(_, daemon)| daemon),
        Fault::Guardian(node) => daemons(nodes, node).map(|(guardian, _)| guardian),
        Fault::Rank(node) => {
            let mut all = nodes.processes_on(node).into_iter();
            all.find(|one| one.args == "sleep 1000").map(|one| one.pid)
        }
        Fault::Agent(node) => return agent(programs, nodes, plan, node).map(|()| true),
        Fault::Cut(node, time) => {
            nodes.set_link(node, "down")?;
            if let Some(time) = time {
                thread::sleep(time);
                nodes.set_link(node, "up")?;
            }
            return Ok(true);
        }
        Fault::Stop(node, time) => {
            let stopped = nodes.processes_on(node);
            for process in &stopped {
                kill(process.pid, Signal::SIGSTOP);
            }
            if let Some(time) = time {
                thread::sleep(time);
                resume(nodes, node);
            }
            return Ok(!stopped.is_empty());
        }
    };
    if let Some(pid) = victim {
        kill(pid, Signal::SIGKILL);
    }
    ensure!(
        victim.is_some() || plan.moment != Moment::Running,
        "there is no such process"
    );
    Ok(victim.is_some())
}

fn resume(nodes: &Nodes, node: u32) {
    for process in nodes.processes_on(node) {
        kill(process.pid, Signal::SIGCONT);
    }
}

/// Returns the pids of the guardian and the daemon of a node.
fn daemons(nodes: &Nodes, node: u32) -> Option<(i32, i32)> {
    let mut all = nodes.processes_on(node);
    all.retain(|one| one.args.ends_with(" __daemon"));
    let parent = |daemon: &Proc| {
        all.iter()
            .find(|one| one.pid == daemon.ppid)
            .map(|one| one.pid)
    };
    all.iter()
        .find_map(|daemon| Some((parent(daemon)?, daemon.pid)))
}

/// Kills the agent of a node before the last sample. The debugger must name the node, and must end by itself.
fn agent(programs: &Programs, nodes: &Nodes, plan: &Plan, node: u32) -> Result<()> {
    // The head sees the processes of all nodes, so `dbgr` would find all ranks of a job there. With names of hosts it starts agents.
    let hosts = format!("n[1-{}]", super::NODES);
    let mut command = Command::new(&programs.dbgr);
    command.args(["stacks", "--hosts", &hosts, "--name", "sleep"]);
    command.args(["--samples", "5", "--every", "300ms"]);
    let mut debugger = Running::start(&mut command)?;
    let find = || {
        let mut agents = nodes.processes_on(node);
        agents.retain(|one| one.args.ends_with(" __agent"));
        (!agents.is_empty()).then_some(agents)
    };
    let agents = eventually(UP_MAX, find).context("dbgr starts no agent")?;
    thread::sleep(plan.delay);
    for agent in &agents {
        kill(agent.pid, Signal::SIGKILL);
    }
    let ended = debugger.code(END_MAX);
    let said = format!("{}{}", debugger.out(), debugger.err());
    if ended.is_none() {
        kill(debugger.pid(), Signal::SIGKILL);
        bail!("dbgr hangs; it said: {said}");
    }
    let name = format!("n{node}");
    ensure!(
        names(&said, &name),
        "dbgr has ended with {ended:?} and does not name {name}: {said}"
    );
    Ok(())
}

/// Waits for what must follow the fault. Ends a job that goes on.
fn follow(plan: &Plan, job: &mut Running, is_done: bool) -> Result<String> {
    let expected = expected(plan, is_done);
    let without = if is_done { "" } else { "no such process, " };
    if expected == Expected::GoesOn || expected == Expected::Either {
        if let Some(code) = job.code(GO_ON) {
            ensure!(
                expected == Expected::Either,
                "the job ended with code {code}"
            );
            check_end(plan, job, code, is_done)?;
            return Ok(format!("{without}ended with {code}"));
        }
        if expected == Expected::GoesOn && is_done && loses_node(plan) {
            let name = name(plan);
            ensure!(names(&job.err(), &name), "the message does not name {name}");
        }
        kill(job.pid(), Signal::SIGTERM);
        let code = job.code(END_MAX).context("the front hangs after SIGTERM")?;
        ensure!(code != 0, "it was ended, and claims success");
        return Ok(format!("{without}went on until SIGTERM, {code}"));
    }
    let code = job.code(END_MAX).context("the front hangs")?;
    check_end(plan, job, code, is_done)?;
    Ok(format!("{without}ended with {code}"))
}

/// Returns true if the name is empty, or if a message contains it, besides the warnings about processes that ranks have left behind on all nodes.
fn names(text: &str, name: &str) -> bool {
    let mut lines = text.lines().filter(|line| !line.contains("left behind"));
    name.is_empty() || lines.any(|line| line.contains(name))
}

/// Returns the name of the node that fails. It is empty for the head, which the messages need not name.
fn name(plan: &Plan) -> String {
    plan.fault
        .node()
        .map_or_else(String::new, |node| format!("n{node}"))
}

/// Returns true if the fault takes the node away for good.
const fn loses_node(plan: &Plan) -> bool {
    matches!(
        plan.fault,
        Fault::Daemon(_) | Fault::Cut(_, None) | Fault::Stop(_, None)
    )
}

fn expected(plan: &Plan, is_done: bool) -> Expected {
    if plan.fault == Fault::Front {
        return Expected::End;
    }
    if plan.moment != Moment::Running {
        return Expected::Either;
    }
    let without_node = match plan.policy {
        Policy::Abort => Expected::End,
        Policy::Continue => Expected::GoesOn,
    };
    match plan.fault {
        _ if !is_done => Expected::GoesOn,
        Fault::Front | Fault::Controller | Fault::Rank(_) => Expected::End,
        Fault::Agent(_) | Fault::Guardian(_) => Expected::GoesOn,
        Fault::Daemon(_) | Fault::Cut(_, None) | Fault::Stop(_, None) => without_node,
        Fault::Cut(_, Some(time)) if time < SURVIVED => Expected::GoesOn,
        Fault::Stop(_, Some(time)) if time < LEASE / 3 => Expected::GoesOn,
        Fault::Cut(_, Some(_)) | Fault::Stop(_, Some(_)) => Expected::Either,
    }
}

/// Checks the exit code of a front that has ended by itself, and its message.
fn check_end(plan: &Plan, job: &mut Running, code: i32, is_done: bool) -> Result<()> {
    ensure!(code != 0, "the job claims success");
    let is_running = plan.moment == Moment::Running && is_done;
    let codes: &[i32] = match plan.fault {
        Fault::Front => &[137],
        Fault::Rank(_) if is_running => &[137],
        _ if is_running => &[125],
        _ => &[125, 123, 137],
    };
    ensure!(
        codes.contains(&code),
        "the exit code {code} is none of {codes:?}"
    );
    let name = name(plan);
    ensure!(names(&job.err(), &name), "the message does not name {name}");
    Ok(())
}
