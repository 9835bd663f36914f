//! Directories for the files of living controllers. Each belongs to our user alone, and has a well-known name unless
//! another user has taken that.
//!
//! | parent | directory |
//! |---|---|
//! | `$XDG_RUNTIME_DIR`, if it is ours | `rally` |
//! | `/dev/shm`, `$TMPDIR`, `/tmp`, where everybody may write | `rally-UID`, or `rally-UID.RANDOM` if that is not ours alone |
//!
//! The first usable directory is used. A command that looks for jobs searches all directories that are ours: another user
//! can take a well-known name, but cannot make a directory that we own. A start looks for random names in the first shared
//! parent. It searches other parents only if the well-known name is taken, because `/tmp` may hold very many files.

use std::{
    ffi::OsString,
    fmt, fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

use dvm::proto::LastCall;

/// The variables of a process's environment that name places for files, and GPUs.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// `XDG_RUNTIME_DIR`.
    pub runtime: Option<PathBuf>,
    /// `TMPDIR`.
    pub temporary: Option<PathBuf>,
    /// Returns the environment of Slurm's commands, `NAME=value`. `None` if allocations that a killed controller has left stay.
    pub for_slurm: Option<fn() -> Vec<OsString>>,
    /// What records calls of MPI; `None` if there is nothing for this processor.
    pub recorder: Option<RecorderParts>,
    /// `CUDA_VISIBLE_DEVICES`.
    pub nvidia_gpus: Option<String>,
    /// `ROCR_VISIBLE_DEVICES`.
    pub amd_gpus: Option<String>,
}

/// What records calls of MPI, and reads what was recorded.
#[derive(Clone, Copy, Debug)]
pub struct RecorderParts {
    /// The shared library for the ranks.
    pub library: &'static [u8],
    /// Reads the last call from the region that a process has left; `None` if it cannot be read, or MPI was finalized.
    pub last_call: fn(&[u8]) -> Option<LastCall>,
}

/// The parent directories that may hold our files.
#[derive(Debug)]
pub(super) struct Places {
    /// A parent in which nobody else may write.
    own: Option<PathBuf>,
    /// The equivalent of `own` in a login session of the same user. A start without one (`su`, `cron`) uses another place.
    session: Option<PathBuf>,
    shared: Vec<PathBuf>,
    user: u32,
}

/// A directory to try in one of the parents.
#[derive(Clone, Copy, Debug)]
enum Candidate<'a> {
    Own(&'a Path),
    Shared(&'a Path),
    /// A directory with a random name in a shared parent.
    Random(&'a Path),
}

/// Why a directory was skipped.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unusable {
    /// Another user owns it, and only they can remove it.
    Foreign {
        path: PathBuf,
        owner: u32,
    },
    /// We own it, but its mode lets other users in.
    Open {
        path: PathBuf,
        mode: u32,
    },
    NoDirectory(PathBuf),
    /// The system does not let us make one. This is normal if another place works.
    System {
        path: PathBuf,
        errno: i32,
    },
}

impl Unusable {
    /// Returns true if the user should do something about it.
    pub(super) const fn is_odd(&self) -> bool {
        !matches!(self, Self::System { .. })
    }
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign { path, owner } => {
                write!(f, "`{}` belongs to user {owner}", path.display())
            }
            Self::Open { path, mode } => write!(
                f,
                "`{}` is open to other users (mode {mode:o}); `chmod 700` closes it",
                path.display()
            ),
            Self::NoDirectory(path) => write!(f, "`{}` is not a directory", path.display()),
            Self::System { path, errno } => write!(
                f,
                "cannot make `{}`: {}",
                path.display(),
                os::describe_errno(*errno)
            ),
        }
    }
}

impl Places {
    /// Returns the parents for a process with these variables.
    pub(super) fn of(surroundings: &Surroundings) -> Self {
        let user = os::effective_uid();
        let usable = |path: &PathBuf| path.is_absolute() && path.is_dir();
        let is_ours = |path: &PathBuf| {
            usable(path) && fs::metadata(path).is_ok_and(|metadata| metadata.uid() == user)
        };
        let own = surroundings.runtime.clone().filter(is_ours);
        let session = Some(PathBuf::from(format!("/run/user/{user}")))
            .filter(|path| own.as_ref() != Some(path) && is_ours(path));
        let mut shared: Vec<PathBuf> = Vec::new();
        let named = [
            Some(PathBuf::from("/dev/shm")),
            surroundings.temporary.clone(),
            Some(PathBuf::from("/tmp")),
        ];
        for path in named.into_iter().flatten().filter(usable) {
            if !shared.contains(&path) {
                shared.push(path);
            }
        }
        Self {
            own,
            session,
            shared,
            user,
        }
    }

