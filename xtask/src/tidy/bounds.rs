//! Checks that the document lists every bound by name, with the effect of reaching it, and that it lists no bound that does
//! not exist.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use super::{Complaints, Source};

const DOCUMENT: &str = "docs/bounds.md";

/// The crates whose bounds must be in the document: the logic crates, and `runtime`, which does their I/O.
const CRATES: [&str; 9] = [
    "base", "pmix", "ptp", "overlay", "message", "dvm", "mpir", "debug", "runtime",
];

pub(super) fn check(files: &[Source]) -> Complaints {
    let document = files.iter().find(|file| file.path == Path::new(DOCUMENT));
    let mut complaints = Complaints::new();
    let mut told = BTreeSet::new();
    let mut known: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for file in files {
        if let Some(package) = package(file) {
            known.entry(package).or_default().extend(constants(file));
        }
    }
    let text = document.map_or("", |file| file.text.as_str());
    for row in text.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let &[place, _, _, full] = &cells[..] else {
            complaints.push(format!("{DOCUMENT}: not four cells: {row}"));
            continue;
        };
        let words = || place.split('`').skip(1).step_by(2);
        let packages: Vec<&str> = words()
            .filter(|word| !is_constant(word))
            .filter_map(|word| word.split("::").next())
            .collect();
        if full.is_empty() {
            complaints.push(format!("{DOCUMENT}: {place}: and when it is full?"));
        }
        for name in words().filter(|word| is_constant(word)) {
            told.extend(packages.iter().map(|package| (*package, name)));
            let exists = |package: &&str| known.get(package).is_some_and(|all| all.contains(name));
            if !packages.iter().any(exists) {
                complaints.push(format!("{DOCUMENT}: {place}: there is no `{name}`"));
            }
        }
    }
    for package in CRATES {
        let all = known.get(package).into_iter().flatten();
        for name in all.filter(|name| name.starts_with("MAX_") || name.ends_with("_MAX")) {
            if !told.contains(&(package, name)) {
                complaints.push(format!("{DOCUMENT}: no row for `{name}` of `{package}`"));
            }
        }
    }
    complaints
}

/// Returns the crate that a file belongs to; `None` if the file does not ship.
fn package(file: &Source) -> Option<&str> {
    let path = file.path.to_str()?.strip_prefix("crates/")?;
    let (package, module) = path.split_once("/src/")?;
    let is_test = module
        .split('/')
        .any(|part| matches!(part, "tests" | "tests.rs"));
    (file.has_extension("rs") && !is_test).then_some(package)
}

/// Returns the constants that a file defines, except those in its test module at the end.
fn constants(file: &Source) -> impl Iterator<Item = &str> {
    file.text
        .lines()
        .take_while(|line| *line != "mod tests {")
        .filter_map(|line| {
            let (before, definition) = line.split_once("const ")?;
            let is_item = before.trim().is_empty() || before.trim().starts_with("pub");
            let (name, _) = definition.split_once(':')?;
            (is_item && is_constant(name)).then_some(name)
        })
}

fn is_constant(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_uppercase())
        && word
            .chars()
            .all(|letter| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(document: &str) -> String {
        let source = |path: &str, text: &str| Source {
            path: path.into(),
            text: text.to_owned(),
        };
        let code = "/// Names.\npub(crate) const MAX_NAMES: usize = 3;\nconst DELAY: u8 = 1;\nconst fn f() {}\n\
                    impl A {\n    pub const WIDTH_MAX: u32 = 1;\n}\nmod tests {\n    const MAX_TRIES: u8 = 1;\n";
        let files = [
            source("crates/dvm/src/life.rs", code),
            source("crates/dvm/src/life/tests.rs", "const MAX_OTHER: u8 = 1;"),
            source("crates/os/src/pipe.rs", "const MAX_PIPES: u8 = 1;"),
            source(DOCUMENT, document),
        ];
        check(&files).join("\n")
    }

    #[test]
    fn bounds_and_rows_belong_together() {
        let right = "| where | value | what | full |\n|---|---|---|---|\n\
                     | `dvm::life`: `MAX_NAMES`, `DELAY` | 3 | names | refused |\n\
                     | `dvm::life`: `WIDTH_MAX` | 1 | width | cut |\n";
        assert_eq!(complaints(right), "");
        assert_eq!(
            complaints(&right.replace("`MAX_NAMES`", "`MAX_WORDS`")),
            "docs/bounds.md: `dvm::life`: `MAX_WORDS`, `DELAY`: there is no `MAX_WORDS`\n\
             docs/bounds.md: no row for `MAX_NAMES` of `dvm`"
        );
        assert_eq!(
            complaints(&right.replace("`dvm::life`: `WIDTH_MAX`", "`pmix`: `WIDTH_MAX`")),
            "docs/bounds.md: `pmix`: `WIDTH_MAX`: there is no `WIDTH_MAX`\n\
             docs/bounds.md: no row for `WIDTH_MAX` of `dvm`"
        );
        assert_eq!(
            complaints(&right.replace("| cut |", "| |")),
            "docs/bounds.md: `dvm::life`: `WIDTH_MAX`: and when it is full?"
        );
        assert_eq!(
            complaints(&right.replace(" | cut |", " |")),
            "docs/bounds.md: not four cells: | `dvm::life`: `WIDTH_MAX` | 1 | width |\n\
             docs/bounds.md: no row for `WIDTH_MAX` of `dvm`"
        );
    }
}
