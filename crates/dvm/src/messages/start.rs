//! Messages about procs that could not be started.

use base::{HostList, NodeId, RankSet};
use message::Kind;

use super::{
    CLASSES_MAX, Message, NOT_STARTED, Scene, effect, kind as k,
    words::{brief, count, errno, errno_text, plain, quoted, ranks_list, ranks_text},
};
use crate::proto::{Outcome, StartFailure, StartStep};

/// Problem that kept a proc from starting. It determines the message and the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StartProblem {
    /// The program does not exist.
    NoProgram,
    /// The program exists, but its interpreter (after `#!`) or its dynamic linker does not.
    NoInterpreter,
    /// The program may not be executed.
    NotExecutable,
    /// The program is a directory.
    IsDirectory,
    /// The file is not a program, or is a program for another processor.
    WrongFormat,
    /// A process has the program open for writing.
    Busy,
    /// Arguments and environment together are too long.
    ArgumentsTooLong,
    /// The working directory cannot be used.
    NoDirectory,
    /// A file for the output cannot be opened.
    OutputFile,
    /// A limit on the number of processes was reached.
    NoPids,
    /// A limit on the number of open files was reached.
    NoDescriptors,
    /// Memory is exhausted.
    NoMemory,
    /// The proc could not be bound to its PUs.
    CannotBind,
    /// No terminal is available for the proc.
    NoTerminal,
    /// The proc cannot be held at its first instruction.
    CannotTrace,
    /// Any other problem.
    Other,
}

/// Returns the problem behind a failure.
///
/// The step distinguishes a missing program from a missing interpreter. [`StartStep::Find`] checks that the file
/// exists, also for names with a slash. Therefore `ENOENT` from [`StartStep::Exec`] concerns the file's interpreter.
#[must_use]
pub fn classify(failure: &StartFailure) -> StartProblem {
    use errno::{
        E2BIG, EACCES, EAGAIN, EISDIR, ELIBBAD, ELOOP, EMFILE, ENAMETOOLONG, ENFILE, ENOENT,
        ENOEXEC, ENOMEM, ENOTDIR, EPERM, ETXTBSY,
    };
    match (failure.step, failure.errno) {
        (StartStep::OutputFile, EMFILE | ENFILE) => StartProblem::NoDescriptors,
        (StartStep::OutputFile, _) => StartProblem::OutputFile,
        (StartStep::Directory, _) => StartProblem::NoDirectory,
        (_, ENOMEM) => StartProblem::NoMemory,
        (_, EMFILE | ENFILE) => StartProblem::NoDescriptors,
        (StartStep::Find, ENOENT | ENOTDIR | ENAMETOOLONG | ELOOP) => StartProblem::NoProgram,
        (StartStep::Exec, ENOENT | ENOTDIR) => StartProblem::NoInterpreter,
        (StartStep::Find | StartStep::Exec, EISDIR) => StartProblem::IsDirectory,
        (StartStep::Find | StartStep::Exec, EACCES | EPERM) => StartProblem::NotExecutable,
        (StartStep::Exec, ENOEXEC | ELIBBAD) => StartProblem::WrongFormat,
        (StartStep::Exec, ETXTBSY) => StartProblem::Busy,
        (StartStep::Exec, E2BIG) => StartProblem::ArgumentsTooLong,
        (StartStep::Fork | StartStep::Exec, EAGAIN) => StartProblem::NoPids,
        (StartStep::Affinity, _) => StartProblem::CannotBind,
        (StartStep::Terminal, _) => StartProblem::NoTerminal,
        (StartStep::Trace, _) => StartProblem::CannotTrace,
        _ => StartProblem::Other,
    }
}

impl StartProblem {
    #[cfg(test)]
    pub(super) const ALL: [Self; 16] = [
        Self::NoProgram,
        Self::NoInterpreter,
        Self::NotExecutable,
        Self::IsDirectory,
        Self::WrongFormat,
        Self::Busy,
        Self::ArgumentsTooLong,
        Self::NoDirectory,
        Self::OutputFile,
        Self::NoPids,
        Self::NoDescriptors,
        Self::NoMemory,
        Self::CannotBind,
        Self::NoTerminal,
        Self::CannotTrace,
        Self::Other,
    ];

    pub(super) const fn kind(self) -> &'static Kind {
        match self {
            Self::NoProgram => &k::NO_PROGRAM,
            Self::NoInterpreter => &k::NO_INTERPRETER,
            Self::NotExecutable => &k::NOT_EXECUTABLE,
            Self::IsDirectory => &k::IS_DIRECTORY,
            Self::WrongFormat => &k::WRONG_FORMAT,
            Self::Busy => &k::BUSY,
            Self::ArgumentsTooLong => &k::ARGUMENTS_TOO_LONG,
            Self::NoDirectory => &k::NO_DIRECTORY,
            Self::OutputFile => &k::OUTPUT_FILE,
            Self::NoPids => &k::NO_PIDS,
            Self::NoDescriptors => &k::NO_DESCRIPTORS,
            Self::NoMemory => &k::NO_MEMORY,
            Self::CannotBind => &k::CANNOT_BIND,
            Self::NoTerminal => &k::NO_TERMINAL,
            Self::CannotTrace => &k::CANNOT_TRACE,
            Self::Other => &k::NOT_STARTED,
        }
    }
}

