//! Preloaded files: reading them at the controller, and the directories that hold them on a node.
//!
//! A job has one directory on a node, `rally-preload.RANDOM`. It may be on a disk, far from the record file of this process,
//! which is in memory. A symbolic link beside the record leads to it, and exists before it. So whoever removes the
//! files of a process that was killed finds the directory ([`remove_linked`]).

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{DirBuilderExt as _, MetadataExt as _, symlink},
    },
    path::{Path, PathBuf},
};

use base::JobId;
use bytes::Bytes;
use dvm::{
    preload::{FileAct, FoundFile, NotFound, WantedFile},
    proto::PreloadFailure,
};

use crate::place::Surroundings;

/// Start of the name of a job's directory.
const DIRECTORY: &str = "rally-preload.";
/// Start of the name of a directory with the boot frame of a daemon (`crate::starters`).
pub(crate) const FRAME_DIRECTORY: &str = "boot-";
/// Start of the name of a directory with recorded calls of MPI (`crate::recorder`).
pub(crate) const CALLS_DIRECTORY: &str = "rally-mpi.";
/// Start of the name of a link to such a directory.
const LINK: &str = "preload.";
/// Age at which the directory of a boot frame is removed, in seconds. A frame is read within minutes of its making.
const FRAME_AGE: i64 = 24 * 60 * 60;
/// ENOENT of Linux.
const ENOENT: i32 = 2;

/// Reads the files that are copied.
#[derive(Debug, Default)]
pub(crate) struct FileReader {
    open: Option<(OsString, os::SourceFile)>,
}

impl FileReader {
    pub(crate) fn read(
        &mut self,
        path: OsString,
        offset: u64,
        length: usize,
    ) -> Result<Bytes, String> {
        let read = match self.open.take().filter(|(open, _)| *open == path) {
            Some((_, file)) => Ok(file),
            None => os::SourceFile::open(Path::new(&path)),
        };
        let read = read.and_then(|mut file| {
            let bytes = file.read_at(offset, length)?;
            // A file that was read to its end is closed.
            if bytes.len() == length {
                self.open = Some((path, file));
            }
            Ok(Bytes::from(bytes))
        });
        read.map_err(|error| reason(&error))
    }
}

/// Looks up files that are to be copied.
pub(crate) fn find(wanted: &[WantedFile]) -> Result<Vec<FoundFile>, NotFound> {
    let found = (0..).zip(wanted).map(|(index, file)| {
        let directory = Path::new(&file.directory);
        let path = match &file.search {
            None => directory.join(&file.path),
            Some(search) => match os::find_program(&file.path, &os::search_path(directory, search))
            {
                os::Found::Program(path) | os::Found::NotExecutable(path) => path,
                os::Found::Missing => {
                    return Err(NotFound {
                        index,
                        path: file.path.clone(),
                        errno: ENOENT,
                        why: os::describe_errno(ENOENT).to_owned(),
                    });
                }
            },
        };
        match os::SourceFile::open(&path) {
            Ok(file) => Ok(FoundFile {
                path: path.into_os_string(),
                mode: file.mode(),
            }),
            Err(error) => Err(NotFound {
                index,
                path: path.into_os_string(),
                errno: error.errno(),
                why: reason(&error),
            }),
        }
    });
    found.collect()
}

fn reason(error: &os::Error) -> String {
    os::describe_errno(error.errno()).to_owned()
}

/// The directories of jobs on this node. Those that are left are removed on drop.
#[derive(Debug)]
pub(crate) struct Directories {
    /// Directory beside the record of this process.
    session: Option<PathBuf>,
    /// Where directories are made, if the user names no place.
    places: Vec<PathBuf>,
    jobs: BTreeMap<JobId, JobFiles>,
    /// The directory that could not be removed last, and why, until it is taken.
    unremoved: Option<os::Error>,
}

#[derive(Debug)]
struct JobFiles {
    at: Linked,
    copies: Option<os::Copies>,
}

/// A directory, far from the record of this process, with a link beside the record that leads to it.
#[derive(Debug)]
pub(crate) struct Linked {
    directory: PathBuf,
    link: Option<PathBuf>,
}

