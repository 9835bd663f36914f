//! How a tool starts a launcher that connects back to it (docs/formats/indirect-launch.md, section 3).

use crate::{
    client::ServerUri,
    server::LIBRARY_VERSION,
    value::{Nspace, PmixRank, Proc},
};

/// Returns the name of a tool with a server of its own, as libpmix chooses it. The address of a server cannot contain the dot of a
/// host's full name.
#[must_use]
pub fn tool_name(host: &str, pid: u32) -> Proc {
    let host = host.split('.').next().unwrap_or_default();
    // A name of a host that is too long for a namespace is left out.
    let nspace = Nspace::from_text(&format!("{host}:{pid}"))
        .or_else(|_| Nspace::from_text(&format!("tool:{pid}")));
    Proc {
        nspace: nspace.unwrap_or_default(),
        rank: PmixRank(0),
    }
}

/// Returns the name of the launcher number `number` of a tool.
#[must_use]
pub fn launcher_name(tool: &Proc, number: u32) -> Proc {
    let name = format!("{}:{number}", tool.nspace);
    Proc {
        nspace: Nspace::from_text(&name).unwrap_or_else(|_| tool.nspace.clone()),
        rank: PmixRank(0),
    }
}

/// Returns the variables by which a launcher finds the tool that starts it. `keepalive` is the number of a descriptor of the
/// launcher: the write end of a pipe whose read end the tool keeps while it lives.
#[must_use]
pub fn launcher_variables(
    tool: &ServerUri,
    launcher: &Proc,
    keepalive: i32,
) -> [(&'static str, String); 9] {
    [
        ("PMIX_LAUNCHER_RNDZ_URI", tool.to_string()),
        ("PMIX_SERVER_NSPACE", launcher.nspace.to_string()),
        ("PMIX_SERVER_RANK", launcher.rank.to_string()),
        ("PMIX_NAMESPACE", launcher.nspace.to_string()),
        ("PMIX_RANK", launcher.rank.to_string()),
        ("PMIX_KEEPALIVE_PIPE", keepalive.to_string()),
        ("PMIX_VERSION", LIBRARY_VERSION.to_owned()),
        ("PMIX_SECURITY_MODE", "native".to_owned()),
        (
            "PMIX_BFROP_BUFFER_TYPE",
            "PMIX_BFROP_BUFFER_NON_DESC".to_owned(),
        ),
    ]
}
