//! The demo: a parallel program inside our own binary, so that a job can be run where nothing else is installed.
//!
//! Every rank is a PMIx client of the server that its environment names, as an MPI program is. It
//!
//! 1. puts its card (host name and pid) and its part of the integral of 4 / (1 + x²) from 0 to 1;
//! 2. waits in a fence, gets its left neighbour's card, and puts that card under another key;
//! 3. waits in a fence, and checks that its right neighbour has read its own card: the ring is closed;
//! 4. prints a line. After a last fence rank 0 gets all parts and prints their sum, which is π.
//!
//! It uses blocking reads and writes: it is a program that we launch, not a part of the launcher.

mod pmix;

#[cfg(test)]
mod tests;

use std::io::{self, Write};

use ::pmix::{client::Config, handshake::Owner, value::Value};
use message::{Kind, Message, Severity};

use self::pmix::{ANSWER_WAIT, DemoError, Pmix};
use crate::args::MessageFormat;

const FAILED: Kind = Kind {
    id: "demo/failed",
    severity: Severity::Error,
    explanation: "A rank of the demo program could not do its part: it was not started by `rally demo`, it lost the PMIx \
server of its node or another rank, or what it got from the server was not what another rank had put. The last is a mistake \
of ours; please report it.",
};

/// The kinds of messages of the demo program, for `rally help ID`.
pub(crate) const KINDS: &[&Kind] = &[&FAILED];

/// The number of strips of the integral, over all ranks.
const STRIPS: u32 = 1 << 22;

/// The exit code of a rank that failed.
const FAILURE: u8 = 1;

/// The key of a rank's card: host and pid, as text.
const CARD: &str = "card";
/// The key of a rank's part of the integral. The value is the bits of the number, because PMIx rounds floating point values.
const PART: &str = "part";
/// The key of the left neighbour's card, as a rank has read it.
const SEEN: &str = "seen";

/// Runs one rank, and returns the exit code. `environment` looks up a variable.
pub(crate) fn run_rank(environment: &dyn Fn(&str) -> Option<String>) -> u8 {
    let run = || {
        let owner = Owner {
            uid: os::effective_uid(),
            gid: os::effective_gid(),
        };
        let config = Config::from_environment(environment, owner)?;
        rank(config, std::process::id(), &mut io::stdout().lock())
    };
    match run() {
        Ok(()) => crate::exit::SUCCESS,
        Err(error) => {
            // Without stderr the message is lost; the exit code still reports the error.
            let _ = message::print(
                &message(&error),
                MessageFormat::Text,
                &mut io::stderr().lock(),
            );
            FAILURE
        }
    }
}

fn message(error: &DemoError) -> Message {
    let message = Message::new(&FAILED, format!("the demo's rank failed: {error}"));
    match error {
        DemoError::NotARank(_) => message.with_help("start it with `rally demo`"),
        _ => message,
    }
}

/// Runs one rank that has a configuration.
fn rank(config: Config, pid: u32, out: &mut dyn Write) -> Result<(), DemoError> {
    let mut pmix = Pmix::init(config, ANSWER_WAIT)?;
    let (rank, size, host) = (pmix.rank(), pmix.size(), pmix.host());
    let left = rank.checked_sub(1).unwrap_or(size - 1);
    let right = (rank + 1) % size;

    let part = integrate(rank, size);
    let card = format!("{host}:{pid}");
    pmix.put(CARD, Value::text(&card))?;
    pmix.put(PART, Value::Uint64(part.to_bits()))?;
    pmix.commit()?;
    pmix.fence()?;

    let seen = pmix.get(left, CARD)?;
    pmix.put(SEEN, seen)?;
    pmix.commit()?;
    pmix.fence()?;

    let read_by_right = text(right, SEEN, pmix.get(right, SEEN)?)?;
    if read_by_right != card {
        return Err(DemoError::Ring {
            right,
            expected: card,
            got: read_by_right,
        });
    }
    // Printed by a single write, so that the line stays intact.
    let line = format!(
        "rank {rank} of {size} is process {pid} on {host}, reads from {left}, is read by {right}, adds {part:.10}\n"
    );
    out.write_all(line.as_bytes())
        .and_then(|()| out.flush())
        .map_err(DemoError::Print)?;
    pmix.fence()?;

    if rank == 0 {
        let text = sum(&mut pmix)?;
        out.write_all(text.as_bytes())
            .and_then(|()| out.flush())
            .map_err(DemoError::Print)?;
    }
    pmix.finalize()
}

/// Returns the text that a rank has put.
fn text(rank: u32, key: &'static str, got: Value) -> Result<String, DemoError> {
    match got.as_text().and_then(|text| text.to_str().ok()) {
        Some(text) => Ok(text.to_owned()),
        None => Err(DemoError::Value { rank, key, got }),
    }
}

/// Returns the last line, which rank 0 prints.
fn sum(pmix: &mut Pmix) -> Result<String, DemoError> {
    let size = pmix.size();
    let mut pi = 0.0;
    let mut ring = 0_u64;
    for rank in 0..size {
        pi += match pmix.get(rank, PART)? {
            Value::Uint64(bits) => f64::from_bits(bits),
            got => {
                let key = PART;
                return Err(DemoError::Value { rank, key, got });
            }
        };
        ring += u64::from(rank);
    }
    let ranks = if size == 1 {
        "1 rank".to_owned()
    } else {
        format!("{size} ranks")
    };
    Ok(format!(
        "{ranks} closed the ring, the sum of their numbers is {ring}\n{ranks} computed pi: {pi:.10}, wrong by {:.0e}\n",
        (pi - std::f64::consts::PI).abs()
    ))
}

/// Integrates one rank's strips of 4 / (1 + x²) by the midpoint rule.
fn integrate(rank: u32, size: u32) -> f64 {
    let width = 1.0 / f64::from(STRIPS);
    let heights = (rank..STRIPS).step_by(size.max(1) as usize).map(|strip| {
        let x = (f64::from(strip) + 0.5) * width;
        4.0 / (x * x + 1.0)
    });
    heights.sum::<f64>() * width
}
