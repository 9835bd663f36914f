//! The message about ranks that have failed by themselves.

use base::{ExitStatus, Rank, RankSet, Signal};

use super::{
    Message, Scene, kind as k, limits,
    words::{plain, ranks_text},
};
use crate::proto::LastCall;

/// Returns the message about ranks that have failed alike.
pub(super) fn failed(ranks: &RankSet, status: ExitStatus, scene: &Scene<'_>) -> Message {
    let how = match status {
        ExitStatus::Exited(code) => format!("exited with code {code}"),
        ExitStatus::Signaled {
            signal,
            core_dumped,
        } => format!(
            "{} killed by {signal}{}",
            if ranks.len() == 1 { "was" } else { "were" },
            if core_dumped { ", core dumped" } else { "" },
        ),
        ExitStatus::OutOfMemory { .. } => format!(
            "{} killed by the kernel: out of memory",
            if ranks.len() == 1 { "was" } else { "were" },
        ),
    };
    let message = Message::new(
        &k::RANK_FAILED,
        format!("{}{} {how}", ranks_text(ranks), scene.on(ranks)),
    )
    .maybe("program", scene.program(ranks));
    match status {
        ExitStatus::Signaled { signal, .. } => match signal_help(signal) {
            Some(help) => message.with_help(help),
            None => message,
        },
        ExitStatus::OutOfMemory { limit } => limits::out_of_memory(message, limit),
        ExitStatus::Exited(_) => message,
    }
}

/// Returns the message about what a rank has called last that has failed.
pub(super) fn last_call(rank: Rank, last: &LastCall) -> Message {
    let call = plain(&last.call);
    let number = last.number;
    let when = if last.in_progress { "in" } else { "after" };
    let headline = format!("rank {rank} ended {when} {call} (call {number} of MPI)");
    Message::new(&k::LAST_CALL, headline)
}

/// Returns what a signal usually means that we did not send by ourselves.
const fn signal_help(signal: Signal) -> Option<&'static str> {
    Some(match signal {
        Signal::KILL => {
            "unless a user or a tool sent it, memory may have run out: the kernel's log (`dmesg`) or the cgroup's `memory.events` says so"
        }
        Signal(7) => {
            "often `/dev/shm` or the file system of a mapped file is full: `df /dev/shm` shows it"
        }
        Signal(4) => "often a program built for a newer processor than this node has",
        Signal(24) => "the limit on CPU time was reached: `ulimit -t` shows it",
        Signal(25) => "the limit on file size was reached: `ulimit -f` shows it",
        Signal(31) => "a seccomp filter, usually that of a container, forbade a system call",
        _ => return None,
    })
}
