//! Checks that no two files of a crate import each other, directly or through others.
//!
//! A module and its submodules count as one: a file may import what its parent module defines, and vice versa. An item that a
//! module only re-exports (`pub use`) counts as imported from the defining module. Tests may import anything.
//!
//! The check misses three kinds of imports: paths inside the arguments of macros; names that a parent module imports for itself
//! (without `pub`) and a submodule takes by `super::`; and names re-exported by `pub use x::*`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use syn::{
    Attribute, File, Item, ItemMod, ItemUse, UseTree, Visibility,
    visit::{self, Visit},
};

use super::{Complaints, Source};

/// A path of names that begins with the crate.
type Names = Vec<String>;

/// Maximum number of re-exports that are followed.
const MAX_STEPS: usize = 16;

/// Imports and re-exports of a file.
#[derive(Debug, Default)]
struct Imports {
    taken: BTreeSet<Names>,
    handed_on: BTreeMap<String, Names>,
}

pub(super) fn check(files: &[Source]) -> Complaints {
    let mut modules: BTreeMap<Names, Imports> = BTreeMap::new();
    for file in files {
        let Some(names) = module_of(file) else {
            continue;
        };
        // The compiler will report a file that cannot be parsed.
        if let Ok(parsed) = syn::parse_file(&file.text) {
            modules.insert(names.clone(), Imports::of(names, &parsed));
        }
    }
    let arrows = arrows(&modules);
    let mut complaints = Complaints::new();
    let mut told: BTreeSet<&Names> = BTreeSet::new();
    for start in arrows.keys() {
        if told.contains(start) {
            continue;
        }
        if let Some(circle) = circle(&arrows, start) {
            told.extend(circle.iter().copied());
            let files: Vec<String> = circle.iter().map(|names| names.join("::")).collect();
            complaints.push(format!(
                "files import each other in a circle: {} -> {}",
                files.join(" -> "),
                files[0]
            ));
        }
    }
    complaints
}

/// Returns the module that a file defines; `None` if it is not a module of a library or of its program.
fn module_of(file: &Source) -> Option<Names> {
    let path = file.path.to_str()?.strip_suffix(".rs")?;
    let (package, module) = path.split_once("/src/")?;
    let package = package.rsplit('/').next()?;
    let mut names = vec![package.to_owned()];
    names.extend(module.split('/').map(str::to_owned));
    match names.last().map(String::as_str) {
        Some("lib" | "main") => drop(names.pop()),
        Some("tests") => return None,
        _ => {}
    }
    let is_aside = |name: &String| name == "tests" || name == "bin";
    (!names.iter().any(is_aside)).then_some(names)
}

/// Returns, for each module, the modules from which it imports.
fn arrows(modules: &BTreeMap<Names, Imports>) -> BTreeMap<&Names, BTreeSet<&Names>> {
    let to = |from: &Names, taken: &Names| {
        let (module, _) = defining(modules, taken)?;
        let related = module.starts_with(from) || from.starts_with(module);
        (!related).then_some(module)
    };
    let all = modules.iter().map(|(from, imports)| {
        let targets = imports.taken.iter().filter_map(|taken| to(from, taken));
        (from, targets.collect())
    });
    all.collect()
}

/// Returns the module that defines a name, and the rest of the path after the module.
fn defining<'a>(modules: &'a BTreeMap<Names, Imports>, path: &Names) -> Option<(&'a Names, Names)> {
    let mut path = path.clone();
    for _ in 0..MAX_STEPS {
        let length = (1..=path.len())
            .rev()
            .find(|&length| modules.contains_key(&path[..length]))?;
        let (module, imports) = modules.get_key_value(&path[..length])?;
        let rest = path[length..].to_vec();
        let handed_on = rest.first().and_then(|name| imports.handed_on.get(name));
        match handed_on {
            Some(origin) => path = origin.iter().chain(&rest[1..]).cloned().collect(),
            None => return Some((module, rest)),
        }
    }
    None
}

/// Returns the shortest import cycle through a module.
fn circle<'a>(
    arrows: &BTreeMap<&'a Names, BTreeSet<&'a Names>>,
    start: &'a Names,
) -> Option<Vec<&'a Names>> {
    let mut came_from: BTreeMap<&Names, &Names> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(at) = queue.pop_front() {
        for &next in arrows.get(at).into_iter().flatten() {
            if next == start {
                let mut way = vec![at];
                while let Some(&before) = came_from.get(way[way.len() - 1]) {
                    way.push(before);
                }
                way.reverse();
                return Some(way);
            }
            if !came_from.contains_key(next) {
                came_from.insert(next, at);
                queue.push_back(next);
            }
        }
    }
    None
}

impl Imports {
    fn of(module: Names, file: &File) -> Self {
        let mut walk = Walk {
            module,
            children: children(&file.items),
            found: Self::default(),
        };
        walk.visit_file(file);
        walk.found
    }
}

/// A visitor of the syntax tree of a file.
struct Walk {
    /// The module that the visitor is in.
    module: Names,
    /// The names of the submodules that this module declares.
    children: BTreeSet<String>,
    found: Imports,
}

