//! Options whose values mean something else than ours.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
};

use super::{Emit, Error, Given, split_once};
use crate::args::{
    error::NotOffered,
    values::{self, PatternError, ValueError},
};

mod placement;
mod resources;

pub(super) use self::{placement::*, resources::*};

type Done = Result<(), Error>;

/// The value at `index`; the translator has made sure that it is there.
fn value<'a>(given: &'a Given<'_>, index: usize) -> &'a OsStr {
    given
        .values
        .get(index)
        .map(OsString::as_os_str)
        .unwrap_or_default()
}

/// The first value as text.
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

/// Refuses an option with the value that it was given.
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

/// Open MPI's `--display`, whose words may be shortened.
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

/// `--runtime-options` of Open MPI 5: those that change what we would do are obeyed.
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

/// MCA parameters: those with an equivalent of ours are translated, the others are tuning of another program.
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
        _ if is_of_a_launcher(given.option, &name) => emit.ignored(given),
        // Open MPI's launcher gives the others to its library in this way.
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

/// Open MPI's fault tolerance: the library is told, and the others go on when one has failed.
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

/// Whether a parameter tunes a launcher, and no library in the ranks.
fn is_of_a_launcher(option: &str, name: &str) -> bool {
    const FRAMEWORKS: [&str; 18] = [
        "errmgr", "ess", "filem", "grpcomm", "iof", "odls", "oob", "orte", "plm", "prte", "ras",
        "regx", "rmaps", "rml", "routed", "rtc", "schizo", "state",
    ];
    let framework = name.split('_').next().unwrap_or_default();
    !matches!(option, "mca" | "omca" | "gmca") || FRAMEWORKS.contains(&framework)
}

// Environment.

fn assignment(given: &Given<'_>) -> OsString {
    joined(&[value(given, 0), OsStr::new("="), value(given, 1)])
}

pub(super) fn set_everywhere(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    emit.everywhere("set-env", assignment(given));
    Ok(())
}

pub(super) fn set_here(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    emit.here("set-env", assignment(given));
    Ok(())
}

/// Open MPI applies the `-x` of the first app to all.
pub(super) fn export(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    if given.segment == 0 {
        emit.everywhere("set-env", value(given, 0));
    } else {
        emit.here("set-env", value(given, 0));
    }
    Ok(())
}

pub(super) fn inherit_everywhere(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    emit.everywhere("inherit-env", value(given, 0));
    Ok(())
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "it stands in the table beside others that can fail"
)]
pub(super) fn inherit_all_everywhere(_given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    emit.everywhere("inherit-env", "all");
    Ok(())
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "it stands in the table beside others that can fail"
)]
pub(super) fn inherit_none_everywhere(_given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    emit.everywhere("inherit-env", "none");
    Ok(())
}

pub(super) fn unset_list(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    for name in text(given)?.split(',').filter(|name| !name.is_empty()) {
        if given.typed.trim_start_matches('-').starts_with('g') {
            emit.everywhere("unset-env", name);
        } else {
            emit.here("unset-env", name);
        }
    }
    Ok(())
}

/// `srun --export=ALL,A=1,B`: with `ALL` the rest is added, without it only the named variables pass.
pub(super) fn slurm_export(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    let mut names = Vec::new();
    let mut settings = Vec::new();
    let mut base = None;
    for word in value(given, 0).as_bytes().split(|byte| *byte == b',') {
        match word {
            b"ALL" => base = Some("all"),
            b"NONE" | b"NIL" => base = base.or(Some("none")),
            b"" => {}
            _ if word.contains(&b'=') => settings.push(OsStr::from_bytes(word)),
            _ => names.push(word),
        }
    }
    match base {
        Some(base) => emit.here("inherit-env", base),
        None if names.is_empty() => emit.here("inherit-env", "none"),
        None => emit.here("inherit-env", OsString::from_vec(names.join(&b','))),
    }
    for setting in settings {
        emit.here("set-env", setting);
    }
    Ok(())
}

pub(super) fn prepend(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    emit.here("prepend-env", assignment(given));
    Ok(())
}

pub(super) fn append(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    emit.here("append-env", assignment(given));
    Ok(())
}

// Output and input.

/// Doubles percent signs, which mean nothing in the file names of Open MPI.
fn literal(name: &OsStr) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    for byte in name.as_bytes() {
        out.push(*byte);
        if *byte == b'%' {
            out.push(b'%');
        }
    }
    out
}

/// The part before qualifiers such as `:nocopy`, which ask for what we do anyway.
fn without_qualifiers(name: &OsStr) -> OsString {
    match split_once(name, b':') {
        Some((name, _qualifiers)) => name,
        None => name.to_owned(),
    }
}

fn files(name: &OsStr, emit: &mut Emit<'_>) {
    let name = OsString::from_vec(literal(&without_qualifiers(name)));
    emit.here("output-file", joined(&[&name, OsStr::new(".%r.out")]));
    emit.here("error-file", joined(&[&name, OsStr::new(".%r.err")]));
}

