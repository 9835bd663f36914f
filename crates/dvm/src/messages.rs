//! All messages to users about jobs.
//!
//! The crate `message` defines a [`Message`] and prints it. A [`Scene`] holds the context besides the event itself:
//! host names, programs, the policy. One problem is one message: ranks that failed alike share a message. Beyond
//! [`CLASSES_MAX`] classes of failure, the remaining ones are only counted.
//!
//! Each message is of one of the kinds in [`KINDS`]. The kind holds the stable id and the long explanation, which
//! `rally help ID` prints.

mod controlling;
mod kind;
mod limits;
mod logged;
mod machine;
mod nodes;
mod preload;
mod rank;
mod slurm;
mod start;
mod tool;
mod trouble;
mod words;

#[cfg(test)]
mod tests;

use base::{ExitStatus, JobId, Rank, RankSet, Signal};
use message::{Message, Severity, duration};

use self::{
    kind as k,
    words::{
        brief, count, errno_text, join_facts, left, list, plain, quoted, ranks_list, ranks_text,
    },
};
pub use self::{
    kind::{KINDS, explain},
    machine::{not_done, not_watched, too_much},
    nodes::not_used,
    preload::size,
    start::{StartProblem, classify},
    tool::tool,
};
use crate::{
    place,
    proto::{Cause, EndReason, Note, Outcome, RankChoice, Refusal, StartStep, TableRow},
    spec::{App, EndPolicy, GpuShare, HoldAt, OnFailure},
};

/// Maximum number of classes of failure with a message each. One more message counts the remaining classes.
pub const CLASSES_MAX: usize = 8;

/// Maximum number of pids that one message lists.
const PIDS_MAX: usize = 16;

/// Known facts about the job that a message is about.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    /// Number of the job; `None` before the controller has assigned one.
    pub job: Option<JobId>,
    /// Host names by `NodeId`. With a single name, every rank is on that host.
    pub nodes: &'a [String],
    /// Known part of the proc table, sorted by rank.
    pub table: &'a [TableRow],
    pub apps: &'a [App],
    pub end: EndPolicy,
}

impl Scene<'_> {
    /// Returns `` on `n1` `` with a space before it, or nothing if the host is not known.
    fn on(&self, ranks: &RankSet) -> String {
        match self.hosts(ranks) {
            Some(hosts) => format!(" on `{hosts}`"),
            None => String::new(),
        }
    }

    fn hosts(&self, ranks: &RankSet) -> Option<String> {
        if let [only] = self.nodes {
            return Some(plain(only));
        }
        let mut hosts = base::HostList::new();
        let mut last: Option<&str> = None;
        for row in self.table.iter().filter(|row| ranks.contains(row.rank)) {
            if last != Some(row.host.as_str()) && !hosts.contains(&row.host) {
                hosts.push(row.host.clone());
            }
            last = Some(&row.host);
        }
        (!hosts.is_empty()).then(|| brief(&plain(&hosts.to_string())))
    }

    /// Returns the host name of a node.
    fn node(&self, node: base::NodeId) -> String {
        let name = usize::try_from(node.0)
            .ok()
            .and_then(|index| self.nodes.get(index));
        match name {
            Some(name) => format!("`{}`", plain(name)),
            None => format!("node {node}"),
        }
    }

    /// Returns the program of these ranks; `None` if the job has only one.
    fn program(&self, ranks: &RankSet) -> Option<String> {
        if self.apps.len() < 2 {
            return None;
        }
        let mut programs = self
            .table
            .iter()
            .filter(|row| ranks.contains(row.rank))
            .map(|row| &row.executable);
        let first = programs.next()?;
        programs
            .all(|program| program == first)
            .then(|| quoted(first))
    }
}

