//! Programs that are really started.
#![expect(unsafe_code, reason = "tests put their process into odd states")]

use std::{
    fs,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd},
        unix::fs::PermissionsExt,
    },
};

use base::{CpuSet, ExitStatus, Signal};
use os::{Resource, Session, SpawnError, SpawnSpec, SpawnStep, Trace};

use crate::{
    Test,
    world::{World, c_path, read_to_end, spec, strings},
};

pub(crate) const TESTS: &[Test] = &[
    (
        "spawn::a_program_runs_with_its_arguments_environment_and_directory",
        a_program_runs_with_its_arguments_environment_and_directory,
    ),
    (
        "spawn::failures_say_their_step_and_leave_nothing",
        failures_say_their_step_and_leave_nothing,
    ),
    (
        "spawn::descriptors_arrive_under_their_numbers_whatever_the_overlap",
        descriptors_arrive_under_their_numbers_whatever_the_overlap,
    ),
    (
        "spawn::only_the_given_descriptors_are_open",
        only_the_given_descriptors_are_open,
    ),
    (
        "spawn::without_close_range_a_child_gets_a_copy_of_the_table",
        without_close_range_a_child_gets_a_copy_of_the_table,
    ),
    (
        "spawn::a_descriptor_may_keep_its_number",
        a_descriptor_may_keep_its_number,
    ),
    (
        "spawn::a_user_without_processes_left_is_told_so",
        a_user_without_processes_left_is_told_so,
    ),
    (
        "spawn::what_we_ignore_is_not_inherited_but_what_our_caller_ignores_is",
        what_we_ignore_is_not_inherited_but_what_our_caller_ignores_is,
    ),
    (
        "spawn::group_signals_affinity_and_limits_are_as_asked",
        group_signals_affinity_and_limits_are_as_asked,
    ),
    (
        "spawn::a_terminal_can_be_the_programs_own",
        a_terminal_can_be_the_programs_own,
    ),
];

fn a_program_runs_with_its_arguments_environment_and_directory() {
    let mut world = World::new();
    let envp = strings(&["WHO=rank"]);
    let shared = [c"WHO=all", c"PATH=/usr/bin:/bin"];
    let (text, status) = world.shell("echo $WHO; pwd; umask; echo err >&2; exit 3", |spec| {
        spec.envp = Box::leak(Box::new(envp.clone()));
        spec.envp_shared = Box::leak(Box::new(shared));
        spec.cwd = Some(c"/usr");
        spec.umask = Some(0o027);
        // A kernel without Yama starts the program nevertheless.
        spec.tracers = os::Tracers::SameUser;
    });
    // A shell takes the last of two equal names, getenv(3) the first.
    assert_eq!(text.replace("all", "rank"), "rank\n/usr\n0027\nerr\n");
    assert_eq!(status, ExitStatus::Exited(3));
}

