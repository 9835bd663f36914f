//! `dbgr stacks` of ranks that sleep on all nodes.

use std::{
    fs,
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};

use super::{NODES, Run, Trial, hosts, row};
use crate::bench::{
    sample::{finish, rounds, timed},
    stacks::{compile, ready},
};

const ROUNDS: usize = 7;

impl Trial<'_> {
    pub(super) fn stacks(&self, text: &mut String) -> Result<()> {
        let small = self.files.path("small");
        compile(small.as_ref(), Path::new("cc"), &[])?;
        self.stacks_of(text, "small ranks", 64, &small)?;
        let openmpi = self.files.path("openmpi");
        let compiler = self.bench.openmpi.with_file_name("mpicc");
        compile(openmpi.as_ref(), &compiler, &["-DMPI"])?;
        self.stacks_of(text, "ranks of Open MPI 5", 8, &openmpi)
    }

    fn stacks_of(&self, text: &mut String, what: &str, each: u32, program: &str) -> Result<()> {
        let (rally, pid) = (&self.rally, self.files.path("pid"));
        let (all, ranks) = (hosts(NODES, ""), NODES * each);
        // The time limit ends the measurement if a rank never sleeps.
        let mut command = self.on_head(&format!(
            "echo $$ >{pid}; exec env OMPI_MCA_btl=^ofi {rally} run -q --host {all} --wdir / -n {ranks} --map-by ppr:{each}:node --timeout 10m {program}"
        ))?;
        let mut job = command.stdout(Stdio::piped()).spawn()?;
        let measured = ready(&mut job, usize::try_from(ranks)?).map(|()| {
            let run = self.looked(&fs::read_to_string(&pid)?, ranks)?;
            anyhow::Ok(rounds(self.bench.rounds(ROUNDS), vec![("dbgr", run)]))
        });
        timed(&mut self.on_head(&format!("kill $(cat {pid})"))?)?;
        // The job ends with the code of a signal.
        let _ = finish(job, &command);
        let work = format!("`dbgr stacks`, {ranks} {what} on {NODES} nodes");
        row(text, &work, &measured??, "-", "≤ 2 s")
    }

    /// Samples a job once. The result must have all ranks.
    fn looked(&self, pid: &str, ranks: u32) -> Result<Run<'_>> {
        let dbgr = Path::new(&self.rally).with_file_name("dbgr");
        let printed = self.files.path("stacks");
        let line = format!("{} stacks {} >{printed}", dbgr.display(), pid.trim());
        Ok(Box::new(move || -> Result<Duration> {
            let started = Instant::now();
            timed(&mut self.on_head(&line)?)?;
            let took = started.elapsed();
            let said = fs::read_to_string(&printed)?;
            let found = said
                .lines()
                .any(|line| line.starts_with(&format!("{ranks} [0-{}] ", ranks - 1)));
            ensure!(found, "not all ranks have one stack: {said}");
            Ok(took)
        }))
    }
}
