//! The messages about machines. Those about what a machine refuses are in `dvm::messages`.

use std::{path::Path, time::Duration};

use base::{HostList, JobId, Signal};
use dvm::{
    machine::{Added, NodeLine, NodeStanding, Record, State, Status},
    proto::CannotRun,
};
use message::Message;
use runtime::{FoundMachine, MachineLife, ask::AskError};

use super::{Failure, row::end_of};
use crate::{
    args::World,
    exit::{self, ExitCode},
};

message::kinds! {
    /// All kinds of messages about machines.
    pub(crate) const KINDS;

    UP: Note "machine/up"
"`rally up` has started the machine, which goes on until `rally down`, whatever happens to the terminal. Its queue and its history are \
kept in its directory, and found again by the next `rally up` of the same name."

    RUNS_ON: Note "machine/used"
"The job runs on a machine and not on a launcher of its own, because `--on-machine`, the variable RALLY_MACHINE, a configuration file, or \
an earlier `rally up --default` says so. `--on-machine none` runs it without a machine."

    WAITS: Note "machine/waits"
"The machine has no room for the job yet, or other jobs come first. `rally explain JOB` says why. The job starts when its turn comes, \
and Ctrl-C takes it out of the queue."

    RESTORED: Warning "machine/restored"
"The machine has ended without warning, and has been started again. Jobs that ran have been lost, or wait again if they were submitted with \
`--requeue`. Jobs that waited wait."

    DAMAGED: Warning "machine/damaged"
"Something in the store of the machine cannot be read: the file was damaged, or a newer version of rally has written it. Everything else is \
used."

    NODES_BAD: Warning "machine/bad-nodes"
"The daemons of these nodes did not start, or were lost, so that no job starts there. `rally nodes` shows the reasons, and `rally nodes --add` starts \
the daemons again."

    NODES_ADDED: Note "machine/nodes-added"
"The daemons of these nodes have connected, and jobs start there."

    NODES_THERE: Note "machine/nodes-there"
"These nodes are in the machine, so that `rally nodes --add` has nothing to do. Jobs start on a drained node after `rally nodes --resume`."

    NOT_ADDED: Error "machine/nodes-not-added"
"The daemons of the nodes that were to be added did not start, or did not connect. The machine goes on without them, and lists them as bad. The facts \
are those of `bootstrap/not-joined`. The exit code is 123."

    NO_NODE: Error "machine/no-usable-node"
"The daemons of all nodes of the machine did not start. Nothing remains of it but its directory. The exit code is 123."

    NOT_STARTED: Error "machine/not-started"
"`rally up` has started no machine. The headline says why: one of this name runs already, its directory is not yours alone, or its store cannot be \
used. The exit code is 123."

    GONE: Error "machine/gone"
"The connection to the machine on which the job ran was closed: the machine was killed, or its computer went down. The job has ended with it. \
The exit code is 125."

    NO_STATE: Error "machine/no-directory"
"A machine needs a directory for its queue and its history. It is below `$RALLY_STATE_DIR`, else `$XDG_STATE_HOME/rally`, else \
`~/.local/state/rally`. None of these variables has an absolute path. The exit code is 123."

    NO_DIRECTORY: Error "machine/unusable-directory"
"The directory of the machine, with its queue and its history, cannot be made or written: no permission, no space, or a file in its place. \
The exit code is 121."

    NO_DEFAULT: Error "machine/no-default"
"The machine runs, but the file that makes it the default cannot be written. The exit code is 121."

    BAD_NAME: Error "machine/bad-name"
"`none` stands for no machine, and a file called `default` names the default one, so that no machine can have these names. The exit code is 120."

    DOES_NOT_RUN: Error "machine/does-not-run"
"The machine that `--on-machine` or RALLY_MACHINE names does not run on this host. The exit code is 120."

    NONE_MEANT: Error "machine/none-meant"
"`none` stands for no machine: `rally run` then starts a launcher of its own. All other commands about machines need one. The exit code is 120."

    NONE_RUNS: Error "machine/none-runs"
"No machine of yours runs on this host. Machines within a Slurm, PBS or LSF allocation are meant only by commands in the same allocation, \
unless `--on-machine` names them. The exit code is 120."

    SEVERAL: Error "machine/several"
"More than one machine of yours runs on this host, and none of them is the default (`rally up --default`). The exit code is 120."

    LOST: Error "machine/lost"
"The machine was found, but did not answer: it is just ending, or is stopped, or is of another version of rally. The exit code is 125."

    ENDED: Note "machine/ended"
"The machine that was watched has ended as it was told: by `rally down`, by a signal, or because its time was over. Jobs that wait are kept for the next \
`rally up` of the same name. The exit code is 0."

    NO_SCREEN: Error "machine/no-screen"
"`rally top` and `--watch` need descriptors, a thread, and on a terminal its modes. One of these is not there, for the reason given. The exit code is 123."

    NOT_SUCCEEDED: Error "machine/job-failed"
"`rally wait` has the exit code of the first of these jobs that has not succeeded: that of its first rank that failed, 143 if it was canceled, \
and 125 if the machine was lost."

    NO_OUTPUT: Error "machine/no-output"
"What a job without a front prints goes to a file, which is made when the job starts. A job of `rally run` has printed \
to the terminal. The exit code is 121."
}

