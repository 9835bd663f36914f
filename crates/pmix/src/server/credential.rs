//! Credentials that a process can show to another process, and their validation.

use super::{ReplyTo, Server, info};
use crate::{
    keys,
    message::Answer,
    value::{Status, Value},
};

impl Server {
    /// Answers with a credential of the `native` security module: user and group id. Such a credential proves nothing
    /// by itself. These ids are correct because the kernel reported the owner of the connection.
    pub(super) fn on_get_credential(&mut self, reply: ReplyTo) {
        let mut credential = Vec::with_capacity(8);
        credential.extend_from_slice(&self.config.uid.to_ne_bytes());
        credential.extend_from_slice(&self.config.gid.to_ne_bytes());
        let infos = info(keys::CRED_TYPE, Value::text("native"));
        self.answer(
            reply,
            &Answer::Credential {
                credential: credential.into(),
                infos: infos.into_iter().collect(),
            },
        );
    }

    pub(super) fn on_validate_credential(&mut self, reply: ReplyTo, credential: &[u8]) {
        let valid = credential
            .first_chunk::<4>()
            .is_some_and(|uid| u32::from_ne_bytes(*uid) == self.config.uid)
            && credential.len() == 8;
        if !valid {
            self.status(reply, Status::INVALID_CRED);
            return;
        }
        let infos = info(keys::USER_ID, Value::Uint32(self.config.uid));
        self.answer(
            reply,
            &Answer::Infos {
                status: Status::SUCCESS,
                infos: infos.into_iter().collect(),
            },
        );
    }
}
