//! The address of a server as text: `nspace.rank;tcp4://127.0.0.1:PORT` (docs/formats/pmix.md, section 2).

use std::{
    fmt,
    net::{SocketAddr, SocketAddrV4, SocketAddrV6},
    str::FromStr,
};

use crate::{
    Error,
    value::{Nspace, PmixRank, Proc},
};

/// Name and address of a server.
///
/// ```
/// use pmix::client::ServerUri;
/// let uri: ServerUri = "prte-n1-7@0.0;tcp4://127.0.0.1:4711".parse()?;
/// assert_eq!(uri.server().to_string(), "prte-n1-7@0:0");
/// assert_eq!(uri.address().port(), 4711);
/// assert_eq!(uri.to_string(), "prte-n1-7@0.0;tcp4://127.0.0.1:4711");
/// # Ok::<(), pmix::client::UriError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerUri {
    server: Proc,
    address: SocketAddr,
}

/// Reason why a text is not the address of a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UriError {
    /// The text is not a name and an address, separated by one `;`.
    #[error("it is not a name, `;` and an address")]
    Parts,
    /// The name of the server is not a namespace, `.` and a rank.
    #[error("the name of the server is not a namespace, `.` and a rank")]
    Server,
    /// The namespace is longer than PMIx allows, or contains a NUL.
    #[error("the namespace of the server is none: {0}")]
    Nspace(Error),
    /// The namespace contains `.` or `;`, where some libraries would split it.
    #[error("the namespace of a server must not contain `.` or `;`")]
    Separator,
    /// The address is not `tcp4://A.B.C.D:PORT` or `tcp6://[ADDRESS]:PORT`.
    #[error("the address is neither `tcp4://A.B.C.D:PORT` nor `tcp6://[ADDRESS]:PORT`")]
    Address,
}

impl ServerUri {
    /// Creates the address of one of our servers, for environments and files.
    ///
    /// # Errors
    /// [`UriError::Separator`]: libraries differ in where they split the text, so a name that contains a separator is refused.
    pub fn new(server: Proc, address: SocketAddr) -> Result<Self, UriError> {
        if server
            .nspace
            .as_bytes()
            .iter()
            .any(|byte| b".;".contains(byte))
        {
            return Err(UriError::Separator);
        }
        Ok(Self { server, address })
    }

    /// Returns the name of the server.
    #[must_use]
    pub const fn server(&self) -> &Proc {
        &self.server
    }

    /// Returns the address to connect to.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl FromStr for ServerUri {
    type Err = UriError;

    /// Parses the text. The name of the namespace ends at the last `.`, because namespaces of other servers contain host names.
    fn from_str(text: &str) -> Result<Self, UriError> {
        let (name, address) = text.split_once(';').ok_or(UriError::Parts)?;
        if address.contains(';') {
            return Err(UriError::Parts);
        }
        let (nspace, rank) = name.rsplit_once('.').ok_or(UriError::Server)?;
        if nspace.is_empty() {
            return Err(UriError::Server);
        }
        let rank = rank.parse().map_err(|_| UriError::Server)?;
        let address = if let Some(rest) = address.strip_prefix("tcp4://") {
            rest.parse().map(|address: SocketAddrV4| address.into())
        } else if let Some(rest) = address.strip_prefix("tcp6://") {
            rest.parse().map(|address: SocketAddrV6| address.into())
        } else {
            return Err(UriError::Address);
        };
        Ok(Self {
            server: Proc {
                nspace: Nspace::from_text(nspace).map_err(UriError::Nspace)?,
                rank: PmixRank(rank),
            },
            address: address.map_err(|_| UriError::Address)?,
        })
    }
}

impl fmt::Display for ServerUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transport = match self.address {
            SocketAddr::V4(_) => "tcp4",
            SocketAddr::V6(_) => "tcp6",
        };
        // The rank is written as a number, even where `PMIX_RANK` has a symbolic value.
        write!(
            f,
            "{}.{};{transport}://{}",
            self.server.nspace, self.server.rank.0, self.address
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_and_written_alike() {
        for text in [
            "prte-n1-7@0.0;tcp4://127.0.0.1:4711",
            "n1.cluster.example-7.3;tcp4://10.0.0.1:1",
            "s.4294967294;tcp6://[::1]:65535",
        ] {
            assert_eq!(text.parse::<ServerUri>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn the_name_ends_at_the_last_dot() {
        let uri: ServerUri = "n1.cluster-7.3;tcp4://10.0.0.1:1".parse().unwrap();
        assert_eq!(uri.server().to_string(), "n1.cluster-7:3");
    }

    #[test]
    fn what_is_no_uri_is_refused() {
        use UriError::{Address, Parts, Separator, Server};
        for (text, why) in [
            ("", Parts),
            ("s.0", Parts),
            ("s.0;tcp4://127.0.0.1:1;more", Parts),
            ("s;tcp4://127.0.0.1:1", Server),
            (".0;tcp4://127.0.0.1:1", Server),
            ("s.x;tcp4://127.0.0.1:1", Server),
            ("s.-1;tcp4://127.0.0.1:1", Server),
            ("s.4294967296;tcp4://127.0.0.1:1", Server),
            ("s.0;usock:/tmp/x", Address),
            ("s.0;tcp4://127.0.0.1", Address),
            ("s.0;tcp4://127.0.0.1:65536", Address),
            ("s.0;tcp4://[::1]:1", Address),
            ("s.0;tcp6://127.0.0.1:1", Address),
            ("s.0;tcp4://localhost:1", Address),
        ] {
            assert_eq!(text.parse::<ServerUri>(), Err(why), "{text}");
        }
        let long = format!("{}.0;tcp4://127.0.0.1:1", "n".repeat(256));
        assert!(matches!(
            long.parse::<ServerUri>(),
            Err(UriError::Nspace(_))
        ));
        for name in ["a.b", "a;b"] {
            let server = Proc::all(Nspace::from_text(name).unwrap());
            let address = "127.0.0.1:1".parse().unwrap();
            assert_eq!(ServerUri::new(server, address), Err(Separator), "{name}");
        }
    }
}
