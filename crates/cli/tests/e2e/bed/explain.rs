//! The map of a job before it starts, with the processors of real hosts.

use super::{expect_no_daemon, host::Host};
use crate::{
    binding::cpus,
    harness::{Finished, Sandbox},
};

fn explain(sandbox: &Sandbox, options: &[&str]) -> Finished {
    let mut command = sandbox.rally(&["run", "--explain", "--map-by", "slot", "--wdir", "/"]);
    command.args(options);
    let ended = sandbox.run(command.args(["--", "touch", "/tmp/started"]));
    expect_no_daemon();
    ended
}

#[test]
fn an_explanation_has_the_processors_of_the_hosts() {
    let sandbox = Sandbox::new();
    let mut second = Host::new(2);
    let cpu = cpus().0.first().unwrap();
    second.set_login_script(&format!("exec taskset -c {cpu} /bin/sh \"$@\""));
    let list = sandbox.file("hosts", "n1\nn2\n");
    for options in [["--host", "n1,n2"], ["--hostfile", &list]] {
        let ended = explain(&sandbox, &options).expect_code(0);
        let map = ended.out();
        let line = |node: &str| map.lines().find(|line| line.starts_with(node));
        let (first, second) = (line("n1: ").unwrap(), line("n2: ").unwrap());
        assert!(first.contains(&format!(" {} PU", cpus().0.len())), "{map}");
        assert!(second.contains(" 1 PU)"), "{map}");
    }
    assert_eq!(second.run("ls /tmp | grep started || true"), "");
}

#[test]
fn a_host_that_cannot_be_reached_is_named() {
    let sandbox = Sandbox::new();
    let ended = explain(&sandbox, &["--host", "n1,nowhere"]).expect_code(123);
    let ended = ended.expect_err(&["cannot start the daemon on `nowhere`", "1 other node"]);
    assert_eq!(ended.out(), "");
}