/// Returns the message for a job that was refused.
#[must_use]
pub fn refused(refusal: &Refusal) -> Message {
    match refusal {
        Refusal::Placement(error) => placement_error(error),
        Refusal::Pattern(what) => Message::new(
            &k::BAD_PATTERN,
            format!("cannot make a file name for the output: {}", plain(what)),
        )
        .fact("effect", NOT_STARTED),
        Refusal::TooFewGpus {
            host,
            needed,
            available,
            procs,
            share,
        } => {
            let gpus = |number: u64| format!("{number} GPU{}", if number == 1 { "" } else { "s" });
            let what = format!(
                "the job needs {}, and `{}` has {available}",
                gpus(*needed),
                plain(host)
            );
            let message = Message::new(&k::TOO_FEW_GPUS, what);
            match share {
                _ if *available == 0 => message.with_help(
                    "leave the option out, or list the GPUs in CUDA_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES",
                ),
                GpuShare::Together(_) => message,
                GpuShare::Each(each) => {
                    let each = gpus(u64::from(*each));
                    message.fact("ranks", format!("{procs} on the node, with {each} each"))
                }
            }
            .fact("effect", NOT_STARTED)
            .with_help("ask for fewer, or start fewer ranks")
        }
        Refusal::NothingCounted => Message::new(
            &k::NOTHING_COUNTED,
            "`--resource` and `--resource-per-proc` are for jobs of a machine: nobody else counts resources",
        )
        .with_help("leave them out, or start a machine that has them: `rally up --shared-resource NAME=N`"),
        Refusal::OtherVersion { host, ours, theirs } => Message::new(
            &k::OTHER_VERSION,
            format!(
                "the daemon on {} is of another version of rally",
                quoted(host.as_ref())
            ),
        )
        .fact("protocol", format!("{theirs} there, {ours} here"))
        .fact("effect", NOT_STARTED)
        .with_help("install the same version on all nodes"),
        Refusal::NodeLost { host } => Message::new(
            &k::NODE_LOST,
            format!("the daemon on {} is gone", quoted(host.as_ref())),
        )
        .fact("effect", NOT_STARTED)
        .with_help("start the job again, without this node if it is down"),
        Refusal::NotJoined(failed) => nodes::not_joined(failed),
        Refusal::Machine(why) => not_done(why).fact("effect", NOT_STARTED),
        Refusal::ToolEnded => controlling::ended_before_release(),
        Refusal::Directive(key) => controlling::directive(key),
        Refusal::NotPreloaded(failed) => preload::not_preloaded(failed),
        Refusal::NoTarget(why) => tool::no_target(*why),
        Refusal::TooManyJobs { most } => Message::new(
            &k::TOO_MANY_JOBS,
            format!("this launcher already runs {most} jobs, and cannot run more"),
        )
        .fact("effect", NOT_STARTED)
        .with_help("wait until one of them has ended"),
        Refusal::NoSuchRank { what, rank, size } => Message::new(
            &k::NO_SUCH_RANK,
            match what {
                RankChoice::Input => format!("there is no rank {rank} to read the input"),
                RankChoice::Output => {
                    format!("there is no rank {rank} whose output could be shown")
                }
                RankChoice::Terminal => format!("there is no rank {rank} to have a terminal"),
                RankChoice::Held => format!("there is no rank {rank} to be held"),
            },
        )
        .fact("ranks", ranks_list(&(0..*size).map(Rank).collect()))
        .fact("effect", NOT_STARTED),
    }
}

const NOT_STARTED: &str = "the job was not started";

/// Returns the message for a placement error. `place` supplies the text; the effect is added here.
fn placement_error(error: &place::Error) -> Message {
    let mut message = Message {
        id: error.id(),
        severity: Severity::Error,
        headline: error.what(),
        facts: error.facts(),
        help: error.help(),
    };
    message.facts.push(("effect", NOT_STARTED.to_owned()));
    message
}

