//! Jobs on a machine that is up: one after another, many at once, arrays, and a long history.

use std::{
    fmt::Write as _,
    fs,
    io::Read as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, ensure};
use mischief::marked_procs;

use super::{
    Bench,
    report::{contestant_cell, ratio_cell},
    sample::{Contestant, median, rounds, silent, timed, watched},
};
use crate::{
    env::{Wheel, root},
    steps,
};

const ROUNDS: usize = 7;
/// Rounds of the array.
const ARRAYS: usize = 3;
/// Jobs that one `rally wait` names.
const WAITED: usize = 1_000;
/// Jobs of `rally run` in a round.
const RUNS: usize = 100;
/// Null jobs in a round, and clients that run them.
const JOBS: usize = 2_000;
const CLIENTS: usize = 8;
/// Tasks of the array, in a round.
const TASKS: u32 = 10_000;
/// Jobs in the history when a machine starts again.
const HISTORY: usize = 100_000;
/// Time limit of a step that runs many jobs.
const LIMIT: Duration = Duration::from_secs(600);

/// A machine of eight slots, which ends with this value.
pub(super) struct Machine<'a> {
    bench: &'a Bench,
    state: PathBuf,
}

impl<'a> Machine<'a> {
    pub(super) fn up(bench: &'a Bench, name: &str) -> Result<Self> {
        let machine = Self {
            bench,
            state: bench.path(name),
        };
        machine.start()?;
        Ok(machine)
    }

    fn start(&self) -> Result<()> {
        let mut command = self.rally(&["up", "--host", "localhost:8"]);
        steps::execute(&mut command, LIMIT)
    }

    pub(super) fn rally(&self, args: &[&str]) -> Command {
        let mut command = silent(&self.bench.rally, args);
        command
            .env("RALLY_STATE_DIR", &self.state)
            .env("RALLY_MACHINE", "main")
            .current_dir(self.bench.directory.path());
        command
    }

    fn says(&self, args: &[&str]) -> Result<String> {
        said(&mut self.rally(args)).with_context(|| format!("rally {args:?}"))
    }

    /// Submits, and returns the numbers of the jobs.
    fn submit(&self, args: &[&str]) -> Result<Vec<String>> {
        let all = [&["submit", "--parsable"], args].concat();
        let said = self.says(&all)?;
        Ok(said.lines().map(str::to_owned).collect())
    }

    fn wait(&self, jobs: &[String]) -> Result<()> {
        for jobs in jobs.chunks(WAITED) {
            let mut child = self.rally(&["wait"]).args(jobs).spawn()?;
            // The command is too long to be shown.
            let status = watched(LIMIT, &mut child, |child| Ok(child.wait()?))?;
            ensure!(status.success(), "a null job has failed");
        }
        Ok(())
    }

    /// Returns the pid of the controller: the child of the guardian. No job runs, and no other process is started with this variable.
    fn controller(&self) -> Result<i32> {
        let ours = marked_procs(&format!("RALLY_STATE_DIR={}", self.state.display()));
        let is_ours = |pid: i32| ours.iter().any(|process| process.pid == pid);
        let mut children = ours.iter().filter(|process| is_ours(process.ppid));
        let found = children.next().context("no process of the machine")?;
        ensure!(children.next().is_none(), "a job still runs");
        Ok(found.pid)
    }

    /// Returns the resident memory of the controller that is its own, in KiB.
    fn memory(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.controller()?))?;
        let line = status.lines().find(|line| line.starts_with("RssAnon"));
        let words = line.and_then(|line| line.split_whitespace().nth(1));
        words.context("no memory")?.parse().context("no number")
    }

    fn down(&self) {
        let _ = timed(&mut self.rally(&["down", "--now"]));
    }
}

impl Drop for Machine<'_> {
    fn drop(&mut self) {
        self.down();
    }
}

