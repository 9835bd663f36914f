//! Nodes that are named by their position: `+n1` is the second node of the allocation, `+e:2` two nodes that nothing else
//! uses. The syntax is that of Open MPI.

use super::{AllocatedNode, Collector, Problem};
use base::HostList;

/// Nodes to which relative names refer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Base<'a> {
    /// Nodes of an allocation or of a host file; `None` if there is neither.
    pub nodes: Option<&'a [AllocatedNode]>,
    /// Names of nodes that earlier texts have taken.
    pub used: &'a [String],
}

/// Nodes as a text names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Who {
    Named(HostList),
    /// Index of a node in the base.
    Nth(usize),
    /// Number of unused nodes; `None` for all of them.
    Unused(Option<usize>),
}

impl Who {
    /// Reads `+nN`, `+e` or `+eN`. `None` if the word is not a relative name.
    pub(super) fn relative(word: &str) -> Option<Result<Self, Problem>> {
        let rest = word.strip_prefix('+')?;
        let number = |digits: &str| digits.parse::<usize>().ok();
        let who = match (rest.strip_prefix('n'), rest.strip_prefix('e')) {
            (Some(digits), _) => number(digits).map(Self::Nth),
            (_, Some("")) => Some(Self::Unused(None)),
            (_, Some(digits)) => {
                let count = number(digits).filter(|count| *count > 0);
                count.map(|count| Self::Unused(Some(count)))
            }
            _ => None,
        };
        Some(who.ok_or_else(|| Problem::BadRelative {
            word: word.to_owned(),
        }))
    }

    /// Returns the names of the nodes. `collected` has the nodes that the same text has named before.
    pub(super) fn names(
        &self,
        base: Base<'_>,
        collected: Option<&Collector<'_>>,
    ) -> Result<HostList, Problem> {
        let named =
            |nodes: &[&AllocatedNode]| nodes.iter().map(|node| node.name.as_str()).collect();
        let no_base = || Problem::NoBase {
            word: self.to_string(),
        };
        match self {
            Self::Named(names) => Ok(names.clone()),
            Self::Nth(index) => {
                let nodes = base.nodes.ok_or_else(no_base)?;
                let node = nodes.get(*index).ok_or_else(|| Problem::NoSuchNode {
                    word: self.to_string(),
                    nodes: nodes.len(),
                })?;
                Ok(named(&[node]))
            }
            Self::Unused(count) => {
                let nodes = base.nodes.ok_or_else(no_base)?;
                let is_unused = |node: &&AllocatedNode| {
                    !base.used.contains(&node.name)
                        && collected.is_none_or(|all| !all.places.contains_key(&node.name))
                };
                let unused: Vec<_> = nodes.iter().filter(is_unused).collect();
                let enough = unused.get(..count.unwrap_or(unused.len()));
                match enough.filter(|nodes| !nodes.is_empty()) {
                    Some(nodes) => Ok(named(nodes)),
                    None => Err(Problem::TooFewUnused {
                        word: self.to_string(),
                        unused: unused.len(),
                    }),
                }
            }
        }
    }
}

impl std::fmt::Display for Who {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Named(names) => write!(f, "{names}"),
            Self::Nth(index) => write!(f, "+n{index}"),
            Self::Unused(None) => f.write_str("+e"),
            Self::Unused(Some(count)) => write!(f, "+e:{count}"),
        }
    }
}
