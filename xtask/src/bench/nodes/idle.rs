//! Memory and wake-ups of daemons whose ranks sleep.

use std::{fmt::Write as _, fs, thread, time::Instant};

use anyhow::{Result, bail};
use mischief::{Proc, all_procs};

use super::{FEW, Trial, hosts};
use crate::bench::{
    memory::{Idle, SETTLE, WATCH, mib},
    sample::{HANG, finish, timed},
};

/// Number of ranks on each node in the larger job; in the other one it is 1.
const MANY: u32 = 65;
/// What the ranks run. Nothing else on this machine has this argument.
const RANK: &str = "sleep 99991";

impl Trial<'_> {
    pub(super) fn idle(&self, text: &mut String) -> Result<()> {
        let (one, many) = (self.idle_daemons(1)?, self.idle_daemons(MANY)?);
        let nodes = u64::from(FEW);
        let each = many.own.saturating_sub(one.own) as f64 / f64::from(FEW * (MANY - 1));
        writeln!(
            text,
            "\n| a daemon with its guardian, whose ranks sleep, over ssh | | target |\n\
             |---|---|---|\n\
             | with 1 rank: resident; share (PSS); own memory | {:.1} MiB; {:.1} MiB; {:.1} MiB | ≤ 6 MiB |\n\
             | own memory for each further rank | {each:.1} KiB | ≤ 16 KiB |\n\
             | wake-ups per second, with 1 rank and with {MANY} | {:.2} and {:.2} | those of the lease |\n\n\
             Means of {FEW} nodes, from /proc/PID/smaps_rollup, and the context switches over {} s. Resident memory counts pages twice that \
             daemon and guardian share, and pages of the program that all nodes of this machine share. The lease is 10 s; each \
             end of a link sends a sign of life every third of it.",
            mib(one.resident / nodes),
            mib(one.share / nodes),
            mib(one.own / nodes),
            one.wakeups / f64::from(FEW),
            many.wakeups / f64::from(FEW),
            WATCH.as_secs(),
        )?;
        Ok(())
    }

    fn idle_daemons(&self, each: u32) -> Result<Idle> {
        let (rally, pid) = (&self.rally, self.files.path("pid"));
        let (few, ranks) = (hosts(FEW, ""), FEW * each);
        let mut command = self.on_head(&format!(
            "echo $$ >{pid}; exec {rally} run -q --host {few} --wdir / -n {ranks} --map-by ppr:{each}:node {RANK}"
        ))?;
        let job = command.spawn()?;
        let measured = self.look(usize::try_from(ranks)?);
        timed(&mut self.on_head(&format!("kill $(cat {pid})"))?)?;
        // The job ends with the code of a signal.
        let _ = finish(job, &command);
        let _ = fs::remove_file(pid);
        measured
    }

    fn look(&self, ranks: usize) -> Result<Idle> {
        let end = Instant::now() + HANG;
        let asleep = |all: &[Proc]| all.iter().filter(|it| it.args.trim() == RANK).count();
        while asleep(&all_procs()) < ranks {
            if Instant::now() > end {
                bail!("the ranks never ran");
            }
            thread::sleep(SETTLE / 20);
        }
        thread::sleep(SETTLE);
        let argument = format!("{} __daemon", self.rally);
        let mut daemons = all_procs();
        daemons.retain(|process| process.args.trim() == argument);
        Idle::of(&daemons)
    }
}
