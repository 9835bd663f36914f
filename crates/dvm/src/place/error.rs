//! Errors that prevent the placement of a job, and notes about a job that was placed.

use std::fmt;

use base::{HostList, Level, Rank};
use serde::{Deserialize, Serialize};

use super::{MAX_RANKS, policy::CpuUnit, policy::level_word};

/// Reason why a job cannot be placed. `Display` is the whole message: headline, facts, help.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Error {
    /// The request has no app.
    NoApps,
    /// The allocation has no node.
    NoNodes,
    /// The user gave `-n 0`. `app` is the position on the command line.
    NoProcs {
        app: u32,
    },
    /// The job would have more than [`MAX_RANKS`] ranks.
    TooManyProcs {
        asked: u64,
    },
    /// The nodes accept fewer procs than the job needs, because of this limit.
    NotEnoughSlots {
        asked: u64,
        slots: u64,
        nodes: HostList,
        limit: SlotLimit,
    },
    /// `-n` asks for more procs than `ppr` has places.
    NotEnoughPlaces {
        asked: u64,
        places: u64,
        policy: String,
    },
    /// The user asked for a binding, and a node has fewer cores than its procs need.
    NotEnoughCpus {
        node: String,
        procs: u32,
        each: u32,
        available: u32,
        unit: CpuUnit,
        bind: String,
    },
    /// The nodes do not have enough cores to give each proc several.
    NotEnoughRoom {
        nodes: HostList,
        procs: u64,
        each: u32,
        room: u64,
        unit: CpuUnit,
    },
    /// `PE=n` is larger than any object of the level. `level` is `None` if procs are mapped to the whole node.
    ObjectTooSmall {
        node: String,
        level: Option<Level>,
        each: u32,
        largest: u32,
        unit: CpuUnit,
    },
    /// No CPU of this node can be used.
    NoCpus {
        node: String,
    },
    UnknownHost {
        name: String,
        nearest: Option<String>,
    },
    /// A rankfile does not contain a rank, or contains it twice.
    RankMissing {
        rank: Rank,
    },
    RankTwice {
        rank: Rank,
    },
    /// A rankfile or PE list names a core that the node does not have or that we may not use.
    NoSuchCpu {
        node: String,
        number: u32,
        package: Option<u32>,
        available: u32,
        unit: CpuUnit,
    },
    /// A list of bindings has an entry without a usable PU.
    NoUsablePus {
        node: String,
        wanted: String,
        usable: String,
    },
    /// A rankfile requests something impossible.
    InFile {
        /// Name of the file in quotes, for messages.
        file: String,
        /// Line number. `None` if the error concerns the whole file.
        line: Option<u32>,
        error: Box<Self>,
    },
    /// A host was given by number (`+n7`), and the allocation has fewer nodes.
    NoSuchNode {
        number: u32,
        nodes: u32,
    },
    /// A policy for the whole job (`rankfile`, `seq`, `pe-list`) was given to one app.
    NotPerApp {
        policy: String,
    },
    /// Two policies exclude each other.
    Conflict {
        first: String,
        second: String,
    },
}

/// Limit that a number of procs has exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SlotLimit {
    Slots,
    /// The user forbade oversubscription, also of implicit slots.
    Refused,
    /// Limit that holds even with `--oversubscribe`.
    MaxSlots,
}

/// Condition that a user should know about a job that was placed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Note {
    /// These nodes have more procs than cores for them. None of the procs is bound.
    Unbound {
        nodes: HostList,
        procs: u32,
        cpus: u32,
        unit: CpuUnit,
    },
    /// These nodes have more procs than CPUs granted by the cgroups. `millis` is the grant of all these nodes, in
    /// thousandths of a CPU.
    OverQuota {
        nodes: HostList,
        procs: u32,
        millis: u32,
    },
}