pub(crate) fn up(status: &Status, directory: &Path) -> Vec<Message> {
    if status.usable == 0 {
        let what = format!(
            "machine `{}` has ended, because no node can be used",
            status.name
        );
        let message = Message::new(&NO_NODE, what)
            .with_help("the messages above say what is wrong with the nodes");
        return vec![message];
    }
    let nodes = count(u64::from(status.usable), "node", "nodes");
    let slots = count(status.slots, "slot", "slots");
    let what = format!("machine `{}` is up: {nodes}, {slots}", status.name);
    let mut all = vec![Message::new(&UP, what).fact("queue", directory.display().to_string())];
    if status.usable < status.nodes {
        let bad = count(u64::from(status.nodes - status.usable), "node", "nodes");
        let what = format!("{bad} of machine `{}` cannot be used", status.name);
        all.push(Message::new(&NODES_BAD, what).with_help("`rally nodes` shows the reasons"));
    }
    all.extend(restored(status));
    all
}

/// Says what has become of nodes that were added. Returns the exit code too, which is that of `rally up`.
pub(super) fn added(added: &Added, machine: &str) -> (Vec<Message>, u8) {
    let mut all = Vec::new();
    let listed = |hosts: &HostList| {
        let nodes = count(hosts.len() as u64, "node", "nodes");
        (nodes, format!("`{hosts}`"))
    };
    if !added.there.is_empty() {
        let (nodes, names) = listed(&added.there);
        let verb = if added.there.len() == 1 { "is" } else { "are" };
        let what = format!("{nodes} {verb} in machine `{machine}` already");
        all.push(Message::new(&NODES_THERE, what).fact("nodes", names));
    }
    if !added.joined.is_empty() {
        let (nodes, names) = listed(&added.joined);
        let verb = if added.joined.len() == 1 {
            "has"
        } else {
            "have"
        };
        let what = format!("{nodes} {verb} joined machine `{machine}`");
        all.push(Message::new(&NODES_ADDED, what).fact("nodes", names));
    }
    let mut code = exit::SUCCESS;
    if !added.failed.classes.is_empty() {
        let mut failed = dvm::messages::not_used(&added.failed);
        if added.joined.is_empty() && added.there.is_empty() {
            let what = format!("no node has joined machine `{machine}`");
            let Message { facts, help, .. } = failed;
            failed = Message::new(&NOT_ADDED, what);
            failed.facts = facts;
            failed.help = help;
            code = ExitCode::Resources.code();
        }
        all.push(failed);
    }
    (all, code)
}

/// Says what to do about bad nodes.
pub(super) fn bad_nodes(nodes: &[NodeLine]) -> Option<Message> {
    let bad = nodes
        .iter()
        .filter(|node| matches!(node.state, NodeStanding::Bad(_)));
    let bad: HostList = bad.map(|node| node.name.as_str()).collect();
    if bad.is_empty() {
        return None;
    }
    let nodes = count(bad.len() as u64, "node", "nodes");
    let what = format!("{nodes} cannot be used");
    let help = format!(
        "when the reason is gone, `rally nodes --add {bad}` starts the daemons again; `rally nodes --drop {bad}` takes them out of the list"
    );
    Some(Message::new(&NODES_BAD, what).with_help(help))
}

