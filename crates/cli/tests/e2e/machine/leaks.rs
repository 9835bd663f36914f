//! What a machine keeps of jobs that are over: nothing that is counted here.

use std::path::Path;

use super::*;

/// What the kernel and the file system have of a machine.
#[derive(Debug)]
struct Kept {
    descriptors: usize,
    threads: usize,
    processes: usize,
    /// Files and directories below the run-time directory, the temporary one, and the state directory.
    files: usize,
    shared_memory: usize,
}

impl Kept {
    fn is_within(&self, before: &Self) -> bool {
        self.descriptors <= before.descriptors
            && self.threads <= before.threads
            && self.processes <= before.processes
            && self.files <= before.files
            && self.shared_memory <= before.shared_memory
    }
}

fn entries(directory: &Path) -> usize {
    let Ok(found) = fs::read_dir(directory) else {
        return 0;
    };
    let below = found.flatten().map(|entry| {
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        1 + if is_directory {
            entries(&entry.path())
        } else {
            0
        }
    });
    below.sum()
}

impl Machine<'_> {
    fn kept(&self) -> Kept {
        let of_controller = |what: &str| {
            let directory = format!("/proc/{}/{what}", self.controller());
            fs::read_dir(directory).unwrap().count()
        };
        let work = self.0.work();
        let directories = [
            work.join("../run"),
            work.join("../tmp"),
            work.join(".local/state"),
        ];
        Kept {
            descriptors: of_controller("fd"),
            threads: of_controller("task"),
            processes: self.0.alive().len(),
            files: directories.iter().map(|one| entries(one)).sum(),
            // Other tests run beside this one.
            shared_memory: fs::read_to_string(format!("/proc/{}/maps", self.controller()))
                .unwrap()
                .lines()
                .filter(|line| line.contains("/dev/shm") || line.contains("memfd"))
                .count(),
        }
    }

    fn tasks(&self, count: u32) {
        let indexes = format!("1-{count}");
        let array = ["--array", &indexes, "--output-to", "out", "-n", "1", "true"];
        let job = self.submit(&array);
        self.run(&["wait", &job]).expect_code(0);
    }

    /// Waits until no more is kept than before: descriptors of the last jobs are closed a moment later, also those of the jobs before the
    /// first look.
    fn expect_kept(&self, before: &Kept) {
        let no_more = eventually(DEADLINE, || self.kept().is_within(before).then_some(()));
        assert!(
            no_more.is_some(),
            "before: {before:?}, now: {:?}",
            self.kept()
        );
    }
}

/// Tasks without RALLY_LEAK_TASKS.
const TASKS: u32 = 2000;
/// Tasks of one array: its `rally wait` has to end within the deadline of a command.
const TASKS_AT_ONCE: u32 = 1000;

/// RALLY_LEAK_TASKS sets how many tasks run.
#[test]
fn nothing_is_left_of_thousands_of_jobs() {
    let tasks = std::env::var("RALLY_LEAK_TASKS");
    let tasks = tasks.map_or(TASKS, |tasks| tasks.parse().expect("a number"));
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &["--host", "localhost:4"]);
    let front = ["run", "-q", "--on-machine", "main", "-n", "1", "true"];
    machine.tasks(100);
    machine.run(&front).expect_code(0);
    let before = machine.kept();
    let mut left = tasks;
    while left > 0 {
        let some = left.min(TASKS_AT_ONCE);
        machine.tasks(some);
        left -= some;
    }
    for _ in 0..20 {
        machine.run(&front).expect_code(0);
    }
    machine.expect_kept(&before);
    machine.down();
}

#[test]
fn nothing_is_left_of_nodes_that_came_and_went() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &["--bootstrap", "fork", "--nodes", "2"]);
    let comes_and_goes = || {
        machine.run(&["nodes", "--add", "extra:2"]).expect_code(0);
        let args = ["--host", "extra", "-n", "1", "--output-to", "out", "true"];
        let job = machine.submit(&args);
        machine.run(&["wait", &job]).expect_code(0);
        machine.run(&["nodes", "--drop", "extra"]).expect_code(0);
    };
    comes_and_goes();
    let before = machine.kept();
    for _ in 0..4 {
        comes_and_goes();
    }
    machine.expect_kept(&before);
    machine.down();
}
