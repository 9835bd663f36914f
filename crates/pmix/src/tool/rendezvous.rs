//! The files by which tools find servers (docs/formats/pmix.md, section 4.1).
//!
//! A file has five lines: the address, the version of the server's library, its pid, its user, and its start time. Only the first
//! line is always present.

use std::{fmt, str::FromStr};

use crate::{
    client::{ServerUri, UriError, version_numbers},
    handshake::Owner,
};

/// Largest size of such a file in bytes. A larger file is rejected. Real files have about 150.
pub const MAX_RENDEZVOUS: usize = 4096;

/// Contents of a rendezvous file.
///
/// ```
/// use pmix::tool::Rendezvous;
/// let file = b"prte-n1-7@0.0;tcp4://127.0.0.1:4711\n5.0.11rc1\n7\n1000:1000\nSat Nov 21 10:00:00 2026\n\n";
/// let server = Rendezvous::parse(file)?;
/// assert_eq!(server.uri.address().port(), 4711);
/// assert_eq!(server.version_numbers(), Some([5, 0, 11]));
/// assert_eq!(server.pid, Some(7));
/// # Ok::<(), pmix::tool::RendezvousError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendezvous {
    pub uri: ServerUri,
    /// Version of the server's library. libpmix assumes version 2.0 if it is missing.
    pub version: Option<String>,
    pub pid: Option<u32>,
    /// User and group that the server claims; only the owner of the file is trusted.
    pub owner: Option<Owner>,
    /// Start time of the server, in the format of `ctime`.
    pub began: Option<String>,
}

/// Reason why a file does not name a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RendezvousError {
    /// The file is longer than [`MAX_RENDEZVOUS`].
    #[error("it is longer than {MAX_RENDEZVOUS} bytes")]
    Length,
    /// The file is not text.
    #[error("it is not text")]
    Text,
    /// The first line is not the address of a server.
    #[error("its first line names no server: {0}")]
    Uri(#[from] UriError),
}

impl Rendezvous {
    /// Parses the contents of a file, including the two-line form that `--report-uri` writes. Invalid lines after the first are
    /// treated as missing.
    ///
    /// # Errors
    /// The file is too long or not text, or its first line is not the address of a server.
    pub fn parse(content: &[u8]) -> Result<Self, RendezvousError> {
        if content.len() > MAX_RENDEZVOUS {
            return Err(RendezvousError::Length);
        }
        let text = std::str::from_utf8(content).map_err(|_| RendezvousError::Text)?;
        let mut lines = text.lines().map(str::trim);
        let uri = ServerUri::from_str(lines.next().unwrap_or_default())?;
        let mut line = || lines.next().filter(|line| !line.is_empty());
        Ok(Self {
            uri,
            version: line().map(str::to_owned),
            pid: line().and_then(|pid| pid.parse().ok()),
            owner: line().and_then(|owner| {
                let (uid, gid) = owner.split_once(':')?;
                Some(Owner {
                    uid: uid.parse().ok()?,
                    gid: gid.parse().ok()?,
                })
            }),
            began: line().map(str::to_owned),
        })
    }

    /// Returns the first three numbers of the version.
    #[must_use]
    pub fn version_numbers(&self) -> Option<[u32; 3]> {
        self.version.as_deref().and_then(version_numbers)
    }
}

impl fmt::Display for Rendezvous {
    /// Writes the contents of a file. A missing line is written as an empty one, so that later lines keep their positions.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.uri)?;
        writeln!(f, "{}", self.version.as_deref().unwrap_or_default())?;
        match self.pid {
            Some(pid) => writeln!(f, "{pid}")?,
            None => writeln!(f)?,
        }
        match self.owner {
            Some(Owner { uid, gid }) => writeln!(f, "{uid}:{gid}")?,
            None => writeln!(f)?,
        }
        writeln!(f, "{}", self.began.as_deref().unwrap_or_default())?;
        writeln!(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str =
        "daemon-n1.0;tcp4://127.0.0.1:4711\n5.0.11rc1\n7\n1000:100\nSat Nov 21 10:00:00 2026\n\n";

    #[test]
    fn a_file_is_read_and_written_alike() {
        let server = Rendezvous::parse(FILE.as_bytes()).unwrap();
        assert_eq!(
            server.owner,
            Some(Owner {
                uid: 1000,
                gid: 100
            })
        );
        assert_eq!(server.to_string(), FILE);
    }

    #[test]
    fn lines_may_be_missing_but_the_first() {
        let short = Rendezvous::parse(b"daemon-n1.0;tcp4://127.0.0.1:4711").unwrap();
        assert_eq!(short.version_numbers(), None);
        // As `--report-uri` writes it.
        let reported =
            Rendezvous::parse(b"daemon-n1.0;tcp4://127.0.0.1:4711\nv4.2.9rc1\n").unwrap();
        assert_eq!(reported.version_numbers(), Some([4, 2, 9]));
        assert_eq!(reported.pid, None);
        let odd = Rendezvous::parse(b"daemon-n1.0;tcp4://127.0.0.1:4711\n5\nx\n1:\nthen").unwrap();
        assert_eq!(odd.version_numbers(), Some([5, 0, 0]));
        assert_eq!((odd.pid, odd.owner), (None, None));
        assert_eq!(odd.began.as_deref(), Some("then"));
    }

    #[test]
    fn what_names_no_server_is_refused() {
        for content in [&b""[..], b"\n", b"5.0.11\n", b"a.0;tcp4://here:1\n"] {
            assert!(matches!(
                Rendezvous::parse(content),
                Err(RendezvousError::Uri(_))
            ));
        }
        assert_eq!(Rendezvous::parse(b"\xff"), Err(RendezvousError::Text));
        let long = vec![b'a'; MAX_RENDEZVOUS + 1];
        assert_eq!(Rendezvous::parse(&long), Err(RendezvousError::Length));
    }
}
