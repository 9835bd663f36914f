//! The commands of Slurm that the controller orders: their processes, and what they print.

use std::{
    collections::BTreeMap,
    ffi::{CString, OsStr, OsString},
    fs,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::fs::symlink,
    },
    path::{Path, PathBuf},
    time::Duration,
};

use base::{ExitStatus, Signal};
use dvm::slurm::{CommandNumber, News, Setup, Urgency, job_name};
use os::{Clock, Interest, Pid, ReadOutcome, Session, SpawnSpec, Spawner, Token};
use serde::{Deserialize, Serialize};
use tracing::info;

use crate::{
    log,
    reactor::{Child, Reactor, Read, Source},
    starters::{c_strings, variable},
};

/// Bytes of a command's output that are read at a time.
const READ_MAX: usize = 16 * 1024;
/// Number of such reads before other events are handled. A command may print without end.
const READS_PER_TURN: usize = 16;

/// The link in the directory of a controller whose target is the name of its allocations.
const LINK: &str = "slurm";
/// What the names of all our allocations begin with. A target without it is not ours.
const PREFIX: &str = "rally-";
/// The longest wait for `scancel` if the controller is gone. A start of `rally` waits that long.
const LEFT_MAX: Duration = Duration::from_secs(5);

/// What a front knows of the job of Slurm in which it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlurmPlan {
    pub setup: Setup,
    /// Environment of the commands: `NAME=value`.
    pub environment: Vec<OsString>,
}

/// The commands that run.
#[derive(Debug)]
pub(crate) struct SlurmCommands {
    spawner: Spawner,
    plan: SlurmPlan,
    /// Soft and hard limit of descriptors. We have raised ours.
    descriptors: (u64, u64),
    /// Directory beside the record of this process.
    session: Option<PathBuf>,
    /// The name of all allocations.
    name: String,
    running: BTreeMap<CommandNumber, Running>,
}

#[derive(Debug)]
struct Running {
    pid: Pid,
    /// `None` after end of file.
    output: Option<Token>,
}

impl SlurmCommands {
    pub(crate) fn new(
        plan: SlurmPlan,
        descriptors: (u64, u64),
        session: Option<&Path>,
        controller: &str,
    ) -> Result<Self, os::Error> {
        Ok(Self {
            spawner: Spawner::new()?,
            plan,
            descriptors,
            session: session.map(Path::to_owned),
            name: job_name(controller),
            running: BTreeMap::new(),
        })
    }

    pub(crate) const fn setup(&self) -> Setup {
        self.plan.setup
    }

    /// Executes a command. The reason of a failure is for the user.
    pub(crate) fn start(
        &mut self,
        number: CommandNumber,
        words: &[String],
        reactor: &mut Reactor,
    ) -> Result<(), String> {
        self.note();
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let (soft, hard) = self.descriptors;
        let limits = [(os::Resource::Descriptors, soft, hard)];
        let (pid, output) = execute(&mut self.spawner, &words, &self.plan.environment, &limits)?;
        // A process that nobody watches is ended, and reaped as any other child.
        let output = reactor
            .add(output, Interest::Read, Source::Slurm(number))
            .map_err(|error| {
                let _ = os::kill_group(pid, Signal::KILL);
                error.to_string()
            })?;
        reactor.children.insert(pid, Child::Slurm(number));
        let output = Some(output);
        self.running.insert(number, Running { pid, output });
        Ok(())
    }

    /// Notes that there may be allocations, so that they do not outlive a controller that is killed.
    fn note(&self) {
        if let Some(session) = &self.session
            && os::make_private_dirs(session).is_ok()
        {
            // It may be there already. Another error only means that nobody cancels what a killed controller leaves.
            let _ = symlink(&self.name, session.join(LINK));
        }
    }

    /// Ends a command, if it runs.
    pub(crate) fn end(&self, number: CommandNumber, urgency: Urgency) {
        if let Some(running) = self.running.get(&number) {
            let signal = match urgency {
                Urgency::Ask => Signal::TERM,
                Urgency::Kill => Signal::KILL,
            };
            // An error means that it has ended meanwhile.
            let _ = os::kill_group(running.pid, signal);
        }
    }

