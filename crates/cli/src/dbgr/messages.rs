//! The messages of `dbgr`, apart from stacks and reports.

use std::{collections::BTreeMap, path::Path, time::Duration};

use base::RankSet;
use debug::{
    stack::Missing,
    target::{Doubt, NotFound, Note, Situation},
    watch::Occasion,
};
use message::{Kind, Message, Severity, duration};
use os::NotWritten;

use crate::args::Starter;

const NO_PROCESS: Kind = Kind {
    id: "target/no-process",
    severity: Severity::Error,
    explanation: "There is no process of that number on this node, or it has ended and its parent has not reaped it yet. `dbgr` looks at \
the node that it runs on: give it the number of the launcher (`rally`, `mpirun`, `srun`), or of a rank, on this node.",
};
const NO_RANK: Kind = Kind {
    id: "target/no-rank",
    severity: Severity::Error,
    explanation: "Kernel threads are listed as processes, but have no program, no user memory and no user stack.",
};
const FOREIGN_NUMBERS: Kind = Kind {
    id: "target/foreign-numbers",
    severity: Severity::Error,
    explanation: "`dbgr` runs in a pid namespace of its own, and `/proc` is still that of the namespace outside. The same number means one \
process in `/proc` and another to the calls that stop a process, so `dbgr` would stop and show the wrong process.",
};
const NO_JOB: Kind = Kind {
    id: "target/no-job",
    severity: Severity::Error,
    explanation: "The name of a job is the one in the environment of its ranks: `rally-HOST-NUMBER-PID@JOB` or its end `PID@JOB`, \
`PMIX_NAMESPACE` under other launchers, or JOB.STEP under Slurm. No process of this node that you may look at has that name.",
};
const NO_NAME: Kind = Kind {
    id: "target/no-name",
    severity: Severity::Error,
    explanation: "`--name` looks at your own processes on this node, and compares the pattern with the name of the command (as `ps` \
shows it), with the file name or path of the program, and for interpreters with that of the script. `*` matches any text and `?` any \
character; quote them for the shell.",
};
const NOT_ON_NODES: Kind = Kind {
    id: "target/not-on-nodes",
    severity: Severity::Error,
    explanation: "With `--hosts`, `dbgr` starts an agent on each of these nodes and has it search its own node. None of them has found a \
process, or none could be started. A process number cannot be searched, because it means another process on each node. Agents get onto nodes \
as the daemons of `rally` do: ssh must work without a question (keys, known hosts), and `--ssh` or `--bootstrap-command` replaces it.",
};
const SEVERAL_JOBS: Kind = Kind {
    id: "target/several-jobs",
    severity: Severity::Error,
    explanation: "The environment of processes with this name names different jobs. Their ranks have the same numbers, and they do not wait for \
each other, so stacks and verdicts of both together would be about neither.",
};
/// Maximum number of jobs to list.
const JOBS_LISTED: usize = 8;
const NOT_PERMITTED: Kind = Kind {
    id: "target/not-permitted",
    severity: Severity::Error,
    explanation: "The kernel lets a process inspect another one only if it could attach a debugger to it: the other process must belong to \
the same user and have no more privileges, and no rule of a security module or a container may forbid it. `/proc/sys/kernel/yama/ptrace_scope` is such a rule: 0 \
allows it to all processes of a user, 1 only to ancestors of the process, 2 only to root, 3 to no process.",
};
const SOME_NOT_PERMITTED: Kind = Kind {
    id: "stacks/not-permitted",
    severity: Severity::Warning,
    explanation: NOT_PERMITTED.explanation,
};
const NO_SUCH_RANK: Kind = Kind {
    id: "calls/no-such-rank",
    severity: Severity::Warning,
    explanation: "The job has no rank with this number. Ranks are numbered from 0.",
};
const UNRECORDED: Kind = Kind {
    id: "calls/not-recorded",
    severity: Severity::Warning,
    explanation: "Calls of MPI are recorded in ranks that `rally run --mpi-recorder` has started, from their first call on. They are not recorded in \
programs that are linked statically or load MPI in a way that the recorder does not see (`RTLD_DEEPBIND`, addresses from `dlsym`), in the children of ranks, and where the recorder \
found no room in /dev/shm.",
};
const UNREADABLE: Kind = Kind {
    id: "calls/not-readable",
    severity: Severity::Warning,
    explanation: "The recorder of `rally run --mpi-recorder` writes into a file that its rank has mapped, and `dbgr` reads it there. It does not believe a file that was overwritten, \
cut, or replaced by that of another process, nor that of another version of `rally`: nothing is shown of such a rank, and nothing is proved with it.",
};
const DOUBT: Kind = Kind {
    id: "target/doubt",
    severity: Severity::Warning,
    explanation: "The job was found, but something is inconsistent. `dbgr stacks --explain` prints how it was found and what was tried before.",
};
const NOTE: Kind = Kind {
    id: "target/note",
    severity: Severity::Note,
    explanation: "A fact about how the job was found that affects the output. `dbgr stacks --explain` prints all such facts.",
};
const OUTPUT_LOST: Kind = Kind {
    id: "dbgr/output-lost",
    severity: Severity::Error,
    explanation: "The output of `dbgr` cannot be written: the disk is full, or the device failed.",
};