impl Walk {
    /// Returns the path that begins with the crate; `None` if another crate defines the name.
    fn absolute(&self, path: &[String]) -> Option<Names> {
        let mut module = self.module.clone();
        let rest = match path.first()?.as_str() {
            "crate" => {
                module.truncate(1);
                &path[1..]
            }
            "self" => &path[1..],
            "super" => {
                let up = path.iter().take_while(|name| *name == "super").count();
                module.truncate(module.len().checked_sub(up)?);
                &path[up..]
            }
            child if self.children.contains(child) => path,
            _ => return None,
        };
        module.extend_from_slice(rest);
        Some(module)
    }

    fn tree(&mut self, before: &[String], tree: &UseTree, visibility: &Visibility) {
        let mut path = before.to_vec();
        let name = match tree {
            UseTree::Path(more) => {
                path.push(more.ident.to_string());
                return self.tree(&path, &more.tree, visibility);
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.tree(before, tree, visibility);
                }
                return;
            }
            UseTree::Name(name) => {
                if name.ident != "self" {
                    path.push(name.ident.to_string());
                }
                name.ident.to_string()
            }
            UseTree::Rename(rename) => {
                path.push(rename.ident.to_string());
                rename.rename.to_string()
            }
            UseTree::Glob(_) => String::new(),
        };
        let Some(taken) = self.absolute(&path) else {
            return;
        };
        if !matches!(visibility, Visibility::Inherited) && !name.is_empty() {
            self.found.handed_on.insert(name, taken);
        } else {
            self.found.taken.insert(taken);
        }
    }
}

impl<'ast> Visit<'ast> for Walk {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        let items = module.content.iter().flat_map(|(_, items)| items);
        let outer = std::mem::replace(&mut self.children, children(items));
        self.module.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.module.pop();
        self.children = outer;
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.tree(&[], &item.tree, &item.vis);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Names = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string())
            .collect();
        if names.len() > 1 {
            self.found.taken.extend(self.absolute(&names));
        }
        visit::visit_path(self, path);
    }
}

/// Returns the names of the modules among the items of a module.
fn children<'a>(items: impl IntoIterator<Item = &'a Item>) -> BTreeSet<String> {
    let name = |item: &Item| match item {
        Item::Mod(module) => Some(module.ident.to_string()),
        _ => None,
    };
    items.into_iter().filter_map(name).collect()
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Mod(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Const(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns true if an item is compiled for tests only.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Path>()
                .is_ok_and(|path| path.is_ident("test"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Complaints {
        let source = |(path, text): &(&str, &str)| Source {
            path: path.into(),
            text: (*text).to_owned(),
        };
        check(&files.iter().map(source).collect::<Vec<_>>())
    }

    #[test]
    fn circles_are_found_through_what_is_handed_on() {
        let facade = (
            "crates/x/src/lib.rs",
            "mod a; mod b; mod c; pub use b::B; pub(crate) use self::c::C;",
        );
        let a = ("crates/x/src/a.rs", "use crate::C; pub struct A;");
        let b = (
            "crates/x/src/b.rs",
            "pub struct B; fn f() { crate::a::g() }",
        );
        let c = (
            "crates/x/src/c.rs",
            "use super::{b::B as Other}; pub struct C;",
        );
        assert_eq!(
            found(&[facade, a, b, c]),
            ["files import each other in a circle: x::a -> x::c -> x::b -> x::a"]
        );
        assert_eq!(
            found(&[facade, a, ("crates/x/src/b.rs", "pub struct B;"), c]),
            [""; 0]
        );
    }

    #[test]
    fn what_is_handed_on_by_a_relative_path_is_followed() {
        for facade in [
            "mod a; mod b; pub use b::B;",
            "mod a; mod b; pub use self::b::B;",
            "mod a; mod b; pub(crate) use b::{B as Other, B};",
            "mod a; mod b; mod inner { mod a {} } pub use b::B;",
        ] {
            let files = [
                ("crates/x/src/lib.rs", facade),
                ("crates/x/src/a.rs", "use crate::B; pub struct A;"),
                ("crates/x/src/b.rs", "use crate::a::A; pub struct B;"),
            ];
            assert_eq!(
                found(&files),
                ["files import each other in a circle: x::a -> x::b -> x::a"],
                "{facade}"
            );
        }
    }

    #[test]
    fn a_path_into_another_crate_is_not_one_of_ours() {
        let files = [
            (
                "crates/x/src/lib.rs",
                "mod a; mod b; pub use base::B; mod inner { mod base { } }",
            ),
            ("crates/x/src/a.rs", "use crate::B; pub struct A;"),
            ("crates/x/src/b.rs", "use crate::a::A; pub struct B;"),
        ];
        assert_eq!(found(&files), [""; 0]);
    }

    #[test]
    fn a_module_and_those_in_it_are_one() {
        let parent = ("crates/x/src/p.rs", "mod q; use self::q::Q; pub struct P;");
        let child = ("crates/x/src/p/q.rs", "use super::P; pub struct Q;");
        assert_eq!(found(&[parent, child]), [""; 0]);
        // Imports in tests do not count either.
        let r = ("crates/x/src/r.rs", "use crate::s::S; pub struct R;");
        let s = (
            "crates/x/src/s.rs",
            "pub struct S; #[cfg(test)] mod tests { use crate::r::R; }",
        );
        assert_eq!(found(&[r, s]), [""; 0]);
    }
}