/// Returns the message for a condition that does not end the job.
#[must_use]
pub fn note(note: &Note, scene: &Scene<'_>) -> Message {
    match note {
        Note::NotJoined(failed) => not_used(failed),
        Note::Placement(note) => trouble::placement(note),
        Note::Leaky(ranks) => leaky(ranks, scene),
        Note::DebuggerLost { job, ranks } => debugger_gone(*job, ranks, scene),
        Note::NotHeldYet { at, ranks, held } => {
            let place = match at {
                HoldAt::Init => "PMIx_Init",
                HoldAt::App if ranks.len() == 1 => {
                    "the point where its library waits for a debugger"
                }
                HoldAt::App => "the point where their library waits for a debugger",
                HoldAt::Exec | HoldAt::Nowhere => "the first instruction",
            };
            let many = count(ranks.len() as u64, "rank", "ranks");
            let have = if ranks.len() == 1 { "has" } else { "have" };
            Message::new(
                &k::NOT_HELD_YET,
                format!("{many} {have} not reached {place} yet"),
            )
            .fact("running", ranks_list(ranks))
            .maybe("held", (!held.is_empty()).then(|| ranks_list(held)))
            .with_help(
                "a program that never gets there runs on; `--stop-on-exec` holds any program",
            )
        }
        Note::SpawnRefused { by, why } => preload::spawn_refused(*by, why),
        Note::SpawnNotPlaced { by, why, lost } => nodes::spawn_not_placed(*by, why, lost),
        Note::SpawnNotStarted { by, failed } => nodes::spawn_not_started(*by, failed),
        Note::NoScheduler { by } => trouble::no_scheduler(*by),
        Note::AllocationRefused { by, why } => slurm::refused(*by, why),
        Note::AllocationLeft { job, why } => slurm::left(*job, why),
        Note::SpawnedFailed { job, cause } => spawned_failed(*job, cause),
        Note::Logged { job, news, at } => logged::news(*job, news, *at),
        Note::LeftBehind { node, count: left } => Message::new(
            &k::LEFT_BEHIND,
            format!(
                "{} that the job left behind on {} {} ended",
                count(u64::from(*left), "process", "processes"),
                scene.node(*node),
                if *left == 1 { "was" } else { "were" },
            ),
        ),
        Note::Stuck { node, pids } => {
            let numbers = pids.iter().take(PIDS_MAX).map(ToString::to_string);
            let left_out = pids.len().saturating_sub(PIDS_MAX);
            Message::new(
                &k::STUCK,
                format!(
                    "{} on {} cannot be ended",
                    count(pids.len() as u64, "process", "processes"),
                    scene.node(*node),
                ),
            )
            .fact("step", "SIGKILL was sent, the kernel has not carried it out")
            .fact(
                if pids.len() == 1 { "pid" } else { "pids" },
                list(numbers, left_out),
            )
            .with_help("such a process waits in the kernel, often for a file server or a device; `ps -o pid,stat,wchan` shows for what")
        }
        Note::NotPermitted { node, pids } => {
            let numbers = pids.iter().take(PIDS_MAX).map(ToString::to_string);
            let left_out = pids.len().saturating_sub(PIDS_MAX);
            let (them, belong, run) = match pids.len() {
                1 => ("pid", "it belongs", "runs"),
                _ => ("pids", "they belong", "run"),
            };
            Message::new(
                &k::NOT_PERMITTED,
                format!(
                    "{} on {} {run} on: {belong} to another user, and we may not end {}",
                    count(pids.len() as u64, "process", "processes"),
                    scene.node(*node),
                    if pids.len() == 1 { "it" } else { "them" },
                ),
            )
            .fact(them, list(numbers, left_out))
            .with_help("that user or root can end such a process: `sudo kill PID`")
        }
        Note::Unfinished { ranks, rest } => trouble::unfinished(ranks, *rest, scene),
        Note::Refused(refused) => trouble::refused(refused, scene),
        Note::NodeLost { node, why } => nodes::lost(*node, why, scene),
        Note::Stranger { node, from, why } => nodes::stranger(*node, from, why, scene),
        Note::Port(what) => nodes::port(what),
        Note::NotLimited { hosts, unenforced } => limits::not_enforced(hosts, unenforced),
        Note::Missing { node, what, why } => trouble::missing(*node, *what, why, scene),
        Note::LastCall { rank, last } => rank::last_call(*rank, last),
        Note::WaitsForTool => controlling::waits(),
    }
}

fn leaky(ranks: &RankSet, scene: &Scene<'_>) -> Message {
    let one = ranks.len() == 1;
    Message::new(
        &k::LEAKY,
        format!(
            "{}{} {} exited, but something still holds {} output open",
            ranks_text(ranks),
            scene.on(ranks),
            if one { "has" } else { "have" },
            if one { "its" } else { "their" },
        ),
    )
    .maybe("program", scene.program(ranks))
    .fact(
        "effect",
        format!(
            "output that is written more than {} after the exit is lost",
            duration(crate::life::LEAK_DELAY)
        ),
    )
    .with_help("a process started in the background should close or redirect its stdout and stderr")
}

