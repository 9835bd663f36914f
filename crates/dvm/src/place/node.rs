//! Placement on one node: chooses an object and PUs for each proc.
//!
//! A node is a list of *units* in logical order: cores, or PUs where the user counts hardware threads. Every object is
//! a list of units. It has room for as many procs as it has units, divided by `PE=n`. A proc takes free units from the
//! object that it is mapped to, or from the whole node. The policy binds it to those units, or to the object of the
//! wanted level that contains them.

use std::{cell::OnceCell, collections::BTreeMap};

use base::{CpuSet, Level, Pu, Topology};

use super::policy::{CpuUnit, Overload};

/// Processors of a node, counted in one unit.
pub(super) struct Machine<'a> {
    /// Allowed PUs of each unit.
    units: Vec<CpuSet>,
    /// First PU of each unit, which identifies the objects that contain the unit.
    first: Vec<&'a Pu>,
    /// Bindings that the user listed, which procs get cyclically; else empty.
    list: Vec<CpuSet>,
    /// Objects by level, computed on first use: a job needs one or two levels.
    levels: [OnceCell<Objects>; LEVELS],
}

const LEVELS: usize = Level::Pu as usize + 1;

/// Objects of one level.
pub(super) struct Objects {
    /// Units of each object.
    members: Vec<Vec<u32>>,
    /// Object of each unit.
    of: Vec<u32>,
    /// Allowed PUs of each object.
    pus: Vec<CpuSet>,
}

/// Request of one app on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Local {
    pub(super) scheme: Scheme,
    /// Number of units for each proc.
    pub(super) each: u32,
    pub(super) bind: Bind,
    /// Level by whose objects procs are numbered, if it differs from the mapped level.
    pub(super) number_by: Option<Level>,
    pub(super) overload: Overload,
    pub(super) count: u32,
}

/// Rule by which procs are dealt to the objects of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scheme {
    /// To any units, in order.
    Whole,
    /// One proc per object, round-robin.
    InTurn(Level),
    /// A fixed number of procs on the first object, then the same number on the next.
    Each(Level, u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Bind {
    None,
    /// Unbound, because other jobs use these CPUs too. Procs still get separate units while there are enough.
    Withheld,
    /// Bound to the units taken.
    Units,
    /// Bound to the object that contains the first unit taken.
    Object(Level),
    /// Bound to all usable units.
    All,
    /// Bound to the proc's entry in the node's list.
    List,
}

/// Proc on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Proc {
    /// Object that the proc is mapped to (0 if it is mapped to the node), and the number of procs mapped there before
    /// it.
    pub(super) object: u32,
    pub(super) turn: u32,
    /// Index in [`Placement::bindings`]; `None` if the proc is unbound.
    pub(super) binding: Option<u32>,
}

/// Procs of one node.
pub(super) struct Placement {
    /// Procs of each app, in the order of mapping.
    pub(super) apps: Vec<Vec<Proc>>,
    pub(super) bindings: Vec<CpuSet>,
    pub(super) fit: Fit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// Every proc has separate units.
    Fits,
    /// Some procs would share units, and the user did not allow that. No proc is bound.
    TooMany,
}

/// Returns the identity of the object of a level that contains a PU. If the node has no such object, it returns the
/// next wider one.
fn identity(pu: &Pu, level: Level) -> (Level, u32) {
    const WIDER: [Level; 7] = [
        Level::Pu,
        Level::Core,
        Level::L1,
        Level::L2,
        Level::L3,
        Level::Numa,
        Level::Package,
    ];
    let narrow = WIDER.iter().position(|wider| *wider == level);
    WIDER
        .iter()
        .skip(narrow.unwrap_or(0))
        .find_map(|wider| wider.of(pu).map(|id| (*wider, id)))
        .unwrap_or((Level::Package, pu.package))
}

/// Numbers the distinct keys in the order of their first occurrence. Returns the number of each key, and how many keys
/// are distinct.
fn group<K: Ord + Copy>(keys: impl Iterator<Item = K>) -> (Vec<u32>, u32) {
    let mut seen = BTreeMap::new();
    // Adjacent keys are mostly the same.
    let mut before: Option<(K, u32)> = None;
    let of = keys
        .map(|key| {
            let number = match before {
                Some((last, number)) if last == key => number,
                _ => {
                    let next = u32::try_from(seen.len()).unwrap_or(u32::MAX);
                    *seen.entry(key).or_insert(next)
                }
            };
            before = Some((key, number));
            number
        })
        .collect();
    (of, u32::try_from(seen.len()).unwrap_or(u32::MAX))
}

