//! Allocation of a Slurm job, from the environment: `SLURM_JOB_NODELIST`, and counts for each node.

use std::collections::BTreeMap;

use base::HostList;

use super::{AllocatedNode, Allocation, LocalNames, Problem, Slots, error::AllocError};

/// Maximum number of components of a heterogeneous job; it is Slurm's own.
pub const COMPONENTS_MAX: u32 = 128;

/// Variables that describe the allocation of a Slurm job, or one component of a heterogeneous job.
#[derive(Clone, Copy, Debug)]
pub struct SlurmTexts<'a> {
    /// Host list, such as `n[0-2],m1`.
    pub nodes: Text<'a>,
    /// Number of slots of each node, such as `4,1(x2)`; `None` if Slurm does not set it.
    ///
    /// Inside a step the variable may describe the step: counts of another number of nodes are not used.
    pub counts: Option<Text<'a>>,
    /// Number of CPUs of each node that the job has; `None` if Slurm does not set it.
    pub cpus: Option<Text<'a>>,
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
    let at_nodes = |problem: Problem| problem.at(texts.nodes.origin, None);
    let nodes: HostList = texts
        .nodes
        .text
        .parse()
        .map_err(|error| at_nodes(Problem::HostList(error)))?;
    if nodes.is_empty() {
        return Err(at_nodes(Problem::Empty));
    }
    let read = |text: Option<Text<'_>>| {
        text.map(|text| expanded(text, nodes.len()))
            .transpose()
            .map(Option::unwrap_or_default)
    };
    let cpus = read(texts.cpus)?;
    let counts = read(texts.counts)?;
    let slots = if counts.len() == nodes.len() || cpus.len() != nodes.len() {
        &counts
    } else {
        &cpus
    };
    let nodes = nodes.iter().enumerate().map(|(place, name)| AllocatedNode {
        name: names.canonical(name).to_owned(),
        slots: slots
            .get(place)
            .map_or(Slots::Implicit, |count| Slots::Explicit(*count)),
        max_slots: None,
        granted: cpus.get(place).copied(),
    });
    Ok(Allocation {
        nodes: nodes.collect(),
    })
}

/// Reads the number of components of a heterogeneous job.
///
/// # Errors
///
/// It is not a number, or more than [`COMPONENTS_MAX`].
pub fn slurm_het_size(size: &Text<'_>) -> Result<u32, AllocError> {
    let count = size.text.trim().parse().ok();
    let count = count.filter(|count| *count <= COMPONENTS_MAX);
    count.ok_or_else(|| {
        let word = size.text.to_owned();
        Problem::BadCount { word }.at(size.origin, None)
    })
}

/// Joins the allocations of the components of a heterogeneous job. A node that several components have is listed once, with the
/// slots of all.
#[must_use]
pub fn slurm_components(components: impl IntoIterator<Item = Allocation>) -> Allocation {
    let mut nodes: Vec<AllocatedNode> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for node in components.into_iter().flat_map(|component| component.nodes) {
        match places
            .get(&node.name)
            .and_then(|place| nodes.get_mut(*place))
        {
            Some(known) => {
                known.slots = match (known.slots, node.slots) {
                    (Slots::Explicit(here), Slots::Explicit(more)) => {
                        Slots::Explicit(here.saturating_add(more))
                    }
                    (Slots::Implicit, slots) | (slots, Slots::Implicit) => slots,
                };
                known.granted = match (known.granted, node.granted) {
                    (Some(here), Some(more)) => Some(here.saturating_add(more)),
                    (known, other) => known.or(other),
                };
            }
            None => {
                places.insert(node.name.clone(), nodes.len());
                nodes.push(node);
            }
        }
    }
    Allocation { nodes }
}

