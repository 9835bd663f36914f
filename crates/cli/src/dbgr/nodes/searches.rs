//! The searches on other nodes: which nodes have to answer, and what they have found.
//!
//! A node that does not answer in time is *late* until it does. It gets no other search before: so an answer belongs to the
//! last search that the node got, and searches do not queue at a node that is stuck.

use std::collections::{BTreeMap, BTreeSet};

use base::{NodeId, Time};
use debug::{proto::Search, target::OnNode};

/// The current search, and what remains of earlier ones.
#[derive(Debug, Default)]
pub(super) struct Searches {
    /// The current search of each node.
    current: BTreeMap<NodeId, Search>,
    /// The searches without an answer.
    asked: BTreeMap<NodeId, Search>,
    /// When each node has to answer.
    due: BTreeMap<NodeId, Time>,
    /// The nodes that did not answer in time.
    late: BTreeSet<NodeId>,
    /// The answers to the current search.
    found: BTreeMap<NodeId, OnNode>,
    /// The last answer of each node, with its search.
    last: BTreeMap<NodeId, (Search, OnNode)>,
}

impl Searches {
    /// Begins another search.
    pub(super) fn begin(&mut self, searches: BTreeMap<NodeId, Search>) {
        self.current = searches;
        self.found.clear();
    }

    /// Returns the search to send to a node, which has to answer until `due`. `None` if the node is late.
    pub(super) fn ask(&mut self, node: NodeId, due: Time) -> Option<Search> {
        if self.late.contains(&node) {
            return None;
        }
        let search = self.current.get(&node)?.clone();
        self.asked.insert(node, search.clone());
        self.due.insert(node, due);
        Some(search)
    }

    /// Handles the answer of a node.
    pub(super) fn answer(&mut self, node: NodeId, found: OnNode) {
        let Some(search) = self.asked.remove(&node) else {
            return;
        };
        // An answer that comes too late is about an earlier search.
        if !self.late.remove(&node) {
            self.found.insert(node, found.clone());
        }
        self.last.insert(node, (search, found));
    }

    /// Returns until when to wait for a node that was asked; `None` if there is nothing to wait for.
    pub(super) fn due(&self, node: NodeId) -> Option<Time> {
        let is_open = self.asked.contains_key(&node) && !self.late.contains(&node);
        self.due.get(&node).copied().filter(|_| is_open)
    }

    /// Returns true if a node did not answer in time, and has not answered since.
    pub(super) fn is_late(&self, node: NodeId) -> bool {
        self.late.contains(&node)
    }

    /// Ends the search, and returns what these nodes have found. For a late node, this is what it has found last, if that was
    /// the same search: its processes are missing, but they are not over.
    pub(super) fn end(&mut self, nodes: impl Iterator<Item = NodeId>) -> BTreeMap<NodeId, OnNode> {
        let mut found = std::mem::take(&mut self.found);
        for node in nodes {
            if !self.asked.contains_key(&node) {
                continue;
            }
            self.late.insert(node);
            if let Some((search, last)) = self.last.get(&node)
                && self.current.get(&node) == Some(search)
            {
                found.insert(node, last.clone());
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use debug::target::Wish;

    use super::*;

    const FAST: NodeId = NodeId(1);
    const SLOW: NodeId = NodeId(2);
    const DUE: Time = Time::from_nanos(9);

    fn named(name: &str) -> Search {
        Search::Wish(Wish::Name(name.to_owned()))
    }

    fn found(job: &str) -> OnNode {
        OnNode {
            job: Some(job.to_owned()),
            ..OnNode::default()
        }
    }

    /// Begins a search, and returns the nodes that get it.
    fn begin(searches: &mut Searches, name: &str) -> Vec<NodeId> {
        searches.begin([FAST, SLOW].map(|node| (node, named(name))).into());
        let nodes = [FAST, SLOW].into_iter();
        nodes
            .filter(|node| searches.ask(*node, DUE) == Some(named(name)))
            .collect()
    }

    /// Ends a search, and returns what was found, as text.
    fn end(searches: &mut Searches) -> Vec<String> {
        let found = searches.end([FAST, SLOW].into_iter()).into_iter();
        let text = |(node, found): (NodeId, OnNode)| format!("{node}: {}", found.job.unwrap());
        found.map(text).collect()
    }

    #[test]
    fn a_node_that_was_late_once_is_asked_again_after_its_answer() {
        let mut searches = Searches::default();
        assert_eq!(begin(&mut searches, "a"), [FAST, SLOW]);
        searches.answer(FAST, found("first"));
        assert_eq!((searches.due(FAST), searches.due(SLOW)), (None, Some(DUE)));
        assert_eq!(end(&mut searches), ["1: first"]);
        assert!(searches.is_late(SLOW) && !searches.is_late(FAST));
        // The answer to the first search is no answer to the second one.
        assert_eq!(begin(&mut searches, "b"), [FAST]);
        assert_eq!(searches.due(SLOW), None);
        searches.answer(SLOW, found("first"));
        searches.answer(FAST, found("second"));
        assert!(!searches.is_late(SLOW));
        assert_eq!(end(&mut searches), ["1: second"]);
        assert!(!searches.is_late(SLOW));
        assert_eq!(begin(&mut searches, "b"), [FAST, SLOW]);
        searches.answer(SLOW, found("third"));
        searches.answer(FAST, found("third"));
        assert_eq!(end(&mut searches), ["1: third", "2: third"]);
    }

    #[test]
    fn a_late_node_keeps_what_it_had_if_the_search_is_the_same() {
        let mut searches = Searches::default();
        begin(&mut searches, "a");
        searches.answer(FAST, found("first"));
        searches.answer(SLOW, found("first"));
        assert_eq!(end(&mut searches), ["1: first", "2: first"]);
        for _ in 0..2 {
            begin(&mut searches, "a");
            searches.answer(FAST, found("second"));
            assert_eq!(end(&mut searches), ["1: second", "2: first"]);
            assert!(searches.is_late(SLOW));
        }
        begin(&mut searches, "b");
        searches.answer(FAST, found("third"));
        assert_eq!(end(&mut searches), ["1: third"]);
    }

    #[test]
    fn an_answer_without_a_question_is_none() {
        let mut searches = Searches::default();
        searches.answer(SLOW, found("first"));
        begin(&mut searches, "a");
        searches.answer(FAST, found("first"));
        searches.answer(FAST, found("second"));
        assert_eq!(end(&mut searches), ["1: first"]);
    }
}
