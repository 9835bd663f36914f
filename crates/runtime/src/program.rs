//! The file of this program, which all nodes of a session run.

use std::{
    cell::OnceCell,
    ffi::OsStr,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use object::Object as _;
use os::Mapped;
use sha2::{Digest as _, Sha256};

/// Our own executable. It stays readable under this name if somebody has replaced or removed it.
const OWN_FILE: &str = "/proc/self/exe";
/// Number of digits of an identity in the name of a build.
const DIGITS: usize = 16;
/// Number of digits of a hash.
const HASH_DIGITS: usize = 64;

/// Our executable, its identity, and the hash of its content.
#[derive(Debug)]
pub(crate) struct OwnFile {
    file: Mapped,
    hash: OnceCell<String>,
    modified: Option<i64>,
}

impl OwnFile {
    /// Maps our executable.
    pub(crate) fn open() -> Result<Self, os::Error> {
        Ok(Self {
            file: Mapped::open(Path::new(OWN_FILE))?,
            hash: OnceCell::new(),
            modified: fs::metadata(OWN_FILE).ok().map(|facts| facts.mtime()),
        })
    }

    /// Returns the path of our executable, for messages.
    pub(crate) fn path() -> PathBuf {
        fs::read_link(OWN_FILE).unwrap_or_else(|_| OWN_FILE.into())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.file.as_ref()
    }

    pub(crate) fn size(&self) -> u64 {
        self.bytes().len() as u64
    }

    /// Returns the SHA-256 of the content, as hexadecimal digits. The first call takes about 1 ms for each MB.
    pub(crate) fn hash(&self) -> &str {
        self.hash
            .get_or_init(|| digits(&Sha256::digest(&self.file)))
    }

    /// Returns the time of the last change, in seconds since 1970.
    pub(crate) fn modified(&self) -> Option<i64> {
        self.modified
    }

    /// Returns true if this file is a copy that was stored under the hash of its content (`dvm::bootstrap`), and was changed
    /// since.
    pub(crate) fn is_damaged_copy(&self) -> bool {
        let path = fs::read_link(OWN_FILE).ok();
        let directory = path.as_deref().and_then(Path::parent);
        let name = directory.and_then(Path::file_name).and_then(OsStr::to_str);
        let is_hash = |name: &&str| {
            name.len() == HASH_DIGITS && name.bytes().all(|it| it.is_ascii_hexdigit())
        };
        name.filter(is_hash).is_some_and(|name| name != self.hash())
    }

    /// Returns the name of this build. Two builds have different names, even if their version is the same: the name has the
    /// identity that the linker has computed, or else the hash.
    pub(crate) fn build(&self, version: &str) -> String {
        let linked = self.linked_identity();
        let identity = linked.as_deref().unwrap_or_else(|| self.hash());
        let identity = identity.get(..DIGITS).unwrap_or(identity);
        format!("{version} ({identity})")
    }

    fn linked_identity(&self) -> Option<String> {
        let elf = object::File::parse(self.bytes()).ok()?;
        elf.build_id().ok()?.map(digits)
    }
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_is_named_by_its_linker_or_its_hash() {
        let ours = OwnFile::open().unwrap();
        let linked = ours.linked_identity();
        assert_eq!(ours.hash.get(), None, "it takes long");
        let identity = linked.unwrap_or_else(|| ours.hash().to_owned());
        let build = format!("rally 1 ({})", &identity[..DIGITS]);
        assert_eq!(ours.build("rally 1"), build);
        assert!(!ours.is_damaged_copy());
    }
}
