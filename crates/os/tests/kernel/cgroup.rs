//! Cgroups of the kernel. Where we may make none, the tests check that the kernel's refusal is understood. Which controllers there are
//! depends on the computer; moving processes works alike for all of them.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use base::{ExitStatus, Signal};
use os::{Cgroup, CgroupLimits, CgroupTree, Controller, NoCgroup, Pid};

use crate::{
    Test,
    world::{World, eventually, spec, strings},
};

pub(crate) const TESTS: &[Test] = &[
    (
        "cgroup::a_program_starts_in_its_cgroup_and_is_counted_there",
        a_program_starts_in_its_cgroup_and_is_counted_there,
    ),
    (
        "cgroup::what_is_left_in_a_cgroup_is_killed_with_it",
        what_is_left_in_a_cgroup_is_killed_with_it,
    ),
    (
        "cgroup::what_is_beside_a_cgroup_is_not_killed_with_it",
        what_is_beside_a_cgroup_is_not_killed_with_it,
    ),
    (
        "cgroup::our_processes_move_to_a_leaf_and_back",
        our_processes_move_to_a_leaf_and_back,
    ),
];

/// Makes a cgroup; `None` if we may not, which the kernel has to say in one of these ways.
fn made(name: &str) -> Option<(CgroupTree, Cgroup)> {
    let tree = CgroupTree::find(Path::new("/"), |_| false);
    let made = tree.and_then(|tree| Ok((tree.create(name, &CgroupLimits::default())?, tree)));
    match made {
        Ok((cgroup, tree)) => Some((tree, cgroup)),
        Err(NoCgroup::NotMounted | NoCgroup::NotPermitted) => None,
        Err(other) => panic!("{other:?}"),
    }
}

fn name(of: &str) -> String {
    format!("os-test-{}-{of}", os::current_pid())
}

fn shell(world: &mut World, script: &str, cgroup: &Cgroup) -> Pid {
    let argv = strings(&["sh", "-c", script]);
    let mut spec = spec(c"/bin/sh", &argv);
    spec.cgroup = Some(cgroup.procs());
    world.spawner.spawn(&spec).unwrap()
}

fn a_program_starts_in_its_cgroup_and_is_counted_there() {
    let Some((_, cgroup)) = made(&name("counted")) else {
        return;
    };
    let mut world = World::new();
    let script = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; kill -STOP $$";
    let pid = shell(&mut world, script, &cgroup);
    assert_eq!(cgroup.processes(), [pid]);
    assert!(matches!(cgroup.remove(), Err(NoCgroup::Refused(_))));
    eventually("it is done", || {
        os::inspect(pid).is_some_and(|process| process.state == 'T')
    });
    let usage = cgroup.usage();
    assert!(usage.user + usage.system > Duration::ZERO, "{usage:?}");
    os::kill(pid, Signal::KILL).unwrap();
    world.exit_of(pid);
    // What has ended still counts.
    let last = cgroup.usage();
    assert!(last.user + last.system >= usage.user + usage.system);
    assert_eq!(cgroup.processes(), []);
    cgroup.remove().unwrap();
    // A program cannot join what is gone.
    let argv = strings(&["true"]);
    let mut spec = spec(c"/bin/true", &argv);
    spec.cgroup = Some(cgroup.procs());
    let refused = world.spawner.spawn(&spec).unwrap_err();
    assert_eq!(refused.step, os::SpawnStep::Cgroup);
}

fn what_is_left_in_a_cgroup_is_killed_with_it() {
    let name = name("left");
    let Some((tree, cgroup)) = made(&name) else {
        return;
    };
    let mut world = World::new();
    let pid = shell(&mut world, "exec sleep 1000", &cgroup);
    tree.remove_empty(|one| one == name);
    assert_eq!(cgroup.processes(), [pid]);
    assert!(!tree.remove_all(|one| one == name) || cgroup.processes().is_empty());
    let killed = ExitStatus::Signaled {
        signal: Signal::KILL,
        core_dumped: false,
    };
    assert_eq!(world.exit_of(pid), killed);
    eventually("it is removed", || tree.remove_all(|one| one == name));
    assert!(cgroup.remove().is_ok());
}

