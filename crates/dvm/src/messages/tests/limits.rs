//! Messages about limits.

use super::*;
use crate::{
    proto::{NotEnforced, Unenforced},
    spec::LimitedResource,
};

#[test]
fn limits_that_are_not_enforced() {
    use LimitedResource::{Cpu, Memory};
    let cases = [
        (NotEnforced::NoCgroups, &[Memory, Cpu][..]),
        (NotEnforced::NotPermitted, &[Memory]),
        (NotEnforced::NoController, &[Cpu]),
        (NotEnforced::NoController, &[Memory]),
        (NotEnforced::NoController, &[Memory, Cpu]),
        (NotEnforced::Shared, &[Memory]),
        (NotEnforced::Refused(28), &[Cpu]),
    ];
    let text = cases.map(|(why, limits)| {
        let limits = limits.iter().copied().collect();
        let hosts = ["n01", "n02"].into_iter().collect();
        let unenforced = Unenforced { why, limits };
        let note = Note::NotLimited { hosts, unenforced };
        shown(&super::note(&note, &Job::small().scene()))
    });
    insta::assert_snapshot!(text.concat(), @"
    job/not-limited Warning: `--memory-limit` and `--cpu-limit` are not enforced on `n[01-02]`
      reason: no cgroup of version 2 is visible there
      effect: the job runs, and may use more there
      help: mount `cgroup2` where it is usual (`/sys/fs/cgroup`), also in a container; systemd does so with `systemd.unified_cgroup_hierarchy=1`
    job/not-limited Warning: `--memory-limit` is not enforced on `n[01-02]`
      reason: we may not make cgroups there: the one of the daemon is not delegated to us
      effect: the job runs, and may use more there
      help: start rally in a cgroup of its own: `systemd-run --user --scope -p Delegate=yes rally ...`; `rally help job/not-limited` has more
    job/not-limited Warning: `--cpu-limit` is not enforced on `n[01-02]`
      reason: the cgroup of the daemon does not have the controller `cpu`
      effect: the job runs, and may use more there
      help: `rally help job/not-limited` shows how an administrator gives all users the controllers
    job/not-limited Warning: `--memory-limit` is not enforced on `n[01-02]`
      reason: the cgroup of the daemon does not have the controller `memory`
      effect: the job runs, and may use more there
      help: `rally help job/not-limited` shows how an administrator gives all users the controllers
    job/not-limited Warning: `--memory-limit` and `--cpu-limit` are not enforced on `n[01-02]`
      reason: the cgroup of the daemon does not have the controllers `memory` and `cpu`
      effect: the job runs, and may use more there
      help: `rally help job/not-limited` shows how an administrator gives all users the controllers
    job/not-limited Warning: `--memory-limit` is not enforced on `n[01-02]`
      reason: other processes are in the cgroup of the daemon, such as a shell
      effect: the job runs, and may use more there
      help: start rally in a cgroup of its own: `systemd-run --user --scope -p Delegate=yes rally ...`; `rally help job/not-limited` has more
    job/not-limited Warning: `--cpu-limit` is not enforced on `n[01-02]`
      reason: no space left on device
      effect: the job runs, and may use more there
      help: `rally help job/not-limited` shows what limits need
    ");
}

#[test]
fn ranks_that_needed_too_much_memory() {
    let job = Job::small();
    let status = ExitStatus::OutOfMemory { limit: 2 << 30 };
    let failed =
        [set("0"), set("0-1")].map(|ranks| shown(&rank::failed(&ranks, status, &job.scene())));
    insta::assert_snapshot!(failed.concat(), @"
    job/rank-failed Error: rank 0 on `n1` was killed by the kernel: out of memory
      reason: the ranks of the job on their node needed more than `--memory-limit`: 2048 MiB
      help: raise the limit, or start fewer ranks on a node; for a job of a machine, `rally queue JOB` shows the peak
    job/rank-failed Error: ranks 0-1 on `n1` were killed by the kernel: out of memory
      reason: the ranks of the job on their node needed more than `--memory-limit`: 2048 MiB
      help: raise the limit, or start fewer ranks on a node; for a job of a machine, `rally queue JOB` shows the peak
    ");
    let cause = Cause::Failed {
        rank: Rank(3),
        status,
    };
    insta::assert_snapshot!(spawned_end(&cause), @"its rank 3 was killed by the kernel: out of memory");
    assert_eq!(status.code(), 137);
}
