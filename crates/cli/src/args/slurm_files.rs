//! `srun -o`, `-e` and `-i`: whose output is shown and who reads, or the names of files, which have letters of their own.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::PathBuf,
};

use base::Rank;
use dvm::spec::{Destination, Pattern};

use super::{AppLine, Error, JobLine, World, define::StdinChoice, slurm_job};
use crate::values::{PatternError, ValueError};

/// The letters that srun knows.
const KNOWN: &str = "%A %a %J %j %N %n %s %t %u %x";

/// What `-i` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    By(StdinChoice),
    From(PathBuf),
}

/// `all`, `none`, a rank, or a file. A number that no rank has is the name of a file.
pub(super) fn reading(text: &OsStr, size: Option<u32>) -> Reading {
    match (text.to_str(), rank(text, size)) {
        (Some("all"), _) => Reading::By(StdinChoice::All),
        (Some("none"), _) => Reading::By(StdinChoice::None),
        (_, Some(rank)) => Reading::By(StdinChoice::Rank(rank)),
        (_, None) => Reading::From(text.into()),
    }
}

/// The rank that a text names, where the job has it.
fn rank(text: &OsStr, size: Option<u32>) -> Option<u32> {
    let is_number = text.as_bytes().iter().all(u8::is_ascii_digit);
    let rank = text.to_str()?.parse().ok().filter(|_| is_number)?;
    size.is_none_or(|size| rank < size).then_some(rank)
}

/// Where stdout and stderr go; absent where nothing was said.
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
        // Who says where stdout goes has said it for both.
        None => stdout.clone().map(|stdout| match stdout {
            Destination::File(_) => Destination::WithStdout,
            other => other,
        }),
    };
    Ok((stdout, stderr))
}

/// `all`, `none`, a rank, or a pattern. A number that no rank has is a pattern too.
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
            // The name is relative to where srun was called, whatever the directory of the ranks.
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

/// A text that means itself in a pattern of ours.
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

/// A pattern of srun as one of ours.
fn expand(text: &[u8], job_name: &OsStr, world: &World) -> Result<Vec<u8>, ValueError> {
    // Two backslashes at the start: no letter means anything.
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
            // The only node is the first.
            'n' => b"0".to_vec(),
            // Steps have no numbers here, and two of them must not write to one file.
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