impl Error {
    /// Returns the stable name of the message.
    #[must_use]
    pub const fn id(&self) -> &'static str {
        match self {
            Self::NoApps => "place/no-apps",
            Self::NoNodes => "place/no-nodes",
            Self::NoProcs { .. } => "place/no-procs",
            Self::TooManyProcs { .. } => "place/too-many-procs",
            Self::NotEnoughSlots { .. } => "place/not-enough-slots",
            Self::NotEnoughPlaces { .. } => "place/not-enough-places",
            Self::NotEnoughCpus { .. } => "place/not-enough-cpus",
            Self::NotEnoughRoom { .. } => "place/not-enough-room",
            Self::ObjectTooSmall { .. } => "place/object-too-small",
            Self::NoCpus { .. } => "place/no-cpus",
            Self::UnknownHost { .. } => "place/unknown-host",
            Self::InFile { error, .. } => error.id(),
            Self::RankMissing { .. } => "place/rank-missing",
            Self::RankTwice { .. } => "place/rank-twice",
            Self::NoSuchCpu { .. } => "place/no-such-cpu",
            Self::NoUsablePus { .. } => "place/no-usable-pus",
            Self::NoSuchNode { .. } => "place/no-such-node",
            Self::NotPerApp { .. } => "place/not-per-app",
            Self::Conflict { .. } => "place/conflict",
        }
    }

    /// Returns the headline of the message.
    #[must_use]
    pub fn what(&self) -> String {
        match self {
            Self::NoApps => "the job has no program".to_owned(),
            Self::NoNodes => "the allocation has no node".to_owned(),
            Self::NoProcs { app } => {
                format!("app {app} has no proc: the number of procs must be at least 1")
            }
            Self::TooManyProcs { asked } => format!("a job of {asked} procs is too large"),
            Self::NotEnoughSlots { asked, slots, .. } => {
                format!(
                    "not enough slots: the job needs {asked}, there {}",
                    is_are(*slots)
                )
            }
            Self::NotEnoughPlaces {
                asked,
                places,
                policy,
            } => {
                format!("`{policy}` makes room for {places} procs, the job has {asked}")
            }
            Self::NotEnoughCpus {
                node,
                procs,
                each,
                available,
                unit,
                bind,
            } => {
                let need = u64::from(*procs) * u64::from(*each);
                format!(
                    "cannot bind to {bind} on `{node}`: its {procs} procs need {need} {}, {available} can be used",
                    unit.word(2)
                )
            }
            Self::NotEnoughRoom {
                procs,
                each,
                room,
                unit,
                ..
            } => {
                let units = unit.word(*each);
                format!("cannot give {procs} procs {each} {units} each: there is room for {room}")
            }
            Self::ObjectTooSmall {
                node,
                level,
                each,
                largest,
                unit,
            } => {
                let object = level.map_or("node", level_word);
                format!(
                    "no {object} of `{node}` has {each} {} for one proc: the largest has {largest}",
                    unit.word(2)
                )
            }
            Self::NoCpus { node } => format!("no CPU of `{node}` can be used"),
            Self::UnknownHost { name, .. } => format!("`{name}` is not in the allocation"),
            Self::RankMissing { rank } => {
                format!("the rankfile does not say where rank {rank} goes")
            }
            Self::RankTwice { rank } => format!("the rankfile names rank {rank} twice"),
            Self::InFile { error, .. } => error.what(),
            Self::NoSuchCpu {
                node,
                number,
                package: None,
                unit,
                ..
            } => {
                format!("`{node}` has no {} number {number}", unit.word(1))
            }
            Self::NoSuchCpu {
                node,
                number,
                package: Some(package),
                unit,
                ..
            } => {
                format!(
                    "package {package} of `{node}` has no {} number {number}",
                    unit.word(1)
                )
            }
            Self::NoUsablePus { node, wanted, .. } => {
                format!("none of `{wanted}` in the list of bindings may be used on `{node}`")
            }
            Self::NoSuchNode { number, nodes } => {
                format!("there is no node `+n{number}`: the allocation has {nodes}")
            }
            Self::NotPerApp { policy } => {
                format!("`{policy}` is for a whole job, not for one of its apps")
            }
            Self::Conflict { first, second } => {
                format!("`{first}` and `{second}` exclude each other")
            }
        }
    }

    /// Returns the facts with their labels.
    #[must_use]
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::NotEnoughSlots { nodes, .. } | Self::NotEnoughRoom { nodes, .. } => {
                vec![("nodes", format!("`{nodes}`"))]
            }
            Self::TooManyProcs { .. } => vec![("limit", MAX_RANKS.to_string())],
            Self::NoSuchCpu {
                available, unit, ..
            } => {
                vec![(
                    "usable",
                    format!("{available} {}, numbered from 0", unit.word(*available)),
                )]
            }
            Self::NoUsablePus { usable, .. } => {
                vec![("usable", format!("hardware threads {usable}"))]
            }
            Self::InFile { file, line, error } => {
                let place = match line {
                    Some(line) => format!("{file}, line {line}"),
                    None => file.clone(),
                };
                let mut facts = error.facts();
                facts.insert(0, ("file", place));
                facts
            }
            _ => Vec::new(),
        }
    }

    /// Returns advice on how to avoid the error.
    #[must_use]
    pub fn help(&self) -> Option<String> {
        Some(match self {
            Self::NotEnoughSlots {
                slots: 0,
                limit: SlotLimit::Slots,
                ..
            } => "raise the numbers in `--host` or the hostfile, or pass `--oversubscribe`"
                .to_owned(),
            Self::NotEnoughSlots {
                slots,
                limit: SlotLimit::Slots,
                ..
            } => format!(
                "pass `-n {slots}`, raise the numbers in `--host` or the hostfile, or pass `--oversubscribe`"
            ),
            Self::NotEnoughSlots {
                slots,
                limit: SlotLimit::Refused,
                ..
            } => {
                format!("pass `-n {slots}`, or leave `NOOVERSUBSCRIBE` out")
            }
            Self::NotEnoughSlots {
                limit: SlotLimit::MaxSlots,
                ..
            } => "raise `max_slots` in the hostfile; not even `--oversubscribe` exceeds it"
                .to_owned(),
            Self::NotEnoughPlaces { places, .. } => format!("pass `-n {places}` or leave `-n` out"),
            Self::NotEnoughCpus { bind, .. } => {
                format!(
                    "pass `--bind-to none`, or `--bind-to {bind}:overload-allowed` to share them"
                )
            }
            Self::NotEnoughRoom { room, .. } => {
                format!("pass `-n {room}`, a smaller `PE=`, or `--oversubscribe` to run unbound")
            }
            Self::ObjectTooSmall { largest, .. } => {
                format!("pass `PE={largest}` or less, or map by a wider object")
            }
            Self::NoCpus { .. } => {
                "compare `--cpu-set` with the affinity mask and the cgroup's cpuset".to_owned()
            }
            Self::UnknownHost {
                nearest: Some(nearest),
                ..
            } => format!("did you mean `{nearest}`?"),
            Self::RankMissing { .. } => "add a line for it, or pass a smaller `-n`".to_owned(),
            Self::InFile { error, .. } => return error.help(),
            Self::NotPerApp { policy } => {
                format!("pass `--map-by {policy}` before the first program")
            }
            _ => return None,
        })
    }
}

fn is_are(count: u64) -> String {
    if count == 1 {
        "is 1".to_owned()
    } else {
        format!("are {count}")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what())?;
        for (label, fact) in self.facts() {
            write!(f, "\n  {:<7} {fact}", format!("{label}:"))?;
        }
        if let Some(help) = self.help() {
            write!(f, "\n  help:   {help}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

impl Note {
    /// Returns the stable name of the message.
    #[must_use]
    pub const fn id(&self) -> &'static str {
        match self {
            Self::Unbound { .. } => "place/unbound",
            Self::OverQuota { .. } => "place/over-quota",
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unbound {
                nodes,
                procs,
                cpus,
                unit,
            } => {
                let word = unit.word(*cpus);
                write!(
                    f,
                    "{procs} procs share {cpus} {word} on `{nodes}` and are not bound"
                )
            }
            Self::OverQuota {
                nodes,
                procs,
                millis,
            } => {
                let (whole, rest) = (millis / 1_000, millis % 1_000 / 100);
                write!(
                    f,
                    "{procs} procs on `{nodes}` share {whole}.{rest} CPUs: the cgroup (`cpu.max`) grants no more"
                )
            }
        }
    }
}
