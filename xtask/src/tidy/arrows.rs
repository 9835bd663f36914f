//! Who may depend on whom (ARCHITECTURE.md).

use std::path::Path;

use serde_json::Value;

use super::{Complaints, packages, text};

/// A crate and the crates of ours that it may depend on, for shipping and for its tests.
const ARROWS: &[(&str, &[&str], &[&str])] = &[
    ("base", &[], &[]),
    ("pmix", &["base"], &[]),
    ("overlay", &["base"], &[]),
    ("os", &["base"], &[]),
    ("mpir", &[], &[]),
    ("message", &[], &[]),
    ("dvm", &["message", "pmix", "overlay", "base"], &[]),
    ("debug", &["pmix", "overlay", "base"], &[]),
    (
        "runtime",
        &["dvm", "debug", "pmix", "overlay", "os", "base"],
        &[],
    ),
    ("dap", &["debug", "base"], &[]),
    ("ptp", &["base"], &[]),
    (
        "cli",
        &[
            "runtime", "mpir", "dvm", "debug", "dap", "ptp", "message", "pmix", "overlay", "os",
            "base",
        ],
        &["mischief"],
    ),
    ("sim", &["dvm", "debug", "pmix", "overlay", "base"], &[]),
    ("mischief", &[], &[]),
    ("xtask", &["mischief"], &[]),
];

/// Every arrow of the workspace is one that the house allows.
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
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let to = text(dependency, "name");
            if !ours.contains(&to) {
                continue;
            }
            let dev = text(dependency, "kind") == "dev";
            if !(ship.contains(&to) || dev && test.contains(&to)) {
                complaints.push(format!(
                    "`{name}` depends on `{to}`: the house has no such arrow"
                ));
            }
        }
    }
    complaints
}

/// Every crate says at its top what must be absent from it.
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
}
