//! Grammars of `--map-by`, `--rank-by` and `--bind-to`. They are Open MPI's, with MPICH's words as aliases.
//!
//! ```text
//! map-by   POLICY[:MODIFIER…]  |  :MODIFIER…
//!          POLICY    slot | node | core | hwthread | l1cache | l2cache | l3cache | numa | package
//!                    | ppr:N:RESOURCE | pe-list=LIST | seq | rankfile
//!          MODIFIER  PE=N | N (after core and hwthread) | SPAN | OVERSUBSCRIBE | NOOVERSUBSCRIBE
//!                    | HWTCPUS | CORECPUS | ORDERED | FILE=PATH (see `map_by_file`)
//! rank-by  slot | node | fill | span
//! bind-to  none | core | hwthread | l1cache | l2cache | l3cache | numa | package [:N][:overload-allowed]
//! ```
//!
//! Words are case-insensitive. `--rank-by` also accepts a level, such as `numa`. `N` after a wider level than a core
//! groups that many objects.

use std::fmt;

use base::{CpuSet, HostList, Level, ParseSetError};
use thiserror::Error;

use super::policy::{
    BindList, BindTarget, BindTo, CpuUnit, MapBy, MapTo, Overload, Oversubscribe, Per, RankBy,
    Rankfile, Sharing, Span,
};

/// Maximum number of cores for one proc.
const MAX_CPUS_PER_PROC: u32 = base::MAX_PUS;

/// Error in a policy. `Display` is the whole message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct PolicyError {
    /// Name of the option, such as `map-by`.
    pub option: &'static str,
    pub text: String,
    pub problem: PolicyProblem,
}

/// Problem in a policy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PolicyProblem {
    #[error("`{word}` is not known")]
    Unknown {
        word: String,
        nearest: Option<&'static str>,
        known: &'static str,
    },
    #[error("`{word}` is not a number from 1 to {max}", max = MAX_CPUS_PER_PROC)]
    BadNumber { word: String },
    #[error("a policy of this kind is `ppr:N:RESOURCE`")]
    BadPpr,
    #[error("`{word}` has no meaning for `{policy}`")]
    NotHere { word: String, policy: String },
    #[error("{0}")]
    List(ParseSetError),
    #[error("the list is empty")]
    EmptyList,
    #[error("`{word}` is given twice")]
    Twice { word: String },
}

impl PolicyError {
    /// Returns the stable name of the message.
    #[must_use]
    pub const fn id(&self) -> &'static str {
        "place/bad-policy"
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cannot read `--{} {}`: {}",
            self.option, self.text, self.problem
        )?;
        if let PolicyProblem::Unknown { nearest, known, .. } = &self.problem {
            match nearest {
                Some(nearest) => write!(f, "\n  help:   did you mean `{nearest}`?")?,
                None => write!(f, "\n  help:   known are {known}")?,
            }
        }
        Ok(())
    }
}

const MAP_WORDS: [&str; 14] = [
    "slot", "node", "core", "hwthread", "l1cache", "l2cache", "l3cache", "numa", "package",
    "socket", "ppr", "pe-list", "seq", "rankfile",
];
const MAP_KNOWN: &str = "slot, node, core, hwthread, l1cache, l2cache, l3cache, numa, package, ppr, pe-list, seq, rankfile";
const MODIFIERS: [&str; 10] = [
    "PE",
    "SPAN",
    "OVERSUBSCRIBE",
    "NOOVERSUBSCRIBE",
    "HWTCPUS",
    "CORECPUS",
    "ORDERED",
    "FILE",
    "INHERIT",
    "NOINHERIT",
];
const MODIFIERS_KNOWN: &str =
    "PE=N, SPAN, OVERSUBSCRIBE, NOOVERSUBSCRIBE, HWTCPUS, CORECPUS, ORDERED, FILE=PATH";
const LEVEL_WORDS: [&str; 9] = [
    "node", "core", "hwthread", "l1cache", "l2cache", "l3cache", "numa", "package", "socket",
];
const LEVELS_KNOWN: &str = "node, core, hwthread, l1cache, l2cache, l3cache, numa, package";
const RANK_WORDS: [&str; 4] = ["slot", "node", "fill", "span"];
const RANK_KNOWN: &str =
    "slot, node, fill, span, core, hwthread, l1cache, l2cache, l3cache, numa, package";
