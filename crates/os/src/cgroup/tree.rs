//! Making cgroups of version 2 for programs that we start: with limits, and with counts of what is used.
//!
//! A cgroup whose children have controllers may have no processes itself. So before controllers are enabled below our own cgroup, all its
//! processes move to a *leaf*, a child for them. We move only our own processes, so that nobody else finds theirs elsewhere.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::fd::{AsFd, BorrowedFd},
    path::{Component, Path, PathBuf},
    time::Duration,
};

use super::{MAX_DEPTH, MEMBERSHIP, MOUNTS, Version, cgroup_mount, group};
use crate::{files::read_small, process::Pid};

/// Period in which the kernel counts CPU time, in microseconds. This is its default.
const PERIOD: u64 = 100_000;
/// The least CPU time in a period that the kernel accepts, in microseconds.
const QUOTA_MIN: u64 = 1_000;
/// The file that says whether processes, or only threads, can be in a cgroup: `domain`, `domain invalid`, `domain threaded`, `threaded`.
const TYPE: &str = "cgroup.type";
/// How often processes are moved before the controllers are given up. Our processes may fork between two looks.
const MOVES_MAX: u32 = 4;

/// A controller of version 2, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Controller(pub &'static str);

impl Controller {
    pub const MEMORY: Self = Self("memory");
    pub const CPU: Self = Self("cpu");
}

/// Limits of a cgroup; `None` stands for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CgroupLimits {
    /// Memory in bytes.
    pub memory: Option<u64>,
    /// CPU time in thousandths of a CPU.
    pub milli_cpus: Option<u32>,
}

/// Why a cgroup or a controller cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoCgroup {
    /// No tree of version 2 is mounted that contains our cgroup.
    NotMounted,
    /// We may not make cgroups below ours.
    NotPermitted,
    /// Our cgroup has processes that are not ours.
    Shared,
    /// The kernel has refused with this error number.
    Refused(i32),
}

/// What the processes of a cgroup have used since it was made, also those that are gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CgroupUsage {
    /// CPU time in user mode.
    pub user: Duration,
    /// CPU time in the kernel.
    pub system: Duration,
    /// The most memory that all of them have used together, in bytes; `None` if the kernel does not count it here.
    pub peak: Option<u64>,
    /// Bytes read from and written to storage; `None` if the kernel does not count them here.
    pub storage: Option<(u64, u64)>,
}

/// The cgroup below which we make others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupTree {
    home: PathBuf,
}

impl CgroupTree {
    /// Finds the tree of the system below `root`. If our cgroup is a leaf, by its name, the tree is the one above.
    ///
    /// # Errors
    /// [`NoCgroup::NotMounted`].
    pub fn find(root: &Path, is_leaf: impl Fn(&str) -> bool) -> Result<Self, NoCgroup> {
        let home = own_directory(root).ok_or(NoCgroup::NotMounted)?;
        let name = home.file_name().and_then(|name| name.to_str());
        let home = match home.parent() {
            Some(above) if name.is_some_and(is_leaf) => above.to_owned(),
            _ => home,
        };
        Ok(Self { home })
    }

    /// Returns true if the cgroups that we make can have this controller.
    #[must_use]
    pub fn offers(&self, controller: Controller) -> bool {
        has_word(&self.home.join("cgroup.controllers"), controller.0)
    }

