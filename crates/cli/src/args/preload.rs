//! `--preload-binary` and `--preload-files`: which files are copied to the nodes, under which names.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use dvm::{
    preload::copy_name,
    spec::{App, Preload, PreloadFile, Preloaded},
};

use super::{AppLine, Error, JobLine, World, error::FileKind};
use crate::files::{ReadProblem, regular_mode};

/// Returns the files to copy; `None` if no app needs a directory for them.
pub(super) fn resolve(
    lines: &[AppLine],
    job: &JobLine,
    apps: &[App],
    world: &World,
) -> Result<Option<Preload>, Error> {
    let is_wanted = |line: &AppLine| {
        let args = &line.args.preload;
        args.preload_binary || args.preload_wdir || !args.preload_files.is_empty()
    };
    if !lines.iter().any(is_wanted) {
        return Ok(None);
    }
    let place = job.args.preload.preload_dir.as_ref();
    let place = place.map(|place| world.absolute(Path::new(place)));
    let mut preload = Preload {
        place: place.transpose()?.map(PathBuf::into_os_string),
        files: Vec::new(),
        use_of: Preloaded::default(),
    };
    for ((index, line), app) in (0..).zip(lines).zip(apps) {
        let args = &line.args.preload;
        if args.preload_binary {
            let (path, name) = program(app);
            // Whoever may run the file may also read and run the copy, which is ours.
            add(&mut preload, &path, &name, FileKind::PreloadProgram, world)?;
            preload.use_of.programs.insert(index, name);
        }
        if args.preload_wdir {
            preload.use_of.inside.insert(index);
        }
        let listed = args.preload_files.iter();
        for name in listed.flat_map(|list| list.as_bytes().split(|byte| *byte == b',')) {
            if !name.is_empty() {
                let path = Path::new(OsStr::from_bytes(name));
                add(
                    &mut preload,
                    path,
                    &copy_name(path),
                    FileKind::Preload,
                    world,
                )?;
            }
        }
    }
    Ok(Some(preload))
}

/// Returns the program of an app as a path, and the name of its copy.
fn program(app: &App) -> (PathBuf, OsString) {
    let typed = Path::new(&app.program);
    if app.program.as_bytes().contains(&b'/') {
        return (typed.to_owned(), copy_name(typed));
    }
    let path = match os::find_program(&app.program, &app.search) {
        os::Found::Program(path) | os::Found::NotExecutable(path) => path,
        os::Found::Missing => typed.to_owned(),
    };
    (path, app.program.clone())
}

/// Adds a file, unless it is there already.
pub(super) fn add(
    preload: &mut Preload,
    path: &Path,
    name: &OsStr,
    what: FileKind,
    world: &World,
) -> Result<(), Error> {
    let full = world.absolute(path)?;
    let unreadable = |problem: ReadProblem| Error::Unreadable {
        what,
        path: path.to_owned(),
        problem,
    };
    let mode = regular_mode(&full).map_err(unreadable)?;
    let needed = match what {
        FileKind::PreloadProgram => 0o500,
        _ => 0o400,
    };
    let mode = mode | needed;
    let files = &mut preload.files;
    match files.iter_mut().find(|file| file.name == name) {
        None => files.push(PreloadFile {
            path: full.into_os_string(),
            name: name.to_owned(),
            mode,
        }),
        Some(file) if Path::new(&file.path) == full => file.mode |= mode,
        Some(file) => {
            return Err(Error::SameName {
                name: name.into(),
                first: (&file.path).into(),
                second: full,
            });
        }
    }
    Ok(())
}