    /// Calls `use_it` with one directory after the other until it succeeds. Returns its result, and the reasons why earlier
    /// directories were skipped: at most one for each candidate.
    pub(super) fn first<T>(
        &self,
        mut use_it: impl FnMut(&dyn Fn() -> Result<PathBuf, Unusable>) -> Result<T, Unusable>,
    ) -> (Option<T>, Vec<Unusable>) {
        let own = self.own.iter().map(|parent| Candidate::Own(parent));
        let shared = self
            .shared
            .iter()
            .flat_map(|parent| [Candidate::Shared(parent), Candidate::Random(parent)]);
        let mut passed = Vec::new();
        for candidate in own.chain(shared) {
            match use_it(&|| self.make(candidate)) {
                Ok(found) => return (Some(found), passed),
                Err(why) => passed.push(why),
            }
        }
        (None, passed)
    }

    /// Makes a directory if it is missing, and checks it otherwise.
    fn make(&self, candidate: Candidate<'_>) -> Result<PathBuf, Unusable> {
        let path = match candidate {
            Candidate::Own(parent) => parent.join("rally"),
            Candidate::Shared(parent) => parent.join(self.name()),
            Candidate::Random(parent) => {
                return match self.random_named(parent).next() {
                    Some(path) => Ok(path),
                    None => os::make_private_dir(parent, &format!("{}.", self.name())).map_err(
                        |error| Unusable::System {
                            path: parent.join(format!("{}.RANDOM", self.name())),
                            errno: error.errno(),
                        },
                    ),
                };
            }
        };
        match fs::DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.check(path),
            Err(error) => Err(Unusable::System {
                path,
                errno: error.raw_os_error().unwrap_or_default(),
            }),
        }
    }

    /// Returns `path` if it is a directory that we own and no other user may enter.
    fn check(&self, path: PathBuf) -> Result<PathBuf, Unusable> {
        match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.uid() != self.user => Err(Unusable::Foreign {
                path,
                owner: metadata.uid(),
            }),
            Ok(metadata) if !metadata.is_dir() => Err(Unusable::NoDirectory(path)),
            Ok(metadata) if metadata.mode() & 0o077 != 0 => Err(Unusable::Open {
                path,
                mode: metadata.mode() & 0o777,
            }),
            Ok(_) => Ok(path),
            Err(error) => Err(Unusable::System {
                path,
                errno: error.raw_os_error().unwrap_or_default(),
            }),
        }
    }

    fn name(&self) -> String {
        format!("rally-{}", self.user)
    }

    /// Returns our directories with random names in a shared parent.
    fn random_named(&self, parent: &Path) -> impl Iterator<Item = PathBuf> {
        let prefix = format!("{}.", self.name());
        let entries = fs::read_dir(parent).into_iter().flatten().flatten();
        entries
            .filter(move |entry| {
                let name = entry.file_name();
                name.to_str().is_some_and(|name| name.starts_with(&prefix))
            })
            .filter_map(|entry| self.check(entry.path()).ok())
    }

    /// Returns every directory of ours that exists.
    pub(super) fn all(&self) -> Vec<PathBuf> {
        let mut found = self.known();
        for parent in &self.shared {
            found.extend(self.random_named(parent));
        }
        found
    }

    /// Returns the directories that a start searches: our directories with well-known names, and those with random names in
    /// some parents. These are the first shared parent, and every other one whose well-known name is taken now. So `/tmp`
    /// is rarely listed.
    pub(super) fn likely(&self) -> Vec<PathBuf> {
        let mut found = self.known();
        for (number, parent) in self.shared.iter().enumerate() {
            let name = parent.join(self.name());
            let is_taken = fs::symlink_metadata(&name).is_ok() && !found.contains(&name);
            // The first shared parent is in memory and has few entries. Its well-known name may have been taken earlier and
            // be free again.
            if number == 0 || is_taken {
                found.extend(self.random_named(parent));
            }
        }
        found
    }

    fn known(&self) -> Vec<PathBuf> {
        let own = self.own.iter().chain(&self.session);
        let shared = self.shared.iter().map(|parent| parent.join(self.name()));
        own.map(|parent| parent.join("rally"))
            .chain(shared)
            .filter_map(|path| self.check(path).ok())
            .collect()
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "tests make the files that are looked at"
)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    struct World {
        root: tempfile::TempDir,
        places: Places,
    }

    fn world() -> World {
        let root = tempfile::tempdir().unwrap();
        let parent = |name: &str| {
            let path = root.path().join(name);
            fs::create_dir(&path).unwrap();
            path
        };
        let places = Places {
            own: Some(parent("own")),
            session: Some(root.path().join("session")),
            shared: vec![parent("shm"), parent("tmp")],
            user: os::effective_uid(),
        };
        World { root, places }
    }

    impl World {
        /// Returns the directory that is used and why others were skipped, without the parts that vary between runs.
        fn used(&self) -> String {
            let (used, passed) = self.places.first(|make| make());
            let path = used.map_or_else(|| "nothing".to_owned(), |path| path.display().to_string());
            let mut said: Vec<String> = passed.iter().map(ToString::to_string).collect();
            said.insert(0, path);
            let user = self.places.user;
            said.join("\n")
                .replace(&self.root.path().display().to_string(), "")
                .replace(&format!("rally-{user}"), "rally-UID")
        }

        fn path(&self, name: &str) -> PathBuf {
            self.root.path().join(name)
        }

        fn shared_name(&self, parent: &str) -> PathBuf {
            self.path(parent).join(self.places.name())
        }
    }

    fn directory(path: &Path, mode: u32) {
        fs::create_dir(path).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn the_first_that_is_ours_alone_is_used() {
        let world = world();
        assert_eq!(world.used(), "/own/rally");
        // The second time, the directory exists.
        assert_eq!(world.used(), "/own/rally");
        assert_eq!(world.places.all().len(), 1);
        fs::set_permissions(world.path("own/rally"), fs::Permissions::from_mode(0o750)).unwrap();
        insta::assert_snapshot!(world.used(), @"
        /shm/rally-UID
        `/own/rally` is open to other users (mode 750); `chmod 700` closes it
        ");
        assert_eq!(world.places.all(), [world.shared_name("shm")]);
    }

    #[test]
    fn a_taken_name_is_got_round_and_what_is_used_instead_is_found_again() {
        let world = world();
        fs::write(world.path("own/rally"), "").unwrap();
        directory(&world.path("elsewhere"), 0o700);
        symlink(world.path("elsewhere"), world.shared_name("shm")).unwrap();
        let used = world.used();
        let (path, said) = used.split_once('\n').unwrap();
        assert!(path.starts_with("/shm/rally-UID."), "{used}");
        insta::assert_snapshot!(said, @"
        `/own/rally` is not a directory
        `/shm/rally-UID` is not a directory
        ");
        // The next start uses the same directory.
        assert_eq!(world.used(), used);
        let all = world.places.all();
        assert_eq!(all.len(), 1);
        assert!(all[0].starts_with(world.path("shm")), "{all:?}");
        // A start finds it too, as long as the well-known name is taken.
        assert_eq!(world.places.likely(), all);
        // A directory with a random name is ignored if others may enter it.
        directory(
            &world.path("shm").join(format!("{}.0", world.places.name())),
            0o755,
        );
        assert_eq!(world.places.all(), all);
    }

    #[test]
    fn what_a_login_session_uses_is_found_without_one() {
        let mut world = world();
        directory(&world.path("session"), 0o700);
        directory(&world.path("session/rally"), 0o700);
        assert_eq!(world.places.all(), [world.path("session/rally")]);
        assert_eq!(world.places.likely(), [world.path("session/rally")]);
        world.places.own = None;
        assert!(world.used().starts_with("/shm/rally-UID"), "never made");
    }

    #[test]
    fn what_somebody_else_has_made_is_theirs() {
        let ours = os::effective_uid();
        let mut world = world();
        // Pretend to be another user, so that the directories we make belong to a foreign one.
        world.places.user = ours + 1;
        fs::remove_dir(world.path("own")).unwrap();
        directory(&world.shared_name("shm"), 0o700);
        let used = world.used();
        assert!(used.starts_with("/shm/rally-UID."), "{used}");
        assert!(
            used.ends_with(&format!("`/shm/rally-UID` belongs to user {ours}")),
            "{used}"
        );
        assert_eq!(world.places.all(), Vec::<PathBuf>::new());
    }

    #[test]
    fn where_nothing_can_be_made_there_is_no_place() {
        let mut world = world();
        for parent in ["own", "shm", "tmp"] {
            fs::remove_dir(world.path(parent)).unwrap();
        }
        world.places.shared.truncate(1);
        insta::assert_snapshot!(world.used(), @"
        nothing
        cannot make `/own/rally`: No such file or directory
        cannot make `/shm/rally-UID`: No such file or directory
        cannot make `/shm/rally-UID.RANDOM`: No such file or directory
        ");
        assert_eq!(world.places.all(), Vec::<PathBuf>::new());
    }
}
