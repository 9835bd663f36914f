//! Options about output and input, with the names and patterns of files.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
};

use super::{Done, bad, joined, not_one_of, refused, value};
use crate::args::{
    compat::{Emit, Error, Given, split_once},
    error::NotOffered,
};
use crate::values::{PatternError, ValueError};

/// Doubles percent signs, which are ordinary characters in Open MPI's file names.
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

/// Returns the part before qualifiers such as `:nocopy`, which request our only behaviour.
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

pub(in super::super) fn output_filename(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    files(value(given, 0), emit);
    Ok(())
}

pub(in super::super) fn output_directory(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    directory(value(given, 0), emit);
    Ok(())
}

/// Translates `--output` of Open MPI 5, whose directives may be abbreviated.
pub(in super::super) fn output_directives(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
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
            // Our only behaviour: partial lines are forwarded, and output to a file is not copied to the terminal.
        } else {
            return Err(not_one_of(given, &KNOWN));
        }
    }
    Ok(())
}

/// Translates another launcher's file name pattern into ours.
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
                // The replacement is a constant digit: it replaces the whole conversion, from the percent sign on.
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
    // The only proxy is that of this node, number 0.
    let letters = [('r', 'r'), ('g', 'j'), ('h', 'h'), ('p', '0'), ('%', '%')];
    pattern(given, "mpiexec", "%r %g %p %h", &letters)
}

pub(in super::super) fn outfile_pattern(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    emit.here("output-file", mpich_pattern(given)?);
    Ok(())
}

pub(in super::super) fn errfile_pattern(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    emit.here("error-file", mpich_pattern(given)?);
    Ok(())
}

/// Translates `-i all|none|RANK|FILE`.
pub(in super::super) fn readers_or_file(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    let name = value(given, 0);
    let is_rank = !name.is_empty() && name.as_bytes().iter().all(u8::is_ascii_digit);
    if name == "all" || name == "none" || is_rank {
        emit.here("stdin", name);
    } else {
        emit.here("input", name);
    }
    Ok(())
}
