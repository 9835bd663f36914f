//! Memory and wake-ups of the launcher with 64 idle ranks.

use std::{
    fmt::Write as _,
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use mischief::{Proc, marked_procs};
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

use super::Bench;

const RANKS: usize = 64;
const MARKER: &str = "RALLY_STRESS";

/// Time between the moment when all ranks sleep and the first measurement.
pub(super) const SETTLE: Duration = Duration::from_secs(2);

/// Time during which wake-ups are counted.
pub(super) const WATCH: Duration = Duration::from_secs(10);

/// Limit of the resident memory of front and controller together, in KiB.
const TARGET_KIB: u64 = 10 * 1024;

pub(super) fn measure(bench: &Bench) -> Result<String> {
    let mut text = String::from(
        "| | processes | resident (RSS) | share (PSS) | own (Private) | target, RSS | wake-ups per second | target |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    let ranks = RANKS.to_string();
    let rank = ["-n", &ranks, "sleep", "1000"];
    let root = ["--allow-run-as-root", "--oversubscribe"];
    let contestants: [(&str, &Path, &[&str]); 3] = [
        ("rally", &bench.rally, &["run"]),
        ("Hydra", &bench.hydra, &[]),
        ("Open MPI", &bench.openmpi, &root),
    ];
    for (name, program, before) in contestants {
        let mut command = Command::new(program);
        command.args(before).args(rank);
        let row = match idle(&mut command, &format!("{}-{name}", std::process::id())) {
            Ok(idle) => format!(
                "{} | {:.1} MiB | {:.1} MiB | {:.1} MiB | {} | {:.1} | {}",
                idle.processes,
                mib(idle.resident),
                mib(idle.share),
                mib(idle.own),
                if name == "rally" {
                    format!("≤ {} MiB", TARGET_KIB / 1024)
                } else {
                    "-".into()
                },
                idle.wakeups,
                if name == "rally" { "0" } else { "-" },
            ),
            Err(error) => format!("failed: {error:#} | | | | | | "),
        };
        writeln!(text, "| {name} | {row} |")?;
    }
    writeln!(
        text,
        "\n{RANKS} ranks of `sleep 1000`; sums over the launcher's own processes (for rally: front, guardian and controller), from \
         /proc/PID/smaps_rollup. RSS counts pages that several of them share several times, PSS once. Wake-ups are the \
         context switches, voluntary and not, of all their threads over {} s.",
        WATCH.as_secs()
    )?;
    Ok(text)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a size in KiB, shown with one decimal"
)]
pub(super) fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

/// Memory in KiB, and wake-ups per second, of processes that have nothing to do.
#[derive(Debug)]
pub(super) struct Idle {
    pub(super) processes: usize,
    pub(super) resident: u64,
    pub(super) share: u64,
    pub(super) own: u64,
    pub(super) wakeups: f64,
}

fn idle(command: &mut Command, marker: &str) -> Result<Idle> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .env(MARKER, marker);
    let mut child = command.spawn()?;
    let variable = format!("{MARKER}={marker}");
    let measured = look(&variable);
    for process in marked_procs(&variable) {
        // An error means that the process has exited meanwhile.
        let _ = signal::kill(Pid::from_raw(process.pid), Signal::SIGKILL);
    }
    child.wait()?;
    measured
}

fn look(variable: &str) -> Result<Idle> {
    let is_rank = |process: &Proc| process.args.starts_with("sleep 1000");
    let end = Instant::now() + super::sample::HANG;
    while marked_procs(variable)
        .iter()
        .filter(|process| is_rank(process))
        .count()
        < RANKS
    {
        if Instant::now() > end {
            bail!("the ranks never ran");
        }
        thread::sleep(Duration::from_millis(10));
    }
    thread::sleep(SETTLE);
    let mut ours = marked_procs(variable);
    ours.retain(|process| !is_rank(process));
    Idle::of(&ours)
}

impl Idle {
    /// Measures processes, which takes [`WATCH`].
    pub(super) fn of(processes: &[Proc]) -> Result<Self> {
        let mut idle = Self {
            processes: processes.len(),
            resident: 0,
            share: 0,
            own: 0,
            wakeups: 0.0,
        };
        for process in processes {
            let text = fs::read_to_string(format!("/proc/{}/smaps_rollup", process.pid))?;
            idle.resident += field(&text, "Rss:")?;
            idle.share += field(&text, "Pss:")?;
            idle.own += field(&text, "Private_Clean:")? + field(&text, "Private_Dirty:")?;
        }
        let before = switches(processes)?;
        thread::sleep(WATCH);
        let count = switches(processes)? - before;
        #[expect(clippy::cast_precision_loss, reason = "a few thousand at most")]
        {
            idle.wakeups = count as f64 / WATCH.as_secs_f64();
        }
        Ok(idle)
    }
}

fn switches(processes: &[Proc]) -> Result<u64> {
    let mut sum = 0;
    for process in processes {
        for thread in fs::read_dir(format!("/proc/{}/task", process.pid))?.flatten() {
            let text = fs::read_to_string(thread.path().join("status"))?;
            sum += field(&text, "voluntary_ctxt_switches:")?
                + field(&text, "nonvoluntary_ctxt_switches:")?;
        }
    }
    Ok(sum)
}

fn field(text: &str, name: &str) -> Result<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .context("no such field")?;
    Ok(line.split_whitespace().next().unwrap_or_default().parse()?)
}
