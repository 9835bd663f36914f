//! The command line that a launch configuration stands for.

use std::ffi::OsString;

use super::{
    error::LaunchProblem,
    file::{Debugger, File, JOB, OURS, PID, SOURCES, Sources, StartAs, Stop, is_gdb},
    mistake::Mistake,
    options::FileOption,
};
use crate::quoting;

/// What a launch configuration is used for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    Run,
    Debug,
    /// Attach to the job of this name.
    Attach(OsString),
}

impl Goal {
    pub(super) const fn is_attach(&self) -> bool {
        matches!(self, Self::Attach(_))
    }
}

/// What carries out a launch configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Carrier {
    /// Our own command line, with our name at its start.
    Rally(Vec<OsString>),
    /// A debugger that starts the command line behind these words.
    Debugger(Vec<OsString>, Vec<OsString>),
    /// A debugger that attaches.
    Attached(Vec<OsString>),
    /// Our debugger, with these arguments.
    Dbgr(Vec<OsString>),
}

/// Returns what carries a launch configuration out.
pub(super) fn carrier(file: &File, goal: &Goal) -> Result<Carrier, Mistake> {
    let debugger = &file.debugger;
    let program = debugger.program.as_deref().filter(|name| *name != OURS);
    match (goal, program) {
        (Goal::Run, _) => Ok(Carrier::Rally(job(file, Vec::new()))),
        (Goal::Debug, _) if let Some((_, at)) = &file.queue => {
            let problem = LaunchProblem::Together {
                first: "`--debug`".to_owned(),
                second: "`[queue]`".to_owned(),
                why: "a submitted job has no terminal: leave `[queue]` out, or attach with `--attach JOB`",
            };
            Err(Mistake::at(at.clone(), problem))
        }
        (Goal::Debug, None) => {
            let hold = hold(debugger.stop.unwrap_or(Stop::Exec));
            Ok(Carrier::Rally(job(file, hold)))
        }
        (Goal::Debug, Some(program)) => Ok(debug(file, program)),
        (Goal::Attach(target), None) => {
            let mut words = to_words(&debugger.args);
            if words.is_empty() {
                words.push("stacks".into());
            }
            words.push(target.clone());
            Ok(Carrier::Dbgr(words))
        }
        (Goal::Attach(target), Some(program)) => attach(file, program, target),
    }
}

/// Returns what starts a job under a debugger that is not ours.
fn debug(file: &File, program: &str) -> Carrier {
    let debugger = &file.debugger;
    if debugger.start == StartAs::Launcher {
        let line = job(file, debugger.stop.map(hold).unwrap_or_default());
        let mut words = vec![program.into()];
        words.extend(arguments(debugger, program, &file.sources));
        if is_gdb(program) && !debugger.args.iter().any(|word| word == "--args") {
            words.push("--args".into());
        }
        return Carrier::Debugger(words, line);
    }
    let mut options = hold(debugger.stop.unwrap_or(Stop::Exec));
    let (program, words) = beside(file, program);
    options.push(joined("tool", &program));
    if !words.is_empty() {
        options.push(joined("tool-arguments", &quoting::joined(&words)));
    }
    if debugger.start == StartAs::Rank {
        options.push("--tool-per-rank".into());
    }
    Carrier::Rally(job(file, options))
}

/// Returns what attaches a debugger that is not ours.
fn attach(file: &File, program: &str, target: &OsString) -> Result<Carrier, Mistake> {
    let debugger = &file.debugger;
    let mut words: Vec<OsString>;
    if debugger.start == StartAs::Launcher {
        words = vec![program.into()];
        let own = match &debugger.attach {
            Some(own) => own.clone(),
            None if is_gdb(program) => vec!["-p".to_owned(), JOB.to_owned()],
            None => {
                return Err(Mistake::somewhere(
                    debugger.at.clone(),
                    LaunchProblem::NoAttach(program.to_owned()),
                ));
            }
        };
        words.extend(to_words(&of_sources(program, &file.sources)));
        let target = target.to_string_lossy();
        let filled = own.iter().map(|word| word.replace(JOB, &target));
        let filled: Vec<String> = filled
            .map(|word| with_sources(&word, &file.sources))
            .collect();
        words.extend(to_words(&filled));
        return Ok(Carrier::Attached(words));
    }
    words = vec!["rally".into(), "start-tool".into()];
    if debugger.start == StartAs::Rank {
        // What the user types reaches the debugger of each rank.
        words.extend(["--per-rank", "--label", "--stdin=all"].map(OsString::from));
    }
    words.extend([target.clone(), "--".into()]);
    let (program, own) = beside(file, program);
    words.push(program.into());
    words.extend(to_words(&own));
    Ok(Carrier::Rally(words))
}