const NOT_WRITTEN: Kind = Kind {
    id: "dbgr/not-written",
    severity: Severity::Error,
    explanation: "The file for the report cannot be written: its directory does not exist or is not writable, or the disk is full. A \
symbolic link is not followed, and a file of another user is not overwritten: in a directory that others may write to, they could \
have put it there to redirect the write.",
};

const INTERRUPTED: Kind = Kind {
    id: "dbgr/interrupted",
    severity: Severity::Note,
    explanation: "Ctrl-C between two samples ends the command: it prints the samples taken until then, and its exit code is 130.",
};
const HANG: Kind = Kind {
    id: "watch/hang",
    severity: Severity::Warning,
    explanation: "`dbgr watch`, or `rally run --on-hang=report`, has seen no rank move and no output for the whole idle time; or the \
samples are enough for a verdict although some ranks move. The job was not changed. A program that waits for input, sleeps on \
purpose, or repeats one call looks the same: use a longer idle time for it.",
};
const LIMIT: Kind = Kind {
    id: "watch/limit",
    severity: Severity::Warning,
    explanation: "The time limit of the job will end it in a moment. The report shows where its ranks were shortly before, so that \
a job that hung can be distinguished from one that was only slow.",
};

const NOT_IN_JOB: Kind = Kind {
    id: "dbgr/not-in-job",
    severity: Severity::Warning,
    explanation: "For a job of `rally`, the daemons of the job start the agents of `dbgr` on the other nodes, and for a job of Slurm `srun` does. \
Here they could not, and `dbgr` starts its agents itself: with the starter of the resource manager, or with ssh. The result is the same. Options such as `--ssh` or \
`--bootstrap` choose this way from the beginning.",
};

const NO_TARGET: Kind = Kind {
    id: "dbgr/no-target",
    severity: Severity::Error,
    explanation: "The first word after `dbgr` is a command or a target: the process number of a launcher or of a rank, or the name of a job with \
`@`. `dbgr` cannot read reports that were written before: open the HTML page with a browser, and the JSON with other programs.",
};

const UNSEEN: Kind = Kind {
    id: "watch/unseen",
    severity: Severity::Warning,
    explanation: "`dbgr watch` did not see these ranks in two consecutive samples: their nodes could not be reached or did not answer, their processes \
were not found, or you may not inspect them. A rank that is not seen may be at work, so the watch cannot conclude that nothing moves. It goes on, and \
reports verdicts about the other ranks and the end of the time limit. Each reason is reported once.",
};

const NOBODY: Kind = Kind {
    id: "watch/nobody",
    severity: Severity::Error,
    explanation: "In two consecutive samples there was no process that is certainly a rank and that you may inspect. \
The messages before this one say why.",
};

/// All kinds of messages in this file, for `rally help ID`.
pub(crate) const KINDS: &[&Kind] = &[
    &NO_PROCESS,
    &NO_RANK,
    &FOREIGN_NUMBERS,
    &NO_JOB,
    &NO_NAME,
    &NOT_ON_NODES,
    &SEVERAL_JOBS,
    &NOT_PERMITTED,
    &SOME_NOT_PERMITTED,
    &NO_SUCH_RANK,
    &UNRECORDED,
    &UNREADABLE,
    &DOUBT,
    &NOTE,
    &OUTPUT_LOST,
    &NOT_WRITTEN,
    &INTERRUPTED,
    &NOT_IN_JOB,
    &NO_TARGET,
    &HANG,
    &LIMIT,
    &UNSEEN,
    &NOBODY,
];

