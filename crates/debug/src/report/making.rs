//! Makes a report from its parts: the target, the samples, and the facts besides the samples.

use std::time::Duration;

use base::Rank;

use super::{Detail, Part, Place, Report};
use crate::{
    languages,
    reply::{Description, MAX_BUILDS},
    samples::Recording,
    stack::Seen,
    target::{Target, Whereabouts},
};

/// Facts about the run of `dbgr` itself, which only its caller knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The host on which `dbgr` ran.
    pub host: String,
    /// The date and time of the run, in the local form.
    pub date: String,
    /// The versions of `dbgr` and of the kernel.
    pub versions: Vec<Part>,
    /// Duration of the run.
    pub took: Duration,
}

impl Report {
    /// Makes a report of all that is known of a target.
    #[must_use]
    pub fn made(
        target: &Target,
        recording: Recording,
        description: Description,
        origin: Origin,
        detail: Detail,
    ) -> Self {
        let last = recording.samples.last();
        let was_seen = |rank: Rank| {
            let seen = last.and_then(|sample| sample.snapshot.procs.get(&rank));
            matches!(seen, Some(Seen::Threads(_)))
        };
        let places = target.procs.iter().filter_map(|(&rank, proc)| {
            let (host, cpu) = match &proc.place {
                Whereabouts::Here { .. } => {
                    let processor = description.processors.get(&rank).copied();
                    (&origin.host, processor.filter(|_| was_seen(rank)))
                }
                Whereabouts::There { host, .. } => {
                    let processor = description.processors.get(&rank).copied();
                    (host, processor.filter(|_| was_seen(rank)))
                }
                Whereabouts::On(host) => (host, None),
                // The pid is unused, or belongs to another process.
                Whereabouts::Unproved | Whereabouts::Gone { .. } | Whereabouts::NotFound => {
                    return None;
                }
            };
            let host = host.clone();
            let pid = proc.pid;
            Some((rank, Place { host, pid, cpu }))
        });
        let placement = places.collect();
        let mut report = Self::of(recording, detail);
        report.placement = placement;
        report.title.clone_from(&target.title);
        report.found = target.tried.iter().map(ToString::to_string).collect();
        report.found.push(target.how.to_string());
        report.doubts = target.doubts.iter().map(ToString::to_string).collect();
        let unseen = languages::unseen(&report.frames).into_iter();
        report.doubts.extend(unseen.map(str::to_owned));
        report.doubts.extend(description.doubts());
        let builds = description.builds.iter().take(MAX_BUILDS);
        let builds = builds.map(|build| Part {
            of: build.file.to_string(),
            version: build.to_string(),
        });
        report.versions = origin.versions.into_iter().chain(builds).collect();
        report.commands = description.commands;
        report.host = origin.host;
        report.date = origin.date;
        report.timing.total = origin.took;
        report
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use base::RankSet;

    use super::*;
    use crate::{
        report::Command,
        target::{How, Proc},
    };

    #[test]
    fn of_processes_that_are_no_ranks_nothing_is_placed() {
        for (place, has_place) in [
            (Whereabouts::Here { started: 9 }, true),
            (Whereabouts::Unproved, false),
            (Whereabouts::Gone { host: None }, false),
            (Whereabouts::NotFound, false),
            (Whereabouts::On("n2".to_owned()), true),
        ] {
            let proc = Proc {
                pid: 7,
                place: place.clone(),
                program: String::new(),
            };
            let target = Target {
                title: String::new(),
                how: How::Alone,
                procs: [(Rank(0), proc)].into(),
                tried: Vec::new(),
                doubts: Vec::new(),
                notes: Vec::new(),
            };
            let description = Description {
                commands: vec![Command {
                    ranks: RankSet::single(Rank(0)),
                    line: "./a.out".to_owned(),
                }],
                processors: BTreeMap::from([(Rank(0), 3)]),
                ..Description::default()
            };
            let report = Report::made(
                &target,
                Recording::default(),
                description,
                Origin::default(),
                Detail::Folded,
            );
            let placed = report.placement.get(&Rank(0));
            assert_eq!(placed.is_some(), has_place, "{place:?}");
            // The rank is missing in the last sample, so its CPU is from an earlier one.
            assert!(placed.is_none_or(|it| it.cpu.is_none()));
            assert_eq!(report.commands.len(), 1);
        }
    }
}
