//! The children of a front.

use os::Pid;

/// Returns the children that this process had before its exec. Mostly there are none, which is one question to the kernel.
pub(super) fn inherited() -> Vec<Pid> {
    if os::has_children() {
        os::children()
    } else {
        Vec::new()
    }
}

/// Returns our children, except those from before an exec.
pub(super) fn children_except(inherited: &[Pid]) -> Vec<Pid> {
    if !os::has_children() {
        return Vec::new();
    }
    let mut children = os::children();
    // We cannot kill processes that ranks started as another user, so the front does not wait for them.
    children.retain(|pid| !inherited.contains(pid) && os::may_signal(*pid));
    children
}

/// Returns the controller if it is stopped. It is our grandchild, or our child if the guardian is gone. It has our program
/// name, and is a member of the guardian's process group; each rank leads a group of its own.
pub(super) fn stopped_controller(children: &[Pid]) -> Option<Pid> {
    let name = os::inspect(os::current_pid())?.name;
    let below = children.iter().flat_map(|child| os::descendants(*child));
    let processes = children.iter().copied().chain(below);
    let controller = processes.filter_map(os::inspect).find(|info| {
        let is_near = children.contains(&info.pid) || children.contains(&info.ppid);
        is_near && info.name == name && info.pgrp != info.pid
    })?;
    (controller.state == 'T').then_some(controller.pid)
}
