//! Checks that the licence of every package that we build allows us to ship it under MIT OR Apache-2.0.

use serde_json::Value;

use super::{Complaints, packages, text};

/// The licences that deny.toml allows. This is a copy, because tidy must not depend on `cargo deny`, which may be missing.
const ALLOWED: [&str; 9] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Zlib",
];

pub(super) fn check(metadata: &Value) -> Complaints {
    let built = metadata["resolve"]["nodes"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|node| text(node, "id"))
        .collect::<std::collections::BTreeSet<_>>();
    packages(metadata)
        .filter(|package| built.contains(text(package, "id")))
        .filter(|package| !is_allowed(text(package, "license")))
        .map(|package| {
            let (name, version) = (text(package, "name"), text(package, "version"));
            format!(
                "`{name}` {version}: its licence `{}` is not one of {ALLOWED:?}",
                text(package, "license")
            )
        })
        .collect()
}

/// Returns true if the allowed licences satisfy an SPDX expression. The obsolete separator `/` means `OR`.
fn is_allowed(expression: &str) -> bool {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace(" WITH ", "\u{0}");
    let words = spaced.split_whitespace().collect::<Vec<_>>();
    let mut rest = words.as_slice();
    either(&mut rest) && rest.is_empty()
}

fn either(rest: &mut &[&str]) -> bool {
    let mut good = both(rest);
    while let ["OR", tail @ ..] = *rest {
        *rest = tail;
        good |= both(rest);
    }
    good
}

fn both(rest: &mut &[&str]) -> bool {
    let mut good = one(rest);
    while let ["AND", tail @ ..] = *rest {
        *rest = tail;
        good &= one(rest);
    }
    good
}

fn one(rest: &mut &[&str]) -> bool {
    let Some((first, tail)) = rest.split_first() else {
        return false;
    };
    *rest = tail;
    if *first != "(" {
        let name = first.replace('\u{0}', " WITH ");
        return ALLOWED.contains(&name.as_str());
    }
    let good = either(rest);
    match rest.split_first() {
        Some((&")", tail)) => {
            *rest = tail;
            good
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_understood() {
        let cases = [
            ("MIT", true),
            ("MIT OR Apache-2.0", true),
            ("MIT/Apache-2.0", true),
            ("Unlicense OR MIT", true),
            ("(MIT OR GPL-3.0) AND Unicode-3.0", true),
            ("Apache-2.0 WITH LLVM-exception OR MIT", true),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("GPL-3.0", false),
            ("MIT AND GPL-3.0", false),
            ("(MIT OR Apache-2.0) AND NCSA", false),
            ("GPL-3.0 WITH LLVM-exception", false),
            ("(MIT", false),
            ("", false),
        ];
        for (expression, allowed) in cases {
            assert_eq!(is_allowed(expression), allowed, "{expression}");
        }
    }
}
