//! The source of the ranks' input, and the destination of their output.

use std::{ffi::OsString, path::PathBuf};

use base::Rank;
use dvm::spec::{
    Destination, FrontInput, LineTerminal, OpenMode, Pattern, PatternFacts, Pty, StdinTarget,
    StdioPlan, WithoutTerminal,
};

use super::{
    AppLine, Error, InputSource, JobLine, Personality, World,
    define::StdinChoice,
    error::FileKind,
    slurm_files::{self, Reading},
};
use crate::choices::{LineBuffered, OpenModeChoice};
use crate::config::Settings;
use crate::{files::read_probe, values::ValueError};

type Done<T> = Result<T, Error>;

/// Returns the ranks that read our stdin, and the source of that input.
pub(super) fn stdin(
    job: &JobLine,
    personality: Personality,
    size: Option<u32>,
    world: &World,
) -> Done<(StdinTarget, InputSource)> {
    let Said { readers, file } = said(job, size);
    let target = match (readers, job.args.pty, personality) {
        (Some(StdinChoice::None), ..) => StdinTarget::None,
        (Some(StdinChoice::All), ..) => StdinTarget::All,
        (Some(StdinChoice::Rank(rank)), ..) => StdinTarget::Rank(Rank(rank)),
        // Keyboard input goes to the rank with the terminal.
        (None, Some(rank), _) => StdinTarget::Rank(Rank(rank)),
        (None, None, Personality::Srun) => StdinTarget::All,
        (None, None, _) => StdinTarget::Rank(Rank(0)),
    };
    let source = match (file, target) {
        (_, StdinTarget::None) => InputSource::Null,
        (None, _) => InputSource::Inherit,
        (Some(path), _) => {
            let path = world.absolute(&path)?;
            read_probe(&path).map_err(|problem| Error::Unreadable {
                what: FileKind::Input,
                path: path.clone(),
                problem,
            })?;
            InputSource::File(path)
        }
    };
    Ok((target, source))
}

/// The options about stdin, whether our own or srun's.
struct Said {
    readers: Option<StdinChoice>,
    file: Option<PathBuf>,
}

fn said(job: &JobLine, size: Option<u32>) -> Said {
    let slurm = job.args.slurm_input.as_deref();
    let (readers, file) = match slurm.map(|text| slurm_files::reading(text, size)) {
        Some(Reading::By(readers)) => (Some(readers), None),
        Some(Reading::From(path)) => (None, Some(path)),
        None => (None, None),
    };
    Said {
        readers: job.args.stdin.or(readers),
        file: job.args.input.clone().or(file),
    }
}

pub(super) fn stdio(
    job: &JobLine,
    apps: &[AppLine],
    personality: Personality,
    size: Option<u32>,
    settings: &Settings,
    world: &World,
) -> Done<StdioPlan> {
    let (slurm_stdout, slurm_stderr) = slurm_files::destinations(job, apps, size, world)?;
    let stderr = match (&job.args.stderr, job.args.merge_stderr) {
        (Some(_), true) => {
            return Err(Error::Together {
                first: job.typed("merge-stderr"),
                second: job.typed("error-file"),
                why: "merged, both go where stdout goes: leave one of them out",
            });
        }
        (None, true) => Destination::WithStdout,
        (None, false) => slurm_stderr.unwrap_or(Destination::Forward),
        (pattern, false) => destination(job, "error-file", pattern.as_ref())?,
    };
    let stdout = match slurm_stdout {
        Some(destination) => destination,
        None => destination(job, "output-file", job.args.stdout.as_ref())?,
    };
    let [stdout, stderr] = [stdout, stderr].map(|destination| match job.args.only_from {
        Some(rank) if destination == Destination::Forward => Destination::ForwardOnly(Rank(rank)),
        _ => destination,
    });
    if job.args.pty.is_some() && stdout != Destination::Forward {
        return Err(Error::Together {
            first: job.typed("pty"),
            second: job.typed("output-file"),
            why: "the output of a terminal is always shown: leave one of them out",
        });
    }
    let Said { readers, file } = said(job, size);
    let talks_to_another = match (job.args.pty, readers) {
        (Some(pty), Some(StdinChoice::Rank(rank))) => rank != pty,
        (Some(_), Some(StdinChoice::None | StdinChoice::All)) => true,
        (None, _) | (_, None) => false,
    };
    if talks_to_another {
        return Err(Error::Together {
            first: job.typed("pty"),
            second: job.typed(match job.args.stdin {
                Some(_) => "stdin",
                None => "slurm-input",
            }),
            why: "typed input goes to the rank with the terminal: leave one of them out",
        });
    }
    let pty = job.args.pty.map(|rank| Pty {
        rank: Rank(rank),
        size: world.window,
    });
    Ok(StdioPlan {
        stdout,
        stderr,
        open: match (job.args.open_mode, personality) {
            (Some(OpenModeChoice::Truncate), _) | (None, Personality::Srun) => OpenMode::Truncate,
            (Some(OpenModeChoice::Append), _) | (None, _) => OpenMode::Append,
        },
        pty,
        lines: lines(settings, world),
        input: match (&file, job.args.pty) {
            (None, None) => world.input,
            // A file was opened for reading, and so is a terminal.
            (Some(_), _) | (None, Some(_)) => FrontInput::Readable,
        },
    })
}

/// Returns the terminal that ranks get as stdout, if any. Its size is that of our stdout. If stdout is no terminal, it is
/// that of our stdin, or 24 by 80.
fn lines(settings: &Settings, world: &World) -> Option<LineTerminal> {
    let (size, without) = match (settings.line_buffered.value, world.screen) {
        (LineBuffered::No, _) | (LineBuffered::Auto, None) => return None,
        (LineBuffered::Auto, Some(size)) => (size, WithoutTerminal::Pipe),
        (LineBuffered::Yes, screen) => (screen.unwrap_or(world.window), WithoutTerminal::Fail),
    };
    Some(LineTerminal { size, without })
}

fn destination(job: &JobLine, flag: &str, pattern: Option<&OsString>) -> Done<Destination> {
    let Some(pattern) = pattern else {
        return Ok(Destination::Forward);
    };
    if pattern == "none" {
        return Ok(Destination::Discard);
    }
    let pattern = Pattern(pattern.clone());
    // Any rank will do for this check whether the pattern can be expanded.
    let facts = PatternFacts {
        rank: 0,
        size: 1,
        local_rank: 0,
        app: 0,
        job: 0,
        front_pid: 0,
        host: "",
    };
    let bad = |reason| Error::BadValue {
        option: job.typed(flag),
        value: pattern.0.to_string_lossy().into_owned(),
        reason,
    };
    if pattern.0.is_empty() {
        return Err(bad(ValueError::Empty));
    }
    pattern
        .expand(&facts)
        .map_err(|problem| bad(ValueError::OwnPattern(problem)))?;
    Ok(Destination::File(pattern))
}
