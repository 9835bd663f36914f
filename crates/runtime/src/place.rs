//! Where the files of living controllers are: directories for our user alone, under names that are known.
//!
//! | parent | directory |
//! |---|---|
//! | `$XDG_RUNTIME_DIR`, where it is ours | `rally` |
//! | `/dev/shm`, `$TMPDIR`, `/tmp`: everybody may write there | `rally-UID`, or `rally-UID.RANDOM` where that is not ours alone |
//!
//! The first that can be had is used. A command that looks for jobs looks in all of them that are ours: another user can take
//! a name that is known, but not give a directory to us. A start looks for a random name in the first shared parent, and in
//! others only where the known one is taken, because `/tmp` may hold very many files.

use std::{
    fmt, fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

/// What the environment of a process says about places for files.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// `XDG_RUNTIME_DIR`.
    pub runtime: Option<PathBuf>,
    /// `TMPDIR`.
    pub temporary: Option<PathBuf>,
}

/// The directories in which ours may be.
#[derive(Debug)]
pub(super) struct Places {
    /// Nobody else may write there.
    own: Option<PathBuf>,
    /// What `own` is for the same user in a login session. A start without one (`su`, `cron`) uses another place.
    session: Option<PathBuf>,
    shared: Vec<PathBuf>,
    user: u32,
}

/// A directory in one of the parents.
#[derive(Clone, Copy, Debug)]
enum Candidate<'a> {
    Own(&'a Path),
    Shared(&'a Path),
    /// A name of its own in a shared parent.
    Unguessed(&'a Path),
}

/// Why a directory was passed over.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unusable {
    /// Somebody else has made it, and only they can remove it.
    Foreign {
        path: PathBuf,
        owner: u32,
    },
    /// It is ours, and open to others.
    Open {
        path: PathBuf,
        mode: u32,
    },
    NoDirectory(PathBuf),
    /// The system does not let us make one. That is no news where there is another place.
    System {
        path: PathBuf,
        errno: i32,
    },
}

impl Unusable {
    /// Whether somebody should do something about it.
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
            Self::NoDirectory(path) => write!(f, "`{}` is no directory", path.display()),
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
    /// Those of a process with such surroundings.
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

    /// Gives `use_it` one directory after the other until it has found one good; what was passed over before, at most
    /// one of each parent.
    pub(super) fn first<T>(
        &self,
        mut use_it: impl FnMut(&dyn Fn() -> Result<PathBuf, Unusable>) -> Result<T, Unusable>,
    ) -> (Option<T>, Vec<Unusable>) {
        let own = self.own.iter().map(|parent| Candidate::Own(parent));
        let shared = self
            .shared
            .iter()
            .flat_map(|parent| [Candidate::Shared(parent), Candidate::Unguessed(parent)]);
        let mut passed = Vec::new();
        for candidate in own.chain(shared) {
            match use_it(&|| self.make(candidate)) {
                Ok(found) => return (Some(found), passed),
                Err(why) => passed.push(why),
            }
        }
        (None, passed)
    }

    /// Makes a directory where it is missing.
    fn make(&self, candidate: Candidate<'_>) -> Result<PathBuf, Unusable> {
        let path = match candidate {
            Candidate::Own(parent) => parent.join("rally"),
            Candidate::Shared(parent) => parent.join(self.name()),
            Candidate::Unguessed(parent) => {
                return match self.unguessed(parent).next() {
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

    /// A directory that nobody but us can have anything to do with.
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

    /// The directories of ours in a shared parent that have names of their own.
    fn unguessed(&self, parent: &Path) -> impl Iterator<Item = PathBuf> {
        let prefix = format!("{}.", self.name());
        let entries = fs::read_dir(parent).into_iter().flatten().flatten();
        entries
            .filter(move |entry| {
                let name = entry.file_name();
                name.to_str().is_some_and(|name| name.starts_with(&prefix))
            })
            .filter_map(|entry| self.check(entry.path()).ok())
    }

    /// Every directory of ours that is there.
    pub(super) fn all(&self) -> Vec<PathBuf> {
        let mut found = self.known();
        for parent in &self.shared {
            found.extend(self.unguessed(parent));
        }
        found
    }

    /// What a start looks in: the directories of ours with known names, and those with random ones in the first shared parent
    /// and in each other one where the known name is taken now. It does not list `/tmp` for nothing.
    pub(super) fn likely(&self) -> Vec<PathBuf> {
        let mut found = self.known();
        for (number, parent) in self.shared.iter().enumerate() {
            let name = parent.join(self.name());
            let is_taken = fs::symlink_metadata(&name).is_ok() && !found.contains(&name);
            // The first one is in memory and has few entries; a name that was taken there may be free again.
            if number == 0 || is_taken {
                found.extend(self.unguessed(parent));
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
        /// Which directory is used, and what is passed over for it; both without what differs from run to run.
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
        // Again: it is there now.
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
        `/own/rally` is no directory
        `/shm/rally-UID` is no directory
        ");
        // The next one uses the same.
        assert_eq!(world.used(), used);
        let all = world.places.all();
        assert_eq!(all.len(), 1);
        assert!(all[0].starts_with(world.path("shm")), "{all:?}");
        // A start finds it too, as long as the known name is taken.
        assert_eq!(world.places.likely(), all);
        // Those who squat a name cannot do so with the others.
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
        // To another user, what we make is somebody else's.
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
