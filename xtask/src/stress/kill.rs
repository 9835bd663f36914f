//! SIGKILL of a part of a job at a random moment. Afterwards no process or file of the job may remain.

use std::time::Duration;

use anyhow::{Result, bail};
use mischief::{Proc, marked_procs};
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

use super::{
    CLEAN_WITHIN, Place,
    job::{Job, code},
    random::Random,
};

/// Latest moment of the kill, in microseconds after the start. By then all ranks have been running for a while.
const MOMENT_MAX: u32 = 60_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Front,
    Controller,
    FrontAndController,
    Rank,
    Guardian,
    Everybody,
}

const VICTIMS: [Victim; 6] = [
    Victim::Front,
    Victim::Controller,
    Victim::FrontAndController,
    Victim::Rank,
    Victim::Guardian,
    Victim::Everybody,
];

pub(super) fn once(place: &Place, number: u32, random: &mut Random) -> Result<()> {
    let victim = VICTIMS[number as usize % VICTIMS.len()];
    let moment = Duration::from_micros(u64::from(random.below(MOMENT_MAX)));
    // The ranks also start descendants in separate sessions. Not if all processes are killed together: then no process could
    // kill those descendants.
    let args: &[&str] = if victim == Victim::Everybody {
        &["-n", "8", "sleep", "1000"]
    } else {
        &[
            "-n",
            "6",
            "sleep",
            "1000",
            ":",
            "-n",
            "2",
            "mischief",
            "leave-and-live",
        ]
    };
    let job = Job::start(
        place,
        &format!("{}-kill-{number}", std::process::id()),
        args,
    )?;
    if let Some(output) = job.has_ended(moment) {
        return Err(job.wrong("it ended by itself", &output));
    }
    let killed = kill(place, &job, victim, random);
    if victim == Victim::Guardian && !killed.contains(&job.pid) {
        // The job continues without its victim, and must end when it gets SIGTERM.
        signal::kill(Pid::from_raw(job.pid), Signal::SIGTERM)?;
    }
    let Some(output) = job.has_ended(CLEAN_WITHIN) else {
        let picture = marked_procs(&job.marker)
            .iter()
            .map(|process| format!("\n  {process}"))
            .collect::<String>();
        job.kill_all();
        bail!(
            "{victim:?} killed after {moment:?} ({killed:?}): not over within {CLEAN_WITHIN:?}:{picture}"
        );
    };
    if output.status.success() {
        return Err(job.wrong(
            &format!("{victim:?} killed after {moment:?}, and it claims success"),
            &output,
        ));
    }
    if victim == Victim::Rank
        && killed.len() == 1
        && killed[0] != job.pid
        && code(output.status) != 137
    {
        return Err(job.wrong(&format!("a rank was killed after {moment:?}"), &output));
    }
    if victim == Victim::Everybody {
        let end = std::time::Instant::now() + CLEAN_WITHIN;
        while !marked_procs(&job.marker).is_empty() && std::time::Instant::now() < end {
            std::thread::sleep(Duration::from_millis(2));
        }
        let left = marked_procs(&job.marker);
        if !left.is_empty() {
            job.kill_all();
            bail!("everybody killed after {moment:?}: left behind {left:?}");
        }
        // Files may remain; the next `rally run` removes them.
        let next = Job::start(place, "next", &["-n", "1", "/bin/true"])?;
        let output = next.end()?;
        if !output.status.success() {
            return Err(next.wrong("the next start failed", &output));
        }
    }
    if let Some(left) = place.leftovers(&job.marker) {
        job.kill_all();
        bail!("{victim:?} killed after {moment:?} ({killed:?}): {left}");
    }
    Ok(())
}

/// Kills the victim and returns the pids. Shortly after the start the front is the only process.
fn kill(place: &Place, job: &Job, victim: Victim, random: &mut Random) -> Vec<i32> {
    let (ours, others): (Vec<_>, Vec<_>) = marked_procs(&job.marker)
        .into_iter()
        .partition(|process| process.runs(&place.rally));
    // An orphan of a rank is no rank; killing it would have no effect on the job.
    let ranks: Vec<_> = others
        .into_iter()
        .filter(|process| process.args == "sleep 1000")
        .collect();
    let child = |parent: Option<i32>| {
        ours.iter()
            .find(|process: &&Proc| Some(process.ppid) == parent)
            .map(|process| process.pid)
    };
    let guardian = child(Some(job.pid));
    let controller = child(guardian);
    let mut pids = match victim {
        Victim::Front => vec![job.pid],
        Victim::Controller => controller.into_iter().collect(),
        Victim::FrontAndController => controller.into_iter().chain([job.pid]).collect(),
        Victim::Guardian => guardian.into_iter().collect(),
        Victim::Everybody => ours.iter().map(|process| process.pid).collect(),
        Victim::Rank => {
            let chosen = random.below(u32::try_from(ranks.len()).unwrap_or(u32::MAX));
            ranks
                .get(chosen as usize)
                .map(|process| process.pid)
                .into_iter()
                .collect()
        }
    };
    if pids.is_empty() {
        pids.push(job.pid);
    }
    // Several victims are stopped first, so that none of them reacts to the death of another.
    for signal in [Signal::SIGSTOP, Signal::SIGKILL] {
        if signal == Signal::SIGKILL || pids.len() > 1 {
            for pid in &pids {
                // An error means that the process has exited meanwhile.
                let _ = signal::kill(Pid::from_raw(*pid), signal);
            }
        }
    }
    pids
}
