use std::{fs, path::Path, time::Duration};

use super::*;

const MOUNT: &str = "30 1 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n";
const HOME: &str = "sys/fs/cgroup/user.slice/a.scope";

/// Writes a tree in which our cgroup is `a.scope`.
fn system(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    put(root.path(), "proc/self/mountinfo", MOUNT);
    put(root.path(), "proc/self/cgroup", "0::/user.slice/a.scope\n");
    put(root.path(), &format!("{HOME}/cgroup.procs"), "");
    put(root.path(), &format!("{HOME}/cgroup.subtree_control"), "");
    for (name, content) in files {
        put(root.path(), name, content);
    }
    root
}

fn put(root: &Path, name: &str, content: &str) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn read(root: &Path, name: &str) -> String {
    fs::read_to_string(root.join(HOME).join(name)).unwrap()
}

fn is_leaf(name: &str) -> bool {
    name.starts_with("leaf-")
}

fn tree_of(root: &tempfile::TempDir) -> CgroupTree {
    CgroupTree::find(root.path(), is_leaf).unwrap()
}

#[test]
fn our_cgroup_is_found_or_the_one_above_a_leaf() {
    let hybrid = "31 1 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
    let container = "30 1 0:26 /docker/1 /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    let cases = [
        ("0::/a/b\n", MOUNT, Some("sys/fs/cgroup/a/b")),
        ("0::/a/leaf-1\n", MOUNT, Some("sys/fs/cgroup/a")),
        (
            "4:memory:/x\n0::/a\n",
            hybrid,
            Some("sys/fs/cgroup/unified/a"),
        ),
        ("0::/docker/1/b\n", container, Some("sys/fs/cgroup/b")),
        // Another part of the tree is mounted, or none.
        ("0::/docker/2\n", container, None),
        ("0::/../c\n", MOUNT, None),
        ("0::/gone\n", MOUNT, None),
        ("0::/a\n", "", None),
        ("4:memory:/a\n", hybrid, None),
        ("", MOUNT, None),
    ];
    for (membership, mounts, expected) in cases {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "proc/self/cgroup", membership);
        put(root.path(), "proc/self/mountinfo", mounts);
        for group in ["a", "a/b", "a/leaf-1", "unified/a", "b", "../c"] {
            put(
                root.path(),
                &format!("sys/fs/cgroup/{group}/cgroup.procs"),
                "",
            );
        }
        let found = CgroupTree::find(root.path(), is_leaf);
        let expected = expected.map(|path| root.path().join(path));
        assert_eq!(
            found,
            expected
                .map(|home| CgroupTree { home })
                .ok_or(NoCgroup::NotMounted),
            "{membership:?} {mounts:?}"
        );
    }
}

#[test]
fn controllers_are_enabled_once() {
    let controllers = format!("{HOME}/cgroup.controllers");
    let root = system(&[(&controllers, "cpuset cpu memory pids\n")]);
    let tree = tree_of(&root);
    assert!(tree.offers(Controller::CPU) && tree.offers(Controller::MEMORY));
    assert!(!tree.offers(Controller("cpus")));
    let both = [Controller::MEMORY, Controller::CPU];
    let enabled = tree.enable(&both, "leaf-1", |_| false);
    assert_eq!(enabled, Ok(both.to_vec()));
    assert_eq!(read(root.path(), "cgroup.subtree_control"), "+memory +cpu");
    // The kernel would show them without signs.
    put(
        root.path(),
        &format!("{HOME}/cgroup.subtree_control"),
        "memory pids\n",
    );
    tree.enable(&[Controller::MEMORY], "leaf-1", |_| false)
        .unwrap();
    assert_eq!(read(root.path(), "cgroup.subtree_control"), "memory pids\n");
    let enabled = tree.enable(&both, "leaf-1", |_| false);
    assert_eq!(enabled, Ok(vec![Controller::CPU]));
    assert!(read(root.path(), "cgroup.subtree_control").starts_with("+cpu"));
    // What somebody else has enabled stays enabled.
    put(
        root.path(),
        &format!("{HOME}/cgroup.subtree_control"),
        "memory cpu pids\n",
    );
    tree.restore("leaf-1", &[Controller::CPU]).unwrap();
    assert!(read(root.path(), "cgroup.subtree_control").starts_with("-cpu"));
}

#[test]
fn limits_are_written_as_the_kernel_reads_them() {
    const FILES: [&str; 4] = [
        "memory.max",
        "memory.swap.max",
        "memory.oom.group",
        "cpu.max",
    ];
    let memory = |memory| CgroupLimits {
        memory: Some(memory),
        milli_cpus: None,
    };
    let cpus = |milli_cpus| CgroupLimits {
        memory: None,
        milli_cpus: Some(milli_cpus),
    };
    for (limits, expected) in [
        (memory(2 << 30), ["2147483648", "0", "1", ""]),
        (cpus(1_500), ["", "", "", "150000 100000"]),
        (cpus(128_000), ["", "", "", "12800000 100000"]),
        // The kernel refuses less than a millisecond.
        (cpus(1), ["", "", "", "1000 100000"]),
        (CgroupLimits::default(), ["", "", "", ""]),
    ] {
        let files = FILES.map(|name| format!("{HOME}/job/{name}"));
        let root = system(&[(&format!("{HOME}/job/cgroup.procs"), "")]);
        files.iter().for_each(|file| put(root.path(), file, ""));
        tree_of(&root).create("job", &limits).unwrap();
        let written = FILES.map(|name| read(root.path(), &format!("job/{name}")));
        assert_eq!(written, expected, "{limits:?}");
    }
}

