//! The topology that ranks are sent, so that not each of them has to find it out, as hwloc's own program reads it.

use crate::{
    harness::{Sandbox, testdata},
    pmix,
};

/// What `lstopo` says of all objects of a kind, with their CPUs and the system's numbers; sizes, which we do not send, are
/// left out.
fn objects(sandbox: &Sandbox, kind: &str, file: Option<&str>) -> Vec<String> {
    let mut command = sandbox.command("lstopo-no-graphics");
    command.args(["--of", "console", "--no-io", "-c", "-p", "--only", kind]);
    if let Some(file) = file {
        command.args(["-i", file]);
    }
    let run = sandbox.run(&mut command).expect_code(0);
    run.out()
        .lines()
        .map(|line| match (line.find(" ("), line.find(") ")) {
            (Some(from), Some(to)) if from < to => format!("{}{}", &line[..from], &line[to + 1..]),
            _ => line.to_owned(),
        })
        .collect()
}

#[test]
fn hwloc_finds_in_it_what_it_finds_by_itself() {
    let sandbox = Sandbox::new();
    let program = pmix::compiled_from(&testdata("pmix/topology.c"));
    let run = sandbox
        .run_rally(&["run", "-n", "1", program.to_str().unwrap()])
        .expect_code(0);
    let file = sandbox.file("sent.xml", run.out());
    for kind in ["core", "pu", "l1", "l2", "l3", "numanode", "package"] {
        let sent = objects(&sandbox, kind, Some(&file));
        assert_eq!(sent, objects(&sandbox, kind, None), "{kind}");
        assert!(!sent.is_empty() || kind.starts_with('l'), "no {kind}");
    }
}
