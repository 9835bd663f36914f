//! What the recorder of calls of MPI needs on a node: its library, and a directory in which each rank makes its region.
//!
//! Both are in one directory for each job, which ends with the job on this node, or with the record of a process that was killed
//! ([`Linked`]). It is in memory if possible.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use base::{JobId, ProcId, Rank};
use calls::layout::{self, HeaderView};
use dvm::{
    proto::LastCall,
    spec::{Environment, Recorder},
};
use os::Pid;

use crate::{
    place::{RecorderParts, Surroundings},
    preload::{CALLS_DIRECTORY, Linked},
};

/// Name of the library in the directory of a job.
const LIBRARY: &str = "librally-calls.so";
/// The variable by which the dynamic linker finds libraries that come first.
const PRELOAD: &str = "LD_PRELOAD";
/// The variable that names the directory of the regions.
const DIRECTORY_VARIABLE: &str = layout::DIRECTORY_VARIABLE;
/// Bytes that have to be free where the directory is made: the library, and the regions of some ranks.
const ROOM_MIN: u64 = 4 << 20;
/// Ranks of a job on this node whose last calls are told. The first ones to fail show the cause.
const DESCRIBED_MAX: usize = 16;
/// Entries of a place that are searched for directories of jobs.
const ENTRIES_MAX: usize = 65_536;
/// Directories of jobs of one user.
const DIRECTORIES_MAX: usize = 1024;
/// Files in the directory of a job that are searched for the region of a rank.
const REGIONS_MAX: usize = 4096;

/// The directories of the jobs on this node. Those that are left are removed on drop.
#[derive(Debug)]
pub(crate) struct Recorders {
    parts: Option<RecorderParts>,
    session: Option<PathBuf>,
    places: Vec<PathBuf>,
    jobs: BTreeMap<JobId, Recorded>,
}

/// A job that is recorded.
#[derive(Debug)]
struct Recorded {
    made: Linked,
    /// Ranks whose last calls were read.
    described: usize,
}

/// Why calls are not recorded.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unrecorded(pub(crate) String);

impl Recorders {
    pub(crate) fn new(session: Option<PathBuf>, surroundings: &Surroundings) -> Self {
        let places = places(surroundings)
            .filter(|place| is_nameable(place))
            .collect();
        Self {
            parts: surroundings.recorder,
            session,
            places,
            jobs: BTreeMap::new(),
        }
    }

    /// Makes what a job needs, if it is recorded. Returns the directory.
    pub(crate) fn prepare(
        &mut self,
        job: JobId,
        recorder: Recorder,
    ) -> Result<Option<&Path>, Unrecorded> {
        if recorder == Recorder::Off {
            return Ok(None);
        }
        let Some(RecorderParts { library, .. }) = self.parts else {
            return Err(Unrecorded(
                "this build of `rally` has no recorder for its processor".to_owned(),
            ));
        };
        let recorded = Recorded {
            made: self.make(job, library)?,
            described: 0,
        };
        let entry = self.jobs.entry(job).insert_entry(recorded);
        Ok(Some(entry.into_mut().made.path()))
    }

    /// Returns what a rank called last that has failed. `pid` is that of the process that we have started: the one that calls MPI may
    /// be a child of it.
    pub(crate) fn last_call(&mut self, proc: ProcId, pid: Pid) -> Option<LastCall> {
        let read = self.parts?.last_call;
        let recorded = self.jobs.get_mut(&proc.job)?;
        if recorded.described == DESCRIBED_MAX {
            return None;
        }
        let directory = recorded.made.path();
        let own = directory.join(format!("{}{pid}", layout::FILE_PREFIX));
        let region = if rank_of(&own).is_some_and(|rank| rank.is_none_or(|it| it == proc.rank)) {
            own
        } else {
            let all = os::entries(directory, REGIONS_MAX);
            all.into_iter()
                .find(|path| rank_of(path) == Some(Some(proc.rank)))?
        };
        let bytes = os::read_own_file(&region, layout::SIZE as u64).ok()?;
        recorded.described += 1;
        read(&bytes)
    }

