//! The messages of the front about a job. Those of the controller are in `dvm::messages`.

use base::RankSet;
use dvm::{
    bootstrap::NO_PORT,
    messages::size,
    proto::{Outcome, PreloadProgress, Stream, TableRow},
    spec::HoldAt,
};

use message::{Format, Kind, Message, Severity, visible};

const HELD: Kind = Kind {
    id: "front/held",
    severity: Severity::Note,
    explanation: "All ranks have reached the point where `--stop-on-exec`, `--stop-in-init` or `--stop-in-app` holds them, and no debugger is \
attached to `rally` itself. Attach a debugger to the ranks that you want (their process numbers are in the table that debuggers read, \
and are shown with `-v`), then let all others run with `rally release`, or with SIGCONT to `rally`. Ranks with an attached debugger \
stay under its control.",
};
const STARTED: Kind = Kind {
    id: "front/started",
    severity: Severity::Note,
    explanation: "Every rank of the job has been started. With `-v` this message lists, for each rank, its host, its process number \
and its program, as a debugger or `kill` needs them.",
};
const INTERRUPTED: Kind = Kind {
    id: "front/interrupted",
    severity: Severity::Note,
    explanation: "The first Ctrl-C is passed on to the ranks as SIGINT, which ends most programs. A second one kills the \
remaining ranks; after a third `rally` exits without waiting for them.",
};
const GAVE_UP: Kind = Kind {
    id: "front/gave-up",
    severity: Severity::Warning,
    explanation: "You pressed Ctrl-C or sent SIGTERM three times, so `rally` does not wait for the ranks any more. Its controller process \
continues to kill them. A process that is blocked in the kernel, for example on a file system that does not answer, can survive that.",
};
const CONTROLLER_LOST: Kind = Kind {
    id: "front/controller-lost",
    severity: Severity::Error,
    explanation: "The process of the controller, which is also the parent of the ranks, ended unexpectedly: it was killed, or the machine \
ran out of memory. The kernel ended the ranks, and `rally` ended the processes that they left behind.",
};
const CONTROLLER_STOPPED: Kind = Kind {
    id: "front/controller-stopped",
    severity: Severity::Error,
    explanation: "The job had to end (a time limit, a signal to `rally`), but the controller, which ends it, was itself stopped, by SIGSTOP \
or with its process group. Therefore the controller and all processes that it had started were killed.",
};
const OUTPUT_LOST: Kind = Kind {
    id: "front/output-lost",
    severity: Severity::Error,
    explanation: "The output of the ranks cannot be written to the stdout or stderr of `rally`: the disk is full, or the device failed. \
The job is ended, unless `--on-output-closed=continue` lets it go on without a reader.",
};
const OUTPUT_DROPPED: Kind = Kind {
    id: "front/output-dropped",
    severity: Severity::Warning,
    explanation: "The job had to end (a time-out, a signal to `rally`), its grace was over, and what the ranks had written could \
not be printed because nobody reads it: a pipe whose reader sleeps, a terminal stopped by Ctrl-S. `rally` does not wait for that \
reader any longer.",
};
const ASSUMED: Kind = Kind {
    id: "front/assumed",
    severity: Severity::Note,
    explanation: "A dry run starts nothing, so it does not know the processors of other nodes. It places the ranks as if all nodes had \
the processors of this one, of which it may use the same part. `--explain` without `--dry-run` starts the daemons on the nodes, asks them, \
and ends them.",
};
const EXIT_CODES: Kind = Kind {
    id: "front/exit-codes",
    severity: Severity::Note,
    explanation: "`--print-exit-codes` prints how every rank has ended. Ranks that ended in the same way are listed together. The exit code of \
`rally` itself is that of the first rank that failed (`rally help exit-codes`).",
};
const INTERNAL: Kind = Kind {
    id: "front/internal",
    severity: Severity::Error,
    explanation: "An internal error of `rally`. Please report it, with the command line.",
};
const NOT_WATCHED: Kind = Kind {
    id: "front/not-watched",
    severity: Severity::Warning,
    explanation: "`dbgr watch`, which `--on-hang=report` asks for, could not be started. The job goes on without it. `dbgr` is installed \
with `rally`; it is looked for in the same directory, then in PATH.",
};
const SYSTEM: Kind = Kind {
    id: "front/system",
    severity: Severity::Error,
    explanation: "The system refused something that `rally` itself needs before it can start anything: descriptors, memory or \
processes. `ulimit -a` shows the limits.",
};

/// All kinds of messages in this file, for `rally help ID`.
pub(crate) const KINDS: &[&Kind] = &[
    &HELD,
    &STARTED,
    &INTERRUPTED,
    &GAVE_UP,
    &CONTROLLER_LOST,
    &CONTROLLER_STOPPED,
    &OUTPUT_LOST,
    &OUTPUT_DROPPED,
    &ASSUMED,
    &EXIT_CODES,
    &INTERNAL,
    &NOT_WATCHED,
    &SYSTEM,
];

