//! PMIx tools that start `rally`, and control its job (`docs/formats/indirect-launch.md`), linked with the ordinary libraries.

use std::process::Command;

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    harness::{DEADLINE, Finished, Running, Stream, eventually, rally},
    machine::Machine,
    pmix::Library,
    tools::{LIBRARIES, Site},
};

/// Returns a tool that starts `rally run -n 2` with this program.
fn tool(site: &Site, what: &str, program: &[&str]) -> Command {
    let rally = rally();
    let rally = rally.to_str().unwrap();
    let mut launcher = vec![what, rally, "run", "-n", "2", "--timeout", "60"];
    launcher.extend(["--kill-on-bad-exit=no", "--"]);
    site.tool(&[&launcher[..], program].concat())
}

fn controlled(site: &Site, what: &str, program: &[&str]) -> Finished {
    site.sandbox.run(&mut tool(site, what, program))
}

fn controls(site: &Site, what: &str, program: &[&str]) -> Running {
    site.sandbox.start(&mut tool(site, what, program))
}

#[test]
fn a_debugger_starts_the_launcher_and_its_ranks_wait() {
    for library in LIBRARIES {
        let hello = crate::pmix::program("init_once");
        for stop in ["init", "exec"] {
            let site = Site::of("indirect", library);
            let tool = controlled(&site, stop, &[hello.to_str().unwrap()]).expect_code(0);
            for part in [
                "the launcher is connected\n",
                "the job of rally is launched\n",
                "it waits for the debugger\n",
                "it has ended with 0\n",
                "the launcher is gone; ready 1, started 1, launched 1, ended 1\n",
            ] {
                assert!(tool.out().contains(part), "{part:?}: {tool:?}");
            }
            site.sandbox.expect_clean();
        }
    }
}

#[test]
fn output_goes_where_the_tool_wants_it() {
    for library in LIBRARIES {
        for what in ["print", "forward"] {
            let site = Site::of("indirect", library);
            let script = "echo rank $PMIX_RANK; exit 3";
            let tool = controlled(&site, what, &["sh", "-c", script]).expect_code(0);
            let out = tool.out();
            assert_eq!(out.matches("rank 0\n").count(), 1, "{tool:?}");
            assert_eq!(out.matches("rank 1\n").count(), 1, "{tool:?}");
            assert!(out.contains("it has ended with 3\n"), "{tool:?}");
            site.sandbox.expect_clean();
        }
    }
}

/// The launcher prints when the job starts and ends, if the tool wants that.
#[test]
fn the_start_and_the_end_are_logged() {
    for library in LIBRARIES {
        for what in ["print", "log"] {
            let site = Site::of("indirect", library);
            let tool = controlled(&site, what, &["sh", "-c", "exit 3"]).expect_code(0);
            let text = tool.out() + &tool.err();
            let lines = text.lines().filter(|line| line.contains("note: job 1 "));
            let lines: Vec<&str> = lines.collect();
            let [started, ended] = &lines[..] else {
                assert!(what == "print" && lines.is_empty(), "{tool:?}");
                continue;
            };
            assert!(started.ends_with(" UTC with 2 ranks"), "{tool:?}");
            assert!(
                ended.contains(" UTC with exit code 3: its rank "),
                "{tool:?}"
            );
            site.sandbox.expect_clean();
        }
    }
}

/// The job does not begin without the tool, and the launcher does not wait for it for ever.
#[test]
fn a_tool_that_leaves_before_the_release_leaves_nothing_behind() {
    for library in LIBRARIES {
        let site = Site::of("indirect", library);
        controlled(&site, "leave", &["touch", "begun"]).expect_code(7);
        site.sandbox.expect_no_process();
        assert!(!site.sandbox.work().join("begun").exists());
        site.sandbox.expect_clean();
    }
}

#[test]
fn the_death_of_the_tool_ends_the_job() {
    for library in LIBRARIES {
        let site = Site::of("indirect", library);
        let tool = controls(&site, "die", &["sh", "-c", "echo begins; sleep 1000"]);
        tool.expect_times(Stream::Stdout, "begins", 2);
        kill(Pid::from_raw(tool.pid), Signal::SIGKILL).unwrap();
        let _ = tool.end();
        site.sandbox.expect_clean();
    }
}

#[test]
fn a_job_that_is_to_go_on_outlives_the_tool() {
    let site = Site::of("indirect", Library::Wheel);
    let script = "echo begins; until [ -e go ]; do sleep 0.02; done; echo ends > ended.$PMIX_RANK";
    let tool = controls(&site, "nohup", &["sh", "-c", script]);
    tool.expect_times(Stream::Stdout, "begins", 2);
    kill(Pid::from_raw(tool.pid), Signal::SIGKILL).unwrap();
    let _ = tool.end();
    site.sandbox.file("go", "");
    let ended = site.sandbox.work().join("ended.1");
    assert!(eventually(DEADLINE, || ended.exists().then_some(())).is_some());
    site.sandbox.expect_no_process();
}

