//! Slurm as the engine of submitted jobs: `rally submit --to slurm`, and the commands about such jobs.
//!
//! Nothing is kept here: Slurm's controller knows the jobs, and is asked by Slurm's own commands, which speak to every version of it. The
//! translation of a job is in `args::slurm_batch`, what is pure is in the files of this module, and `tool` runs the commands.

mod messages;
mod parse;
mod script;
mod show;
mod state;
mod tool;
mod wait;

use std::{
    ffi::OsString,
    io::{self, Write as _},
    path::PathBuf,
    time::Duration,
};

use base::{JobId, Rank, RankSet};
use dvm::slurm::Setup;
use os::Clock;
use runtime::SlurmPlan;

pub(crate) use self::messages::KINDS;
use self::{
    parse::{Job, Part},
    state::Phase,
    tool::Ran,
};
use crate::{
    args::{
        Error, MessageFormat, World,
        request::{
            machine::{MachineRequest, OutputRequest, Watching},
            slurm::{SlurmAsk, SlurmList, SlurmRequest, SlurmSubmit},
        },
    },
    exit,
    machine::{self, Failure, Follower},
    print, say, shown as shown_safely, unprinted,
    values::{self, Tasks},
};

/// The variable that replaces all times of patience.
const PATIENCE_VARIABLE: &str = "RALLY_SLURM_PATIENCE";
/// The longest wait for an answer. Slurm's commands themselves give up after some ten seconds if nobody answers.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest wait for `sbatch`, which tries again for a while if the controller is busy.
const SUBMIT_PATIENCE: Duration = Duration::from_secs(90);
/// The longest wait when Slurm's jobs are shown beside those of a machine.
const BESIDE_PATIENCE: Duration = Duration::from_secs(5);
/// Pause between two looks of `rally queue --watch`.
const WATCH_PAUSE: Duration = Duration::from_secs(5);
/// Pause between two looks at a file that grows, and between two questions about its job.
const READ_PAUSE: Duration = Duration::from_millis(100);
const FOLLOW_PAUSE: Duration = Duration::from_secs(1);

/// Carries out a command, and returns the exit code.
pub(crate) fn carry_out(request: SlurmRequest, world: &World) -> u8 {
    let SlurmRequest { format, ask } = request;
    let done = Slurm::new(format, world).and_then(|slurm| slurm.act(ask));
    match done {
        Ok(code) => code,
        Err((message, code)) => {
            say(&message, format);
            code.code()
        }
    }
}

/// Returns the listing of Slurm's jobs alone, if the user has some and no machine runs whose jobs could come first.
pub(crate) fn instead(request: &MachineRequest, world: &World) -> Option<SlurmRequest> {
    let (list, format) = beside(request)?;
    let MachineRequest::Queue(which, _) = request else {
        return None;
    };
    let is_alone = which.machine.is_none() && machine::none_runs(world);
    (is_alone && machine::has_used_slurm(world)).then_some(SlurmRequest {
        format,
        ask: SlurmAsk::List(list),
    })
}

/// Returns how the jobs of Slurm are to be shown after those of a machine; `None` if a command does not show them.
pub(crate) fn beside(request: &MachineRequest) -> Option<(SlurmList, MessageFormat)> {
    match request {
        MachineRequest::Queue(which, queue)
            if queue.jobs.is_empty()
                && queue.watching == Watching::Once
                && !queue.is_machine_only =>
        {
            let list = SlurmList {
                over: queue.over,
                is_watched: false,
            };
            Some((list, which.format))
        }
        _ => None,
    }
}

/// Shows the jobs that `rally` has submitted to Slurm, if it ever has, after those of a machine.
pub(crate) fn show_beside(list: SlurmList, format: MessageFormat, world: &World) -> u8 {
    if !machine::has_used_slurm(world) {
        return exit::SUCCESS;
    }
    let slurm = Slurm::new(format, world);
    match slurm.and_then(|slurm| slurm.listed(list, BESIDE_PATIENCE)) {
        Ok(jobs) if jobs.is_empty() => exit::SUCCESS,
        Ok(jobs) => {
            let blank = if format == MessageFormat::Text {
                "\n"
            } else {
                ""
            };
            print(&format!("{blank}{}", show::list(&jobs, format)), format)
        }
        Err((message, _)) => {
            // The listing that was asked for is complete.
            say(&messages::not_beside(&message), format);
            exit::SUCCESS
        }
    }
}

