use std::{fs, time::Duration};

use os::{SpawnSpec, Spawner};

use super::*;

const MOUNT: &str = "30 1 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n";
const HOME: &str = "sys/fs/cgroup/a.scope";
const OWNER: &str = "17.4711";
const JOB: JobId = JobId(3);
const BOTH: ResourceLimits = ResourceLimits {
    memory: Some(2 << 30),
    milli_cpus: Some(1_500),
};

/// A system whose tree is a directory. What the kernel would make in a cgroup is made beforehand.
struct System(tempfile::TempDir);

impl System {
    fn new(controllers: &str) -> Self {
        let system = Self(tempfile::tempdir().unwrap());
        system.put("proc/self/mountinfo", MOUNT);
        system.put("proc/self/cgroup", "0::/a.scope\n");
        system.put(&format!("{HOME}/cgroup.procs"), "");
        system.put(&format!("{HOME}/cgroup.controllers"), controllers);
        system.put(&format!("{HOME}/cgroup.subtree_control"), "");
        system
    }

    fn with_job(self) -> Self {
        for file in ["cgroup.procs", "cgroup.subtree_control"] {
            self.put(&Self::of_whole(file), "");
        }
        for file in ["cgroup.procs", "memory.max", "cpu.max"] {
            self.put(&Self::of_job(file), "");
        }
        self
    }

    /// Makes what the kernel would make for a tool, whose job has this number.
    fn with_tool(self, tool: JobId) -> Self {
        for file in ["cgroup.procs", "cgroup.kill", "memory.max", "cpu.max"] {
            self.put(&Self::of_tool(tool, file), "");
        }
        self
    }

    fn of_whole(file: &str) -> String {
        format!("{HOME}/rally-{OWNER}-3.1/{file}")
    }

    fn of_job(file: &str) -> String {
        Self::of_whole(&format!("ranks/{file}"))
    }

    fn of_tool(tool: JobId, file: &str) -> String {
        Self::of_whole(&format!("tool-{tool}/{file}"))
    }

    /// Returns the directories of a job. The kernel would remove their files with them.
    fn directories(&self) -> Vec<String> {
        let whole = self.0.path().join(Self::of_whole(""));
        let below = fs::read_dir(&whole).into_iter().flatten().flatten();
        let below = below.filter(|entry| entry.file_type().unwrap().is_dir());
        let mut names: Vec<String> = below
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        names.sort();
        if whole.exists() {
            names.insert(0, ".".to_owned());
        }
        names
    }

    /// Lets a cgroup be removed, as the kernel does when its last process has ended.
    fn vacate(&self, directory: &str) {
        let directory = self.0.path().join(Self::of_whole(directory));
        for entry in fs::read_dir(directory).unwrap().flatten() {
            if entry.file_type().unwrap().is_file() {
                fs::remove_file(entry.path()).unwrap();
            }
        }
    }

    fn put(&self, name: &str, content: &str) {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.path().join(name)).unwrap()
    }

    fn cgroups(&self) -> JobCgroups {
        JobCgroups::new(self.0.path(), OWNER, NodeId(1))
    }
}

const TOOL_JOB: JobId = JobId(5);

/// A tool is in the tree of its target. The limits are not its own, and its use is not counted with that of the ranks.
#[test]
fn a_tool_is_beside_the_ranks_and_not_held_to_their_limits() {
    let system = System::new("memory cpu").with_job().with_tool(TOOL_JOB);
    let mut cgroups = system.cgroups();
    // The target has no cgroup here: then the tool has none.
    cgroups.prepare_beside(TOOL_JOB, JOB);
    assert!(cgroups.procs(TOOL_JOB).is_none());
    assert_eq!(cgroups.prepare(JOB, &BOTH), []);
    cgroups.prepare_beside(TOOL_JOB, JOB);
    let control = system.read(&System::of_whole("cgroup.subtree_control"));
    assert_eq!(control, "+memory +cpu");
    let limits = ["memory.max", "cpu.max"];
    let of_tool = limits.map(|file| system.read(&System::of_tool(TOOL_JOB, file)));
    assert_eq!(of_tool, ["", ""]);
    system.put(&System::of_job("cgroup.procs"), "17\n18\n");
    system.put(&System::of_tool(TOOL_JOB, "cgroup.procs"), "19\n");
    system.put(&System::of_job("cpu.stat"), "user_usec 1000000\n");
    let stat = System::of_tool(TOOL_JOB, "cpu.stat");
    system.put(&stat, "user_usec 5000000\n");
    let pids = |job| {
        let processes = cgroups.processes(job).into_iter();
        processes.map(Pid::as_raw).collect::<Vec<_>>()
    };
    assert_eq!((pids(JOB), pids(TOOL_JOB)), (vec![17, 18], vec![19]));
    let seconds = |job| cgroups.counted(job).unwrap().user.as_secs();
    assert_eq!((seconds(JOB), seconds(TOOL_JOB)), (1, 5));
}

