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

/// Returns the program that a compiler makes from a source file and the headers next to it. `options` follow the file's
/// name.
///
/// Concurrent tests share compiled programs, and some programs start themselves. So a program is named after everything that
/// it is made from, gets this name when it is complete, and is never replaced.
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
        // The Fortran compiler writes module files into its working directory.
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
