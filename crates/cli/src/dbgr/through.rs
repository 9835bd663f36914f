//! `dbgr __through SOCKET`: has the daemons of a running job of `rally` start the agents.
//!
//! The relay of `dbgr` runs it as it runs `srun`: its standard input is what each agent reads, and it lives as long as the
//! agents. It connects to the job's controller as a further front, and submits a job of its own: one agent on each node, by
//! a copy of this program. So the controller ends the agents when this process ends, in whatever way, and removes the copies.

use std::{
    collections::BTreeSet,
    io::{self, Read as _, Write as _},
    path::Path,
    time::Duration,
};

use dvm::proto::{FromFront, Refusal, ToFront};
use runtime::{
    ask::{AskError, Inquirer, SubmitError},
    link::LinkError,
};

use super::remote::AGENT_ARGUMENT;
use crate::{
    args::{self, World},
    exit,
};

/// The longest wait for the controller to accept the connection, and to take what is written.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum length of what agents read.
const INPUT_MAX: u64 = 16 << 20;

/// Why no agents run.
#[derive(Debug, thiserror::Error)]
enum NotStarted {
    #[error(transparent)]
    Args(#[from] args::Error),
    #[error("cannot read what agents are told: {0}")]
    Input(io::Error),
    #[error("agents can be told {INPUT_MAX} bytes, and this is more")]
    TooLong,
    #[error("{}", words(.0))]
    Submit(#[from] SubmitError),
}

/// Returns the nodes that the job of this controller has lost. None if it does not answer: then the start of the agents fails
/// too, with the reason.
pub(super) fn lost_nodes(socket: &Path) -> BTreeSet<String> {
    let asked = Inquirer::connect(socket, PATIENCE)
        .and_then(|mut controller| controller.ask(FromFront::LostNodes));
    match asked {
        Ok(ToFront::Lost(names)) => names.into_iter().collect(),
        Ok(_) | Err(_) => BTreeSet::new(),
    }
}

/// Runs until the agents have ended, and returns the exit code.
pub(super) fn serve(socket: &Path) -> u8 {
    match run(socket) {
        Ok(()) => exit::SUCCESS,
        Err(why) => {
            // The relay shows the last line if agents do not connect.
            let _ = writeln!(io::stderr(), "dbgr: {why}");
            exit::INTERNAL
        }
    }
}

fn run(path: &Path) -> Result<(), NotStarted> {
    let mut input = Vec::new();
    let taken = io::stdin()
        .lock()
        .take(INPUT_MAX + 1)
        .read_to_end(&mut input);
    if taken.map_err(NotStarted::Input)? as u64 > INPUT_MAX {
        return Err(NotStarted::TooLong);
    }
    let spec = args::of_agents(AGENT_ARGUMENT, &World::capture())?;
    let controller = Inquirer::connect(path, PATIENCE).map_err(SubmitError::Ask)?;
    controller.run(spec, input.into(), |bytes| {
        let _ = io::stderr().write_all(bytes);
    })?;
    Ok(())
}

fn words(error: &SubmitError) -> String {
    match error {
        SubmitError::Ask(AskError::Link(LinkError::Os(why))) => {
            format!("cannot reach the controller of the job: {why}")
        }
        SubmitError::Ask(AskError::Link(why)) => format!("the controller of the job: {why}"),
        SubmitError::Ask(AskError::Closed | AskError::Late) => {
            "the controller of the job does not answer".to_owned()
        }
        SubmitError::Refused(refusal) => {
            format!("the job takes no agents: {}", refused(refusal))
        }
        SubmitError::Failed(why) => format!("the job takes no agents: {why}"),
    }
}

fn refused(refusal: &Refusal) -> String {
    match refusal {
        Refusal::TooManyJobs { most } => format!("it has {most} jobs already"),
        Refusal::NodeLost { host } => format!("its node `{host}` was lost"),
        Refusal::NotPreloaded(_) => "its nodes cannot store the program".to_owned(),
        Refusal::OtherVersion { .. } => "it is of another version".to_owned(),
        _ => "they cannot be placed on its nodes".to_owned(),
    }
}
