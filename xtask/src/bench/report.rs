//! Updates docs/benchmarks.md: handwritten text with measured sections between markers.

use std::{fmt::Write as _, fs, path::PathBuf, process::Command};

use anyhow::{Context as _, Result, bail};

use super::{
    Bench,
    sample::{Ratio, Samples},
};
use crate::env::{root, text_of};

/// Formats the median in milliseconds, and the number of failures.
pub(super) fn contestant_cell(samples: Option<&Samples>) -> String {
    let Some(samples) = samples else {
        return "-".to_owned();
    };
    let failed = failures(samples);
    samples.median().map_or_else(
        || format!("none good{failed}"),
        |median| format!("{:.1}{failed}", median * 1e3),
    )
}

/// Formats the median rate in GiB/s, and the number of failures.
#[expect(
    clippy::cast_precision_loss,
    reason = "bytes as a rate, shown with two decimals"
)]
pub(super) fn rate_cell(samples: Option<&Samples>, bytes: u64) -> String {
    let Some(samples) = samples else {
        return "-".to_owned();
    };
    let failed = failures(samples);
    let gib = bytes as f64 / f64::from(1 << 30);
    samples.median().map_or_else(
        || format!("none good{failed}"),
        |median| format!("{:.2}{failed}", gib / median),
    )
}

fn failures(samples: &Samples) -> String {
    match samples.failed() {
        0 => String::new(),
        failed => format!(" ({failed} of {} failed)", samples.seconds.len()),
    }
}

pub(super) fn ratio_cell(ratio: Option<Ratio>) -> String {
    ratio.map_or_else(|| "-".to_owned(), |ratio| ratio.to_string())
}

#[derive(Debug)]
pub(super) struct Report {
    sections: Vec<(&'static str, String)>,
    facts: String,
}

impl Report {
    pub(super) fn new(bench: &Bench) -> Result<Self> {
        Ok(Self {
            sections: Vec::new(),
            facts: facts(bench)?,
        })
    }

    pub(super) fn section(&mut self, name: &'static str, text: String) {
        println!("\n## {name}\n\n{text}");
        self.sections
            .push((name, format!("{text}\n{}", self.facts)));
    }

    /// Replaces the newly measured sections of the document and keeps everything else.
    pub(super) fn write(&self) -> Result<()> {
        let path = document();
        let mut text = fs::read_to_string(&path)?;
        for (name, section) in &self.sections {
            text = replace(&text, name, section)?;
        }
        fs::write(&path, text)?;
        println!("written: {}", path.display());
        Ok(())
    }
}

fn document() -> PathBuf {
    root().join("docs/benchmarks.md")
}

fn replace(text: &str, name: &str, section: &str) -> Result<String> {
    let (begin, end) = (
        format!("<!-- {name}: begin -->\n"),
        format!("<!-- {name}: end -->"),
    );
    let Some((head, rest)) = text.split_once(&begin) else {
        bail!("no marker {begin:?}");
    };
    let (_, tail) = rest
        .split_once(&end)
        .with_context(|| format!("no marker {end:?}"))?;
    Ok(format!("{head}{begin}{}\n{end}{tail}", section.trim_end()))
}

/// Returns the line with computer, date and versions that each table has, because tables may be measured on different days.
fn facts(bench: &Bench) -> Result<String> {
    let first = |command: &mut Command| {
        text_of(command)
            .ok()
            .and_then(|text| text.lines().next().map(str::to_owned))
            .unwrap_or_else(|| "?".to_owned())
    };
    let model = fs::read_to_string("/proc/cpuinfo")?
        .lines()
        .find_map(|line| {
            line.strip_prefix("model name")?
                .split_once(": ")
                .map(|(_, model)| model.to_owned())
        })
        .unwrap_or_else(|| "unknown processor".to_owned());
    let mut facts = String::new();
    write!(
        facts,
        "*{}; {} × {model}, {}; load {} at the start; {}, {}; MPICH {}, Open MPI {}; commit {}.*",
        first(Command::new("date").args(["-u", "+%F"])),
        std::thread::available_parallelism()?,
        first(Command::new("uname").args(["-sr"])),
        fs::read_to_string("/proc/loadavg")?
            .split(' ')
            .next()
            .unwrap_or("?"),
        first(Command::new(&bench.rally).arg("--version")),
        first(Command::new("rustc").arg("--version")),
        version(bench.hydra.with_file_name("mpichversion"), "Version:"),
        version(bench.openmpi.clone(), "(Open MPI)"),
        first(
            Command::new("git")
                .args(["rev-parse", "--short", "HEAD"])
                .current_dir(root())
        ),
    )?;
    Ok(facts)
}

/// Returns the word after `label` in the output of `program --version`.
fn version(program: PathBuf, label: &str) -> String {
    let said = text_of(Command::new(program).arg("--version")).unwrap_or_default();
    said.split_once(label)
        .and_then(|(_, rest)| rest.split_whitespace().next())
        .unwrap_or("?")
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_section_is_replaced() {
        let text = "a\n<!-- x: begin -->\nold\n<!-- x: end -->\nb\n";
        assert_eq!(
            replace(text, "x", "new\n").unwrap(),
            "a\n<!-- x: begin -->\nnew\n<!-- x: end -->\nb\n"
        );
        assert!(replace(text, "y", "new").is_err());
    }

    #[test]
    fn the_document_has_every_marker() {
        let text = fs::read_to_string(document()).unwrap();
        for name in [
            "launch", "stdout", "stdin", "memory", "pmix", "mpi", "place", "hold", "stacks",
        ] {
            replace(&text, name, "new").unwrap();
        }
    }
}
