//! The demo: a parallel program inside our own binary, so that a job can be run where nothing else is installed.
//!
//! Every rank is a client of PMI-1 over the descriptor in `PMI_FD`, as an MPI program is. It
//!
//! 1. puts its card (host name and process number) and its part of the integral of 4 / (1 + x²) from 0 to 1;
//! 2. waits in a fence, gets its left neighbour's card and puts what it read there;
//! 3. waits in a fence, and checks that its right neighbour has read its own card: the ring is closed;
//! 4. prints a line. After a last fence rank 0 gets all parts and prints their sum, which is π.
//!
//! It uses blocking reads and writes: it is a program that we launch, not a part of the launcher.

mod pmi;

#[cfg(test)]
mod tests;

use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::OwnedFd,
};

use dvm::messages::{Kind, Message, Severity};

use self::pmi::{DemoError, Pmi};
use crate::{args::MessageFormat, report};

const FAILED: Kind = Kind {
    id: "demo/failed",
    severity: Severity::Error,
    explanation: "A rank of the demo program could not do its part: it was not started by `rally demo`, or what it got over \
the process management interface was not what another rank had put. The latter is a mistake of ours; please report it.",
};

/// Kinds of message of the demo program, for `rally help ID`.
pub(crate) const KINDS: &[&Kind] = &[&FAILED];

/// Strips of the integral, over all ranks.
const STRIPS: u32 = 1 << 22;

/// The exit code of a rank that could not do its part.
const FAILURE: u8 = 1;

/// What a rank knows about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    rank: u32,
    size: u32,
    host: String,
    pid: u32,
}

/// Runs one rank: `environment` looks a variable up, `open` makes a descriptor that we inherited ours. Gives the exit
/// code.
pub(crate) fn run_rank(
    environment: &dyn Fn(&str) -> Option<String>,
    open: &dyn Fn(i32) -> Result<OwnedFd, os::Error>,
) -> u8 {
    let run = || {
        let (place, number) = place(environment)?;
        let fd = open(number).map_err(|error| DemoError::Descriptor { number, error })?;
        rank(&place, File::from(fd), &mut io::stdout().lock())
    };
    match run() {
        Ok(()) => crate::exit::SUCCESS,
        Err(error) => {
            // Where stderr is gone there is nobody to tell; the exit code says the rest.
            let _ = report::print(
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
        DemoError::NotARank { .. } => message.with_help("start it with `rally demo`"),
        _ => message,
    }
}

fn place(environment: &dyn Fn(&str) -> Option<String>) -> Result<(Place, i32), DemoError> {
    let text = |variable| environment(variable).ok_or(DemoError::NotARank { variable });
    let number = |variable| {
        text(variable)?
            .parse::<u32>()
            .map_err(|_| DemoError::NotARank { variable })
    };
    let (rank, size) = (number("PMI_RANK")?, number("PMI_SIZE")?);
    if rank >= size {
        return Err(DemoError::NotARank {
            variable: "PMI_RANK",
        });
    }
    let fd = text("PMI_FD")?
        .parse()
        .map_err(|_| DemoError::NotARank { variable: "PMI_FD" })?;
    let host = environment("PMI_HOSTNAME").unwrap_or_else(|| "localhost".to_owned());
    let pid = std::process::id();
    Ok((
        Place {
            rank,
            size,
            host,
            pid,
        },
        fd,
    ))
}

/// What one rank does.
fn rank<S: Read + Write>(place: &Place, stream: S, out: &mut dyn Write) -> Result<(), DemoError> {
    let Place {
        rank,
        size,
        ref host,
        pid,
    } = *place;
    let left = (rank + size - 1) % size;
    let right = (rank + 1) % size;
    let mut pmi = Pmi::connect(stream)?;

    let part = integrate(rank, size);
    let card = format!("{host}:{pid}");
    pmi.put(&format!("card-{rank}"), &card)?;
    // The bits, so that nothing is rounded on the way.
    pmi.put(&format!("part-{rank}"), &format!("{:016x}", part.to_bits()))?;
    pmi.fence()?;

    let seen = pmi.get(&format!("card-{left}"))?;
    pmi.put(&format!("seen-by-{rank}"), &seen)?;
    pmi.fence()?;

    let read_by_right = pmi.get(&format!("seen-by-{right}"))?;
    if read_by_right != card {
        return Err(DemoError::Ring {
            right,
            expected: card,
            got: read_by_right,
        });
    }
    // One write, so that the line stays whole.
    let line = format!(
        "rank {rank} of {size} is process {pid} on {host}, reads from {left}, is read by {right}, adds {part:.10}\n"
    );
    out.write_all(line.as_bytes())
        .and_then(|()| out.flush())
        .map_err(DemoError::Print)?;
    pmi.fence()?;

    if rank == 0 {
        let text = sum(&mut pmi, size)?;
        out.write_all(text.as_bytes())
            .and_then(|()| out.flush())
            .map_err(DemoError::Print)?;
    }
    pmi.finalize()
}

/// What rank 0 says at the end.
fn sum<S: Read + Write>(pmi: &mut Pmi<S>, size: u32) -> Result<String, DemoError> {
    let mut pi = 0.0;
    let mut ring = 0_u64;
    for rank in 0..size {
        let key = format!("part-{rank}");
        let bits = pmi.get(&key)?;
        let bits =
            u64::from_str_radix(&bits, 16).map_err(|_| DemoError::Value { key, got: bits })?;
        pi += f64::from_bits(bits);
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

/// One rank's strips of the integral of 4 / (1 + x²), by the midpoint rule.
fn integrate(rank: u32, size: u32) -> f64 {
    let width = 1.0 / f64::from(STRIPS);
    let heights = (rank..STRIPS).step_by(size.max(1) as usize).map(|strip| {
        let x = (f64::from(strip) + 0.5) * width;
        4.0 / (x * x + 1.0)
    });
    heights.sum::<f64>() * width
}