/// Returns the messages about the end of a job: none for success, else the deciding problem first, then the other
/// problems.
#[must_use]
pub fn outcome(outcome: &Outcome, scene: &Scene<'_>) -> Vec<Message> {
    match &outcome.cause {
        Cause::Success => Vec::new(),
        Cause::Failed { rank, status } => failed(*rank, *status, outcome, scene),
        Cause::NotStarted(classes) => start::messages(classes, outcome, scene),
        Cause::Aborted {
            rank,
            code,
            message,
        } => vec![aborted(*rank, *code, message, outcome, scene)],
        Cause::Protocol { rank, what } => vec![protocol(*rank, what, outcome, scene)],
        Cause::Absent(ranks) => vec![absent(ranks, outcome, scene)],
        Cause::Unfinished(ranks) => vec![trouble::left_alone(ranks, outcome, scene)],
        Cause::NodeLost { node, why } => vec![nodes::job_lost(*node, why, outcome, scene)],
        Cause::Spawned { job, cause } => vec![ended_with_spawned(*job, cause, outcome)],
        Cause::Ended(reason) => vec![ended(*reason, outcome, scene)],
    }
}

/// Returns the cause of a job's end in one line without NUL characters, while its effect on the ranks is still unknown.
/// Empty if the job ended by itself.
#[must_use]
pub fn cause(cause: &Cause, scene: &Scene<'_>) -> String {
    let nothing_known = Outcome {
        cause: cause.clone(),
        size: 0,
        ended: Vec::new(),
        not_started: RankSet::new(),
        failed_on: Vec::new(),
        ended_by_us: RankSet::new(),
        left: RankSet::new(),
    };
    let Some(message) = outcome(&nothing_known, scene).into_iter().next() else {
        return String::new();
    };
    let said = message.facts.iter().find(|(name, _)| *name == "message");
    match said {
        Some((_, text)) => format!("{}: {text}", message.headline),
        None => message.headline,
    }
}

fn failed(rank: Rank, status: ExitStatus, outcome: &Outcome, scene: &Scene<'_>) -> Vec<Message> {
    let by_itself = |ranks: &RankSet| ranks.difference(&outcome.ended_by_us);
    let mut first = RankSet::single(rank);
    let mut others = Vec::new();
    for (class, ranks) in &outcome.ended {
        let ranks = by_itself(ranks);
        if *class == status && ranks.contains(rank) {
            first = ranks;
        } else if !class.is_success() && !ranks.is_empty() {
            others.push((*class, ranks));
        }
    }
    let failed = others
        .iter()
        .fold(first.clone(), |all, (_, ranks)| all.union(ranks));
    let mut messages = vec![
        rank::failed(&first, status, scene)
            .maybe(
                "first",
                (first.len() > 1).then(|| format!("rank {rank}{}", scene.on_if_many(rank))),
            )
            .maybe("effect", effect(&failed, outcome, scene)),
    ];
    let rest = others.split_off(others.len().min(CLASSES_MAX - 1));
    messages.extend(
        others
            .iter()
            .map(|(class, ranks)| rank::failed(ranks, *class, scene)),
    );
    if !rest.is_empty() {
        let ranks = rest
            .iter()
            .fold(RankSet::new(), |all, (_, ranks)| all.union(ranks));
        messages.push(Message::new(
            &k::MORE_FAILED,
            format!(
                "{} failed in {} more",
                ranks_text(&ranks),
                count(rest.len() as u64, "way", "ways")
            ),
        ));
    }
    messages
}

impl Scene<'_> {
    /// Returns the host of one of several ranks like [`Scene::on`], but only if the job has several nodes.
    fn on_if_many(&self, rank: Rank) -> String {
        if self.nodes.len() == 1 {
            String::new()
        } else {
            self.on(&RankSet::single(rank))
        }
    }
}

