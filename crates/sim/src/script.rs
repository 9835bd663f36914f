//! What simulated programs do, and the text that they write.

mod pmix;

use std::{sync::OnceLock, time::Duration};

use ::pmix::pmi::Dialect;
use base::{Rank, Signal};
use bytes::Bytes;
use dvm::proto::Stream;

pub(crate) use self::pmix::{
    Data, EVENT_NUMBER, Lookup, Notify, Party, PmixOp, Reach, Site, Stranger, named, value_of,
};
use crate::rng::Rng;

/// One thing that a program does. A program whose script is at its end exits with code 0.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Sleep(Duration),
    /// Blocks while the pipe is full.
    Write(Stream, Bytes),
    Close(Stream),
    CloseStdin,
    /// Reads so many bytes, fewer when the input ends.
    Read(u64),
    ReadToEnd,
    Fork(Fork, Vec<Self>),
    /// SIGSTOP to itself.
    Stop,
    /// From now on SIGTERM, SIGINT and SIGHUP do nothing.
    IgnoreTerm,
    /// Sleeps in the kernel: not even SIGKILL ends it before.
    Uninterruptible(Duration),
    Pmi(PmiOp),
    Pmix(PmixOp),
    Exit(u8),
    Crash(Signal),
}

/// How a child is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fork {
    /// In its parent's process group.
    Plain,
    /// In a session of its own.
    Session,
    /// In a session of its own, by a parent in between that exits at once.
    Twice,
}

/// One thing that a program says over its PMI connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PmiOp {
    /// The first line, which says what will be spoken.
    Init(Dialect),
    /// What PMI-2 says after it.
    FullInit,
    Put {
        key: String,
        value: String,
    },
    /// A program exits with [`FENCE_REFUSED`] when it is told that the fence has failed.
    Barrier,
    /// It is a fault when another value is there.
    Get {
        key: String,
        value: String,
    },
    /// A barrier of some ranks only.
    Group(Vec<Rank>),
    Publish {
        service: String,
        port: String,
    },
    /// It is a fault when another port is there, or none.
    Lookup {
        service: String,
        port: String,
    },
    Unpublish {
        service: String,
    },
    Finalize,
    Abort(i32),
    /// What is no command.
    Garbage,
    /// Closes the connection.
    HangUp,
}

/// The exit code of a program whose fence has failed.
pub(crate) const FENCE_REFUSED: u8 = 99;

/// For a program that must be ended by others: beyond the horizon of every run.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(1_000_000);

/// Bytes of text that all contents are cut from; prime, so that repetitions do not line up.
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

/// So many bytes without a line feed; no two places have the same text.
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

/// A line of so many bytes, its line feed included.
pub(crate) fn line(rng: &mut Rng, length: usize) -> Bytes {
    let mut line = words(rng, length.saturating_sub(1)).to_vec();
    line.push(b'\n');
    Bytes::from(line)
}