pub(super) fn measure(bench: &Bench) -> Result<String> {
    Wheel::HyperQueue.install()?;
    let machine = Machine::up(bench, "state")?;
    let mut text = String::from("| work | measured | target |\n|---|---|---|\n");
    one_after_another(bench, &machine, &mut text)?;
    null_jobs(bench, &machine, &mut text)?;
    arrays(bench, &machine, &mut text)?;
    memory(bench, &mut text)?;
    history(bench, &mut text)?;
    writeln!(
        text,
        "\nA machine of eight slots on this computer; its store is on the disk of the build. Medians of {} rounds, of {} for the array; \
         memory is measured once.",
        bench.rounds(ROUNDS),
        bench.rounds(ARRAYS),
    )?;
    Ok(text)
}

fn one_after_another(bench: &Bench, machine: &Machine<'_>, text: &mut String) -> Result<()> {
    let mut times = Vec::new();
    for _ in 0..bench.rounds(ROUNDS) * RUNS {
        let mut run = machine.rally(&["run", "-q", "-n", "1", "/bin/true"]);
        times.push(timed(&mut run)?.as_secs_f64() * 1e3);
    }
    let time = median(times).context("no run")?;
    writeln!(
        text,
        "| `rally run -n 1 true` into a running machine | {time:.2} ms | ≤ 3 ms |"
    )?;
    Ok(())
}

fn null_jobs(bench: &Bench, machine: &Machine<'_>, text: &mut String) -> Result<()> {
    let file = bench.path("jobs");
    fs::write(&file, "/bin/true\n".repeat(JOBS))?;
    let file = file.to_str().context("no text")?;
    let mut clients = Vec::new();
    let mut connection = Vec::new();
    for _ in 0..bench.rounds(ROUNDS) {
        let started = Instant::now();
        thread::scope(|scope| {
            let client = || -> Result<()> {
                for _ in 0..JOBS / CLIENTS {
                    timed(&mut machine.rally(&["run", "-q", "-n", "1", "/bin/true"]))?;
                }
                Ok(())
            };
            let all: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
            let mut ends = all.into_iter().map(|client| client.join());
            ends.try_for_each(|end| end.map_err(|_| anyhow!("a client has panicked"))?)
        })?;
        clients.push(JOBS as f64 / started.elapsed().as_secs_f64());
        let started = Instant::now();
        let jobs = machine.submit(&["-n", "1", "--from", file])?;
        machine.wait(&jobs)?;
        connection.push(JOBS as f64 / started.elapsed().as_secs_f64());
    }
    let clients = median(clients).context("no rounds")?;
    let connection = median(connection).context("no rounds")?;
    writeln!(
        text,
        "| null jobs, a client process for each, {CLIENTS} in flight | {clients:.0} per second | ≥ 700 |"
    )?;
    writeln!(
        text,
        "| null jobs, all on one connection (`submit --from`, `wait`) | {connection:.0} per second | ≥ 1,500 |"
    )?;
    Ok(())
}

