//! The values that ranks put, for the whole job and for their node.

use std::collections::BTreeMap;

use base::Rank;

use super::To;
use crate::pmi::{Bound, Dialect, Error, answer::check_field};

/// Prefix of the keys that only the server may set.
const RESERVED: &str = "PMI_";

/// Reason why a value was not stored.
#[derive(Debug)]
pub(super) enum Refusal {
    Reserved,
    Bound(Error),
}

impl Refusal {
    /// Returns the reason in one word.
    pub(super) fn word(&self) -> String {
        match self {
            Self::Reserved => "reserved_key".to_owned(),
            Self::Bound(error) => error.word(),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Stored {
    kvs: BTreeMap<String, String>,
    /// Values that local ranks have put since the last fence, a subset of `kvs`. A map, so that a rank that repeatedly puts the
    /// same key cannot exceed the bound of `kvs`.
    puts: BTreeMap<String, String>,
    /// Attributes of this node, not visible on other nodes.
    node: BTreeMap<String, String>,
    /// The requests that wait for an attribute of this node, by key. Bounded by `MAX_WAITING` per client.
    wanted: BTreeMap<String, Vec<To>>,
}

impl Stored {
    pub(super) fn get(&self, key: &str) -> Option<String> {
        self.kvs.get(key).cloned()
    }

    pub(super) fn node_attribute(&self, key: &str) -> Option<String> {
        self.node.get(key).cloned()
    }

    /// Stores a value for all ranks. A later value for the same key replaces it.
    pub(super) fn put(
        &mut self,
        dialect: Dialect,
        key: String,
        value: String,
    ) -> Result<(), Refusal> {
        check(dialect, &key, &value)?;
        self.keep(&key, &value).map_err(Refusal::Bound)?;
        self.puts.insert(key, value);
        Ok(())
    }

    /// Stores a value for the ranks of this node and returns the requests that waited for it.
    pub(super) fn put_node(
        &mut self,
        dialect: Dialect,
        key: String,
        value: String,
    ) -> Result<Vec<To>, Refusal> {
        check(dialect, &key, &value)?;
        if !self.node.contains_key(&key) {
            Bound::Entries
                .check(self.node.len() + 1)
                .map_err(Refusal::Bound)?;
        }
        let waiting = self.wanted.remove(&key).unwrap_or_default();
        self.node.insert(key, value);
        Ok(waiting)
    }

    /// Keeps a request that waits for an attribute of this node.
    pub(super) fn want(&mut self, key: String, to: To) {
        self.wanted.entry(key).or_default().push(to);
    }

    /// Returns the waiting ranks, once per request.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> impl Iterator<Item = Rank> {
        self.wanted.values().flatten().map(|to| to.client)
    }

    /// Drops all waiting requests of a rank.
    pub(super) fn forget(&mut self, rank: Rank) {
        self.wanted.retain(|_, waiting| {
            waiting.retain(|to| to.client != rank);
            !waiting.is_empty()
        });
    }

    /// Takes the values put since the last fence of all ranks.
    pub(super) fn take_puts(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.puts).into_iter().collect()
    }

    /// Returns these values without removing them: the next fence still has to send them to ranks outside the group.
    pub(super) fn puts(&self) -> Vec<(String, String)> {
        self.puts
            .iter()
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }

    /// Stores one entry in the key-value space, from a local rank or from another node.
    pub(super) fn keep(&mut self, key: &str, value: &str) -> Result<(), Error> {
        if let Some(old) = self.kvs.get_mut(key) {
            value.clone_into(old);
            return Ok(());
        }
        Bound::Entries.check(self.kvs.len() + 1)?;
        self.kvs.insert(key.to_owned(), value.to_owned());
        Ok(())
    }
}

fn check(dialect: Dialect, key: &str, value: &str) -> Result<(), Refusal> {
    if key.starts_with(RESERVED) {
        return Err(Refusal::Reserved);
    }
    check_field(dialect, key, Bound::Key)
        .and_then(|()| check_field(dialect, value, Bound::Value))
        .map_err(Refusal::Bound)
}
