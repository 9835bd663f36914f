//! The serialized form of types of `pmix`, which has none itself: recordings contain them.

use pmix::server::{Conn, PeerOwner};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
#[serde(remote = "Conn")]
pub(super) struct ConnForm(u64);

#[derive(Serialize, Deserialize)]
#[serde(remote = "PeerOwner")]
pub(super) enum PeerOwnerForm {
    Uid(u32),
    Unknown,
}