fn arrays(bench: &Bench, machine: &Machine<'_>, text: &mut String) -> Result<()> {
    let script = root().join("xtask/src/bench/null_tasks.py");
    let python = Wheel::HyperQueue.home().join("bin/python3");
    let tasks = TASKS.to_string();
    let own = || {
        let started = Instant::now();
        let array = format!("1-{TASKS}");
        let submitted = machine.submit(&["-n", "1", "--array", &array, "/bin/true"])?;
        machine.wait(&submitted)?;
        Ok(started.elapsed())
    };
    let other = || {
        let mut command = Command::new(&python);
        command.arg(&script).arg(&tasks).stderr(Stdio::null());
        // HyperQueue writes files for each task and for its cluster, and leaves them.
        command.current_dir(bench.directory.path());
        command.env("TMPDIR", bench.directory.path());
        let said = said(&mut command)?;
        let seconds = said.lines().last().context("HyperQueue says nothing")?;
        Ok(Duration::from_secs_f64(seconds.trim().parse()?))
    };
    let contestants: Vec<Contestant<'_>> =
        vec![("rally", Box::new(own)), ("HyperQueue", Box::new(other))];
    let all = rounds(bench.rounds(ARRAYS), contestants);
    let of = |name: &str| all.iter().find(|samples| samples.name == name);
    let ratio = of("HyperQueue")
        .zip(of("rally"))
        .and_then(|(other, own)| other.over(own));
    writeln!(
        text,
        "| an array of {TASKS} null tasks on 8 slots | {} ms; HyperQueue {} ms; {} of its rate | ≥ 3 |",
        contestant_cell(of("rally")),
        contestant_cell(of("HyperQueue")),
        ratio_cell(ratio)
    )?;
    let mut times = Vec::new();
    for _ in 0..bench.rounds(ROUNDS) {
        let started = Instant::now();
        let job = machine.submit(&["-n", "1", "--hold", "--array", "1-100000", "/bin/true"])?;
        times.push(started.elapsed().as_secs_f64() * 1e3);
        timed(machine.rally(&["cancel"]).args(&job))?;
    }
    let time = median(times).context("no rounds")?;
    writeln!(
        text,
        "| durable submit of an array of 100,000 | {time:.1} ms | ≤ 1 s |"
    )?;
    Ok(())
}

/// Returns what a command prints. It must succeed.
fn said(command: &mut Command) -> Result<String> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut text = String::new();
    let status = watched(LIMIT, &mut child, |child| {
        if let Some(stdout) = &mut child.stdout {
            stdout.read_to_string(&mut text)?;
        }
        Ok(child.wait()?)
    })?;
    ensure!(status.success(), "{status}");
    Ok(text)
}

/// Submits so many null jobs, and waits for them.
fn run_many(bench: &Bench, machine: &Machine<'_>, count: usize) -> Result<()> {
    let file = bench.path("many");
    fs::write(&file, "/bin/true\n".repeat(count))?;
    let file = file.to_str().context("no text")?;
    let jobs = machine.submit(&["-n", "1", "--from", file])?;
    machine.wait(&jobs)
}

fn memory(bench: &Bench, text: &mut String) -> Result<()> {
    let machine = Machine::up(bench, "state-memory")?;
    run_many(bench, &machine, 1_000)?;
    let before = machine.memory()?;
    for _ in 0..9 {
        run_many(bench, &machine, 1_000)?;
    }
    let after = machine.memory()?;
    let grown = i64::try_from(after)? - i64::try_from(before)?;
    writeln!(
        text,
        "| memory of the controller after 10,000 jobs, compared with that after 1,000 | {grown:+} KiB ({after} KiB) | < 1 MiB |"
    )?;
    Ok(())
}

fn history(bench: &Bench, text: &mut String) -> Result<()> {
    let machine = Machine::up(bench, "state-history")?;
    for _ in 0..HISTORY / 10_000 {
        run_many(bench, &machine, 10_000)?;
    }
    let mut times = Vec::new();
    for _ in 0..bench.rounds(ROUNDS) {
        machine.down();
        let started = Instant::now();
        machine.start()?;
        times.push(started.elapsed().as_secs_f64() * 1e3);
    }
    let time = median(times).context("no rounds")?;
    let size = size_of(&machine.state)?;
    writeln!(
        text,
        "| `rally up` with {HISTORY} jobs of history (a store of {:.1} MiB) | {time:.0} ms | ≤ 1 s |",
        size as f64 / f64::from(1 << 20)
    )?;
    Ok(())
}

/// Returns the length of the store below a directory.
fn size_of(directory: &Path) -> Result<u64> {
    for entry in fs::read_dir(directory)?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            return size_of(&path);
        }
        if path.file_name().is_some_and(|name| name == "store") {
            return Ok(entry.metadata()?.len());
        }
    }
    anyhow::bail!("no store in {}", directory.display())
}
