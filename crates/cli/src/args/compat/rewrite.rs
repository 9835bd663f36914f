//! Options whose values differ in meaning from ours.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
};

use super::{Emit, Error, Given};
use crate::args::error::NotOffered;
use crate::values::{self, ValueError};

mod environment;
mod output;
mod placement;
mod resources;

pub(super) use self::{environment::*, output::*, placement::*, resources::*};

type Done = Result<(), Error>;

/// Returns the value at `index`. The translator guarantees that it exists.
fn value<'a>(given: &'a Given<'_>, index: usize) -> &'a OsStr {
    given
        .values
        .get(index)
        .map(OsString::as_os_str)
        .unwrap_or_default()
}

/// Returns the first value as text.
fn text<'a>(given: &'a Given<'_>) -> Result<&'a str, Error> {
    value(given, 0)
        .to_str()
        .ok_or_else(|| bad(given, ValueError::NotText))
}

fn bad(given: &Given<'_>, reason: ValueError) -> Error {
    let words: Vec<_> = given
        .values
        .iter()
        .map(|word| word.to_string_lossy())
        .collect();
    Error::BadValue {
        option: given.typed.to_owned(),
        value: words.join(" "),
        reason,
    }
}

/// Returns the error for an option that is refused with this value.
fn refused(given: &Given<'_>, why: NotOffered) -> Error {
    let value = value(given, 0).to_string_lossy();
    Error::NotOffered {
        option: format!("{} {value}", given.typed),
        why,
    }
}

fn not_one_of(given: &Given<'_>, known: &[&str]) -> Error {
    bad(
        given,
        ValueError::NotOneOf(known.iter().map(|word| (*word).to_owned()).collect()),
    )
}

fn joined(parts: &[&OsStr]) -> OsString {
    OsString::from_vec(
        parts
            .iter()
            .flat_map(|part| part.as_bytes())
            .copied()
            .collect(),
    )
}

/// Translates Open MPI's `--display`, whose words may be abbreviated.
pub(super) fn display(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    const KNOWN: [&str; 3] = ["map", "bindings", "allocation"];
    for word in text(given)?.split(',') {
        let word = word
            .split([':', '='])
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase();
        let what = match word.as_str() {
            "map-devel" => "map",
            "topo" | "cpus" => "bindings",
            "" => return Err(not_one_of(given, &KNOWN)),
            short => *KNOWN
                .iter()
                .find(|name| name.starts_with(short))
                .ok_or_else(|| not_one_of(given, &KNOWN))?,
        };
        emit.here("display", what);
    }
    Ok(())
}

/// Translates `--runtime-options` of Open MPI 5: honors those that would change our behaviour.
pub(super) fn runtime_options(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    const KNOWN: [&str; 7] = [
        "donotlaunch",
        "error-nonzero-status=BOOL",
        "recoverable",
        "continuous",
        "stop-on-exec",
        "stop-in-init",
        "stop-in-app",
    ];
    for word in text(given)?.split(',') {
        let (name, said) = word.split_once('=').unwrap_or((word, "true"));
        let yes = !matches!(
            said.to_ascii_lowercase().as_str(),
            "0" | "f" | "false" | "no"
        );
        match name.to_ascii_lowercase().as_str() {
            "donotlaunch" | "do-not-launch" => emit.plain("dry-run"),
            "error-nonzero-status" | "abort-nonzero-status" | "abort-nonzero" => {
                emit.here("kill-on-bad-exit", if yes { "yes" } else { "no" });
            }
            "recoverable" | "continuous" | "autorestart" if yes => {
                emit.here("kill-on-bad-exit", "no")
            }
            "stop-on-exec" => emit.plain("stop-on-exec"),
            "stop-in-init" => emit.plain("stop-in-init"),
            "stop-in-app" => emit.plain("stop-in-app"),
            "get-stack-traces" => emit.here("on-hang", "report"),
            "recoverable"
            | "continuous"
            | "autorestart"
            | "show-progress"
            | "notifyerrors"
            | "notify-errors"
            | "report-state-on-timeout"
            | "report-child-jobs-separately"
            | "aggregate-help-messages"
            | "fwd-environment" => {
                let typed = format!("{} {word}", given.typed);
                emit.ignored(&Given {
                    typed: &typed,
                    values: Vec::new(),
                    ..*given
                });
            }
            "max-restarts" if said == "0" => {}
            "max-restarts" => return Err(refused(given, NotOffered::Restarts)),
            _ => return Err(not_one_of(given, &KNOWN)),
        }
    }
    Ok(())
}