/// Returns the patience that replaces ours.
fn said_patience(world: &World) -> Result<Option<Duration>, Failure> {
    let patience = world.variable(PATIENCE_VARIABLE).map(|text| {
        values::time(text).map_err(|reason| {
            let error = Error::BadValue {
                option: PATIENCE_VARIABLE.to_owned(),
                value: text.to_owned(),
                reason,
            };
            (error.message(), error.exit())
        })
    });
    patience.transpose()
}

/// Returns what the controller of a job needs to pass requests for allocations on to Slurm; `None` if we do not run inside a job of
/// Slurm.
///
/// # Errors
///
/// A patience that makes no sense.
pub(crate) fn for_requests(world: &World) -> Result<Option<SlurmPlan>, Failure> {
    let Some(job) = world.slurm_job() else {
        return Ok(None);
    };
    let patience = said_patience(world)?.unwrap_or(PATIENCE);
    Ok(Some(SlurmPlan {
        setup: Setup { job, patience },
        environment: tool::variables_of_requests(&world.variables),
    }))
}

/// Returns the environment of the commands of such requests, from ours.
pub(crate) fn environment_of_requests() -> Vec<OsString> {
    tool::variables_of_requests(&std::env::vars_os().collect())
}

struct Slurm<'a> {
    format: MessageFormat,
    world: &'a World,
    /// The patience that replaces ours.
    patience: Option<Duration>,
}

impl<'a> Slurm<'a> {
    fn new(format: MessageFormat, world: &'a World) -> Result<Self, Failure> {
        Ok(Self {
            format,
            world,
            patience: said_patience(world)?,
        })
    }

    fn act(&self, ask: SlurmAsk) -> Result<u8, Failure> {
        match ask {
            SlurmAsk::Submit(submit) => self.submit(&submit),
            SlurmAsk::List(list) => self.list(list),
            SlurmAsk::Show(jobs) => self.each(jobs, |job| {
                let job = self.job(job)?;
                Ok(print(&show::details(&job, self.format), self.format))
            }),
            SlurmAsk::Wait(jobs) => self.wait(&jobs),
            SlurmAsk::Output(request) => self.output(&request),
            SlurmAsk::Cancel(jobs) => self.each(jobs, |tasks| self.cancel(&tasks)),
            SlurmAsk::Hold(jobs) => self.each(jobs, |job| self.order("hold", job)),
            SlurmAsk::Release(jobs) => self.each(jobs, |job| self.order("release", job)),
        }
    }