/// Returns the message for a search without result. `situation` is called if access to a process was denied.
pub(super) fn not_found(why: &NotFound, situation: impl FnOnce(i32) -> Situation) -> Message {
    match why {
        NotFound::NoProcess { pid } => Message::new(
            &NO_PROCESS,
            format!("there is no process {pid} on this node"),
        )
        .with_help("`dbgr stacks --name PROGRAM` finds ranks by their program"),
        NotFound::Kernel { pid } => Message::new(
            &NO_RANK,
            format!("process {pid} is a kernel thread, and not part of a job"),
        ),
        NotFound::Ended { pid } => Message::new(
            &NO_PROCESS,
            format!("process {pid} has ended, and its parent has not reaped it yet"),
        ),
        NotFound::NotPermitted { pid } => {
            let advice = situation(*pid).advice();
            Message::new(&NOT_PERMITTED, format!("cannot look at process {pid}"))
                .fact("why", advice.why)
                .with_help(advice.help)
        }
        NotFound::NoJob { name } => Message::new(
            &NO_JOB,
            format!("no process on this node says that it belongs to job `{name}`"),
        )
        .with_help(
            "give the process number of its launcher, or find its ranks with `--name PROGRAM`",
        ),
        NotFound::NoName { pattern } => Message::new(
            &NO_NAME,
            format!("none of your processes on this node is called `{pattern}`"),
        )
        .with_help("`*` matches any text: `--name '*solver*'`"),
        NotFound::PidOnNodes { pid } => Message::new(
            &NOT_ON_NODES,
            format!("process {pid} is another one on each node"),
        )
        .with_help(
            "give the name of the job, or `--name PROGRAM`; on the node of a launcher, its process number is enough without `--hosts`",
        ),
        NotFound::SeveralJobs { wish, jobs } => {
            let number = jobs.len();
            let first = jobs.keys().next().cloned().unwrap_or_default();
            let listed = jobs.iter().take(JOBS_LISTED);
            let mut listed: Vec<String> = listed
                .map(|(job, nodes)| format!("`{job}` on {nodes}"))
                .collect();
            if number > JOBS_LISTED {
                listed.push(format!("and {} more", number - JOBS_LISTED));
            }
            Message::new(
                &SEVERAL_JOBS,
                format!("processes of {number} jobs are called `{wish}`"),
            )
            .fact("jobs", listed.join("\n"))
            .with_help(format!(
                "name one of the jobs instead, as in `dbgr stacks --hosts NODES '{first}'`"
            ))
        }
        NotFound::Nodes {
            wish,
            nodes,
            doubts,
        } => {
            let headline = if nodes.is_empty() {
                format!("none of the nodes could be searched for `{wish}`")
            } else {
                format!("none of your processes on {nodes} is or belongs to `{wish}`")
            };
            let message = Message::new(&NOT_ON_NODES, headline);
            let doubts = doubts.iter();
            doubts.fold(message, |message, doubt| {
                message.fact("why", doubt.to_string())
            })
        }
    }
}

/// Returns the message for a word that names neither a process, a job nor a command. `similar` is a command with a similar
/// name.
pub(super) fn no_target(word: &str, similar: Option<&str>, file: FileThere) -> Message {
    let message = Message::new(
        &NO_TARGET,
        format!("`{word}` is neither a process number, nor a job, nor a command of `dbgr`"),
    );
    match (similar, file) {
        (Some(similar), _) => message.with_help(format!("did you mean `dbgr {similar}`?")),
        (None, FileThere::Yes) => message.with_help(
            "it is a file: a page of `dbgr report` is opened with a browser, and ranks of a program are found with `dbgr --name PROGRAM`",
        ),
        (None, FileThere::No) => message.with_help(format!(
            "`dbgr PID` looks at a launcher or a rank, `dbgr --name '{word}'` at your processes of that name; `dbgr --help` lists the commands"
        )),
    }
}

/// Whether the word is the name of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileThere {
    Yes,
    No,
}

/// Returns the message for a `/proc` of another pid namespace, where one pid would mean two processes.
pub(super) fn foreign_numbers() -> Message {
    Message::new(
        &FOREIGN_NUMBERS,
        "`/proc` is that of another pid namespace".to_owned(),
    )
    .fact(
        "why",
        "the process numbers there are not those of the processes that `dbgr` would stop",
    )
    .with_help("mount it again in the container (`unshare --mount-proc`), or run `dbgr` outside")
}

