//! PMIx tools on a host that is no node of the job, as on a login node of a cluster.

use super::{deaths::child_of, expect_no_daemon, host::over};
use crate::{
    harness::{DEADLINE, Running, Stream, eventually, rally},
    tools::{LIBRARIES, Site},
};

/// Goes on until a signal. The files of this host are not on the nodes.
const WAITS: &str = "trap 'echo rank $PMIX_RANK ends; exit 3' USR1; echo rank $PMIX_RANK starts; while :; do sleep 0.02; done";

#[test]
fn a_tool_attaches_from_a_login_node() {
    for library in LIBRARIES {
        let site = Site::new(library);
        let options = ["-n", "2", "--kill-on-bad-exit=no", "--", "sh", "-c", WAITS];
        let job = site
            .sandbox
            .start(&mut over(&site.sandbox, "n1,n2", &options));
        for rank in ["rank 0 starts", "rank 1 starts"] {
            job.expect(Stream::Stdout, rank);
        }
        let orders = ["table", "pull", "signal", "10", "end"];
        let tool = site.attach(job.pid, &orders).expect_code(0);
        for part in [
            "rank 0 on n1 ",
            "rank 1 on n2 ",
            "stdout of 0: rank 0 ends\n",
            "stdout of 1: rank 1 ends\n",
            "job ended with 3\n",
        ] {
            assert!(tool.out().contains(part), "{part:?}: {tool:?}");
        }
        job.end().expect_code(3);
        site.sandbox.expect_clean();
    }
}

/// The stop, its event and the release reach ranks on other nodes.
#[test]
fn a_tool_releases_ranks_from_a_login_node() {
    for library in LIBRARIES {
        let site = Site::new(library);
        let program = crate::pmix::program("init_once");
        let options = ["-n", "4", "--stop-in-init", "--", program.to_str().unwrap()];
        let job = site
            .sandbox
            .start(&mut over(&site.sandbox, "n1,n2", &options));
        let tool = || {
            let tool = site.attach(job.pid, &["ready", "release"]);
            tool.out().contains("all wait\n").then_some(())
        };
        assert!(eventually(DEADLINE, tool).is_some());
        job.end().expect_code(0);
        site.sandbox.expect_clean();
    }
}

#[test]
fn a_tool_starts_the_launcher_on_a_login_node() {
    for library in LIBRARIES {
        let site = Site::of("indirect", library);
        let rally = rally();
        let program = crate::pmix::program("init_once");
        let launcher = ["init", rally.to_str().unwrap(), "run", "--host", "n1,n2"];
        let options = ["--wdir", "/", "--map-by", "node", "-n", "2", "--"];
        let words = [&launcher[..], &options, &[program.to_str().unwrap()]].concat();
        let tool = site.sandbox.run(&mut site.tool(&words)).expect_code(0);
        for part in ["it waits for the debugger\n", "it has ended with 0\n"] {
            assert!(tool.out().contains(part), "{part:?}: {tool:?}");
        }
        site.sandbox.expect_clean();
    }
}

/// Starts a job on two nodes of Slurm, in an allocation of its own, and returns it with the pid of `rally`.
fn in_slurm(site: &Site, program: &[&str]) -> (Running, i32) {
    let mut command = site.sandbox.command("salloc");
    command.args(["-Q", "-N2", "-n2"]).arg(rally());
    command.args(["run", "-n", "2", "--timeout", "60", "--wdir", "/"]);
    command.args(["--kill-on-bad-exit=no", "--"]).args(program);
    command.env("SLURM_CONF", std::env::var_os("SLURM_CONF").unwrap());
    let job = site.sandbox.start(&mut command);
    for rank in ["rank 0 starts", "rank 1 starts"] {
        job.expect(Stream::Stdout, rank);
    }
    let launcher = child_of(job.pid);
    (job, launcher)
}

/// A debugger's daemons on the nodes of Slurm do not end with their target. Neither the job nor the allocation waits for them.
#[test]
fn a_job_of_slurm_ends_with_daemons_attached() {
    for library in LIBRARIES {
        let site = Site::new(library);
        let (job, launcher) = in_slurm(&site, &["sh", "-c", WAITS]);
        let orders = ["daemons", "signal", "10", "end"];
        let tool = site.attach(launcher, &orders).expect_code(0);
        for part in ["daemons run\n", "job ended with 3\n"] {
            assert!(tool.out().contains(part), "{part:?}: {tool:?}");
        }
        job.end().expect_code(3);
        site.sandbox.expect_clean();
        expect_no_daemon();
    }
}

/// The same when the tool crashes, and the daemons are what is left of it.
#[test]
fn a_job_of_slurm_ends_when_its_debugger_has_crashed() {
    let site = Site::new(LIBRARIES[0]);
    let (job, launcher) = in_slurm(&site, &["sh", "-c", WAITS]);
    let tool = site.attach(launcher, &["daemons", "crash"]);
    assert!(tool.out().contains("daemons run\n"), "{tool:?}");
    site.attach(launcher, &["signal", "10"]).expect_code(0);
    job.end().expect_code(3);
    site.sandbox.expect_clean();
    expect_no_daemon();
}