    fn run(&self, program: &str, words: &[&str], patience: Duration) -> Result<Ran, Failure> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        self.run_with_input(program, &words, &[], patience)
    }

    fn run_with_input(
        &self,
        program: &str,
        words: &[OsString],
        input: &[u8],
        patience: Duration,
    ) -> Result<Ran, Failure> {
        let patience = self.patience.unwrap_or(patience);
        tool::run(program, words, input, patience, &self.world.variables)
            .map_err(|error| messages::not_run(program, &error))
    }

    /// Carries out a command for each of these, whatever happens to the others. The first failure decides the exit code.
    fn each<T>(&self, all: Vec<T>, act: impl Fn(T) -> Result<u8, Failure>) -> Result<u8, Failure> {
        let mut result = Ok(exit::SUCCESS);
        for one in all {
            match (act(one), &result) {
                (Ok(_), _) => {}
                (Err(failure), Ok(_)) => result = Err(failure),
                (Err((message, _)), Err(_)) => say(&message, self.format),
            }
        }
        result
    }

    fn submit(&self, submit: &SlurmSubmit) -> Result<u8, Failure> {
        for notice in &submit.notices {
            say(&notice.message(), self.format);
        }
        let batch = &submit.batch;
        let script = script::script(batch);
        if submit.is_dry {
            return Ok(match self.format {
                MessageFormat::Json => print(&show::dry(batch, &script), self.format),
                // As it is: somebody may run it.
                MessageFormat::Text => write_out(&script::shown(batch)),
            });
        }
        let ran = self.run_with_input("sbatch", &batch.options, &script, SUBMIT_PATIENCE)?;
        if !ran.succeeded() {
            let subject = "the job was not submitted";
            return Err(messages::failed("sbatch", subject, None, &ran));
        }
        // Slurm has accepted the job, but may have ignored something.
        let words = ran.words("sbatch");
        if !words.is_empty() {
            say(&messages::remark(&words), self.format);
        }
        let job = parse::submitted(&ran.out).ok_or_else(|| messages::odd("sbatch", &ran.out))?;
        machine::note_use_of_slurm(self.world);
        let text = if submit.is_parsable {
            format!("{job}\n")
        } else {
            show::submitted(job, batch, self.format)
        };
        Ok(print(&text, self.format))
    }

    /// Asks for everything about a job.
    fn job(&self, job: JobId) -> Result<Job, Failure> {
        let number = job.to_string();
        let words = ["--oneliner", "show", "job", &number];
        let ran = self.run("scontrol", &words, PATIENCE)?;
        if !ran.succeeded() {
            let subject = format!("nothing is known about job {job}");
            return Err(messages::failed("scontrol", &subject, Some(job), &ran));
        }
        let jobs = parse::jobs(parse::records(&ran.out));
        let found = jobs.into_iter().next();
        let found = found.ok_or_else(|| messages::odd("scontrol", &ran.out))?;
        Ok(found.asked_by(job))
    }

    /// Asks for the jobs that `rally` has submitted, and the allocations that ranks have requested.
    fn listed(&self, list: SlurmList, patience: Duration) -> Result<Vec<Job>, Failure> {
        let user = os::effective_uid().to_string();
        let states = if list.over > 0 {
            "--states=all"
        } else {
            "--noheader"
        };
        let words = [
            "--noheader",
            "--user",
            &user,
            states,
            "--format",
            parse::COLUMNS,
        ];
        let ran = self.run("squeue", &words, patience)?;
        if !ran.succeeded() {
            return Err(messages::failed(
                "squeue",
                "the jobs are not known",
                None,
                &ran,
            ));
        }
        let jobs = parse::jobs(parse::rows(&ran.out));
        let over = jobs.iter().filter(|job| job.phase().is_over()).count();
        let most = usize::try_from(list.over).unwrap_or(usize::MAX);
        let mut left_out = over.saturating_sub(most);
        let is_shown = |job: &Job| {
            let is_left_out = job.phase().is_over() && left_out > 0;
            left_out -= usize::from(is_left_out);
            !is_left_out
        };
        Ok(jobs.into_iter().filter(is_shown).collect())
    }

    fn list(&self, list: SlurmList) -> Result<u8, Failure> {
        let mut shown = String::new();
        loop {
            let jobs = self.listed(list, PATIENCE)?;
            let text = show::list(&jobs, self.format);
            if !list.is_watched {
                return Ok(print(&text, self.format));
            }
            if text != shown {
                // A watch has nothing left to do when its reader is gone, although that is no failure.
                let written = io::stdout().write_all(shown_safely(&text, self.format).as_bytes());
                if let Err(error) = written {
                    return Ok(unprinted(&error));
                }
                shown = text;
            }
            os::sleep(WATCH_PAUSE);
        }
    }

    fn cancel(&self, tasks: &Tasks) -> Result<u8, Failure> {
        // `scancel` says nothing about jobs that it does not know, or that are over.
        let job = self.job(tasks.job)?;
        let one = job.task.map(|index| RankSet::single(Rank(index)));
        let indexes = match (&tasks.indexes, one) {
            (Some(_), Some(_)) => {
                return Err(messages::no_array(tasks.job, Some(job.name())));
            }
            (Some(_), None) if !job.is_array() => {
                return Err(messages::no_array(tasks.job, None));
            }
            (indexes, one) => indexes.clone().or(one),
        };
        let is_wanted = |part: &&Part| match (&indexes, &part.indexes) {
            (Some(wanted), Some(indexes)) => !wanted.is_disjoint(indexes),
            (Some(_), None) => false,
            (None, _) => true,
        };
        let mut parts = job.parts.iter().filter(is_wanted).peekable();
        if let (Some(indexes), None) = (&indexes, parts.peek()) {
            return Err(messages::no_such_task(tasks.job, indexes));
        }
        if parts.all(|part| part.phase().is_over()) {
            return Err(messages::is_over(tasks.job));
        }
        let target = show::target(job.id, indexes.as_ref());
        let ran = self.run("scancel", &[&target], PATIENCE)?;
        if ran.succeeded() {
            return Ok(exit::SUCCESS);
        }
        let subject = format!("job {} was not canceled", tasks.job);
        Err(messages::failed("scancel", &subject, Some(tasks.job), &ran))
    }

    /// Holds or releases a job.
    fn order(&self, order: &str, id: JobId) -> Result<u8, Failure> {
        if self.job(id)?.phase().is_over() {
            return Err(messages::is_over(id));
        }
        let ran = self.run("scontrol", &[order, &id.to_string()], PATIENCE)?;
        if ran.succeeded() && ran.err.is_empty() {
            return Ok(exit::SUCCESS);
        }
        let subject = format!("nothing has changed for job {id}");
        Err(messages::failed("scontrol", &subject, Some(id), &ran))
    }

    /// Asks for the patterns of the files of a job.
    fn file_patterns(&self, job: JobId) -> Result<Option<[Vec<u8>; 2]>, Failure> {
        let number = job.to_string();
        let words = [
            "--noheader",
            "--states=all",
            "--job",
            &number,
            "--Format",
            parse::FILES,
        ];
        let ran = self.run("squeue", &words, PATIENCE)?;
        Ok(parse::file_patterns(&ran.out).filter(|_| ran.succeeded()))
    }

    /// Shows the output of a job or of its tasks.
    fn output(&self, request: &OutputRequest) -> Result<u8, Failure> {
        let id = request.tasks.job;
        let mut job = self.job(id)?;
        if job.origin().is_some() {
            let why = "it is an allocation: the jobs that run in it print";
            return Err(messages::no_output(id, None, why));
        }
        let patterns = self.file_patterns(id)?;
        let mut code = exit::SUCCESS;
        for index in indexes(&job, request.tasks.indexes.as_ref()) {
            let mut asked = Clock::now();
            let mut file: Option<Follower> = None;
            loop {
                let part = part_of(&job, index);
                let phase = part.map(Part::phase);
                let has_started = !matches!(phase, None | Some(Phase::Waiting | Phase::Held));
                if file.is_none() && has_started {
                    let files = part.map(|part| files(part, patterns.as_ref(), job.id, index));
                    let [stdout, stderr] = files.unwrap_or_default();
                    let path = if request.errors {
                        stderr.filter(|path| Some(path) != stdout.as_ref())
                    } else {
                        stdout
                    };
                    let Some(path) = path else {
                        let why = if request.errors {
                            "its standard error is with its standard output"
                        } else {
                            "Slurm does not say where it is"
                        };
                        return Err(messages::no_output(id, None, why));
                    };
                    file = Some(Follower::new(path));
                }
                if let Some(file) = &mut file
                    && let Err(code) = file.copy()
                {
                    return Ok(code);
                }
                if !request.follow || phase.is_none_or(Phase::is_over) {
                    break;
                }
                os::sleep(READ_PAUSE);
                if Clock::now().since(asked) >= FOLLOW_PAUSE {
                    // Ask before reading: what was written before the end is then shown.
                    job = self.job(id)?;
                    asked = Clock::now();
                }
            }
            let was_there = file.as_ref().is_some_and(Follower::was_there);
            if !was_there {
                let path = file.as_ref().map(Follower::path);
                let is_held = part_of(&job, index).map(Part::phase) == Some(Phase::Held);
                let why = match path {
                    None if is_held => "it waits, because it is held",
                    None => "it has not started",
                    Some(_) => "its file is not on this computer",
                };
                let (message, bad) = messages::no_output(id, path, why);
                say(&message, self.format);
                code = bad.code();
            }
        }
        Ok(code)
    }
}