/// Says what has become of the jobs of a machine that had ended without warning.
fn restored(status: &Status) -> Vec<Message> {
    let found = &status.restored;
    let mut all = Vec::new();
    if !found.lost.is_empty() || !found.requeued.is_empty() {
        let what = format!("machine `{}` had ended while jobs ran", status.name);
        let numbers = |jobs: &[JobId]| {
            let shown: Vec<String> = jobs.iter().take(SHOWN).map(ToString::to_string).collect();
            let more = jobs.len().saturating_sub(SHOWN);
            let rest = if more > 0 {
                format!(" and {more} more")
            } else {
                String::new()
            };
            (!shown.is_empty()).then(|| shown.join(", ") + &rest)
        };
        all.push(
            Message::new(&RESTORED, what)
                .maybe("lost", numbers(&found.lost))
                .maybe("wait again", numbers(&found.requeued)),
        );
    }
    if let Some(first) = found.damaged.first() {
        let more = found.damaged.len() - 1;
        let what = format!("the store of machine `{}` is damaged", status.name);
        let rest = if more > 0 {
            format!(", and {more} more problems")
        } else {
            String::new()
        };
        all.push(Message::new(&DAMAGED, what).fact("reason", format!("{first}{rest}")));
    }
    all
}

/// Jobs that a message lists.
const SHOWN: usize = 8;

pub(crate) fn not_started(why: &CannotRun) -> Message {
    let message = Message::new(&NOT_STARTED, why.to_string());
    match why {
        CannotRun::MachineRuns(_) => {
            message.with_help("`rally status` shows it; `--name` starts another one")
        }
        CannotRun::NoMachine(_) | CannotRun::System(_) | CannotRun::ToolFile(_) => message
            .with_help(
                "the directory of the machine is in RALLY_STATE_DIR, else in ~/.local/state/rally",
            ),
    }
}

pub(crate) fn gone() -> Message {
    Message::new(&GONE, "the machine is gone, and the job with it")
        .with_help("`rally up` starts it again, with its queue")
}

pub(crate) fn runs_on(machine: &str) -> Message {
    Message::new(&RUNS_ON, format!("the job runs on machine `{machine}`"))
}

pub(crate) fn waits(job: JobId) -> Message {
    Message::new(&WAITS, format!("the job waits in the queue, as job {job}"))
}

pub(super) fn no_state(world: &World) -> Failure {
    let message = match world.variable("RALLY_STATE_DIR") {
        Some(path) => Message::new(
            &NO_STATE,
            format!("RALLY_STATE_DIR is not an absolute path: `{path}`"),
        ),
        None => Message::new(&NO_STATE, "there is no directory for machines"),
    };
    let message = message.with_help("set RALLY_STATE_DIR to an absolute path");
    (message, ExitCode::Resources)
}

pub(super) fn no_directory(path: &Path, why: &str) -> Failure {
    let what = format!("cannot use the directory `{}`", path.display());
    let message = Message::new(&NO_DIRECTORY, what)
        .fact("reason", why.to_owned())
        .fact("effect", "the machine was not started")
        .with_help("set RALLY_STATE_DIR to a directory in which you may write");
    (message, ExitCode::BadFile)
}

pub(super) fn no_default(path: &Path, why: &str) -> Failure {
    let what = format!("cannot write `{}`", path.display());
    let message = Message::new(&NO_DEFAULT, what)
        .fact("reason", why.to_owned())
        .fact("effect", "the machine runs, and is not the default");
    (message, ExitCode::BadFile)
}

pub(super) fn bad_name(name: &str) -> Failure {
    let message = Message::new(&BAD_NAME, format!("a machine cannot be called `{name}`"))
        .with_help("choose another name, or leave out `--name`");
    (message, ExitCode::Usage)
}

pub(super) fn does_not_run(name: &str, has_run: bool, all: &[FoundMachine]) -> Failure {
    let what = format!("machine `{name}` does not run on this host");
    let message = Message::new(&DOES_NOT_RUN, what).maybe("running", running(all));
    let message = if has_run {
        message.with_help(format!("`rally up --name {name}` starts it again"))
    } else {
        message.with_help("`rally up` starts a machine")
    };
    (message, ExitCode::Usage)
}