/// Returns one message for each class of failure, starting with the class of the lowest rank.
pub(super) fn messages(
    classes: &[(StartFailure, RankSet)],
    outcome: &Outcome,
    scene: &Scene<'_>,
) -> Vec<Message> {
    let mut classes = classes.iter().collect::<Vec<_>>();
    classes.sort_by_key(|(_, ranks)| ranks.first());
    let failed = classes
        .iter()
        .fold(RankSet::new(), |all, (_, ranks)| all.union(ranks));
    let effect = if outcome.ended.is_empty() {
        NOT_STARTED.to_owned()
    } else {
        effect(&failed, outcome, scene).unwrap_or_else(|| NOT_STARTED.to_owned())
    };
    let rest = classes.split_off(classes.len().min(CLASSES_MAX));
    let mut messages = classes
        .iter()
        .map(|(failure, ranks)| message(failure, ranks, &outcome.failed_on, scene))
        .collect::<Vec<_>>();
    if let Some(first) = messages.first_mut() {
        first.facts.push(("effect", effect));
    }
    if !rest.is_empty() {
        let ranks = rest
            .iter()
            .fold(RankSet::new(), |all, (_, ranks)| all.union(ranks));
        messages.push(Message::new(
            &k::MORE_FAILED,
            format!(
                "{} could not be started for {} more",
                ranks_text(&ranks),
                count(rest.len() as u64, "reason", "reasons")
            ),
        ));
    }
    messages
}

/// Returns the failure of these ranks, without its effect on the job. `failed_on` has the nodes of ranks that were not started.
pub(super) fn message(
    failure: &StartFailure,
    ranks: &RankSet,
    failed_on: &[(NodeId, RankSet)],
    scene: &Scene<'_>,
) -> Message {
    let hosts = hosts(ranks, failed_on, scene);
    let on = hosts
        .as_ref()
        .map_or_else(String::new, |hosts| format!(" on `{hosts}`"));
    let problem = classify(failure);
    let subject = failure.subject.as_deref().map(quoted);
    let program = match failure.step {
        StartStep::Find | StartStep::Exec => subject.clone(),
        _ => match scene.apps {
            [only] => Some(quoted(&only.program)),
            _ => None,
        },
    };
    let what = match &program {
        Some(program) => format!("cannot start {program}{on}"),
        None => format!("cannot start {}{on}", ranks_text(ranks)),
    };
    let why = why(failure, ranks);
    let message = Message::new(problem.kind(), format!("{what}: {why}"))
        .fact("step", step_text(failure.step))
        .fact(
            if ranks.len() == 1 { "rank" } else { "ranks" },
            ranks_list(ranks),
        );
    let message = match problem {
        StartProblem::NoProgram => match place_of_search(failure, scene) {
            Some((name, value)) => message.fact(name, value),
            None => message,
        },
        _ => message,
    };
    match help(
        problem,
        failure,
        subject.as_deref().or(program.as_deref()),
        hosts.as_deref(),
    ) {
        Some(help) => message.with_help(help),
        None => message,
    }
}

/// Returns the names of the nodes on which these ranks were to be started. `None` if no node is known.
fn hosts(ranks: &RankSet, failed_on: &[(NodeId, RankSet)], scene: &Scene<'_>) -> Option<String> {
    if let Some(hosts) = scene.hosts(ranks) {
        return Some(hosts);
    }
    let nodes = failed_on
        .iter()
        .filter(|(_, failed)| !failed.is_disjoint(ranks));
    let names = nodes.filter_map(|(node, _)| scene.nodes.get(node.0 as usize));
    let hosts: HostList = names.map(String::as_str).collect();
    (!hosts.is_empty()).then(|| brief(&plain(&hosts.to_string())))
}

/// Returns why these ranks could not be started, without the name of the program.
pub(super) fn why(failure: &StartFailure, ranks: &RankSet) -> String {
    let subject = failure.subject.as_deref().map(quoted);
    let has_slash = subject.as_ref().is_some_and(|name| name.contains('/'));
    match classify(failure) {
        StartProblem::NoProgram if has_slash && failure.errno != errno::ENOENT => {
            errno_text(failure.errno)
        }
        StartProblem::NoProgram if has_slash => "there is no such file".to_owned(),
        StartProblem::NoProgram => "no directory of the search path has it".to_owned(),
        StartProblem::NoInterpreter => "the interpreter that it names does not exist".to_owned(),
        StartProblem::IsDirectory => "it is a directory".to_owned(),
        StartProblem::WrongFormat => "it is not a program that this machine can run".to_owned(),
        StartProblem::Busy => "it is open for writing".to_owned(),
        StartProblem::ArgumentsTooLong => "arguments and environment are too long".to_owned(),
        StartProblem::NoDirectory | StartProblem::OutputFile => format!(
            "cannot {}{}: {}",
            step_text(failure.step),
            subject
                .as_ref()
                .map_or_else(String::new, |name| format!(" {name}")),
            errno_text(failure.errno)
        ),
        StartProblem::NoPids => "the limit on processes is reached".to_owned(),
        StartProblem::NoDescriptors if failure.errno == errno::ENFILE => {
            "the system's limit on open files is reached".to_owned()
        }
        StartProblem::NoDescriptors if failure.step == StartStep::Room => format!(
            "the limit on open files is too low for {}",
            count(ranks.len() as u64, "rank", "ranks")
        ),
        StartProblem::NoDescriptors => "the limit on open files is reached".to_owned(),
        StartProblem::NotExecutable | StartProblem::NoMemory => errno_text(failure.errno),
        StartProblem::CannotBind
        | StartProblem::NoTerminal
        | StartProblem::CannotTrace
        | StartProblem::Other => format!(
            "cannot {}: {}",
            step_text(failure.step),
            errno_text(failure.errno)
        ),
    }
}

