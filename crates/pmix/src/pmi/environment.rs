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

/// Returns the value of `PMI_process_mapping`, in the form `(vector,(first node,nodes,ranks per node),...)`. `nodes` lists the
/// node of each rank, starting with rank 0.
///
/// `None` when the text would be longer than a value may be. The key is then left out, and MPICH itself finds out which ranks
/// share a node, with one more put and barrier.
#[must_use]
pub fn process_mapping(nodes: impl IntoIterator<Item = NodeId>) -> Option<String> {
    struct Block {
        first: u32,
        nodes: u32,
        ranks: u32,
    }
    /// Appends a block, or extends the last one if its nodes are adjacent and have as many ranks each.
    fn push(blocks: &mut Vec<Block>, node: u32, ranks: u32) {
        match blocks.last_mut() {
            Some(last)
                if last.ranks == ranks && last.first.checked_add(last.nodes) == Some(node) =>
            {
                last.nodes += 1
            }
            _ => blocks.push(Block {
                first: node,
                nodes: 1,
                ranks,
            }),
        }
    }

    let mut blocks = Vec::new();
    let mut run: Option<(u32, u32)> = None;
    for NodeId(node) in nodes {
        run = match run {
            Some((current, ranks)) if current == node => Some((current, ranks + 1)),
            Some((current, ranks)) => {
                push(&mut blocks, current, ranks);
                Some((node, 1))
            }
            None => Some((node, 1)),
        };
    }
    if let Some((node, ranks)) = run {
        push(&mut blocks, node, ranks);
    }

    let mut text = String::from("(vector");
    for Block {
        first,
        nodes,
        ranks,
    } in blocks
    {
        text.push_str(&format!(",({first},{nodes},{ranks})"));
        if text.len() >= MAX_VALUE {
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
        process_mapping(nodes.iter().copied().map(NodeId)).unwrap()
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
            process_mapping((0..1000).map(|rank| NodeId(rank * 2))),
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
