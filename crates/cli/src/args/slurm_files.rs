//! `srun -o`, `-e` and `-i`: a set of ranks whose output is shown or who read stdin, or a file name pattern in srun's own
//! notation.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::PathBuf,
};

use base::Rank;
use dvm::spec::{Destination, Pattern};

use super::{AppLine, Error, JobLine, World, define::StdinChoice, slurm_job};
use crate::values::{PatternError, ValueError};

/// The conversions in srun's file name patterns.
const KNOWN: &str = "%A %a %J %j %N %n %s %t %u %x";

/// The meaning of `-i`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    By(StdinChoice),
    From(PathBuf),
}

/// Parses `all`, `none`, a rank, or a file. A number that is no rank of the job is a file name.
pub(super) fn reading(text: &OsStr, size: Option<u32>) -> Reading {
    match (text.to_str(), rank(text, size)) {
        (Some("all"), _) => Reading::By(StdinChoice::All),
        (Some("none"), _) => Reading::By(StdinChoice::None),
        (_, Some(rank)) => Reading::By(StdinChoice::Rank(rank)),
        (_, None) => Reading::From(text.into()),
    }
}

/// Returns the rank that a text names, if the job has it.
fn rank(text: &OsStr, size: Option<u32>) -> Option<u32> {
    let is_number = text.as_bytes().iter().all(u8::is_ascii_digit);
    let rank = text.to_str()?.parse().ok().filter(|_| is_number)?;
    size.is_none_or(|size| rank < size).then_some(rank)
}

/// Returns the destinations of stdout and stderr. `None` without an option.
pub(super) fn destinations(
    job: &JobLine,
    apps: &[AppLine],
    size: Option<u32>,
    world: &World,
) -> Result<(Option<Destination>, Option<Destination>), Error> {
    let stdout = match &job.args.slurm_output {
        Some(text) => Some(destination(job, apps, size, "slurm-output", text, world)?),
        None => None,
    };
    let stderr = match &job.args.slurm_error {
        Some(text) => Some(destination(job, apps, size, "slurm-error", text, world)?),
        // Without `-e`, the destination of stdout also applies to stderr.
        None => stdout.clone().map(|stdout| match stdout {
            Destination::File(_) => Destination::WithStdout,
            other => other,
        }),
    };
    Ok((stdout, stderr))
}

/// Parses `all`, `none`, a rank, or a pattern. A number that is no rank of the job is also a pattern.
fn destination(
    job: &JobLine,
    apps: &[AppLine],
    size: Option<u32>,
    flag: &str,
    text: &OsStr,
    world: &World,
) -> Result<Destination, Error> {
    let bad = |reason| Error::BadValue {
        option: job.typed(flag),
        value: text.to_string_lossy().into_owned(),
        reason,
    };
    match (text.to_str(), rank(text, size)) {
        (Some(""), _) => Err(bad(ValueError::Empty)),
        (Some("all"), _) => Ok(Destination::Forward),
        (Some("none"), _) => Ok(Destination::Discard),
        (_, Some(rank)) => Ok(Destination::ForwardOnly(Rank(rank))),
        (_, None) => {
            let job_name = slurm_job::in_file_names(job, apps, world);
            let name = expand(text.as_bytes(), &job_name, world).map_err(bad)?;
            // The name is relative to the directory where srun was called, whatever the working directory of the ranks.
            let mut path = Vec::new();
            if !name.starts_with(b"/") {
                path = literal(world.current()?.as_os_str().as_bytes());
                path.push(b'/');
            }
            path.extend(name);
            Ok(Destination::File(Pattern(OsString::from_vec(path))))
        }
    }
}

/// Escapes a text, so that it stands for itself in one of our patterns.
fn literal(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for byte in text {
        out.push(*byte);
        if *byte == b'%' {
            out.push(b'%');
        }
    }
    out
}

/// Translates a pattern of srun into ours.
fn expand(text: &[u8], job_name: &OsStr, world: &World) -> Result<Vec<u8>, ValueError> {
    // After two backslashes at the start, percent signs are ordinary characters.
    if let Some(plain) = text.strip_prefix(b"\\\\") {
        return Ok(literal(plain));
    }
    let of = |names: &[&str]| {
        let found = names.iter().find_map(|name| world.variable(name));
        found.map(|value| literal(value.as_bytes()))
    };
    let allocation = of(&["SLURM_JOB_ID"]).unwrap_or_else(|| b"%j".to_vec());
    let mut out = Vec::new();
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut width = Vec::new();
        let letter = loop {
            match bytes.next() {
                Some(digit) if digit.is_ascii_digit() => width.push(digit),
                Some(letter) => break char::from(letter),
                None => return Err(ValueError::Pattern(PatternError::Unfinished)),
            }
        };
        let ours = |letter: u8| [b"%", width.as_slice(), &[letter]].concat();
        let new = match letter {
            '%' => b"%%".to_vec(),
            't' => ours(b'r'),
            'N' => b"%h".to_vec(),
            // The relative number of the node: the only one is 0.
            'n' => b"0".to_vec(),
            // We have no step ids. The pid of the launcher keeps two steps from writing to the same file.
            's' => ours(b'p'),
            'j' => allocation.clone(),
            'J' => [allocation.as_slice(), b".%p"].concat(),
            'A' => of(&["SLURM_ARRAY_JOB_ID"]).unwrap_or_else(|| allocation.clone()),
            'a' => of(&["SLURM_ARRAY_TASK_ID"]).unwrap_or_else(|| b"4294967294".to_vec()),
            'u' => of(&["USER", "LOGNAME"]).unwrap_or_else(|| b"nobody".to_vec()),
            'x' => literal(job_name.as_bytes()),
            _ => {
                return Err(ValueError::Pattern(PatternError::NoEquivalent {
                    letter,
                    whose: "srun",
                    known: KNOWN,
                }));
            }
        };
        out.extend(new);
    }
    Ok(out)
}
