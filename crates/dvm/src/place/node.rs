//! Placing on one node: which object and which PUs each proc gets.
//!
//! A node is seen as *units* (cores, or PUs where the user counts hardware threads) in logical order. Every object is a
//! list of units and has room for as many procs as it has units (divided by `PE=n`). A proc takes free units from the
//! object that it is mapped to, or from the whole node, and is bound to what the policy says: to those units, or to the
//! object of the wanted level that contains them.

use std::{cell::OnceCell, collections::BTreeMap};

use base::{CpuSet, Level, Pu, Topology};

use super::policy::{CpuUnit, Overload};

/// A node's processors for one way of counting.
pub(super) struct Machine<'a> {
    /// The allowed PUs of each unit.
    units: Vec<CpuSet>,
    /// The first of them, which tells the objects that the unit is part of.
    first: Vec<&'a Pu>,
    /// What procs are bound to in turn, where the user lists that.
    list: Vec<CpuSet>,
    /// By level, made when they are asked for: a job needs one or two of them.
    levels: [OnceCell<Objects>; LEVELS],
}

const LEVELS: usize = Level::Pu as usize + 1;

/// The objects of one level.
pub(super) struct Objects {
    /// The units of each object.
    members: Vec<Vec<u32>>,
    /// The object of each unit.
    of: Vec<u32>,
    /// The allowed PUs of each object.
    pus: Vec<CpuSet>,
}

/// What one app wants on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Local {
    pub(super) scheme: Scheme,
    /// Units for each proc.
    pub(super) each: u32,
    pub(super) bind: Bind,
    /// The level whose objects procs are numbered by, where it is not that of the mapping.
    pub(super) number_by: Option<Level>,
    pub(super) overload: Overload,
    pub(super) count: u32,
}

/// How procs are dealt to the objects of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scheme {
    /// Anywhere, in order.
    Whole,
    /// One per object in turn.
    InTurn(Level),
    /// So many on the first object, then as many on the next.
    Each(Level, u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Bind {
    None,
    /// To nothing, because others use these CPUs too. Procs have units of their own as far as there are enough.
    Withheld,
    /// To the units taken.
    Units,
    /// To the object that contains the first unit taken.
    Object(Level),
    /// To everything that can be used.
    All,
    /// To what the node's list has for each proc.
    List,
}

/// One proc on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Proc {
    /// The object it is mapped to (0 where it is mapped to the node), and how many were mapped there before it.
    pub(super) object: u32,
    pub(super) turn: u32,
    /// Index in [`Placement::bindings`].
    pub(super) binding: Option<u32>,
}

/// The procs of one node.
pub(super) struct Placement {
    /// For each app, in the order of mapping.
    pub(super) apps: Vec<Vec<Proc>>,
    pub(super) bindings: Vec<CpuSet>,
    pub(super) fit: Fit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// Every proc has units of its own.
    Fits,
    /// Some would share units and the user did not allow that: nobody is bound.
    TooMany,
}

/// The identity of a PU's object of a level; where the node has no such object, the next wider one stands in.
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

/// Groups what ascends in an order of first sight.
fn group<K: Ord + Copy>(keys: impl Iterator<Item = K>) -> (Vec<u32>, u32) {
    let mut seen = BTreeMap::new();
    // Neighbours are mostly in the same object.
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
    /// The units of a node that are allowed and, if the user named some, wanted.
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

    /// The same, with so many objects of a level taken together as one.
    pub(super) fn grouped(mut self, level: Level, size: u32) -> Self {
        let objects = Objects::new(level, &self.first, &self.units).grouped(size.max(1) as usize);
        self.levels[level as usize] = OnceCell::from(objects);
        self
    }

    /// The same, with a list of what procs are bound to.
    pub(super) fn with_list(self, list: Vec<CpuSet>) -> Self {
        Self { list, ..self }
    }

    fn level(&self, level: Level) -> &Objects {
        self.levels[level as usize].get_or_init(|| Objects::new(level, &self.first, &self.units))
    }

    /// The number of units.
    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.units.len()).unwrap_or(u32::MAX)
    }

    /// The number of objects of a level.
    pub(super) fn objects(&self, level: Level) -> u32 {
        u32::try_from(self.level(level).members.len()).unwrap_or(u32::MAX)
    }

    /// The units of the largest object of a level.
    pub(super) fn largest(&self, level: Level) -> u32 {
        let sizes = self.level(level).members.iter().map(Vec::len);
        sizes
            .max()
            .map_or(0, |size| u32::try_from(size).unwrap_or(u32::MAX))
    }

    /// How many procs of `each` units have room under a scheme.
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

    /// The units of the object of a level with this logical number.
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
    /// The objects that units are taken from. Several units for one proc come from one NUMA node or package where that
    /// is possible.
    fn level(self, each: u32, machine: &Machine<'_>) -> Option<Level> {
        match self {
            // Several cores for one proc cannot come out of a core.
            Self::InTurn(level) | Self::Each(level, _) if machine.largest(level) >= each => {
                Some(level)
            }
            Self::InTurn(_) | Self::Each(..) | Self::Whole => [Level::Numa, Level::Package]
                .into_iter()
                .find(|level| each > 1 && machine.largest(*level) >= each),
        }
    }
}

/// Gives every proc its object and units.
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
    /// Procs that were bound by the list.
    bound: usize,
    fit: Fit,
}

/// Where to go on looking for free units in an object.
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
        // Everything that can be bound to is made once, not for every proc.
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
                // Whoever names the CPUs of all procs means all procs, however many there are.
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
            // Only a mapping to objects numbers procs by object.
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

    /// The next proc's object and units; `None` when no object has enough left.
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

    /// Takes free units, in order; none when there are not enough.
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

/// Whether it is worth looking for free units.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Vacancy {
    Unknown,
    None,
}

/// Whose turn it is.
struct Deal {
    at: usize,
    /// Procs that the current object got in this turn.
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

    /// The object of a proc that will not be bound: the pattern goes on as if there were room.
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
    /// A proc that is not bound anyway needs no units of its own.
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
