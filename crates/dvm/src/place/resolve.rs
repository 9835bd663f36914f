//! Resolution of a request: fills in defaults, and the policies that other policies imply.

use base::Level;

use super::{
    error::Error,
    map::AppPolicy,
    node::{Bind, Scheme},
    policy::{
        AppRequest, BindTarget, BindTo, CpuUnit, MapBy, MapTo, Oversubscribe, Per, RankBy, Request,
        Sharing, Span,
    },
    tenancy::Tenancy,
};

/// Policy of one app with all defaults filled in.
pub(super) struct Resolved {
    pub(super) policy: AppPolicy,
    pub(super) spread: Spread,
    pub(super) scheme: Scheme,
    pub(super) each: u32,
    pub(super) unit: CpuUnit,
    pub(super) bind: Bind,
    pub(super) bind_asked: Asked,
    pub(super) oversubscribe: Oversubscribe,
}

/// Distribution of an app's procs over nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spread {
    /// Fills one node after another.
    Fill,
    /// One proc per node, round-robin.
    Nodes,
    /// One proc per object of a level, round-robin over all nodes.
    Objects(Level),
    /// A fixed number of procs per node, or per object of a level.
    PerNode(u32),
    PerObject(u32, Level),
}

/// Origin of a policy: the user or a default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    ByUser,
    Default,
}

/// Fills in what the user did not specify. The defaults are those of Open MPI 5: map by core, and rank by `fill`. Procs
/// are bound to the object that they are mapped to. Procs that are mapped to slots or nodes are bound to a NUMA node,
/// or to a core if the job has at most two procs. Where other jobs may use the CPUs, the default binds a proc only if
/// the user's mapping determines its CPUs.
pub(super) fn resolve(
    request: &Request,
    app: &AppRequest,
    tenancy: Tenancy,
) -> Result<Resolved, Error> {
    let asked = app.map_by.as_ref().or(request.map_by.as_ref());
    let mut each = asked.and_then(|map| map.cpus_per_proc);
    if let Some(count) = request.bind_to.and_then(|bind| bind.count) {
        if each.is_some_and(|each| each != count) {
            return Err(Error::Conflict {
                first: asked.map_or_else(String::new, ToString::to_string),
                second: request
                    .bind_to
                    .map_or_else(String::new, |bind| bind.to_string()),
            });
        }
        each = Some(count);
    }
    let several = each.is_some_and(|each| each > 1);
    // A user who gives the number of cores per proc gets a binding to that many, even to one.
    let counted = each.is_some();
    let target = match &request.bind_list {
        Some(_) => Some(BindTarget::List),
        None => request.bind_to.map(|bind| bind.target),
    };
    let to = asked
        .and_then(|map| map.to.clone())
        .unwrap_or_else(|| match target {
            _ if several => MapTo::Slot,
            target => mapped_to(target),
        });
    let unit = if names_threads(&to) || target == Some(BindTarget::Object(Level::Pu)) {
        CpuUnit::Pu
    } else {
        asked.and_then(|map| map.unit).unwrap_or_default()
    };
    let span = asked.map_or(Span::PerNode, |map| map.span);
    let rank_by = request.rank_by.unwrap_or_else(|| ranked_by(&to, span));
    let unit_level = unit_level(unit);
    let is_withheld = tenancy != Tenancy::Ours
        && target.is_none()
        && asked.is_none_or(|map| !map.says_which_cpus());
    let target = target.unwrap_or_else(|| match &to {
        _ if counted => BindTarget::Object(unit_level),
        to => bound_to(to, unit_level),
    });
    let bind = match bind(target, &to) {
        _ if is_withheld => Bind::Withheld,
        Bind::Object(_) if counted => Bind::Units,
        Bind::Object(level) if level == unit_level => Bind::Units,
        bind => bind,
    };
    let spread = spread(&to, span);
    let scheme = match scheme(&to) {
        // One core cannot supply several cores for one proc, so take cores in order.
        Scheme::InTurn(Level::Core | Level::Pu) if several => Scheme::Whole,
        scheme => scheme,
    };
    let oversubscribe = match (
        request.oversubscribe,
        asked.and_then(|map| map.oversubscribe),
    ) {
        (Oversubscribe::WhereImplicit, said) => said.unwrap_or_default(),
        (said, _) => said,
    };
    let map_by = MapBy {
        to: Some(to),
        cpus_per_proc: each,
        group: asked.and_then(|map| map.group),
        span,
        unit: (unit == CpuUnit::Pu).then_some(unit),
        oversubscribe: (oversubscribe != Oversubscribe::WhereImplicit).then_some(oversubscribe),
    };
    let bind_to = BindTo {
        target: if is_withheld {
            BindTarget::None
        } else {
            target
        },
        count: None,
        ..request.bind_to.unwrap_or_else(|| BindTo::from(target))
    };
    Ok(Resolved {
        policy: AppPolicy {
            map_by,
            rank_by,
            bind_to,
        },
        spread,
        scheme,
        each: each.unwrap_or(1).max(1),
        unit,
        bind,
        bind_asked: if request.bind_to.is_some() || request.bind_list.is_some() || counted {
            Asked::ByUser
        } else {
            Asked::Default
        },
        oversubscribe,
    })
}