/// Returns the message for ranks that may not be accessed. `situation` describes the first of them.
pub(super) fn not_permitted(ranks: &RankSet, situation: &Situation) -> Message {
    let advice = situation.advice();
    let number = ranks.len();
    let word = if number == 1 { "rank" } else { "ranks" };
    Message::new(
        &SOME_NOT_PERMITTED,
        format!("cannot look at {number} {word}"),
    )
    .fact("ranks", ranks.to_string())
    .fact("why", advice.why)
    .with_help(advice.help)
}

/// Returns the message for ranks that the job does not have. `all` are those that it has.
pub(super) fn no_rank(ranks: &RankSet, all: &RankSet) -> Message {
    let word = if ranks.len() == 1 { "rank" } else { "ranks" };
    Message::new(&NO_SUCH_RANK, format!("the job has no {word} {ranks}"))
        .fact("ranks of the job", all.to_string())
}

/// Returns the message for ranks whose calls of MPI are not recorded.
pub(super) fn unrecorded(ranks: &RankSet) -> Message {
    let word = if ranks.len() == 1 { "rank" } else { "ranks" };
    Message::new(
        &UNRECORDED,
        format!("calls of MPI of {word} {ranks} are not recorded"),
    )
    .with_help(
        "start the job with `rally run --mpi-recorder`; in a job that was, these have called nothing of MPI that the recorder sees",
    )
}

/// Returns the message for ranks whose recorded calls cannot be read.
pub(super) fn unreadable(ranks: &RankSet) -> Message {
    let word = if ranks.len() == 1 { "rank" } else { "ranks" };
    Message::new(
        &UNREADABLE,
        format!("calls of MPI of {word} {ranks} are recorded, but not readable"),
    )
    .with_help(
        "see whether the program writes where it should not, or another version of `rally` has started the job",
    )
}

pub(super) fn doubt(doubt: &Doubt) -> Message {
    Message::new(&DOUBT, doubt.to_string())
}

pub(super) fn not_in_job(starter: &Starter, why: &str) -> Message {
    let who = match starter {
        Starter::Daemons(_) => "the daemons of the job have",
        Starter::Slurm(_) => "`srun` has",
    };
    let headline = format!("{who} started no agents: {why}");
    Message::new(&NOT_IN_JOB, headline).fact("effect", "`dbgr` starts them itself")
}

pub(super) fn note(note: &Note) -> Message {
    Message::new(&NOTE, note.to_string())
}

pub(super) fn output_lost(error: &std::io::Error) -> Message {
    Message::new(&OUTPUT_LOST, format!("cannot print: {error}"))
}

pub(super) fn not_written(path: &Path, why: &NotWritten) -> Message {
    let message = Message::new(
        &NOT_WRITTEN,
        format!("cannot write `{}`: {why}", path.display()),
    );
    match why {
        NotWritten::Link | NotWritten::Others { .. } | NotWritten::Taken => message.with_help(
            "other users may write to that directory: name a file in a directory of your own",
        ),
        NotWritten::NoFile | NotWritten::System(_) => message,
    }
}

/// Returns the message after Ctrl-C during sampling. `planned` is `None` if the number of samples was not known beforehand.
pub(super) fn interrupted(samples: usize, planned: Option<u32>) -> Message {
    let of = planned.map_or_else(String::new, |planned| format!(" of {planned}"));
    let noun = if planned.map_or(samples == 1, |planned| planned == 1) {
        "sample"
    } else {
        "samples"
    };
    let were = if samples == 1 { "was" } else { "were" };
    Message::new(
        &INTERRUPTED,
        format!("interrupted: {samples}{of} {noun} {were} taken"),
    )
}

/// Returns why the watch has made a report.
pub(super) fn occasion(occasion: Occasion) -> String {
    match occasion {
        Occasion::Idle(time) => {
            format!("nothing has moved for {}: the job may hang", duration(time))
        }
        Occasion::Verdict(time) => {
            let time = duration(time);
            format!("some ranks have waited for {time}: the job may hang")
        }
        Occasion::Limit(left) => {
            let left = Duration::from_secs(left.as_secs().max(1));
            format!("the time limit ends the job in {}", duration(left))
        }
    }
}

