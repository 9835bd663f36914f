//! Checks for texts and names that must not be in our files, and for files that are too long.

use std::path::Path;

use super::{Complaints, Source};

/// Maximum number of lines of a file; the aim is 200 to 400.
const LINES_MAX: usize = 800;

/// Maximum number of lines of a file of tests, which are mostly tables, or of a fuzz target.
const TEST_LINES_MAX: usize = 1_500;

/// Names of modules that say nothing about their content.
const EMPTY_NAMES: [&str; 7] = [
    "utils", "util", "common", "helpers", "helper", "manager", "misc",
];

/// Paths of one computer, and hosts of registries, which do not exist on every computer that builds this project. They are
/// split, so that this file passes its own check.
const NOT_OURS: [&str; 6] = [
    concat!("/ro", "ot/"),
    concat!("/wo", "rk/"),
    concat!("crates", ".io"),
    concat!("pypi", ".org"),
    concat!("registry.npm", "js"),
    concat!("deb.deb", "ian.org"),
];

/// The crates that may contain unsafe code.
const UNSAFE_ALLOWED: [&str; 3] = ["crates/os", "crates/recorder", "crates/mpir"];

const UNSAFE: [&str; 4] = [
    concat!("(unsafe", "_code"),
    concat!("unsafe", " {"),
    concat!("unsafe", " fn"),
    concat!("unsafe", " impl"),
];

pub(super) fn check(files: &[Source]) -> Complaints {
    let mut complaints = Complaints::new();
    for file in files {
        let path = file.path.display();
        let mut complain =
            |line: usize, what: String| complaints.push(format!("{path}:{line}: {what}"));
        // Cargo writes its registry to the lock files, which we do not edit.
        if file.path != Path::new("Cargo.lock") && file.path != Path::new("fuzz/Cargo.lock") {
            for (number, line) in lines(&file.text) {
                for text in NOT_OURS {
                    if starts_anywhere(line, text) {
                        complain(
                            number,
                            format!("`{text}` is of one computer or a registry's host"),
                        );
                    }
                }
            }
        }
        if file.has_extension("rs") {
            rust(file, &mut complain);
        }
    }
    complaints
}

fn rust(file: &Source, complain: &mut impl FnMut(usize, String)) {
    let count = file.text.lines().count();
    let is_test = file.path.starts_with("fuzz")
        || file.path.ends_with("tests.rs")
        || file.path.iter().any(|part| part == "tests");
    let most = if is_test { TEST_LINES_MAX } else { LINES_MAX };
    if count > most {
        complain(
            count,
            format!("{count} lines are more than {most}: a module hides less than its size"),
        );
    }
    let stem = file
        .path
        .file_stem()
        .and_then(|stem| stem.to_str())
        .unwrap_or_default();
    if EMPTY_NAMES.contains(&stem) {
        complain(
            1,
            format!("a module named `{stem}` hides nothing that its name tells"),
        );
    }
    let may_be_unsafe = UNSAFE_ALLOWED
        .iter()
        .any(|allowed| file.path.starts_with(allowed));
    let mut in_tests = file
        .path
        .components()
        .any(|part| part.as_os_str() == "tests");
    for (number, line) in lines(&file.text) {
        in_tests |= line.trim() == "#[cfg(test)]";
        let code = line.split("//").next().unwrap_or_default();
        if code.contains(concat!("#[", "ignore")) {
            complain(number, "a test is run or removed, never ignored".into());
        }
        let sleeps = [concat!("thread::", "sleep"), concat!("os::", "sleep(")];
        if in_tests && sleeps.iter().any(|sleep| code.contains(sleep)) {
            complain(
                number,
                "a test waits for a condition, it does not sleep to be right".into(),
            );
        }
        if !may_be_unsafe && UNSAFE.iter().any(|text| code.contains(text)) {
            complain(
                number,
                "unsafe code belongs to `os`, `mpir` and `recorder`".into(),
            );
        }
    }
}

fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line))
}

/// Returns true if the line contains `text` at a position where a path or a host name can begin.
fn starts_anywhere(line: &str, text: &str) -> bool {
    line.match_indices(text).any(|(at, _)| {
        let before = line.get(..at).and_then(|head| head.chars().next_back());
        !text.starts_with('/')
            || before.is_none_or(|before| {
                !before.is_alphanumeric() && !['_', '-', '.', '}', ')', '*'].contains(&before)
            })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> usize {
        check(&[Source {
            path: path.into(),
            text: text.to_owned(),
        }])
        .len()
    }

    #[test]
    fn each_rule_sees_its_breach() {
        let breaches = [
            ("crates/dvm/src/utils.rs", "fn f() {}".to_owned()),
            ("crates/dvm/src/place/common.rs", "fn f() {}".to_owned()),
            ("crates/dvm/src/life.rs", "\n".repeat(LINES_MAX + 1)),
            ("crates/dvm/tests/life.rs", "\n".repeat(TEST_LINES_MAX + 1)),
            (
                "crates/dvm/src/life.rs",
                concat!("#[", "ignore]").to_owned(),
            ),
            (
                "crates/dvm/tests/life.rs",
                concat!("std::thread::", "sleep(d);").to_owned(),
            ),
            (
                "crates/dvm/src/life.rs",
                concat!("#[cfg(test)]\nthread::", "sleep(d);").to_owned(),
            ),
            (
                "crates/dvm/src/life.rs",
                concat!("#[cfg(test)]\nos::", "sleep(d);").to_owned(),
            ),
            (
                "crates/runtime/src/link.rs",
                concat!("let x = unsafe", " { y };").to_owned(),
            ),
            ("docs/guide.md", concat!("see `/ro", "ot/x`").to_owned()),
            (
                "docs/guide.md",
                concat!("from static.crates", ".io").to_owned(),
            ),
        ];
        for (path, text) in breaches {
            assert_eq!(complaints(path, &text), 1, "{path}: {}", text.trim());
        }
    }

    #[test]
    fn what_is_right_passes() {
        let right = [
            (
                "crates/os/src/spawn.rs",
                concat!("let x = unsafe", " { y };"),
            ),
            ("crates/os/src/thread.rs", concat!("thread::", "sleep(d);")),
            (
                "crates/runtime/src/link.rs",
                concat!("// nothing unsafe", " { here }"),
            ),
            (
                "docs/guide.md",
                concat!("run/wo", "rk/x and ${HOME}/wo", "rk/y"),
            ),
        ];
        for (path, text) in right {
            assert_eq!(complaints(path, text), 0, "{path}: {text}");
        }
    }
}
