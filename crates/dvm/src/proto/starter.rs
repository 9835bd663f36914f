//! Start commands that a daemon runs for the head (`dvm::bootstrap`).
//!
//! The daemon has the program and the secret: neither travels again, and no message contains the secret.

use std::ffi::OsString;

use base::{ExitStatus, NodeId};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::bootstrap::{CommandId, Input, Part};

/// Message to a daemon that runs start commands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToStarter {
    /// Run a command, which gives us a shell on a node. Its environment is that of the daemon.
    Start {
        command: CommandId,
        argv: Vec<OsString>,
        node: NodeId,
        /// Name of the node, as its procs see it.
        host: String,
    },
    /// Send this to the standard input of the command, after what was sent before.
    Send { command: CommandId, part: Part },
    /// Kill the process of the command. [`FromStarter::Exited`] follows.
    Kill { command: CommandId },
}

/// Message of a daemon about a start command: an [`Input`] of the state machine at the head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromStarter {
    /// The command could not be executed, or cannot be told what to do. Nothing follows.
    NotStarted { command: CommandId, why: String },
    /// The command has taken bytes from its standard input. While it takes more, this is repeated from time to time.
    Taken { command: CommandId },
    /// Bytes that the command has printed. What it prints beyond a bound is only sent when it has exited: the last bytes.
    Printed { command: CommandId, bytes: Bytes },
    /// The command has exited, and its output was sent. Nothing follows.
    Exited {
        command: CommandId,
        status: ExitStatus,
    },
}

impl From<FromStarter> for Input {
    fn from(news: FromStarter) -> Self {
        match news {
            FromStarter::NotStarted { command, why } => Self::NotStarted { command, why },
            FromStarter::Taken { command } => Self::Taken(command),
            FromStarter::Printed { command, bytes } => Self::Printed {
                command,
                bytes: bytes.to_vec(),
            },
            FromStarter::Exited { command, status } => Self::Exited { command, status },
        }
    }
}
