//! Explains why a process may not be traced, and what the user can do.

/// Facts about us, the process and the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Situation {
    /// The pid.
    pub pid: i32,
    /// The user id of the process; `None` if `/proc` hides it.
    pub owner: Option<u32>,
    /// Our user id.
    pub user: u32,
    /// True if we have `CAP_SYS_PTRACE`, which allows us to trace every process.
    pub may_trace_all: bool,
    /// The content of `/proc/sys/kernel/yama/ptrace_scope`; `None` if the kernel has no Yama.
    pub ptrace_scope: Option<u8>,
    /// True if we are in a container.
    pub contained: bool,
    /// True if `/proc` is mounted with `hidepid`, which hides the processes of other users.
    pub hidden: bool,
    /// The pid of a process that traces it already; `None` if it has no tracer.
    pub tracer: Option<i32>,
    /// True if the kernel protects its memory from its own user (not dumpable): it was started with another user's privileges, or
    /// requested that.
    pub guarded: bool,
}

/// A reason and a remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// The reason, without a final full stop.
    pub why: String,
    /// What the user can do about it.
    pub help: String,
}

impl Situation {
    /// Returns the most likely reason, and what to do about it.
    #[must_use]
    pub fn advice(&self) -> Advice {
        let advice = |why: String, help: &str| Advice {
            why,
            help: help.to_owned(),
        };
        // Telling root to run `dbgr` as root does not help: name the capability that root lacks.
        let lacks_capability = self.user == 0 && !self.may_trace_all;
        let without_capability = |why: &str| {
            advice(
                format!("{why}, and root has no `CAP_SYS_PTRACE` here, as in most containers"),
                GIVE_CAPABILITY,
            )
        };
        if let Some(tracer) = self.tracer {
            return advice(
                format!("process {tracer} traces it already, and the kernel allows only one"),
                "detach that debugger (gdb: `detach`), or look at the stacks there",
            );
        }
        if self.owner.is_none() && self.hidden {
            if self.user == 0 {
                return without_capability(
                    "`/proc` is mounted with `hidepid`, which hides the processes of other users",
                );
            }
            return advice(
                "`/proc` is mounted with `hidepid`, which hides the processes of other users"
                    .into(),
                "run `dbgr` as the user of the process, or as root",
            );
        }
        if let Some(owner) = self.owner.filter(|owner| *owner != self.user)
            && !self.may_trace_all
        {
            if self.user == 0 {
                return without_capability(&format!("it belongs to user {owner}"));
            }
            return advice(
                format!("it belongs to user {owner}, and you are user {}", self.user),
                "run `dbgr` as that user, or as root",
            );
        }
        match self.ptrace_scope {
            Some(3) => {
                return advice(
                    "the kernel allows no process to trace another (`/proc/sys/kernel/yama/ptrace_scope` is 3)".into(),
                    "only a restart of the node with another value changes that",
                );
            }
            Some(scope @ (1 | 2)) if lacks_capability => {
                return without_capability(&format!(
                    "the kernel does not allow tracing of processes (`/proc/sys/kernel/yama/ptrace_scope` is {scope})"
                ));
            }
            Some(2) if !self.may_trace_all => {
                return advice(
                    "only root may trace a process here (`/proc/sys/kernel/yama/ptrace_scope` is 2)".into(),
                    "run `dbgr` as root, or have the value set to 0",
                );
            }
            Some(1) if !self.may_trace_all => {
                return advice(
                    "a process may be traced only by its ancestors (`/proc/sys/kernel/yama/ptrace_scope` is 1)"
                        .into(),
                    "run `dbgr` as root, or have the value set to 0: `sysctl kernel.yama.ptrace_scope=0`",
                );
            }
            _ => {}
        }
        if self.guarded && lacks_capability {
            return without_capability(
                "the kernel protects its memory: it was started with more privileges than others have, or asked for protection",
            );
        }
        if self.guarded && !self.may_trace_all {
            return advice(
                "the kernel protects its memory: it was started with more privileges than you have, or asked for protection".into(),
                "run `dbgr` as root",
            );
        }
        if self.contained {
            return advice(
                "the container does not allow it: its seccomp filter or its user namespace forbids it".into(),
                "start the container with `--cap-add=SYS_PTRACE --security-opt seccomp=unconfined`, or run `dbgr` on the host",
            );
        }
        if lacks_capability {
            return without_capability("the kernel does not allow it");
        }
        if self.user == 0 {
            return advice(
                "the kernel does not allow it even to root: the process belongs to a user namespace outside of ours, or a security module forbids it"
                    .into(),
                "run `dbgr` in the user namespace of the process; SELinux and AppArmor write their reasons to the system's log",
            );
        }
        advice(
            "the kernel does not allow it, and does not say why".into(),
            "run `dbgr` as root; a security module (SELinux, AppArmor) may have written the reason to the system's log",
        )
    }
}

/// Help for root without `CAP_SYS_PTRACE`.
const GIVE_CAPABILITY: &str =
    "start the container with `--cap-add=SYS_PTRACE`, or run `dbgr` as the user of the process";

#[cfg(test)]
mod tests {
    use super::*;

