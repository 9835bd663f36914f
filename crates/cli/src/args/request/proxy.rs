//! The complete request of `rally ptp-proxy`.

use std::{
    ffi::OsString,
    net::{Ipv4Addr, SocketAddr},
};

use ptp::{Charset, Dialect};

use super::machine::Which;
use crate::{
    args::{
        define::proxy::{CharsetChoice, DebuggersChoice, DialectChoice, ProxyArgs},
        machine::which,
    },
    choices::OnLoss,
};

/// How client and proxy meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Meeting {
    /// The client listens.
    Connect { host: String, port: u16 },
    /// The proxy does.
    Listen { address: SocketAddr, to: Audience },
}

/// Who may connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    /// Processes of our own user, and of root, on this computer.
    Own,
    Anyone,
}

/// Debuggers that are started in place of a program of N processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Debuggers {
    /// N.
    Servers,
    /// N, and one more with the rank N.
    WithMaster,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProxyRequest {
    pub(crate) which: Which,
    pub(crate) meeting: Meeting,
    /// `None`: the one that goes with the framing of the client.
    pub(crate) dialect: Option<Dialect>,
    pub(crate) charset: Charset,
    pub(crate) debuggers: Debuggers,
    pub(crate) on_disconnect: OnLoss,
    /// Options of `rally up` for a machine of its own.
    pub(crate) up: Vec<OsString>,
}

impl ProxyRequest {
    pub(crate) fn of(args: &ProxyArgs) -> Self {
        let dialect = args.dialect.map(|dialect| match dialect {
            DialectChoice::V2 => Dialect::V2,
            // They differ in their framing only.
            DialectChoice::V4 | DialectChoice::V5 => Dialect::V4,
        });
        let to = if args.anyone_may_connect {
            Audience::Anyone
        } else {
            Audience::Own
        };
        let meeting = match (&args.host, args.listen) {
            (Some(host), _) => Meeting::Connect {
                host: host.clone(),
                port: args.port,
            },
            (None, Some(address)) => Meeting::Listen { address, to },
            (None, None) => Meeting::Listen {
                address: (Ipv4Addr::LOCALHOST, args.port).into(),
                to,
            },
        };
        Self {
            which: which(&args.which),
            meeting,
            dialect,
            charset: match args.charset {
                CharsetChoice::Ascii => Charset::Ascii,
                CharsetChoice::Bytes => Charset::Bytes,
            },
            debuggers: match (args.debuggers, dialect) {
                (Some(DebuggersChoice::Master), _) | (None, Some(Dialect::V2)) => {
                    Debuggers::WithMaster
                }
                (Some(DebuggersChoice::Servers), _) | (None, _) => Debuggers::Servers,
            },
            on_disconnect: args.on_disconnect,
            up: args.up.clone(),
        }
    }
}