impl Directories {
    pub(crate) fn new(session: Option<PathBuf>, surroundings: &Surroundings) -> Self {
        let usual = ["/tmp", "/var/tmp", "/dev/shm"].map(PathBuf::from);
        let mut places: Vec<PathBuf> = Vec::new();
        for place in surroundings.temporary.iter().cloned().chain(usual) {
            if place.is_absolute() && !places.contains(&place) {
                places.push(place);
            }
        }
        Self {
            session,
            places,
            jobs: BTreeMap::new(),
            unremoved: None,
        }
    }

    /// Carries out an action, and returns the answer; [`FileAct::Remove`] has none.
    pub(crate) fn act(
        &mut self,
        job: JobId,
        act: FileAct,
    ) -> Option<Result<Option<OsString>, PreloadFailure>> {
        Some(match act {
            FileAct::Make {
                place,
                bytes,
                has_programs,
            } => {
                let made = self.make(job, place.map(PathBuf::from), bytes, has_programs);
                made.map(|path| Some(path.into_os_string()))
            }
            FileAct::Create { files } => self.with(job, |one| {
                let files = files.iter().map(|file| (file.name.as_os_str(), file.mode));
                one.copies = Some(os::Copies::create(&one.at.directory, files)?);
                Ok(())
            }),
            FileAct::Write { bytes } => self.with(job, |one| {
                one.copies
                    .as_mut()
                    .map_or(Ok(()), |copies| copies.write(&bytes))
            }),
            FileAct::Close => self.with(job, |one| {
                one.copies.take().map_or(Ok(()), os::Copies::finish)
            }),
            FileAct::Remove => {
                if let Some(files) = self.jobs.remove(&job) {
                    self.unremoved = files.at.remove().err();
                }
                return None;
            }
        })
    }

    /// Returns why the last [`FileAct::Remove`] has left files, once.
    pub(crate) fn take_unremoved(&mut self) -> Option<os::Error> {
        self.unremoved.take()
    }

    fn with(
        &mut self,
        job: JobId,
        act: impl FnOnce(&mut JobFiles) -> Result<(), os::Error>,
    ) -> Result<Option<OsString>, PreloadFailure> {
        let Some(files) = self.jobs.get_mut(&job) else {
            return Ok(None);
        };
        act(files).map(|()| None).map_err(|error| {
            let path = match &error {
                os::Error::File { path, .. } => path.clone(),
                _ => files.at.directory.clone(),
            };
            PreloadFailure::Unwritable {
                path: path.into_os_string(),
                why: reason(&error),
            }
        })
    }

    /// Makes the directory of a job in the first place that has room.
    fn make(
        &mut self,
        job: JobId,
        place: Option<PathBuf>,
        needed: u64,
        has_programs: bool,
    ) -> Result<PathBuf, PreloadFailure> {
        let mut tried = Vec::new();
        let mut most: Option<(u64, PathBuf)> = None;
        let places = match place {
            Some(place) => vec![place],
            None => self.places.clone(),
        };
        for place in places {
            match os::room(&place) {
                Err(error) if error.errno() == ENOENT && !tried.is_empty() => {}
                Err(error) => tried.push((place.into(), reason(&error))),
                Ok(room) if has_programs && !room.runs_programs => {
                    let why = "no program may be executed in it (noexec)".to_owned();
                    tried.push((place.into(), why));
                }
                Ok(room) if room.free < needed => {
                    if most.as_ref().is_none_or(|(free, _)| *free < room.free) {
                        most = Some((room.free, place));
                    }
                }
                Ok(_) => match self.make_in(job, &place) {
                    Ok(path) => return Ok(path),
                    Err(why) => tried.push((place.into(), why)),
                },
            }
        }
        Err(match most {
            Some((free, directory)) => PreloadFailure::NoRoom {
                directory: directory.into(),
                needed,
                free,
            },
            None => PreloadFailure::NoPlace(tried),
        })
    }

    fn make_in(&mut self, job: JobId, place: &Path) -> Result<PathBuf, String> {
        let at = Linked::make(self.session.as_deref(), &job.to_string(), place, DIRECTORY)?;
        let directory = at.directory.clone();
        self.jobs.insert(job, JobFiles { at, copies: None });
        Ok(directory)
    }
}

impl Drop for Directories {
    fn drop(&mut self) {
        for files in std::mem::take(&mut self.jobs).into_values() {
            // The process ends, so nobody would get a report.
            let _ = files.at.remove();
        }
    }
}

