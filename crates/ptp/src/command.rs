//! Commands of a client, and what is wrong with one (section 6).

use crate::{
    Packet,
    lines::MISTAKE,
    packet::{number, shown},
    submission::Submission,
};

/// The version that all clients announce.
const VERSION: &str = "2.0";

/// An order of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Ends the session. It is answered by [`Event::Shutdown`](crate::Event::Shutdown), and never by OK.
    Quit,
    /// Begins the session.
    Init {
        /// The number of the resource manager. Machines, nodes, queues and jobs get the numbers that follow.
        base_id: u32,
    },
    /// Asks for the definitions of attributes.
    ModelDef,
    /// Asks for events about everything there is, and what becomes of it. It is not answered; the events belong to its transaction.
    StartEvents,
    StopEvents,
    SubmitJob(Box<Submission>),
    TerminateJob {
        /// As the client has named it; `None` if that is no number.
        job: Option<u32>,
    },
    /// Asks that events about some elements are left out.
    FilterEvents,
    SuspendEvents,
    ResumeEvents,
    /// Asks that these streams are left out.
    SetFilters(Filters),
    /// Asks for these streams again.
    ClearFilters(Filters),
    GetAttributes,
    QueryAttributes,
}

/// Streams of output that a client may leave out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filters {
    pub stdout: bool,
    pub stderr: bool,
}

/// Why a packet is no command. It is answered with an error, and the session goes on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoCommand {
    #[error("there is no command {0}")]
    Unknown(u32),
    /// What is wrong with a line.
    #[error("{0}")]
    Mistake(String),
    #[error("INIT has no `version`")]
    NoVersion,
    #[error("the client speaks version {0}, and the proxy {VERSION}")]
    Version(String),
    #[error("INIT has no `baseId`")]
    NoBaseId,
    #[error("the `baseId` {0} is no number below 2147483648")]
    BaseId(String),
}

/// Returns the value of the first argument with this key.
fn value<'a>(packet: &'a Packet, key: &str) -> Option<&'a [u8]> {
    let of = |arg: &'a Vec<u8>| arg.strip_prefix(key.as_bytes())?.strip_prefix(b"=");
    packet.args.iter().find_map(of)
}

impl Command {
    /// Reads a command.
    ///
    /// # Errors
    ///
    /// There is no such command, or it lacks what it needs. What a submission lacks, [`Submission`] says.
    pub fn decode(packet: &Packet) -> Result<Self, NoCommand> {
        Ok(match packet.id {
            0 => Self::Quit,
            1 => init(packet)?,
            2 => Self::ModelDef,
            3 => Self::StartEvents,
            4 => Self::StopEvents,
            5 => Self::SubmitJob(Box::new(Submission::decode(&packet.args))),
            6 => Self::TerminateJob {
                job: value(packet, "jobId").and_then(number),
            },
            7 => Self::FilterEvents,
            8 => Self::SuspendEvents,
            9 => Self::ResumeEvents,
            10 => Self::SetFilters(filters(packet)),
            11 => Self::ClearFilters(filters(packet)),
            12 => Self::GetAttributes,
            13 => Self::QueryAttributes,
            MISTAKE if !packet.args.is_empty() => {
                let why = packet.args.first().map(|why| String::from_utf8_lossy(why));
                return Err(NoCommand::Mistake(why.unwrap_or_default().into_owned()));
            }
            unknown => return Err(NoCommand::Unknown(unknown)),
        })
    }
}

fn init(packet: &Packet) -> Result<Command, NoCommand> {
    match value(packet, "version") {
        None => return Err(NoCommand::NoVersion),
        Some(version) if version == VERSION.as_bytes() => {}
        Some(other) => return Err(NoCommand::Version(shown(other))),
    }
    let base_id = value(packet, "baseId").ok_or(NoCommand::NoBaseId)?;
    let base_id = number(base_id).ok_or_else(|| NoCommand::BaseId(shown(base_id)))?;
    Ok(Command::Init { base_id })
}

fn filters(packet: &Packet) -> Filters {
    let has = |name: &str| packet.args.iter().any(|arg| arg == name.as_bytes());
    Filters {
        stdout: has("stdout"),
        stderr: has("stderr"),
    }
}
