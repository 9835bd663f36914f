//! Files of jobs that ranks spawn (`PMIX_PRELOAD_BIN`, `PMIX_PRELOAD_FILES`), with a program of libpmix.

use std::{fs, os::unix::fs::PermissionsExt as _};

use crate::{
    harness::{Finished, Sandbox, testdata},
    pmix,
};

/// Returns a sandbox with a program `bin/tool` that shows where it runs and what is beside it, and a file `in` of some
/// chunks.
fn prepared() -> Sandbox {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("bin")).unwrap();
    let show = "#!/bin/sh\necho $0 in $PWD: $(sha256sum <$RALLY_PRELOAD_DIR/in | cut -c 1-64)\n";
    sandbox.file("bin/tool", show);
    fs::set_permissions(sandbox.path("bin/tool"), fs::Permissions::from_mode(0o755)).unwrap();
    let bytes: Vec<u8> = (0..1_500_000_u32)
        .map(|number| (number / 7).to_le_bytes()[0])
        .collect();
    fs::write(sandbox.path("in"), bytes).unwrap();
    sandbox
}

/// Runs a rank that spawns, over so many nodes.
fn spawn(sandbox: &Sandbox, nodes: &str, arguments: &[&str]) -> Finished {
    let program = pmix::compiled_from(&testdata("pmix/preload.c"));
    let mut command = sandbox.rally(&["run", "--bootstrap", "fork", "--nodes", nodes, "-n", "1"]);
    command.args(["--radix", "1", "--"]).arg(program);
    sandbox.run(command.args(arguments))
}

fn sum(sandbox: &Sandbox) -> String {
    let sum = sandbox.run(&mut sandbox.shell("sha256sum <in | cut -c 1-64"));
    sum.expect_code(0).out().trim().to_owned()
}

#[test]
fn a_spawned_program_and_its_files_are_on_all_nodes() {
    let sandbox = prepared();
    let run = spawn(&sandbox, "3", &["bin/tool", "in", "3"]).expect_code(0);
    let (said, spawned): (Vec<String>, Vec<String>) = run
        .out()
        .lines()
        .map(str::to_owned)
        .partition(|line| line.starts_with("spawn: "));
    assert_eq!(said, ["spawn: 0"]);
    let mut directories = Vec::new();
    for line in &spawned {
        let (place, content) = line.split_once(": ").unwrap();
        let (program, directory) = place.split_once(" in ").unwrap();
        assert_eq!(program, format!("{directory}/bin/tool"));
        assert!(directory.contains("/rally-preload."), "{line}");
        assert_eq!(content, sum(&sandbox));
        directories.push(directory.to_owned());
    }
    directories.sort();
    directories.dedup();
    assert_eq!(directories.len(), 3, "{spawned:?}");
    assert_eq!(run.err(), "");
    sandbox.expect_clean();
}

/// Relative paths begin at the working directory of the spawned program, which finds it on the search path, too.
#[test]
fn a_spawned_program_keeps_its_directory_without_another_word() {
    let sandbox = prepared();
    let work = sandbox.work().display().to_string();
    let bin = sandbox.path("bin").display().to_string();
    for (program, files, directory, name) in [
        ("bin/tool", "in", work.as_str(), "/bin/tool"),
        ("tool", "../in", bin.as_str(), "/tool"),
    ] {
        let run = spawn(&sandbox, "2", &[program, files, "1", directory]).expect_code(0);
        let out = run.out();
        let line = out
            .lines()
            .find(|line| !line.starts_with("spawn: "))
            .unwrap();
        assert!(
            line.ends_with(&format!("{name} in {directory}: {}", sum(&sandbox))),
            "{line}"
        );
        assert!(line.contains("/rally-preload."), "{line}");
    }
    sandbox.expect_clean();
}

#[test]
fn what_cannot_be_copied_is_the_answer_to_the_spawn_and_a_message() {
    let sandbox = prepared();
    fs::create_dir(sandbox.path("directory")).unwrap();
    // PMIX_ERR_NOT_FOUND, PMIX_ERR_JOB_SYS_OP_FAILED and PMIX_ERR_JOB_EXE_NOT_FOUND.
    let cases = [
        ("bin/tool", "in,gone", "-46", "gone"),
        ("bin/tool", "directory", "-235", "directory"),
        ("bin/none", "in", "-190", "bin/none"),
        ("nowhere-at-all", "in", "-190", "nowhere-at-all"),
    ];
    for (program, files, status, path) in cases {
        let run = spawn(&sandbox, "2", &[program, files]).expect_code(0);
        let said = run.out();
        assert!(said.trim_end().ends_with(status), "{said}");
        run.expect_err(&["rank 0 of job 1 cannot spawn a job: cannot read", path]);
    }
    sandbox.expect_clean();
}
