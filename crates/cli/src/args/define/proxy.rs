//! Options of `rally ptp-proxy`.

use std::{ffi::OsString, net::SocketAddr};

use clap::{Args, ValueEnum};

use super::machine::MachineArgs;
use crate::{choices::OnLoss, values};

/// `rally ptp-proxy`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Eclipse starts it as the proxy of a resource manager, with --proxy, --host and --port.\n\
                  A machine runs the jobs: one of `rally up`, or one of its own. More: docs/ptp.md."
)]
pub(crate) struct ProxyArgs {
    /// Computer on which the client waits for the proxy
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Option<String>,

    /// Port of the client; without --host, the port of this computer's loopback interface on which the proxy waits
    #[arg(long, value_name = "PORT", default_value_t = 12345)]
    pub(crate) port: u16,

    /// Wait for a client on this address, such as `127.0.0.1:12345`; port 0: on a free one
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = values::address, conflicts_with = "host")]
    pub(crate) listen: Option<SocketAddr>,

    /// Let anyone connect who reaches the address of --listen
    ///
    /// The protocol has no passwords. Whoever connects first runs programs as you.
    #[arg(long, requires = "listen")]
    pub(crate) anyone_may_connect: bool,

    /// Kind of connection: tcp
    #[arg(long, value_name = "KIND", default_value = "tcp", hide = true)]
    pub(crate) proxy: Transport,

    /// Version of PTP whose words the client knows [default: 5.0, or 4.0 for the older framing]
    ///
    /// The connection does not tell 2.0 and 2.1 from later ones. 3.0 is not offered.
    #[arg(long, value_name = "2.0|4.0|5.0", hide_possible_values = true)]
    pub(crate) dialect: Option<DialectChoice>,

    /// What becomes of output that is no ASCII: `\xNN`, or the bytes as they are
    ///
    /// PTP up to 5.0 disconnects at other bytes; PTP 6.0 reads Latin-1.
    #[arg(
        long,
        value_name = "ascii|bytes",
        default_value = "ascii",
        hide_possible_values = true
    )]
    pub(crate) charset: CharsetChoice,

    /// Debuggers of a job with N processes: N servers, or also a master, of rank N [default: master for --dialect=2.0]
    ///
    /// Since PTP 3, the client starts the master itself.
    #[arg(long, value_name = "servers|master", hide_possible_values = true)]
    pub(crate) debuggers: Option<DebuggersChoice>,

    /// What becomes of the jobs when the client has gone
    #[arg(
        long,
        value_name = "end|continue",
        default_value = "end",
        hide_possible_values = true
    )]
    pub(crate) on_disconnect: OnLoss,

    /// Accepted and ignored: Eclipse passes it
    #[arg(long, value_name = "LEVEL", hide = true)]
    pub(crate) debug: Option<String>,

    #[command(flatten)]
    pub(crate) which: MachineArgs,

    /// Options of `rally up` for a machine of the proxy's own, such as `--hostfile hosts`
    ///
    /// Without any, the proxy uses a machine that runs, and starts one of its own if none does. That one ends with the proxy.
    #[arg(value_name = "OPTIONS OF UP", last = true, conflicts_with = "machine")]
    pub(crate) up: Vec<OsString>,
}

/// Kind of connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    Tcp,
}

/// Generation of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DialectChoice {
    #[value(name = "2.0", alias = "2.1")]
    V2,
    #[value(name = "4.0", aliases = ["4.1", "4.2"])]
    V4,
    #[value(name = "5.0", alias = "6.0")]
    V5,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CharsetChoice {
    Ascii,
    Bytes,
}

/// Debuggers that are started in place of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DebuggersChoice {
    /// One for each process.
    Servers,
    /// These, and one with the next rank.
    Master,
}