fn debugger_gone(job: JobId, ranks: &RankSet, scene: &Scene<'_>) -> Message {
    let (runs, whose) = match ranks.len() {
        1 => ("runs", "its"),
        _ => ("run", "their"),
    };
    let place = if Some(job) == scene.job {
        scene.on(ranks)
    } else {
        format!(" of job {job}")
    };
    Message::new(
        &k::DEBUGGER_GONE,
        format!(
            "{}{place} {runs} on: {whose} debugger is gone",
            ranks_text(ranks),
        ),
    )
    .with_help("`--on-debugger-loss=kill` ends the job instead")
}

/// Returns the message about the failure of a job that a proc of the user's job spawned. The scene is that of the
/// user's job, so the message cannot name the hosts of the failed ranks.
fn spawned_failed(job: JobId, cause: &Cause) -> Message {
    let headline = format!(
        "job {job}, which a rank spawned, failed: {}",
        spawned_end(cause)
    );
    Message::new(&k::SPAWNED_FAILED, headline).maybe("message", spawned_text(cause))
}

/// Returns the message about the end of an MPI program that consists of several jobs, one of which failed.
fn ended_with_spawned(job: JobId, cause: &Cause, outcome: &Outcome) -> Message {
    let headline = format!(
        "job {job}, which a rank spawned, failed, and this job was ended with it: {}",
        spawned_end(cause)
    );
    Message::new(&k::ENDED_WITH_SPAWNED, headline)
        .maybe("message", spawned_text(cause))
        .maybe("effect", ended_effect(outcome))
}

/// Returns the text that a spawned job gave as the reason for its end.
fn spawned_text(cause: &Cause) -> Option<String> {
    let text = match cause {
        Cause::Aborted { message, .. } => plain(message.trim()),
        Cause::Protocol { what, .. } => plain(what.trim()),
        _ => String::new(),
    };
    (!text.is_empty()).then_some(text)
}

/// Returns a description of the end of a spawned job.
fn spawned_end(cause: &Cause) -> String {
    match cause {
        Cause::Failed { rank, status } => match status {
            ExitStatus::Exited(code) => format!("its rank {rank} exited with code {code}"),
            ExitStatus::Signaled { signal, .. } => {
                format!("its rank {rank} was killed by {signal}")
            }
            ExitStatus::OutOfMemory { .. } => {
                format!("its rank {rank} was killed by the kernel: out of memory")
            }
        },
        Cause::Aborted { rank, code, .. } => {
            format!("its rank {rank} aborted it with code {code}")
        }
        Cause::Protocol { rank, .. } => {
            format!("its rank {rank} broke the rules of the process management interface")
        }
        Cause::Absent(ranks) => format!("its {} ended without `MPI_Init`", ranks_text(ranks)),
        Cause::Unfinished(ranks) => {
            format!("its {} ended without `MPI_Finalize`", ranks_text(ranks))
        }
        Cause::NodeLost { why, .. } => format!("a node of it was lost: {why}"),
        Cause::NotStarted(classes) => match classes.first() {
            Some((failure, ranks)) => {
                let program = match (failure.step, failure.subject.as_deref()) {
                    (StartStep::Find | StartStep::Exec, Some(program)) => quoted(program),
                    _ => "it".to_owned(),
                };
                format!("cannot start {program}: {}", start::why(failure, ranks))
            }
            None => "it could not be started".to_owned(),
        },
        Cause::Spawned { job, cause } => {
            format!(
                "job {job}, which it spawned, failed: {}",
                spawned_end(cause)
            )
        }
        Cause::Ended(EndReason::DebuggerLost) => {
            "it was ended, because its debugger is gone".to_owned()
        }
        // A spawned job has no time limit of its own.
        Cause::Ended(EndReason::TimeLimit) => "the time of its allocation was over".to_owned(),
        Cause::Success | Cause::Ended(_) => "it was ended".to_owned(),
    }
}

