//! Jobs in their own pid namespaces, whose pids mean other processes outside.

use crate::harness::{Finished, Sandbox, dbgr, rally};

/// Returns the options of `unshare` for a pid namespace. Other users than root also need a user namespace.
fn namespaces() -> &'static str {
    if nix::unistd::geteuid().is_root() {
        "-pfm"
    } else {
        "-rpfm"
    }
}

/// Runs a script in a pid namespace, in which no other process takes pids. `$1` is `rally`, `$2` is `dbgr`.
fn run_inside(sandbox: &Sandbox, script: &str) -> Finished {
    let script = sandbox.file("inside.sh", script);
    let mut command = sandbox.command("unshare");
    command.args([
        namespaces(),
        "--mount-proc",
        "--kill-child",
        "bash",
        &script,
    ]);
    command.arg(rally()).arg(dbgr());
    sandbox.run(&mut command)
}

/// The rank is `sleep 601`. Its pid inside is the pid that `sleep 602` has outside.
const JOB_AND_STRANGER: &str = r#"
    until_there() { for _ in $(seq 600); do pgrep -fx "$1" && return; sleep 0.05; done; exit 99; }
    inner=$(cat <<'END'
echo 99 >/proc/sys/kernel/ns_last_pid
exec "$0" run -n 1 sleep 601
END
)
    unshare -pfm --mount-proc --kill-child bash -c "$inner" "$1" &
    rank=$(until_there 'sleep 601')
    number=$(awk '/^NSpid:/ { print $3 }' /proc/$rank/status)
    echo $((number - 1)) >/proc/sys/kernel/ns_last_pid
    sleep 602 &
    [ $! = $number ] || { echo "the stranger has number $!, and not $number"; exit 98; }
    launcher=$(pgrep -P $(jobs -p %1))
"#;

#[test]
fn no_stranger_is_taken_for_a_rank_of_a_container() {
    let sandbox = Sandbox::new();
    let script = format!(
        "{JOB_AND_STRANGER}
        echo rank $rank
        $2 stacks --explain $launcher
        $2 stacks --json $launcher
        kill $launcher; wait %1; kill %2; exit 0"
    );
    let finished = run_inside(&sandbox, &script).expect_code(0);
    let out = finished.out();
    let rank = out
        .lines()
        .find_map(|line| line.strip_prefix("rank "))
        .unwrap();
    assert!(
        out.contains(&format!("0: process {rank}, ")),
        "{finished:?}"
    );
    let json = out.lines().find(|line| line.starts_with('{')).unwrap();
    let json: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(json["placement"][0]["pid"].to_string(), rank);
    assert_eq!(json["samples"][0]["stacks"].as_array().unwrap().len(), 1);
    assert!(
        out.contains("uses the process numbers of its container"),
        "{finished:?}"
    );
}

#[test]
fn numbers_of_a_foreign_proc_are_refused() {
    let sandbox = Sandbox::new();
    let finished = run_inside(&sandbox, "unshare -pf $2 stacks 1; echo $?").expect_code(0);
    assert!(
        finished
            .err()
            .contains("error: `/proc` is that of another pid namespace"),
        "{finished:?}"
    );
    assert_eq!(finished.out(), "123\n");
}
