//! Form B of the MPI standard: a file with one app per line, for `mpiexec -configfile` and `mpirun --app`.
//!
//! A line contains what would be between two `:` on a command line: options, a program, its arguments. [`quoting`] splits it.

use std::{ffi::OsString, path::Path};

use super::{
    Error, Personality, RunLine, RunOptions,
    compat::{Translation, translate},
    error::{AppFileProblem, FileKind},
    read_segments,
};
use crate::quoting::{self, Line};

/// The largest app file, in bytes.
pub(super) const MAX_FILE: u64 = 1 << 24;

/// Replaces the apps of the command line, which then has no program, by those of a file.
pub(super) fn expand(line: &RunLine, path: &Path, text: &[u8]) -> Result<RunLine, Error> {
    let bad = |number, problem| Error::BadAppFile {
        what: FileKind::AppFile,
        path: path.to_owned(),
        line: number,
        problem,
    };
    let lines = quoting::lines(text).map_err(|(number, open)| bad(number, open.into()))?;
    if lines.is_empty() {
        return Err(bad(1, AppFileProblem::NoProgram));
    }
    let mut defined = RunOptions::define();
    let in_line = |number, error| bad(number, AppFileProblem::Line(Box::new(error)));
    for Line { number, words } in &lines {
        let segments = match translate(words, line.personality, defined.native()) {
            Ok(Translation { segments, .. }) => segments,
            Err(error) => return Err(in_line(*number, error)),
        };
        if segments
            .iter()
            .any(|segment| segment.options.iter().any(|option| option.flag == "app"))
        {
            return Err(bad(*number, AppFileProblem::Nested));
        }
        if segments.iter().any(|segment| segment.program.is_empty()) {
            return Err(bad(*number, AppFileProblem::NoProgram));
        }
        // Parsed separately only to find the line of an error.
        if let Err(error) = read_segments(&mut defined, segments, Vec::new(), line.personality) {
            return Err(in_line(*number, error));
        }
    }
    // Parsed together, so that options that apply to every app reach every line.
    let words = lines
        .iter()
        .map(|line| line.words.as_slice())
        .collect::<Vec<_>>();
    let words: Vec<OsString> = words.join(&OsString::from(":"));
    let Translation {
        mut segments,
        ignored,
        ..
    } = translate(&words, line.personality, defined.native())?;
    for (position, segment) in segments.iter_mut().enumerate() {
        let job = if position == 0 {
            line.job.typed.as_slice()
        } else {
            &[]
        };
        let app = line
            .apps
            .first()
            .map(|app| app.typed.as_slice())
            .unwrap_or_default();
        let before = job.iter().filter(|option| option.flag != "app").chain(app);
        let before: Vec<_> = before.cloned().collect();
        segment.options.splice(0..0, before);
    }
    let ignored = line.ignored.iter().cloned().chain(ignored).collect();
    let personality: Personality = line.personality;
    read_segments(&mut defined, segments, ignored, personality)
}
