//! What a process finds in its environment (docs/formats/pmix.md, section 2).

use std::ffi::OsString;

use crate::value::Proc;

/// The version that we say we are: libraries ask no more of it than that it is at least 4.1.
const VERSION: &str = "5.0.11";

/// The variables by which a process finds its server, which listens on a port of this node's loopback.
///
/// The data store is always `hash`: the others are memory that a process shares with a server of the same library. All
/// names of the address are given, and a library takes the newest that it knows, by which it also chooses how it writes.
#[must_use]
pub fn environment(
    server: &Proc,
    port: u16,
    proc: &Proc,
    host: &str,
) -> [(&'static str, OsString); 10] {
    let uri = format!("{}.{};tcp4://127.0.0.1:{port}", server.nspace, server.rank);
    [
        ("PMIX_NAMESPACE", proc.nspace.to_string().into()),
        ("PMIX_RANK", proc.rank.to_string().into()),
        ("PMIX_SERVER_URI41", uri.clone().into()),
        ("PMIX_SERVER_URI4", uri.clone().into()),
        ("PMIX_SERVER_URI3", uri.into()),
        ("PMIX_GDS_MODULE", "hash".into()),
        ("PMIX_SECURITY_MODE", "native".into()),
        (
            "PMIX_BFROP_BUFFER_TYPE",
            "PMIX_BFROP_BUFFER_NON_DESC".into(),
        ),
        ("PMIX_VERSION", VERSION.into()),
        ("PMIX_HOSTNAME", host.into()),
    ]
}
