//! Options of `sbatch` as users give them: those that contradict ours are refused.

use super::{refusal::WhyNot, refuse};
use crate::args::Error;

/// Options of `sbatch` that we give ourselves, and the options of ours that they come from.
const OURS: [(&str, &str); 24] = [
    ("ntasks", "-n"),
    ("nodes", "--nodes"),
    ("ntasks-per-node", "--per-node"),
    ("cpus-per-task", "--map-by slot:PE=N"),
    ("time", "--time"),
    ("job-name", "--job-name"),
    ("array", "--array"),
    ("dependency", "--after"),
    ("kill-on-invalid-dep", "--after"),
    ("hold", "--hold"),
    ("requeue", "--requeue"),
    ("no-requeue", "--requeue"),
    ("exclusive", "--exclusive"),
    ("nice", "--priority"),
    ("priority", "--priority"),
    ("gpus", "--gpus"),
    ("gpus-per-task", "--gpus-per-proc"),
    ("output", "--output-to"),
    ("error", "--errors-to"),
    ("open-mode", "--output-to"),
    ("chdir", "--wdir"),
    ("export", "--set-env"),
    ("exclude", "--exclude"),
    ("nodelist", "--host"),
];

/// One letter for some of them.
const LETTERS: [(char, &str); 14] = [
    ('n', "ntasks"),
    ('N', "nodes"),
    ('c', "cpus-per-task"),
    ('t', "time"),
    ('J', "job-name"),
    ('a', "array"),
    ('d', "dependency"),
    ('H', "hold"),
    ('G', "gpus"),
    ('o', "output"),
    ('e', "error"),
    ('D', "chdir"),
    ('x', "exclude"),
    ('w', "nodelist"),
];

/// Options of `sbatch` that change what `rally` sends or what it gets for an answer.
const DISTURBING: [&str; 13] = [
    "wrap",
    "parsable",
    "wait",
    "test-only",
    "quiet",
    "verbose",
    "help",
    "usage",
    "version",
    "comment",
    "clusters",
    "input",
    "export-file",
];

/// Letters of some of them.
const DISTURBING_LETTERS: &str = "WQvhVMi";

/// Refuses options of `sbatch` that contradict ours.
pub(super) fn check(option: &str) -> Result<(), Error> {
    let typed = || format!("--slurm-option={option}");
    // `sbatch` understands the start of a name too.
    let ours = |name: &str| OURS.iter().find(|(theirs, _)| theirs.starts_with(name));
    if let Some(long) = option.strip_prefix("--") {
        let name = long.split('=').next().unwrap_or_default();
        if let Some((_, ours)) = ours(name) {
            return Err(refuse(typed(), WhyNot::Ours(ours)));
        }
        if DISTURBING.iter().any(|theirs| theirs.starts_with(name)) {
            return Err(refuse(typed(), WhyNot::Disturbing));
        }
        return Ok(());
    }
    let letter = option.chars().nth(1).unwrap_or_default();
    let long = LETTERS.iter().find(|(theirs, _)| *theirs == letter);
    if let Some((_, ours)) = long.and_then(|(_, name)| ours(name)) {
        return Err(refuse(typed(), WhyNot::Ours(ours)));
    }
    if DISTURBING_LETTERS.contains(letter) {
        return Err(refuse(typed(), WhyNot::Disturbing));
    }
    Ok(())
}
