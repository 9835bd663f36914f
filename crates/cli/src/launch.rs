//! Carries out launch configurations: actions before the job, the job or a debugger, actions after it.
//!
//! | event | what happens |
//! |---|---|
//! | an action before the job fails | the job is not started; the actions after it run |
//! | SIGINT, SIGTERM, SIGHUP or SIGQUIT during an action before the job | the action gets the signal, the job is not started; the actions after it run |
//! | one of these signals during the job | the front handles it as always; the actions after the job run |
//! | one of these signals during an action after the job | the action gets the signal; the next one runs |
//! | an action after the job fails | a warning; the exit code stays that of the job |
//!
//! The front runs in this process, so that debuggers and signals find it under the pid that the user started.

mod actions;
mod messages;

use std::{ffi::OsString, fs::File, io::Write as _};

use base::{ExitStatus, Signal};

use self::actions::When;
pub(crate) use self::messages::KINDS;
use crate::{
    args::{
        self, MessageFormat, Verbosity, World,
        request::launch::{Action, LaunchRequest, LaunchStep, NewLaunch},
    },
    beside,
    exit::{self, ExitCode},
    print, quoting, say,
};

/// The example that `rally launch --new` writes.
const EXAMPLE: &str = include_str!("launch/example.toml");

/// Carries out a launch configuration, and returns the exit code.
pub(crate) fn run(request: &LaunchRequest, world: &World) -> u8 {
    let format = request.format;
    if let Some(debugger) = &request.untold {
        say(&messages::untold(debugger), format);
    }
    if request.is_dry {
        return print(&shown(request), format);
    }
    let has_actions = !request.pre.is_empty() || !request.post.is_empty();
    // From here on no signal ends this process before the last action has run.
    if (has_actions || matches!(request.step, LaunchStep::Debugger(..)))
        && let Err(error) = actions::take_signals()
    {
        say(&crate::messages::system(&error), format);
        return ExitCode::Resources.code();
    }
    let code = match before(request, world) {
        Ok(()) => carry_out(request, world),
        Err(code) => code,
    };
    after(request, code, world);
    code
}

/// Runs the actions before the job. An error is the exit code.
fn before(request: &LaunchRequest, world: &World) -> Result<(), u8> {
    for action in &request.pre {
        let from = request.places.of_action(action);
        let fail = |what: String, code: u8| {
            let message = messages::failed(When::Before, &action.line, &what, from.clone());
            say(&message, request.format);
            code
        };
        if let Some(signal) = actions::pending() {
            return Err(fail(interrupted(signal), exit::signal(signal)));
        }
        let ended = match actions::shell(&action.line, None, world) {
            Ok(ended) => ended,
            Err(why) => return Err(fail(why.to_string(), ExitCode::Resources.code())),
        };
        match (ended.signal, ended.status) {
            (Some(signal), _) => return Err(fail(interrupted(signal), exit::signal(signal))),
            (None, ExitStatus::SUCCESS) => {}
            (None, status) => {
                return Err(fail(status.to_string(), ExitCode::Resources.code()));
            }
        }
    }
    match actions::pending() {
        // The front of a job takes it.
        Some(_) if matches!(request.step, LaunchStep::Rally(..)) => Ok(()),
        Some(signal) => Err(exit::signal(signal)),
        None => Ok(()),
    }
}

fn interrupted(signal: Signal) -> String {
    format!("interrupted by {signal}")
}

/// Runs the actions after the job, whatever has become of it.
fn after(request: &LaunchRequest, code: u8, world: &World) {
    for action in &request.post {
        // What has ended the job does not end what cleans up after it.
        actions::forget_pending();
        let what = match actions::shell(&action.line, Some(code), world) {
            Ok(ended) if ended.status.is_success() => continue,
            Ok(ended) => ended.status.to_string(),
            Err(why) => why.to_string(),
        };
        let from = request.places.of_action(action);
        let message = messages::failed(When::After, &action.line, &what, from);
        say(&message, request.format);
    }
}

