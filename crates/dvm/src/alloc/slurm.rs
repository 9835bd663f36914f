//! Allocation of a Slurm batch script, from the environment: `SLURM_JOB_NODELIST`, and a count for each node.

use base::HostList;

use super::{AllocatedNode, Allocation, LocalNames, Problem, Slots, error::AllocError};

/// Variables that describe the allocation of a Slurm job.
#[derive(Clone, Copy, Debug)]
pub struct SlurmTexts<'a> {
    /// Host list, such as `n[0-2],m1`.
    pub nodes: &'a str,
    /// Number of tasks or CPUs on each node, such as `4,1(x2)`; `None` if Slurm does not set it.
    pub counts: Option<Text<'a>>,
    /// Slurm's name for the node on which this process runs; `None` if Slurm does not set it.
    pub here: Option<&'a str>,
}

/// Text with the name of its variable, for messages.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    pub text: &'a str,
    pub origin: &'a str,
}

/// Reads the nodes of an allocation with their slots. The node on which this process runs is listed by our own host
/// name.
///
/// # Errors
///
/// [`AllocError`] with the name of the invalid variable.
pub fn slurm(texts: &SlurmTexts<'_>, names: &LocalNames) -> Result<Allocation, AllocError> {
    let at_nodes = |problem: Problem| problem.at("`SLURM_JOB_NODELIST`", None);
    let nodes: HostList = texts
        .nodes
        .parse()
        .map_err(|error| at_nodes(Problem::HostList(error)))?;
    if nodes.is_empty() {
        return Err(at_nodes(Problem::Empty));
    }
    let mut counts = Vec::new();
    if let Some(Text { text, origin }) = texts.counts {
        for item in text.split(',') {
            let (slots, times) = repeated(item).ok_or_else(|| {
                let word = item.to_owned();
                Problem::BadCount { word }.at(origin, None)
            })?;
            // Ignore counts beyond the number of nodes.
            let times = usize::try_from(times).unwrap_or(usize::MAX);
            let room = nodes.len().saturating_sub(counts.len());
            counts.extend(std::iter::repeat_n(slots, times.min(room)));
        }
    }
    let mut counts = counts.into_iter();
    let nodes = nodes.iter().map(|name| {
        let name = if texts.here == Some(name) {
            names.host()
        } else {
            names.canonical(name)
        };
        AllocatedNode {
            name: name.to_owned(),
            slots: counts.next().map_or(Slots::Implicit, Slots::Explicit),
            max_slots: None,
            granted: None,
        }
    });
    Ok(Allocation {
        nodes: nodes.collect(),
    })
}

/// Reads `4` or `1(x2)`: a count, and the number of nodes that have it.
fn repeated(item: &str) -> Option<(u32, u32)> {
    let (count, times) = match item.split_once("(x") {
        Some((count, rest)) => (count, rest.strip_suffix(')')?.parse().ok()?),
        None => (item, 1),
    };
    let count = count.trim().parse().ok().filter(|count| *count > 0)?;
    Some((count, times))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(nodes: &str, counts: &str, here: Option<&str>) -> String {
        let texts = SlurmTexts {
            nodes,
            counts: (!counts.is_empty()).then_some(Text {
                text: counts,
                origin: "`SLURM_TASKS_PER_NODE`",
            }),
            here,
        };
        match slurm(&texts, &LocalNames::new("node7.cluster")) {
            Ok(allocation) => {
                let node = |node: &AllocatedNode| match node.slots {
                    Slots::Implicit => node.name.clone(),
                    Slots::Explicit(slots) => format!("{}:{slots}", node.name),
                };
                allocation
                    .nodes
                    .iter()
                    .map(node)
                    .collect::<Vec<_>>()
                    .join(" ")
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn allocations_are_read() {
        let cases = [
            ("node7", "3", None, "node7.cluster:3"),
            (
                "node[6-8]",
                "4,1(x2)",
                None,
                "node6:4 node7.cluster:1 node8:1",
            ),
            ("sn[0-1]", "2(x2)", Some("sn1"), "sn0:2 node7.cluster:2"),
            ("a,b", "2", None, "a:2 b"),
            ("a", "2,3(x4000000000)", None, "a:2"),
            ("a", "", None, "a"),
        ];
        for (nodes, counts, here, expected) in cases {
            assert_eq!(read(nodes, counts, here), expected, "{nodes} {counts}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        insta::assert_snapshot!(read("a", "2(y3)", None), @"cannot read the nodes of `SLURM_TASKS_PER_NODE`: `2(y3)` is not a number of slots");
        insta::assert_snapshot!(read("a", "0", None), @"cannot read the nodes of `SLURM_TASKS_PER_NODE`: `0` is not a number of slots");
        insta::assert_snapshot!(read("a[1-", "1", None), @"cannot read the nodes of `SLURM_JOB_NODELIST`: the `[` at position 1 is never closed");
    }
}
