//! Turns a submitted job into a job of Slurm: options of `sbatch`, and the `rally run` that the job runs.
//!
//! Slurm gets what it has to know before the job starts: the size, the time, the order, the files. Everything else is an option of
//! the `rally run`, which finds its nodes by the variables of the allocation. What Slurm must know and cannot express is refused.

mod foreign;
mod refusal;
mod shape;

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::Path,
    time::Duration,
};

use base::RankSet;
use dvm::queue::DependencyKind;

pub(crate) use self::refusal::{NotForSlurm, WhyNot};
use self::shape::Shape;
use super::{
    Canonical, Error, MessageFormat, Notice, RunLine, World, define::machine::SubmitArgs,
    machine::name_of, request::slurm::Batch,
};
use crate::{
    choices::{Bootstrap, MessageFormatChoice},
    values::ValueError,
};

/// The comment by which `rally queue` finds its jobs among those of the user.
pub(crate) const COMMENT: &str = "rally";

/// Options of the job that `rally run` does not get: Slurm carries them out, or they are about the submission.
const NOT_FOR_RUN: [&str; 10] = [
    "nodes",
    "exclude",
    "job-name",
    "timeout",
    "memory-limit",
    "resource",
    "dry-run",
    "personality",
    "message-format",
    "app",
];

fn refuse(option: impl Into<String>, why: WhyNot) -> Error {
    let option = option.into();
    Error::NotForSlurm(Box::new(NotForSlurm { option, why }))
}

pub(super) fn format_of(line: &RunLine) -> MessageFormat {
    let job = &line.job.args;
    if job.json || job.message_format == Some(MessageFormatChoice::Json) {
        MessageFormat::Json
    } else {
        MessageFormat::Text
    }
}

pub(super) fn notices(line: &RunLine) -> Vec<Notice> {
    if line.ignored.is_empty() || line.job.args.quiet {
        return Vec::new();
    }
    vec![Notice::Ignored(line.ignored.clone())]
}

/// Steps of a `rally run` that precede the choice of its nodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps {
    /// Returns a command line with the programs of a file.
    pub(super) expand: fn(&RunLine, &Path, &World) -> Result<RunLine, Error>,
    /// Checks everything that does not depend on the nodes.
    pub(super) check: fn(&RunLine, Missing, &World) -> Result<(), Error>,
}

/// What it means that a file is missing which the job reads when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    Mistake,
    /// Another job may write it before.
    MayCome,
}

/// Translates a submission.
///
/// # Errors
///
/// The first option that cannot be translated.
pub(super) fn translate(
    args: &SubmitArgs,
    line: &RunLine,
    steps: Steps,
    world: &World,
) -> Result<Batch, Error> {
    let expanded;
    let line = match &line.job.args.app_file {
        Some(path) => {
            expanded = (steps.expand)(line, path, world)?;
            &expanded
        }
        None => line,
    };
    refuse_what_is_not_translated(line)?;
    if args.from.is_some() {
        return Err(refuse("--from", WhyNot::Several));
    }
    let directory = world.current()?;
    let mut options = Options::default();
    options.flag("parsable");
    options.value("comment", COMMENT);
    options.value("export", "ALL");
    options.value("chdir", &directory);
    let name = name_of_job(line)?;
    if !name.is_empty() {
        options.value("job-name", &name);
    }
    let output = output_files(args, world, &mut options)?;
    Shape::of(line, world)?.write(args, line, &mut options);
    order(args, &mut options)?;
    // Zero means no limit.
    let limit = args.time.or(line.job.args.timeout);
    let limit = limit.filter(|limit| !limit.is_zero());
    if let Some(limit) = limit {
        options.value("time", slurm_time(limit));
    }
    if let Some(memory) = line.job.args.limits.memory_limit {
        // Slurm counts MiB, for each node.
        options.value("mem", format!("{}M", memory.div_ceil(1 << 20)));
    }
    let licenses = line.job.args.resources.resource.iter();
    let licenses = licenses.map(|(name, count)| format!("{name}:{count}"));
    let licenses: Vec<String> = licenses.collect();
    if !licenses.is_empty() {
        options.value("licenses", licenses.join(","));
    }
    for option in &args.slurm_option {
        foreign::check(option)?;
        options.0.push(option.into());
    }
    let may_come = args.hold || !args.after.is_empty();
    let missing = if may_come {
        Missing::MayCome
    } else {
        Missing::Mistake
    };
    // Otherwise the job would fail only after it has waited for its turn.
    (steps.check)(line, missing, world)?;
    Ok(Batch {
        options: options.0,
        command: command(args, line, limit, world),
        array: args.array.clone(),
        output,
    })
}