/// Does what is between the actions, and returns the exit code.
fn carry_out(request: &LaunchRequest, world: &World) -> u8 {
    let (own, line) = match &request.step {
        LaunchStep::Rally(words, args) => {
            // The command line is what a user would have typed.
            let world = World {
                argv: words.clone(),
                ..world.clone()
            };
            return match args::resolve(args, &world) {
                Ok(inner) => {
                    say_held(request, &inner);
                    crate::carry_out(inner, &world, None)
                }
                Err(error) => {
                    let code = args::code_of(&error, &world);
                    say(&request.places.located(error).message(), request.format);
                    code
                }
            };
        }
        LaunchStep::Debugger(own, line) => (own.clone(), line.as_slice()),
        LaunchStep::Dbgr(words) => {
            let Some(program) = beside::program() else {
                say(
                    &messages::not_started("dbgr", "there is no such program"),
                    request.format,
                );
                return ExitCode::NotFound.code();
            };
            let mut own = vec![program.into_os_string()];
            own.extend(words.iter().cloned());
            (own, [].as_slice())
        }
    };
    let mut words = own;
    if let Some((_, rest)) = line.split_first() {
        words.push(world.executable.clone().into_os_string());
        words.extend(rest.iter().cloned());
    }
    match actions::debugger(&words, world) {
        Ok(ended) => ended.status.code(),
        Err(why) => {
            let program = words.first().map(|word| word.to_string_lossy());
            let program = program.unwrap_or_default();
            say(
                &messages::not_started(&program, &why.to_string()),
                request.format,
            );
            why.exit().code()
        }
    }
}

/// Says what to type, if ranks will be held for our debugger.
fn say_held(request: &LaunchRequest, inner: &args::Request) {
    let is_quiet = match inner {
        args::Request::Run(run) => run.front.verbosity == Verbosity::Quiet,
        _ => false,
    };
    if let Some(words) = &request.dbgr
        && !is_quiet
    {
        say(
            &messages::held(&in_words(words), std::process::id()),
            request.format,
        );
    }
}

/// Returns what a launch configuration does, as text or as JSON.
fn shown(request: &LaunchRequest) -> String {
    let words: Vec<String> = match &request.step {
        LaunchStep::Rally(words, _) => as_texts(words),
        LaunchStep::Debugger(own, line) => [as_texts(own), as_texts(line)].concat(),
        LaunchStep::Dbgr(words) => [vec!["dbgr".to_owned()], as_texts(words)].concat(),
    };
    let lines = |actions: &[Action]| -> Vec<String> {
        actions.iter().map(|action| action.line.clone()).collect()
    };
    let (pre, post) = (lines(&request.pre), lines(&request.post));
    if request.format == MessageFormat::Json {
        let object = serde_json::json!({ "pre": pre, "run": words, "post": post });
        return format!("{object}\n");
    }
    let pre = pre.iter().map(|line| format!("pre   {line}\n"));
    let run = std::iter::once(format!("run   {}\n", quoting::joined(&words)));
    let post = post.iter().map(|line| format!("post  {line}\n"));
    pre.chain(run).chain(post).collect()
}

fn as_texts(words: &[OsString]) -> Vec<String> {
    let texts = words.iter().map(|word| word.to_string_lossy().into_owned());
    texts.collect()
}

fn in_words(words: &[OsString]) -> String {
    quoting::joined(&as_texts(words))
}

/// Writes the example, and returns the exit code.
pub(crate) fn write_new(request: &NewLaunch) -> u8 {
    let written =
        File::create_new(&request.path).and_then(|mut file| file.write_all(EXAMPLE.as_bytes()));
    match written {
        Ok(()) => {
            say(&messages::written(&request.path), request.format);
            exit::SUCCESS
        }
        Err(error) => {
            say(
                &messages::not_written(&request.path, &error),
                request.format,
            );
            ExitCode::BadFile.code()
        }
    }
}
