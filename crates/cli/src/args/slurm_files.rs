//! `srun -o` and `-e`: whose output is shown, or the names of files, which have letters of their own.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::Path,
};

use base::Rank;
use dvm::spec::{Destination, Pattern};

use super::{
    AppLine, Error, JobLine, ValueError, World,
    values::{self, PatternError},
};

/// The letters that srun knows.
const KNOWN: &str = "%A %a %J %j %N %n %s %t %u %x";

/// Where stdout and stderr go; absent where nothing was said.
pub(super) fn destinations(
    job: &JobLine,
    apps: &[AppLine],
    world: &World,
) -> Result<(Option<Destination>, Option<Destination>), Error> {
    let stdout = match &job.args.slurm_output {
        Some(text) => Some(destination(job, apps, "slurm-output", text, world)?),
        None => None,
    };
    let stderr = match &job.args.slurm_error {
        Some(text) => Some(destination(job, apps, "slurm-error", text, world)?),
        // Who says where stdout goes has said it for both.
        None => stdout.clone().map(|stdout| match stdout {
            Destination::File(_) => Destination::WithStdout,
            other => other,
        }),
    };
    Ok((stdout, stderr))
}

/// `all`, `none`, a rank, or a pattern.
fn destination(
    job: &JobLine,
    apps: &[AppLine],
    flag: &str,
    text: &OsStr,
    world: &World,
) -> Result<Destination, Error> {
    let bad = |reason| Error::BadValue {
        option: job.typed(flag),
        value: text.to_string_lossy().into_owned(),
        reason,
    };
    let is_number = !text.is_empty() && text.as_bytes().iter().all(u8::is_ascii_digit);
    match text.to_str() {
        Some("") => Err(bad(ValueError::Empty)),
        Some("all") => Ok(Destination::Forward),
        Some("none") => Ok(Destination::Discard),
        Some(number) if is_number => {
            let rank = values::rank(number).map_err(bad)?;
            Ok(Destination::ForwardOnly(Rank(rank)))
        }
        _ => {
            let name = expand(text.as_bytes(), apps, world).map_err(bad)?;
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
fn expand(text: &[u8], apps: &[AppLine], world: &World) -> Result<Vec<u8>, ValueError> {
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
            'x' => of(&["SLURM_JOB_NAME"]).unwrap_or_else(|| {
                let program = apps.first().and_then(|app| app.program.first());
                let name = program.and_then(|program| Path::new(program).file_name());
                literal(name.unwrap_or_default().as_bytes())
            }),
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