/// Returns the message for ranks that the watch does not see, by the reason.
pub(super) fn unseen(ranks: &BTreeMap<Missing, RankSet>) -> Message {
    let number: usize = ranks.values().map(RankSet::len).sum();
    let word = if number == 1 { "rank" } else { "ranks" };
    let reasons = debug::report::reasons(ranks.iter()).into_iter();
    let reasons: Vec<String> = reasons
        .map(|(ranks, why)| format!("{ranks}: {why}"))
        .collect();
    Message::new(&UNSEEN, format!("{number} {word} cannot be watched"))
        .fact("ranks", reasons.join("\n"))
        .with_help(
            "while a rank may be at work unseen, only a verdict about the others is reported",
        )
}

/// Returns the message for a watch that may access no rank.
pub(super) fn nobody_to_watch() -> Message {
    Message::new(
        &NOBODY,
        "no rank can be looked at: the watch is over".to_owned(),
    )
}

/// Returns the message for a report of the watch, with the verdicts and the path of the page.
pub(super) fn reported(why: Occasion, verdicts: &[String], page: Option<&Path>) -> Message {
    let kind = match why {
        Occasion::Idle(_) | Occasion::Verdict(_) => &HANG,
        Occasion::Limit(_) => &LIMIT,
    };
    let mut message = Message::new(kind, occasion(why));
    if !verdicts.is_empty() {
        message = message.fact("verdict", verdicts.join("\n"));
    }
    if let Some(page) = page {
        message = message.fact("page", format!("`{}`", page.display()));
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::MessageFormat;

    #[test]
    #[expect(
        clippy::too_many_lines,
        reason = "a table of messages and their snapshot"
    )]
    fn messages() {
        let situation = |pid| Situation {
            pid,
            owner: Some(0),
            user: 1000,
            ..Situation::default()
        };
        let reasons = [
            NotFound::NoProcess { pid: 7 },
            NotFound::Ended { pid: 7 },
            NotFound::Kernel { pid: 2 },
            NotFound::NotPermitted { pid: 7 },
            NotFound::NoJob { name: "7@2".into() },
            NotFound::NoName {
                pattern: "solver".into(),
            },
            NotFound::SeveralJobs {
                wish: "solver".into(),
                jobs: ["n1:5", "n3:5"]
                    .map(|job| (job.to_owned(), "n[1-2]".parse().unwrap()))
                    .into(),
            },
            NotFound::PidOnNodes { pid: 7 },
            NotFound::Nodes {
                wish: "solver".into(),
                nodes: ["n1", "n2"].into_iter().collect(),
                doubts: vec![Doubt::NotSearched {
                    nodes: ["n3"].into_iter().collect(),
                    why: "`ssh` exited with code 255: no route to host".into(),
                }],
            },
            NotFound::Nodes {
                wish: "solver".into(),
                nodes: base::HostList::new(),
                doubts: Vec::new(),
            },
        ];
        let mut said: Vec<Message> = reasons
            .iter()
            .map(|why| not_found(why, situation))
            .collect();
        let ranks: RankSet = [base::Rank(0), base::Rank(1)].into_iter().collect();
        said.push(not_permitted(&ranks, &situation(7)));
        said.push(foreign_numbers());
        said.push(doubt(&Doubt::NotStarted { launcher: 7 }));
        for ranks in [vec![base::Rank(3)], vec![base::Rank(3), base::Rank(4)]] {
            let ranks: RankSet = ranks.into_iter().collect();
            let gone = ranks.clone();
            said.push(doubt(&Doubt::Gone {
                ranks: gone,
                pid: 7,
            }));
            said.push(doubt(&Doubt::Unproved { ranks, pid: 7 }));
        }
        said.push(note(&Note::Contained { launcher: 7 }));
        said.push(note(&Note::Elsewhere { ranks: 4 }));
        let error = std::io::Error::from(std::io::ErrorKind::NotFound);
        for why in [
            NotWritten::System(error),
            NotWritten::Link,
            NotWritten::Others { owner: 7 },
            NotWritten::Taken,
            NotWritten::NoFile,
        ] {
            said.push(not_written("no/hang.html".as_ref(), &why));
        }
        let minute = Duration::from_secs(60);
        let verdict = "likely: rank 2 has ended".to_owned();
        let page = Path::new("hang.html");
        said.push(reported(Occasion::Idle(minute), &[verdict], Some(page)));
        said.push(reported(Occasion::Verdict(minute), &[], None));
        let left = Duration::from_millis(4980);
        said.push(reported(Occasion::Limit(left), &[], None));
        said.push(interrupted(2, Some(5)));
        said.push(interrupted(1, Some(5)));
        said.push(interrupted(1, None));
        said.push(no_target("abc", None, FileThere::No));
        said.push(no_target("dbgr-7.html", None, FileThere::Yes));
        said.push(no_target("stakcs", Some("stacks"), FileThere::No));
        let text: String = said
            .iter()
            .map(|message| message::text(message, MessageFormat::Text))
            .collect();
        insta::assert_snapshot!(text, @r"
    error: there is no process 7 on this node
      help: `dbgr stacks --name PROGRAM` finds ranks by their program
    error: process 7 has ended, and its parent has not reaped it yet
    error: process 2 is a kernel thread, and not part of a job
    error: cannot look at process 7
      why:  it belongs to user 0, and you are user 1000
      help: run `dbgr` as that user, or as root
    error: no process on this node says that it belongs to job `7@2`
      help: give the process number of its launcher, or find its ranks with `--name PROGRAM`
    error: none of your processes on this node is called `solver`
      help: `*` matches any text: `--name '*solver*'`
    error: processes of 2 jobs are called `solver`
      jobs: `n1:5` on n[1-2]
            `n3:5` on n[1-2]
      help: name one of the jobs instead, as in `dbgr stacks --hosts NODES 'n1:5'`
    error: process 7 is another one on each node
      help: give the name of the job, or `--name PROGRAM`; on the node of a launcher, its process number is enough without `--hosts`
    error: none of your processes on n[1-2] is or belongs to `solver`
      why: n3 could not be searched: `ssh` exited with code 255: no route to host
    error: none of the nodes could be searched for `solver`
    warning: cannot look at 2 ranks
      ranks: 0-1
      why:   it belongs to user 0, and you are user 1000
      help:  run `dbgr` as that user, or as root
    error: `/proc` is that of another pid namespace
      why:  the process numbers there are not those of the processes that `dbgr` would stop
      help: mount it again in the container (`unshare --mount-proc`), or run `dbgr` outside
    warning: process 7 is a launcher that has not started its ranks yet; the launcher itself is shown
    warning: rank 3 should be process 7, but there is no such process
    warning: the launcher knows rank 3 as process 7, but nothing shows which process on this node that is: the rank is skipped
    warning: ranks 3-4 should be processes that do not exist (7 is the first)
    warning: the launcher has process numbers for ranks 3-4 (7 is the first), but nothing shows which processes on this node they are: the ranks are skipped
    note: the launcher, process 7, uses the process numbers of its container; the numbers here are those of this node
    note: 4 ranks are on other nodes, where `dbgr` starts an agent
    error: cannot write `no/hang.html`: entity not found
    error: cannot write `no/hang.html`: it is a symbolic link, and links are not followed
      help: other users may write to that directory: name a file in a directory of your own
    error: cannot write `no/hang.html`: it exists already, and belongs to user 7
      help: other users may write to that directory: name a file in a directory of your own
    error: cannot write `no/hang.html`: another process has just created it
      help: other users may write to that directory: name a file in a directory of your own
    error: cannot write `no/hang.html`: it is not a regular file
    warning: nothing has moved for 1 min: the job may hang
      verdict: likely: rank 2 has ended
      page:    `hang.html`
    warning: some ranks have waited for 1 min: the job may hang
    warning: the time limit ends the job in 4 s
    note: interrupted: 2 of 5 samples were taken
    note: interrupted: 1 of 5 samples was taken
    note: interrupted: 1 sample was taken
    error: `abc` is neither a process number, nor a job, nor a command of `dbgr`
      help: `dbgr PID` looks at a launcher or a rank, `dbgr --name 'abc'` at your processes of that name; `dbgr --help` lists the commands
    error: `dbgr-7.html` is neither a process number, nor a job, nor a command of `dbgr`
      help: it is a file: a page of `dbgr report` is opened with a browser, and ranks of a program are found with `dbgr --name PROGRAM`
    error: `stakcs` is neither a process number, nor a job, nor a command of `dbgr`
      help: did you mean `dbgr stacks`?
    ");
    }
}
