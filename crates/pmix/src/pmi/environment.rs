//! The environment of a rank, and the mapping of ranks to nodes for MPICH.

use base::{NodeId, Rank};

use crate::pmi::MAX_VALUE;

/// Additional variable for ranks of a job that was spawned by PMI: it makes MPICH ask for the address of the spawner.
pub const SPAWNED: (&str, &str) = ("PMI_SPAWNED", "1");

/// Returns the variables that a rank needs, sorted by name. The rank's end of the connection is the open descriptor `fd`.
/// `local_rank` counts the ranks of its node, of which there are `local_size`.
///
/// MPICH 5 needs only `PMI_FD`, `PMI_RANK` and `PMI_SIZE`, and [`SPAWNED`] for spawned jobs. Hydra sets the others too, and
/// scripts read them.
#[must_use]
pub fn environment(
    rank: Rank,
    size: u32,
    local_rank: u32,
    local_size: u32,
    host_name: &str,
    fd: i32,
) -> [(&'static str, String); 6] {
    [
        ("MPI_LOCALNRANKS", local_size.to_string()),
        ("MPI_LOCALRANKID", local_rank.to_string()),
        ("PMI_FD", fd.to_string()),
        ("PMI_HOSTNAME", host_name.to_owned()),
        ("PMI_RANK", rank.to_string()),
        ("PMI_SIZE", size.to_string()),
    ]
}

/// Adjacent nodes with equal numbers of consecutive ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub first: NodeId,
    pub nodes: u32,
    /// Number of ranks of each node.
    pub ranks: u32,
}

impl Run {
    /// Returns the run of one rank on this node.
    #[must_use]
    pub const fn of(node: NodeId) -> Self {
        Self {
            first: node,
            nodes: 1,
            ranks: 1,
        }
    }

    /// Returns true if these ranks are on one node, and the next ones are on the same.
    fn is_followed_there(&self, next: &Self) -> bool {
        self.nodes == 1 && next.nodes == 1 && self.first == next.first
    }

    /// Returns true if the next ranks continue the pattern of these.
    fn is_continued(&self, next: &Self) -> bool {
        self.ranks == next.ranks && self.first.0.checked_add(self.nodes) == Some(next.first.0)
    }
}

/// Returns the value of `PMI_process_mapping`, in the form `(vector,(first node,nodes,ranks per node),...)`. `runs` lists the
/// nodes of all ranks, starting with rank 0. Runs that continue each other are joined.
///
/// `None` when the text would be longer than a value may be. The key is then left out, and MPICH itself finds out which ranks
/// share a node, with one more put and barrier.
#[must_use]
pub fn process_mapping(runs: impl IntoIterator<Item = Run>) -> Option<String> {
    let mut text = String::from("(vector");
    let mut say = |run: Run| {
        let Run {
            first,
            nodes,
            ranks,
        } = run;
        text.push_str(&format!(",({first},{nodes},{ranks})"));
        text.len() < MAX_VALUE
    };
    // The last two runs are not complete: ranks may be added to the last one, and it may then continue the one before.
    let (mut whole, mut last): (Option<Run>, Option<Run>) = (None, None);
    for run in runs {
        if let Some(last) = &mut last
            && last.is_followed_there(&run)
        {
            last.ranks = last.ranks.saturating_add(run.ranks);
            continue;
        }
        let Some(done) = last.replace(run) else {
            continue;
        };
        match &mut whole {
            Some(whole) if whole.is_continued(&done) => {
                whole.nodes = whole.nodes.saturating_add(done.nodes);
            }
            _ => {
                if whole.replace(done).is_some_and(|whole| !say(whole)) {
                    return None;
                }
            }
        }
    }
    if let (Some(whole), Some(done)) = (&mut whole, last)
        && whole.is_continued(&done)
    {
        whole.nodes = whole.nodes.saturating_add(done.nodes);
        last = None;
    }
    for run in whole.into_iter().chain(last) {
        if !say(run) {
            return None;
        }
    }
    text.push(')');
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(nodes: &[u32]) -> String {
        process_mapping(nodes.iter().copied().map(NodeId).map(Run::of)).unwrap()
    }

    #[test]
    fn blocks_of_nodes_are_joined() {
        assert_eq!(mapping(&[0, 0]), "(vector,(0,1,2))");
        assert_eq!(mapping(&[0, 0, 1, 1, 2, 2]), "(vector,(0,3,2))");
        assert_eq!(mapping(&[0, 1, 0, 1]), "(vector,(0,2,1),(0,2,1))");
        assert_eq!(mapping(&[0, 0, 1, 3]), "(vector,(0,1,2),(1,1,1),(3,1,1))");
        assert_eq!(mapping(&[]), "(vector)");
    }

    #[test]
    fn a_mapping_too_long_for_a_value_is_left_out() {
        assert_eq!(
            process_mapping((0..1000).map(|rank| Run::of(NodeId(rank * 2)))),
            None
        );
    }

    #[test]
    fn variables_of_a_rank() {
        let text: Vec<String> = environment(Rank(5), 8, 1, 4, "n1", 7)
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        insta::assert_snapshot!(text.join("\n"), @r"
        MPI_LOCALNRANKS=4
        MPI_LOCALRANKID=1
        PMI_FD=7
        PMI_HOSTNAME=n1
        PMI_RANK=5
        PMI_SIZE=8
        ");
    }
}