fn what_is_beside_a_cgroup_is_not_killed_with_it() {
    let tree = CgroupTree::find(Path::new("/"), |_| false);
    let branch = tree.and_then(|tree| tree.branch(&name("branch")));
    let job = match branch {
        Ok(job) => job,
        Err(NoCgroup::NotMounted | NoCgroup::NotPermitted) => return,
        Err(other) => panic!("{other:?}"),
    };
    // A process cannot be where controllers are for those below: both have a cgroup of their own.
    let known = ["memory", "cpu", "pids", "hugetlb", "io", "cpuset"].map(Controller);
    let offered: Vec<Controller> = known.into_iter().filter(|one| job.offers(*one)).collect();
    assert_eq!(job.enable(&offered, "", |_| false), Ok(offered));
    let no_limits = CgroupLimits::default();
    let ranks = job.create("ranks", &no_limits).unwrap();
    let tool = job.create("tool-2", &no_limits).unwrap();
    let mut world = World::new();
    let rank = shell(&mut world, "exec sleep 1000", &ranks);
    let beside = shell(&mut world, "exec sleep 1000", &tool);
    let inside = |cgroup: &Cgroup| cgroup.processes();
    assert_eq!((inside(&ranks), inside(&tool)), (vec![rank], vec![beside]));
    ranks.kill();
    let killed = ExitStatus::Signaled {
        signal: Signal::KILL,
        core_dumped: false,
    };
    assert_eq!(world.exit_of(rank), killed);
    eventually("the cgroup of the rank is removed", || {
        ranks.remove().is_ok()
    });
    assert_eq!(inside(&tool), [beside]);
    assert!(matches!(job.remove(), Err(NoCgroup::Refused(_))));
    tool.kill();
    assert_eq!(world.exit_of(beside), killed);
    eventually("the other one is removed", || {
        tool.remove().is_ok() && job.remove().is_ok()
    });
}

fn our_processes_move_to_a_leaf_and_back() {
    let name = name("home");
    let Some((above, home)) = made(&name) else {
        return;
    };
    let known = ["memory", "cpu", "pids", "hugetlb", "io", "cpuset"].map(Controller);
    let offered = known.into_iter().find(|one| above.offers(*one));
    let up = own_directory();
    let control = up.join("cgroup.subtree_control");
    let before = fs::read_to_string(&control).unwrap();
    // A session's own cgroup has processes that are not ours, so that only root finds one that gives its children a controller.
    if let Some(controller) = offered.filter(|one| above.enable(&[*one], "", |_| false).is_ok()) {
        move_and_return(&home, controller, &name);
        fs::write(up.join("cgroup.procs"), "0").unwrap();
        if !before.contains(controller.0) {
            fs::write(control, format!("-{}", controller.0)).unwrap();
        }
    }
    home.remove().unwrap();
}

fn move_and_return(home: &Cgroup, controller: Controller, name: &str) {
    let us = os::current_pid();
    let own = || fs::read_to_string("/proc/self/cgroup").unwrap();
    let is_in = |group: &str| own().trim_end().ends_with(group);
    let is_leaf = |name: &str| name == "leaf";
    let written = os::write(home.procs(), b"0").unwrap();
    assert_eq!(written, os::WriteOutcome::Bytes(1));
    let tree = CgroupTree::find(Path::new("/"), is_leaf).unwrap();
    // A process that is not ours keeps all where they are.
    let refused = tree.enable(&[controller], "leaf", |_| false);
    assert_eq!(refused, Err(NoCgroup::Shared));
    assert!(is_in(name), "{}", own());
    let enabled = tree.enable(&[controller], "leaf", |pid| pid == us);
    assert_eq!(enabled, Ok(vec![controller]));
    assert!(is_in("leaf"), "{}", own());
    // From the leaf, the same tree is found.
    let again = CgroupTree::find(Path::new("/"), is_leaf);
    assert_eq!(again.as_ref(), Ok(&tree));
    let job = tree.create("job", &CgroupLimits::default()).unwrap();
    // While there is another cgroup, its controllers stay.
    tree.restore("leaf", &[controller]).unwrap();
    assert!(is_in("leaf"), "{}", own());
    job.remove().unwrap();
    tree.restore("leaf", &[controller]).unwrap();
    assert!(is_in(name), "{}", own());
}

/// Returns the directory of our cgroup of version 2.
fn own_directory() -> PathBuf {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mut mounts = mounts.lines().filter(|line| line.contains(" - cgroup2 "));
    let point = mounts.next().and_then(|line| line.split(' ').nth(4));
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap();
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"));
    Path::new(point.unwrap()).join(group.unwrap())
}
