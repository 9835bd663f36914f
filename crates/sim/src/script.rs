//! The operations of simulated programs, and the text that they write.

mod invite;
mod pmix;
mod question;

use std::{sync::OnceLock, time::Duration};

use ::pmix::pmi::Dialect;
use base::{Rank, Signal};
use bytes::Bytes;
use dvm::proto::Stream;

pub(crate) use self::invite::{GROUP_CODES, Guest, Invitation, Reply, Step};
pub(crate) use self::pmix::{
    CONSTRUCT_MAX, Circle, Data, EVENT_NUMBER, Lookup, Notify, Number, Party, PmixOp, Reach, Site,
    Stranger, Way, named, value_of,
};
pub(crate) use self::question::{About, OF_JOBS, Patience, Question, UNKNOWN};
use crate::rng::Rng;

/// An operation of a program. A program at the end of its script exits with code 0.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Sleep(Duration),
    /// Blocks while the pipe is full.
    Write(Stream, Bytes),
    Close(Stream),
    CloseStdin,
    /// Reads this number of bytes, or fewer if the input ends.
    Read(u64),
    ReadToEnd,
    Fork(Fork, Vec<Self>),
    /// Sends SIGSTOP to itself.
    Stop,
    /// Ignores SIGTERM, SIGINT and SIGHUP from now on.
    IgnoreTerm,
    /// Sleeps in the kernel, where not even SIGKILL ends it.
    Uninterruptible(Duration),
    Pmi(PmiOp),
    Pmix(PmixOp),
    Exit(u8),
    Crash(Signal),
}

/// How a child is forked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fork {
    /// In its parent's process group.
    Plain,
    /// In a session of its own.
    Session,
    /// In a session of its own, by an intermediate parent that exits immediately.
    Twice,
}

/// An operation over the PMI connection of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PmiOp {
    /// Sends the first line, which selects the protocol.
    Init(Dialect),
    /// Sends the full init of PMI-2, which follows the first line.
    FullInit,
    Put {
        key: String,
        value: String,
    },
    /// Enters a barrier of all ranks. If it fails, the program exits with [`FENCE_REFUSED`].
    Barrier,
    /// Gets a value. A different value, or none, is a fault.
    Get {
        key: String,
        value: String,
    },
    /// Enters a barrier of these ranks only. If it fails, the program exits with [`FENCE_REFUSED`].
    Group(Vec<Rank>),
    Publish {
        service: String,
        port: String,
    },
    /// Looks up a port. A different port, or none, is a fault.
    Lookup {
        service: String,
        port: String,
    },
    Unpublish {
        service: String,
    },
    Finalize,
    Abort(i32),
    /// Sends bytes that are not a command.
    Garbage,
    /// Closes the connection.
    HangUp,
}

/// Exit code of a program that gives up because a fence or a PMIx request has failed.
pub(crate) const FENCE_REFUSED: u8 = 99;

/// Sleep of a program that does not end by itself: longer than any run.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(1_000_000);

/// Length of the random text from which all contents are cut, in bytes; a prime number.
const TEXT_LEN: usize = 1_048_583;

fn text() -> &'static Bytes {
    static TEXT: OnceLock<Bytes> = OnceLock::new();
    TEXT.get_or_init(|| {
        let mut rng = Rng::new(0x7e87);
        let mut text = Vec::with_capacity(TEXT_LEN + 8);
        while text.len() < TEXT_LEN {
            text.extend(rng.next().to_le_bytes().map(|byte| b'0' + (byte & 63)));
        }
        text.truncate(TEXT_LEN);
        Bytes::from(text)
    })
}

/// Returns random text of this length without a line feed. A check of the text therefore finds lost or misplaced bytes.
pub(crate) fn words(rng: &mut Rng, length: usize) -> Bytes {
    let text = text();
    if length <= text.len() / 2 {
        let start = rng.length(0, text.len() - length);
        return text.slice(start..start + length);
    }
    let mut long = Vec::with_capacity(length);
    while long.len() < length {
        let part = rng.length(1, 65_536).min(length - long.len());
        let start = rng.length(0, text.len() - part);
        long.extend_from_slice(&text[start..start + part]);
    }
    Bytes::from(long)
}

/// Returns a line of this length, including its line feed.
pub(crate) fn line(rng: &mut Rng, length: usize) -> Bytes {
    let mut line = words(rng, length.saturating_sub(1)).to_vec();
    line.push(b'\n');
    Bytes::from(line)
}
