//! Allowed dependencies between our crates (ARCHITECTURE.md).

use std::{collections::BTreeSet, path::Path};

use serde_json::Value;

use super::{Complaints, Source, packages, text};

/// Crates, each with those of our crates that its shipped code may depend on, and those that only its tests may depend on.
const ARROWS: &[(&str, &[&str], &[&str])] = &[
    ("base", &[], &[]),
    ("pmix", &["base"], &[]),
    ("overlay", &["base"], &[]),
    ("os", &["base"], &[]),
    ("mpir", &[], &[]),
    ("message", &[], &[]),
    ("dvm", &["message", "pmix", "base"], &[]),
    ("calls", &[], &[]),
    ("recorder", &["calls"], &[]),
    ("debug", &["calls", "base"], &[]),
    (
        "runtime",
        &["dvm", "pmix", "overlay", "os", "calls", "base"],
        &[],
    ),
    ("dap", &["debug", "base"], &[]),
    ("ptp", &["base"], &[]),
    (
        "cli",
        &[
            "runtime", "mpir", "dvm", "debug", "dap", "ptp", "message", "pmix", "os", "base",
        ],
        &["mischief", "sim"],
    ),
    ("sim", &["dvm", "debug", "pmix", "overlay", "base"], &[]),
    ("mischief", &[], &[]),
    ("xtask", &["mischief"], &[]),
];

/// Checks that every dependency in the workspace is allowed.
pub(super) fn check(workspace: &Value) -> Complaints {
    let mut complaints = Complaints::new();
    let ours = packages(workspace)
        .map(|package| text(package, "name"))
        .collect::<Vec<_>>();
    for package in packages(workspace) {
        let name = text(package, "name");
        let Some((_, ship, test)) = ARROWS.iter().find(|(known, ..)| *known == name) else {
            complaints.push(format!(
                "crate `{name}` is not in the list of crates: add it to xtask/src/tidy/arrows.rs and ARCHITECTURE.md"
            ));
            continue;
        };
        for dependency in dependencies(package) {
            let to = text(dependency, "name");
            if !ours.contains(&to) {
                continue;
            }
            if !(ship.contains(&to) || is_for_tests(dependency) && test.contains(&to)) {
                complaints.push(format!(
                    "`{name}` depends on `{to}`: the house has no such arrow"
                ));
            }
        }
    }
    complaints
}

/// Checks that every allowed dependency is used. Crates that do not exist yet are skipped.
pub(super) fn unused(workspace: &Value) -> Complaints {
    let ours = packages(workspace)
        .map(|package| text(package, "name"))
        .collect::<BTreeSet<_>>();
    let mut complaints = Complaints::new();
    for package in packages(workspace) {
        let name = text(package, "name");
        let Some((_, ship, test)) = ARROWS.iter().find(|(known, ..)| *known == name) else {
            continue;
        };
        let drawn = |to: &str, for_tests: bool| {
            dependencies(package).any(|dependency| {
                text(dependency, "name") == to && is_for_tests(dependency) == for_tests
            })
        };
        let allowed = ship.iter().map(|to| (to, false));
        let allowed = allowed.chain(test.iter().map(|to| (to, true)));
        for (to, for_tests) in allowed {
            if ours.contains(to) && !drawn(to, for_tests) {
                complaints.push(format!(
                    "`{name}` may depend on `{to}` and does not: strike the arrow from xtask/src/tidy/arrows.rs and ARCHITECTURE.md"
                ));
            }
        }
    }
    complaints
}

/// Checks that the code of a package names every dependency that the package declares, whether ours or external.
pub(super) fn unnamed(root: &Path, workspace: &Value, files: &[Source]) -> Complaints {
    let mut complaints = Complaints::new();
    for package in packages(workspace) {
        let manifest = Path::new(text(package, "manifest_path"));
        let directory = manifest.strip_prefix(root).ok().and_then(Path::parent);
        let Some(directory) = directory else { continue };
        let code = files
            .iter()
            .filter(|file| file.has_extension("rs") && file.path.starts_with(directory))
            .collect::<Vec<_>>();
        for dependency in dependencies(package) {
            let to = text(dependency, "name").replace('-', "_");
            let sees = |file: &&&Source| {
                is_for_tests(dependency) || file.path.starts_with(directory.join("src"))
            };
            if !code.iter().filter(sees).any(|file| names(&file.text, &to)) {
                complaints.push(format!(
                    "{}: nothing there uses the dependency `{to}`",
                    directory.join("Cargo.toml").display()
                ));
            }
        }
    }
    complaints
}

fn dependencies(package: &Value) -> impl Iterator<Item = &Value> {
    package["dependencies"].as_array().into_iter().flatten()
}