#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn failures_say_their_step_and_leave_nothing() {
    let mut world = World::new();
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, mode: u32, content: &str| {
        let path = directory.path().join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        c_path(&path)
    };
    let plain = file("plain", 0o644, "#!/bin/sh\n");
    let bad_interpreter = file("interpreter", 0o755, "#!/no/such/interpreter\n");
    let unknown_format = file("script", 0o755, "echo no first line\n");
    let folder = c_path(directory.path());
    let argv = strings(&["x"]);
    let null = os::dev_null().unwrap();
    let reserved = [(null.as_fd(), i32::MAX)];
    let not_a_terminal = [(null.as_fd(), 0)];
    let no_cpu = CpuSet::new();
    let inverted = [(Resource::Core, 2, 1)];
    let base = || spec(c"/bin/true", &argv);
    let cases: Vec<(SpawnSpec<'_>, SpawnStep, i32)> = vec![
        (
            SpawnSpec {
                program: c"/no/such/program",
                ..base()
            },
            SpawnStep::Exec,
            libc::ENOENT,
        ),
        (
            SpawnSpec {
                program: &plain,
                ..base()
            },
            SpawnStep::Exec,
            libc::EACCES,
        ),
        (
            SpawnSpec {
                program: &folder,
                ..base()
            },
            SpawnStep::Exec,
            libc::EACCES,
        ),
        (
            SpawnSpec {
                program: &bad_interpreter,
                ..base()
            },
            SpawnStep::Exec,
            libc::ENOENT,
        ),
        (
            SpawnSpec {
                program: &unknown_format,
                ..base()
            },
            SpawnStep::Exec,
            libc::ENOEXEC,
        ),
        (
            SpawnSpec {
                program: c"/no/such/program",
                trace: Trace::StopOnExec,
                ..base()
            },
            SpawnStep::Exec,
            libc::ENOENT,
        ),
        (
            SpawnSpec {
                cwd: Some(c"/no/such/directory"),
                ..base()
            },
            SpawnStep::Directory,
            libc::ENOENT,
        ),
        (
            SpawnSpec {
                cwd: Some(&plain),
                ..base()
            },
            SpawnStep::Directory,
            libc::ENOTDIR,
        ),
        (
            SpawnSpec {
                affinity: Some(&no_cpu),
                ..base()
            },
            SpawnStep::Affinity,
            libc::EINVAL,
        ),
        (
            SpawnSpec {
                limits: &inverted,
                ..base()
            },
            SpawnStep::Limits,
            libc::EINVAL,
        ),
        (
            SpawnSpec {
                fds: &reserved,
                ..base()
            },
            SpawnStep::Descriptors,
            libc::EBADF,
        ),
        (
            SpawnSpec {
                fds: &not_a_terminal,
                session: Session::WithTerminal,
                ..base()
            },
            SpawnStep::Terminal,
            libc::ENOTTY,
        ),
    ];
    for (spec, step, errno) in cases {
        assert_eq!(
            world.spawner.spawn(&spec),
            Err(SpawnError { step, errno }),
            "{spec:?}"
        );
        assert!(!os::has_children(), "{spec:?}");
    }
    assert_eq!(
        SpawnError {
            step: SpawnStep::Directory,
            errno: libc::ENOENT
        }
        .to_string(),
        "cannot start the program: Directory: No such file or directory"
    );
}

fn descriptors_arrive_under_their_numbers_whatever_the_overlap() {
    let mut world = World::new();
    let pipes: Vec<_> = (0..3).map(|_| os::pipe().unwrap()).collect();
    let ends: Vec<(BorrowedFd<'_>, i32)> = {
        let numbers: Vec<i32> = pipes.iter().map(|(_, writer)| writer.as_raw_fd()).collect();
        // A cycle: each descriptor gets its neighbour's number.
        (0..3)
            .map(|i| (pipes[i].1.as_fd(), numbers[(i + 1) % 3]))
            .collect()
    };
    let targets: Vec<i32> = ends.iter().map(|&(_, target)| target).collect();
    let script = format!(
        "echo a >&{}; echo b >&{}; echo c >&{}",
        targets[0], targets[1], targets[2]
    );
    let argv = strings(&["bash", "-c", &script]);
    let pid = world
        .spawner
        .spawn(&SpawnSpec {
            fds: &ends,
            ..spec(c"/bin/bash", &argv)
        })
        .unwrap();
    assert_eq!(world.exit_of(pid), ExitStatus::SUCCESS);
    let texts: Vec<String> = pipes
        .into_iter()
        .map(|(reader, writer)| {
            drop(writer);
            read_to_end(&reader)
        })
        .collect();
    assert_eq!(texts, ["a\n", "b\n", "c\n"]);
}

fn only_the_given_descriptors_are_open() {
    expect_only_the_given(&mut World::new());
}

