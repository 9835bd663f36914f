//! The file of this program, which all nodes of a session run.

use std::{fs, os::unix::fs::MetadataExt as _, path::Path};

use os::Mapped;
use sha2::{Digest as _, Sha256};

/// Our own executable. It stays readable under this name if somebody has replaced or removed it.
const OWN_FILE: &str = "/proc/self/exe";
/// Number of digits of the hash in the name of a build.
const DIGITS: usize = 16;

/// Our executable and the hash of its content.
#[derive(Debug)]
pub(crate) struct OwnFile {
    file: Mapped,
    hash: String,
    modified: Option<i64>,
}

impl OwnFile {
    /// Maps our executable and computes its hash.
    pub(crate) fn open() -> Result<Self, os::Error> {
        let file = Mapped::open(Path::new(OWN_FILE))?;
        let digest = Sha256::digest(&file);
        let hash = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let modified = fs::metadata(OWN_FILE).ok().map(|facts| facts.mtime());
        Ok(Self {
            file,
            hash,
            modified,
        })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.file.as_ref()
    }

    pub(crate) fn size(&self) -> u64 {
        self.bytes().len() as u64
    }

    /// Returns the SHA-256 of the content, as hexadecimal digits.
    pub(crate) fn hash(&self) -> &str {
        &self.hash
    }

    /// Returns the time of the last change, in seconds since 1970.
    pub(crate) fn modified(&self) -> Option<i64> {
        self.modified
    }

    /// Returns the name of this build. Two files with different contents have different names, even if their version is the
    /// same.
    pub(crate) fn build(&self, version: &str) -> String {
        let hash = self.hash.get(..DIGITS).unwrap_or(&self.hash);
        format!("{version} ({hash})")
    }
}
