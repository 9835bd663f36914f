//! Checks of the answers to get and lookup.

use base::{ProcId, Time};
use pmix::{
    client::Done,
    server::MISSING_KEY_DELAY,
    value::{Proc, Status, Value},
};

use super::{super::Ledger, SLACK, proc_id};
use crate::script::{Lookup, value_of};

impl Ledger {
    pub(super) fn on_got(
        &self,
        now: Time,
        asked: Time,
        by: ProcId,
        of: &Proc,
        key: &str,
        result: &Result<Done, Status>,
    ) -> Option<String> {
        let whose = format!("`{key}` of {of}");
        if key.starts_with("pmix") {
            let Ok(Done::Value(value)) = result else {
                return Some(format!("does not get {whose}: {result:?}"));
            };
            let wrong = self.facts.one(of, key, value);
            return wrong.map(|wrong| format!("is told that {wrong}"));
        }
        let id = proc_id(of)?;
        let committed = self.pmix.committed.get(&(id, key.to_owned()));
        match (result, committed) {
            (Ok(Done::Value(value)), Some(_)) => {
                let is_it = *value == Value::text(&value_of(of, key));
                (!is_it).then(|| format!("gets for {whose}: {value}"))
            }
            (Ok(Done::Value(value)), None) => {
                Some(format!("gets {whose}, which was not committed: {value}"))
            }
            (Err(Status::NOT_FOUND), Some(Some(since))) if *since <= asked => {
                Some(format!("does not get {whose}, which was committed"))
            }
            (Err(Status::NOT_FOUND), _) => {
                let gone = self.died.contains_key(&id);
                let early = now.since(asked) < MISSING_KEY_DELAY;
                (!gone && early).then(|| format!("does not get {whose}, who may commit it yet"))
            }
            // The keys of a proc on a lost node are lost too, unless the node of the caller already had them. The loss and
            // the keys may arrive in one moment, in either order.
            (Err(Status::LOST_CONNECTION), _) if self.is_on_lost_node(id) => {
                let node = self.facts.node_of(by);
                let here = node.and_then(|node| {
                    let key = (node, id, key.to_owned());
                    self.pmix.brought.get(&key).copied()
                });
                let is_here =
                    here.is_some_and(|since| since <= asked || since + SLACK + self.slack < now);
                is_here.then(|| format!("does not get {whose}, which its node has"))
            }
            (result, _) => Some(format!("asks for {whose} and is answered {result:?}")),
        }
    }

    pub(super) fn is_on_lost_node(&self, proc: ProcId) -> bool {
        let node = self.facts.node_of(proc);
        node.is_some_and(|node| self.lost_nodes.contains_key(&node))
    }

    pub(super) fn on_found(
        &self,
        now: Time,
        asked: Time,
        of: &Proc,
        lookup: &Lookup,
        result: &Result<Done, Status>,
    ) -> Option<String> {
        let service = &lookup.service;
        let published = self.pmix.published.get(service);
        let lasting = published.filter(|published| !published.is_withdrawn);
        let since = lasting.and_then(|published| published.since);
        match result {
            Ok(Done::Found(found)) => {
                let [one] = &found[..] else {
                    return Some(format!("looks up `{service}` and finds {found:?}"));
                };
                let right = one.proc == *of
                    && one.value == Value::text(&value_of(of, service))
                    && published.is_some_and(|published| proc_id(of) == Some(published.by));
                (!right).then(|| format!("looks up `{service}` of {of} and finds {one:?}"))
            }
            Err(Status::NOT_FOUND) if lookup.wait.is_none() => {
                let was_there = since.is_some_and(|since| since <= asked);
                was_there.then(|| format!("does not find `{service}`, which {of} has published"))
            }
            Err(Status::TIMEOUT) if let Some(wait) = lookup.wait => {
                let late = asked + wait + SLACK + self.slack;
                if now < asked + wait {
                    return Some(format!("waits for `{service}` less than it wants to"));
                }
                if now > late {
                    return Some(format!("waits for `{service}` longer than it wants to"));
                }
                let was_there = since.is_some_and(|since| since + self.slack < asked + wait);
                was_there.then(|| format!("does not find `{service}`, which {of} has published"))
            }
            result => Some(format!("looks up `{service}` and is answered {result:?}")),
        }
    }
}