fn expect_only_the_given(world: &mut World) {
    let (_reader, _writer) = os::pipe().unwrap();
    let keep = os::dev_null().unwrap();
    let (reader, writer) = os::pipe().unwrap();
    let argv = strings(&["ls", "/proc/self/fd"]);
    let fds = [
        (keep.as_fd(), 0),
        (writer.as_fd(), 1),
        (keep.as_fd(), 2),
        (keep.as_fd(), 9),
    ];
    let pid = world
        .spawner
        .spawn(&SpawnSpec {
            fds: &fds,
            ..spec(c"/bin/ls", &argv)
        })
        .unwrap();
    drop(writer);
    // Number 3 is the directory that is being listed.
    assert_eq!(read_to_end(&reader).replace('\n', " "), "0 1 2 3 9 ");
    assert_eq!(world.exit_of(pid), ExitStatus::SUCCESS);
}

/// A container's seccomp filter may be older than the call, and usually forbids unshare(2) as well.
fn without_close_range_a_child_gets_a_copy_of_the_table() {
    let mut world = World::new();
    for call in [libc::SYS_close_range, libc::SYS_unshare] {
        filter(call, libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned());
    }
    expect_only_the_given(&mut world);
    assert!(!os::has_children());
    // The next child does not try again: it would be killed.
    filter(libc::SYS_close_range, libc::SECCOMP_RET_KILL_PROCESS);
    expect_only_the_given(&mut world);
    let argv = strings(&["x"]);
    assert_eq!(
        world.spawner.spawn(&spec(c"/no/such/program", &argv)),
        Err(SpawnError {
            step: SpawnStep::Exec,
            errno: libc::ENOENT
        })
    );
}

/// Makes the kernel answer a system call of this process and its children with `action` from now on.
fn filter(call: libc::c_long, action: u32) {
    let statement = |code: u32, k: u32, jf: u8| libc::sock_filter {
        code: u16::try_from(code).unwrap(),
        jt: 0,
        jf,
        k,
    };
    let mut program = [
        // The number of the call is the first word of the filter's input.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        statement(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            u32::try_from(call).unwrap(),
            1,
        ),
        statement(libc::BPF_RET | libc::BPF_K, action, 0),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0),
    ];
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).unwrap(),
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the program outlives the call, which copies it, and concerns only this process, which is a test's own.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        let result = libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program);
        assert_eq!(result, 0);
    }
}

fn a_descriptor_may_keep_its_number() {
    let mut world = World::new();
    let (reader, writer) = os::pipe().unwrap();
    let number = writer.as_raw_fd();
    // The second entry does not affect the first, and both numbers are the same pipe.
    let script = format!("echo a >&{number}; echo b >&1");
    let argv = strings(&["bash", "-c", &script]);
    let fds = [(writer.as_fd(), number), (writer.as_fd(), 1)];
    let pid = world
        .spawner
        .spawn(&SpawnSpec {
            fds: &fds,
            ..spec(c"/bin/bash", &argv)
        })
        .unwrap();
    drop(writer);
    assert_eq!(read_to_end(&reader), "a\nb\n");
    assert_eq!(world.exit_of(pid), ExitStatus::SUCCESS);
}

fn a_user_without_processes_left_is_told_so() {
    let mut world = World::new();
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: reads an owned struct and changes only this process, which is a test's own.
    unsafe {
        assert_eq!(libc::setrlimit(libc::RLIMIT_NPROC, &raw const none), 0);
        // The limit does not apply to root.
        if os::effective_uid() == 0 {
            assert_eq!(libc::setresuid(65_534, 65_534, 65_534), 0);
        }
    }
    let argv = strings(&["true"]);
    let result = world.spawner.spawn(&spec(c"/bin/true", &argv));
    assert_eq!(
        result,
        Err(SpawnError {
            step: SpawnStep::Clone,
            errno: libc::EAGAIN
        })
    );
}

