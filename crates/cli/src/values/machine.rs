//! Values of the commands about a machine.

use std::time::Duration;

use base::{HostList, JobId, RankSet};
use dvm::{
    machine::{GPU, MEMORY, NodeShare},
    queue::{Dependency, DependencyKind, TASKS_MAX},
};

use super::{JobName, ValueError};

/// What precedes the number of a job of Slurm.
const OF_SLURM: &str = "slurm:";

/// Something of a machine or of Slurm: `17`, `slurm:17`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Named<T> {
    Machine(T),
    Slurm(T),
}

impl<T: Clone> Named<T> {
    /// Returns what belongs to a machine.
    pub(crate) fn of_machine(all: &[Self]) -> Vec<T> {
        let of_machine = all.iter().filter_map(|one| match one {
            Self::Machine(value) => Some(value.clone()),
            Self::Slurm(_) => None,
        });
        of_machine.collect()
    }

    /// Returns what belongs to Slurm.
    pub(crate) fn of_slurm(all: &[Self]) -> Vec<T> {
        let of_slurm = all.iter().filter_map(|one| match one {
            Self::Slurm(value) => Some(value.clone()),
            Self::Machine(_) => None,
        });
        of_slurm.collect()
    }
}

/// Characters of a machine's name.
const NAME_MAX: usize = 64;

/// Some tasks of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tasks {
    pub(crate) job: JobId,
    /// Indexes in the array; `None` for the whole job.
    pub(crate) indexes: Option<RankSet>,
}

/// Parses the name of a machine, which is the name of a directory too.
pub(crate) fn machine(text: &str) -> Result<String, ValueError> {
    let is_good =
        |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    let begins = text.starts_with(|letter: char| letter.is_ascii_alphanumeric());
    if begins && text.len() <= NAME_MAX && text.chars().all(is_good) {
        Ok(text.to_owned())
    } else {
        Err(ValueError::NotAMachine)
    }
}

/// Parses the number of a job.
pub(crate) fn job_number(text: &str) -> Result<JobId, ValueError> {
    match text.parse() {
        Ok(0) | Err(_) if names_tasks(text) => Err(ValueError::NotAWholeJob),
        Ok(0) | Err(_) => Err(ValueError::NotAJobNumber),
        Ok(number) => Ok(JobId(number)),
    }
}

fn names_tasks(text: &str) -> bool {
    text.contains('[') && tasks(text).is_ok()
}

/// Parses `12` or `12[3-5]`.
pub(crate) fn tasks(text: &str) -> Result<Tasks, ValueError> {
    let Some((job, indexes)) = text.split_once('[') else {
        return Ok(Tasks {
            job: job_number(text)?,
            indexes: None,
        });
    };
    let indexes = indexes.strip_suffix(']').ok_or(ValueError::NotAJobNumber)?;
    Ok(Tasks {
        job: job_number(job)?,
        indexes: Some(array(indexes)?),
    })
}

fn named<T>(text: &str, parse: fn(&str) -> Result<T, ValueError>) -> Result<Named<T>, ValueError> {
    match text.strip_prefix(OF_SLURM) {
        Some(rest) => parse(rest).map(Named::Slurm),
        None => parse(text).map(Named::Machine),
    }
}

/// Parses `17` or `slurm:17`.
pub(crate) fn named_job(text: &str) -> Result<Named<JobId>, ValueError> {
    named(text, job_number)
}

/// Parses `12`, `12[3-5]`, `slurm:12` or `slurm:12[3-5]`.
pub(crate) fn named_tasks(text: &str) -> Result<Named<Tasks>, ValueError> {
    named(text, tasks)
}

/// What `rally release` releases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Released {
    /// A held job in the queue of a machine, or a job whose ranks are held.
    Here(JobName),
    /// A held job of Slurm.
    Slurm(JobId),
}

