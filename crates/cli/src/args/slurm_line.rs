//! Which command lines are about jobs of Slurm.

use super::{
    Args, Error, World,
    machine::{MachineLine, which},
    request::{
        machine::OutputRequest,
        slurm::{SlurmAsk, SlurmList, SlurmRequest, SlurmSubmit},
    },
    slurm_batch::{self, Steps},
};
use crate::{
    choices::Engine,
    values::{Named, Released},
};

/// Returns the request of a command about jobs of Slurm; `None` for all other commands.
///
/// # Errors
///
/// A mixture of jobs of Slurm and of a machine, or a job that Slurm cannot run.
pub(super) fn resolve(
    args: &Args,
    steps: Steps,
    world: &World,
) -> Result<Option<SlurmRequest>, Error> {
    let line = match args {
        Args::Machine(line) => line,
        Args::Release(release) => {
            let Some(Released::Slurm(job)) = &release.job else {
                return Ok(None);
            };
            if release.ranks.is_some() {
                return Err(together("--ranks", "slurm:JOB"));
            }
            if release.which.machine.is_some() {
                return Err(together("--on-machine", "slurm"));
            }
            return Ok(Some(SlurmRequest {
                format: which(&release.which).format,
                ask: SlurmAsk::Release(vec![*job]),
            }));
        }
        _ => return Ok(None),
    };
    let (asked, ask) = match line {
        MachineLine::Submit(args, line) => {
            if args.to != Some(Engine::Slurm) {
                return match args.slurm_option.first() {
                    Some(_) => Err(together("--slurm-option", "no --to slurm")),
                    None => Ok(None),
                };
            }
            let submit = SlurmSubmit {
                batch: slurm_batch::translate(args, line, steps, world)?,
                is_dry: line.job.args.dry_run,
                is_parsable: args.parsable,
                notices: slurm_batch::notices(line),
            };
            return Ok(Some(SlurmRequest {
                format: slurm_batch::format_of(line),
                ask: SlurmAsk::Submit(Box::new(submit)),
            }));
        }
        MachineLine::Queue(args) if args.to == Some(Engine::Slurm) => {
            let list = SlurmList {
                over: args.over.unwrap_or(0),
                is_watched: args.watch,
            };
            (&args.which, SlurmAsk::List(list))
        }
        MachineLine::Queue(args) => (&args.which, SlurmAsk::Show(only_slurm(&args.jobs)?)),
        MachineLine::Wait(args) => (&args.which, SlurmAsk::Wait(only_slurm(&args.jobs)?)),
        MachineLine::Hold(args) => (&args.which, SlurmAsk::Hold(only_slurm(&args.jobs)?)),
        MachineLine::Cancel(args) => (&args.which, SlurmAsk::Cancel(only_slurm(&args.jobs)?)),
        MachineLine::Output(args) => {
            let Named::Slurm(tasks) = &args.job else {
                return Ok(None);
            };
            let request = OutputRequest {
                tasks: tasks.clone(),
                errors: args.errors,
                follow: args.follow,
            };
            (&args.which, SlurmAsk::Output(request))
        }
        _ => return Ok(None),
    };
    let is_empty = match &ask {
        SlurmAsk::Show(jobs) | SlurmAsk::Wait(jobs) | SlurmAsk::Hold(jobs) => jobs.is_empty(),
        SlurmAsk::Cancel(jobs) => jobs.is_empty(),
        _ => false,
    };
    if is_empty {
        return Ok(None);
    }
    if asked.machine.is_some() {
        return Err(together("--on-machine", "slurm"));
    }
    Ok(Some(SlurmRequest {
        format: which(asked).format,
        ask,
    }))
}

/// Returns the jobs of Slurm; none if all jobs belong to a machine.
fn only_slurm<T: Clone>(jobs: &[Named<T>]) -> Result<Vec<T>, Error> {
    let of_slurm = Named::of_slurm(jobs);
    if of_slurm.is_empty() || of_slurm.len() == jobs.len() {
        Ok(of_slurm)
    } else {
        Err(together("slurm:JOB", "a job of a machine"))
    }
}

fn together(first: &str, second: &str) -> Error {
    Error::Together {
        first: first.to_owned(),
        second: second.to_owned(),
        why: match first {
            "--slurm-option" => "only Slurm reads it: add `--to slurm`, or leave it out",
            "--ranks" => "a held job of Slurm has no ranks yet",
            "slurm:JOB" => "use two commands",
            _ => "Slurm's jobs are on no machine",
        },
    }
}
