//! The size of a job: how many procs, on how many nodes, with what.

use std::collections::BTreeSet;

use base::HostList;
use dvm::place::{self, MapTo, Per};

use super::{Options, refusal::WhyNot, refuse};
use crate::{
    args::{AppLine, Error, RunLine, define::machine::SubmitArgs},
    config::Source,
};

/// The size of a job.
#[derive(Debug, Default)]
pub(super) struct Shape {
    /// `None` if the nodes decide.
    procs: Option<u64>,
    per_node: Option<u32>,
    cpus_per_proc: Option<u32>,
    hosts: HostList,
}

impl Shape {
    pub(super) fn of(line: &RunLine) -> Result<Self, Error> {
        let mut shape = Self::default();
        let mut procs = Some(0);
        let mut per_node = BTreeSet::new();
        let mut slots = BTreeSet::new();
        let mut hosts = Vec::new();
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
            for text in &app.args.host {
                read_hosts(text, &app.typed("host"), &mut hosts, &mut slots)?;
            }
        }
        shape.procs = procs;
        shape.per_node = per_node.into_iter().flatten().next();
        let option = line.apps.first().map(|app| app.typed("host"));
        let option = option.unwrap_or_default();
        shape.hosts = hosts
            .join(",")
            .parse()
            .map_err(|_| refuse(option.clone(), WhyNot::NotText))?;
        if shape.procs.is_none() && shape.per_node.is_none() && slots.iter().any(Option::is_some) {
            shape.per_node = match slots.into_iter().collect::<Vec<_>>()[..] {
                [Some(slots)] => Some(slots),
                _ => return Err(refuse(option, WhyNot::UnevenSlots)),
            };
        }
        Ok(shape)
    }

    pub(super) fn write(
        &self,
        args: &SubmitArgs,
        line: &RunLine,
        options: &mut Options,
    ) -> Result<(), Error> {
        let job = &line.job;
        let procs = self.procs;
        let is_countless = procs.is_none() && job.args.nodes.is_none() && self.hosts.is_empty();
        if is_countless && self.per_node.is_some() {
            return Err(refuse("--per-node", WhyNot::NoCount));
        }
        match (&job.args.nodes, procs, self.per_node) {
            (Some(nodes), ..) => options.push("nodes", nodes),
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
            options.push("nodelist", self.hosts.to_string());
        }
        if !job.args.exclude.is_empty() {
            options.push("exclude", job.args.exclude.join(","));
        }
        if let Some(gpus) = job.args.gpus {
            options.number("gpus", u64::from(gpus));
        }
        if let Some(gpus) = job.args.gpus_per_proc {
            options.number("gpus-per-task", u64::from(gpus));
        }
        if args.exclusive {
            options.push("exclusive", "");
        }
        Ok(())
    }
}

/// Adds the names and the slots of `a:4,n[1-3]`.
fn read_hosts(
    text: &str,
    option: &str,
    hosts: &mut Vec<String>,
    slots: &mut BTreeSet<Option<u32>>,
) -> Result<(), Error> {
    let mut depth = 0;
    let parts = text.split(|letter: char| {
        match letter {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        letter == ',' && depth == 0
    });
    for part in parts.map(str::trim).filter(|part| !part.is_empty()) {
        if part.starts_with('+') {
            return Err(refuse(option, WhyNot::Relative));
        }
        let (name, count) = part.split_once(':').unwrap_or((part, ""));
        hosts.push(name.to_owned());
        slots.insert(count.parse().ok());
    }
    Ok(())
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
