//! `cargo xtask sim`: runs the simulator with many seeds, or with one seed and its full record.
//!
//! The simulator's own program does the work; this task builds it and forwards the arguments. A failure prints the command
//! that reproduces it, which uses this task.

use std::{
    fs::File,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};

use crate::{env::cargo, steps};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Scenario family from docs/simulator.md [default: all families].
    #[arg(long)]
    family: Option<String>,
    /// A single seed; its record is printed if it fails.
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Seeds A to B-1 as `A..B`, or seeds 0 to N-1 as `N` [default: 1000, and 10 of `crowd`].
    #[arg(long, value_parser = parse_range)]
    seeds: Option<Seeds>,
    /// Replays a recording of `rally run --record FILE`, and those of other nodes beside it (FILE.N).
    #[arg(long, value_name = "FILE", conflicts_with_all = ["family", "seed", "seeds"])]
    replay: Option<PathBuf>,
    /// Uses an optimized build: slower to build, faster to run.
    #[arg(long)]
    release: bool,
}

/// A range of seeds, run one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seeds {
    from: u64,
    count: u64,
}

/// Time limit of the whole command, long enough to run overnight. A simulated run that makes no progress ends by itself.
const LIMIT: Duration = Duration::from_secs(12 * 60 * 60);

pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(file) = &args.replay {
        return replay(args, file);
    }
    let words = words(args);
    let words = words.iter().map(String::as_str).collect::<Vec<_>>();
    steps::execute(&mut cargo(&words), LIMIT)
}

/// Replays each file of a recording. All are replayed, even if one fails.
fn replay(args: &Args, file: &Path) -> Result<()> {
    let mut failed = Vec::new();
    for file in files_of(file)? {
        let opened =
            File::open(&file).with_context(|| format!("cannot open {}", file.display()))?;
        println!("{}:", file.display());
        let mut words = cargo_words(args);
        words.push("--replay".to_owned());
        let words = words.iter().map(String::as_str).collect::<Vec<_>>();
        if let Err(error) = steps::execute_with(opened, &mut cargo(&words), LIMIT) {
            failed.push(format!("{}: {error}", file.display()));
        }
    }
    match failed.is_empty() {
        true => Ok(()),
        false => bail!("{}", failed.join("\n")),
    }
}

/// Returns the files of a recording: that of the controller, and `FILE.N` for each other node.
fn files_of(file: &Path) -> Result<Vec<PathBuf>> {
    let name = file.file_name().and_then(|name| name.to_str());
    let name = name.with_context(|| format!("{} is no name of a file", file.display()))?;
    let directory = match file.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    };
    let mut others = Vec::new();
    for entry in directory.read_dir().context("cannot list the directory")? {
        let entry = entry?.file_name();
        let number = entry
            .to_str()
            .and_then(|entry| entry.strip_prefix(name)?.strip_prefix('.'));
        if let Some(number) = number.and_then(|number| number.parse::<u32>().ok()) {
            others.push(number);
        }
    }
    others.sort_unstable();
    let others = others
        .iter()
        .map(|number| directory.join(format!("{name}.{number}")));
    Ok(std::iter::once(file.to_owned()).chain(others).collect())
}

/// Returns cargo's arguments.
fn words(args: &Args) -> Vec<String> {
    let mut words = cargo_words(args);
    if let Some(family) = &args.family {
        words.extend(["--family".to_owned(), family.clone()]);
    }
    let pairs = match (args.seed, args.seeds) {
        (Some(seed), _) => vec![("--seed", seed)],
        (None, Some(Seeds { from, count })) => vec![("--from", from), ("--seeds", count)],
        // The simulator knows how many seeds a family gets.
        (None, None) => Vec::new(),
    };
    for (name, number) in pairs {
        words.extend([name.to_owned(), number.to_string()]);
    }
    words
}

/// Returns cargo's arguments up to those of the simulator.
fn cargo_words(args: &Args) -> Vec<String> {
    let mut words = ["run", "--locked", "--quiet", "-p", "sim", "--bin", "sim"]
        .map(str::to_owned)
        .to_vec();
    if args.release {
        words.push("--release".to_owned());
    }
    words.push("--".to_owned());
    words
}

fn parse_range(text: &str) -> Result<Seeds> {
    let number = |text: &str| {
        text.parse::<u64>()
            .with_context(|| format!("`{text}` is no number"))
    };
    let (from, end) = match text.split_once("..") {
        Some((from, end)) => (number(from)?, number(end)?),
        None => (0, number(text)?),
    };
    match end.checked_sub(from) {
        Some(count) if count > 0 => Ok(Seeds { from, count }),
        _ => bail!("there is no seed in `{text}`"),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    /// Returns the arguments for the simulator, or `None` if the command line is invalid.
    fn told(line: &[&str]) -> Option<String> {
        let line = Line::try_parse_from([&["sim"], line].concat()).ok()?;
        let words = words(&line.args);
        let own = words.iter().position(|word| word == "--")?;
        Some(words[own + 1..].join(" "))
    }

    #[test]
    fn a_recording_has_a_file_for_each_node() {
        let root = tempfile::tempdir().unwrap();
        let names = ["run", "run.10", "run.2", "run.txt", "run.2.old", "other.1"];
        for name in names {
            std::fs::write(root.path().join(name), "").unwrap();
        }
        let files = files_of(&root.path().join("run")).unwrap();
        let names = files.iter().map(|file| file.file_name().unwrap().to_str());
        let names = names.map(Option::unwrap).collect::<Vec<_>>();
        assert_eq!(names, ["run", "run.2", "run.10"]);
    }

    #[test]
    fn requests_are_passed_on() {
        let cases: [(&[&str], Option<&str>); 8] = [
            (&[], Some("")),
            (
                &["--family", "start", "--seed", "0"],
                Some("--family start --seed 0"),
            ),
            (&["--seeds", "20"], Some("--from 0 --seeds 20")),
            (&["--seeds", "20..50"], Some("--from 20 --seeds 30")),
            (&["--seeds", "0"], None),
            (&["--seeds", "50..20"], None),
            (&["--seeds", "x"], None),
            (&["--seed", "1", "--seeds", "2"], None),
        ];
        for (line, expected) in cases {
            assert_eq!(told(line).as_deref(), expected, "{line:?}");
        }
    }
}
