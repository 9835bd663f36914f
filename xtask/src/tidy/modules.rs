//! Checks that the files of modules have the same layout in the whole workspace.
//!
//! | what | where |
//! |---|---|
//! | a module with submodules | `x.rs`, its submodules in `x/` |
//! | a test program of several files | `tests/x/main.rs`, its other files in `tests/x/` |
//! | a module that is compiled for tests only | a module `tests`, or one in it |

use std::{collections::BTreeSet, path::Path};

use super::{Complaints, Source};

pub(super) fn check(files: &[Source]) -> Complaints {
    let rust = || files.iter().filter(|file| file.has_extension("rs"));
    let directories: BTreeSet<&Path> = rust().filter_map(|file| file.path.parent()).collect();
    let mut complaints = Complaints::new();
    for file in rust() {
        let path = file.path.display();
        if file.path.ends_with("mod.rs") {
            complaints.push(format!(
                "{path}: a module lies beside the directory of its parts"
            ));
        }
        let is_program = file.path.parent().is_some_and(|at| at.ends_with("tests"))
            && !file.path.components().any(|part| part.as_os_str() == "src");
        if is_program && directories.contains(file.path.with_extension("").as_path()) {
            complaints.push(format!(
                "{path}: a test program of several files is `main.rs` in their directory"
            ));
        }
        for name in for_tests(&file.text).filter(|name| *name != "tests") {
            complaints.push(format!(
                "{path}: `{name}` is for tests only, and belongs into a module `tests`"
            ));
        }
    }
    complaints
}

/// Returns the modules in separate files that a file declares for its tests only.
fn for_tests(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().zip(text.lines().skip(1));
    lines
        .filter(|(attribute, _)| attribute.trim() == "#[cfg(test)]")
        .filter_map(|(_, item)| {
            let (_, name) = item.strip_suffix(';')?.rsplit_once("mod ")?;
            Some(name)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_that_is_wrong_is_seen() {
        let cases: [(&[(&str, &str)], &str); 8] = [
            (
                &[("crates/x/src/a.rs", "mod b;"), ("crates/x/src/a/b.rs", "")],
                "",
            ),
            (
                &[("crates/x/src/a/mod.rs", "")],
                "crates/x/src/a/mod.rs: a module lies beside the directory of its parts",
            ),
            (
                &[
                    ("crates/x/tests/t.rs", ""),
                    ("crates/x/tests/t/part.rs", ""),
                ],
                "crates/x/tests/t.rs: a test program of several files is `main.rs` in their directory",
            ),
            (
                &[
                    ("crates/x/tests/t/main.rs", ""),
                    ("crates/x/tests/t/part.rs", ""),
                    ("crates/x/tests/t/part/more.rs", ""),
                    ("crates/x/tests/alone.rs", ""),
                ],
                "",
            ),
            (
                &[
                    ("crates/x/src/tests/t.rs", ""),
                    ("crates/x/src/tests/t/part.rs", ""),
                ],
                "",
            ),
            (&[("crates/x/src/a.rs", "#[cfg(test)]\nmod tests;")], ""),
            (
                &[("crates/x/src/a.rs", "#[cfg(test)]\npub(crate) mod made;")],
                "crates/x/src/a.rs: `made` is for tests only, and belongs into a module `tests`",
            ),
            (
                &[(
                    "crates/x/src/a.rs",
                    "#[cfg(test)]\nmod tests {\n    use super::*;",
                )],
                "",
            ),
        ];
        for (files, expected) in cases {
            let source = |(path, text): &(&str, &str)| Source {
                path: path.into(),
                text: (*text).to_owned(),
            };
            let files = files.iter().map(source).collect::<Vec<_>>();
            assert_eq!(check(&files).join("\n"), expected);
        }
    }
}