/// Returns the counts of a text, at most one for each node.
fn expanded(Text { text, origin }: Text<'_>, nodes: usize) -> Result<Vec<u32>, AllocError> {
    let mut counts = Vec::new();
    for item in text.split(',') {
        let (count, times) = repeated(item).ok_or_else(|| {
            let word = item.to_owned();
            Problem::BadCount { word }.at(origin, None)
        })?;
        // Ignore counts beyond the number of nodes.
        let times = usize::try_from(times).unwrap_or(usize::MAX);
        let room = nodes.saturating_sub(counts.len());
        counts.extend(std::iter::repeat_n(count, times.min(room)));
    }
    Ok(counts)
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
        with_cpus(nodes, counts, "", here)
    }

    fn with_cpus(nodes: &str, counts: &str, cpus: &str, here: Option<&str>) -> String {
        let text = |text, origin| Text { text, origin };
        let texts = SlurmTexts {
            nodes: text(nodes, "`SLURM_JOB_NODELIST`"),
            counts: (!counts.is_empty()).then_some(text(counts, "`SLURM_TASKS_PER_NODE`")),
            cpus: (!cpus.is_empty()).then_some(text(cpus, "`SLURM_JOB_CPUS_PER_NODE`")),
        };
        let names = LocalNames::new("node7.cluster").with_alias(here);
        match slurm(&texts, &names) {
            Ok(allocation) => {
                let node = |node: &AllocatedNode| {
                    let slots = match node.slots {
                        Slots::Implicit => String::new(),
                        Slots::Explicit(slots) => format!(":{slots}"),
                    };
                    let granted = node.granted.map(|cpus| format!(" of {cpus}"));
                    format!("{}{slots}{}", node.name, granted.unwrap_or_default())
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
    fn the_number_of_components_is_bounded() {
        let read = |text| {
            let origin = "`SLURM_HET_SIZE`";
            slurm_het_size(&Text { text, origin }).map_err(|error| error.to_string())
        };
        assert_eq!(read("2"), Ok(2));
        for text in ["", "two", "129", "-1"] {
            assert!(
                read(text).unwrap_err().contains("`SLURM_HET_SIZE`"),
                "{text}"
            );
        }
    }

    #[test]
    fn components_are_one_allocation() {
        let component = |nodes: &[(&str, Slots, Option<u32>)]| Allocation {
            nodes: nodes
                .iter()
                .map(|&(name, slots, granted)| AllocatedNode {
                    name: name.to_owned(),
                    slots,
                    max_slots: None,
                    granted,
                })
                .collect(),
        };
        let joined = slurm_components([
            component(&[
                ("a", Slots::Explicit(2), Some(4)),
                ("b", Slots::Implicit, None),
            ]),
            component(&[
                ("c", Slots::Explicit(1), None),
                ("a", Slots::Explicit(3), Some(3)),
            ]),
            component(&[("b", Slots::Explicit(5), Some(5))]),
        ]);
        let expected = component(&[
            ("a", Slots::Explicit(5), Some(7)),
            ("b", Slots::Explicit(5), Some(5)),
            ("c", Slots::Explicit(1), None),
        ]);
        assert_eq!(joined, expected);
    }

    #[test]
    fn cpus_count_where_tasks_are_those_of_a_step() {
        let cases = [
            ("2(x2)", "4(x2)", "a:2 of 4 b:2 of 4"),
            ("1", "4,8", "a:4 of 4 b:8 of 8"),
            ("", "4(x2)", "a:4 of 4 b:4 of 4"),
            ("2(x2)", "4", "a:2 of 4 b:2"),
        ];
        for (counts, cpus, expected) in cases {
            assert_eq!(
                with_cpus("a,b", counts, cpus, None),
                expected,
                "{counts} {cpus}"
            );
        }
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        insta::assert_snapshot!(read("a", "2(y3)", None), @"cannot read the nodes of `SLURM_TASKS_PER_NODE`: `2(y3)` is not a number of slots");
        insta::assert_snapshot!(read("a", "0", None), @"cannot read the nodes of `SLURM_TASKS_PER_NODE`: `0` is not a number of slots");
        insta::assert_snapshot!(read("a[1-", "1", None), @"cannot read the nodes of `SLURM_JOB_NODELIST`: the `[` at position 1 is never closed");
    }
}