/// Returns true if procs are mapped to hardware threads.
const fn names_threads(to: &MapTo) -> bool {
    matches!(
        to,
        MapTo::Object(Level::Pu)
            | MapTo::Ppr {
                per: Per::Object(Level::Pu),
                ..
            }
    )
}

/// Returns the default mapping.
const fn mapped_to(target: Option<BindTarget>) -> MapTo {
    match target {
        Some(BindTarget::None | BindTarget::List) => MapTo::Slot,
        Some(BindTarget::Object(level)) => MapTo::Object(level),
        None => MapTo::Object(Level::Core),
    }
}

/// Returns the default ranking.
const fn ranked_by(to: &MapTo, span: Span) -> RankBy {
    match (to, span) {
        (MapTo::Node | MapTo::Sequence(_), _) => RankBy::Node,
        (MapTo::Object(_), Span::PerNode) => RankBy::Fill,
        (MapTo::Object(_), Span::AllNodes) => RankBy::Span,
        (MapTo::Slot | MapTo::Ppr { .. } | MapTo::Rankfile(_) | MapTo::PeList { .. }, _) => {
            RankBy::Slot
        }
    }
}

/// Returns the default binding.
const fn bound_to(to: &MapTo, unit: Level) -> BindTarget {
    BindTarget::Object(match to {
        MapTo::Object(level)
        | MapTo::Ppr {
            per: Per::Object(level),
            ..
        } => *level,
        MapTo::PeList { .. } | MapTo::Rankfile(_) => unit,
        MapTo::Slot | MapTo::Node | MapTo::Ppr { per: Per::Node, .. } | MapTo::Sequence(_) => {
            Level::Numa
        }
    })
}

/// Returns the rule for the CPUs of a proc, from its binding and mapping.
const fn bind(target: BindTarget, to: &MapTo) -> Bind {
    match (target, to) {
        (BindTarget::None, _) => Bind::None,
        (BindTarget::List, _) => Bind::List,
        (
            BindTarget::Object(_),
            MapTo::PeList {
                sharing: Sharing::Shared,
                ..
            },
        ) => Bind::All,
        (
            BindTarget::Object(_),
            MapTo::PeList {
                sharing: Sharing::InTurn,
                ..
            },
        ) => Bind::Units,
        (BindTarget::Object(level), _) => Bind::Object(level),
    }
}

/// Returns how procs are dealt to the objects of a node, from their mapping.
const fn scheme(to: &MapTo) -> Scheme {
    match to {
        MapTo::Object(level) => Scheme::InTurn(*level),
        MapTo::Ppr {
            count,
            per: Per::Object(level),
        } => Scheme::Each(*level, *count),
        MapTo::Slot | MapTo::Node | MapTo::Ppr { per: Per::Node, .. } => Scheme::Whole,
        MapTo::Sequence(_) | MapTo::Rankfile(_) | MapTo::PeList { .. } => Scheme::Whole,
    }
}

/// Returns how procs are distributed over nodes, from their mapping.
const fn spread(to: &MapTo, span: Span) -> Spread {
    match (to, span) {
        (MapTo::Node | MapTo::Sequence(_), _) => Spread::Nodes,
        (MapTo::Object(level), Span::AllNodes) => Spread::Objects(*level),
        (
            MapTo::Ppr {
                count,
                per: Per::Node,
            },
            _,
        ) => Spread::PerNode(*count),
        (
            MapTo::Ppr {
                count,
                per: Per::Object(level),
            },
            _,
        ) => Spread::PerObject(*count, *level),
        (MapTo::Slot | MapTo::Object(_) | MapTo::Rankfile(_) | MapTo::PeList { .. }, _) => {
            Spread::Fill
        }
    }
}

/// Maximum number of procs of a job that is bound to cores by default, where larger jobs are bound to NUMA nodes.
const SMALL_JOB: u64 = 2;

impl Resolved {
    /// Applies the default binding of procs that are mapped to slots or nodes, which depends on their number, as in
    /// Open MPI 5.
    pub(super) fn bind_for(&mut self, procs: u64) {
        let to_slots = matches!(
            self.policy.map_by.to,
            Some(
                MapTo::Slot | MapTo::Node | MapTo::Sequence(_) | MapTo::Ppr { per: Per::Node, .. }
            )
        );
        if procs <= SMALL_JOB
            && to_slots
            && self.bind_asked == Asked::Default
            && self.bind != Bind::Withheld
        {
            self.bind = Bind::Units;
            self.policy.bind_to.target = BindTarget::Object(unit_level(self.unit));
        }
    }
}

const fn unit_level(unit: CpuUnit) -> Level {
    match unit {
        CpuUnit::Core => Level::Core,
        CpuUnit::Pu => Level::Pu,
    }
}
