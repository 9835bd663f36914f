//! Variables for an Open MPI that was moved from its compiled-in prefix, such as a wheel that was unpacked somewhere.
//!
//! The library has the directories of its help texts and plugins compiled in. `OPAL_PREFIX` overrides them (`PMIX_PREFIX`
//! for its PMIx), and its own launcher sets these variables for the ranks. Without them every MPI error is reported as
//! "Sorry! You were supposed to get help". We set them only for a rank that is known to load a moved library: for any other
//! Open MPI they would be wrong.
//!
//! A program that is not linked with Open MPI may start one that is: a shell, `env`, `numactl`, a script, Python. Then all
//! programs that its command line names are examined ([`words`]), and those that load an Open MPI must load the same one.

mod linked;
mod words;

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs::{self, File},
    io::{self, Read},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use dvm::spec::App;
use memchr::memmem;

use self::words::Program;

/// The library of Open MPI 1.10 to 5 that programs are linked with.
const LIBRARY: &str = "libmpi.so.40";
/// Libraries that contain the compiled-in prefix: that of 5.0, that of 4.1, and that of builds with all in one library.
const COMPILED_IN: [&str; 3] = ["libopen-pal.so.80", "libopen-pal.so.40", LIBRARY];
/// Bytes of a library that are searched at most. The libraries of releases have 1 to 8 MiB.
const MAX_LIBRARY: u64 = 256 << 20;
/// The variable by which mpi4py is told which library to load.
const OF_PYTHON: &str = "MPI4PY_LIBMPI";

/// Returns the variables to set for an app whose library was moved; none for other apps.
pub(super) fn variables(app: &App, program: &Path) -> Vec<(&'static str, PathBuf)> {
    let Some(prefix) = prefix(app, program) else {
        return Vec::new();
    };
    let places = [
        ("OPAL_PREFIX", "share/openmpi"),
        ("PMIX_PREFIX", "share/pmix"),
    ];
    let wanted = places
        .iter()
        .filter(|(name, below)| variable_of(app, name).is_none() && prefix.join(below).is_dir());
    wanted.map(|(name, _)| (*name, prefix.clone())).collect()
}

/// Returns the present prefix of the library that an app loads, if it was compiled for another one.
fn prefix(app: &App, program: &Path) -> Option<PathBuf> {
    let directory = library_directory(app, program)?;
    let prefix = directory.parent()?.to_path_buf();
    // Only a self-contained installation can be moved; one of a distribution is spread over the system.
    if !prefix.join("share/openmpi").is_dir() {
        return None;
    }
    let real = fs::canonicalize(&prefix).ok()?;
    let mut has_been_read = false;
    for name in COMPILED_IN {
        let file = directory.join(name);
        if fs::metadata(&file).is_ok_and(|metadata| metadata.len() <= MAX_LIBRARY)
            && let Ok(bytes) = content(&file)
        {
            has_been_read = true;
            if [&prefix, &real].iter().any(|place| names(&bytes, place)) {
                return None;
            }
        }
    }
    has_been_read.then_some(prefix)
}

fn content(file: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::from(os::open_for_reading(file)?)
        .take(MAX_LIBRARY)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns true if a library contains a directory as a NUL-terminated string, or as the end of one.
fn names(library: &[u8], directory: &Path) -> bool {
    let text = [directory.as_os_str().as_bytes(), b"\0"].concat();
    memmem::find(library, &text).is_some()
}

/// Returns the directory from which the ranks of an app load Open MPI. `None` if it is unknown, or if programs that they
/// may run load different ones.
fn library_directory(app: &App, program: &Path) -> Option<PathBuf> {
    let mut loaded = BTreeSet::new();
    for program in words::programs(app, program)? {
        loaded.extend(loaded_by(app, &program));
    }
    let mut loaded = loaded.into_iter();
    match (loaded.next(), loaded.next()) {
        // No program was recognized: assume the library in `LD_LIBRARY_PATH`, which applies to all programs.
        (None, _) => listed(variable_of(app, "LD_LIBRARY_PATH")?),
        (Some(Loaded::From(directory)), None) => Some(directory),
        (Some(Loaded::Elsewhere), None) | (Some(_), Some(_)) => None,
    }
}

/// Which Open MPI a program loads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Loaded {
    From(PathBuf),
    /// One of the system, or an unknown one.
    Elsewhere,
}

/// Returns `None` for a program that is neither linked with Open MPI nor a Python with one beside it or named for it.
fn loaded_by(app: &App, program: &Program) -> Option<Loaded> {
    let for_all = || listed(variable_of(app, "LD_LIBRARY_PATH")?);
    let Some(linked) = &program.linked else {
        // The Python of a virtual environment loads the library installed there, unless a variable names another one.
        let beside = || {
            let beside = program.path.parent()?.parent()?.join("lib");
            has_library(&beside).then_some(beside)
        };
        let named = || {
            let file = Path::new(variable_of(app, OF_PYTHON)?);
            let directory = file.parent().filter(|_| file.ends_with(LIBRARY))?;
            has_library(directory).then(|| directory.to_path_buf())
        };
        let found = named().or_else(|| beside().map(|beside| for_all().unwrap_or(beside)));
        return found.map(Loaded::From);
    };
    let before = linked.before.as_deref().and_then(listed);
    let after = || listed(linked.after.as_deref()?);
    let found = before.or_else(for_all).or_else(after);
    Some(found.map_or(Loaded::Elsewhere, Loaded::From))
}

fn has_library(directory: &Path) -> bool {
    directory.is_absolute() && directory.join(LIBRARY).is_file()
}