impl<'a> Machine<'a> {
    /// Returns the units of a node that are allowed, and that are in `wanted` if the user named some.
    pub(super) fn new(topology: &'a Topology, wanted: Option<&CpuSet>, unit: CpuUnit) -> Self {
        let usable = wanted.map_or_else(
            || topology.allowed().clone(),
            |wanted| topology.allowed().intersection(wanted),
        );
        let pus = topology
            .pus()
            .iter()
            .filter(|pu| usable.contains(pu.os_index))
            .collect::<Vec<_>>();
        let level = match unit {
            CpuUnit::Core => Level::Core,
            CpuUnit::Pu => Level::Pu,
        };
        let (of, count) = group(pus.iter().map(|pu| identity(pu, level)));
        let mut units = vec![CpuSet::new(); count as usize];
        let mut first = vec![None; count as usize];
        for (unit, pu) in of.into_iter().zip(&pus) {
            if let (Some(set), Some(first)) =
                (units.get_mut(unit as usize), first.get_mut(unit as usize))
            {
                set.insert(pu.os_index);
                first.get_or_insert(*pu);
            }
        }
        Self {
            units,
            first: first.into_iter().flatten().collect(),
            list: Vec::new(),
            levels: [const { OnceCell::new() }; LEVELS],
        }
    }

    /// Groups `size` adjacent objects of a level into one.
    pub(super) fn grouped(mut self, level: Level, size: u32) -> Self {
        let objects = Objects::new(level, &self.first, &self.units).grouped(size.max(1) as usize);
        self.levels[level as usize] = OnceCell::from(objects);
        self
    }

    /// Sets the list of bindings.
    pub(super) fn with_list(self, list: Vec<CpuSet>) -> Self {
        Self { list, ..self }
    }

    fn level(&self, level: Level) -> &Objects {
        self.levels[level as usize].get_or_init(|| Objects::new(level, &self.first, &self.units))
    }

    /// Returns the number of units.
    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.units.len()).unwrap_or(u32::MAX)
    }

    /// Returns the number of objects of a level.
    pub(super) fn objects(&self, level: Level) -> u32 {
        u32::try_from(self.level(level).members.len()).unwrap_or(u32::MAX)
    }

    /// Returns the number of units of the largest object of a level.
    pub(super) fn largest(&self, level: Level) -> u32 {
        let sizes = self.level(level).members.iter().map(Vec::len);
        sizes
            .max()
            .map_or(0, |size| u32::try_from(size).unwrap_or(u32::MAX))
    }

    /// Returns how many procs of `each` units fit under a scheme.
    pub(super) fn room(&self, scheme: Scheme, each: u32) -> u32 {
        if each <= 1 {
            return self.len();
        }
        let level = scheme.level(each, self);
        let Some(level) = level else {
            return self.len() / each;
        };
        self.level(level)
            .members
            .iter()
            .map(|units| u32::try_from(units.len()).unwrap_or(u32::MAX) / each)
            .sum()
    }

    pub(super) fn unit(&self, number: u32) -> Option<&CpuSet> {
        self.units.get(number as usize)
    }

    /// Returns the units of the object of a level with this logical number.
    pub(super) fn members(&self, level: Level, object: u32) -> Option<&[u32]> {
        self.level(level)
            .members
            .get(object as usize)
            .map(Vec::as_slice)
    }

    fn all(&self) -> CpuSet {
        self.units
            .iter()
            .fold(CpuSet::new(), |all, unit| all.union(unit))
    }
}

impl Objects {
    fn new(level: Level, first: &[&Pu], units: &[CpuSet]) -> Self {
        let (of, count) = group(first.iter().map(|pu| identity(pu, level)));
        let mut members = vec![Vec::new(); count as usize];
        let mut pus = vec![CpuSet::new(); count as usize];
        for ((unit, object), set) in (0..).zip(&of).zip(units) {
            if let (Some(members), Some(pus)) = (
                members.get_mut(*object as usize),
                pus.get_mut(*object as usize),
            ) {
                members.push(unit);
                *pus = pus.union(set);
            }
        }
        Self { members, of, pus }
    }