/// Returns what happened to the ranks outside `about`; `None` if there are none.
fn effect(about: &RankSet, outcome: &Outcome, scene: &Scene<'_>) -> Option<String> {
    let ended_by_us = outcome.ended_by_us.difference(about);
    let not_started = outcome.not_started.difference(about);
    let ran = outcome
        .ended
        .iter()
        .fold(RankSet::new(), |all, (_, ranks)| all.union(ranks))
        .difference(about);
    let by_us = ended_by_us.len() as u64;
    let others = ran.len() as u64;
    let mut parts = Vec::new();
    if by_us > 0 {
        parts.push(if by_us == others {
            match by_us {
                1 => "the other rank was ended".to_owned(),
                _ => format!("the other {by_us} ranks were ended"),
            }
        } else {
            format!(
                "{by_us} of the other {others} ranks {} ended, {} ended before",
                if by_us == 1 { "was" } else { "were" },
                match others - by_us {
                    1 => "1 had".to_owned(),
                    before => format!("{before} had"),
                },
            )
        });
        let killed = outcome
            .ended
            .iter()
            .filter(|(status, _)| {
                matches!(
                    status,
                    ExitStatus::Signaled {
                        signal: Signal::KILL,
                        ..
                    }
                )
            })
            .fold(RankSet::new(), |all, (_, ranks)| all.union(ranks))
            .intersection(&ended_by_us);
        if !killed.is_empty() {
            parts.push(format!("{} needed SIGKILL", ranks_text(&killed)));
        }
    } else if others > 0 {
        let policy = match outcome.cause {
            Cause::NodeLost { .. } => scene.end.on_node_loss,
            _ => scene.end.on_failure,
        };
        parts.push(match (policy, others) {
            (OnFailure::Continue, 1) => "the other rank ran on to its end".to_owned(),
            (OnFailure::Continue, _) => format!("the other {others} ranks ran on to their end"),
            (OnFailure::EndJob, 1) => "the other rank had ended by itself".to_owned(),
            (OnFailure::EndJob, _) => format!("the other {others} ranks had ended by themselves"),
        });
    }
    parts.extend(left(&outcome.left.difference(about)));
    if !not_started.is_empty() {
        parts.push(format!(
            "{} {} not started",
            ranks_text(&not_started),
            if not_started.len() == 1 {
                "was"
            } else {
                "were"
            }
        ));
    }
    join_facts(parts)
}

fn aborted(rank: Rank, code: u8, text: &str, outcome: &Outcome, scene: &Scene<'_>) -> Message {
    let ranks = RankSet::single(rank);
    let text = plain(text);
    Message::new(
        &k::ABORTED,
        format!(
            "rank {rank}{} aborted the job with code {code}",
            scene.on(&ranks)
        ),
    )
    .maybe("program", scene.program(&ranks))
    .maybe(
        "message",
        (!text.trim().is_empty()).then(|| text.trim().to_owned()),
    )
    .maybe("effect", effect(&ranks, outcome, scene))
}

fn protocol(rank: Rank, what: &str, outcome: &Outcome, scene: &Scene<'_>) -> Message {
    let ranks = RankSet::single(rank);
    Message::new(
        &k::PROTOCOL,
        format!(
            "rank {rank}{} broke the rules of the process management interface",
            scene.on(&ranks)
        ),
    )
    .maybe("program", scene.program(&ranks))
    .fact("what", plain(what))
    .maybe("effect", effect(&ranks, outcome, scene))
    .with_help("the program's MPI library and this launcher do not speak the same protocol, or the program wrote to the descriptor in `PMI_FD`")
}

fn absent(ranks: &RankSet, outcome: &Outcome, scene: &Scene<'_>) -> Message {
    let them = if ranks.len() == 1 { "it" } else { "them" };
    Message::new(
        &k::ABSENT,
        format!(
            "{}{} ended without `MPI_Init`, and others waited for {them} there",
            ranks_text(ranks),
            scene.on(ranks)
        ),
    )
    .maybe("program", scene.program(ranks))
    .maybe("effect", effect(ranks, outcome, scene))
    .with_help("every rank of a job is part of `MPI_COMM_WORLD`: start a program without MPI as a job of its own")
}

