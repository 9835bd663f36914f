//! The topology that ranks receive, so that not every rank has to discover it, compared with hwloc's own program.

use crate::{
    harness::{Sandbox, testdata},
    pmix,
};

/// Returns what `lstopo` prints about all objects of a kind, with their CPUs and OS indexes. Sizes, which we do not send,
/// are omitted.
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
