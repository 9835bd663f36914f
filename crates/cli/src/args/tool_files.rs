//! `--tool-files`: which files of a tool are copied to the nodes.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
};

use dvm::{
    preload::copy_name,
    spec::{Preload, Preloaded},
};

use super::{Error, World, app_file::MAX_FILE, error::FileKind, preload::add};
use crate::{files::read, quoting, tool::libraries, values::ValueError};

/// The most bytes of a program or a library in which names of libraries are looked for.
const IMAGE_MAX: u64 = 1 << 30;

/// Returns the tool, its libraries and the files of a list. `typed` is the option, for messages.
pub(super) fn resolve(
    program: &OsStr,
    list: &OsStr,
    typed: &str,
    world: &World,
) -> Result<Preload, Error> {
    let (path, name) = found(program, world);
    let mut preload = Preload {
        place: None,
        files: Vec::new(),
        use_of: Preloaded::default(),
    };
    add(&mut preload, &path, &name, FileKind::PreloadProgram, world)?;
    let full = world.absolute(&path)?;
    let variable = OsStr::new("LD_LIBRARY_PATH");
    let library_path = world.variables.get(variable);
    let libraries = libraries::of_program(&full, library_path.map(OsString::as_os_str), |path| {
        read(path, IMAGE_MAX).ok()
    });
    for (name, path) in libraries {
        add(&mut preload, &path, &name, FileKind::Preload, world)?;
    }
    for path in listed(list, typed, world)? {
        add(
            &mut preload,
            &path,
            &copy_name(&path),
            FileKind::Preload,
            world,
        )?;
    }
    preload.use_of.programs.insert(0, name);
    Ok(preload)
}

/// Returns where the program is, and the name of its copy.
fn found(program: &OsStr, world: &World) -> (PathBuf, OsString) {
    let typed = Path::new(program);
    if program.as_bytes().contains(&b'/') {
        let name = typed.file_name().unwrap_or(program);
        return (typed.to_owned(), name.to_owned());
    }
    let search = world.variables.get(OsStr::new("PATH"));
    let search = search.map(OsString::as_os_str).unwrap_or_default();
    let path = match os::find_program(program, search) {
        os::Found::Program(path) | os::Found::NotExecutable(path) => path,
        os::Found::Missing => typed.to_owned(),
    };
    (path, program.to_owned())
}

/// Returns the files of a list, separated by commas. `@FILE` stands for the words of a file.
fn listed(list: &OsStr, typed: &str, world: &World) -> Result<Vec<PathBuf>, Error> {
    let mut all = Vec::new();
    for word in list.as_bytes().split(|byte| *byte == b',') {
        match word.strip_prefix(b"@") {
            Some(file) => {
                let file = Path::new(OsStr::from_bytes(file));
                let text = world.read(file, FileKind::ToolFiles, MAX_FILE)?;
                let lines = quoting::lines(&text).map_err(|(_, open)| Error::BadValue {
                    option: typed.to_owned(),
                    value: OsString::from_vec(word.to_vec())
                        .to_string_lossy()
                        .into_owned(),
                    reason: ValueError::Open(open),
                })?;
                all.extend(lines.into_iter().flat_map(|line| line.words));
            }
            None if word.is_empty() => {}
            None => all.push(OsString::from_vec(word.to_vec())),
        }
    }
    Ok(all.into_iter().map(PathBuf::from).collect())
}
