//! Options of `sbatch` as users give them: those that contradict ours are refused.

use super::{refusal::WhyNot, refuse};
use crate::args::Error;

/// Options of `sbatch` that we give ourselves, and the options of ours that they come from.
const OURS: [(&str, &str); 27] = [
    ("ntasks", "-n"),
    ("nodes", "--nodes"),
    ("ntasks-per-node", "--per-node"),
    ("cpus-per-task", "--map-by slot:PE=N"),
    ("time", "--time"),
    ("mem", "--memory-limit"),
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
    ("gpus-per-node", "--gpus"),
    ("gpus-per-task", "--gpus-per-proc"),
    ("licenses", "--resource"),
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

/// Options of `sbatch` that have no value, or need none. Any other option would take the next word for its value.
const FLAGS: [&str; 15] = [
    "consolidate-segments",
    "contiguous",
    "get-user-env",
    "ignore-pbs",
    "no-kill",
    "overcommit",
    "oversubscribe",
    "propagate",
    "reboot",
    "resv-ports",
    "share",
    "spread-job",
    "spread-segments",
    "stepmgr",
    "use-min-nodes",
];

/// Letters of some of them.
const FLAG_LETTERS: &str = "Oks";

/// Refuses options of `sbatch` that contradict ours.
pub(super) fn check(option: &str) -> Result<(), Error> {
    let refused = |why| refuse(format!("--slurm-option={option}"), why);
    match option.strip_prefix("--") {
        Some(long) => check_long(long).map_err(refused),
        None => check_letters(option.trim_start_matches('-')).map_err(refused),
    }
}

/// Returns the option of ours that stands for one of `sbatch`, which understands the start of a name too.
fn ours(name: &str) -> Option<&'static str> {
    let found = OURS.iter().find(|(theirs, _)| theirs.starts_with(name));
    found.map(|(_, ours)| *ours)
}

fn check_long(long: &str) -> Result<(), WhyNot> {
    let (name, has_value) = match long.split_once('=') {
        Some((name, _)) => (name, true),
        None => (long, false),
    };
    if let Some(ours) = ours(name) {
        return Err(WhyNot::Ours(ours));
    }
    let begins_one_of = |names: &[&str]| names.iter().any(|theirs| theirs.starts_with(name));
    if begins_one_of(&DISTURBING) {
        return Err(WhyNot::Disturbing);
    }
    if has_value || begins_one_of(&FLAGS) {
        Ok(())
    } else {
        Err(WhyNot::NoValue)
    }
}

/// Checks letters, all of which but the last have no value: what follows the first other letter is its value.
fn check_letters(letters: &str) -> Result<(), WhyNot> {
    let mut rest = letters.chars();
    while let Some(letter) = rest.next() {
        let long = LETTERS.iter().find(|(theirs, _)| *theirs == letter);
        if let Some(ours) = long.and_then(|(_, name)| ours(name)) {
            return Err(WhyNot::Ours(ours));
        }
        if DISTURBING_LETTERS.contains(letter) {
            return Err(WhyNot::Disturbing);
        }
        match (FLAG_LETTERS.contains(letter), rest.as_str()) {
            (true, _) => {}
            (false, "") => return Err(WhyNot::NoValue),
            (false, _) => return Ok(()),
        }
    }
    Ok(())
}