fn ended(reason: EndReason, outcome: &Outcome, scene: &Scene<'_>) -> Message {
    let message = match reason {
        EndReason::Signal(signal) => Message::new(
            &k::ENDED_BY_SIGNAL,
            format!("the job was ended because the launcher got {signal}"),
        ),
        EndReason::OutputLost => Message::new(
            &k::OUTPUT_LOST,
            "the job was ended because nobody reads its output any more",
        ),
        EndReason::InputLost(errno) => Message::new(
            &k::INPUT_LOST,
            format!(
                "the job was ended because its input cannot be read: {}",
                errno_text(errno)
            ),
        )
        .with_help("`--stdin none` leaves it unread"),
        EndReason::TerminalLost => Message::new(
            &k::TERMINAL_LOST,
            "the job was ended because the launcher's terminal is gone",
        )
        .with_help("with `--on-hangup=continue` it goes on"),
        EndReason::Canceled => Message::new(&k::CANCELED, "the job was canceled"),
        EndReason::TimeLimit => Message::new(
            &k::TIME_LIMIT,
            match scene.end.time_limit {
                Some(limit) => {
                    format!(
                        "the job did not end within its time limit of {}",
                        duration(limit)
                    )
                }
                None => "the job did not end within its time limit".to_owned(),
            },
        ),
        EndReason::Waited => Message::new(
            &k::WAITED,
            match scene.end.wait {
                Some(wait) => format!(
                    "the job was ended because it went on for {} after its first rank had ended",
                    duration(wait)
                ),
                None => "the job was ended because its first rank had ended".to_owned(),
            },
        ),
        EndReason::SpawnerEnded => Message::new(
            &k::SPAWNER_ENDED,
            "the job was ended because the job that had spawned it ended",
        ),
        EndReason::ToolEnded => controlling::ended(),
        EndReason::TargetEnded => Message::new(
            &k::TARGET_ENDED,
            "the tool was ended because the job beside which it ran has ended",
        ),
        EndReason::DebuggerLost => Message::new(
            &k::DEBUGGER_LOST,
            "the job was ended because the debugger for which it was held is gone",
        ),
        EndReason::FrontLost => Message::new(
            &k::FRONT_LOST,
            "the job was ended because the process that started it is gone",
        ),
    };
    message.maybe("effect", ended_effect(outcome))
}

/// Returns how many ranks were affected by an end that no rank caused.
fn ended_effect(outcome: &Outcome) -> Option<String> {
    let by_us = outcome.ended_by_us.len() as u64;
    let ran = outcome
        .ended
        .iter()
        .map(|(_, ranks)| ranks.len() as u64)
        .sum::<u64>();
    let mut parts = Vec::new();
    match (by_us, ran) {
        (0, _) if !outcome.left.is_empty() => {}
        (by_us, ran) if !outcome.left.is_empty() => parts.push(format!(
            "{by_us} of {} ranks {} ended",
            ran + outcome.left.len() as u64,
            if by_us == 1 { "was" } else { "were" },
        )),
        (0, 0) => parts.push("no rank had been started".to_owned()),
        (0, _) => parts.push("no rank was left to be ended".to_owned()),
        (1, 1) => parts.push("its only rank was ended".to_owned()),
        (2, 2) => parts.push("both ranks were ended".to_owned()),
        (by_us, ran) if by_us == ran => parts.push(format!("all {ran} ranks were ended")),
        (by_us, ran) => parts.push(format!(
            "{by_us} of {ran} ranks {} ended, {} had ended before",
            if by_us == 1 { "was" } else { "were" },
            ran.saturating_sub(by_us),
        )),
    }
    let killed = outcome
        .ended
        .iter()
        .filter(|(status, _)| {
            matches!(
                status,
                ExitStatus::Signaled {
                    signal: Signal::KILL,
                    ..
                }
            )
        })
        .fold(RankSet::new(), |all, (_, ranks)| all.union(ranks))
        .intersection(&outcome.ended_by_us);
    if !killed.is_empty() {
        parts.push(format!("{} needed SIGKILL", ranks_text(&killed)));
    }
    parts.extend(left(&outcome.left));
    if !outcome.not_started.is_empty() && ran > 0 {
        parts.push(format!(
            "{} {} not started",
            ranks_text(&outcome.not_started),
            if outcome.not_started.len() == 1 {
                "was"
            } else {
                "were"
            }
        ));
    }
    join_facts(parts)
}