/// Returns the name of the job; empty if its program has none.
fn name_of_job(line: &RunLine) -> Result<OsString, Error> {
    let name = match &line.job.args.job_name {
        Some(name) if name.is_empty() => return Err(empty(line.job.typed("job-name"))),
        Some(name) => name.clone(),
        None => name_of(&line.job, &line.apps).into(),
    };
    if name.as_bytes().iter().any(u8::is_ascii_control) {
        return Err(refuse(line.job.typed("job-name"), WhyNot::Control));
    }
    Ok(name)
}

fn empty(option: String) -> Error {
    Error::BadValue {
        option,
        value: String::new(),
        reason: ValueError::Empty,
    }
}

/// Options of `sbatch`.
#[derive(Debug, Default)]
struct Options(Vec<OsString>);

impl Options {
    fn flag(&mut self, name: &str) {
        self.0.push(format!("--{name}").into());
    }

    /// Adds an option with its value in one word, so that `sbatch` takes no other word for the value, whatever the value is.
    fn value(&mut self, name: &str, value: impl AsRef<OsStr>) {
        let mut word = OsString::from(format!("--{name}="));
        word.push(value);
        self.0.push(word);
    }

    fn number(&mut self, name: &str, value: u64) {
        self.value(name, value.to_string());
    }
}

fn refuse_what_is_not_translated(line: &RunLine) -> Result<(), Error> {
    let job = &line.job.args;
    let refused = [
        (job.hostfile.is_some(), "hostfile", WhyNot::Hostfile),
        (job.relative.is_some(), "relative", WhyNot::Allocated),
        (job.nolocal, "nolocal", WhyNot::Allocated),
        (job.jobid.is_some(), "jobid", WhyNot::Allocated),
        (job.machine.is_some(), "on-machine", WhyNot::OnMachine),
        (
            job.bootstrap == Some(Bootstrap::Fork),
            "bootstrap",
            WhyNot::Fork,
        ),
        (
            matches!(job.bootstrap, Some(Bootstrap::Pbs | Bootstrap::Lsf)),
            "bootstrap",
            WhyNot::OtherManager,
        ),
        (job.explain, "explain", WhyNot::Explain),
        (job.pty.is_some(), "pty", WhyNot::Terminal),
        (job.limits.cpu_limit.is_some(), "cpu-limit", WhyNot::CpuTime),
        (
            !job.resources.resource_per_proc.is_empty(),
            "resource-per-proc",
            WhyNot::RankResource,
        ),
    ];
    match refused.iter().find(|(is_given, ..)| *is_given) {
        Some((_, flag, why)) => Err(refuse(line.job.typed(flag), *why)),
        None => Ok(()),
    }
}

/// Names the files for the output, and returns that for standard output.
fn output_files(
    args: &SubmitArgs,
    world: &World,
    options: &mut Options,
) -> Result<OsString, Error> {
    let default = match &args.array {
        Some(_) => "rally-%j-%i.out",
        None => "rally-%j.out",
    };
    let directory = world.current()?;
    let place = |option: &str, file: &OsStr| -> Result<OsString, Error> {
        if file.is_empty() {
            return Err(empty(option.to_owned()));
        }
        let refused = |why| refuse(option, why);
        let mut path = OsString::new();
        if !Path::new(file).is_absolute() {
            // The directory is not a pattern, whatever its name.
            path.push(pattern(directory.as_os_str(), Reads::Nothing).map_err(refused)?);
            path.push("/");
        }
        let reads = match &args.array {
            Some(_) => Reads::Task,
            None => Reads::Job,
        };
        path.push(pattern(file, reads).map_err(refused)?);
        Ok(path)
    };
    let stdout = args.output_to.clone().unwrap_or_else(|| default.into());
    let stdout = place("--output-to", &stdout)?;
    options.value("output", &stdout);
    if let Some(file) = &args.errors_to {
        options.value("error", place("--errors-to", file)?);
    }
    options.value("open-mode", "append");
    Ok(stdout)
}

/// What a pattern may stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reads {
    /// Nothing: it is a plain name.
    Nothing,
    Job,
    Task,
}

