//! Messages about limits of memory and CPU time.

use base::HostList;

use super::{
    Message, kind as k,
    preload::size,
    words::{brief, errno_text, plain},
};
use crate::{
    proto::{NotEnforced, Unenforced},
    spec::LimitedResource,
};

/// Adds why the kernel has killed ranks.
pub(super) fn out_of_memory(message: Message, limit: u64) -> Message {
    let most = size(limit);
    message
        .fact(
            "reason",
            format!("the ranks of the job on their node needed more than `--memory-limit`: {most}"),
        )
        .with_help("raise the limit, or start fewer ranks on a node; for a job of a machine, `rally queue JOB` shows the peak")
}

/// Returns the message about limits that some nodes do not enforce.
pub(super) fn not_enforced(hosts: &HostList, unenforced: &Unenforced) -> Message {
    let (has_memory, has_cpu) = (
        unenforced.limits.contains(&LimitedResource::Memory),
        unenforced.limits.contains(&LimitedResource::Cpu),
    );
    let what = match (has_memory, has_cpu) {
        (true, true) => "`--memory-limit` and `--cpu-limit` are",
        (true, false) => "`--memory-limit` is",
        _ => "`--cpu-limit` is",
    };
    let hosts = brief(&plain(&hosts.to_string()));
    let reason = match unenforced.why {
        NotEnforced::NoCgroups => "no cgroup of version 2 is visible there".to_owned(),
        NotEnforced::NotPermitted => {
            "we may not make cgroups there: the one of the daemon is not delegated to us".to_owned()
        }
        NotEnforced::NoController => format!(
            "the cgroup of the daemon does not have the {}",
            match (has_memory, has_cpu) {
                (true, true) => "controllers `memory` and `cpu`",
                (true, false) => "controller `memory`",
                _ => "controller `cpu`",
            }
        ),
        NotEnforced::Shared => {
            "other processes are in the cgroup of the daemon, such as a shell".to_owned()
        }
        NotEnforced::Refused(errno) => errno_text(errno),
    };
    let help = match unenforced.why {
        NotEnforced::NoCgroups => {
            "mount `cgroup2` where it is usual (`/sys/fs/cgroup`), also in a container; systemd does so with `systemd.unified_cgroup_hierarchy=1`"
        }
        NotEnforced::NotPermitted | NotEnforced::Shared => DELEGATE,
        NotEnforced::NoController => {
            "`rally help job/not-limited` shows how an administrator gives all users the controllers"
        }
        NotEnforced::Refused(_) => "`rally help job/not-limited` shows what limits need",
    };
    Message::new(&k::NOT_LIMITED, format!("{what} not enforced on `{hosts}`"))
        .fact("reason", reason)
        .fact("effect", "the job runs, and may use more there")
        .with_help(help)
}

const DELEGATE: &str = "start rally in a cgroup of its own: `systemd-run --user --scope -p Delegate=yes rally ...`; `rally help job/not-limited` has more";