/// Parses what `rally release` releases.
pub(crate) fn released(text: &str) -> Result<Released, ValueError> {
    match text.strip_prefix(OF_SLURM) {
        Some(number) => job_number(number).map(Released::Slurm),
        None if names_tasks(text) => Err(ValueError::NotAWholeJob),
        None => super::job(text).map(Released::Here),
    }
}

/// Parses an option of sbatch without its value as a word: `partition=debug`, `--exclusive=user`, `-pdebug`.
pub(crate) fn slurm_option(text: &str) -> Result<String, ValueError> {
    let name = text.trim_start_matches('-');
    let is_good = name.starts_with(|letter: char| letter.is_ascii_alphanumeric())
        && !text.starts_with("---")
        && !text.contains(char::is_control);
    match is_good {
        false => Err(ValueError::NotASlurmOption),
        true if name.len() == text.len() => Ok(format!("--{text}")),
        true => Ok(text.to_owned()),
    }
}

/// Parses the indexes of an array.
pub(crate) fn array(text: &str) -> Result<RankSet, ValueError> {
    let indexes: RankSet = text.parse().map_err(|_| ValueError::NotIndexes)?;
    match indexes.len() {
        0 => Err(ValueError::NotIndexes),
        count if count > TASKS_MAX => Err(ValueError::TooMany {
            max: TASKS_MAX as u64,
        }),
        _ => Ok(indexes),
    }
}

/// Parses `12`, `ok:12`, `any:12` or `start:12`, and Slurm's words for the same.
pub(crate) fn dependency(text: &str) -> Result<Dependency, ValueError> {
    let (kind, job) = text.split_once(':').unwrap_or(("ok", text));
    let kind = match kind {
        "ok" | "afterok" => DependencyKind::Succeeded,
        "any" | "afterany" => DependencyKind::Ended,
        "start" | "after" => DependencyKind::Started,
        _ => return Err(ValueError::NotADependency),
    };
    let on = job_number(job).map_err(|_| ValueError::NotADependency)?;
    Ok(Dependency { on, kind })
}

/// A limit of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MachineLimit {
    Jobs(u32),
    Running(u32),
    Slots(u64),
    JobSlots(u64),
    JobTime(Duration),
}

/// Parses a limit of a machine: `running=8`, `job-time=2h`.
pub(crate) fn machine_limit(text: &str) -> Result<MachineLimit, ValueError> {
    let (name, most) = text.split_once('=').ok_or(ValueError::NotAMachineLimit)?;
    if name == "job-time" {
        let time = super::time(most)?;
        let is_some = !time.is_zero();
        return is_some
            .then_some(MachineLimit::JobTime(time))
            .ok_or(ValueError::NotAMachineLimit);
    }
    let most = most.parse::<u32>().ok().filter(|most| *most > 0);
    let most = most.ok_or(ValueError::NotAMachineLimit)?;
    Ok(match name {
        "jobs" => MachineLimit::Jobs(most),
        "running" => MachineLimit::Running(most),
        "slots" => MachineLimit::Slots(most.into()),
        "job-slots" => MachineLimit::JobSlots(most.into()),
        _ => return Err(ValueError::NotAMachineLimit),
    })
}

/// Characters in the name of a resource.
const RESOURCE_NAME_MAX: usize = 64;

/// Parses an amount of a counted resource: `matlab=2`.
pub(crate) fn resource(text: &str) -> Result<(String, u64), ValueError> {
    let (name, count) = text.split_once('=').ok_or(ValueError::NotAResource)?;
    let is_good = name.starts_with(|letter: char| letter.is_ascii_alphabetic())
        && name.len() <= RESOURCE_NAME_MAX
        && name
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || "-_.:/".contains(letter));
    if !is_good {
        return Err(ValueError::NotAResource);
    }
    if ["slots", GPU, MEMORY].contains(&name) {
        return Err(ValueError::OwnResource);
    }
    match count.parse() {
        Ok(0) | Err(_) => Err(ValueError::NotAResource),
        Ok(count) => Ok((name.to_owned(), count)),
    }
}

