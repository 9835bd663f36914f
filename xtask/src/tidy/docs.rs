//! Checks that the documents are correct about files and dependencies.

use std::{collections::BTreeSet, path::Path};

use serde_json::Value;

use super::{Complaints, Source, packages, text};

const DEPENDENCIES: &str = "docs/decisions/0001-dependencies.md";

/// Checks that every link to a file of the project points to an existing file and heading.
pub(super) fn links(root: &Path, files: &[Source]) -> Complaints {
    let mut complaints = Complaints::new();
    for file in files.iter().filter(|file| file.has_extension("md")) {
        let directory = root
            .join(&file.path)
            .parent()
            .map_or_else(|| root.to_path_buf(), Path::to_path_buf);
        for (number, target) in targets(&file.text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let to = if path.is_empty() {
                root.join(&file.path)
            } else {
                directory.join(path)
            };
            let broken = if to.exists() {
                let there = std::fs::read_to_string(&to).unwrap_or_default();
                !anchor.is_empty() && !there.lines().any(|line| is_heading(line, anchor))
            } else {
                true
            };
            if broken {
                complaints.push(format!(
                    "{}:{number}: the link `{target}` leads nowhere",
                    file.path.display()
                ));
            }
        }
    }
    complaints
}

/// Returns the targets of `[text](target)` outside of code, with their line numbers.
fn targets(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced || line.starts_with("    ") {
            continue;
        }
        // Every second piece between backquotes is code; skip it.
        for prose in line.split('`').step_by(2) {
            let mut rest = prose;
            while let Some((_, tail)) = rest.split_once("](") {
                let Some((target, after)) = tail.split_once(')') else {
                    break;
                };
                found.push((index + 1, target.split(' ').next().unwrap_or_default()));
                rest = after;
            }
            // If the text of a link is code, the split above has separated it from its opening bracket.
            if let Some((target, _)) = prose
                .strip_prefix("](")
                .and_then(|tail| tail.split_once(')'))
                && !found.contains(&(index + 1, target))
            {
                found.push((index + 1, target));
            }
        }
    }
    found
}

fn is_heading(line: &str, anchor: &str) -> bool {
    let Some(title) = line.strip_prefix('#') else {
        return false;
    };
    let made = title
        .trim_start_matches('#')
        .trim()
        .to_lowercase()
        .chars()
        .filter(|letter| letter.is_alphanumeric() || [' ', '-', '_'].contains(letter))
        .map(|letter| if letter == ' ' { '-' } else { letter })
        .collect::<String>();
    made == anchor
}

/// Checks that every direct dependency has a line with a reason in the decision record.
pub(super) fn dependencies(root: &Path, workspace: &Value) -> Complaints {
    let record = std::fs::read_to_string(root.join(DEPENDENCIES)).unwrap_or_default();
    let ours = packages(workspace)
        .map(|package| text(package, "name"))
        .collect::<BTreeSet<_>>();
    let direct = packages(workspace)
        .flat_map(|package| package["dependencies"].as_array().into_iter().flatten())
        .map(|dependency| text(dependency, "name"))
        .filter(|name| !ours.contains(name))
        .collect::<BTreeSet<_>>();
    direct
        .into_iter()
        .filter(|name| {
            !record
                .lines()
                .any(|line| line.starts_with(&format!("| `{name}` |")))
        })
        .map(|name| format!("{DEPENDENCIES}: no line for the dependency `{name}`"))
        .collect()
}

/// The files with the bugs planted for the simulator, and the document that lists them.
const PLANTED: ([&str; 5], &str) = (
    [
        "crates/dvm/src/planted.rs",
        "crates/dvm/src/queue/planted.rs",
        "crates/dvm/src/machine/planted.rs",
        "crates/overlay/src/planted.rs",
        "crates/debug/src/planted.rs",
    ],
    "docs/simulator.md",
);

/// Checks that the document lists exactly the bugs planted for the simulator.
pub(super) fn planted(root: &Path) -> Complaints {
    let read = |path| std::fs::read_to_string(root.join(path)).unwrap_or_default();
    let (code, document) = PLANTED;
    compare_planted(&code.map(read).concat(), &read(document))
}

