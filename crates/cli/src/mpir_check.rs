//! `rally mpir-check`: behaves as an MPIR debugger towards a launcher, and prints what the launcher does right and wrong.
//!
//! [`Check`] decides and judges. [`host::Host`] starts, traces and reads the launcher as it orders.
//!
//! ```text
//!  keeper        ends what is left when the checker is killed
//!    └─ checker       traces the launcher; is told when the keeper dies, and ends then
//!         └─ launcher      killed by the kernel when the checker dies
//!              └─ …             ranks, if the launcher starts them itself
//! ```

mod host;
mod keeper;
mod messages;
mod report;

use std::{
    ffi::{CString, OsStr, OsString},
    io::{self, Write},
    os::unix::ffi::OsStringExt,
    time::Duration,
};

use base::Signal;
use debug::mpir::check::{Answer, Check, Order, Output};
use os::{Forked, Found};

use self::host::{Host, Stopped};
pub(crate) use self::messages::KINDS;
use crate::{
    args::{CheckRequest, MessageFormat, World},
    exit::{self, ExitCode},
    say, unprinted,
};

/// The exit code if a statement is wrong.
const WRONG: u8 = 1;

/// Signals that end the check.
const ENDING: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::HUP];

/// The launcher to start.
struct Command {
    program: CString,
    argv: Vec<CString>,
    envp: Vec<CString>,
    /// Our own program, which is a daemon too.
    own: CString,
}

/// Checks a launcher. Returns the exit code: 0 if no statement is wrong.
pub(crate) fn run(request: &CheckRequest, world: &World) -> u8 {
    let format = request.format;
    let command = match command(request, world) {
        Ok(command) => command,
        Err((message, code)) => {
            say(&message, format);
            return code.code();
        }
    };
    let parent = os::current_pid();
    let forked = os::become_subreaper()
        .and_then(|()| os::block_signals(&ENDING))
        .and_then(|()| os::fork());
    match forked {
        Ok(Forked::Parent(child)) => keeper::keep(child),
        Ok(Forked::Child) => os::exit_at_once(check(request, &command, parent)),
        Err(error) => {
            say(&messages::refused(&error.to_string()), format);
            ExitCode::Resources.code()
        }
    }
}

/// Does the check, in a process of its own.
fn check(request: &CheckRequest, command: &Command, keeper: os::Pid) -> u8 {
    let format = request.format;
    let prepared =
        os::become_subreaper().and_then(|()| os::signal_at_parents_death(Signal::TERM, keeper));
    let host = match prepared {
        Ok(true) => Host::new(command),
        // The keeper is gone.
        Ok(false) => return exit::signal(Signal::TERM),
        Err(error) => Err(error),
    };
    let mut host = match host {
        Ok(host) => host,
        Err(error) => {
            say(&messages::refused(&error.to_string()), format);
            return ExitCode::Resources.code();
        }
    };
    let mut check = Check::new(request.options);
    let mut report = report::Report::new(&request.words, format);
    loop {
        match check.poll() {
            Some(Output::Finding(finding)) => {
                if let Err(error) = report.show(&finding, check.facts()) {
                    let _ = host.carry_out(Order::Finish);
                    return unprinted(&error);
                }
            }
            Some(Output::Order(order)) => match host.carry_out(order) {
                Ok(Some(answer)) => check.handle(answer),
                Ok(None) => {}
                Err(Stopped::NotStarted(message, code)) => {
                    say(&message, format);
                    return code.code();
                }
                Err(Stopped::Refused(why)) => check.handle(Answer::Failed(why)),
                Err(Stopped::Interrupted(signal)) => {
                    let _ = host.carry_out(Order::Finish);
                    return exit::signal(signal);
                }
            },
            None if check.is_over() => break,
            // Every order that needs an answer has had one.
            None => return exit::INTERNAL,
        }
    }
    match report.end(&check) {
        Ok(0) => exit::SUCCESS,
        Ok(_) => WRONG,
        Err(error) => unprinted(&error),
    }
}

/// The longest life of a daemon that nobody ends.
const DAEMON_MAX: Duration = Duration::from_mins(5);

/// Stands in for a daemon of a debugger: does nothing until it is ended.
pub(crate) fn be_daemon() -> u8 {
    if os::block_signals(&ENDING).is_err() {
        return ExitCode::Resources.code();
    }
    match os::wait_for_signal(&ENDING, DAEMON_MAX) {
        Some(signal) => exit::signal(signal),
        None => exit::SUCCESS,
    }
}

/// Finds the launcher, as a shell does.
fn command(request: &CheckRequest, world: &World) -> Result<Command, (message::Message, ExitCode)> {
    let name = request.words.first().map(OsString::as_os_str);
    let name = name.unwrap_or_default();
    let path = world.variables.get(OsStr::new("PATH"));
    let file = match os::find_program(name, path.map(OsString::as_os_str).unwrap_or_default()) {
        Found::Program(file) => file,
        Found::NotExecutable(file) => {
            let name = file.display().to_string();
            return Err((messages::not_executable(&name), ExitCode::NotExecutable));
        }
        Found::Missing => {
            let name = name.to_string_lossy();
            return Err((messages::not_found(&name), ExitCode::NotFound));
        }
    };
    let text = |word: Vec<u8>| CString::new(word).unwrap_or_default();
    let words = request.words.iter().cloned();
    let variables = world.variables.iter();
    Ok(Command {
        program: text(file.into_os_string().into_vec()),
        own: text(world.executable.clone().into_os_string().into_vec()),
        argv: words.map(|word| text(word.into_vec())).collect(),
        envp: variables
            .map(|(name, value)| {
                let mut variable = name.clone();
                variable.push("=");
                variable.push(value);
                text(variable.into_vec())
            })
            .collect(),
    })
}

/// Writes a text to stdout, at once.
fn print(text: &str, format: MessageFormat) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(crate::shown(text, format).as_bytes())?;
    out.flush()
}