/// Returns the files for output and errors of a task that has started.
fn files(
    part: &Part,
    patterns: Option<&[Vec<u8>; 2]>,
    job: JobId,
    index: Option<u32>,
) -> [Option<PathBuf>; 2] {
    let Some([stdout, stderr]) = patterns else {
        return [part.stdout.clone(), part.stderr.clone()];
    };
    let out = parse::filled(stdout, job, index).or_else(|| part.stdout.clone());
    let is_other = part.stderr != part.stdout;
    let err = parse::filled(stderr, job, index).or_else(|| part.stderr.clone());
    [out.clone(), if is_other { err } else { out }]
}

/// Returns the tasks to show: of an array those that were named, or all that have started.
fn indexes(job: &Job, wanted: Option<&RankSet>) -> Vec<Option<u32>> {
    if !job.is_array() {
        return vec![None];
    }
    if let Some(wanted) = wanted {
        return wanted.iter().map(|index| Some(index.0)).collect();
    }
    let started = job
        .parts
        .iter()
        .filter(|part| !matches!(part.phase(), Phase::Waiting | Phase::Held));
    started.map(Part::first_index).collect()
}

fn part_of(job: &Job, index: Option<u32>) -> Option<&Part> {
    let Some(index) = index else {
        return job.parts.first();
    };
    let has = |part: &&Part| {
        let indexes = part.indexes.as_ref();
        indexes.is_some_and(|indexes| indexes.contains(Rank(index)))
    };
    job.parts.iter().find(has)
}

/// Writes to stdout as it is, and returns the exit code.
fn write_out(text: &[u8]) -> u8 {
    match io::stdout().write_all(text) {
        Ok(()) => exit::SUCCESS,
        Err(error) => unprinted(&error),
    }
}