    fn why(change: impl FnOnce(&mut Situation)) -> String {
        let mut situation = Situation {
            pid: 7,
            owner: Some(1000),
            user: 1000,
            ..Situation::default()
        };
        change(&mut situation);
        let advice = situation.advice();
        format!("{}: {}", advice.why, advice.help)
    }

    #[test]
    fn root_is_not_sent_to_root() {
        let as_root = |change: fn(&mut Situation)| {
            let said = why(|situation| {
                situation.user = 0;
                situation.owner = Some(0);
                change(situation);
            });
            assert!(!said.contains("as root"), "{said}");
            said
        };
        insta::assert_snapshot!([
            as_root(|s| { s.owner = None; s.hidden = true; }),
            as_root(|s| s.owner = Some(1000)),
            as_root(|s| s.ptrace_scope = Some(1)),
            as_root(|s| s.ptrace_scope = Some(2)),
            as_root(|s| s.ptrace_scope = Some(3)),
            as_root(|s| s.guarded = true),
            as_root(|s| { s.contained = true; s.may_trace_all = true; }),
            as_root(|_| ()),
            as_root(|s| s.may_trace_all = true),
        ].join("\n"), @"
    `/proc` is mounted with `hidepid`, which hides the processes of other users, and root has no `CAP_SYS_PTRACE` here, as in most containers: start the container with `--cap-add=SYS_PTRACE`, or run `dbgr` as the user of the process
    it belongs to user 1000, and root has no `CAP_SYS_PTRACE` here, as in most containers: start the container with `--cap-add=SYS_PTRACE`, or run `dbgr` as the user of the process
    the kernel does not allow tracing of processes (`/proc/sys/kernel/yama/ptrace_scope` is 1), and root has no `CAP_SYS_PTRACE` here, as in most containers: start the container with `--cap-add=SYS_PTRACE`, or run `dbgr` as the user of the process
    the kernel does not allow tracing of processes (`/proc/sys/kernel/yama/ptrace_scope` is 2), and root has no `CAP_SYS_PTRACE` here, as in most containers: start the container with `--cap-add=SYS_PTRACE`, or run `dbgr` as the user of the process
    the kernel allows no process to trace another (`/proc/sys/kernel/yama/ptrace_scope` is 3): only a restart of the node with another value changes that
    the kernel protects its memory: it was started with more privileges than others have, or asked for protection, and root has no `CAP_SYS_PTRACE` here, as in most containers: start the container with `--cap-add=SYS_PTRACE`, or run `dbgr` as the user of the process
    the container does not allow it: its seccomp filter or its user namespace forbids it: start the container with `--cap-add=SYS_PTRACE --security-opt seccomp=unconfined`, or run `dbgr` on the host
    the kernel does not allow it, and root has no `CAP_SYS_PTRACE` here, as in most containers: start the container with `--cap-add=SYS_PTRACE`, or run `dbgr` as the user of the process
    the kernel does not allow it even to root: the process belongs to a user namespace outside of ours, or a security module forbids it: run `dbgr` in the user namespace of the process; SELinux and AppArmor write their reasons to the system's log
    ");
    }

    #[test]
    fn reasons() {
        insta::assert_snapshot!([
            why(|s| s.owner = Some(0)),
            why(|s| {
                s.user = 0;
                s.contained = true;
            }),
            why(|s| s.ptrace_scope = Some(1)),
            why(|s| s.ptrace_scope = Some(2)),
            why(|s| {
                s.ptrace_scope = Some(3);
                s.may_trace_all = true;
            }),
            why(|s| s.tracer = Some(12)),
            why(|s| {
                s.owner = None;
                s.hidden = true;
            }),
            why(|s| s.guarded = true),
            why(|s| s.contained = true),
            why(|s| s.ptrace_scope = Some(0)),
        ].join("\n"), @r"
    it belongs to user 0, and you are user 1000: run `dbgr` as that user, or as root
    it belongs to user 1000, and root has no `CAP_SYS_PTRACE` here, as in most containers: start the container with `--cap-add=SYS_PTRACE`, or run `dbgr` as the user of the process
    a process may be traced only by its ancestors (`/proc/sys/kernel/yama/ptrace_scope` is 1): run `dbgr` as root, or have the value set to 0: `sysctl kernel.yama.ptrace_scope=0`
    only root may trace a process here (`/proc/sys/kernel/yama/ptrace_scope` is 2): run `dbgr` as root, or have the value set to 0
    the kernel allows no process to trace another (`/proc/sys/kernel/yama/ptrace_scope` is 3): only a restart of the node with another value changes that
    process 12 traces it already, and the kernel allows only one: detach that debugger (gdb: `detach`), or look at the stacks there
    `/proc` is mounted with `hidepid`, which hides the processes of other users: run `dbgr` as the user of the process, or as root
    the kernel protects its memory: it was started with more privileges than you have, or asked for protection: run `dbgr` as root
    the container does not allow it: its seccomp filter or its user namespace forbids it: start the container with `--cap-add=SYS_PTRACE --security-opt seccomp=unconfined`, or run `dbgr` on the host
    the kernel does not allow it, and does not say why: run `dbgr` as root; a security module (SELinux, AppArmor) may have written the reason to the system's log
");
    }
}
