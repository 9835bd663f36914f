//! The files by which PMIx tools find a server: `docs/formats/pmix.md`, section 4.1.
//!
//! libpmix searches all directories below that for temporary files, and takes the files whose names begin with
//! `pmix.HOST.tool`. Ours are in a directory of their own, which only our user can enter.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

use dvm::proto::FrontId;
use os::Pid;
use pmix::{client::ServerUri, handshake::Owner, server::LIBRARY_VERSION, tool::Rendezvous};

use crate::{Doors, place::Surroundings};

/// What the names of our directories begin with.
const PREFIX: &str = "rally-tools-";

/// The files of a server; removed on drop.
#[derive(Debug)]
pub(crate) struct RendezvousFiles {
    directory: PathBuf,
    /// What all names of the files begin with.
    stem: String,
    /// Fronts by whose process numbers the server is found too.
    fronts: BTreeMap<FrontId, PathBuf>,
    content: String,
    /// Files that the environment asks for, elsewhere.
    elsewhere: Vec<PathBuf>,
}

/// Why a file that the environment asks for is not written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotWritten {
    #[error("{} names a server that runs, with the process {_1}", _0.display())]
    Taken(PathBuf, Pid),
    #[error("{} exists, and is no file for tools", _0.display())]
    Other(PathBuf),
    #[error(transparent)]
    Os(#[from] os::Error),
}

/// A server, as tools find it.
pub(crate) struct Found<'a> {
    /// Name of its host, as its environment variables have it.
    pub(crate) host: &'a str,
    pub(crate) uri: ServerUri,
    /// The process that a user knows.
    pub(crate) pid: Pid,
}

impl RendezvousFiles {
    /// Writes the files.
    pub(crate) fn create(
        surroundings: &Surroundings,
        found: &Found<'_>,
    ) -> Result<Self, os::Error> {
        let parent = surroundings.temporary.as_deref();
        let parent = parent.unwrap_or_else(|| Path::new("/tmp"));
        let directory = os::make_private_dir(parent, PREFIX)?;
        let host = found.host.split('.').next().unwrap_or_default();
        let mut files = Self {
            directory,
            stem: format!("pmix.{host}.tool"),
            fronts: BTreeMap::new(),
            content: String::new(),
            elsewhere: Vec::new(),
        };
        let content = Rendezvous {
            uri: found.uri.clone(),
            version: Some(LIBRARY_VERSION.to_owned()),
            pid: u32::try_from(found.pid.as_raw()).ok(),
            owner: Some(Owner {
                uid: os::effective_uid(),
                gid: os::effective_gid(),
            }),
            began: os::local_date(os::wall_clock().0),
        };
        files.content = content.to_string();
        os::write_private_file(
            &files.directory,
            OsStr::new(&files.stem),
            files.content.as_bytes(),
        )?;
        files.add(&found.uri.server().nspace.to_string());
        files.add(&found.pid.to_string());
        Ok(files)
    }

    /// Lets tools find the server in further ways.
    pub(crate) fn open(&mut self, doors: &Doors) -> Result<(), NotWritten> {
        for name in &doors.names {
            self.add(name);
        }
        for file in &doors.files {
            self.write(file)?;
        }
        Ok(())
    }

    /// Writes a file that the environment asks for. It replaces that of a server that has ended.
    fn write(&mut self, file: &Path) -> Result<(), NotWritten> {
        if let Ok((old, _)) = os::read_owned(file) {
            let old = Rendezvous::parse(&old).map_err(|_| NotWritten::Other(file.to_owned()))?;
            let pid = old.pid.and_then(|pid| i32::try_from(pid).ok());
            let runs = pid
                .map(Pid::from_raw)
                .filter(|pid| os::inspect(*pid).is_some());
            if let Some(pid) = runs {
                return Err(NotWritten::Taken(file.to_owned(), pid));
            }
        }
        let parent = file
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or_else(|| Path::new("."));
        let name = file.file_name().unwrap_or_default();
        os::write_private_file(parent, name, self.content.as_bytes())?;
        self.elsewhere.push(file.to_owned());
        Ok(())
    }

    /// Lets tools find the server by the process number of a front.
    pub(crate) fn add_front(&mut self, front: FrontId, pid: Pid) {
        let link = self.add(&pid.to_string());
        self.fronts.insert(front, link);
    }

    /// Forgets a front whose connection is closed.
    pub(crate) fn remove_front(&mut self, front: FrontId) {
        if let Some(link) = self.fronts.remove(&front) {
            let _ = fs::remove_file(link);
        }
    }

    fn add(&self, name: &str) -> PathBuf {
        let link = self.directory.join(format!("{}.{name}", self.stem));
        // Without it, the server is not found by this name.
        let _ = fs::hard_link(self.directory.join(&self.stem), &link);
        link
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Drop for RendezvousFiles {
    fn drop(&mut self) {
        for file in &self.elsewhere {
            let now = os::read_owned(file).map(|(content, _)| content);
            if now.is_ok_and(|content| content == self.content.as_bytes()) {
                let _ = fs::remove_file(file);
            }
        }
        os::remove_files(std::slice::from_ref(&self.directory));
    }
}

/// Removes the files of a server that was killed.
pub(crate) fn remove_left(directory: &Path) {
    let name = directory.file_name().and_then(OsStr::to_str);
    let is_ours = name.is_some_and(|name| name.starts_with(PREFIX));
    if is_ours && directory.is_absolute() && os::is_private_dir(directory) {
        os::remove_files(&[directory.to_owned()]);
    }
}
