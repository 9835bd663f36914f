//! Fences with data over all nodes, compared with prterun.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result};

use super::{NODES, Run, Trial, hosts, row};
use crate::bench::{pmix, sample::timed};

/// Number of ranks on each node.
const EACH: u32 = 16;
/// Number of fences of a run.
const FENCES: u32 = 20;

impl Trial<'_> {
    pub(super) fn fences(&self, text: &mut String) -> Result<()> {
        let program = self.files.path("pmix-client");
        pmix::compile(program.as_ref())?;
        let Self {
            rally,
            prterun,
            prefix,
            ..
        } = self;
        let library = pmix::library().display().to_string();
        let ranks = NODES * EACH;
        let (all, slots) = (hosts(NODES, ""), hosts(NODES, &format!(":{EACH}")));
        let measured = self.rounds(vec![
            ("rally", self.mean(format!("LD_LIBRARY_PATH={library} {rally} run -q --host {all} --wdir / -n {ranks} --map-by ppr:{EACH}:node {program} collect {FENCES}"))),
            ("prterun", self.mean(format!("{prterun} --prefix {prefix} --allow-run-as-root -x LD_LIBRARY_PATH={library} --host {slots} --wdir / -n {ranks} --map-by ppr:{EACH}:node --bind-to none {program} collect {FENCES}"))),
        ]);
        let work = format!(
            "put of 1 KiB and fence with data, {NODES} × {EACH} ranks, mean of {FENCES}; peer: prterun"
        );
        row(text, &work, &measured, "prterun", "≤ 0.5")
    }

    /// Runs a shell line that prints microseconds. These are the sample.
    fn mean(&self, line: String) -> Run<'_> {
        Box::new(move || {
            self.clear()?;
            let printed = self.files.path("mean");
            timed(&mut self.on_head(&format!("{line} >{printed}"))?)?;
            let said = fs::read_to_string(&printed)?;
            let mean: f64 = said.trim().parse().with_context(|| said.clone())?;
            Ok(Duration::from_secs_f64(mean / 1e6))
        })
    }
}
