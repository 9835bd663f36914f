//! Policies as a user asks for them: where procs go, in which order they are numbered, what they are bound to.

use std::fmt;

use base::{CpuSet, HostList, Level, Rank};
use serde::{Deserialize, Serialize};

/// What to place, and how. `None` means that the user did not say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// In the order of the command line; ranks are numbered app by app.
    pub apps: Vec<AppRequest>,
    pub map_by: Option<MapBy>,
    pub rank_by: Option<RankBy>,
    pub bind_to: Option<BindTo>,
    pub oversubscribe: Oversubscribe,
    /// Only these PUs, by the kernel's number, of those that are allowed anyway.
    pub cpus: Option<CpuSet>,
    /// What procs are bound to by their number on the node; it overrides `bind_to`.
    pub bind_list: Option<BindList>,
}

/// What the procs of a node are bound to, in turn and over again. Numbers are the kernel's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BindList {
    /// Each PU that may be used.
    Each,
    Pus(Vec<CpuSet>),
    /// All PUs of these NUMA nodes.
    Numa(Vec<CpuSet>),
}

/// The share of one app.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppRequest {
    /// Absent: one proc per slot if the job has one app, else one proc.
    pub count: Option<u32>,
    /// Only nodes of these names, absent for all of the allocation.
    pub hosts: Option<HostList>,
    /// Overrides the job's.
    pub map_by: Option<MapBy>,
}

/// Where procs go: `--map-by`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapBy {
    /// Absent where only modifiers were given (`:PE=2`).
    pub to: Option<MapTo>,
    /// Cores (or PUs, see `unit`) for each proc: `PE=n`.
    pub cpus_per_proc: Option<u32>,
    /// So many objects of the level that is mapped by, taken together (`numa:2`).
    pub group: Option<u32>,
    pub span: Span,
    /// What counts as a CPU, absent for the default (a core).
    pub unit: Option<CpuUnit>,
    pub oversubscribe: Option<Oversubscribe>,
}

impl From<MapTo> for MapBy {
    fn from(to: MapTo) -> Self {
        Self {
            to: Some(to),
            cpus_per_proc: None,
            group: None,
            span: Span::PerNode,
            unit: None,
            oversubscribe: None,
        }
    }
}

impl MapBy {
    /// Whether it says which CPUs of a node are a proc's, or how many, and not only which node.
    pub(super) const fn says_which_cpus(&self) -> bool {
        if self.cpus_per_proc.is_some() {
            return true;
        }
        match self.to {
            Some(
                MapTo::Object(_)
                | MapTo::Ppr {
                    per: Per::Object(_),
                    ..
                }
                | MapTo::Rankfile(_)
                | MapTo::PeList { .. },
            ) => true,
            Some(
                MapTo::Slot | MapTo::Node | MapTo::Ppr { per: Per::Node, .. } | MapTo::Sequence(_),
            )
            | None => false,
        }
    }
}

/// The rule that gives each proc a node, and maybe an object on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MapTo {
    /// Fill a node's slots, then the next node.
    Slot,
    /// One proc per node in turn.
    Node,
    /// Fill a node's slots, giving its objects a proc in turn.
    Object(Level),
    /// Exactly so many procs on every node or object.
    Ppr { count: u32, per: Per },
    /// One proc for each name in turn; the empty list is the nodes of the allocation.
    Sequence(HostList),
    /// Every rank is told where to go.
    Rankfile(Rankfile),
    /// The listed CPUs only, by logical number.
    PeList { list: CpuSet, sharing: Sharing },
}

/// What a proc gets of a PE list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sharing {
    /// All of it.
    #[default]
    Shared,
    /// The next one (`ORDERED`).
    InTurn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Per {
    Node,
    Object(Level),
}

/// What a rankfile says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rankfile {
    /// The file, for messages.
    pub origin: String,
    pub lines: Vec<RankLine>,
}

/// One line of a rankfile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankLine {
    /// Its number in the file, from 1.
    pub number: u32,
    pub rank: Rank,
    pub host: HostRef,
    /// Empty: the whole node.
    pub slots: Vec<SlotSpec>,
}

/// A node as a rankfile names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostRef {
    Name(String),
    /// `+n2`: the third node of the allocation.
    Relative(u32),
}

/// Cores of a rankfile line, by logical number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotSpec {
    /// Cores are counted in this package, absent: in the node.
    pub package: Option<u32>,
    pub cores: Cores,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cores {
    All,
    These(CpuSet),
}