fn compare_planted(code: &str, document: &str) -> Complaints {
    let listed = |text: &str, before: &str, after: &str| {
        text.lines()
            .filter_map(|line| line.trim().strip_prefix(before)?.split_once(after))
            .map(|(name, _)| name.to_owned())
            .filter(|name| name.starts_with(char::is_uppercase))
            .collect::<BTreeSet<_>>()
    };
    let (code, document) = (listed(code, "Self::", ","), listed(document, "| `", "` |"));
    let (paths, place) = PLANTED;
    let paths = paths.join(", ");
    let missing = code
        .difference(&document)
        .map(|name| format!("{place}: no line for the planted bug `{name}`"));
    let unknown = document
        .difference(&code)
        .map(|name| format!("{place}: no bug `{name}` in {paths}"));
    missing.chain(unknown).collect()
}

const MINUTES: &str = "CONTRIBUTING.md";

/// Checks that the minutes of CI's steps add up to the sum in the table.
pub(super) fn minutes(root: &Path) -> Complaints {
    let text = std::fs::read_to_string(root.join(MINUTES)).unwrap_or_default();
    add_up(&text)
}

fn add_up(text: &str) -> Complaints {
    let table = text
        .lines()
        .skip_while(|line| !line.starts_with("| step | minutes |"))
        .take_while(|line| line.starts_with('|'));
    let mut sum = 0.0;
    for row in table.skip(2) {
        let mut cells = row.trim_matches('|').split('|').map(str::trim);
        let (step, minutes) = (cells.next(), cells.next());
        let Some(minutes) = minutes.and_then(|minutes| minutes.parse::<f64>().ok()) else {
            return vec![format!("{MINUTES}: no minutes in `{row}`")];
        };
        if step == Some("in all") {
            // The minutes are multiples of one half, so floating-point sums are exact.
            return if minutes == sum {
                Complaints::new()
            } else {
                vec![format!(
                    "{MINUTES}: CI's steps take {sum} minutes, and not {minutes}"
                )]
            };
        }
        sum += minutes;
    }
    vec![format!(
        "{MINUTES}: no table of CI's minutes with their sum"
    )]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_are_added() {
        let table = |all: &str| {
            format!(
                "x\n\n| step | minutes | why |\n|---|---|---|\n| `a` | 1.5 | b |\n| `c` | 2 | d |\n{all}\n"
            )
        };
        assert_eq!(add_up(&table("| in all | 3.5 | |")), [""; 0]);
        assert_eq!(
            add_up(&table("| in all | 4 | |")),
            ["CONTRIBUTING.md: CI's steps take 3.5 minutes, and not 4"]
        );
        assert_eq!(
            add_up(&table("")),
            ["CONTRIBUTING.md: no table of CI's minutes with their sum"]
        );
    }

    #[test]
    fn links_are_found() {
        let text = "a [b](c.md) and [d](e.md#f \"title\")\n```\n[no](code)\n```\n`[no](code)` [`yes`](g.md)\n";
        assert_eq!(targets(text), [(1, "c.md"), (1, "e.md#f"), (5, "g.md")]);
    }

    #[test]
    fn planted_bugs_are_compared() {
        let code =
            "    pub const ALL: [Self; 2] = [\n        Self::One,\n        Self::Two,\n    ];";
        assert!(compare_planted(code, "| `One` | a |\n| `Two` | b |\n| `dvm` | c |").is_empty());
        assert_eq!(
            compare_planted(code, "| `One` | a |\n| `Three` | b |"),
            [
                "docs/simulator.md: no line for the planted bug `Two`",
                "docs/simulator.md: no bug `Three` in crates/dvm/src/planted.rs, crates/dvm/src/queue/planted.rs, crates/dvm/src/machine/planted.rs, crates/overlay/src/planted.rs, crates/debug/src/planted.rs",
            ]
        );
    }

    #[test]
    fn headings_are_found() {
        assert!(is_heading("## Life of a rank", "life-of-a-rank"));
        assert!(is_heading(
            "# `rally run`: what it does",
            "rally-run-what-it-does"
        ));
        assert!(!is_heading("Life of a rank", "life-of-a-rank"));
        assert!(!is_heading("## Life", "life-of-a-rank"));
    }
}
