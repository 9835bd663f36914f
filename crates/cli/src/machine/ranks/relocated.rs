//! An Open MPI that is not where it was made for, as a wheel that was unpacked somewhere.
//!
//! The library has the directories of its help texts and plugins compiled in, and takes another place for them from
//! `OPAL_PREFIX` (its PMIx from `PMIX_PREFIX`). Its own launcher sets these for the ranks. Without them every error of MPI is
//! told as "Sorry! You were supposed to get help". They are set only where a rank is known to load such a library: for any
//! other Open MPI they would be wrong.

use std::{
    ffi::{CString, OsStr, OsString},
    fs::{self, File},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use dvm::spec::App;
use memchr::memmem;
use object::{
    Endianness, ReadCache, ReadRef as _,
    elf::{self, FileHeader64},
    read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _},
};

use super::program::variable;

/// The library of Open MPI 1.10 to 5 that programs are linked with.
const LIBRARY: &str = "libmpi.so.40";
/// Where the place that it was made for stands in it: 5.0, 4.1, and builds that have all in one.
const COMPILED_IN: [&str; 3] = ["libopen-pal.so.80", "libopen-pal.so.40", LIBRARY];
/// Bytes of a library that are searched; those of a release have 1 to 8 MiB.
const MAX_LIBRARY: u64 = 256 << 20;
/// Bytes of one name or list of directories in a program.
const MAX_TEXT: u64 = 64 << 10;

/// By this variable mpi4py is told which library to load.
const OF_PYTHON: &str = "MPI4PY_LIBMPI";

/// Variables for an app whose library has been moved; none for all others.
pub(super) fn variables(app: &App, program: &Path) -> Vec<CString> {
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
    wanted
        .map(|(name, _)| variable(name.as_ref(), prefix.as_os_str()))
        .collect()
}

/// Where the library of an app is now, if it was made for another place.
fn prefix(app: &App, program: &Path) -> Option<PathBuf> {
    let directory = library_directory(app, program)?;
    let prefix = directory.parent()?.to_path_buf();
    // Only a whole installation can be somewhere else; one of a distribution is spread over the system.
    if !prefix.join("share/openmpi").is_dir() {
        return None;
    }
    let real = fs::canonicalize(&prefix).ok()?;
    let mut has_been_read = false;
    for name in COMPILED_IN {
        let file = directory.join(name);
        if fs::metadata(&file).is_ok_and(|metadata| metadata.len() <= MAX_LIBRARY)
            && let Ok(bytes) = fs::read(file)
        {
            has_been_read = true;
            if [&prefix, &real].iter().any(|place| names(&bytes, place)) {
                return None;
            }
        }
    }
    has_been_read.then_some(prefix)
}

/// Whether a library has a directory in it, as a text or the end of one.
fn names(library: &[u8], directory: &Path) -> bool {
    let text = [directory.as_os_str().as_bytes(), b"\0"].concat();
    memmem::find(library, &text).is_some()
}

/// The directory from which ranks of an app load their Open MPI, as far as that can be told.
fn library_directory(app: &App, program: &Path) -> Option<PathBuf> {
    let has = |directory: &Path| directory.is_absolute() && directory.join(LIBRARY).is_file();
    let listed = |list: &OsStr| {
        let entries = list.as_bytes().split(|byte| *byte == b':');
        entries
            .map(|entry| PathBuf::from(OsStr::from_bytes(entry)))
            .find(|entry| has(entry))
    };
    let linked = linked(program);
    if let Some(linked) = &linked
        && let Some(list) = &linked.before
        && let Some(found) = listed(list)
    {
        return Some(found);
    }
    // What is set for Python counts for Python, and what is set for all counts for those behind a wrapper as well.
    let named = variable_of(app, OF_PYTHON).map(Path::new);
    let named = named
        .filter(|file| linked.is_none() && file.ends_with(LIBRARY))
        .and_then(|file| Some(file.parent()?.to_path_buf()))
        .filter(|directory| has(directory));
    let found = named.or_else(|| listed(variable_of(app, "LD_LIBRARY_PATH")?));
    match linked {
        _ if found.is_some() => found,
        Some(linked) => listed(&linked.after?),
        // The Python of a virtual environment loads what was installed into that.
        None => {
            let beside = program.parent()?.parent()?.join("lib");
            has(&beside).then_some(beside)
        }
    }
}

fn variable_of<'a>(app: &'a App, name: &str) -> Option<&'a OsStr> {
    let known = app.env.iter().find(|(known, _)| known == name)?;
    Some(known.1.as_os_str()).filter(|value| !value.is_empty())
}