fn is_for_tests(dependency: &Value) -> bool {
    text(dependency, "kind") == "dev"
}

/// Returns true if a path in the code begins with the name of a crate.
fn names(text: &str, name: &str) -> bool {
    let path = format!("{name}::");
    let is_inside = |before: char| before.is_alphanumeric() || before == '_' || before == ':';
    let whole = format!("use {name};");
    text.lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .any(|code| {
            code.contains(&whole)
                || code
                    .match_indices(&path)
                    .any(|(at, _)| !code[..at].ends_with(is_inside))
        })
}

/// Checks that the module documentation of every crate states its architecture invariant.
pub(super) fn invariants(root: &Path, workspace: &Value) -> Complaints {
    let mut complaints = Complaints::new();
    for package in packages(workspace) {
        let manifest = Path::new(text(package, "manifest_path"));
        let Some(directory) = manifest.parent() else {
            continue;
        };
        let top = ["src/lib.rs", "src/main.rs"]
            .map(|name| directory.join(name))
            .into_iter()
            .find(|path| path.exists());
        let Some(top) = top else { continue };
        let said = std::fs::read_to_string(&top)
            .is_ok_and(|text| text.contains("**Architecture invariant:**"));
        if !said {
            let path = top.strip_prefix(root).unwrap_or(&top);
            complaints.push(format!(
                "{}: no `**Architecture invariant:**` paragraph",
                path.display()
            ));
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(json: &str) -> String {
        check(&serde_json::from_str(json).unwrap()).join("\n")
    }

    #[test]
    fn a_wrong_arrow_is_seen() {
        let metadata = |from: &str, to: &str, kind: &str| {
            format!(
                r#"{{"packages":[{{"name":"{from}","dependencies":[{{"name":"{to}","kind":{kind}}}]}},
                    {{"name":"{to}","dependencies":[]}}]}}"#
            )
        };
        assert_eq!(complaints(&metadata("os", "base", "null")), "");
        assert_eq!(complaints(&metadata("cli", "mischief", r#""dev""#)), "");
        for (from, to, kind) in [
            ("os", "dvm", "null"),
            ("dvm", "cli", "null"),
            ("cli", "mischief", "null"),
        ] {
            let expected = format!("`{from}` depends on `{to}`: the house has no such arrow");
            assert_eq!(complaints(&metadata(from, to, kind)), expected);
        }
        assert!(complaints(&metadata("manager", "base", "null")).contains("not in the list"));
    }
    #[test]
    fn an_arrow_that_nobody_draws_is_seen() {
        let package = |name: &str, to: &str| {
            format!(r#"{{"name":"{name}","dependencies":[{{"name":"{to}","kind":null}}]}}"#)
        };
        let unused = |os: &str| {
            let json = format!(
                r#"{{"packages":[{},{},{}]}}"#,
                package("os", os),
                package("base", "serde"),
                // Its arrow to `debug` is not checked, because this workspace has no such crate.
                package("dap", "base"),
            );
            unused(&serde_json::from_str(&json).unwrap()).join("\n")
        };
        assert_eq!(unused("base"), "");
        assert_eq!(
            unused("libc"),
            "`os` may depend on `base` and does not: strike the arrow from xtask/src/tidy/arrows.rs and ARCHITECTURE.md"
        );
    }

    #[test]
    fn a_dependency_that_nobody_names_is_seen() {
        let complaints = |kind: &str, path: &str, code: &str| {
            let json = format!(
                r#"{{"packages":[{{"name":"os","manifest_path":"/top/crates/os/Cargo.toml",
                    "dependencies":[{{"name":"a-b","kind":{kind}}}]}}]}}"#
            );
            let file = Source {
                path: path.into(),
                text: code.to_owned(),
            };
            let workspace = serde_json::from_str(&json).unwrap();
            unnamed(Path::new("/top"), &workspace, &[file]).len()
        };
        let (ship, dev) = ("null", r#""dev""#);
        let (source, test) = ("crates/os/src/lib.rs", "crates/os/tests/it.rs");
        let cases = [
            (ship, source, "use a_b::C;", 0),
            (ship, source, "let c = f(a_b::C);", 0),
            (ship, source, "use a_b;", 0),
            (ship, source, "// a_b::C", 1),
            (ship, source, "use crate::a_b::C;", 1),
            (ship, source, "use data_b::C;", 1),
            (ship, test, "use a_b::C;", 1),
            (dev, test, "use a_b::C;", 0),
            (dev, source, "use a_b::C;", 0),
            (ship, "crates/base/src/lib.rs", "use a_b::C;", 1),
        ];
        for (kind, path, code, expected) in cases {
            assert_eq!(complaints(kind, path, code), expected, "{path}: {code}");
        }
    }
}
