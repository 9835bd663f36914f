//! Messages about the daemons of other nodes.

use std::net::SocketAddr;

use base::{HostList, NodeId, ProcId, RankSet};
use message::Message;

use super::{
    CLASSES_MAX, NOT_STARTED, Scene, effect, kind as k, refused,
    words::{count, plain, quoted, ranks_text},
};
use crate::{
    bootstrap::{CANNOT_CONNECT, CANNOT_RUN, NO_PORT, NotJoined, NotJoinedClass, Reason},
    proto::{Outcome, Refusal},
    spec::OnFailure,
};

/// Maximum number of lines of a command's output in a message: the last ones.
const LINES_MAX: usize = 4;
/// Maximum number of directories or addresses that a message names for one kind of failure.
const TRIED_MAX: usize = 6;

/// Says why a job cannot be spawned without the lost nodes.
pub(super) fn spawn_not_placed(by: ProcId, why: &Refusal, lost: &HostList) -> Message {
    not_spawned(by, refused(why)).fact("lost", format!("`{lost}`"))
}

/// Says why a job cannot be spawned into an allocation that its spawner has requested.
pub(super) fn spawn_not_started(by: ProcId, failed: &NotJoined) -> Message {
    not_spawned(by, not_joined(failed))
}

fn not_spawned(by: ProcId, why: Message) -> Message {
    let ProcId { job, rank } = by;
    let headline = format!(
        "rank {rank} of job {job} cannot spawn a job: {}",
        why.headline
    );
    let mut message = Message::new(&k::SPAWN_REFUSED, headline);
    message.facts = why.facts;
    message.facts.retain(|(name, _)| *name != "effect");
    message
}

/// Says which nodes a machine does without.
#[must_use]
pub fn not_used(failed: &NotJoined) -> Message {
    let Message { facts, help, .. } = not_joined(failed);
    let lost: usize = failed.classes.iter().map(|class| class.hosts.len()).sum();
    let all = count(u64::from(failed.nodes), "node", "nodes");
    let mut message = Message::new(&k::NOT_USED, format!("{lost} of {all} cannot be used"));
    message.facts = facts;
    message.facts.retain(|(name, _)| *name != "effect");
    if let [class] = failed.classes.as_slice() {
        let reason = format!(
            "cannot start the daemon on `{}`: {}",
            class.hosts,
            class.why()
        );
        message.facts.insert(0, ("reason", reason));
    }
    message.help = help;
    message.fact("effect", "the machine goes on without them")
}

/// Says which nodes cannot be used, and what their start commands have printed.
pub(super) fn not_joined(failed: &NotJoined) -> Message {
    let all = |class: &NotJoinedClass| class.hosts.len();
    let lost: usize = failed.classes.iter().map(all).sum();
    let headline = match failed.classes.as_slice() {
        [class] => format!(
            "cannot start the daemon on `{}`: {}",
            class.hosts,
            class.why()
        ),
        _ => format!(
            "cannot start the daemons on {} of {}",
            lost,
            count(u64::from(failed.nodes), "node", "nodes")
        ),
    };
    let mut message = Message::new(&k::NOT_JOINED, headline);
    match failed.classes.as_slice() {
        [class] => {
            let tried = tried(class).join("\n");
            let tried = (!tried.is_empty()).then_some(tried);
            let printed = printed(class).join("\n");
            let printed = (!printed.is_empty()).then_some(printed);
            message = message
                .maybe("from", attempts(class))
                .maybe("tried", tried)
                .maybe(label(&class.program), printed);
        }
        classes => {
            let mut lines = Vec::new();
            for class in classes.iter().take(CLASSES_MAX) {
                lines.push(format!("`{}`: {}", class.hosts, class.why()));
                let attempts = attempts(class).map(|from| format!("  from {from}"));
                lines.extend(attempts);
                let details = tried(class).into_iter().chain(printed(class));
                lines.extend(details.map(|line| format!("  {line}")));
            }
            message = message.fact("nodes", lines.join("\n"));
        }
    }
    if failed.classes.len() > CLASSES_MAX {
        let more = failed.classes.len() - CLASSES_MAX;
        message = message.fact(
            "also",
            count(
                more as u64,
                "other kind of failure",
                "other kinds of failure",
            ),
        );
    }
    if failed.joined > 0 {
        let fine = count(u64::from(failed.joined), "other node", "other nodes");
        message = message.fact("fine", format!("{fine} can be used"));
    }
    let message = message.fact("effect", NOT_STARTED);
    match failed.classes.first() {
        Some(class) => message.with_help(advice(class)),
        None => message,
    }
}

