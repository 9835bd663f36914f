//! The nodes of the machine, with the indexes by which the session knows them.

use base::NodeId;
use dvm::machine::{NodeLine, NodeStanding};
use ptp::{Input, NodeFacts};

/// What the client knows of the nodes. A node never loses its index.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    known: Vec<NodeFacts>,
    /// Names by the machine's numbers, for messages about jobs.
    names: Vec<String>,
}

const fn is_up(standing: &NodeStanding) -> bool {
    match standing {
        NodeStanding::Up | NodeStanding::Drained | NodeStanding::Leaving => true,
        NodeStanding::Starting | NodeStanding::Bad(_) => false,
    }
}

impl Nodes {
    /// Takes the machine's list, and returns what is new in it.
    pub(super) fn update(&mut self, lines: Vec<NodeLine>) -> Vec<Input<'static>> {
        let mut news = Vec::new();
        let mut is_listed = vec![false; self.known.len()];
        for line in lines {
            let is_up = is_up(&line.state);
            let index = self.known.iter().position(|node| node.name == line.name);
            let index = index.unwrap_or(self.known.len());
            self.learn_name(line.number, &line.name);
            match self.known.get_mut(index) {
                Some(node) => {
                    if let Some(is_listed) = is_listed.get_mut(index) {
                        *is_listed = true;
                    }
                    if node.is_up == is_up {
                        continue;
                    }
                    node.is_up = is_up;
                }
                None => self.known.push(NodeFacts {
                    name: line.name,
                    is_up,
                }),
            }
            news.extend(self.changed(index));
        }
        for (index, _) in is_listed.iter().enumerate().filter(|(_, it)| !**it) {
            if std::mem::take(&mut self.known[index].is_up) {
                news.extend(self.changed(index));
            }
        }
        news
    }

    fn changed(&self, index: usize) -> Option<Input<'static>> {
        let node = self.known.get(index)?.clone();
        Some(Input::Node(u32::try_from(index).ok()?, node))
    }

    fn learn_name(&mut self, number: NodeId, name: &str) {
        let at = number.0 as usize;
        if self.names.len() <= at {
            self.names.resize(at + 1, String::new());
        }
        name.clone_into(&mut self.names[at]);
    }

    pub(super) fn facts(&self) -> &[NodeFacts] {
        &self.known
    }

    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the index of a node with processes. A node that is new is told before them.
    pub(super) fn index_of(&mut self, name: &str, told: &mut Vec<Input<'static>>) -> u32 {
        let known = self.known.iter().position(|node| node.name == name);
        let index = known.unwrap_or(self.known.len());
        if known.is_none() {
            self.known.push(NodeFacts {
                name: name.to_owned(),
                is_up: true,
            });
            told.extend(self.changed(index));
        }
        u32::try_from(index).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(number: u32, name: &str, state: NodeStanding) -> NodeLine {
        NodeLine {
            name: name.to_owned(),
            number: NodeId(number),
            state,
            slots: 1,
            free: 1,
            resources: Default::default(),
            jobs: Vec::new(),
        }
    }

    /// Returns the indexes, names and states of what is new.
    fn update(nodes: &mut Nodes, lines: Vec<NodeLine>) -> String {
        let news = nodes.update(lines).into_iter().map(|input| match input {
            Input::Node(index, node) => format!("{index} {} {}", node.name, node.is_up),
            other => panic!("{other:?}"),
        });
        news.collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn a_node_keeps_its_index() {
        use NodeStanding::{Bad, Up};
        let mut nodes = Nodes::default();
        let all = || vec![line(0, "n0", Up), line(1, "n1", Up)];
        assert_eq!(update(&mut nodes, all()), "0 n0 true, 1 n1 true");
        assert_eq!(update(&mut nodes, all()), "");
        // n0 is lost, n1 was dropped, and n2 is new.
        let lines = vec![line(0, "n0", Bad("gone".into())), line(2, "n2", Up)];
        assert_eq!(
            update(&mut nodes, lines),
            "0 n0 false, 2 n2 true, 1 n1 false"
        );
        // A new daemon has another number.
        let lines = vec![line(3, "n0", Up), line(2, "n2", Up)];
        assert_eq!(update(&mut nodes, lines), "0 n0 true");
        assert_eq!(nodes.names(), ["n0", "n1", "n2", "n0"]);
        let mut told = Vec::new();
        assert_eq!(nodes.index_of("n2", &mut told), 2);
        assert!(told.is_empty());
        assert_eq!(nodes.index_of("n7", &mut told), 3);
        assert!(matches!(&told[..], [Input::Node(3, node)] if node.name == "n7" && node.is_up));
    }
}