    /// Returns what a command has printed, at most so much per turn: an event for the rest follows.
    pub(crate) fn on_readable(
        &mut self,
        number: CommandNumber,
        reactor: &mut Reactor,
    ) -> Option<News> {
        let running = self.running.get_mut(&number)?;
        let token = running.output?;
        let mut printed = Vec::new();
        for _ in 0..READS_PER_TURN {
            match reactor.read(token, READ_MAX) {
                Some(Ok(Read::Bytes(bytes))) => printed.extend(bytes),
                Some(Ok(Read::WouldBlock)) => break,
                Some(Ok(Read::Closed) | Err(_)) | None => {
                    running.output = None;
                    reactor.close(token);
                    break;
                }
            }
        }
        (!printed.is_empty()).then(|| News::Printed(printed.into()))
    }

    /// Forgets a command that has ended, and returns what is to be reported of it.
    pub(crate) fn on_exited(
        &mut self,
        number: CommandNumber,
        status: ExitStatus,
        reactor: &mut Reactor,
    ) -> Vec<News> {
        let printed = self.on_readable(number, reactor);
        if let Some(token) = self.running.remove(&number).and_then(|one| one.output) {
            reactor.close(token);
        }
        printed.into_iter().chain([News::Ended(status)]).collect()
    }
}

/// Executes a command, and returns its pid and the end of its output that we read. The reason of a failure is for the user.
fn execute(
    spawner: &mut Spawner,
    words: &[OsString],
    environment: &[OsString],
    limits: &[(os::Resource, u64, u64)],
) -> Result<(Pid, OwnedFd), String> {
    let text = |error: os::Error| error.to_string();
    let (argv, envp) = (c_strings(words), c_strings(environment));
    let program = words
        .first()
        .map_or_else(|| OsStr::new(""), OsString::as_os_str);
    let path = variable(environment, "PATH").unwrap_or_default();
    let os::Found::Program(file) = os::find_program(program, path) else {
        return Err("it is not in PATH".to_owned());
    };
    let file = CString::new(file.into_os_string().into_encoded_bytes())
        .map_err(|_| "its path contains a NUL byte".to_owned())?;
    let null = os::dev_null().map_err(text)?;
    let (output, output_theirs) = os::pipe().map_err(text)?;
    os::set_nonblocking(output.as_fd()).map_err(text)?;
    let spec = SpawnSpec {
        fds: &[
            (null.as_fd(), 0),
            (output_theirs.as_fd(), 1),
            (output_theirs.as_fd(), 2),
        ],
        limits,
        session: Session::Own,
        ..SpawnSpec::new(&file, &argv, &envp)
    };
    let pid = spawner.spawn(&spec).map_err(|error| error.to_string())?;
    Ok((pid, output))
}

/// Cancels the allocations that a controller has left, whose directory this is. Does nothing if there were none.
///
/// Only the name of the allocations comes from the directory; the command is found by our own environment.
pub(crate) fn cancel_left(session: &Path, environment: fn() -> Vec<OsString>) {
    let target = fs::read_link(session.join(LINK)).ok();
    let Some(name) = target.as_deref().and_then(name_in) else {
        return;
    };
    let words = ["scancel".into(), format!("--name={name}").into()];
    let Ok(mut spawner) = Spawner::new() else {
        return;
    };
    let Ok((pid, output)) = execute(&mut spawner, &words, &environment(), &[]) else {
        return;
    };
    info!(target: log::CONTROLLER, name, "cancels the allocations of a controller that was killed");
    let until = Clock::now() + LEFT_MAX;
    let mut buffer = [0; 512];
    while os::wait_readable(output.as_fd(), Some(until)).unwrap_or(false) {
        match os::read(output.as_fd(), &mut buffer) {
            Ok(ReadOutcome::Bytes(_) | ReadOutcome::WouldBlock) => {}
            // It has ended. Whoever we are reaps its children as they end.
            Ok(ReadOutcome::Closed) | Err(_) => return,
        }
    }
    let _ = os::kill_group(pid, Signal::KILL);
}

/// Returns the name of allocations to which a link leads. A name that we do not make may mean other jobs.
fn name_in(target: &Path) -> Option<&str> {
    let name = target.to_str()?;
    let is_ours = name.len() > PREFIX.len() && name.starts_with(PREFIX) && job_name(name) == name;
    is_ours.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_we_make_are_canceled() {
        let ours = "rally-n1-01ab23cd-4242";
        assert_eq!(name_in(Path::new(ours)), Some(ours));
        for other in [
            "",
            "rally-",
            "mine",
            "rally-n1,mine",
            "rally-n1 mine",
            "/rally-n1",
        ] {
            assert_eq!(name_in(Path::new(other)), None, "{other}");
        }
    }
}