fn ranks(count: usize) -> String {
    if count == 1 {
        "1 rank".to_owned()
    } else {
        format!("{count} ranks")
    }
}

pub(crate) fn held(held: &RankSet, at: HoldAt, front: i32) -> Message {
    let place = match at {
        HoldAt::Exec | HoldAt::Nowhere => "at the first instruction",
        HoldAt::Init => "in PMIx_Init",
        HoldAt::App => "where their library waits for a debugger",
    };
    Message::new(&HELD, format!("{} held {place}", ranks(held.len())))
        .fact("ranks", held.to_string())
        .with_help(format!(
            "attach a debugger to the ranks you want, then `rally release {front}` lets the others run"
        ))
}

pub(crate) fn assumed() -> Message {
    let headline = "other nodes are assumed to have the processors of this one";
    Message::new(&ASSUMED, headline.to_owned())
        .with_help("`--explain` without `--dry-run` asks the nodes".to_owned())
}

/// Returns the line about files that are being copied to the nodes.
pub(crate) fn copying(progress: &PreloadProgress) -> String {
    let PreloadProgress { done, total, nodes } = *progress;
    let percent = done.saturating_mul(100) / total.max(1);
    let nodes = match nodes {
        1 => "1 node".to_owned(),
        many => format!("{many} nodes"),
    };
    format!("copying {} to {nodes}: {percent} %", size(total))
}

pub(crate) fn started(table: &[TableRow]) -> Message {
    let rows: Vec<String> = table
        .iter()
        .map(|row| {
            let program = row.executable.to_string_lossy();
            format!(
                "{} on {}, process {}: {}",
                row.rank,
                row.host,
                row.pid,
                // A line feed in a name would start another row.
                visible::line(&program)
            )
        })
        .collect();
    Message::new(&STARTED, format!("{} started", ranks(table.len()))).fact("ranks", rows.join("\n"))
}

pub(crate) fn interrupted(count: usize) -> Message {
    Message::new(
        &INTERRUPTED,
        format!("interrupt passed on to {}", ranks(count)),
    )
    .with_help("press Ctrl-C again to kill them")
}

pub(crate) fn gave_up(alive: &[i32]) -> Message {
    let message = Message::new(&GAVE_UP, "gave up waiting for the ranks to end");
    let message = if alive.is_empty() {
        message
    } else {
        let pids: Vec<String> = alive.iter().take(16).map(ToString::to_string).collect();
        let more = if alive.len() > 16 {
            format!(" and {} more", alive.len() - 16)
        } else {
            String::new()
        };
        message.fact("left", format!("processes {}{more}", pids.join(", ")))
    };
    message.fact("effect", "the controller goes on killing them")
}

pub(crate) fn controller_lost() -> Message {
    Message::new(&CONTROLLER_LOST, "the controller was killed")
        .fact("effect", "every rank was ended")
        .with_help("look for the out-of-memory killer in the kernel's log")
}

pub(crate) fn controller_stopped(pid: os::Pid) -> Message {
    Message::new(
        &CONTROLLER_STOPPED,
        "the job had to end, but the controller was stopped, so it was killed",
    )
    .fact("pid", pid.to_string())
    .fact("effect", "every rank was ended")
    .with_help("SIGCONT in time would have let it end the job")
}

pub(crate) fn output_lost(stream: Stream, errno: i32) -> Message {
    let name = match stream {
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
    };
    Message::new(
        &OUTPUT_LOST,
        format!("cannot write to {name}: {}", os::describe_errno(errno)),
    )
}

pub(crate) fn output_dropped(bytes: u64) -> Message {
    Message::new(
        &OUTPUT_DROPPED,
        "the end of the output was dropped because nobody reads it",
    )
    .fact("waiting", format!("{bytes} bytes"))
}

pub(crate) fn internal(what: &str) -> Message {
    Message::new(&INTERNAL, what)
        .with_help("this is a bug of `rally`: please report it with the command line")
}

/// Prints on stderr what the controller could not report to the front. If stderr has no room, the message is dropped: the
/// job must not wait for it.
pub(crate) fn print_internal_as_text(what: &str) {
    let text = message::text(&internal(what), Format::Text);
    let _ = os::write_if_room(std::io::stderr(), text.as_bytes());
}

/// Prints like [`print_internal_as_text`], but as a line of JSON.
pub(crate) fn print_internal_as_json(what: &str) {
    let text = message::text(&internal(what), Format::Json);
    let _ = os::write_if_room(std::io::stderr(), text.as_bytes());
}

