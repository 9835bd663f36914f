//! `cargo xtask tidy`: the house rules that the compiler does not check.
//!
//! Each check returns its complaints as text; the task fails if there is any. `tidy/arrows.rs` lists the crates and the allowed
//! dependencies between them (arrows): a new arrow needs a decision record and a line there.

mod arrows;
mod bounds;
mod circles;
mod docs;
mod fuzz;
mod licences;
mod modules;
mod python;
mod sources;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use serde_json::Value;

use crate::env::{cargo, root, text_of};

/// Complaints of one check, each with the location and the fault.
type Complaints = Vec<String>;

pub(crate) fn run() -> Result<()> {
    let complaints = check(&root())?;
    if complaints.is_empty() {
        return Ok(());
    }
    for complaint in &complaints {
        println!("tidy: {complaint}");
    }
    bail!("{} complaints", complaints.len());
}

fn check(root: &Path) -> Result<Complaints> {
    let workspace = metadata(&["--no-deps"])?;
    let everything = metadata(&[])?;
    let paths = tracked(root)?;
    let files = texts(root, &paths);
    let mut complaints = arrows::check(&workspace);
    complaints.extend(arrows::unused(&workspace));
    complaints.extend(arrows::unnamed(root, &workspace, &files));
    complaints.extend(arrows::invariants(root, &workspace));
    complaints.extend(sources::check(&files));
    complaints.extend(circles::check(&files));
    complaints.extend(modules::check(&files));
    complaints.extend(bounds::check(&files));
    complaints.extend(fuzz::check(&files, &paths));
    complaints.extend(docs::links(root, &files));
    complaints.extend(docs::dependencies(root, &workspace));
    complaints.extend(docs::planted(root));
    complaints.extend(docs::minutes(root));
    complaints.extend(python::check(root));
    complaints.extend(licences::check(&everything));
    complaints.sort();
    Ok(complaints)
}

/// Returns cargo's metadata of the workspace.
fn metadata(more: &[&str]) -> Result<Value> {
    let mut args = vec![
        "metadata",
        "--locked",
        "--format-version",
        "1",
        "--filter-platform",
    ];
    args.push("x86_64-unknown-linux-gnu");
    args.extend(more);
    Ok(serde_json::from_str(&text_of(&mut cargo(&args))?)?)
}

fn packages(metadata: &Value) -> impl Iterator<Item = &Value> {
    metadata["packages"].as_array().into_iter().flatten()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// A text file of the project.
#[derive(Debug)]
struct Source {
    /// Path relative to the root directory of the checkout.
    path: PathBuf,
    text: String,
}

impl Source {
    fn has_extension(&self, extension: &str) -> bool {
        self.path.extension().is_some_and(|own| own == extension)
    }
}

/// Returns every file that git tracks or would add, relative to the root directory of the checkout.
fn tracked(root: &Path) -> Result<Vec<PathBuf>> {
    let mut git = std::process::Command::new("git");
    git.args([
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "-z",
    ])
    .current_dir(root);
    let list = text_of(&mut git)?;
    let paths = list.split('\0').filter(|path| !path.is_empty());
    // A tracked file may have been deleted without a commit.
    let is_there = |path: &PathBuf| root.join(path).exists();
    Ok(paths.map(PathBuf::from).filter(is_there).collect())
}

/// Returns the text files among the paths, without binary files such as recorded traffic.
fn texts(root: &Path, paths: &[PathBuf]) -> Vec<Source> {
    let text = |path: &PathBuf| {
        Some(Source {
            path: path.clone(),
            text: std::fs::read_to_string(root.join(path)).ok()?,
        })
    };
    paths.iter().filter_map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_house_is_tidy() {
        let complaints = check(&root()).unwrap();
        assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    }
}
