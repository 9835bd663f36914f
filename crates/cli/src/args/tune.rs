//! `mpirun --tune FILES`: MCA parameters and variables from files.
//!
//! ```text
//! # options as on the command line
//! -mca btl self,tcp -x DEBUG=1
//! # or, in the files of `-am`, a parameter on each line
//! btl = self,tcp
//! ```

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::PathBuf,
};

use super::{
    Error, Personality, RunLine, World, app_file,
    compat::{Native, translate},
    error::{AppFileProblem, FileKind},
    inputs,
};
use crate::quoting;

/// The options that such a file may contain.
const KNOWN: [&str; 6] = ["mca", "omca", "gmca", "prtemca", "pmixmca", "x"];

/// Inserts the options of the files in front of the command line, which overrides them. `None` if no file is named.
pub(super) fn with_files(line: &RunLine, world: &World) -> Result<Option<RunLine>, Error> {
    if line.job.args.tune.is_empty() {
        return Ok(None);
    }
    let names = line
        .job
        .args
        .tune
        .iter()
        .flat_map(|names| names.as_bytes().split(|byte| *byte == b','))
        .filter(|name| !name.is_empty());
    let native = Native::of_run();
    let (mut options, mut ignored) = (Vec::new(), Vec::new());
    for name in names {
        let path = PathBuf::from(OsStr::from_bytes(name));
        let text = world.read(&path, FileKind::TuneFile, app_file::MAX_FILE)?;
        let bad = |number, problem| Error::BadAppFile {
            what: FileKind::TuneFile,
            path: path.clone(),
            line: number,
            problem,
        };
        let lines = quoting::lines(&text).map_err(|(number, open)| bad(number, open.into()))?;
        for quoting::Line { number, words } in lines {
            let words = options_of(words);
            let is_known = |word: &OsString| {
                word.to_str().is_some_and(|word| {
                    let name = word.trim_start_matches('-').split('=').next();
                    word.starts_with('-') && name.is_some_and(|name| KNOWN.contains(&name))
                })
            };
            if !words.first().is_some_and(is_known) {
                return Err(bad(number, AppFileProblem::NotTuning));
            }
            let translation = translate(&words, Personality::Mpirun, &native)
                .map_err(|error| bad(number, AppFileProblem::Line(Box::new(error))))?;
            let [segment] = translation.segments.as_slice() else {
                return Err(bad(number, AppFileProblem::NotTuning));
            };
            if !segment.program.is_empty() || translation.asks.is_some() {
                return Err(bad(number, AppFileProblem::NotTuning));
            }
            options.extend(segment.options.iter().cloned());
            ignored.extend(translation.ignored);
        }
    }
    inputs::with_options(line, &options, ignored).map(Some)
}

/// Returns a line as options: `NAME = VALUE` becomes `-mca`.
fn options_of(words: Vec<OsString>) -> Vec<OsString> {
    let line = words.join(OsStr::new(" "));
    let bytes = line.as_bytes();
    let equals = bytes.iter().position(|byte| *byte == b'=');
    match equals {
        Some(at) if !bytes.starts_with(b"-") => {
            let part = |bytes: Option<&[u8]>| {
                OsString::from_vec(bytes.unwrap_or_default().trim_ascii().to_vec())
            };
            vec![
                "-mca".into(),
                part(bytes.get(..at)),
                part(bytes.get(at + 1..)),
            ]
        }
        _ => words,
    }
}