/// Says from where nodes were started, if it was not from the head alone.
fn attempts(class: &NotJoinedClass) -> Option<String> {
    let first = &class.failed_at;
    (!first.is_empty()).then(|| format!("`{first}` first, then the node of `rally`"))
}

/// Returns what the nodes of a class have tried in vain.
fn tried(class: &NotJoinedClass) -> Vec<&str> {
    let tried = class.tried.iter().map(String::as_str);
    let tried = tried.filter(|line| !line.is_empty());
    tried.take(TRIED_MAX).collect()
}

/// Returns the last lines that a command has printed.
fn printed(class: &NotJoinedClass) -> Vec<&str> {
    let lines = class.printed.iter();
    // The line of the daemon that became the reason.
    let known = match class.reason {
        Reason::CannotConnect => Some(CANNOT_CONNECT),
        Reason::Refused(_) => Some(CANNOT_RUN),
        _ => None,
    };
    let lines = lines.filter(|line| !known.is_some_and(|words| line.contains(words)));
    let lines: Vec<_> = lines.map(|line| line.trim_end_matches('.')).collect();
    let skipped = lines.len().saturating_sub(LINES_MAX);
    lines[skipped..].to_vec()
}

/// What ssh says, and what helps.
const SSH_SAYS: &[(&str, &str)] = &[
    (
        "HOST IDENTIFICATION HAS CHANGED",
        "the host has another key than the one that ssh knows. If the host was installed again, remove the old key (`ssh-keygen -R`) and accept the new one by hand; otherwise another computer answers under its name: ",
    ),
    (
        "Host key verification failed",
        "start `rally` on a terminal and accept the key of the host there, or accept it once by hand: ",
    ),
    (
        "Permission denied",
        "`rally` asks for passwords only on a terminal. Without one, load a key (`ssh-add`), and allow it on the node, until this needs no password: ",
    ),
    (
        "Could not resolve hostname",
        "correct the name, or make it known (`getent hosts NAME`); then try ",
    ),
    (
        "No route to host",
        "check that the node is up and on this network: ",
    ),
    (
        "Network is unreachable",
        "check that the node is up and on this network: ",
    ),
    (
        "timed out",
        "check that the node is up and on this network: ",
    ),
    ("Connection refused", "check that sshd runs on the node: "),
];

/// What a daemon says that cannot run, and what helps.
const DAEMON_SAYS: &[(&str, &str)] = &[
    (
        "it has no network",
        "name networks of all nodes, by interface, address or `10.1.0.0/16`, or leave out `--if-include`",
    ),
    (
        NO_PORT,
        "give more ports with `--port-range`: on a node, `rally` and each daemon need one, and other jobs too",
    ),
    (
        "of another build",
        "give all nodes the same file, or remove it there: then the node gets a copy",
    ),
    (
        "its copy of the program was changed",
        "remove it: then the node gets another one",
    ),
];