#[test]
fn a_directive_that_is_required_and_unknown_is_refused() {
    let site = Site::of("indirect", Library::Debian);
    let tool = controlled(&site, "require", &["touch", "begun"]);
    let out = tool.out();
    let end = "the launcher is gone; ready 0, started 0, launched 0, ended 0\n";
    assert!(out.contains(end), "{tool:?}");
    let tool = tool.expect_err(&["error: cannot carry out a directive of the tool that started the launcher: `pmix.nobody.knows`"]);
    assert!(!site.sandbox.work().join("begun").exists(), "{tool:?}");
    site.sandbox.expect_clean();
}

#[test]
fn a_launcher_that_pauses_waits_for_a_tool() {
    for name in ["PMIX_LAUNCHER_RENDEZVOUS_FILE", "PMIX_LAUNCHER_RNDZ_FILE"] {
        let site = Site::of("indirect", Library::Wheel);
        let mut command = site.sandbox.rally(&["run", "-n", "2", "echo", "runs"]);
        command
            .env("PMIX_LAUNCHER_PAUSE_FOR_TOOL", "1")
            .env(name, "address");
        let job = site.sandbox.start(&mut command);
        job.expect(Stream::Stderr, "the job waits for a tool");
        assert_eq!(job.so_far(Stream::Stdout), "");
        let mut tool = site.tool(&["release", "address"]);
        site.sandbox.run(&mut tool).expect_code(0);
        job.end().expect_code(0).expect_out("runs\nruns\n");
        assert!(!site.sandbox.work().join("address").exists());
        site.sandbox.expect_clean();
    }
}

#[test]
fn a_pause_ends_with_a_signal() {
    let site = Site::of("indirect", Library::Wheel);
    let mut command = site.sandbox.rally(&["run", "-n", "2", "echo", "runs"]);
    command.env("PMIX_LAUNCHER_PAUSE_FOR_TOOL", "1");
    let job = site.sandbox.start(&mut command);
    job.expect(Stream::Stderr, "the job waits for a tool");
    job.signal(Signal::SIGINT);
    job.end().expect_code(130).expect_out("");
    site.sandbox.expect_clean();
}

#[test]
fn a_tool_that_cannot_be_served_is_reported() {
    let site = Site::of("indirect", Library::Wheel);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let refused = listener.local_addr().unwrap();
    let closes = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let closing = closes.local_addr().unwrap();
    drop(listener);
    let closer = std::thread::spawn(move || drop(closes.accept().unwrap()));
    for (address, why) in [
        (
            "nonsense".to_owned(),
            "it is not a name, `;` and an address",
        ),
        (
            "vm:1.0;tcp4://192.0.2.1:80".to_owned(),
            "is not a loopback address",
        ),
        (
            format!("vm:1.0;tcp4://{refused}"),
            "cannot connect to 127.0.0.1:",
        ),
        (
            format!("vm:1.0;tcp4://{closing}"),
            "it has closed the connection",
        ),
    ] {
        let mut command = site.sandbox.rally(&["run", "touch", "begun"]);
        command.env("PMIX_LAUNCHER_RNDZ_URI", address);
        let said = "cannot serve the tool that has started `rally`: ";
        site.sandbox
            .run(&mut command)
            .expect_code(123)
            .expect_err(&[said, why]);
    }
    closer.join().unwrap();
    assert!(!site.sandbox.work().join("begun").exists());
    site.sandbox.expect_clean();
}

/// The variables of the tool are for the launcher: ranks and what they start connect to their own server.
#[test]
fn ranks_do_not_see_the_variables_of_the_tool() {
    let site = Site::of("indirect", Library::Wheel);
    let script =
        "echo $(env | grep -c -e PMIX_LAUNCHER -e PMIX_KEEPALIVE) variables of $PMIX_NAMESPACE";
    let tool = controlled(&site, "print", &["sh", "-c", script]).expect_code(0);
    let ours = tool.out().matches("0 variables of rally-").count();
    assert_eq!(ours, 2, "{tool:?}");
}

#[test]
fn a_machine_can_be_the_system_server() {
    for library in LIBRARIES {
        let site = Site::of("indirect", library);
        let connects = || site.sandbox.run(&mut site.tool(&["system", "mine"]));
        let machine = Machine::up(&site.sandbox, &["--host", "localhost:1"]);
        connects().expect_code(3).expect_out("no system server\n");
        machine.out(&["down"]);
        let machine = Machine::up(&site.sandbox, &["--host", "localhost:1", "--system-server"]);
        connects().expect_code(0).expect_out("connected as mine\n");
        // There is one of them.
        let mut another = site
            .sandbox
            .rally(&["up", "--name", "two", "--system-server"]);
        site.sandbox
            .run(&mut another)
            .expect_err(&["names a server that runs"]);
        machine.out(&["down"]);
        connects().expect_code(3);
        site.sandbox.expect_clean();
    }
}
