//! The size of a job: how many procs, on how many nodes, with what.

use std::collections::BTreeSet;

use base::HostList;
use dvm::{
    alloc::{self, Allocation, Base, LocalNames, Problem, Slots},
    place::{self, MapTo, Per},
};

use super::{Options, refusal::WhyNot, refuse};
use crate::{
    args::{AppLine, Error, JobLine, RunLine, World, define::machine::SubmitArgs, nodes},
    config::Source,
};

/// The name of every computer on itself.
const LOCALHOST: &str = "localhost";

/// The size of a job.
#[derive(Debug, Default)]
pub(super) struct Shape {
    /// `None` if the nodes decide.
    procs: Option<u64>,
    per_node: Option<u32>,
    cpus_per_proc: Option<u32>,
    /// The number of nodes, at least and at most.
    nodes: Option<(u32, u32)>,
    hosts: HostList,
    excluded: HostList,
}

impl Shape {
    pub(super) fn of(line: &RunLine, world: &World) -> Result<Self, Error> {
        let mut shape = Self::default();
        let mut procs = Some(0);
        let mut per_node = BTreeSet::new();
        let mut slots = BTreeSet::new();
        let mut hosts = BTreeSet::new();
        for app in &line.apps {
            let count = app.args.procs;
            procs = procs
                .zip(count)
                .map(|(sum, count): (u64, u32)| sum + u64::from(count));
            let each = per_node_of(app)?;
            if line.apps.len() > 1 && (each.is_some() || count.is_none()) {
                let program = app.program.first();
                let program = program.map(|name| name.display().to_string());
                let (option, why) = match each {
                    Some(_) => (app.typed("per-node"), WhyNot::Mixed),
                    None => (program.unwrap_or_default(), WhyNot::NoCount),
                };
                return Err(refuse(option, why));
            }
            per_node.insert(each);
            let cpus = cpus_per_proc(app)?;
            shape.cpus_per_proc = shape.cpus_per_proc.max(cpus);
            for node in hosts_of(app)?.nodes {
                slots.insert(match node.slots {
                    Slots::Implicit => None,
                    Slots::Explicit(count) => Some(count),
                });
                if hosts.insert(node.name.clone()) {
                    shape.hosts.push(node.name);
                }
            }
        }
        shape.procs = procs;
        shape.per_node = per_node.into_iter().flatten().next();
        shape.nodes = nodes::wanted(&line.job)?;
        shape.excluded = excluded(&line.job, world)?;
        if shape.procs.is_none() && shape.per_node.is_none() && slots.iter().any(Option::is_some) {
            shape.per_node = match slots.into_iter().collect::<Vec<_>>()[..] {
                [Some(slots)] => Some(slots),
                _ => {
                    let option = line.apps.first().map(|app| app.typed("host"));
                    return Err(refuse(option.unwrap_or_default(), WhyNot::UnevenSlots));
                }
            };
        }
        let is_countless = shape.procs.is_none() && shape.nodes.is_none() && shape.hosts.is_empty();
        if is_countless && shape.per_node.is_some() {
            return Err(refuse("--per-node", WhyNot::NoCount));
        }
        Ok(shape)
    }

    pub(super) fn write(&self, args: &SubmitArgs, line: &RunLine, options: &mut Options) {
        let job = &line.job;
        let procs = self.procs;
        match (self.nodes, procs, self.per_node) {
            (Some((least, most)), ..) if least == most => {
                options.number("nodes", u64::from(least));
            }
            (Some((least, most)), ..) => options.value("nodes", format!("{least}-{most}")),
            (None, ..) if !self.hosts.is_empty() => {
                options.number("nodes", u64::try_from(self.hosts.len()).unwrap_or(u64::MAX));
            }
            (None, Some(procs), Some(each)) => {
                options.number("nodes", procs.div_ceil(u64::from(each.max(1))));
            }
            (None, ..) => {}
        }
        if let Some(procs) = procs {
            options.number("ntasks", procs);
        }
        if let Some(each) = self.per_node {
            options.number("ntasks-per-node", u64::from(each));
        }
        if let Some(cpus) = self.cpus_per_proc {
            options.number("cpus-per-task", u64::from(cpus));
        }
        if !self.hosts.is_empty() {
            options.value("nodelist", self.hosts.to_string());
        }
        if !self.excluded.is_empty() {
            options.value("exclude", self.excluded.to_string());
        }
        if let Some(gpus) = job.args.resources.gpus {
            options.number("gpus-per-node", u64::from(gpus));
        }
        if let Some(gpus) = job.args.resources.gpus_per_proc {
            options.number("gpus-per-task", u64::from(gpus));
        }
        if args.exclusive {
            options.flag("exclusive");
        }
    }
}

/// Returns names as they are written: Slurm has names of its own for its nodes, also for the one on which we are.
fn as_written() -> LocalNames {
    LocalNames::new(LOCALHOST)
}

/// Returns the nodes that an app names; none if it names none.
fn hosts_of(app: &AppLine) -> Result<Allocation, Error> {
    if app.args.host.is_empty() {
        return Ok(Allocation::default());
    }
    let option = app.typed("host");
    let text = app.args.host.join(",");
    let origin = format!("`{option}`");
    alloc::hosts(&text, &origin, &as_written(), Base::default()).map_err(|error| {
        match error.problem {
            Problem::NoBase { .. } => refuse(option, WhyNot::Relative),
            _ => Error::Nodes(error),
        }
    })
}

/// Returns the nodes that the job must not have.
fn excluded(job: &JobLine, world: &World) -> Result<HostList, Error> {
    let mut all = HostList::new();
    let mut known = BTreeSet::new();
    for text in &job.args.exclude {
        for name in nodes::excluded(text, job, &as_written(), world)? {
            if known.insert(name.clone()) {
                all.push(name);
            }
        }
    }
    Ok(all)
}

/// Returns the policies of an app.
fn policies(app: &AppLine) -> Result<Vec<place::MapBy>, Error> {
    let read = |text: &String| {
        place::map_by(text).map_err(|error| Error::Policy {
            error: Box::new(error),
            from: Source::CommandLine(app.typed("map-by")),
        })
    };
    app.args.map_by.iter().map(read).collect()
}

fn per_node_of(app: &AppLine) -> Result<Option<u32>, Error> {
    let mut per_node = app.args.per_node.or(app.args.deal);
    for policy in policies(app)? {
        match policy.to {
            Some(MapTo::Ppr {
                count,
                per: Per::Node,
            }) => per_node = Some(count),
            Some(MapTo::Ppr {
                per: Per::Object(_),
                ..
            }) if app.args.procs.is_none() => {
                return Err(refuse(app.typed("map-by"), WhyNot::Objects));
            }
            _ => {}
        }
    }
    Ok(per_node)
}

fn cpus_per_proc(app: &AppLine) -> Result<Option<u32>, Error> {
    let policies = policies(app)?;
    Ok(policies
        .iter()
        .rev()
        .find_map(|policy| policy.cpus_per_proc))
}