    fn grouped(self, size: usize) -> Self {
        let members = self.members.chunks(size).map(<[_]>::concat).collect();
        let pus = self
            .pus
            .chunks(size)
            .map(|sets| sets.iter().fold(CpuSet::new(), |all, set| all.union(set)));
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        Self {
            members,
            of: self.of.iter().map(|object| object / size).collect(),
            pus: pus.collect(),
        }
    }
}

impl Scheme {
    /// Returns the level of the objects that units are taken from; `None` for the whole node. The units of one proc
    /// come from one NUMA node or package where possible.
    fn level(self, each: u32, machine: &Machine<'_>) -> Option<Level> {
        match self {
            // A core is too small for several cores of one proc.
            Self::InTurn(level) | Self::Each(level, _) if machine.largest(level) >= each => {
                Some(level)
            }
            Self::InTurn(_) | Self::Each(..) | Self::Whole => [Level::Numa, Level::Package]
                .into_iter()
                .find(|level| each > 1 && machine.largest(*level) >= each),
        }
    }
}

/// Assigns every proc its object and units.
pub(super) fn place(machine: &Machine<'_>, wanted: &[Local]) -> Placement {
    let mut state = State {
        machine,
        used: vec![false; machine.units.len()],
        bound: 0,
        fit: Fit::Fits,
    };
    let mut bindings = BTreeMap::new();
    let apps = wanted
        .iter()
        .map(|local| state.app(local, &mut bindings))
        .collect::<Vec<_>>();
    let mut sets = bindings.into_iter().collect::<Vec<_>>();
    sets.sort_unstable_by_key(|(_, number)| *number);
    let mut placement = Placement {
        apps,
        bindings: sets.into_iter().map(|(set, _)| set).collect(),
        fit: state.fit,
    };
    if placement.fit == Fit::TooMany {
        for proc in placement.apps.iter_mut().flatten() {
            proc.binding = None;
        }
    }
    placement
}

struct State<'a> {
    machine: &'a Machine<'a>,
    used: Vec<bool>,
    /// Number of procs that were bound by the list.
    bound: usize,
    fit: Fit,
}

/// Position from which the search for free units in an object continues.
struct Cursor<'a> {
    units: &'a [u32],
    next: usize,
}

