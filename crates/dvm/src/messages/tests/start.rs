//! Procs that could not be started.

use std::ffi::OsString;

use super::{super::words::errno, *};
use crate::{
    messages::start::message as start_failure,
    proto::{StartFailure, StartStep},
};

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a table of cases, and what is said of them"
)]
fn procs_that_could_not_be_started() {
    let job = Job {
        apps: vec![app("./a.out"), app("tool"), app("/opt/x")],
        ..Job::small()
    };
    let cases: [(StartStep, i32, Option<&str>); 31] = [
        (StartStep::Find, errno::ENOENT, Some("tool")),
        (StartStep::Find, errno::ENOENT, Some("./a.out")),
        (StartStep::Find, errno::ENOENT, Some("/opt/x")),
        (StartStep::Find, errno::ENOTDIR, Some("/etc/passwd/x")),
        (StartStep::Find, errno::EACCES, Some("./a.out")),
        (StartStep::Find, errno::EISDIR, Some("/opt")),
        (StartStep::Exec, errno::ENOENT, Some("./a.out")),
        (StartStep::Exec, errno::EACCES, Some("./a.out")),
        (StartStep::Exec, errno::ENOEXEC, Some("./a\n.out")),
        (StartStep::Exec, errno::ETXTBSY, Some("./a.out")),
        (StartStep::Exec, errno::E2BIG, Some("./a.out")),
        (StartStep::Exec, errno::ENOMEM, Some("./a.out")),
        (StartStep::Exec, errno::ELOOP, Some("./a.out")),
        (StartStep::Directory, errno::ENOENT, Some("/scratch/u")),
        (StartStep::Directory, errno::EACCES, Some("/root")),
        (StartStep::Directory, errno::ENOTDIR, None),
        (StartStep::OutputFile, errno::EACCES, Some("/out.0")),
        (StartStep::OutputFile, errno::EMFILE, Some("/out.0")),
        (StartStep::OutputFile, 28, None),
        (StartStep::Fork, errno::EAGAIN, None),
        (StartStep::Fork, errno::ENOMEM, None),
        (StartStep::Channels, errno::EMFILE, None),
        (StartStep::Channels, errno::ENFILE, None),
        (StartStep::Room, errno::EMFILE, None),
        (StartStep::Affinity, 22, None),
        (StartStep::Terminal, 28, None),
        (StartStep::Trace, errno::EPERM, None),
        (StartStep::ParentDeath, 3, None),
        (StartStep::Limits, errno::EPERM, None),
        (StartStep::Descriptors, 9, None),
        (StartStep::Umask, 999, None),
    ];
    let text = cases.map(|(step, errno, subject)| {
        let failure = StartFailure {
            step,
            errno,
            subject: subject.map(OsString::from),
        };
        shown(&start_failure(&failure, &set("0-2"), &[], &job.scene()))
    });
    insta::assert_snapshot!(text.concat(), @r"
    start/no-program Error: cannot start `tool` on `n1`: no directory of the search path has it
      step: find the program
      ranks: 0-2
      path: /usr/bin:/bin
      help: for a program in the working directory, write `./tool`
    start/no-program Error: cannot start `./a.out` on `n1`: there is no such file
      step: find the program
      ranks: 0-2
      directory: `/home/u`
    start/no-program Error: cannot start `/opt/x` on `n1`: there is no such file
      step: find the program
      ranks: 0-2
    start/no-program Error: cannot start `/etc/passwd/x` on `n1`: not a directory
      step: find the program
      ranks: 0-2
    start/not-executable Error: cannot start `./a.out` on `n1`: permission denied
      step: find the program
      ranks: 0-2
      help: `chmod +x ./a.out`, or look for a directory above it that you may not enter or a file system mounted with `noexec`
    start/is-directory Error: cannot start `/opt` on `n1`: it is a directory
      step: find the program
      ranks: 0-2
    start/no-interpreter Error: cannot start `./a.out` on `n1`: the interpreter that it names does not exist
      step: execute the program
      ranks: 0-2
      help: `head -1 ./a.out` shows the `#!` line of a script (mind Windows line ends), `file ./a.out` the loader of a binary
    start/not-executable Error: cannot start `./a.out` on `n1`: permission denied
      step: execute the program
      ranks: 0-2
      help: `chmod +x ./a.out`, or look for a directory above it that you may not enter or a file system mounted with `noexec`
    start/wrong-format Error: cannot start `./a\n.out` on `n1`: it is not a program that this machine can run
      step: execute the program
      ranks: 0-2
      help: a script needs a first line like `#!/bin/sh`; a binary must be built for this kind of processor
    start/busy Error: cannot start `./a.out` on `n1`: it is open for writing
      step: execute the program
      ranks: 0-2
      help: wait until the copy or the link that writes it is done
    start/arguments-too-long Error: cannot start `./a.out` on `n1`: arguments and environment are too long
      step: execute the program
      ranks: 0-2
      help: pass long lists in a file, or a smaller environment; `getconf ARG_MAX` shows the limit
    start/no-memory Error: cannot start `./a.out` on `n1`: out of memory
      step: execute the program
      ranks: 0-2
      help: start fewer ranks; `free -m` and the cgroup's `memory.max` show what there is
    job/not-started Error: cannot start `./a.out` on `n1`: cannot execute the program: too many symbolic links
      step: execute the program
      ranks: 0-2
    start/no-directory Error: cannot start ranks 0-2 on `n1`: cannot enter the working directory `/scratch/u`: no such file or directory
      step: enter the working directory
      ranks: 0-2
      help: the directory must exist on `n1`; choose another with `--wdir`
    start/no-directory Error: cannot start ranks 0-2 on `n1`: cannot enter the working directory `/root`: permission denied
      step: enter the working directory
      ranks: 0-2
      help: the directory must exist on `n1`; choose another with `--wdir`
    start/no-directory Error: cannot start ranks 0-2 on `n1`: cannot enter the working directory: not a directory
      step: enter the working directory
      ranks: 0-2
      help: the directory must exist on `n1`; choose another with `--wdir`
    start/output-file Error: cannot start ranks 0-2 on `n1`: cannot open the output file `/out.0`: permission denied
      step: open the output file
      ranks: 0-2
    start/no-descriptors Error: cannot start ranks 0-2 on `n1`: the limit on open files is reached
      step: open the output file
      ranks: 0-2
      help: raise `ulimit -n`, or start fewer ranks
    start/output-file Error: cannot start ranks 0-2 on `n1`: cannot open the output file: no space left on device
      step: open the output file
      ranks: 0-2
    start/no-pids Error: cannot start ranks 0-2 on `n1`: the limit on processes is reached
      step: fork
      ranks: 0-2
      help: raise `ulimit -u` or the cgroup's `pids.max`, or start fewer ranks
    start/no-memory Error: cannot start ranks 0-2 on `n1`: out of memory
      step: fork
      ranks: 0-2
      help: start fewer ranks; `free -m` and the cgroup's `memory.max` show what there is
    start/no-descriptors Error: cannot start ranks 0-2 on `n1`: the limit on open files is reached
      step: make the channels for input and output
      ranks: 0-2
      help: raise `ulimit -n`, or start fewer ranks
    start/no-descriptors Error: cannot start ranks 0-2 on `n1`: the system's limit on open files is reached
      step: make the channels for input and output
      ranks: 0-2
      help: `sysctl fs.file-max` shows the limit
    start/no-descriptors Error: cannot start ranks 0-2 on `n1`: the limit on open files is too low for 3 ranks
      step: reserve descriptors for all ranks
      ranks: 0-2
      help: raise `ulimit -n`, or start fewer ranks
    start/cannot-bind Error: cannot start ranks 0-2 on `n1`: cannot bind to the chosen PUs: invalid argument
      step: bind to the chosen PUs
      ranks: 0-2
      help: the PUs that we may use have changed; `--bind-to none` runs without binding
    start/no-terminal Error: cannot start ranks 0-2 on `n1`: cannot open a terminal: no space left on device
      step: open a terminal
      ranks: 0-2
      help: `/dev/pts` must be mounted; `sysctl kernel.pty.nr kernel.pty.max` shows how many terminals are in use
    start/cannot-trace Error: cannot start ranks 0-2 on `n1`: cannot hold at the first instruction: operation not permitted
      step: hold at the first instruction
      ranks: 0-2
      help: holding a rank needs ptrace: see `sysctl kernel.yama.ptrace_scope` and the container's seccomp profile
    job/not-started Error: cannot start ranks 0-2 on `n1`: cannot arm the parent-death signal: error 3
      step: arm the parent-death signal
      ranks: 0-2
    job/not-started Error: cannot start ranks 0-2 on `n1`: cannot set the resource limits: operation not permitted
      step: set the resource limits
      ranks: 0-2
    job/not-started Error: cannot start ranks 0-2 on `n1`: cannot arrange the descriptors: bad descriptor
      step: arrange the descriptors
      ranks: 0-2
    job/not-started Error: cannot start ranks 0-2 on `n1`: cannot set the file mode mask: error 999
      step: set the file mode mask
      ranks: 0-2
    ");
}

#[test]
fn steps_have_names() {
    let job = Job::small();
    let steps = [
        StartStep::Find,
        StartStep::Channels,
        StartStep::OutputFile,
        StartStep::Fork,
        StartStep::ProcessGroup,
        StartStep::ParentDeath,
        StartStep::Affinity,
        StartStep::Limits,
        StartStep::Umask,
        StartStep::Directory,
        StartStep::Descriptors,
        StartStep::Terminal,
        StartStep::Signals,
        StartStep::Trace,
        StartStep::Exec,
        StartStep::Cgroup,
    ];
    let text = steps.map(|step| {
        let failure = StartFailure {
            step,
            errno: 5,
            subject: None,
        };
        let message = start_failure(&failure, &set("4"), &[], &job.scene());
        shown(&message)
            .lines()
            .take(2)
            .map(|line| format!("{line}\n"))
            .collect::<String>()
    });
    insta::assert_snapshot!(text.concat(), @"
    job/not-started Error: cannot start rank 4 on `n1`: cannot find the program: input/output error
      step: find the program
    job/not-started Error: cannot start `./a.out` on `n1`: cannot make the channels for input and output: input/output error
      step: make the channels for input and output
    start/output-file Error: cannot start `./a.out` on `n1`: cannot open the output file: input/output error
      step: open the output file
    job/not-started Error: cannot start `./a.out` on `n1`: cannot fork: input/output error
      step: fork
    job/not-started Error: cannot start `./a.out` on `n1`: cannot make a session: input/output error
      step: make a session
    job/not-started Error: cannot start `./a.out` on `n1`: cannot arm the parent-death signal: input/output error
      step: arm the parent-death signal
    start/cannot-bind Error: cannot start `./a.out` on `n1`: cannot bind to the chosen PUs: input/output error
      step: bind to the chosen PUs
    job/not-started Error: cannot start `./a.out` on `n1`: cannot set the resource limits: input/output error
      step: set the resource limits
    job/not-started Error: cannot start `./a.out` on `n1`: cannot set the file mode mask: input/output error
      step: set the file mode mask
    start/no-directory Error: cannot start `./a.out` on `n1`: cannot enter the working directory: input/output error
      step: enter the working directory
    job/not-started Error: cannot start `./a.out` on `n1`: cannot arrange the descriptors: input/output error
      step: arrange the descriptors
    start/no-terminal Error: cannot start `./a.out` on `n1`: cannot open a terminal: input/output error
      step: open a terminal
    job/not-started Error: cannot start `./a.out` on `n1`: cannot reset the signals: input/output error
      step: reset the signals
    start/cannot-trace Error: cannot start `./a.out` on `n1`: cannot hold at the first instruction: input/output error
      step: hold at the first instruction
    job/not-started Error: cannot start rank 4 on `n1`: cannot execute the program: input/output error
      step: execute the program
    job/not-started Error: cannot start `./a.out` on `n1`: cannot enter the cgroup that has the limits of the job: input/output error
      step: enter the cgroup that has the limits of the job
    ");
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a table of cases, and what is said of them"
)]
fn a_job_that_was_not_started() {
    let small = Job::small();
    let missing = StartFailure {
        step: StartStep::Find,
        errno: errno::ENOENT,
        subject: Some("./a.out".into()),
    };
    let full = StartFailure {
        step: StartStep::Fork,
        errno: errno::EAGAIN,
        subject: None,
    };
    let cause = |classes: &[(&StartFailure, &str)]| {
        Cause::NotStarted(
            classes
                .iter()
                .map(|(why, ranks)| ((*why).clone(), set(ranks)))
                .collect(),
        )
    };
    let cases = [
        ("none", ended(cause(&[(&missing, "0-7")]), &[], "", "0-7")),
        (
            "some",
            ended(
                cause(&[(&full, "6-7")]),
                &[(TERMINATED, "0-5")],
                "0-5",
                "6-7",
            ),
        ),
        (
            "one ran",
            ended(cause(&[(&full, "1")]), &[(KILLED, "0")], "0", "1"),
        ),
        (
            "one failed, the rest was not tried",
            ended(cause(&[(&full, "2")]), &[(TERMINATED, "0-1")], "0-1", "2-7"),
        ),
        (
            "one was done",
            ended(cause(&[(&full, "1-2")]), &[(OK, "0")], "", "1-2"),
        ),
        (
            "two reasons",
            ended(cause(&[(&full, "4-7"), (&missing, "0-3")]), &[], "", "0-7"),
        ),
    ];
    let text = cases.map(|(name, outcome)| {
        format!(
            "-- {name}\n{}",
            all(&super::outcome(&outcome, &small.scene()))
        )
    });
    insta::assert_snapshot!(text.concat(), @"
    -- none
    start/no-program Error: cannot start `./a.out` on `n1`: there is no such file
      step: find the program
      ranks: 0-7
      directory: `/home/u`
      effect: the job was not started
    -- some
    start/no-pids Error: cannot start `./a.out` on `n1`: the limit on processes is reached
      step: fork
      ranks: 6-7
      effect: the other 6 ranks were ended
      help: raise `ulimit -u` or the cgroup's `pids.max`, or start fewer ranks
    -- one ran
    start/no-pids Error: cannot start `./a.out` on `n1`: the limit on processes is reached
      step: fork
      rank: 1
      effect: the other rank was ended; rank 0 needed SIGKILL
      help: raise `ulimit -u` or the cgroup's `pids.max`, or start fewer ranks
    -- one failed, the rest was not tried
    start/no-pids Error: cannot start `./a.out` on `n1`: the limit on processes is reached
      step: fork
      rank: 2
      effect: the other 2 ranks were ended; ranks 3-7 were not started
      help: raise `ulimit -u` or the cgroup's `pids.max`, or start fewer ranks
    -- one was done
    start/no-pids Error: cannot start `./a.out` on `n1`: the limit on processes is reached
      step: fork
      ranks: 1-2
      effect: the other rank had ended by itself
      help: raise `ulimit -u` or the cgroup's `pids.max`, or start fewer ranks
    -- two reasons
    start/no-program Error: cannot start `./a.out` on `n1`: there is no such file
      step: find the program
      ranks: 0-3
      directory: `/home/u`
      effect: the job was not started
    start/no-pids Error: cannot start `./a.out` on `n1`: the limit on processes is reached
      step: fork
      ranks: 4-7
      help: raise `ulimit -u` or the cgroup's `pids.max`, or start fewer ranks
    ");

    let many = (0..20).map(|rank| {
        let failure = StartFailure {
            step: StartStep::Umask,
            errno: 100 + rank,
            subject: None,
        };
        (failure, RankSet::single(Rank(u32::try_from(rank).unwrap())))
    });
    let outcome = ended(Cause::NotStarted(many.collect()), &[], "", "0-19");
    let messages = super::outcome(&outcome, &small.scene());
    assert_eq!(messages.len(), CLASSES_MAX + 1);
    insta::assert_snapshot!(shown(&messages[CLASSES_MAX]), @"job/more-failed Error: ranks 8-19 could not be started for 12 reasons more");
}

/// The proc table lacks ranks that were not started, but their nodes are known.
#[test]
fn nodes_that_lack_a_file_are_named() {
    let mut job = Job::wide();
    job.table.clear();
    let failure = |step, subject: &str| StartFailure {
        step,
        errno: errno::ENOENT,
        subject: Some(subject.into()),
    };
    let classes = vec![
        (failure(StartStep::Directory, "/home/u"), set("2-3")),
        (failure(StartStep::Find, "/opt/ice"), set("4-7")),
    ];
    let outcome = Outcome {
        failed_on: [(1, "2-3"), (2, "4-5"), (3, "6-7")]
            .map(|(node, ranks)| (NodeId(node), set(ranks)))
            .into(),
        ..ended(
            Cause::NotStarted(classes),
            &[(TERMINATED, "0-1")],
            "0-1",
            "2-7",
        )
    };
    let messages = super::outcome(&outcome, &job.scene());
    let text: Vec<_> = messages.iter().map(shown).collect();
    insta::assert_snapshot!(text.concat(), @"
    start/no-directory Error: cannot start ranks 2-3 on `n09`: cannot enter the working directory `/home/u`: no such file or directory
      step: enter the working directory
      ranks: 2-3
      effect: the other 2 ranks were ended
      help: the directory must exist on `n09`; choose another with `--wdir`
    start/no-program Error: cannot start `/opt/ice` on `n[10-11]`: there is no such file
      step: find the program
      ranks: 4-7
    ");
}