/// Translates the pattern of a file name: `%j` is the number of the job, `%i` the index of the task, and `%%` is `%`.
fn pattern(ours: &OsStr, reads: Reads) -> Result<OsString, WhyNot> {
    let ours = ours.as_bytes();
    if ours.contains(&b'\\') {
        return Err(WhyNot::Backslash);
    }
    if ours.iter().any(u8::is_ascii_control) {
        return Err(WhyNot::Control);
    }
    let mut theirs = Vec::with_capacity(ours.len());
    let mut bytes = ours.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            theirs.push(byte);
            continue;
        }
        let next = bytes.next_if(|_| reads != Reads::Nothing);
        match (next, reads) {
            (Some(b'j'), Reads::Task) => theirs.extend(b"%A"),
            (Some(b'j'), _) => theirs.extend(b"%j"),
            (Some(b'i'), Reads::Task) => theirs.extend(b"%a"),
            (Some(b'i'), _) => theirs.push(b'0'),
            (Some(b'%') | None, _) => theirs.extend(b"%%"),
            (Some(other), _) => theirs.extend([b'%', b'%', other]),
        }
    }
    Ok(OsString::from_vec(theirs))
}

/// Writes when the job may start.
fn order(args: &SubmitArgs, options: &mut Options) -> Result<(), Error> {
    if let Some(indexes) = &args.array {
        let most = args.max_running.map(|most| format!("%{most}"));
        let indexes = slurm_indexes(indexes);
        options.value("array", format!("{indexes}{}", most.unwrap_or_default()));
    } else if args.max_running.is_some() {
        return Err(Error::Together {
            first: "--max-running".to_owned(),
            second: "no --array".to_owned(),
            why: "only the tasks of an array are counted",
        });
    }
    if !args.after.is_empty() {
        let all = args.after.iter().map(|dependency| {
            let kind = match dependency.kind {
                DependencyKind::Succeeded => "afterok",
                DependencyKind::Ended => "afterany",
                DependencyKind::Started => "after",
            };
            format!("{kind}:{}", dependency.on)
        });
        options.value("dependency", all.collect::<Vec<_>>().join(","));
        // Otherwise the job would wait forever for what cannot happen any more.
        options.value("kill-on-invalid-dep", "yes");
    }
    if args.hold {
        options.flag("hold");
    }
    options.flag(if args.requeue {
        "requeue"
    } else {
        "no-requeue"
    });
    match args.priority {
        None | Some(0) => {}
        Some(priority) if priority > 0 && os::effective_uid() != 0 => {
            return Err(refuse(format!("--priority {priority}"), WhyNot::Raised));
        }
        Some(priority) => options.value("nice", (-i64::from(priority)).to_string()),
    }
    Ok(())
}

/// Returns indexes in Slurm's form, which has `0-10:5` for our `0-10/5`.
pub(crate) fn slurm_indexes(indexes: &RankSet) -> String {
    indexes.to_string().replace('/', ":")
}

/// Returns a time in Slurm's form `D-HH:MM:SS`, rounded up: 0 would mean no limit.
fn slurm_time(time: Duration) -> String {
    let seconds = time.as_millis().div_ceil(1000).max(1);
    let (days, hours) = (seconds / 86_400, seconds / 3600 % 24);
    let (minutes, rest) = (seconds / 60 % 60, seconds % 60);
    format!("{days}-{hours:02}:{minutes:02}:{rest:02}")
}

/// Returns the command of the job.
fn command(
    args: &SubmitArgs,
    line: &RunLine,
    limit: Option<Duration>,
    world: &World,
) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec![
        world.executable.clone().into_os_string(),
        "run".into(),
        "--on-machine=none".into(),
    ];
    if let Some(limit) = limit {
        // Exact to the second, and with our own report; Slurm counts minutes, and comes later.
        words.push(format!("--timeout={}ms", limit.as_millis()).into());
    }
    let for_run = |option: &&Canonical| !NOT_FOR_RUN.contains(&option.flag.as_str());
    words.extend(
        line.job
            .typed
            .iter()
            .filter(for_run)
            .map(Canonical::argument),
    );
    for (position, app) in line.apps.iter().enumerate() {
        if position > 0 {
            words.push(":".into());
        }
        // A `rally run` removes the variables of another one, unless it is told to pass them on.
        words.push("--set-env=RALLY_QUEUE_JOB".into());
        if args.array.is_some() {
            words.push("--set-env=RALLY_ARRAY_INDEX".into());
        }
        words.extend(app.typed.iter().filter(for_run).map(Canonical::argument));
        words.push("--".into());
        words.extend(app.program.iter().cloned());
    }
    words
}
