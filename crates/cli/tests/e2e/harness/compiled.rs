//! C programs that are compiled once for many tests.

use std::{
    fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io::ErrorKind,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError},
};

use super::scratch;

/// The program that a compiler makes of a source file and the headers beside it; `options` follow the file's name.
///
/// Tests of several processes share what is compiled, and some programs start themselves: a program is named after all
/// that it is made of, gets that name when it is whole, and is never replaced.
pub(crate) fn compiled(compiler: &Path, source: &Path, options: &[&str]) -> PathBuf {
    static DONE: Mutex<()> = Mutex::new(());
    let _one_at_a_time = DONE.lock().unwrap_or_else(PoisonError::into_inner);
    let name = source.file_stem().unwrap().to_str().unwrap();
    let mut hasher = DefaultHasher::new();
    (compiler, options).hash(&mut hasher);
    for file in headers_beside(source)
        .iter()
        .map(PathBuf::as_path)
        .chain([source])
    {
        fs::read(file).unwrap().hash(&mut hasher);
    }
    let program = scratch().join(format!("{name}-{:016x}", hasher.finish()));
    if program.exists() {
        return program;
    }
    let new = scratch().join(format!("{name}.{}", std::process::id()));
    let output = Command::new(compiler)
        // That of Fortran leaves a description of each module where it runs.
        .current_dir(scratch())
        .args(["-O1", "-o"])
        .arg(&new)
        .arg(source)
        .args(options)
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", compiler.display()));
    assert!(
        output.status.success(),
        "{}: {}",
        source.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    match fs::hard_link(&new, &program) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        linked => linked.unwrap(),
    }
    fs::remove_file(new).unwrap();
    program
}

fn headers_beside(source: &Path) -> Vec<PathBuf> {
    let mut headers: Vec<PathBuf> = fs::read_dir(source.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "h"))
        .collect();
    headers.sort();
    headers
}
