//! Checks that every fuzz target has seeds, and that every seed belongs to a target.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use super::{Complaints, Source};

const TARGETS: &str = "fuzz/fuzz_targets";
const SEEDS: &str = "fuzz/seeds";

/// Checks the seeds. `paths` contains all files of the project, because `files` lacks binary seeds.
pub(super) fn check(files: &[Source], paths: &[PathBuf]) -> Complaints {
    let targets = files
        .iter()
        .filter(|file| file.has_extension("rs") && file.path.parent() == Some(Path::new(TARGETS)))
        .filter_map(|file| file.path.file_stem()?.to_str())
        .collect::<BTreeSet<_>>();
    let seeds = paths
        .iter()
        .filter_map(|path| path.strip_prefix(SEEDS).ok()?.parent()?.to_str())
        .collect::<BTreeSet<_>>();
    let without = targets
        .difference(&seeds)
        .map(|target| format!("{TARGETS}/{target}.rs: no file in {SEEDS}/{target}"));
    let of_nothing = seeds
        .difference(&targets)
        .map(|seeds| format!("{SEEDS}/{seeds}: no target {TARGETS}/{seeds}.rs"));
    without.chain(of_nothing).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_and_seeds_belong_together() {
        let source = |path: &str| Source {
            path: path.into(),
            text: String::new(),
        };
        let files = ["wire.rs", "frame.rs", "shared/choice.rs"]
            .map(|name| source(&format!("{TARGETS}/{name}")));
        let complaints = |seeds: &[&str]| {
            let paths = seeds.iter().map(PathBuf::from).collect::<Vec<_>>();
            check(&files, &paths).join("\n")
        };
        assert_eq!(
            complaints(&["fuzz/seeds/wire/1", "fuzz/seeds/frame/a.bin", "README.md"]),
            ""
        );
        assert_eq!(
            complaints(&["fuzz/seeds/wire/1", "fuzz/seeds/gone/1"]),
            "fuzz/fuzz_targets/frame.rs: no file in fuzz/seeds/frame\n\
             fuzz/seeds/gone: no target fuzz/fuzz_targets/gone.rs"
        );
    }
}