/// Returns the first directory of a colon-separated list that contains the library.
fn listed(list: &OsStr) -> Option<PathBuf> {
    let entries = list.as_bytes().split(|byte| *byte == b':');
    entries
        .map(|entry| PathBuf::from(OsStr::from_bytes(entry)))
        .find(|entry| has_library(entry))
}

fn variable_of<'a>(app: &'a App, name: &str) -> Option<&'a OsStr> {
    app.env.get(name).filter(|value| !value.is_empty())
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "tests make the files that are looked at"
)]
mod tests {
    use dvm::spec::Tracers;

    use super::*;

    fn app(env: &[(&str, String)]) -> App {
        behind("./a", &[], env)
    }

    fn behind(program: &str, args: &[&str], env: &[(&str, String)]) -> App {
        App {
            program: program.into(),
            args: args.iter().map(Into::into).collect(),
            env: env.iter().map(|(name, value)| (*name, value)).collect(),
            directory: "/".into(),
            search: "/bin".into(),
            elsewhere: std::sync::Arc::default(),
            umask: 0o022,
            tracers: Tracers::Ancestors,
        }
    }

    /// Makes an installation whose libraries say that it was made for `made_for`.
    fn installed(root: &Path, name: &str, made_for: &str) -> PathBuf {
        let prefix = root.join(name);
        for directory in ["bin", "lib", "share/openmpi", "share/pmix"] {
            fs::create_dir_all(prefix.join(directory)).unwrap();
        }
        fs::write(prefix.join("lib/libmpi.so.40"), "nothing").unwrap();
        let text = format!("x\0--prefix={made_for} y\0{made_for}\0z");
        fs::write(prefix.join("lib/libopen-pal.so.80"), text).unwrap();
        fs::write(prefix.join("bin/python3"), b"\x7fELF and no more").unwrap();
        prefix
    }

    #[test]
    fn only_a_library_that_was_moved_is_told_where_it_is() {
        let root = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(root.path()).unwrap();
        let moved = installed(&root, "moved", "/opt/openmpi");
        let right = installed(&root, "right", &root.join("right").display().to_string());
        let spread = installed(&root, "spread", "/usr");
        fs::remove_dir_all(spread.join("share")).unwrap();
        let no_pmix = installed(&root, "no-pmix", "/opt/openmpi");
        fs::remove_dir_all(no_pmix.join("share/pmix")).unwrap();

        let lib = |prefix: &Path| prefix.join("lib").display().to_string();
        let library = |prefix: &Path| prefix.join("lib/libmpi.so.40").display().to_string();
        let python = |prefix: &Path| prefix.join("bin/python3");
        let text = |path: &Path| path.display().to_string();
        let path = |value| ("LD_LIBRARY_PATH", value);
        let sh = PathBuf::from("/bin/sh");
        let cases = [
            ("nothing known", app(&[]), sh.clone()),
            ("path", app(&[path(lib(&moved))]), sh.clone()),
            (
                "path, later",
                app(&[path(format!("/nowhere:{}", lib(&moved)))]),
                sh.clone(),
            ),
            (
                "path, right one first",
                app(&[path(format!("{}:{}", lib(&right), lib(&moved)))]),
                sh.clone(),
            ),
            ("path, spread", app(&[path(lib(&spread))]), sh.clone()),
            ("path, no PMIx", app(&[path(lib(&no_pmix))]), sh.clone()),
            ("python beside it", app(&[]), python(&moved)),
            ("python beside one that is right", app(&[]), python(&right)),
            (
                "what mpi4py loads",
                app(&[("MPI4PY_LIBMPI", library(&moved))]),
                python(&right),
            ),
            (
                "said already",
                app(&[path(lib(&moved)), ("OPAL_PREFIX", "/x".to_owned())]),
                sh.clone(),
            ),
            ("no such file", app(&[]), root.join("none")),
            (
                "python behind a shell",
                behind(
                    "sh",
                    &["-c", &format!("exec {} x.py", python(&moved).display())],
                    &[],
                ),
                sh.clone(),
            ),
            (
                "behind two",
                behind("sh", &[&text(&python(&moved)), &text(&python(&right))], &[]),
                sh.clone(),
            ),
            (
                "behind one that sets the path",
                behind(
                    "env",
                    &["LD_LIBRARY_PATH=/x", &text(&python(&moved))],
                    &[path(lib(&moved))],
                ),
                sh.clone(),
            ),
        ];
        let found = cases.map(|(name, app, program)| {
            let variables = variables(&app, &program);
            let text = |(name, value): &(&str, PathBuf)| format!("{name}={}", value.display());
            let texts = variables.iter().map(text);
            let text = texts.collect::<Vec<_>>().join(" ");
            let text = if text.is_empty() { "-" } else { &text };
            format!("{name}: {}", text.replace(root.to_str().unwrap(), "/R"))
        });
        insta::assert_snapshot!(found.join("\n"), @"
        nothing known: -
        path: OPAL_PREFIX=/R/moved PMIX_PREFIX=/R/moved
        path, later: OPAL_PREFIX=/R/moved PMIX_PREFIX=/R/moved
        path, right one first: -
        path, spread: -
        path, no PMIx: OPAL_PREFIX=/R/no-pmix
        python beside it: OPAL_PREFIX=/R/moved PMIX_PREFIX=/R/moved
        python beside one that is right: -
        what mpi4py loads: OPAL_PREFIX=/R/moved PMIX_PREFIX=/R/moved
        said already: PMIX_PREFIX=/R/moved
        no such file: -
        python behind a shell: OPAL_PREFIX=/R/moved PMIX_PREFIX=/R/moved
        behind two: -
        behind one that sets the path: -
        ");
    }
}