const BIND_WORDS: [&str; 9] = [
    "none", "core", "hwthread", "l1cache", "l2cache", "l3cache", "numa", "package", "socket",
];
const BIND_KNOWN: &str = "none, core, hwthread, l1cache, l2cache, l3cache, numa, package";
const BIND_MODIFIERS: [&str; 5] = [
    "overload-allowed",
    "no-overload",
    "if-supported",
    "report",
    "limit",
];
const BIND_MODIFIERS_KNOWN: &str = "N, overload-allowed, no-overload, if-supported";

/// Returns the level that a word names; a level has several names.
fn level(word: &str) -> Option<Level> {
    Some(match word {
        "core" | "cores" => Level::Core,
        "hwthread" | "hwthreads" | "hwt" | "pu" | "thread" => Level::Pu,
        "l1cache" | "l1" => Level::L1,
        "l2cache" | "l2" => Level::L2,
        "l3cache" | "l3" => Level::L3,
        "numa" | "numanode" => Level::Numa,
        "package" | "socket" | "pkg" => Level::Package,
        _ => return None,
    })
}

fn unknown(word: &str, words: &[&'static str], known: &'static str) -> PolicyProblem {
    let meant: Option<&'static str> = message::nearest(word, words.iter().copied());
    PolicyProblem::Unknown {
        word: word.to_owned(),
        nearest: meant,
        known,
    }
}

fn number(word: &str) -> Result<u32, PolicyProblem> {
    let number = word
        .parse::<u32>()
        .ok()
        .filter(|number| (1..=MAX_CPUS_PER_PROC).contains(number));
    number.ok_or_else(|| PolicyProblem::BadNumber {
        word: word.to_owned(),
    })
}

/// Returns the file that `rankfile:FILE=path` or `seq:FILE=path` names, as typed.
#[must_use]
pub fn map_by_file(text: &str) -> Option<&str> {
    let at = text.to_ascii_lowercase().find(":file=")?;
    text.get(at + ":file=".len()..)
        .filter(|file| !file.is_empty())
}

/// Reads `--map-by`. Under `rankfile` and `seq`, the list in the result is empty: the caller reads the file.
///
/// # Errors
///
/// [`PolicyError`] with the part that is not understood.
pub fn map_by(text: &str) -> Result<MapBy, PolicyError> {
    read_map_by(text).map_err(|problem| PolicyError {
        option: "map-by",
        text: text.to_owned(),
        problem,
    })
}

fn read_map_by(text: &str) -> Result<MapBy, PolicyProblem> {
    // A path may contain colons and capitals, so it is the last modifier.
    let lower = text.to_ascii_lowercase();
    let lower = lower
        .find(":file=")
        .map_or(lower.as_str(), |at| lower.get(..at).unwrap_or_default());
    let mut words = lower.split(':');
    let policy = words.next().unwrap_or_default();
    let mut sharing = Sharing::Shared;
    let to = match policy {
        "" => None,
        "slot" => Some(MapTo::Slot),
        "node" => Some(MapTo::Node),
        "seq" => Some(MapTo::Sequence(HostList::new())),
        "rankfile" => Some(MapTo::Rankfile(Rankfile::default())),
        "ppr" => {
            let (Some(count), Some(resource)) = (words.next(), words.next()) else {
                return Err(PolicyProblem::BadPpr);
            };
            let per = match resource {
                "node" | "n" => Per::Node,
                word => Per::Object(
                    level(word).ok_or_else(|| unknown(word, &LEVEL_WORDS, LEVELS_KNOWN))?,
                ),
            };
            Some(MapTo::Ppr {
                count: number(count)?,
                per,
            })
        }
        word => match word.strip_prefix("pe-list=") {
            Some(list) => {
                let list = list.parse::<CpuSet>().map_err(PolicyProblem::List)?;
                if list.is_empty() {
                    return Err(PolicyProblem::EmptyList);
                }
                Some(MapTo::PeList { list, sharing })
            }
            None => Some(MapTo::Object(
                level(word).ok_or_else(|| unknown(word, &MAP_WORDS, MAP_KNOWN))?,
            )),
        },
    };
    let mut map = MapBy {
        to,
        cpus_per_proc: None,
        group: None,
        span: Span::PerNode,
        unit: None,
        oversubscribe: None,
    };
    for word in words {
        match word.split_once('=').unwrap_or((word, "")) {
            ("pe", value) => set(&mut map.cpus_per_proc, number(value)?, word)?,
            ("span", "") => map.span = Span::AllNodes,
            ("oversubscribe", "") => set(&mut map.oversubscribe, Oversubscribe::Allow, word)?,
            ("nooversubscribe", "") => set(&mut map.oversubscribe, Oversubscribe::Refuse, word)?,
            ("hwtcpus", "") => set(&mut map.unit, CpuUnit::Pu, word)?,
            ("corecpus", "") => set(&mut map.unit, CpuUnit::Core, word)?,
            ("ordered", "") if matches!(map.to, Some(MapTo::PeList { .. })) => {
                sharing = Sharing::InTurn
            }
            ("ordered", "") => return Err(not_here(word, policy)),
            // Spawned jobs inherit no policies, so these words have no effect.
            ("inherit" | "noinherit" | "", "") => {}
            (digits, "") if digits.bytes().all(|byte| byte.is_ascii_digit()) => match map.to {
                Some(MapTo::Object(Level::Core | Level::Pu)) => {
                    set(&mut map.cpus_per_proc, number(digits)?, word)?;
                }
                Some(MapTo::Object(_)) => set(&mut map.group, number(digits)?, word)?,
                _ => return Err(not_here(word, policy)),
            },
            _ => return Err(unknown(word, &MODIFIERS, MODIFIERS_KNOWN)),
        }
    }
    if let Some(MapTo::PeList {
        sharing: chosen, ..
    }) = &mut map.to
    {
        *chosen = sharing;
    }
    Ok(map)
}

fn not_here(word: &str, policy: &str) -> PolicyProblem {
    PolicyProblem::NotHere {
        word: word.to_owned(),
        policy: policy.to_owned(),
    }
}

fn set<T: PartialEq>(place: &mut Option<T>, value: T, word: &str) -> Result<(), PolicyProblem> {
    match place {
        Some(known) if *known != value => Err(PolicyProblem::Twice {
            word: word.to_owned(),
        }),
        Some(_) => Ok(()),
        None => {
            *place = Some(value);
            Ok(())
        }
    }
}

/// Reads `--rank-by`.
///
/// # Errors
///
/// [`PolicyError`] with the nearest known word.
pub fn rank_by(text: &str) -> Result<RankBy, PolicyError> {
    match text.to_ascii_lowercase().as_str() {
        "slot" => Ok(RankBy::Slot),
        "node" => Ok(RankBy::Node),
        "fill" => Ok(RankBy::Fill),
        "span" => Ok(RankBy::Span),
        word if level(word).is_some() => Ok(level(word).map_or(RankBy::Slot, RankBy::Object)),
        word => {
            let problem = unknown(word, &RANK_WORDS, RANK_KNOWN);
            Err(PolicyError {
                option: "rank-by",
                text: text.to_owned(),
                problem,
            })
        }
    }
}

/// Maximum number of entries in a list of bindings.
const MAX_BINDINGS: usize = 1 << 16;

/// Reads `--bind-list`: `each`, or `[numa:]ITEM,…` with items such as `2`, `0-3` and `0+2`, in the kernel's numbers.
///
/// # Errors
///
/// [`PolicyError`] with the part that is not understood.
pub fn bind_list(text: &str) -> Result<BindList, PolicyError> {
    read_bind_list(text).map_err(|problem| PolicyError {
        option: "bind-list",
        text: text.to_owned(),
        problem,
    })
}

fn read_bind_list(text: &str) -> Result<BindList, PolicyProblem> {
    if text == "each" {
        return Ok(BindList::Each);
    }
    let numa = text.strip_prefix("numa:");
    let item = |item: &str| {
        let set = item.replace('+', ",").parse::<CpuSet>();
        let set = set.map_err(PolicyProblem::List)?;
        if set.is_empty() {
            return Err(PolicyProblem::EmptyList);
        }
        Ok(set)
    };
    let sets = numa.unwrap_or(text).split(',').take(MAX_BINDINGS).map(item);
    let sets = sets.collect::<Result<Vec<_>, _>>()?;
    Ok(match numa {
        Some(_) => BindList::Numa(sets),
        None => BindList::Pus(sets),
    })
}

/// Reads `--bind-to`. `machine`, `board` and `node` bind to all PUs, which is the same as `none`.
///
/// # Errors
///
/// [`PolicyError`] with the part that is not understood.
pub fn bind_to(text: &str) -> Result<BindTo, PolicyError> {
    read_bind_to(text).map_err(|problem| PolicyError {
        option: "bind-to",
        text: text.to_owned(),
        problem,
    })
}

fn read_bind_to(text: &str) -> Result<BindTo, PolicyProblem> {
    let lower = text.to_ascii_lowercase();
    let mut words = lower.split(':');
    let policy = words.next().unwrap_or_default();
    let target = match policy {
        "none" | "machine" | "board" | "node" => BindTarget::None,
        word => {
            BindTarget::Object(level(word).ok_or_else(|| unknown(word, &BIND_WORDS, BIND_KNOWN))?)
        }
    };
    let mut bind = BindTo::from(target);
    for word in words {
        match word {
            "overload-allowed" => bind.overload = Overload::Allow,
            "no-overload" => bind.overload = Overload::Refuse,
            // Where binding is impossible, we report that and continue. The report of bindings is a separate option.
            "if-supported" | "report" | "" => {}
            digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => match target {
                BindTarget::Object(Level::Core | Level::Pu) => {
                    set(&mut bind.count, number(digits)?, word)?
                }
                BindTarget::Object(_) => set(&mut bind.group, number(digits)?, word)?,
                BindTarget::None | BindTarget::List => {
                    return Err(not_here(word, policy));
                }
            },
            word => return Err(unknown(word, &BIND_MODIFIERS, BIND_MODIFIERS_KNOWN)),
        }
    }
    Ok(bind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read_and_written() {
        for (text, again) in [
            ("slot", "slot"),
            ("NODE", "node"),
            ("socket", "package"),
            ("core:2", "core:PE=2"),
            (":PE=2", ":PE=2"),
            (
                "package:pe=4:span:oversubscribe",
                "package:PE=4:SPAN:OVERSUBSCRIBE",
            ),
            ("ppr:2:L3:nooversubscribe", "ppr:2:l3cache:NOOVERSUBSCRIBE"),
            ("ppr:1:node:PE=3", "ppr:1:node:PE=3"),
            ("pe-list=0,2-3:ordered", "pe-list=0,2-3:ORDERED"),
            ("hwthread:HWTCPUS", "hwthread:HWTCPUS"),
            ("rankfile:file=/a:b", "rankfile"),
            ("seq", "seq"),
        ] {
            let read = map_by(text).unwrap();
            assert_eq!(read.to_string(), again);
            assert_eq!(map_by(again).unwrap(), read);
        }
        for (text, again) in [
            ("core", "core"),
            ("none", "none"),
            ("socket", "package"),
            ("core:2", "core:2"),
            ("machine", "none"),
            ("numa:overload-allowed", "numa:overload-allowed"),
        ] {
            assert_eq!(bind_to(text).unwrap().to_string(), again);
        }
        assert_eq!(rank_by("Fill"), Ok(RankBy::Fill));
        assert_eq!(map_by_file("rankfile:FILE=/a:B"), Some("/a:B"));
    }

    #[test]
    fn errors_name_the_nearest_word() {
        let map = |text: &str| map_by(text).unwrap_err().to_string();
        insta::assert_snapshot!(map("socekt"), @"
        cannot read `--map-by socekt`: `socekt` is not known
          help:   did you mean `socket`?
        ");
        insta::assert_snapshot!(map("gpu"), @"
        cannot read `--map-by gpu`: `gpu` is not known
          help:   known are slot, node, core, hwthread, l1cache, l2cache, l3cache, numa, package, ppr, pe-list, seq, rankfile
        ");
        insta::assert_snapshot!(map("core:oversubscrib"), @"
        cannot read `--map-by core:oversubscrib`: `oversubscrib` is not known
          help:   did you mean `OVERSUBSCRIBE`?
        ");
        insta::assert_snapshot!(map("ppr:2"), @"cannot read `--map-by ppr:2`: a policy of this kind is `ppr:N:RESOURCE`");
        insta::assert_snapshot!(map("ppr:0:node"), @"cannot read `--map-by ppr:0:node`: `0` is not a number from 1 to 65536");
        insta::assert_snapshot!(map("slot:2"), @"cannot read `--map-by slot:2`: `2` has no meaning for `slot`");
        insta::assert_snapshot!(map("slot:PE=1:PE=2"), @"cannot read `--map-by slot:PE=1:PE=2`: `pe=2` is given twice");
        insta::assert_snapshot!(map("pe-list=1-"), @"cannot read `--map-by pe-list=1-`: expected a number at position 2");
        insta::assert_snapshot!(bind_to("cores:overload").unwrap_err(), @"
        cannot read `--bind-to cores:overload`: `overload` is not known
          help:   known are N, overload-allowed, no-overload, if-supported
        ");
        insta::assert_snapshot!(rank_by("gpu").unwrap_err(), @"
        cannot read `--rank-by gpu`: `gpu` is not known
          help:   known are slot, node, fill, span, core, hwthread, l1cache, l2cache, l3cache, numa, package
        ");
    }
}