/// Where a program that is linked with the library looks for it.
struct Linked {
    /// Before `LD_LIBRARY_PATH`, and after it.
    before: Option<OsString>,
    after: Option<OsString>,
}

/// `None` for programs that are not linked with it, and for what is no program.
fn linked(program: &Path) -> Option<Linked> {
    let file = &ReadCache::new(File::open(program).ok()?);
    let header = FileHeader64::<Endianness>::parse(file).ok()?;
    let endian = header.endian().ok()?;
    let headers = header.program_headers(endian, file).ok()?;
    let dynamic = headers
        .iter()
        .find_map(|header| header.dynamic(endian, file).ok()?)?;
    let value = |tag| {
        let mut entries = dynamic.iter();
        let entry = entries.find(|entry| entry.d_tag(endian) == tag)?;
        Some(entry.d_val(endian))
    };
    let texts = value(elf::DT_STRTAB)?;
    // The table's address is one in memory.
    let at = headers.iter().find_map(|header| {
        let inside = texts.checked_sub(header.p_vaddr(endian))?;
        let is_there = header.p_type(endian) == elf::PT_LOAD && inside < header.p_filesz(endian);
        is_there.then_some(header.p_offset(endian).checked_add(inside)?)
    })?;
    let end = file.len().ok()?;
    let text = |offset: u64| {
        let from = at.checked_add(offset)?;
        let until = from.checked_add(MAX_TEXT)?.min(end);
        file.read_bytes_at_until(from..until, 0).ok()
    };
    let mut needed = dynamic
        .iter()
        .filter(|entry| entry.d_tag(endian) == elf::DT_NEEDED)
        .filter_map(|entry| text(entry.d_val(endian)));
    needed.find(|name| *name == LIBRARY.as_bytes())?;
    let list = |tag| Some(expanded(text(value(tag)?)?, program));
    let after = list(elf::DT_RUNPATH);
    Some(Linked {
        // The older of the two lists, where the younger one is not.
        before: list(elf::DT_RPATH).filter(|_| after.is_none()),
        after,
    })
}

/// A list of directories, with the program's own for `$ORIGIN`.
fn expanded(list: &[u8], program: &Path) -> OsString {
    let program = fs::canonicalize(program).unwrap_or_else(|_| program.to_path_buf());
    let origin = program
        .parent()
        .map_or_else(|| OsStr::new("/"), Path::as_os_str);
    let mut text = Vec::with_capacity(list.len());
    let mut rest = list;
    while let Some(at) = memchr::memchr(b'$', rest) {
        let (before, from) = rest.split_at(at);
        text.extend_from_slice(before);
        let word = [&b"$ORIGIN"[..], b"${ORIGIN}"]
            .into_iter()
            .find(|word| from.starts_with(word));
        match word {
            Some(word) => {
                text.extend_from_slice(origin.as_bytes());
                rest = &from[word.len()..];
            }
            None => {
                text.push(b'$');
                rest = &from[1..];
            }
        }
    }
    text.extend_from_slice(rest);
    OsString::from_vec(text)
}

#[cfg(test)]
mod tests {
    use dvm::spec::Tracers;

    use super::*;

    fn app(env: &[(&str, String)]) -> App {
        App {
            program: "./a".into(),
            args: Vec::new(),
            env: env
                .iter()
                .map(|(name, value)| ((*name).into(), value.into()))
                .collect(),
            directory: "/".into(),
            search: "/bin".into(),
            umask: None,
            tracers: Tracers::Ancestors,
        }
    }

    /// An installation that says that it was made for some place.
    fn installed(root: &Path, name: &str, made_for: &str) -> PathBuf {
        let prefix = root.join(name);
        for directory in ["bin", "lib", "share/openmpi", "share/pmix"] {
            fs::create_dir_all(prefix.join(directory)).unwrap();
        }
        fs::write(prefix.join("lib/libmpi.so.40"), "nothing").unwrap();
        let text = format!("x\0--prefix={made_for} y\0{made_for}\0z");
        fs::write(prefix.join("lib/libopen-pal.so.80"), text).unwrap();
        fs::write(prefix.join("bin/python3"), "no program").unwrap();
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
        ];
        let found = cases.map(|(name, app, program)| {
            let variables = variables(&app, &program);
            let texts = variables.iter().map(|variable| variable.to_string_lossy());
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
        ");
    }

    #[test]
    fn where_a_program_is() {
        let list = |text: &str| expanded(text.as_bytes(), Path::new("/nowhere/bin/a"));
        assert_eq!(
            list("$ORIGIN/../lib:/x:${ORIGIN}:$LIB/$"),
            "/nowhere/bin/../lib:/x:/nowhere/bin:$LIB/$"
        );
    }
}
