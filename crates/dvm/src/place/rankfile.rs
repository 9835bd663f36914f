//! Rankfiles: a list of the node and, optionally, the cores of every rank.
//!
//! ```text
//! rank 0=n01 slot=1:0        package 1, core 0 of it
//! rank 1=n01 slot=0-3,8      cores by logical number in the node
//! rank 2=+n1 slot=0:*        all cores of package 0 on the second node of the allocation
//! rank 3=n02                 the whole node
//! # comments, and blank lines
//! ```

use std::fmt;

use base::{CpuSet, ParseSetError, Rank};
use thiserror::Error;

use super::{
    MAX_RANKS,
    policy::{Cores, HostRef, RankLine, Rankfile, SlotSpec},
};

/// Maximum size of a rankfile, in bytes.
pub const MAX_RANKFILE: usize = 1 << 30;

/// Error in a rankfile. `Display` is the whole message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct RankfileError {
    pub origin: String,
    /// Line number, from 1. `None` if the error concerns the whole file.
    pub line: Option<u32>,
    pub problem: RankfileProblem,
}

/// Problem in a rankfile.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RankfileProblem {
    #[error("it is too long, with {length} bytes")]
    TooLong { length: usize },
    #[error("no rank is named")]
    Empty,
    #[error("a line is `rank N=HOST slot=CORES`")]
    NotALine,
    #[error("`{word}` is not a rank below {max}", max = MAX_RANKS)]
    BadRank { word: String },
    #[error("`{word}` is not a node: use a name, or `+n0` for the first of the allocation")]
    BadHost { word: String },
    #[error("`{word}` is not a list of cores ({why})")]
    BadCores { word: String, why: ParseSetError },
    #[error("`{word}` is not a package")]
    BadPackage { word: String },
}

impl RankfileError {
    /// Returns the stable name of the message.
    #[must_use]
    pub const fn id(&self) -> &'static str {
        "place/bad-rankfile"
    }
}

impl fmt::Display for RankfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot read the ranks of {}", self.origin)?;
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        write!(f, ": {}", self.problem)
    }
}

/// Reads a rankfile. `origin` is the file's name for messages.
///
/// # Errors
///
/// [`RankfileError`] with the number of the line.
pub fn rankfile(text: &str, origin: &str) -> Result<Rankfile, RankfileError> {
    let error = |line, problem| RankfileError {
        origin: origin.to_owned(),
        line,
        problem,
    };
    if text.len() > MAX_RANKFILE {
        return Err(error(None, RankfileProblem::TooLong { length: text.len() }));
    }
    let mut lines = Vec::new();
    for (number, line) in (1_u32..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            lines.push(read(line, number).map_err(|problem| error(Some(number), problem))?);
        }
    }
    if lines.is_empty() {
        Err(error(None, RankfileProblem::Empty))
    } else {
        Ok(Rankfile {
            origin: origin.to_owned(),
            lines,
        })
    }
}

fn read(line: &str, number: u32) -> Result<RankLine, RankfileProblem> {
    let rest = line
        .strip_prefix("rank")
        .filter(|rest| rest.starts_with([' ', '\t']))
        .ok_or(RankfileProblem::NotALine)?;
    let (rank, rest) = rest.split_once('=').ok_or(RankfileProblem::NotALine)?;
    let rank = rank.trim();
    let bad_rank = || RankfileProblem::BadRank {
        word: rank.to_owned(),
    };
    let rank = rank
        .parse::<u32>()
        .ok()
        .filter(|rank| *rank < MAX_RANKS)
        .ok_or_else(bad_rank)?;
    let rest = rest.trim_start();
    let (host, slots) = rest.split_once([' ', '\t']).unwrap_or((rest, ""));
    let slots = slots.trim();
    let slots = if slots.is_empty() {
        Vec::new()
    } else {
        let list = slots
            .strip_prefix("slots")
            .or_else(|| slots.strip_prefix("slot"))
            .map(str::trim_start);
        let list = list
            .and_then(|list| list.strip_prefix('='))
            .ok_or(RankfileProblem::NotALine)?;
        read_slots(list.trim())?
    };
    Ok(RankLine {
        number,
        rank: Rank(rank),
        host: read_host(host)?,
        slots,
    })
}

fn read_host(word: &str) -> Result<HostRef, RankfileProblem> {
    let bad = || RankfileProblem::BadHost {
        word: word.to_owned(),
    };
    match word.strip_prefix("+n").or_else(|| word.strip_prefix("+N")) {
        Some(number) => number.parse().map(HostRef::Relative).map_err(|_| bad()),
        None if word.is_empty() || word.starts_with('+') => Err(bad()),
        None => Ok(HostRef::Name(word.to_owned())),
    }
}

/// Reads a list of cores. A package applies until the next one: `1:0,1` is cores 0 and 1 of package 1.
fn read_slots(text: &str) -> Result<Vec<SlotSpec>, RankfileProblem> {
    let mut specs = Vec::<SlotSpec>::new();
    let mut package = None;
    for item in text.split(',') {
        let mut cores = item.trim();
        if let Some((word, rest)) = cores.split_once(':') {
            let number = word.trim_start_matches(['p', 'P', 's', 'S']).parse::<u32>();
            package = Some(number.map_err(|_| RankfileProblem::BadPackage {
                word: word.to_owned(),
            })?);
            cores = rest;
        }
        let cores = if cores == "*" {
            Cores::All
        } else {
            let bad = |why| RankfileProblem::BadCores {
                word: item.to_owned(),
                why,
            };
            let set = cores.parse::<CpuSet>().map_err(bad)?;
            if set.is_empty() {
                return Err(bad(ParseSetError::ExpectedNumber { position: 0 }));
            }
            Cores::These(set)
        };
        specs.push(SlotSpec { package, cores });
    }
    Ok(specs)
}