fn directory(name: &OsStr, emit: &mut Emit<'_>) {
    let name = OsString::from_vec(literal(&without_qualifiers(name)));
    emit.here(
        "output-file",
        joined(&[&name, OsStr::new("/%j/rank.%r/stdout")]),
    );
    emit.here(
        "error-file",
        joined(&[&name, OsStr::new("/%j/rank.%r/stderr")]),
    );
}

pub(super) fn output_filename(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    files(value(given, 0), emit);
    Ok(())
}

pub(super) fn output_directory(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    directory(value(given, 0), emit);
    Ok(())
}

/// `--output` of Open MPI 5: directives that may be shortened.
pub(super) fn output_directives(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    const KNOWN: [&str; 7] = [
        "tag",
        "tag-detailed",
        "tag-fullname",
        "timestamp",
        "merge-stderr-to-stdout",
        "dir=NAME",
        "file=NAME",
    ];
    for word in value(given, 0).as_bytes().split(|byte| *byte == b',') {
        let word = OsStr::from_bytes(word);
        if let Some((name, target)) = split_once(word, b'=') {
            match name.to_ascii_lowercase().as_bytes() {
                b"file" => files(&target, emit),
                b"dir" | b"directory" => directory(&target, emit),
                _ => return Err(not_one_of(given, &KNOWN)),
            }
            continue;
        }
        let lower = word.to_ascii_lowercase();
        let name = lower
            .to_str()
            .unwrap_or_default()
            .split(':')
            .next()
            .unwrap_or_default();
        if name == "tag" || (!name.is_empty() && "rank".starts_with(name)) {
            emit.here("label", "rank");
        } else if name.starts_with("tag-") && (KNOWN.iter().any(|known| known.starts_with(name))) {
            emit.here("label", "full");
        } else if name.len() > 1 && "timestamp".starts_with(name) {
            emit.here("timestamps", "yes");
        } else if !name.is_empty() && "merge-stderr-to-stdout".starts_with(name) {
            emit.plain("merge-stderr");
        } else if name == "xml" {
            return Err(refused(given, NotOffered::Xml));
        } else if matches!(name, "raw" | "nocopy") {
            // Partial lines are passed on anyway, and a file never gets a copy on the terminal.
        } else {
            return Err(not_one_of(given, &KNOWN));
        }
    }
    Ok(())
}

/// Rewrites the letters of a peer's file name pattern into ours.
fn pattern(
    given: &Given<'_>,
    whose: &'static str,
    known: &'static str,
    letters: &[(char, char)],
) -> Result<OsString, Error> {
    let fail = |problem| bad(given, ValueError::Pattern(problem));
    let mut out = Vec::new();
    let mut bytes = value(given, 0).as_bytes().iter().copied();
    while let Some(byte) = bytes.next() {
        out.push(byte);
        if byte != b'%' {
            continue;
        }
        loop {
            let next = bytes.next().ok_or_else(|| fail(PatternError::Unfinished))?;
            if next.is_ascii_digit() {
                out.push(next);
                continue;
            }
            let letter = char::from(next);
            let ours = letters
                .iter()
                .find(|(theirs, _)| *theirs == letter)
                .map(|(_, ours)| *ours);
            let ours = ours.ok_or_else(|| {
                fail(PatternError::NoEquivalent {
                    letter,
                    whose,
                    known,
                })
            })?;
            if ours.is_ascii_digit() {
                // It is the same for all: the digit takes the place of the letter with all that belongs to it.
                let sign = out.iter().rposition(|byte| *byte == b'%');
                out.truncate(sign.unwrap_or(out.len()));
            }
            out.extend_from_slice(ours.encode_utf8(&mut [0; 4]).as_bytes());
            break;
        }
    }
    Ok(OsString::from_vec(out))
}

fn mpich_pattern(given: &Given<'_>) -> Result<OsString, Error> {
    // There is one proxy, that of this node.
    let letters = [('r', 'r'), ('g', 'j'), ('h', 'h'), ('p', '0'), ('%', '%')];
    pattern(given, "mpiexec", "%r %g %p %h", &letters)
}

pub(super) fn outfile_pattern(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    emit.here("output-file", mpich_pattern(given)?);
    Ok(())
}

pub(super) fn errfile_pattern(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    emit.here("error-file", mpich_pattern(given)?);
    Ok(())
}

/// `srun -i all|none|RANK|FILE`.
pub(super) fn slurm_input(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    let name = value(given, 0);
    let is_rank = !name.is_empty() && name.as_bytes().iter().all(u8::is_ascii_digit);
    if name == "all" || name == "none" || is_rank {
        emit.here("stdin", name);
    } else {
        emit.here("input", name);
    }
    Ok(())
}

pub(super) fn slurm_time(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    let limit = values::slurm_time(text(given)?).map_err(|reason| bad(given, reason))?;
    // No limit is said as well: it overrules the variables and settings.
    let seconds = limit.map_or(0, |limit| limit.as_secs());
    emit.here("timeout", seconds.to_string());
    Ok(())
}
