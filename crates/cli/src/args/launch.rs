//! Launch configurations: files that stand for a command line of `rally run` or `rally submit`, with a debugger and with actions
//! before and after (docs/formats/launch-configuration.md).
//!
//! A configuration is translated into words, which [`super::parse`] and [`super::resolve()`] read like those of a user. So it can say
//! what a command line can, and nothing else. What a file adds is the place of a mistake in it.

pub(crate) mod error;
mod file;
mod mistake;
mod options;
mod words;

use std::{collections::BTreeMap, ffi::OsString, path::Path};

use self::{
    error::Position,
    file::File,
    mistake::Mistake,
    words::{Carrier, Goal},
};
use super::{
    Args, Error, MessageFormat, RunLine, World,
    define::about::LaunchArgs,
    error::FileKind,
    parse,
    request::{
        Request,
        launch::{LaunchRequest, LaunchStep, NewLaunch, Places},
    },
};
use crate::choices::MessageFormatChoice;

/// Bytes of a launch configuration.
const LAUNCH_FILE_MAX: u64 = 1 << 20;

/// The file that `rally launch --new` writes.
const NEW_FILE: &str = "launch.toml";

/// Returns the places of the options of a file.
fn places(path: &Path, text: &str, file: &File) -> Places {
    let queue = file.queue.iter().flat_map(|(options, _)| options);
    let apps = file.apps.iter().flat_map(|app| &app.options);
    let mut of_options = BTreeMap::new();
    for option in file.job.iter().chain(queue).chain(apps) {
        let at = Position::of(text, option.at.start);
        of_options.entry(option.flag.clone()).or_insert(at);
    }
    Places {
        path: path.to_owned(),
        of_options,
    }
}

/// How a command line is checked before it is carried out.
#[derive(Clone, Copy)]
pub(super) struct Checks {
    /// Returns the request of a command line.
    pub(super) resolve: fn(&Args, &World) -> Result<Request, Error>,
    /// Checks a job, some files of which may come later.
    pub(super) without_files: fn(&RunLine, &World) -> Result<(), Error>,
}

/// Consults the world, and returns a complete request.
pub(super) fn request(args: &LaunchArgs, world: &World, checks: Checks) -> Result<Request, Error> {
    let format = match args.message_format {
        Some(MessageFormatChoice::Json) => MessageFormat::Json,
        Some(MessageFormatChoice::Text) | None => MessageFormat::Text,
    };
    let goal = goal(args)?;
    if args.new {
        let path = args.file.clone().unwrap_or_else(|| NEW_FILE.into());
        return Ok(Request::NewLaunch(NewLaunch { path, format }));
    }
    let Some(path) = &args.file else {
        return Err(Error::MissingValue {
            option: "rally launch".to_owned(),
        });
    };
    let text = world.read_text(path, FileKind::Launch, LAUNCH_FILE_MAX)?;
    let fail = |mistake: Mistake| mistake.in_file(path, &text);
    let file = file::read(&text).map_err(fail)?;
    let carrier = words::carrier(&file, &goal).map_err(fail)?;
    let places = places(path, &text, &file);
    let step = match carrier {
        Carrier::Rally(words) => {
            let words = in_format(words, format);
            let args = check(&words, &file, &goal, &places, world, checks)?;
            LaunchStep::Rally(words, Box::new(args))
        }
        // The debugger starts this command line later. Its mistakes are those of the file.
        Carrier::Debugger(own, words) => {
            let words = in_format(words, format);
            check(&words, &file, &goal, &places, world, checks)?;
            LaunchStep::Debugger(own, words)
        }
        Carrier::Attached(words) => LaunchStep::Debugger(words, Vec::new()),
        Carrier::Dbgr(words) => LaunchStep::Dbgr(words),
    };
    let debugger = &file.debugger;
    let program = debugger.program.as_deref().unwrap_or(file::OURS);
    let holds_for_dbgr =
        goal == Goal::Debug && program == file::OURS && debugger.stop != Some(file::Stop::No);
    let is_told = goal == Goal::Run || words::uses_sources(debugger, &file.sources);
    Ok(Request::Launch(Box::new(LaunchRequest {
        dbgr: holds_for_dbgr.then(|| debugger.args.iter().map(OsString::from).collect()),
        untold: (!is_told).then(|| program.to_owned()),
        places,
        step,
        // A running job has had its actions.
        pre: if goal.is_attach() {
            Vec::new()
        } else {
            file.pre
        },
        post: if goal.is_attach() {
            Vec::new()
        } else {
            file.post
        },
        is_dry: args.dry_run,
        format,
    })))
}

/// Returns what a launch configuration is used for.
fn goal(args: &LaunchArgs) -> Result<Goal, Error> {
    let given = [
        (args.new, "--new"),
        (args.debug, "--debug"),
        (args.attach.is_some(), "--attach"),
        (args.dry_run && args.new, "--dry-run"),
    ];
    let mut given = given.into_iter().filter(|(is_given, _)| *is_given);
    if let (Some((_, first)), Some((_, second))) = (given.next(), given.next()) {
        return Err(Error::Together {
            first: first.to_owned(),
            second: second.to_owned(),
            why: "a file is written, or its job is started, or a running job gets a debugger",
        });
    }
    Ok(match (&args.attach, args.debug) {
        (Some(job), _) => Goal::Attach(job.clone()),
        (None, true) => Goal::Debug,
        (None, false) => Goal::Run,
    })
}

/// Adds the format of messages to a command line of ours.
fn in_format(mut words: Vec<OsString>, format: MessageFormat) -> Vec<OsString> {
    if format == MessageFormat::Json {
        // Behind our name and the command.
        words.insert(2, "--message-format=json".into());
    }
    words
}

/// Parses a command line of ours, and checks what can be checked before the actions have run.
fn check(
    words: &[OsString],
    file: &File,
    goal: &Goal,
    places: &Places,
    world: &World,
    checks: Checks,
) -> Result<Args, Error> {
    let checked = parse(words).and_then(|args| {
        match (checks.resolve)(&args, world) {
            // An action can write what the job reads.
            Err(error) if is_of_a_missing_file(&error) && !file.pre.is_empty() => {
                if let Args::Run(line) = &args {
                    (checks.without_files)(line, world)?;
                }
            }
            done => drop(done?),
        }
        Ok(args)
    });
    // The mistake is in the name of the job, which is not in the file.
    checked.map_err(|error| match goal.is_attach() {
        true => error,
        false => places.located(error),
    })
}

/// Returns true if a job cannot start because a file is missing, which may be there when actions have run.
fn is_of_a_missing_file(error: &Error) -> bool {
    matches!(error, Error::Unreadable { problem, .. } if problem.is_absence())
}