/// Translates MCA parameters that have an equivalent of ours. The others tune another program.
pub(super) fn mca(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    let name = value(given, 0).to_string_lossy().into_owned();
    let said = value(given, 1).to_string_lossy().into_owned();
    let yes = !matches!(
        said.to_ascii_lowercase().as_str(),
        "0" | "f" | "false" | "no" | "disabled"
    );
    match name.as_str() {
        "rmaps_base_mapping_policy" | "rmaps_default_mapping_policy" => emit.here("map-by", said),
        "rmaps_base_ranking_policy" | "rmaps_default_ranking_policy" => emit.here("rank-by", said),
        "hwloc_base_binding_policy"
        | "hwloc_default_binding_policy"
        | "orte_base_binding_policy" => {
            emit.here("bind-to", said);
        }
        "rmaps_base_oversubscribe" => emit.here("oversubscribe", if yes { "yes" } else { "no" }),
        "plm_rsh_agent" | "plm_ssh_agent" | "orte_rsh_agent" | "pls_rsh_agent" => {
            // It may be a list of alternatives: `ssh : rsh`.
            let first = said.split(':').next().unwrap_or_default();
            emit.here("ssh", first.trim());
        }
        "plm_rsh_no_tree_spawn" | "plm_ssh_no_tree_spawn" => {
            if yes {
                emit.here("tree-start", "off");
            }
        }
        "orte_default_hostfile" | "prte_default_hostfile" => emit.here("hostfile", value(given, 1)),
        "orte_abort_on_non_zero_status" | "prte_abort_on_non_zero_status" => {
            emit.here("kill-on-bad-exit", if yes { "yes" } else { "no" });
        }
        "orte_tag_output" | "prte_tag_output" => {
            emit.here("label", if yes { "rank" } else { "none" })
        }
        "orte_timestamp_output" | "prte_timestamp_output" => {
            emit.here("timestamps", if yes { "yes" } else { "no" });
        }
        "hwloc_base_report_bindings" | "orte_report_bindings" => {
            if yes {
                emit.here("display", "bindings");
            }
        }
        "orte_display_map" | "rmaps_base_display_map" => {
            if yes {
                emit.here("display", "map");
            }
        }
        "plm" => match said.as_str() {
            "rsh" | "ssh" => emit.here("bootstrap", "ssh"),
            "slurm" | "lsf" => emit.here("bootstrap", said),
            "tm" => emit.here("bootstrap", "pbs"),
            _ => emit.ignored(given),
        },
        _ if is_of_a_launcher(given.option, &name) => emit.ignored(given),
        // Open MPI's launcher passes the remaining parameters to its library as variables.
        _ => {
            let variable = joined(&[
                OsStr::new("OMPI_MCA_"),
                value(given, 0),
                OsStr::new("="),
                value(given, 1),
            ]);
            if given.segment == 0 {
                emit.everywhere("set-env", variable);
            } else {
                emit.here("set-env", variable);
            }
        }
    }
    Ok(())
}

/// Translates Open MPI's fault tolerance: enables it in the library, and keeps the other ranks running after a failure.
pub(super) fn fault_tolerance(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    match text(given)? {
        "ulfm" | "mpi" | "yes" | "true" | "1" => {
            emit.everywhere("set-env", "OMPI_MCA_mpi_ft_enable=1");
            emit.here("kill-on-bad-exit", "no");
        }
        "no" | "none" | "false" | "0" => {}
        _ => emit.ignored(given),
    }
    Ok(())
}

/// Returns true if a parameter tunes a launcher, and not the library in the ranks.
fn is_of_a_launcher(option: &str, name: &str) -> bool {
    const FRAMEWORKS: [&str; 18] = [
        "errmgr", "ess", "filem", "grpcomm", "iof", "odls", "oob", "orte", "plm", "prte", "ras",
        "regx", "rmaps", "rml", "routed", "rtc", "schizo", "state",
    ];
    let framework = name.split('_').next().unwrap_or_default();
    !matches!(option, "mca" | "omca" | "gmca") || FRAMEWORKS.contains(&framework)
}

pub(super) fn slurm_time(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    let limit = values::slurm_time(text(given)?).map_err(|reason| bad(given, reason))?;
    // No limit is also a value: it overrides variables and settings.
    let seconds = limit.map_or(0, |limit| limit.as_secs());
    emit.here("timeout", seconds.to_string());
    Ok(())
}
