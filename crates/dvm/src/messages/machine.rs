//! Why a machine does not do what it was asked.

use message::Message;

use super::{kind as k, preload::size, words::count};
use crate::{
    NotWatched,
    machine::{GPU, MEMORY, NoResource, NotDone, ResourceOf, TooMuch},
    queue::Refusal,
};

/// Returns the message for an order that a machine does not carry out.
#[must_use]
pub fn not_done(why: &NotDone) -> Message {
    match why {
        NotDone::NoMachine => Message::new(&k::NO_MACHINE, "what answers is no machine: it runs one job")
            .with_help("start a machine with `rally up`"),
        NotDone::NoSuchJob(id) => Message::new(&k::NO_SUCH_JOB, format!("the machine knows no job {id}"))
            .with_help("`rally queue --over` lists the jobs that wait and run, and the last ones that are over"),
        NotDone::IsOver(id) => Message::new(&k::JOB_OVER, format!("job {id} is over"))
            .with_help(format!("`rally queue {id}` shows how it ended")),
        NotDone::NotRunning(id) => Message::new(&k::NOT_RUNNING, format!("no such task of job {id} runs"))
            .with_help(format!("`rally queue {id}` shows the state of the job")),
        NotDone::IsAllocation(id) => {
            Message::new(&k::NOT_RUNNING, format!("job {id} is an allocation, and has no ranks of its own"))
                .with_help(format!("`rally queue {id}` says which job has requested it: that one has the ranks"))
        }
        NotDone::NoSuchNode(name) => {
            Message::new(&k::NO_SUCH_NODE, format!("the machine has no node `{name}`"))
                .with_help("`rally nodes` lists the nodes")
        }
        NotDone::NotAccepted(refusal) => {
            let message = Message::new(&k::NOT_ACCEPTED, format!("the machine does not take the job: {refusal}"));
            match refusal {
                Refusal::NeverFits { .. } => message
                    .with_help("ask for less, or see with `rally nodes` what the machine has"),
                Refusal::UnknownDependency(_) => {
                    message.with_help("`rally queue` lists the jobs on which others can depend")
                }
                Refusal::QueueFull | Refusal::UserJobs(_) => {
                    message.with_help("wait until jobs have ended")
                }
                _ => message,
            }
        }
        NotDone::NoResource(why) => no_resource(why),
        NotDone::DependencyFailed(id) => Message::new(
            &k::NOT_ACCEPTED,
            format!("the machine does not take the job: job {id}, on which it depends, has not succeeded"),
        )
        .with_help("use `--after any:JOB` if it should run in any case"),
        NotDone::NotStored(reason) => {
            Message::new(&k::NOT_STORED, "the machine cannot store the job, and has not taken it")
                .fact("reason", reason.clone())
                .with_help("make room in the directory of the machine; `rally status` names it")
        }
        NotDone::NotRead(reason) => {
            Message::new(&k::NOT_READ, "the machine cannot read its store")
                .fact("reason", reason.clone())
        }
        NotDone::GoingDown => Message::new(&k::GOING_DOWN, "the machine is about to end, and takes no further jobs")
            .with_help("`rally up` starts it again; jobs that wait are kept"),
        NotDone::Busy(running) => {
            let jobs = count(*running as u64, "task runs", "tasks run");
            Message::new(&k::MACHINE_BUSY, format!("{jobs} on the machine"))
                .fact("effect", "the machine goes on")
                .with_help("`rally down --wait` ends it when they have ended, `rally down --now` ends them too")
        }
        NotDone::NodesBusy(running) => {
            let jobs = count(*running as u64, "task runs", "tasks run");
            Message::new(&k::NODES_BUSY, format!("{jobs} on these nodes"))
                .fact("effect", "the nodes stay in the machine")
                .with_help("`rally nodes --drop NODES --wait` drops them when the tasks have ended, `--now` ends the tasks")
        }
        NotDone::NodeLeaves(name) => {
            Message::new(&k::NODE_LEAVES, format!("`{name}` is about to leave the machine"))
                .fact("effect", "no node was added")
                .with_help(format!("add it when `rally nodes` does not list it any more, or keep it with `rally nodes --resume {name}`"))
        }
        NotDone::NodeEnds(name) => {
            Message::new(&k::NODE_LEAVES, format!("`{name}` leaves the machine: its daemon was told to end"))
                .fact("effect", "nothing was changed")
                .with_help(format!("`rally nodes --add {name}` adds it again when `rally nodes` does not list it any more"))
        }
        NotDone::NodeBad(name) => {
            Message::new(&k::NODE_BAD, format!("`{name}` is bad, so that it can be neither drained nor resumed"))
                .fact("effect", "nothing was changed")
                .with_help(format!("`rally nodes` says why; `rally nodes --add {name}` starts it again, `--drop {name}` forgets it"))
        }
        NotDone::NodeStays(name) => {
            Message::new(&k::NODE_STAYS, format!("`{name}` stays in the machine: it was resumed before it was idle"))
        }
        NotDone::TooManyStarts(most) => {
            Message::new(&k::TOO_MANY_STARTS, format!("the machine has started {most} daemons, which is the maximum"))
                .fact("effect", "no node was added")
                .with_help("end the machine with `rally down --wait`, and start it again: jobs that wait are kept")
        }
    }
}