impl State<'_> {
    fn app(&mut self, local: &Local, bindings: &mut BTreeMap<CpuSet, u32>) -> Vec<Proc> {
        let machine = self.machine;
        let whole = (0..machine.len()).collect::<Vec<_>>();
        let level = local.scheme.level(local.each, machine);
        let objects = level.map(|level| machine.level(level));
        let new_cursors = || match objects {
            Some(objects) => objects
                .members
                .iter()
                .map(|units| Cursor { units, next: 0 })
                .collect::<Vec<_>>(),
            None => vec![Cursor {
                units: &whole,
                next: 0,
            }],
        };
        let mut cursors = new_cursors();
        let mut turns = vec![0_u32; cursors.len()];
        let mut deal = Deal { at: 0, given: 0 };
        let mut procs = Vec::with_capacity(local.count as usize);
        // Compute this set once instead of for every proc.
        let all = (local.bind == Bind::All).then(|| number(bindings, machine.all()));
        let mut vacancy = Vacancy::Unknown;
        for _ in 0..local.count {
            let mut taken = match vacancy {
                Vacancy::Unknown => self.next(local, &mut cursors, &mut deal),
                Vacancy::None => None,
            };
            if taken.is_none() {
                match local.overload {
                    Overload::Refuse => {
                        vacancy = Vacancy::None;
                        self.fit = self.fit.worse(local.bind);
                    }
                    Overload::Allow => {
                        self.used.fill(false);
                        cursors = new_cursors();
                        taken = self.next(local, &mut cursors, &mut deal);
                    }
                }
            }
            let (object, units) =
                taken.unwrap_or_else(|| (deal.anywhere(local.scheme, cursors.len()), Vec::new()));
            let binding = match (local.bind, units.first()) {
                (Bind::List, _) => {
                    let list = &machine.list;
                    let turn = self.bound.checked_rem(list.len());
                    let set = turn.and_then(|turn| list.get(turn));
                    self.bound += 1;
                    set.map(|set| number(bindings, set.clone()))
                }
                // A user who names the CPUs of all procs wants this binding for any number of procs.
                (Bind::All, _) => all,
                (Bind::None | Bind::Withheld, _) | (_, None) => None,
                (Bind::Units, Some(_)) => {
                    let sets = units.iter().filter_map(|unit| machine.unit(*unit));
                    Some(number(
                        bindings,
                        sets.fold(CpuSet::new(), |set, unit| set.union(unit)),
                    ))
                }
                (Bind::Object(level), Some(first)) => {
                    let objects = machine.level(level);
                    let object = objects.of.get(*first as usize);
                    let pus = object.and_then(|object| objects.pus.get(*object as usize));
                    pus.map(|pus| {
                        bindings
                            .get(pus)
                            .copied()
                            .unwrap_or_else(|| number(bindings, pus.clone()))
                    })
                }
            };
            // Procs are numbered by object only under a mapping to objects.
            let object = match (local.number_by, units.first()) {
                (Some(level), Some(unit)) => {
                    let object = machine.level(level).of.get(*unit as usize);
                    object.map_or(0, |object| *object as usize)
                }
                _ if local.scheme == Scheme::Whole => 0,
                _ => object,
            };
            if turns.len() <= object {
                turns.resize(object + 1, 0);
            }
            let turn = turns.get_mut(object).map_or(0, |turn| {
                *turn += 1;
                *turn - 1
            });
            procs.push(Proc {
                object: u32::try_from(object).unwrap_or(u32::MAX),
                turn,
                binding,
            });
        }
        procs
    }

    /// Returns the next proc's object and units; `None` if no object has enough free units.
    fn next(
        &mut self,
        local: &Local,
        cursors: &mut [Cursor<'_>],
        deal: &mut Deal,
    ) -> Option<(usize, Vec<u32>)> {
        for _ in 0..cursors.len() {
            let at = deal.at;
            let turn = match local.scheme {
                Scheme::Each(_, count) => deal.given < count,
                Scheme::Whole | Scheme::InTurn(_) => true,
            };
            if turn
                && let Some(cursor) = cursors.get_mut(at)
                && let Some(units) = self.take(cursor, local.each)
            {
                deal.given += 1;
                if matches!(local.scheme, Scheme::InTurn(_)) {
                    deal.step(cursors.len());
                }
                return Some((at, units));
            }
            deal.step(cursors.len());
        }
        None
    }

    /// Takes free units, in order; `None` if there are not enough.
    fn take(&mut self, cursor: &mut Cursor<'_>, each: u32) -> Option<Vec<u32>> {
        let free = |used: &[bool], unit: &u32| used.get(*unit as usize).is_some_and(|used| !used);
        while cursor
            .units
            .get(cursor.next)
            .is_some_and(|unit| !free(&self.used, unit))
        {
            cursor.next += 1;
        }
        let rest = cursor.units.get(cursor.next..).unwrap_or_default();
        let units = rest
            .iter()
            .filter(|unit| free(&self.used, unit))
            .take(each as usize)
            .copied()
            .collect::<Vec<_>>();
        if units.len() < each as usize {
            return None;
        }
        for unit in &units {
            if let Some(used) = self.used.get_mut(*unit as usize) {
                *used = true;
            }
        }
        Some(units)
    }
}

/// Whether a search for free units may succeed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Vacancy {
    Unknown,
    None,
}

/// Object whose turn it is.
struct Deal {
    at: usize,
    /// Number of procs that the current object got in this turn.
    given: u32,
}

impl Deal {
    const fn step(&mut self, objects: usize) {
        self.given = 0;
        self.at = if self.at + 1 < objects {
            self.at + 1
        } else {
            0
        };
    }

    /// Returns the object of a proc that stays unbound. It continues the pattern as if there were free units.
    const fn anywhere(&mut self, scheme: Scheme, objects: usize) -> usize {
        match scheme {
            Scheme::Whole => {}
            Scheme::InTurn(_) => {
                let at = self.at;
                self.step(objects);
                return at;
            }
            Scheme::Each(_, count) => {
                if self.given >= count {
                    self.step(objects);
                }
                self.given += 1;
            }
        }
        self.at
    }
}

impl Fit {
    /// Returns the fit after a proc found no free units. A binding that does not depend on free units is not affected.
    const fn worse(self, bind: Bind) -> Self {
        match bind {
            Bind::None | Bind::All | Bind::List => self,
            Bind::Withheld | Bind::Units | Bind::Object(_) => Self::TooMany,
        }
    }
}

fn number(table: &mut BTreeMap<CpuSet, u32>, set: CpuSet) -> u32 {
    let next = u32::try_from(table.len()).unwrap_or(u32::MAX);
    *table.entry(set).or_insert(next)
}