    /// Enables controllers for the cgroups that we make, and returns those that were not enabled before. If processes are in our cgroup,
    /// moves them to the leaf of this name. `is_ours` is asked about processes that are there at that moment.
    ///
    /// # Errors
    /// [`NoCgroup::Shared`] if other processes would have to move too; none has moved then.
    pub fn enable(
        &self,
        wanted: &[Controller],
        leaf: &str,
        is_ours: impl Fn(Pid) -> bool,
    ) -> Result<Vec<Controller>, NoCgroup> {
        let file = self.home.join("cgroup.subtree_control");
        let missing = wanted.iter().filter(|one| !has_word(&file, one.0));
        let missing: Vec<Controller> = missing.copied().collect();
        let words: Vec<String> = missing.iter().map(|one| format!("+{}", one.0)).collect();
        if words.is_empty() {
            return Ok(missing);
        }
        let words = words.join(" ");
        let enable = || write(&file, &words).map_err(|error| reason(&error));
        if self.may_have_processes() {
            return enable().map(|()| missing);
        }
        for _ in 0..MOVES_MAX {
            let processes = processes_of(&self.home)?;
            // The kernel would refuse some controllers with EBUSY while there are any. Others (`cpu`) it accepts, and then takes our cgroup
            // for one of threads, in whose children no process can be.
            if processes.is_empty() {
                match enable() {
                    Err(NoCgroup::Refused(libc::EBUSY)) => continue,
                    done => return done.map(|()| missing),
                }
            }
            let ours = |pid: &Option<Pid>| pid.is_some_and(&is_ours);
            if !processes.iter().all(ours) {
                break;
            }
            let leaf = self.make(leaf)?;
            for pid in processes.into_iter().flatten() {
                move_to(&leaf, pid)?;
            }
        }
        // Another process came in between.
        let _ = self.restore(leaf, &[]);
        Err(NoCgroup::Shared)
    }

    /// Disables the controllers that we have enabled, moves the processes of the leaf back, and removes it. Does nothing while there
    /// are other cgroups: they may need the controllers.
    ///
    /// # Errors
    /// What the kernel has refused. The leaf remains then.
    pub fn restore(&self, leaf: &str, enabled: &[Controller]) -> Result<(), NoCgroup> {
        let directory = self.home.join(leaf);
        if children(&self.home).iter().any(|name| name != leaf) {
            return Ok(());
        }
        let file = self.home.join("cgroup.subtree_control");
        let ours = enabled.iter().filter(|one| has_word(&file, one.0));
        let words: Vec<String> = ours.map(|one| format!("-{}", one.0)).collect();
        if !words.is_empty() {
            write(&file, &words.join(" ")).map_err(|error| reason(&error))?;
        }
        if !directory.exists() {
            return Ok(());
        }
        for pid in processes_of(&directory)?.into_iter().flatten() {
            move_to(&self.home, pid)?;
        }
        fs::remove_dir(directory).map_err(|error| reason(&error))
    }

    /// Makes a cgroup with limits. The controllers that these need are enabled.
    ///
    /// # Errors
    /// What the kernel has refused. No cgroup is left then.
    pub fn create(&self, name: &str, limits: &CgroupLimits) -> Result<Cgroup, NoCgroup> {
        let directory = self.make_below(name)?;
        set(&directory, limits)
            .and_then(|()| {
                let procs = directory.join("cgroup.procs");
                File::options().write(true).open(procs)
            })
            .map(|procs| Cgroup {
                directory: directory.clone(),
                procs,
            })
            .map_err(|error| {
                let _ = fs::remove_dir(&directory);
                reason(&error)
            })
    }

    /// Makes a cgroup that has no processes and no limits, for other cgroups below it.
    ///
    /// # Errors
    /// What the kernel has refused. No cgroup is left then.
    pub fn branch(&self, name: &str) -> Result<Self, NoCgroup> {
        let home = self.make_below(name)?;
        Ok(Self { home })
    }

    /// Removes a cgroup that [`Self::branch`] has made. Those below it have to be gone.
    ///
    /// # Errors
    /// EBUSY or ENOTEMPTY while a cgroup is below it.
    pub fn remove(&self) -> Result<(), NoCgroup> {
        remove_one(&self.home).map_err(|error| reason(&error))
    }

    /// Removes the cgroups whose names satisfy `is_meant`. Their processes are killed; while some are still there, the cgroup stays.
    /// Returns true if none is left.
    #[must_use]
    pub fn remove_all(&self, is_meant: impl Fn(&str) -> bool) -> bool {
        let mut none_left = true;
        for name in children(&self.home).iter().filter(|name| is_meant(name)) {
            let directory = self.home.join(name);
            kill(&directory);
            none_left &= remove_below(&directory, 0).is_ok();
        }
        none_left
    }

