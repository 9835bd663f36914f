//! What `rally mpir-check` prints.

use std::{ffi::OsString, io};

use debug::mpir::{
    Symbol,
    check::{Act, Check, Finding, SymbolFacts, Verdict},
};
use serde::Serialize;

use crate::args::MessageFormat;

/// Symbols whose presence is a statement of the launcher.
const PROMISES: [Symbol; 8] = [
    Symbol::IAmStarter,
    Symbol::AcquiredPreMain,
    Symbol::ForceToMain,
    Symbol::PartialAttachOk,
    Symbol::IgnoreQueues,
    Symbol::ExecutablePath,
    Symbol::ServerArguments,
    Symbol::AttachFifo,
];

/// The width of the verdicts and of the ids, in columns.
const VERDICT_WIDTH: usize = 14;
const ID_WIDTH: usize = 11;

/// The text for people appears while the check goes on, the object for programs at its end.
#[derive(Debug)]
pub(super) struct Report {
    launcher: String,
    format: MessageFormat,
    act: Option<Act>,
}

/// The whole result, as JSON.
#[derive(Debug, Serialize)]
struct Whole<'a> {
    launcher: &'a str,
    /// The file that has the symbols; `null` if there are none.
    file: Option<&'a str>,
    /// The optional symbols that are there.
    promises: Vec<&'static str>,
    findings: Vec<Row<'a>>,
    summary: Summary,
}

#[derive(Debug, Serialize)]
struct Row<'a> {
    act: Act,
    #[serde(flatten)]
    finding: &'a Finding,
    statement: &'static str,
    sections: &'static str,
}

/// The number of statements with each verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Summary {
    right: usize,
    wrong: usize,
    not_applicable: usize,
    not_checked: usize,
}

impl Summary {
    fn of<'a>(findings: impl Iterator<Item = &'a Finding>) -> Self {
        findings.fold(Self::default(), |mut sum, finding| {
            let count = match finding.verdict {
                Verdict::Right => &mut sum.right,
                Verdict::Wrong => &mut sum.wrong,
                Verdict::NotApplicable => &mut sum.not_applicable,
                Verdict::NotChecked => &mut sum.not_checked,
            };
            *count += 1;
            sum
        })
    }
}

const fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Right => "right",
        Verdict::Wrong => "WRONG",
        Verdict::NotApplicable => "not applicable",
        Verdict::NotChecked => "not checked",
    }
}

fn promises(facts: &SymbolFacts) -> Vec<&'static str> {
    let there = PROMISES.into_iter();
    there
        .filter(|symbol| facts.sizes.contains_key(symbol))
        .map(Symbol::name)
        .collect()
}

impl Report {
    pub(super) fn new(words: &[OsString], format: MessageFormat) -> Self {
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        Self {
            launcher: words.join(" "),
            format,
            act: None,
        }
    }

    /// Shows a finding.
    pub(super) fn show(
        &mut self,
        finding: &Finding,
        facts: Option<&SymbolFacts>,
    ) -> io::Result<()> {
        match self.format {
            MessageFormat::Json => Ok(()),
            MessageFormat::Text => super::print(&self.text(finding, facts), self.format),
        }
    }

    fn text(&mut self, finding: &Finding, facts: Option<&SymbolFacts>) -> String {
        let mut text = String::new();
        let act = finding.statement.act();
        if self.act.is_none() {
            text += &format!("MPIR of `{}`\n", self.launcher);
            if let Some(facts) = facts {
                let promises = promises(facts);
                text += &match &promises[..] {
                    [] => "  optional symbols: none\n".to_owned(),
                    _ => format!("  optional symbols: {}\n", promises.join(", ")),
                };
            }
        }
        if self.act != Some(act) {
            self.act = Some(act);
            text += &format!("\n{}\n", act.title());
        }
        let Finding {
            statement,
            verdict,
            seen,
        } = finding;
        let verdict = word(*verdict);
        let id = statement.id();
        text += &format!(
            "  {verdict:VERDICT_WIDTH$}  {id:ID_WIDTH$}  {statement} ({})\n",
            statement.sections()
        );
        if !seen.is_empty() {
            let indent = 2 + VERDICT_WIDTH + 2 + ID_WIDTH + 2;
            text += &format!("{:indent$}{seen}\n", "");
        }
        text
    }

    /// Prints the end of the report. Returns the number of wrong statements.
    pub(super) fn end(&self, check: &Check) -> io::Result<usize> {
        let summary = Summary::of(check.findings());
        let text = match self.format {
            MessageFormat::Text => {
                let Summary {
                    right,
                    wrong,
                    not_applicable,
                    not_checked,
                } = summary;
                format!(
                    "\n{right} right, {wrong} wrong, {not_applicable} not applicable, {not_checked} not checked\n"
                )
            }
            MessageFormat::Json => self.json(check.facts(), check.findings(), summary),
        };
        super::print(&text, self.format)?;
        Ok(summary.wrong)
    }

    fn json<'a>(
        &self,
        facts: Option<&SymbolFacts>,
        findings: impl Iterator<Item = &'a Finding>,
        summary: Summary,
    ) -> String {
        let whole = Whole {
            launcher: &self.launcher,
            file: facts.map(|facts| &*facts.file),
            promises: facts.map(promises).unwrap_or_default(),
            findings: findings
                .map(|finding| Row {
                    act: finding.statement.act(),
                    finding,
                    statement: finding.statement.text(),
                    sections: finding.statement.sections(),
                })
                .collect(),
            summary,
        };
        // All keys are strings, so that serialization cannot fail.
        serde_json::to_string(&whole).unwrap_or_default() + "\n"
    }
}

#[cfg(test)]
mod tests;
