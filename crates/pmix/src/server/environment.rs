//! The environment variables of a PMIx client (docs/formats/pmix.md, section 2).

use std::ffi::OsString;

use crate::value::Proc;

/// Returns the address of a server, by which libraries find it.
pub(super) fn address(server: &Proc, port: u16) -> String {
    format!("{}.{};tcp4://127.0.0.1:{port}", server.nspace, server.rank)
}

/// The library version that the server claims. Client libraries only require it to be at least 4.1.
pub const LIBRARY_VERSION: &str = "5.0.11";

/// Returns the variables by which a client finds its server, which listens on `port` of the node's loopback interface.
///
/// The data store is always `hash`: the other stores share memory between a client and a server of the same library.
/// The address is given under the variable names of all versions. A library picks the newest name that it knows, and
/// derives from it the format in which it writes.
#[must_use]
pub fn environment(
    server: &Proc,
    port: u16,
    proc: &Proc,
    host: &str,
) -> [(&'static str, OsString); 10] {
    let uri = address(server, port);
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
        ("PMIX_VERSION", LIBRARY_VERSION.into()),
        ("PMIX_HOSTNAME", host.into()),
    ]
}
