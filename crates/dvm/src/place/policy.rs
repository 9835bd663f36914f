//! Policies as a user requests them: mapping, ranking and binding.

use std::fmt;

use base::{CpuSet, HostList, Level, Rank};
use serde::{Deserialize, Serialize};

/// Request for a placement. `None` in a field means that the user did not specify it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Apps in the order of the command line. Ranks are numbered app by app.
    pub apps: Vec<AppRequest>,
    pub map_by: Option<MapBy>,
    pub rank_by: Option<RankBy>,
    pub bind_to: Option<BindTo>,
    pub oversubscribe: Oversubscribe,
    /// PUs to use, by the kernel's number, out of those that are allowed. `None` stands for all of them.
    pub cpus: Option<CpuSet>,
    /// Bindings by the proc's number on its node. They override `bind_to`.
    pub bind_list: Option<BindList>,
}

/// Bindings of a node's procs, assigned in order and repeated cyclically. Numbers are the kernel's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BindList {
    /// One usable PU for each proc.
    Each,
    Pus(Vec<CpuSet>),
    /// All PUs of these NUMA nodes.
    Numa(Vec<CpuSet>),
}

/// Part of a request for one app.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppRequest {
    /// Number of procs. `None` stands for one proc per slot if the job has one app, and for one proc if it has several.
    /// Under `ppr`, `None` stands for all places.
    pub count: Option<u32>,
    /// Names of the nodes that the app may use. `None` stands for all nodes of the allocation.
    pub hosts: Option<HostList>,
    /// Mapping of this app, which overrides that of the job.
    pub map_by: Option<MapBy>,
}

impl Request {
    /// Returns the mapping of the first app. It is that of all apps if they have one.
    pub(crate) fn map_of_all(&self) -> Option<&MapBy> {
        let own = self.apps.first().and_then(|app| app.map_by.as_ref());
        own.or(self.map_by.as_ref())
    }

    /// Returns the number of CPUs of each proc, at least 1.
    pub(crate) fn cpus_per_proc(&self) -> u32 {
        let mapped = self.map_of_all().and_then(|map| map.cpus_per_proc);
        let bound = self.bind_to.and_then(|bind| bind.count);
        mapped.or(bound).unwrap_or(1).max(1)
    }
}

/// Mapping: `--map-by`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapBy {
    /// Rule of the mapping; `None` if only modifiers were given (`:PE=2`).
    pub to: Option<MapTo>,
    /// Number of cores (or PUs, see `unit`) for each proc: `PE=n`.
    pub cpus_per_proc: Option<u32>,
    /// Number of objects of the mapped level in each group (`numa:2`).
    pub group: Option<u32>,
    pub span: Span,
    /// Unit that counts as a CPU; `None` for the default, a core.
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
    /// Returns true if the mapping determines which CPUs of a node a proc gets, or how many, and not only the node.
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

/// Rule that assigns each proc a node, and in some cases an object on the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MapTo {
    /// Fills the slots of one node before it uses the next node.
    Slot,
    /// Assigns one proc to each node, round-robin.
    Node,
    /// Fills the slots of one node after another, and deals its procs to its objects round-robin.
    Object(Level),
    /// Assigns exactly `count` procs to every node or object.
    Ppr { count: u32, per: Per },
    /// Assigns one proc to each name, in order. The empty list stands for the nodes of the allocation.
    Sequence(HostList),
    /// Assigns every rank the node and cores that a file lists for it.
    Rankfile(Rankfile),
    /// Uses only the listed CPUs, given by logical number.
    PeList { list: CpuSet, sharing: Sharing },
}

/// Part of a PE list that a proc gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sharing {
    /// The whole list.
    #[default]
    Shared,
    /// The next CPUs of the list (`ORDERED`).
    InTurn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Per {
    Node,
    Object(Level),
}

/// Content of a rankfile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rankfile {
    /// Name of the file, for messages.
    pub origin: String,
    pub lines: Vec<RankLine>,
}

/// Line of a rankfile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankLine {
    /// Line number in the file, from 1.
    pub number: u32,
    pub rank: Rank,
    pub host: HostRef,
    /// Cores of the rank. If empty, the rank is unbound and may use the whole node.
    pub slots: Vec<SlotSpec>,
}

/// Node as a rankfile names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostRef {
    Name(String),
    /// Index of the node in the allocation, from 0: `+n2` is the third node.
    Relative(u32),
}

/// Cores in a rankfile line, by logical number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotSpec {
    /// Package within which cores are numbered. `None`: cores are numbered within the node.
    pub package: Option<u32>,
    pub cores: Cores,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cores {
    All,
    These(CpuSet),
}

/// Whether procs are dealt to objects on one node after another, or over the objects of all nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Span {
    #[default]
    PerNode,
    AllNodes,
}

/// Unit that counts as one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum CpuUnit {
    #[default]
    Core,
    Pu,
}

/// Whether a node may get more procs than it has slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Oversubscribe {
    /// Allowed on nodes whose slot count is implicit, and refused on nodes whose slot count is explicit.
    #[default]
    WhereImplicit,
    Allow,
    Refuse,
}

/// Order in which ranks are assigned to placed procs: `--rank-by`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RankBy {
    /// Node by node, in the order of the mapping.
    Slot,
    /// One proc per node, round-robin.
    Node,
    /// Node by node, and on each node object by object.
    Fill,
    /// One proc per object, round-robin over the objects of all nodes.
    Span,
    /// Node by node; on each node one proc per object of this level, round-robin.
    Object(Level),
}

/// Binding: `--bind-to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BindTo {
    pub target: BindTarget,
    /// Number of consecutive cores or PUs (`core:2`). `None` stands for one.
    pub count: Option<u32>,
    /// Number of objects of a wider level in each group (`numa:2`).
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
    /// Binding of each proc by [`Request::bind_list`].
    List,
}

/// Whether procs may be bound to the same core if there are more procs than cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Overload {
    #[default]
    Refuse,
    Allow,
}

/// Returns the word for a level on the command line.
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
    /// Returns the word for `count` units.
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