    fn make(&self, job: JobId, library: &[u8]) -> Result<Linked, Unrecorded> {
        let mut tried = Vec::new();
        for place in &self.places {
            let made = match os::room(place) {
                Err(error) => Err(os::describe_errno(error.errno()).to_owned()),
                Ok(room) if !room.runs_programs => {
                    Err("no program may be executed in it (noexec)".to_owned())
                }
                Ok(room) if room.free < ROOM_MIN => Err("it is full".to_owned()),
                Ok(_) => self.make_in(job, library, place),
            };
            match made {
                Ok(made) => return Ok(made),
                Err(why) => tried.push(format!("`{}`: {why}", place.display())),
            }
        }
        Err(Unrecorded(tried.join("; ")))
    }

    fn make_in(&self, job: JobId, library: &[u8], place: &Path) -> Result<Linked, String> {
        let link = format!("mpi.{job}");
        let made = Linked::make(self.session.as_deref(), &link, place, CALLS_DIRECTORY)?;
        match os::write_private_file(made.path(), OsStr::new(LIBRARY), library) {
            Ok(()) => Ok(made),
            Err(error) => {
                // The reason why it was not written is what the user needs.
                let _ = made.remove();
                Err(os::describe_errno(error.errno()).to_owned())
            }
        }
    }

    /// Removes what a job on this node needed.
    pub(crate) fn forget(&mut self, job: JobId) {
        if let Some(recorded) = self.jobs.remove(&job) {
            // If that fails, the link to it stays, and the next start on this node tries again.
            let _ = recorded.made.remove();
        }
    }
}

impl Drop for Recorders {
    fn drop(&mut self) {
        for recorded in std::mem::take(&mut self.jobs).into_values() {
            // The process ends, so nobody would get a report.
            let _ = recorded.made.remove();
        }
    }
}

/// Returns the rank in the region at a path: `Some(None)` before `MPI_Init`, `None` if there is no region.
fn rank_of(path: &Path) -> Option<Option<Rank>> {
    let bytes = os::read_own_file(path, HeaderView::SIZE as u64).ok()?;
    let header = HeaderView::decode(bytes.first_chunk()?);
    if header.magic != layout::MAGIC || header.version != layout::VERSION {
        return None;
    }
    let is_known = header.phase != 0;
    Some(is_known.then_some(Rank(header.rank)))
}

/// Returns where the directories of jobs may be, the best place first.
fn places(surroundings: &Surroundings) -> impl Iterator<Item = PathBuf> {
    let usual = ["/tmp", "/var/tmp"].map(PathBuf::from);
    std::iter::once(PathBuf::from("/dev/shm"))
        .chain(surroundings.temporary.clone())
        .chain(usual)
}

/// Returns the directories of jobs of this user on this node in which calls of MPI are recorded.
#[must_use]
pub fn recorder_directories(surroundings: &Surroundings) -> Vec<PathBuf> {
    let found = places(surroundings).flat_map(|place| os::entries(&place, ENTRIES_MAX));
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().as_bytes();
        name.starts_with(CALLS_DIRECTORY.as_bytes()) && os::is_private_dir(path)
    };
    found.filter(is_ours).take(DIRECTORIES_MAX).collect()
}

/// Returns whether `LD_PRELOAD` can name a file in this directory: spaces and colons separate its entries.
fn is_nameable(place: &Path) -> bool {
    let bytes = place.as_os_str().as_bytes();
    place.is_absolute() && !bytes.iter().any(|byte| b" :\t\n".contains(byte))
}