#[test]
fn without_its_files_a_cgroup_is_refused_and_removed() {
    let root = system(&[]);
    let limits = CgroupLimits {
        memory: Some(1),
        milli_cpus: None,
    };
    let refused = tree_of(&root).create("job", &limits).map(drop);
    assert_eq!(refused, Err(NoCgroup::Refused(libc::ENOENT)));
    assert!(!root.path().join(HOME).join("job").exists());
    assert_eq!(reason_of(libc::EROFS), NoCgroup::NotPermitted);
}

#[test]
fn what_was_used_is_read_and_what_is_not_counted_is_none() {
    let file = |name: &str| format!("{HOME}/job/{name}");
    let root = system(&[
        (&file("cgroup.procs"), "17\n0\n18\n"),
        (
            &file("cpu.stat"),
            "usage_usec 3500000\nuser_usec 3000000\nsystem_usec 500000\nnr_periods 0\n",
        ),
    ]);
    let job = tree_of(&root).create("job", &CgroupLimits::default());
    let job = job.unwrap();
    let mut expected = CgroupUsage {
        user: Duration::from_secs(3),
        system: Duration::from_millis(500),
        peak: None,
        storage: None,
    };
    assert_eq!(job.usage(), expected);
    assert!(!job.is_out_of_memory());
    // One is in another pid namespace.
    assert_eq!(job.processes(), [17, 18].map(Pid::from_raw));
    put(root.path(), &file("memory.peak"), "1048576\n");
    put(
        root.path(),
        &file("io.stat"),
        "8:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n8:16 rbytes=1 wbytes=0\n",
    );
    put(
        root.path(),
        &file("memory.events"),
        "low 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 1\n",
    );
    expected.peak = Some(1 << 20);
    expected.storage = Some((4097, 8192));
    assert_eq!(job.usage(), expected);
    assert!(job.is_out_of_memory());
}

#[test]
fn only_cgroups_of_the_name_are_removed() {
    let root = system(&[]);
    for name in ["job-1/made/below", "job-2", "other"] {
        fs::create_dir_all(root.path().join(HOME).join(name)).unwrap();
    }
    let tree = tree_of(&root);
    assert!(tree.remove_all(|name| name.starts_with("job-")));
    let left = || children(&root.path().join(HOME));
    assert_eq!(left(), ["other"]);
    tree.remove_empty(|name| name == "other");
    assert_eq!(left(), Vec::<String>::new());
    // A file keeps it, as a process does.
    put(root.path(), &format!("{HOME}/job-3/busy"), "");
    assert!(!tree.remove_all(|name| name.starts_with("job-")));
}

#[test]
fn a_branch_stays_while_cgroups_are_below_it() {
    let root = system(&[
        (&format!("{HOME}/job/cgroup.procs"), ""),
        (&format!("{HOME}/job/cgroup.subtree_control"), ""),
        (&format!("{HOME}/job/ranks/cgroup.procs"), ""),
        (&format!("{HOME}/job/ranks/cgroup.kill"), ""),
        (&format!("{HOME}/job/ranks/cpu.max"), ""),
    ]);
    let job = tree_of(&root).branch("job").unwrap();
    let enabled = job.enable(&[Controller::CPU], "ranks", |_| false);
    assert_eq!(enabled, Ok(vec![Controller::CPU]));
    let limits = CgroupLimits {
        memory: None,
        milli_cpus: Some(1_000),
    };
    let ranks = job.create("ranks", &limits).unwrap();
    assert_eq!(read(root.path(), "job/cgroup.subtree_control"), "+cpu");
    assert_eq!(read(root.path(), "job/ranks/cpu.max"), "100000 100000");
    ranks.kill();
    assert_eq!(read(root.path(), "job/ranks/cgroup.kill"), "1");
    // The kernel removes the files of a cgroup with it.
    let directory = root.path().join(HOME).join("job");
    for file in ["cgroup.procs", "cgroup.subtree_control"] {
        fs::remove_file(directory.join(file)).unwrap();
    }
    assert!(matches!(job.remove(), Err(NoCgroup::Refused(_))));
    fs::remove_dir_all(directory.join("ranks")).unwrap();
    assert_eq!((ranks.remove(), job.remove()), (Ok(()), Ok(())));
    assert!(!directory.exists());
    assert_eq!(job.remove(), Ok(()), "it is gone already");
}