/// Whether objects are taken in turn on one node after the other, or over all nodes as if they were one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Span {
    #[default]
    PerNode,
    AllNodes,
}

/// What counts as one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum CpuUnit {
    #[default]
    Core,
    Pu,
}

/// May a node get more procs than it has slots?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Oversubscribe {
    /// Yes where nobody said how many slots it has, no where somebody did.
    #[default]
    WhereImplicit,
    Allow,
    Refuse,
}

/// In which order placed procs are numbered: `--rank-by`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RankBy {
    /// Node by node, as they were mapped.
    Slot,
    /// One per node in turn.
    Node,
    /// Node by node, one object's procs after the other's.
    Fill,
    /// One per object in turn, over all nodes.
    Span,
    /// Node by node, one per object of this level in turn.
    Object(Level),
}

/// What procs are bound to: `--bind-to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BindTo {
    pub target: BindTarget,
    /// So many cores or PUs in a row (`core:2`), absent for one.
    pub count: Option<u32>,
    /// So many objects of a wider level, taken together (`numa:2`).
    pub group: Option<u32>,
    pub overload: Overload,
}

impl From<BindTarget> for BindTo {
    fn from(target: BindTarget) -> Self {
        Self {
            target,
            count: None,
            group: None,
            overload: Overload::Refuse,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BindTarget {
    None,
    Object(Level),
    /// To what [`Request::bind_list`] has for each.
    List,
}

/// May procs be bound to the same core when there are more procs than cores?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Overload {
    #[default]
    Refuse,
    Allow,
}

/// The word for a level on the command line.
#[must_use]
pub(super) const fn level_word(level: Level) -> &'static str {
    match level {
        Level::Package => "package",
        Level::Numa => "numa",
        Level::L3 => "l3cache",
        Level::L2 => "l2cache",
        Level::L1 => "l1cache",
        Level::Core => "core",
        Level::Pu => "hwthread",
    }
}

impl fmt::Display for MapTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slot => f.write_str("slot"),
            Self::Node => f.write_str("node"),
            Self::Object(level) => f.write_str(level_word(*level)),
            Self::Ppr {
                count,
                per: Per::Node,
            } => write!(f, "ppr:{count}:node"),
            Self::Ppr {
                count,
                per: Per::Object(level),
            } => write!(f, "ppr:{count}:{}", level_word(*level)),
            Self::Sequence(_) => f.write_str("seq"),
            Self::Rankfile(_) => f.write_str("rankfile"),
            Self::PeList {
                list,
                sharing: Sharing::Shared,
            } => write!(f, "pe-list={list}"),
            Self::PeList {
                list,
                sharing: Sharing::InTurn,
            } => write!(f, "pe-list={list}:ORDERED"),
        }
    }
}

impl fmt::Display for MapBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(to) = &self.to {
            write!(f, "{to}")?;
        }
        if let Some(count) = self.group {
            write!(f, ":{count}")?;
        }
        if let Some(count) = self.cpus_per_proc {
            write!(f, ":PE={count}")?;
        }
        if self.span == Span::AllNodes {
            f.write_str(":SPAN")?;
        }
        match self.unit {
            Some(CpuUnit::Pu) => f.write_str(":HWTCPUS")?,
            Some(CpuUnit::Core) => f.write_str(":CORECPUS")?,
            None => {}
        }
        match self.oversubscribe {
            Some(Oversubscribe::Allow) => f.write_str(":OVERSUBSCRIBE"),
            Some(Oversubscribe::Refuse) => f.write_str(":NOOVERSUBSCRIBE"),
            Some(Oversubscribe::WhereImplicit) | None => Ok(()),
        }
    }
}

impl fmt::Display for RankBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Slot => "slot",
            Self::Node => "node",
            Self::Fill => "fill",
            Self::Span => "span",
            Self::Object(level) => level_word(*level),
        })
    }
}

impl fmt::Display for BindTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Object(level) => level_word(*level),
            Self::List => "list",
        })
    }
}

impl fmt::Display for BindTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.target)?;
        if let Some(count) = self.count.or(self.group) {
            write!(f, ":{count}")?;
        }
        match self.overload {
            Overload::Allow => f.write_str(":overload-allowed"),
            Overload::Refuse => Ok(()),
        }
    }
}

impl CpuUnit {
    /// The word for `count` of them.
    #[must_use]
    pub const fn word(self, count: u32) -> &'static str {
        match (self, count) {
            (Self::Core, 1) => "core",
            (Self::Core, _) => "cores",
            (Self::Pu, 1) => "hardware thread",
            (Self::Pu, _) => "hardware threads",
        }
    }
}
