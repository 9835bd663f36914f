//! The values that ranks put: for the whole job, and for their node.

use std::collections::BTreeMap;

use base::Rank;

use super::To;
use crate::pmi::{Bound, Dialect, Error, answer::check_field};

/// Beginning of the keys that are ours.
const RESERVED: &str = "PMI_";

/// Why a value was not stored.
#[derive(Debug)]
pub(super) enum Refusal {
    Reserved,
    Bound(Error),
}

impl Refusal {
    /// In one word.
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
    /// What local ranks have put since the last fence. A map, so that a rank that puts the same key without end stays
    /// within the bound of `kvs`, of which this repeats a part.
    puts: BTreeMap<String, String>,
    /// What is known on this node only.
    node: BTreeMap<String, String>,
    /// Who waits for what to be known on this node. Bounded by what one client may wait for.
    wanted: BTreeMap<String, Vec<To>>,
}

impl Stored {
    pub(super) fn get(&self, key: &str) -> Option<String> {
        self.kvs.get(key).cloned()
    }

    pub(super) fn node_attribute(&self, key: &str) -> Option<String> {
        self.node.get(key).cloned()
    }

    /// A rank's value for all. The last value of a key is the one that counts.
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

    /// A rank's value for its node; gives those who have waited for it.
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

    /// Keeps whoever waits for a value of its node.
    pub(super) fn want(&mut self, key: String, to: To) {
        self.wanted.entry(key).or_default().push(to);
    }

    /// Who waits, once for each value.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> impl Iterator<Item = Rank> {
        self.wanted.values().flatten().map(|to| to.client)
    }

    /// A rank waits for nothing any more.
    pub(super) fn forget(&mut self, rank: Rank) {
        self.wanted.retain(|_, waiting| {
            waiting.retain(|to| to.client != rank);
            !waiting.is_empty()
        });
    }

    /// What was put since the last fence of all.
    pub(super) fn take_puts(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.puts).into_iter().collect()
    }

    /// The same, without an end to it: some ranks only will have seen it.
    pub(super) fn puts(&self) -> Vec<(String, String)> {
        self.puts
            .iter()
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }

    /// One entry, whoever has put it.
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