    /// Removes the cgroups whose names satisfy `is_meant` and that have no process.
    pub fn remove_empty(&self, is_meant: impl Fn(&str) -> bool) {
        for name in children(&self.home).iter().filter(|name| is_meant(name)) {
            // The kernel refuses to remove a cgroup that is in use.
            let _ = remove_below(&self.home.join(name), 0);
        }
    }

    /// Returns true for the root of all cgroups, which has no type: its children may have controllers whatever is in it.
    fn may_have_processes(&self) -> bool {
        !self.home.join(TYPE).exists()
    }

    /// Makes a cgroup into which our processes may move.
    fn make_below(&self, name: &str) -> Result<PathBuf, NoCgroup> {
        // Processes come from ours, and for that the kernel wants this right too.
        let ours = File::options()
            .write(true)
            .open(self.home.join("cgroup.procs"));
        ours.map_err(|error| reason(&error))?;
        let directory = self.make(name)?;
        if has_word(&directory.join(TYPE), "invalid") {
            // Somebody has enabled controllers for threads in ours, which has processes: none could join.
            let _ = fs::remove_dir(&directory);
            return Err(NoCgroup::Shared);
        }
        Ok(directory)
    }

    fn make(&self, name: &str) -> Result<PathBuf, NoCgroup> {
        let directory = self.home.join(name);
        match fs::create_dir(&directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(reason(&error)),
            _ => Ok(directory),
        }
    }
}

/// A cgroup that we have made.
#[derive(Debug)]
pub struct Cgroup {
    directory: PathBuf,
    procs: File,
}

impl Cgroup {
    /// Returns the file through which a new program joins ([`crate::SpawnSpec::cgroup`]).
    #[must_use]
    pub fn procs(&self) -> BorrowedFd<'_> {
        self.procs.as_fd()
    }

    /// Returns the processes, as far as we see them.
    #[must_use]
    pub fn processes(&self) -> Vec<Pid> {
        let all = processes_of(&self.directory).unwrap_or_default();
        all.into_iter().flatten().collect()
    }

    /// Sends SIGKILL to all processes of the cgroup and of those below it. A kernel before 5.14 cannot do that.
    pub fn kill(&self) {
        kill(&self.directory);
    }

    #[must_use]
    pub fn usage(&self) -> CgroupUsage {
        let text = read_small(&self.directory.join("cpu.stat")).unwrap_or_default();
        let time = |name| Duration::from_micros(field(&text, name).unwrap_or(0));
        let peak = read_small(&self.directory.join("memory.peak")).ok();
        let storage = read_small(&self.directory.join("io.stat")).ok();
        CgroupUsage {
            user: time("user_usec"),
            system: time("system_usec"),
            peak: peak.and_then(|text| text.trim().parse().ok()),
            storage: storage.map(|text| (sum_of(&text, "rbytes="), sum_of(&text, "wbytes="))),
        }
    }

    /// Returns true if the kernel has killed processes because the limit of this cgroup's memory was reached. It also counts here what it
    /// has killed because the node, or a cgroup above, had no memory left; only what reaches a limit is an `oom` of that cgroup.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        let text = read_small(&self.directory.join("memory.events")).unwrap_or_default();
        let has = |name| field(&text, name).is_some_and(|count| count > 0);
        has("oom") && has("oom_kill")
    }

    /// Removes the cgroup, with those that its processes have made below it.
    ///
    /// # Errors
    /// EBUSY while a process is in it.
    pub fn remove(&self) -> Result<(), NoCgroup> {
        remove_below(&self.directory, 0).map_err(|error| reason(&error))
    }
}