/// Says that a command about a machine was told to use none. `by` is the option or the variable.
pub(super) fn none_meant(by: &str) -> Failure {
    let message = Message::new(
        &NONE_MEANT,
        format!("`{by}` says `none`, which is no machine"),
    )
    .fact(
        "effect",
        "nothing was done: this command is about a machine",
    )
    .with_help("name one with `--on-machine NAME`; only `rally run` can do without one");
    (message, ExitCode::Usage)
}

pub(super) fn none_runs(origin: &str, all: &[FoundMachine]) -> Failure {
    let place = if origin.is_empty() {
        "on this host".to_owned()
    } else {
        format!("on this host in {origin}")
    };
    let message = Message::new(&NONE_RUNS, format!("no machine runs {place}"));
    let message = match running(all) {
        Some(others) => message
            .fact("elsewhere", others)
            .with_help("`--on-machine NAME` names a machine of another allocation"),
        None => message.with_help("`rally up` starts one"),
    };
    (message, ExitCode::Usage)
}

pub(super) fn several(running: &[FoundMachine]) -> Failure {
    let names: Vec<String> = running
        .iter()
        .map(|one| format!("`{}`", one.name))
        .collect();
    let message = Message::new(&SEVERAL, "several machines run on this host")
        .fact("running", names.join(", "))
        .with_help("name one with `--on-machine NAME`, or with the variable RALLY_MACHINE");
    (message, ExitCode::Usage)
}

/// Lists the machines that run, with their allocations.
fn running(all: &[FoundMachine]) -> Option<String> {
    let runs = all.iter().filter(|one| one.life == MachineLife::Runs);
    let names: Vec<String> = runs
        .map(|one| {
            if one.origin.is_empty() {
                format!("`{}`", one.name)
            } else {
                format!("`{}` ({})", one.name, one.origin)
            }
        })
        .collect();
    (!names.is_empty()).then(|| names.join(", "))
}

pub(crate) fn lost(name: &str, error: &AskError) -> Failure {
    let message = Message::new(&LOST, format!("machine `{name}` does not answer"))
        .fact("reason", error.to_string())
        .with_help("try again; `rally up` starts it again if it has ended");
    (message, ExitCode::Internal)
}

pub(super) fn odd(name: &str) -> Failure {
    let message = Message::new(&LOST, format!("machine `{name}` does not answer"))
        .fact("reason", "the answer does not match the question");
    (message, ExitCode::Internal)
}

/// Says that a machine ended as it was told.
pub(super) fn ended(name: &str) -> Message {
    Message::new(&ENDED, format!("machine `{name}` has ended"))
}

/// Returns the words for a machine that has not answered for some time.
pub(crate) fn silent(name: &str, silence: Duration) -> String {
    let seconds = silence.as_secs();
    format!("machine `{name}` has not answered for {seconds} s")
}

pub(crate) fn no_screen(error: &os::Error) -> Failure {
    let message = Message::new(&NO_SCREEN, "cannot watch the machine")
        .fact("reason", error.to_string())
        .with_help("`ulimit -a` shows the limits of this shell");
    (message, ExitCode::Resources)
}

/// Says how a job ended.
pub(super) fn not_succeeded(record: &Record) -> Message {
    let what = format!(
        "job {} has {}",
        record.id,
        match record.state() {
            State::Canceled => "been canceled",
            _ => "failed",
        }
    );
    let message = Message::new(&NOT_SUCCEEDED, what);
    let message = if record.is_array() {
        let tasks = &record.tasks;
        let failed = (!tasks.failed.is_empty()).then(|| tasks.failed.to_string());
        message.maybe("tasks", failed)
    } else {
        message
    };
    message.maybe("reason", end_of(record))
}

pub(super) fn no_output(job: JobId, why: &str) -> Failure {
    let message = Message::new(&NO_OUTPUT, format!("there is no output of job {job}"))
        .fact("reason", why.to_owned());
    (message, ExitCode::BadFile)
}

/// Returns the exit code for a job that was canceled before it ran.
pub(super) fn canceled_code() -> u8 {
    exit::signal(Signal::TERM)
}

fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests;