/// Says of what a job needs more than there is.
#[must_use]
pub fn too_much(why: &TooMuch) -> String {
    let TooMuch {
        name,
        needed,
        most,
        of,
    } = why;
    let most = match name.as_str() {
        MEMORY => size(*most),
        _ => most.to_string(),
    };
    let what = match (name.as_str(), of) {
        (GPU, _) => format!("{} on a node", count(*needed, "GPU", "GPUs")),
        (MEMORY, _) => format!("{} of memory on a node", size(*needed)),
        (_, ResourceOf::Node) => format!("{needed} of `{name}` on a node"),
        (_, ResourceOf::Machine) => format!("{needed} of `{name}`"),
    };
    match of {
        ResourceOf::Node => format!("it needs {what}, and no node has more than {most}"),
        ResourceOf::Machine => format!("it needs {what}, and the machine has {most}"),
    }
}

fn no_resource(why: &NoResource) -> Message {
    let message = |what: String| Message::new(&k::NOT_ACCEPTED, what);
    match why {
        NoResource::Unknown { name, there } => {
            let message = message(format!("the machine has no resource `{name}`"));
            if there.is_empty() {
                return message.with_help("declare it when the machine is started: `rally up --shared-resource NAME=N` or `--node-resource NAME=N`");
            }
            message.fact("there", there.join(", ")).with_help(
                "`rally nodes` and `rally status` show what there is; `--shared-resource` and `--node-resource` of `rally up` declare more",
            )
        }
        NoResource::OfNodes(name) => message(format!("`{name}` is a resource of nodes"))
            .with_help(format!("ask for it by rank: `--resource-per-proc {name}=N`")),
        NoResource::OfMachine(name) => {
            message(format!("`{name}` is a resource of the machine, and of no node"))
                .with_help(format!("ask for it by job: `--resource {name}=N`"))
        }
        NoResource::TooMuch(why) => {
            message(format!("the machine does not take the job: {}", too_much(why))).with_help(
                "ask for less; `rally nodes` shows what the nodes have, `rally status` what the machine has",
            )
        }
    }
}

/// Returns the message for a job that runs without its watch.
#[must_use]
pub fn not_watched(why: &NotWatched) -> Message {
    let message = |why: &str| {
        let headline = format!("the job is not watched for hangs: {why}");
        Message::new(&k::NOT_WATCHED, headline).fact("effect", "it runs on without `--on-hang`")
    };
    match why {
        NotWatched::TooMany(most) => {
            message(&format!("{most} others are, which is the maximum"))
                .with_help("`dbgr watch` watches a job from a terminal")
        }
        NotWatched::NoDbgr => message("`dbgr` was not found when the machine was started")
            .with_help("install `dbgr` beside `rally`, and start the machine again: `rally down --wait`, `rally up`"),
        NotWatched::NotStarted(why) => message(&format!("cannot start `dbgr`: {why}")),
    }
}