/// Returns the options that hold ranks.
fn hold(stop: Stop) -> Vec<OsString> {
    match stop {
        Stop::Exec => vec!["--stop-on-exec".into()],
        Stop::Init => vec!["--stop-in-init".into()],
        Stop::App => vec!["--stop-in-app".into()],
        Stop::No => Vec::new(),
    }
}

/// Returns the command line of the job: the options of the file, then `more`, then the apps.
fn job(file: &File, more: Vec<OsString>) -> Vec<OsString> {
    let command = match &file.queue {
        Some(_) => "submit",
        None => "run",
    };
    let mut words = vec!["rally".into(), command.into()];
    let queue = file.queue.iter().flat_map(|(options, _)| options);
    words.extend(file.job.iter().chain(queue).map(option));
    words.extend(more);
    for (index, app) in file.apps.iter().enumerate() {
        if index > 0 {
            words.push(":".into());
        }
        words.extend(app.options.iter().map(option));
        words.push("--".into());
        words.push((&app.program).into());
        words.extend(to_words(&app.args));
    }
    words
}

fn option(option: &FileOption) -> OsString {
    match &option.value {
        Some(value) => joined(&option.flag, value),
        None => format!("--{}", option.flag).into(),
    }
}

fn joined(flag: &str, value: &str) -> OsString {
    format!("--{flag}={value}").into()
}

fn to_words(words: &[String]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

/// Returns the program and the arguments of a debugger beside the ranks. Only the process of a rank knows its pid, so that a shell
/// there writes it into the words.
fn beside(file: &File, program: &str) -> (String, Vec<String>) {
    let debugger = &file.debugger;
    let mut words = of_sources(program, &file.sources);
    let own = debugger.args.iter();
    words.extend(own.map(|word| with_sources(word, &file.sources)));
    if debugger.start == StartAs::Node {
        return (program.to_owned(), words);
    }
    if is_gdb(program) && !words.iter().any(|word| word.contains(PID)) {
        words.extend(["-p".to_owned(), PID.to_owned()]);
    }
    if !words.iter().any(|word| word.contains(PID)) {
        return (program.to_owned(), words);
    }
    let quoted = words.iter().map(|word| {
        if word.is_empty() {
            return quoting::quoted(word);
        }
        let parts = word.split(PID).map(|part| match part {
            "" => String::new(),
            part => quoting::quoted(part),
        });
        parts.collect::<Vec<_>>().join("\"$pid\"")
    });
    let line = std::iter::once(quoting::quoted(program)).chain(quoted);
    let line = line.collect::<Vec<_>>().join(" ");
    let script = format!("pid=${{RALLY_TOOL_RANKS##*:}}; exec {line}");
    ("/bin/sh".to_owned(), vec!["-c".to_owned(), script])
}

fn arguments(debugger: &Debugger, program: &str, sources: &Sources) -> Vec<OsString> {
    let mut words = of_sources(program, sources);
    words.extend(debugger.args.iter().map(|word| with_sources(word, sources)));
    to_words(&words)
}

/// Returns the arguments by which gdb finds sources; none for other debuggers.
fn of_sources(program: &str, sources: &Sources) -> Vec<String> {
    if !is_gdb(program) {
        return Vec::new();
    }
    let directories = sources.directories.iter();
    let directories = directories.flat_map(|name| ["-d".to_owned(), name.clone()]);
    let substitutes = sources.substitute.iter().flat_map(|(from, to)| {
        let command = format!(
            "set substitute-path {} {}",
            quoting::quoted(from),
            quoting::quoted(to)
        );
        ["-iex".to_owned(), command]
    });
    directories.chain(substitutes).collect()
}

fn with_sources(word: &str, sources: &Sources) -> String {
    word.replace(SOURCES, &sources.directories.join(":"))
}

/// Returns true if the debugger gets what `[sources]` says.
pub(super) fn uses_sources(debugger: &Debugger, sources: &Sources) -> bool {
    let program = debugger.program.as_deref().unwrap_or(OURS);
    let attach = debugger.attach.iter().flatten();
    let has_place = |word: &String| word.contains(SOURCES);
    let is_named = debugger.args.iter().chain(attach).any(has_place);
    let is_empty = sources.directories.is_empty() && sources.substitute.is_empty();
    is_empty || is_gdb(program) || (is_named && sources.substitute.is_empty())
}