/// The target may be over while the tool uses its grace. What is left in the end is killed.
#[test]
fn the_cgroup_of_a_job_stays_until_its_last_tool_has_ended() {
    for order in [[JOB, TOOL_JOB], [TOOL_JOB, JOB]] {
        let system = System::new("memory cpu").with_job().with_tool(TOOL_JOB);
        let mut cgroups = system.cgroups();
        assert_eq!(cgroups.prepare(JOB, &BOTH), []);
        cgroups.prepare_beside(TOOL_JOB, JOB);
        let kill = System::of_tool(TOOL_JOB, "cgroup.kill");
        for job in order {
            assert_eq!(system.directories(), [".", "ranks", "tool-5"]);
            let is_killed = || system.read(&kill) == "1";
            let before = is_killed();
            cgroups.forget(job);
            // The ranks' end is not that of the tool.
            assert_eq!(is_killed(), before || job == TOOL_JOB);
        }
        for directory in ["ranks", "tool-5", ""] {
            system.vacate(directory);
        }
        cgroups.forget(JobId(9));
        assert_eq!(system.directories(), [""; 0]);
    }
    // A daemon that ends leaves none.
    let system = System::new("memory cpu").with_job().with_tool(TOOL_JOB);
    let mut cgroups = system.cgroups();
    assert_eq!(cgroups.prepare(JOB, &BOTH), []);
    cgroups.prepare_beside(TOOL_JOB, JOB);
    for directory in ["ranks", "tool-5", ""] {
        system.vacate(directory);
    }
    drop(cgroups);
    assert_eq!(system.directories(), [""; 0]);
}

fn unenforced(why: NotEnforced, limits: &[LimitedResource]) -> Unenforced {
    let limits = limits.iter().copied().collect();
    Unenforced { why, limits }
}

#[test]
fn limits_are_enforced_where_the_controllers_are() {
    use LimitedResource::{Cpu, Memory};
    let none = unenforced;
    let lacks = NotEnforced::NoController;
    let cases = [
        ("memory cpu pids", vec![], ["2147483648", "150000 100000"]),
        ("memory", vec![none(lacks, &[Cpu])], ["2147483648", ""]),
        ("cpu", vec![none(lacks, &[Memory])], ["", "150000 100000"]),
        ("pids", vec![none(lacks, &[Memory, Cpu])], ["", ""]),
    ];
    for (controllers, expected, written) in cases {
        let system = System::new(controllers).with_job();
        let mut cgroups = system.cgroups();
        assert_eq!(cgroups.prepare(JOB, &BOTH), expected, "{controllers}");
        let has_cgroup = cgroups.procs(JOB).is_some();
        assert_eq!(has_cgroup, controllers != "pids");
        let files = ["memory.max", "cpu.max"].map(|file| system.read(&System::of_job(file)));
        assert_eq!(files, written, "{controllers}");
    }
}

#[test]
fn without_limits_nothing_is_touched() {
    let system = System::new("memory cpu");
    let mut cgroups = system.cgroups();
    assert_eq!(cgroups.prepare(JOB, &ResourceLimits::default()), []);
    assert!(cgroups.procs(JOB).is_none() && cgroups.counted(JOB).is_none());
    assert_eq!(system.read(&format!("{HOME}/cgroup.subtree_control")), "");
    // Nor is anything missed.
    system.put("proc/self/cgroup", "");
    assert_eq!(
        system.cgroups().prepare(JOB, &ResourceLimits::default()),
        []
    );
}

#[test]
fn reasons_are_named() {
    let all: Vec<LimitedResource> = BOTH.wanted().into_iter().collect();
    let system = System::new("memory cpu");
    system.put("proc/self/cgroup", "4:memory:/a\n");
    let none = unenforced(NotEnforced::NoCgroups, &all);
    assert_eq!(system.cgroups().prepare(JOB, &BOTH), [none]);
    // This tree makes no files in a new cgroup.
    let system = System::new("memory cpu");
    let missing = unenforced(NotEnforced::Refused(2), &all);
    assert_eq!(system.cgroups().prepare(JOB, &BOTH), [missing]);
    for (why, expected) in [
        (NoCgroup::NotPermitted, NotEnforced::NotPermitted),
        (NoCgroup::Shared, NotEnforced::Shared),
    ] {
        assert_eq!(reason(why), expected);
    }
}