/// Parses a counted resource of nodes: `fpga=2`, `fpga=2@n[1-3]`.
pub(crate) fn node_resource(text: &str) -> Result<NodeShare, ValueError> {
    let (amount, hosts) = match text.split_once('@') {
        Some((amount, hosts)) => (amount, Some(host_list(hosts)?)),
        None => (text, None),
    };
    let (name, count) = resource(amount)?;
    Ok(NodeShare { name, count, hosts })
}

/// Parses the names of nodes, such as `n[1-3],gpu7`.
pub(crate) fn host_list(text: &str) -> Result<HostList, ValueError> {
    text.parse().map_err(|_| ValueError::NotNodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read() {
        assert_eq!(machine("main"), Ok("main".to_owned()));
        for bad in ["", ".", "..", "a/b", "-x", "a b", &"x".repeat(65)] {
            assert_eq!(machine(bad), Err(ValueError::NotAMachine), "{bad}");
        }
        assert_eq!(job_number("17"), Ok(JobId(17)));
        for bad in ["", "0", "-1", "x", "4294967296", "3]", "[3]", "[[3]"] {
            assert_eq!(job_number(bad), Err(ValueError::NotAJobNumber), "{bad}");
        }
        let some = tasks("12[3-5,9]").unwrap();
        assert_eq!(some.job, JobId(12));
        assert_eq!(some.indexes.unwrap().to_string(), "3-5,9");
        assert_eq!(tasks("12").unwrap().indexes, None);
        for bad in ["12[", "12[]", "[3]", "12[3]x"] {
            assert!(tasks(bad).is_err(), "{bad}");
        }
        assert_eq!(named_job("slurm:7"), Ok(Named::Slurm(JobId(7))));
        assert_eq!(named_job("7"), Ok(Named::Machine(JobId(7))));
        assert!(named_job("slurm:").is_err() && named_job("pbs:7").is_err());
        for tasks in ["7[3]", "slurm:7[3-5]"] {
            assert_eq!(named_job(tasks), Err(ValueError::NotAWholeJob), "{tasks}");
            assert_eq!(released(tasks), Err(ValueError::NotAWholeJob), "{tasks}");
        }
        assert_eq!(released("slurm:7"), Ok(Released::Slurm(JobId(7))));
        for bad in ["slurm:rally-n1-7@2", "slurm:7@2", "slurm:-7", "slurm:0"] {
            assert_eq!(released(bad), Err(ValueError::NotAJobNumber), "{bad}");
        }
        assert!(matches!(released("rally-n1-7@2"), Ok(Released::Here(_))));
        assert!(matches!(named_tasks("slurm:7[1-2]"), Ok(Named::Slurm(_))));
        for (text, option) in [
            ("partition=debug", "--partition=debug"),
            ("--qos=low", "--qos=low"),
            ("-pdebug", "-pdebug"),
        ] {
            assert_eq!(slurm_option(text).as_deref(), Ok(option));
        }
        for bad in ["", "-", "--", "---x", "a\nb"] {
            assert_eq!(slurm_option(bad), Err(ValueError::NotASlurmOption));
        }
        let kinds = [
            ("12", DependencyKind::Succeeded),
            ("ok:12", DependencyKind::Succeeded),
            ("afterok:12", DependencyKind::Succeeded),
            ("any:12", DependencyKind::Ended),
            ("afterany:12", DependencyKind::Ended),
            ("start:12", DependencyKind::Started),
            ("after:12", DependencyKind::Started),
        ];
        for (text, kind) in kinds {
            assert_eq!(
                dependency(text).unwrap(),
                Dependency {
                    on: JobId(12),
                    kind
                }
            );
        }
        for bad in ["", "ok:", "never:12", "ok:x"] {
            assert_eq!(dependency(bad), Err(ValueError::NotADependency), "{bad}");
        }
        assert_eq!(array("1-3").unwrap().len(), 3);
        assert_eq!(array("x"), Err(ValueError::NotIndexes));
        assert!(array("0-2000000").is_err());
    }
}