/// Returns where a program was searched for.
fn place_of_search(failure: &StartFailure, scene: &Scene<'_>) -> Option<(&'static str, String)> {
    let subject = failure.subject.as_ref()?;
    let app = scene.apps.iter().find(|app| app.program == *subject)?;
    let name = subject.to_string_lossy();
    if name.starts_with('/') {
        None
    } else if name.contains('/') {
        Some(("directory", quoted(&app.directory)))
    } else {
        Some(("path", plain(&app.search.to_string_lossy())))
    }
}

fn help(
    problem: StartProblem,
    failure: &StartFailure,
    name: Option<&str>,
    hosts: Option<&str>,
) -> Option<String> {
    let bare = name.unwrap_or("the program").trim_matches('`');
    let text = match problem {
        StartProblem::NoProgram if bare.contains('/') => return None,
        StartProblem::NoProgram => {
            format!("for a program in the working directory, write `./{bare}`")
        }
        StartProblem::NoInterpreter => format!(
            "`head -1 {bare}` shows the `#!` line of a script (mind Windows line ends), `file {bare}` the loader of a binary"
        ),
        StartProblem::NotExecutable => format!(
            "`chmod +x {bare}`, or look for a directory above it that you may not enter or a file system mounted with `noexec`"
        ),
        StartProblem::IsDirectory => return None,
        StartProblem::WrongFormat => {
            "a script needs a first line like `#!/bin/sh`; a binary must be built for this kind of processor".to_owned()
        }
        StartProblem::Busy => "wait until the copy or the link that writes it is done".to_owned(),
        StartProblem::ArgumentsTooLong => {
            "pass long lists in a file, or a smaller environment; `getconf ARG_MAX` shows the limit".to_owned()
        }
        StartProblem::NoDirectory => match hosts {
            Some(host) => format!("the directory must exist on `{host}`; choose another with `--wdir`"),
            None => "the directory must exist on each node; choose another with `--wdir`".to_owned(),
        },
        StartProblem::OutputFile => return None,
        StartProblem::NoPids => {
            "raise `ulimit -u` or the cgroup's `pids.max`, or start fewer ranks".to_owned()
        }
        StartProblem::NoDescriptors if failure.errno == errno::ENFILE => {
            "`sysctl fs.file-max` shows the limit".to_owned()
        }
        StartProblem::NoDescriptors => "raise `ulimit -n`, or start fewer ranks".to_owned(),
        StartProblem::NoMemory => {
            "start fewer ranks; `free -m` and the cgroup's `memory.max` show what there is".to_owned()
        }
        StartProblem::CannotBind => {
            "the PUs that we may use have changed; `--bind-to none` runs without binding".to_owned()
        }
        StartProblem::NoTerminal => {
            "`/dev/pts` must be mounted; `sysctl kernel.pty.nr kernel.pty.max` shows how many terminals are in use".to_owned()
        }
        StartProblem::CannotTrace => {
            "holding a rank needs ptrace: see `sysctl kernel.yama.ptrace_scope` and the container's seccomp profile".to_owned()
        }
        StartProblem::Other => return None,
    };
    Some(text)
}

/// Returns a step in the user's words.
const fn step_text(step: StartStep) -> &'static str {
    match step {
        StartStep::Room => "reserve descriptors for all ranks",
        StartStep::Find => "find the program",
        StartStep::Channels => "make the channels for input and output",
        StartStep::OutputFile => "open the output file",
        StartStep::Fork => "fork",
        StartStep::ProcessGroup => "make a session",
        StartStep::ParentDeath => "arm the parent-death signal",
        StartStep::Affinity => "bind to the chosen PUs",
        StartStep::Limits => "set the resource limits",
        StartStep::Umask => "set the file mode mask",
        StartStep::Directory => "enter the working directory",
        StartStep::Descriptors => "arrange the descriptors",
        StartStep::Terminal => "open a terminal",
        StartStep::Signals => "reset the signals",
        StartStep::Trace => "hold at the first instruction",
        StartStep::Exec => "execute the program",
        StartStep::Cgroup => "enter the cgroup that has the limits of the job",
    }
}
