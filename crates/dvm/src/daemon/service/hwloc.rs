//! The topology of a node in hwloc's XML format, version 2.
//!
//! With this document, libpmix does not discover the topology when a process initializes, which costs 10 ms of CPU time
//! per process. The document has the packages, NUMA nodes, caches, cores and hardware threads, and which CPUs we may
//! use. It has no sizes and no devices. `lstopo -i` can read it.

use std::fmt::Write as _;

use base::{CpuSet, Level, Topology};

/// The levels of normal objects from the outermost to the innermost, with hwloc's names and its mandatory attributes
/// for caches.
const LEVELS: [(Level, &str, &str); 6] = [
    (Level::Package, "Package", ""),
    (
        Level::L3,
        "L3Cache",
        r#" depth="3" cache_size="0" cache_linesize="0" cache_associativity="0" cache_type="0""#,
    ),
    (
        Level::L2,
        "L2Cache",
        r#" depth="2" cache_size="0" cache_linesize="0" cache_associativity="0" cache_type="0""#,
    ),
    (
        Level::L1,
        "L1Cache",
        r#" depth="1" cache_size="0" cache_linesize="0" cache_associativity="0" cache_type="1""#,
    ),
    (Level::Core, "Core", ""),
    (Level::Pu, "PU", ""),
];

/// Maximum length of a host name in the document, in characters.
const HOST_MAX: usize = 255;

/// Returns the XML document for a topology.
pub(super) fn xml(topology: &Topology, host: &str) -> String {
    let mut all = CpuSet::new();
    for pu in topology.pus() {
        all.insert(pu.os_index);
    }
    let usable = topology.allowed().intersection(&all);
    let mut nodes = topology.identified(Level::Numa);
    if nodes.is_empty() {
        // hwloc requires at least one NUMA node.
        nodes.push((0, usable.clone()));
    }
    let mut nodeset = CpuSet::new();
    for (id, _) in &nodes {
        nodeset.insert(*id);
    }
    for id in topology.memory_only() {
        nodeset.insert(*id);
    }
    let mut writer = Writer {
        text: String::from(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology version=\"2.0\">\n",
        ),
        next: 2,
        objects: levels(topology, &nodes),
        homeless: nodes.clone(),
        nodes,
    };
    let (cpus, complete, memory) = (mask(&usable), mask(&all), mask(&nodeset));
    let _ = writeln!(
        writer.text,
        "<object type=\"Machine\" os_index=\"0\" cpuset=\"{cpus}\" complete_cpuset=\"{complete}\" allowed_cpuset=\"{cpus}\" \
         nodeset=\"{memory}\" complete_nodeset=\"{memory}\" allowed_nodeset=\"{memory}\" gp_index=\"1\">\n\
         <info name=\"Backend\" value=\"Linux\"/>\n<info name=\"HostName\" value=\"{}\"/>",
        escaped(host),
    );
    for id in topology.memory_only() {
        writer.memory(*id, &CpuSet::new());
    }
    writer.level(0, &usable);
    // Like hwloc, attach memory to the package if one has the same CPUs, and otherwise to the machine.
    writer.memory_of(&usable);
    writer.text.push_str("</object>\n</topology>\n");
    writer.text
}

/// The objects of one level: hwloc's name, additional attributes, and the index and CPUs of each object.
type Objects = (&'static str, &'static str, Vec<(u32, CpuSet)>);

/// Returns the levels that exist in this topology. In hwloc, memory is a child of an object with the same CPUs.
/// A NUMA node gets a group of its own if no other object has its CPU set.
fn levels(topology: &Topology, nodes: &[(u32, CpuSet)]) -> Vec<Objects> {
    let mut levels: Vec<Objects> = LEVELS
        .iter()
        .map(|(level, name, more)| (*name, *more, topology.identified(*level)))
        .filter(|(_, _, objects)| !objects.is_empty())
        .collect();
    let whole = topology.allowed();
    let has_place = |cpus: &CpuSet| {
        cpus == whole
            || levels
                .iter()
                .any(|(_, _, objects)| objects.iter().any(|(_, object)| object == cpus))
    };
    let groups: Vec<(u32, CpuSet)> = nodes
        .iter()
        .filter(|(_, cpus)| !has_place(cpus))
        .cloned()
        .collect();
    if !groups.is_empty() {
        let outside =
            |(_, object): &(u32, CpuSet)| groups.iter().any(|(_, group)| object.is_subset(group));
        // Insert the groups outside the first level that has an object inside a group.
        let at = levels
            .iter()
            .position(|(_, _, objects)| objects.iter().any(outside))
            .unwrap_or(levels.len());
        levels.insert(at, ("Group", " kind=\"0\" subkind=\"0\"", groups));
    }
    levels
}

struct Writer {
    text: String,
    /// Number of the next object; hwloc requires it to be unique.
    next: u32,
    objects: Vec<Objects>,
    nodes: Vec<(u32, CpuSet)>,
    /// NUMA nodes that are not yet written.
    homeless: Vec<(u32, CpuSet)>,
}

