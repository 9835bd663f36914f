//! MPIR of launchers over real hosts, as `rally mpir-check` sees it.

use super::host::{command_on, over};
use crate::{
    harness::{Finished, Sandbox, rally},
    mpir_check::{verdicts, with},
};

/// Checks srun on the node of its ranks.
fn srun() -> Finished {
    let sandbox = Sandbox::new();
    let options = "--message-format json --hold 200ms --run 2s --limit 30s";
    let script = format!(
        "exec {} mpir-check {options} -- srun -N1 -n2 -w n1 --overcommit sleep 1000",
        rally().display()
    );
    sandbox.run(&mut command_on(1, &script))
}

/// What users of Slurm find: see the comparison in the documentation.
#[test]
fn srun_holds_its_ranks_at_their_first_instruction() {
    let checked = srun().expect_code(1);
    let all = verdicts(&checked);
    assert_eq!(with(&all, "wrong"), ["row-type", "strings"], "{checked:?}");
    let absent = [
        "aborted",
        "again",
        "arguments",
        "colocated",
        "daemons",
        "fifo",
        "fifo-again",
    ];
    assert_eq!(with(&all, "not-applicable"), absent, "{checked:?}");
    assert_eq!(with(&all, "not-checked"), [""; 0], "{checked:?}");
}

/// Ranks on other nodes are not looked at; what the launcher says about them is.
#[test]
fn our_launcher_is_right_about_other_nodes() {
    let sandbox = Sandbox::new();
    let launcher = over(&sandbox, "n1,n2", &["-n", "4", "sleep", "1"]);
    let mut command = sandbox.rally(&["mpir-check", "--message-format", "json", "--run", "20s"]);
    command.args(["--hold", "100ms", "--ranks", "4", "--"]);
    command
        .arg(launcher.get_program())
        .args(launcher.get_args());
    let checked = sandbox.run(&mut command).expect_code(0);
    let all = verdicts(&checked);
    assert_eq!(with(&all, "wrong"), [""; 0], "{checked:?}");
    let unseen = with(&all, "not-checked");
    assert!(
        ["held", "processes", "released"]
            .iter()
            .all(|id| unseen.contains(id)),
        "{unseen:?}"
    );
}