/// Says what to do about nodes that have not joined.
fn advice(class: &NotJoinedClass) -> String {
    let check = class.check.join(" ");
    let is_local = |tried: &String| tried.starts_with("127.") || tried.starts_with("[::1]");
    match &class.reason {
        Reason::CannotConnect
            if !class.tried.is_empty() && class.tried.iter().all(is_local) =>
        {
            "the node of `rally` has no network that others can reach: connect it to one, or start `rally` on one of the nodes"
                .to_owned()
        }
        Reason::CannotConnect => {
            "daemons connect to `rally`: choose a network of all nodes with `--if-include`, or ports that firewalls let through with `--port-range`"
                .to_owned()
        }
        Reason::NoPlace => {
            "make room, or set XDG_CACHE_HOME in the login scripts of the node to a directory in which programs can be executed"
                .to_owned()
        }
        Reason::Refused(why) => {
            let known = DAEMON_SAYS.iter().find(|(words, _)| why.contains(words));
            known.map_or("leave out these nodes", |(_, help)| help).to_owned()
        }
        Reason::OtherSystem(_) => "use nodes of one architecture, or start `rally` on one of these".to_owned(),
        _ if check.is_empty() => "leave out these nodes".to_owned(),
        Reason::NotStarted(_) => {
            "install it, or choose another command with `--ssh` or `--bootstrap-command`".to_owned()
        }
        Reason::NoAnswer { .. } => {
            format!("try `{check}`: it must end by itself, and login scripts must not read standard input")
        }
        _ => {
            let says = |words: &str| class.printed.iter().any(|line| line.contains(words));
            match SSH_SAYS.iter().find(|(words, _)| says(words)) {
                Some((_, help)) => format!("{help}`{check}`"),
                None => format!("try `{check}`, or leave out these nodes"),
            }
        }
    }
}

/// What helps if a node is gone.
const LOOK: &str =
    "look at the node: `rally` cannot tell whether it, its network or the daemon has failed";

/// Says that a node is gone.
pub(super) fn lost(node: NodeId, why: &str, scene: &Scene<'_>) -> Message {
    let host = scene.nodes.get(node.0 as usize).map_or("", String::as_str);
    Message::new(&k::LOST, format!("lost the node {}", quoted(host.as_ref())))
        .fact("reason", plain(why))
        .fact("effect", "its ranks count as killed")
        .with_help(LOOK)
}

/// Says that a job was ended because a node is gone. If the job went on without the node, [`lost`] has said what helps. The
/// reason is repeated, because `--quiet` shows errors only.
pub(super) fn job_lost(node: NodeId, why: &str, outcome: &Outcome, scene: &Scene<'_>) -> Message {
    let host = scene.nodes.get(node.0 as usize).map_or("", String::as_str);
    let rows = scene.table.iter().filter(|row| row.host == host);
    let lost: RankSet = rows.map(|row| row.rank).collect();
    let ranks = (!lost.is_empty()).then(|| ranks_text(&lost));
    let message = Message::new(
        &k::JOB_LOST,
        format!("lost the node {}", quoted(host.as_ref())),
    )
    .fact("reason", plain(why))
    .maybe("lost", ranks)
    .maybe("effect", effect(&lost, outcome, scene));
    match scene.end.on_node_loss {
        OnFailure::EndJob => message.with_help(LOOK),
        OnFailure::Continue => message,
    }
}

/// Says that a connection was refused.
pub(super) fn stranger(
    node: Option<NodeId>,
    from: &SocketAddr,
    why: &str,
    scene: &Scene<'_>,
) -> Message {
    let at = match node {
        Some(node) => format!(" to the daemon on {}", scene.node(node)),
        None => String::new(),
    };
    Message::new(
        &k::STRANGER,
        format!("refused a connection from {from}{at}: {why}"),
    )
    .fact("effect", "none: the job goes on")
    .with_help("further connections from the same host are refused without a message")
}

/// Says that there is trouble at the port for other nodes.
pub(super) fn port(what: &str) -> Message {
    Message::new(&k::STRANGER, what.to_owned()).fact("effect", "none: the job goes on")
}

/// Returns the name of a fact with the words of a start command.
fn label(program: &str) -> &'static str {
    match program {
        "ssh" => "ssh",
        "srun" => "srun",
        "rally" => "rally",
        _ => "output",
    }
}