/// Returns the variables that a recorded program gets: the library comes before those that its user preloads.
pub(crate) fn variables(env: &Environment, directory: &Path) -> [(&'static str, OsString); 2] {
    let mut preload = directory.join(LIBRARY).into_os_string();
    if let Some(theirs) = env
        .get(OsStr::new(PRELOAD))
        .filter(|value| !value.is_empty())
    {
        preload.push(":");
        preload.push(theirs);
    }
    [
        (PRELOAD, preload),
        (DIRECTORY_VARIABLE, OsString::from(directory)),
    ]
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "tests look at the files that are made"
)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::preload::remove_linked;

    const JOB: JobId = JobId(1);

    fn recorders(root: &Path, library: Option<&'static [u8]>) -> Recorders {
        let surroundings = Surroundings {
            recorder: library.map(|library| RecorderParts {
                library,
                last_call: |bytes| {
                    Some(LastCall {
                        call: String::from_utf8_lossy(&bytes[layout::PAGE..]).into_owned(),
                        number: 1,
                        in_progress: true,
                    })
                },
            }),
            ..Surroundings::default()
        };
        let mut recorders = Recorders::new(Some(root.join("session")), &surroundings);
        recorders.places = vec!["/nonexistent".into(), root.into()];
        recorders
    }

    #[test]
    fn a_directory_goes_with_its_job_its_process_or_the_next_start() {
        let root = tempfile::tempdir().unwrap();
        let make = || {
            let mut recorders = recorders(root.path(), Some(b"library"));
            let made = recorders
                .prepare(JOB, Recorder::On)
                .unwrap()
                .unwrap()
                .to_owned();
            assert_eq!(std::fs::read(made.join(LIBRARY)).unwrap(), b"library");
            let mode = std::fs::metadata(&made).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700);
            (recorders, made)
        };
        let (mut recorders, made) = make();
        recorders.forget(JOB);
        assert!(!made.exists());
        let (recorders, made) = make();
        drop(recorders);
        assert!(!made.exists());
        let (recorders, made) = make();
        std::mem::forget(recorders);
        assert!(made.exists());
        remove_linked(&root.path().join("session"));
        assert!(!made.exists());
    }

    #[test]
    fn the_last_call_is_that_of_the_rank() {
        let root = tempfile::tempdir().unwrap();
        let mut recorders = recorders(root.path(), Some(b"library"));
        let made = recorders.prepare(JOB, Recorder::On).unwrap().unwrap();
        let made = made.to_owned();
        let write = |pid: u32, phase: u32, rank: u32| {
            let mut bytes = vec![0; layout::PAGE];
            bytes[..8].copy_from_slice(&layout::MAGIC.to_le_bytes());
            bytes[8..12].copy_from_slice(&layout::VERSION.to_le_bytes());
            bytes[24..28].copy_from_slice(&phase.to_le_bytes());
            bytes[28..32].copy_from_slice(&rank.to_le_bytes());
            bytes.extend(format!("of {pid}").as_bytes());
            std::fs::write(made.join(format!("rally-calls.{pid}")), bytes).unwrap();
        };
        write(10, 1, 0);
        write(11, 0, 0);
        // The process of rank 2 is a child of the one that was started.
        write(13, 1, 2);
        std::os::unix::fs::symlink(made.join("rally-calls.10"), made.join("rally-calls.14"))
            .unwrap();
        std::fs::write(made.join("rally-calls.15"), "short").unwrap();
        let mut last = |rank: u32, pid: i32| {
            let proc = ProcId {
                job: JOB,
                rank: Rank(rank),
            };
            let last = recorders.last_call(proc, Pid::from_raw(pid));
            last.map(|last| last.call)
        };
        let of = |pid: u32| Some(format!("of {pid}"));
        assert_eq!(last(0, 10), of(10));
        assert_eq!(last(1, 11), of(11), "before MPI_Init");
        assert_eq!(last(2, 12), of(13));
        for pid in [10, 14, 15, 16] {
            assert_eq!(last(3, pid), None, "{pid}");
        }
        let many = std::iter::repeat_with(|| last(0, 10)).take(2 * DESCRIBED_MAX);
        assert_eq!(many.flatten().count(), DESCRIBED_MAX - 3);
    }

    #[test]
    fn who_is_not_recorded_gets_nothing_and_reasons_are_told() {
        let root = tempfile::tempdir().unwrap();
        let mut some = recorders(root.path(), Some(b"library"));
        assert_eq!(some.prepare(JOB, Recorder::Off), Ok(None));
        let mut none = recorders(root.path(), None);
        let Unrecorded(why) = none.prepare(JOB, Recorder::On).unwrap_err();
        assert_eq!(
            why,
            "this build of `rally` has no recorder for its processor"
        );
        some.places = vec!["/nonexistent".into(), "/proc".into()];
        let Unrecorded(why) = some.prepare(JOB, Recorder::On).unwrap_err();
        assert!(
            why.starts_with("`/nonexistent`: No such file or directory; `/proc`: "),
            "{why}"
        );
    }

    #[test]
    fn the_library_comes_before_those_of_the_user() {
        let env = Environment::from_iter([(OsString::from(PRELOAD), OsString::from("/theirs.so"))]);
        let [(_, preload), (_, directory)] = variables(&env, Path::new("/dev/shm/rally-mpi.1"));
        assert_eq!(preload, "/dev/shm/rally-mpi.1/librally-calls.so:/theirs.so");
        assert_eq!(directory, "/dev/shm/rally-mpi.1");
        assert!(!is_nameable(Path::new("/my tmp")));
        assert!(!is_nameable(Path::new("/a:b")));
    }
}