impl Writer {
    /// Writes the objects of a level that lie within the given CPUs, with the levels below it.
    fn level(&mut self, level: usize, within: &CpuSet) {
        let Some((name, more, objects)) = self.objects.get(level) else {
            return;
        };
        let (name, more) = (*name, *more);
        let inside: Vec<(u32, CpuSet)> = objects
            .iter()
            .filter(|(_, cpus)| cpus.is_subset(within))
            .cloned()
            .collect();
        let mut rest = within.clone();
        for (id, cpus) in inside {
            rest = rest.difference(&cpus);
            self.open(name, id, &cpus, more);
            self.memory_of(&cpus);
            self.level(level + 1, &cpus);
            self.text.push_str("</object>\n");
        }
        // Some cores of a hybrid processor have no cache at this level.
        if !rest.is_empty() {
            self.level(level + 1, &rest);
        }
    }

    /// Writes the NUMA nodes that have exactly these CPUs.
    fn memory_of(&mut self, cpus: &CpuSet) {
        let (here, later) = std::mem::take(&mut self.homeless)
            .into_iter()
            .partition(|(_, node)| node == cpus);
        self.homeless = later;
        for (id, cpus) in Vec::<(u32, CpuSet)>::into_iter(here) {
            self.memory(id, &cpus);
        }
    }

    fn memory(&mut self, id: u32, cpus: &CpuSet) {
        let (cpus, node) = (mask(cpus), mask(&CpuSet::single(id)));
        let number = self.number();
        let _ = writeln!(
            self.text,
            "<object type=\"NUMANode\" os_index=\"{id}\" cpuset=\"{cpus}\" complete_cpuset=\"{cpus}\" nodeset=\"{node}\" \
             complete_nodeset=\"{node}\" gp_index=\"{number}\" local_memory=\"0\"/>"
        );
    }

    fn open(&mut self, name: &str, id: u32, cpus: &CpuSet, more: &str) {
        let mut nodes = CpuSet::new();
        for (node, of_node) in &self.nodes {
            if !of_node.is_disjoint(cpus) {
                nodes.insert(*node);
            }
        }
        let (cpus, nodes, number) = (mask(cpus), mask(&nodes), self.number());
        let _ = writeln!(
            self.text,
            "<object type=\"{name}\" os_index=\"{id}\" cpuset=\"{cpus}\" complete_cpuset=\"{cpus}\" nodeset=\"{nodes}\" \
             complete_nodeset=\"{nodes}\" gp_index=\"{number}\"{more}>"
        );
    }

    const fn number(&mut self) -> u32 {
        let number = self.next;
        self.next += 1;
        number
    }
}

/// Formats a set of CPUs or nodes as hwloc does: words of 32 bits, the most significant first.
fn mask(set: &CpuSet) -> String {
    let mut words: Vec<u32> = Vec::new();
    for word in set.words() {
        let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
        words.push(u32::from_le_bytes([a, b, c, d]));
        words.push(u32::from_le_bytes([e, f, g, h]));
    }
    while words.len() > 1 && words.last() == Some(&0) {
        words.pop();
    }
    if words.is_empty() {
        words.push(0);
    }
    let words: Vec<String> = words
        .iter()
        .rev()
        .map(|word| format!("0x{word:08x}"))
        .collect();
    words.join(",")
}

/// Restricts text to characters that are safe in an attribute, and to [`HOST_MAX`] of them.
fn escaped(text: &str) -> String {
    text.chars()
        .filter(|character| {
            character.is_ascii_graphic() && !matches!(character, '<' | '>' | '&' | '"' | '\'')
        })
        .take(HOST_MAX)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_words_of_32_bits() {
        let mut set = CpuSet::new();
        assert_eq!(mask(&set), "0x00000000");
        set.insert(0);
        set.insert(31);
        assert_eq!(mask(&set), "0x80000001");
        set.insert(70);
        assert_eq!(mask(&set), "0x00000040,0x00000000,0x80000001");
    }

    #[test]
    fn two_cores() {
        insta::assert_snapshot!(xml(&Topology::flat(2), "n<1>"), @r#"
        <?xml version="1.0" encoding="UTF-8"?>
        <!DOCTYPE topology SYSTEM "hwloc2.dtd">
        <topology version="2.0">
        <object type="Machine" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003" allowed_cpuset="0x00000003" nodeset="0x00000001" complete_nodeset="0x00000001" allowed_nodeset="0x00000001" gp_index="1">
        <info name="Backend" value="Linux"/>
        <info name="HostName" value="n1"/>
        <object type="Package" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="2">
        <object type="NUMANode" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="3" local_memory="0"/>
        <object type="Core" os_index="0" cpuset="0x00000001" complete_cpuset="0x00000001" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="4">
        <object type="PU" os_index="0" cpuset="0x00000001" complete_cpuset="0x00000001" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="5">
        </object>
        </object>
        <object type="Core" os_index="1" cpuset="0x00000002" complete_cpuset="0x00000002" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="6">
        <object type="PU" os_index="1" cpuset="0x00000002" complete_cpuset="0x00000002" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="7">
        </object>
        </object>
        </object>
        </object>
        </topology>
        "#);
    }
}