impl Linked {
    /// Makes a directory whose name begins with `start`, and a link to it whose name ends with `link`. Without a directory for
    /// links, nobody removes what a killed process leaves.
    pub(crate) fn make(
        session: Option<&Path>,
        link: &str,
        place: &Path,
        start: &str,
    ) -> Result<Self, String> {
        let described = |error: os::Error| reason(&error);
        let number = os::random_number().map_err(described)?;
        let directory = place.join(format!("{start}{number:016x}"));
        let failed = |error: std::io::Error| {
            os::describe_errno(error.raw_os_error().unwrap_or_default()).to_owned()
        };
        let mut linked = None;
        if let Some(session) = session {
            os::make_private_dirs(session).map_err(described)?;
            let path = session.join(format!("{LINK}{link}"));
            symlink(&directory, &path).map_err(failed)?;
            linked = Some(path);
        }
        let made = Self {
            directory,
            link: linked,
        };
        match fs::DirBuilder::new().mode(0o700).create(&made.directory) {
            Ok(()) => Ok(made),
            Err(error) => {
                made.unlink();
                Err(failed(error))
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.directory
    }

    /// Removes the directory. If that fails, the link to it stays, so that the end of this process tries again.
    pub(crate) fn remove(self) -> Result<(), os::Error> {
        os::remove_tree(&self.directory)?;
        self.unlink();
        Ok(())
    }

    fn unlink(self) {
        if let Some(link) = self.link {
            os::remove_files(&[link]);
        }
    }
}

/// Makes a link beside a record to the directory of a boot frame, so that the frame does not outlive a launcher that is killed.
pub(crate) fn link_frame(session: &Path, number: u32, directory: &Path) -> Result<(), String> {
    os::make_private_dirs(session).map_err(|error| error.to_string())?;
    let link = session.join(format!("{LINK}{FRAME_DIRECTORY}{number}"));
    symlink(directory, link)
        .map_err(|error| os::describe_errno(error.raw_os_error().unwrap_or_default()).to_owned())
}

/// Removes old boot frames from their usual place. A frame can remain if its process is killed, has no record, and no daemon has
/// read the frame.
pub(crate) fn remove_old_frames(parent: &Path) {
    let (now, _) = os::wall_clock();
    let is_old = |path: &Path| {
        is_ours(path)
            && fs::symlink_metadata(path).is_ok_and(|found| found.mtime() + FRAME_AGE < now)
    };
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries {
        let path = entry.path();
        if is_old(&path) {
            // An error leaves it to the next start.
            let _ = os::remove_private_dir(&path);
        }
    }
}

/// Removes the directories to which the links beside a record lead.
pub(crate) fn remove_linked(session: &Path) {
    let entries = fs::read_dir(session).into_iter().flatten().flatten();
    for entry in entries {
        let is_link = entry.file_name().as_bytes().starts_with(LINK.as_bytes());
        if let Some(directory) = is_link.then(|| fs::read_link(entry.path()).ok()).flatten()
            && is_ours(&directory)
        {
            os::remove_files(&[directory]);
        }
    }
}

/// Returns true if this is a directory for preloaded files, a boot frame or recorded calls of our user.
fn is_ours(directory: &Path) -> bool {
    let name = directory.file_name().unwrap_or_default();
    directory.is_absolute()
        && [DIRECTORY, FRAME_DIRECTORY, CALLS_DIRECTORY]
            .iter()
            .any(|start| name.as_bytes().starts_with(start.as_bytes()))
        && fs::symlink_metadata(directory)
            .is_ok_and(|found| found.is_dir() && found.uid() == os::effective_uid())
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "tests make the files that are looked at"
)]
mod tests {
    use std::time::SystemTime;

    use dvm::proto::StoredFile;

    use super::*;

    const JOB: JobId = JobId(1);

    fn make(place: Option<&Path>, bytes: u64) -> FileAct {
        FileAct::Make {
            place: place.map(Into::into),
            bytes,
            has_programs: false,
        }
    }

    /// Makes directories of a process with this session directory, with one file in the directory of a job.
    fn filled(root: &Path) -> (Directories, PathBuf) {
        let session = root.join("session");
        let mut directories = Directories::new(Some(session), &Surroundings::default());
        let made = directories.act(JOB, make(Some(root), 3)).unwrap().unwrap();
        let file = StoredFile {
            name: "d/a".into(),
            mode: 0o600,
        };
        for act in [
            FileAct::Create { files: vec![file] },
            FileAct::Write {
                bytes: Bytes::from_static(b"abc"),
            },
            FileAct::Close,
        ] {
            assert_eq!(directories.act(JOB, act), Some(Ok(None)));
        }
        (directories, made.unwrap().into())
    }

