//! The files of a node: private directories in place of the machine's, in the mount namespace of this process.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use nix::mount::{MsFlags, mount};

/// Paths that remain visible even if they are below a covered directory, such as a checkout in `/tmp`.
#[derive(Debug)]
pub(super) struct Kept(Vec<PathBuf>);

impl Kept {
    /// Takes directories; those that do not exist are left out.
    pub(super) fn new(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        let mut paths: Vec<PathBuf> = paths
            .into_iter()
            .filter_map(|path| fs::canonicalize(path).ok())
            .collect();
        // A parent directory precedes the directories in it, so its mount does not hide theirs.
        paths.sort();
        paths.dedup();
        Self(paths)
    }

    /// Returns the kept paths below a directory, relative to it.
    fn below<'a>(&'a self, directory: &'a Path) -> impl Iterator<Item = &'a Path> {
        let relative = self
            .0
            .iter()
            .filter_map(move |path| path.strip_prefix(directory).ok());
        relative.filter(|path| !path.as_os_str().is_empty())
    }
}

/// Creates a directory with these permissions.
pub(super) fn directory(path: &Path, mode: u32) -> Result<()> {
    fs::create_dir_all(path).with_context(|| format!("cannot create `{}`", path.display()))?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    Ok(())
}

/// Mounts the directory `own` over `target`. Does nothing if there is no `target`.
pub(super) fn cover(target: &Path, own: &Path, kept: &Kept) -> Result<()> {
    let Ok(target) = fs::canonicalize(target) else {
        return Ok(());
    };
    for path in kept.below(&target) {
        let place = own.join(path);
        fs::create_dir_all(&place)?;
        bind(&target.join(path), &place)?;
    }
    bind(own, &target)
}

/// Makes a directory and everything mounted below it visible at a second path.
pub(super) fn bind(from: &Path, to: &Path) -> Result<()> {
    let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
    mount(Some(from), to, None::<&str>, flags, None::<&str>)
        .with_context(|| format!("cannot mount `{}` at `{}`", from.display(), to.display()))
}

/// Mounts a new file system of this type.
pub(super) fn fresh(kind: &str, at: &Path, options: &str) -> Result<()> {
    mount(Some(kind), at, Some(kind), MsFlags::empty(), Some(options))
        .with_context(|| format!("cannot mount a {kind} at `{}`", at.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_directory_is_mounted_before_its_children() {
        let place = tempfile::tempdir().unwrap();
        let top = fs::canonicalize(place.path()).unwrap();
        fs::create_dir_all(top.join("a/b")).unwrap();
        let paths = ["a/b", "none", "a", "a/b", ""].map(|path| top.join(path));
        let kept = Kept::new(paths);
        assert_eq!(
            kept.below(&top).collect::<Vec<_>>(),
            [Path::new("a"), Path::new("a/b")]
        );
        assert_eq!(kept.below(Path::new("/proc")).count(), 0);
    }
}
