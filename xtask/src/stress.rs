//! `cargo xtask stress`: finds failures that happen once in a thousand runs before users do.

mod job;
mod kill;
mod launch;
pub(crate) mod random;

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Result, bail};
use mischief::marked_procs;
use nix::sys::resource::{Resource, setrlimit};

use crate::release::{release, released};
use random::Random;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of jobs with short programs to launch.
    #[arg(long, default_value_t = 10_000)]
    launches: u32,
    /// Number of jobs of which a random part is killed.
    #[arg(long, default_value_t = 300)]
    kills: u32,
    /// Seed that repeats an earlier run; every run prints its seed at the start.
    #[arg(long)]
    seed: Option<u64>,
    /// Path of `rally`, instead of the release build.
    #[arg(long)]
    binary: Option<PathBuf>,
}

/// Time after which a launch counts as hanging.
const HANG: Duration = Duration::from_secs(30);

/// Promised time after the end of a job within which all its processes and files are gone.
const CLEAN_WITHIN: Duration = Duration::from_secs(2);

/// Numbers of launches and kills in CI. The seed comes from the clock, because a fixed one would never find new failures.
const SMOKE: (u32, u32) = (500, 40);

pub(crate) fn smoke() -> Result<()> {
    let (launches, kills) = SMOKE;
    stress(&released("rally")?, launches, kills, None)
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let binary = match &args.binary {
        Some(binary) => fs::canonicalize(binary)?,
        None => {
            release()?;
            released("rally")?
        }
    };
    stress(&binary, args.launches, args.kills, args.seed)
}

fn stress(rally: &Path, launches: u32, kills: u32, seed: Option<u64>) -> Result<()> {
    let seed = match seed {
        Some(seed) => seed,
        None => u64::try_from(
            SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)?
                .as_nanos()
                & 0xffff_ffff,
        )?,
    };
    println!("stress: {launches} launches, {kills} kills, --seed {seed}");
    // Core files of thousands of crashes must not fill the disk.
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    let place = Place::new(rally)?;
    let mut random = Random::new(seed);
    let mut report = Report::default();
    report.phase("launches", launches, |number| {
        launch::once(&place, number, &mut random)
    });
    report.phase("kills", kills, |number| {
        kill::once(&place, number, &mut random)
    });
    if report.failures > 0 {
        bail!(
            "{} of {} runs went wrong (--seed {seed})",
            report.failures,
            launches + kills
        );
    }
    Ok(())
}

#[derive(Debug, Default)]
struct Report {
    failures: u32,
}

impl Report {
    /// Maximum number of failures before a phase ends.
    const FAILURES_MAX: u32 = 20;

    fn phase(&mut self, name: &str, count: u32, mut once: impl FnMut(u32) -> Result<()>) {
        let started = Instant::now();
        let mut slowest = Duration::ZERO;
        let mut done = 0;
        for number in 0..count {
            let began = Instant::now();
            if let Err(error) = once(number) {
                println!("{name} {number}: {error:#}");
                self.failures += 1;
                if self.failures >= Self::FAILURES_MAX {
                    println!("{name}: stopped after {} failures", self.failures);
                    return;
                }
            }
            slowest = slowest.max(began.elapsed());
            done += 1;
        }
        let all = started.elapsed();
        println!(
            "{name}: {done} in {:.1} s, {:.1} ms each, the slowest {:.0} ms",
            all.as_secs_f64(),
            all.as_secs_f64() * 1e3 / f64::from(done.max(1)),
            slowest.as_secs_f64() * 1e3
        );
    }
}

/// Temporary directories of all runs, and the paths of the binaries.
#[derive(Debug)]
struct Place {
    directory: tempfile::TempDir,
    rally: PathBuf,
    mischief: PathBuf,
}

impl Place {
    const MARKER: &str = "RALLY_STRESS";

    fn new(rally: &Path) -> Result<Self> {
        let mischief = rally.with_file_name("mischief");
        if !mischief.exists() {
            bail!("{} is missing", mischief.display());
        }
        let directory = tempfile::Builder::new().prefix("rally-stress-").tempdir()?;
        for private in ["tmp", "run", "work"] {
            fs::create_dir(directory.path().join(private))?;
        }
        Ok(Self {
            directory,
            rally: rally.to_owned(),
            mischief,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Describes the leftover processes and files of a run; `None` if all are gone within [`CLEAN_WITHIN`].
    fn leftovers(&self, marker: &str) -> Option<String> {
        let end = Instant::now() + CLEAN_WITHIN;
        loop {
            let processes = marked_procs(marker);
            let files = self.files();
            if processes.is_empty() && files.is_empty() {
                return None;
            }
            if Instant::now() > end {
                let list = processes
                    .iter()
                    .map(|process| format!("\n  {process}"))
                    .collect::<String>();
                return Some(format!("left behind: files {files:?}, processes:{list}"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn files(&self) -> Vec<PathBuf> {
        ["tmp", "run"]
            .iter()
            .filter_map(|name| fs::read_dir(self.path(name)).ok())
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect()
    }
}