    #[test]
    fn a_directory_goes_with_its_job_or_its_process() {
        let root = tempfile::tempdir().unwrap();
        let (mut directories, made) = filled(root.path());
        assert_eq!(fs::read(made.join("d/a")).unwrap(), b"abc");
        assert_eq!(directories.act(JOB, FileAct::Remove), None);
        assert!(!made.exists());
        assert_eq!(
            fs::read_dir(root.path().join("session")).unwrap().count(),
            0
        );
        let (directories, made) = filled(root.path());
        drop(directories);
        assert!(!made.exists());
    }

    /// The kernel removes no file of `/proc`, whoever asks.
    #[test]
    fn what_cannot_be_removed_is_reported_once() {
        let root = tempfile::tempdir().unwrap();
        let (mut directories, made) = filled(root.path());
        let files = directories.jobs.get_mut(&JOB).unwrap();
        files.at.directory = "/proc/self/fdinfo".into();
        let link = files.at.link.clone().unwrap();
        assert_eq!(directories.act(JOB, FileAct::Remove), None);
        let error = directories.take_unremoved().unwrap().to_string();
        assert!(error.contains("`/proc/self/fdinfo`"), "{error}");
        assert!(
            link.is_symlink(),
            "the end of the process finds the directory"
        );
        assert!(directories.take_unremoved().is_none());
        assert!(made.exists());
    }

    #[test]
    fn what_a_killed_process_leaves_is_found_by_its_link() {
        let root = tempfile::tempdir().unwrap();
        let session = root.path().join("session");
        let (directories, made) = filled(root.path());
        std::mem::forget(directories);
        // Links that lead elsewhere are not followed.
        let other = root.path().join("other");
        fs::create_dir(&other).unwrap();
        symlink(&other, session.join("preload.7")).unwrap();
        symlink(
            root.path().join("rally-preload.none"),
            session.join("preload.8"),
        )
        .unwrap();
        let frame = root.path().join("boot-1");
        fs::create_dir(&frame).unwrap();
        fs::write(frame.join("frame"), b"secret").unwrap();
        link_frame(&session, 0, &frame).unwrap();
        remove_linked(&session);
        assert!(!made.exists() && other.exists() && !frame.exists());
    }

    #[test]
    fn old_frames_are_removed() {
        let root = tempfile::tempdir().unwrap();
        let made = ["boot-old", "boot-new", "other"].map(|name| {
            let path = root.path().join(name);
            fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
            path
        });
        let [old, new, other] = &made;
        for path in [old, other] {
            let directory = fs::File::open(path).unwrap();
            directory.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        }
        remove_old_frames(root.path());
        assert!(!old.exists() && new.exists() && other.exists());
    }

    #[test]
    fn a_place_is_refused_with_the_reason() {
        let root = tempfile::tempdir().unwrap();
        let mut directories = Directories::new(None, &Surroundings::default());
        let none = root.path().join("none");
        let why = "No such file or directory".to_owned();
        assert_eq!(
            directories.act(JOB, make(Some(&none), 1)),
            Some(Err(PreloadFailure::NoPlace(vec![(none.into(), why)])))
        );
        let failure = directories.act(JOB, make(Some(root.path()), u64::MAX));
        assert!(
            matches!(&failure, Some(Err(PreloadFailure::NoRoom { directory, needed: u64::MAX, free }))
                if Path::new(directory) == root.path() && *free > 0),
            "{failure:?}"
        );
    }

    #[test]
    fn files_are_read_in_order_and_from_the_start_again() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("f");
        fs::write(&path, "abcdef").unwrap();
        let mut reader = FileReader::default();
        let mut read = |offset| reader.read(path.clone().into(), offset, 4);
        assert_eq!(read(0).as_deref(), Ok(&b"abcd"[..]));
        assert_eq!(read(4).as_deref(), Ok(&b"ef"[..]));
        assert_eq!(read(0).as_deref(), Ok(&b"abcd"[..]));
        fs::remove_file(&path).unwrap();
        assert_eq!(read(4).as_deref(), Ok(&b"ef"[..]), "the open file is used");
        assert_eq!(read(0), Err("No such file or directory".to_owned()));
    }
}