fn what_we_ignore_is_not_inherited_but_what_our_caller_ignores_is() {
    let mut world = World::new();
    // SAFETY: SIG_IGN is no function. This is the state of a process that `nohup` has started.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
    let ignored = u64::from_str_radix(&status_line(&mut world, "SigIgn:", |_| {}), 16).unwrap();
    let is_ignored = |signal: Signal| ignored & (1 << (signal.0 - 1)) != 0;
    // Rust's start-up code ignores SIGPIPE.
    assert_eq!([Signal::HUP, Signal::PIPE].map(is_ignored), [true, false]);
}

/// Returns a line of /proc/PID/status of a program that is started with `change`.
fn status_line(world: &mut World, name: &str, change: impl FnOnce(&mut SpawnSpec<'_>)) -> String {
    let (text, _) = world.shell(
        "while read -r k v; do echo \"$k $v\"; done < /proc/$$/status",
        change,
    );
    text.lines()
        .find_map(|line| line.strip_prefix(name))
        .unwrap()
        .trim()
        .to_owned()
}

fn group_signals_affinity_and_limits_are_as_asked() {
    let mut world = World::new();
    // The loop blocks SIGCHLD here; that must not be inherited by the program.
    assert_eq!(
        status_line(&mut world, "SigBlk:", |_| {}),
        "0000000000000000"
    );
    let cpu = os::allowed_cpus().unwrap().last().unwrap();
    let mask = CpuSet::single(cpu);
    let mask: &'static CpuSet = Box::leak(Box::new(mask));
    let allowed = status_line(&mut world, "Cpus_allowed_list:", |spec| {
        spec.affinity = Some(mask)
    });
    assert_eq!(allowed, cpu.to_string());
    let (text, _) = world.shell("ulimit -n; ulimit -Hn; ulimit -c", |spec| {
        spec.limits = &[(Resource::Descriptors, 100, 200), (Resource::Core, 0, 0)];
    });
    assert_eq!(text, "100\n200\n0\n");

    let argv = strings(&["sleep", "1000"]);
    let pid = world.spawner.spawn(&spec(c"/bin/sleep", &argv)).unwrap();
    let info = os::inspect(pid).unwrap();
    assert_eq!(
        (info.ppid, info.pgrp, info.name.as_str()),
        (os::current_pid(), pid, "sleep")
    );
    assert!(os::children().contains(&pid));
    assert!(os::descendants(os::current_pid()).contains(&pid));
    let group = |spec: &mut SpawnSpec<'_>| spec.session = Session::OursWithGroup;
    let (text, _) = world.shell("ps -o pgid= -p $$", group);
    let ours = os::inspect(os::current_pid()).unwrap().pgrp;
    assert_eq!(text.trim(), ours.as_raw().to_string());
    os::kill_group(pid, Signal(40)).unwrap();
    assert_eq!(
        world.exit_of(pid),
        ExitStatus::Signaled {
            signal: Signal(40),
            core_dumped: false
        }
    );
    assert_eq!(os::reap(), None);
    assert!(!os::has_children());
}

fn a_terminal_can_be_the_programs_own() {
    let mut world = World::new();
    let (master, slave) = os::open_pty().unwrap();
    let argv = strings(&["sh", "-c", "tty; ps -o tty=,tpgid= -p $$; echo $$"]);
    let envp = strings(&["PATH=/usr/bin:/bin"]);
    let fds = [(slave.as_fd(), 0), (slave.as_fd(), 1), (slave.as_fd(), 2)];
    let spec = SpawnSpec {
        fds: &fds,
        envp: &envp,
        session: Session::WithTerminal,
        ..spec(c"/bin/sh", &argv)
    };
    let pid = world.spawner.spawn(&spec).unwrap();
    drop(slave);
    let text = read_to_end(&master).replace('\r', "");
    let lines: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let name = lines[0][0].strip_prefix("/dev/").unwrap();
    let pid_text = pid.to_string();
    assert_eq!(
        lines[1..],
        [vec![name, &pid_text], vec![&pid_text]],
        "{text}"
    );
    assert_eq!(world.exit_of(pid), ExitStatus::SUCCESS);
}