/// Returns the directory of our cgroup of version 2; `None` if no mount shows it.
fn own_directory(root: &Path) -> Option<PathBuf> {
    let membership = read_small(&root.join(MEMBERSHIP)).ok()?;
    let group = Path::new(group(&membership, Version::Two, "")?);
    let mounts = read_small(&root.join(MOUNTS)).ok()?;
    let mounts = mounts.lines();
    let mut mounts = mounts.filter_map(|line| cgroup_mount(line, Version::Two, ""));
    mounts.find_map(|(mounted, point)| {
        let below = group.strip_prefix(mounted).ok()?;
        // The kernel shows groups outside of our namespace with `..`, which would lead elsewhere from here.
        if below.components().any(|it| it == Component::ParentDir) {
            return None;
        }
        let directory = root.join(point.trim_start_matches('/')).join(below);
        directory.join("cgroup.procs").exists().then_some(directory)
    })
}

fn set(directory: &Path, limits: &CgroupLimits) -> io::Result<()> {
    let put = |name: &str, value: &str| write(&directory.join(name), value);
    let put_if_known = |name: &str, value: &str| match put(name, value) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    };
    if let Some(memory) = limits.memory {
        put("memory.max", &memory.to_string())?;
        // Otherwise what does not fit would go to the disk, and slow down the whole node.
        put_if_known("memory.swap.max", "0")?;
        // A job that has lost one of its processes would only wait for it.
        put_if_known("memory.oom.group", "1")?;
    }
    if let Some(cpus) = limits.milli_cpus {
        let quota = (u64::from(cpus) * (PERIOD / 1_000)).max(QUOTA_MIN);
        put("cpu.max", &format!("{quota} {PERIOD}"))?;
    }
    Ok(())
}

/// Kills the processes of a cgroup, if the kernel can do that.
fn kill(directory: &Path) {
    let _ = write(&directory.join("cgroup.kill"), "1");
}

/// Removes a cgroup and those below it.
fn remove_below(directory: &Path, depth: usize) -> io::Result<()> {
    if depth < MAX_DEPTH {
        for name in children(directory) {
            remove_below(&directory.join(name), depth + 1)?;
        }
    }
    remove_one(directory)
}

fn remove_one(directory: &Path) -> io::Result<()> {
    match fs::remove_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Returns the names of the cgroups in a cgroup.
fn children(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

/// Returns the processes of a cgroup; `None` for one of another pid namespace.
fn processes_of(directory: &Path) -> Result<Vec<Option<Pid>>, NoCgroup> {
    let text = read_small(&directory.join("cgroup.procs"));
    let text = text.map_err(|error| reason_of(error.errno()))?;
    let pids = text.lines().map(|line| line.trim().parse::<i32>().ok());
    Ok(pids
        .map(|pid| pid.filter(|pid| *pid > 0).map(Pid::from_raw))
        .collect())
}

fn move_to(directory: &Path, pid: Pid) -> Result<(), NoCgroup> {
    match write(&directory.join("cgroup.procs"), &pid.to_string()) {
        // It has ended meanwhile.
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        done => done.map_err(|error| reason(&error)),
    }
}

/// Writes to an existing file in one call, as the kernel wants it.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::options().write(true).open(path)?;
    file.write_all(text.as_bytes())
}

fn has_word(path: &Path, word: &str) -> bool {
    let text = read_small(path).unwrap_or_default();
    text.split_whitespace().any(|it| it == word)
}

/// Returns the number behind a name at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    let (_, number) = lines.find(|(found, _)| *found == name)?;
    number.trim().parse().ok()
}

/// Returns the sum of the numbers behind a name, which each line has once.
fn sum_of(text: &str, name: &str) -> u64 {
    let words = text.split_whitespace();
    let numbers = words.filter_map(|word| word.strip_prefix(name)?.parse::<u64>().ok());
    numbers.fold(0, u64::saturating_add)
}

fn reason(error: &io::Error) -> NoCgroup {
    reason_of(error.raw_os_error().unwrap_or(libc::EIO))
}

const fn reason_of(errno: i32) -> NoCgroup {
    match errno {
        libc::EACCES | libc::EPERM | libc::EROFS => NoCgroup::NotPermitted,
        errno => NoCgroup::Refused(errno),
    }
}

#[cfg(test)]
mod tests;
