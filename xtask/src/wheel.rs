//! `cargo xtask wheel`: the Python package and the shipped binaries in one file, which `pip` installs.
//!
//! pyproject.toml is the only source of the metadata. The same input gives the same bytes: names are sorted, times are fixed, and
//! the compressor is one of Cargo.lock. See docs/decisions/0040-python.md.

mod archive;
mod metadata;
mod platform;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use data_encoding::BASE64URL_NOPAD;
use sha2::{Digest as _, Sha256};

pub(crate) use self::metadata::Project;
use self::{archive::Archive, platform::Platform};
use crate::{
    env::{root, target},
    release::{BINARIES, released},
};

/// Licences of the project, relative to its root.
const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

const PROGRAM: u32 = 0o100_755;
const DATA: u32 = 0o100_644;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory with `rally` and `dbgr` [default: that of the release build].
    #[arg(long)]
    binaries: Option<PathBuf>,
    /// Directory for the wheel [default: `wheel` in the build directory].
    #[arg(short, long)]
    output: Option<PathBuf>,
}

/// A file of the wheel.
struct Member {
    name: String,
    mode: u32,
    content: Vec<u8>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let binary = |name: &str| match &args.binaries {
        Some(directory) => Ok(directory.join(name)),
        None => released(name),
    };
    let [rally, dbgr] = BINARIES.map(binary);
    let directory = args.output.clone();
    let directory = directory.unwrap_or_else(|| target().join("wheel"));
    println!("{}", pack([rally?, dbgr?], &directory)?.display());
    Ok(())
}

/// Writes the wheel, and returns its path.
///
/// `binaries` are those of [`BINARIES`].
pub(crate) fn pack(binaries: [PathBuf; BINARIES.len()], directory: &Path) -> Result<PathBuf> {
    let project = Project::read(&root())?;
    project.check_version()?;
    let mut programs = Vec::new();
    for (name, path) in BINARIES.into_iter().zip(binaries) {
        let content = fs::read(&path).with_context(|| path.display().to_string())?;
        programs.push((name, content));
    }
    let platform = Platform::of_all(programs.iter().map(|(name, bytes)| (*name, &**bytes)))?;
    let package = format!("{}-{}", project.name()?, project.version()?);
    let mut members = modules(&root().join("python/src"))?;
    for (name, content) in programs {
        members.push(Member {
            name: format!("{package}.data/scripts/{name}"),
            mode: PROGRAM,
            content,
        });
    }
    members.sort_by(|one, other| one.name.cmp(&other.name));
    // The metadata come last, as the specification recommends: readers then find them without reading all of the file.
    members.extend(info(&package, &project, &platform)?);
    let file = format!("{package}-py3-none-{}.whl", platform.tags().join("."));
    fs::create_dir_all(directory)?;
    let path = directory.join(file);
    let record = format!("{package}.dist-info/RECORD");
    let bytes = zipped(members, &record)?;
    fs::write(&path, bytes).with_context(|| path.display().to_string())?;
    Ok(path)
}

/// Returns the modules of the package, and the marker that they have types.
fn modules(source: &Path) -> Result<Vec<Member>> {
    let mut found = Vec::new();
    let mut open = vec![source.join("rally")];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
                continue;
            }
            let is_module = path.extension().is_some_and(|extension| extension == "py");
            if !is_module && !path.ends_with("py.typed") {
                continue;
            }
            let name = path.strip_prefix(source)?.to_str();
            found.push(Member {
                name: name
                    .context("the name of a module is not UTF-8")?
                    .to_owned(),
                mode: DATA,
                content: fs::read(&path)?,
            });
        }
    }
    if found.is_empty() {
        bail!("{} has no modules", source.display());
    }
    Ok(found)
}

/// Returns the files of the `.dist-info` directory except RECORD, sorted by name.
fn info(package: &str, project: &Project, platform: &Platform) -> Result<Vec<Member>> {
    let member = |name: &str, content: Vec<u8>| Member {
        name: format!("{package}.dist-info/{name}"),
        mode: DATA,
        content,
    };
    let mut members = vec![
        member("METADATA", project.metadata(&LICENCES)?.into_bytes()),
        member("WHEEL", metadata::wheel(&platform.tags()).into_bytes()),
    ];
    for licence in LICENCES {
        let text = fs::read(root().join(licence)).with_context(|| licence.to_owned())?;
        members.push(member(&format!("licenses/{licence}"), text));
    }
    Ok(members)
}

/// Packs the files, and the list of them with their hashes.
fn zipped(members: Vec<Member>, record: &str) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    let mut list = String::new();
    for member in members {
        let hash = BASE64URL_NOPAD.encode(&Sha256::digest(&member.content));
        let length = member.content.len();
        list += &format!("{},sha256={hash},{length}\n", member.name);
        archive.add(&member.name, member.mode, &member.content)?;
    }
    list += &format!("{record},,\n");
    archive.add(record, DATA, list.as_bytes())?;
    archive.finish()
}