/// Why `dbgr` was not started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoDbgr {
    #[error("there is no `dbgr`")]
    NoProgram,
    #[error("{0}")]
    System(#[from] os::Error),
    #[error("{0}")]
    Start(#[from] os::SpawnError),
    #[error("a name contains a NUL byte")]
    ZeroByte(#[from] std::ffi::NulError),
}

pub(crate) fn not_watched(why: &NoDbgr) -> Message {
    let message = Message::new(&NOT_WATCHED, format!("the job is not watched: {why}"));
    match why {
        NoDbgr::NoProgram => message
            .fact("looked", "in the directory of `rally`, and in PATH")
            .with_help("install it there, or leave out `--on-hang`"),
        NoDbgr::System(_) | NoDbgr::Start(_) | NoDbgr::ZeroByte(_) => message,
    }
}

/// Returns the message for a system call failure in the controller; see [`system`] for our own.
pub(crate) fn controller_failed(why: &str) -> Message {
    let help = if why.starts_with(NO_PORT) {
        "give more ports with `--port-range`: each process that connects nodes needs one on its node"
    } else {
        "raise the limit that is reached: `ulimit -n 1024` for open files, `ulimit -u 1024` for processes"
    };
    Message::new(&SYSTEM, why).with_help(help)
}

pub(crate) fn system(error: &os::Error) -> Message {
    let message = Message::new(&SYSTEM, error.to_string());
    match error.errno() {
        EMFILE => message.with_help("raise the limit on open files: `ulimit -n 1024`"),
        EAGAIN => message.with_help("raise the limit on processes: `ulimit -u 1024`"),
        _ => message.with_help("`ulimit -a` shows the limits of this shell"),
    }
}

/// The Linux errno values for too many processes and too many open files. They are the same on all architectures that we
/// build for.
const EAGAIN: i32 = 11;
const EMFILE: i32 = 24;

/// Returns the message that lists how every rank ended.
pub(crate) fn exit_codes(outcome: &Outcome) -> Message {
    let ends: Vec<_> = outcome
        .ended
        .iter()
        .map(|(status, ranks)| format!("{ranks} {status}"))
        .collect();
    let what = if ends.is_empty() {
        "no rank has ended".to_owned()
    } else {
        format!("how the ranks have ended: {}", ends.join("; "))
    };
    Message::new(&EXIT_CODES, what)
}

#[cfg(test)]
mod tests {
    use base::Rank;

    use super::*;

    fn row(rank: u32, host: &str, pid: i32, program: &str) -> TableRow {
        TableRow {
            rank: Rank(rank),
            host: host.to_owned(),
            executable: program.into(),
            pid,
        }
    }

    #[test]
    fn progress_is_one_line() {
        let copying = |done, total, nodes| copying(&PreloadProgress { done, total, nodes });
        assert_eq!(
            copying(120 << 20, 512 << 20, 16),
            "copying 512 MiB to 16 nodes: 23 %"
        );
        assert_eq!(copying(0, 0, 1), "copying 0 bytes to 1 node: 0 %");
    }

    #[test]
    fn every_sentence() {
        let held_ranks: RankSet = (0..4).map(Rank).collect();
        let messages = [
            held(&held_ranks, HoldAt::Exec, 77),
            held(&held_ranks, HoldAt::Init, 77),
            held(&held_ranks, HoldAt::App, 77),
            assumed(),
            interrupted(1),
            interrupted(4),
            gave_up(&[80, 81]),
            gave_up(&[]),
            controller_lost(),
            controller_stopped(os::Pid::from_raw(4711)),
            started(&[
                row(0, "n1", 4711, "./a"),
                row(1, "n1", 4712, "./a"),
                row(2, "n2", 933, "/bin/my program"),
            ]),
            output_lost(Stream::Stdout, 28),
            output_dropped(65_536),
            system(&os::Error::Call {
                operation: "create a socket pair",
                errno: 24,
            }),
            system(&os::Error::Call {
                operation: "create a process",
                errno: 11,
            }),
            system(&os::Error::Call {
                operation: "map memory",
                errno: 12,
            }),
            controller_failed("cannot duplicate a descriptor: Too many open files"),
            internal("a queue overflowed"),
            not_watched(&NoDbgr::NoProgram),
            not_watched(&NoDbgr::System(os::Error::Call {
                operation: "create a pipe",
                errno: 24,
            })),
        ];
        let text: Vec<String> = messages
            .iter()
            .map(|message| message::text(message, crate::args::MessageFormat::Text))
            .collect();
        insta::assert_snapshot!(text.join("\n"));
    }

    #[test]
    fn ids_are_unique_and_explained() {
        for kind in KINDS {
            assert!(kind.explanation.len() > 40, "{}", kind.id);
            assert!(dvm::messages::explain(kind.id).is_none(), "{}", kind.id);
        }
    }
}