#[test]
fn a_rank_killed_for_memory_is_distinguished_from_others() {
    let killed = ExitStatus::Signaled {
        signal: Signal::KILL,
        core_dumped: false,
    };
    let limit = 2 << 30;
    let memory = ResourceLimits {
        milli_cpus: None,
        ..BOTH
    };
    let cpu = ResourceLimits {
        memory: None,
        ..BOTH
    };
    let (none, some) = ("oom 1\noom_kill 0\n", "oom 1\noom_kill 2\n");
    let of_node = "oom 0\noom_kill 2\n";
    for (limits, events, status, expected) in [
        (memory, some, killed, ExitStatus::OutOfMemory { limit }),
        (memory, none, killed, killed),
        // The node, or a cgroup above, had no memory left.
        (memory, of_node, killed, killed),
        (memory, some, ExitStatus::Exited(1), ExitStatus::Exited(1)),
        // What has killed it is no limit of ours.
        (cpu, some, killed, killed),
    ] {
        let system = System::new("memory cpu").with_job();
        let mut cgroups = system.cgroups();
        assert_eq!(cgroups.prepare(JOB, &limits), []);
        system.put(&System::of_job("memory.events"), events);
        assert_eq!(cgroups.explain(JOB, status), expected);
        assert_eq!(cgroups.explain(JobId(4), killed), killed);
    }
}

#[test]
fn the_owner_of_a_cgroup_is_known_by_its_name() {
    let owner = |pid, start| Some((Pid::from_raw(pid), start));
    for (name, expected, leaf) in [
        ("rally-17.4711", owner(17, 4711), true),
        ("rally-17.4711.unrecorded", owner(17, 4711), true),
        ("rally-17.4711-3.1", owner(17, 4711), false),
        ("rally-17", None, false),
        ("rally-x.y", None, false),
        ("session-3.scope", None, false),
    ] {
        assert_eq!((owner_of(name), is_leaf(name)), (expected, leaf), "{name}");
    }
}

fn sleeper() -> Pid {
    let argv = [c"sleep".to_owned(), c"1000".to_owned()];
    let spec = SpawnSpec::new(c"/bin/sleep", &argv, &[]);
    Spawner::new().unwrap().spawn(&spec).unwrap()
}

/// A process that a rank starts while others are moved is ours too.
#[test]
fn descendants_are_ours_also_those_that_are_started_later() {
    let is_ours = are_ours();
    let child = sleeper();
    assert!(is_ours(child));
    assert!(!is_ours(Pid::from_raw(1)));
    os::kill(child, Signal::KILL).unwrap();
    while os::reap().is_none() {
        os::sleep(Duration::from_millis(1));
    }
    assert!(is_ours(child), "it has ended");
}

#[test]
fn a_zombie_owns_nothing() {
    let us = os::current_pid();
    let start = os::start_time(us).unwrap();
    assert!(!is_gone((us, start)) && is_gone((us, start + 1)));
    let child = sleeper();
    let start = os::start_time(child).unwrap();
    assert!(!is_gone((child, start)));
    os::kill(child, Signal::KILL).unwrap();
    let deadline = os::Clock::now() + Duration::from_secs(60);
    while !is_gone((child, start)) {
        assert!(os::Clock::now() < deadline, "it does not end");
        os::sleep(Duration::from_millis(1));
    }
    // Nobody has reaped it.
    assert_eq!(os::start_time(child), Some(start));
    assert!(os::reap().is_some());
}

#[test]
fn cgroups_of_the_jobs_of_a_dead_process_are_removed() {
    let system = System::new("memory cpu");
    let names = ["rally-17.4711-3.1", "rally-17.4711", "rally-17.47112-3.1"];
    for name in names {
        fs::create_dir(system.0.path().join(HOME).join(name)).unwrap();
    }
    assert!(remove_of(system.0.path(), OWNER));
    // The leaf may have the process that cleans up.
    let left = names.map(|name| system.0.path().join(HOME).join(name).exists());
    assert_eq!(left, [false, true, true]);
    system.put(&System::of_job("busy"), "");
    assert!(!remove_of(system.0.path(), OWNER));
}

#[test]
fn empty_cgroups_of_processes_that_are_gone_are_removed_before_others_are_made() {
    let system = System::new("memory cpu").with_job();
    let us = os::current_pid();
    let own = format!("rally-{us}.{}", os::start_time(us).unwrap());
    // A pid that no process can have.
    let gone = "rally-1073741824.1";
    for name in [gone, &own] {
        fs::create_dir(system.0.path().join(HOME).join(name)).unwrap();
    }
    assert_eq!(system.cgroups().prepare(JOB, &BOTH), []);
    let is_left = |name: &str| system.0.path().join(HOME).join(name).exists();
    assert!(is_left(&own) && !is_left(gone));
}
