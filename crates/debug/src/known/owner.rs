//! Decides who wrote the code of a frame: a report should cite the user's own line, not a line of a library that happens to have
//! debug information.

use super::is_system;
use crate::stack::{Frame, FrameKind};

/// The author of a function, as far as its name and file show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// The authors of the system, the language or MPI.
    System,
    /// The authors of an installed package; a user's own package may be one.
    Package,
    /// The user: no other author is known.
    User,
}

/// File name prefixes of Python interpreters.
const INTERPRETERS: [&str; 4] = ["python", "libpython", "pypy", "libpypy"];
/// Parts of the file names of Python extension modules.
const EXTENSIONS: [&str; 2] = [".cpython-", ".abi3.so"];
/// Parts of the paths of installed Python packages, and of sources that cargo has downloaded.
const PACKAGES: [&str; 5] = [
    "/site-packages/",
    "/dist-packages/",
    "/.cargo/registry/",
    "/cargo/registry/src/",
    "/.cargo/git/",
];
/// Parts of the paths of Python's standard library. The rest of the version and a `/` follow.
const PYTHON: [&str; 2] = ["/lib/python3", "/lib64/python3"];
/// A part of the file names of modules that are frozen into the interpreter.
const FROZEN: &str = "<frozen ";
/// Namespaces of the standard libraries of Rust and C++.
const LANGUAGE: [&str; 6] = ["std", "core", "alloc", "__gnu_cxx", "__cxxabiv1", "__rustc"];
/// Crates that run other crates' functions.
const CRATES: [&str; 12] = [
    "tokio",
    "rayon",
    "rayon_core",
    "crossbeam",
    "crossbeam_utils",
    "mio",
    "futures",
    "futures_core",
    "futures_executor",
    "futures_util",
    "async_std",
    "parking_lot",
];
/// File name prefixes of libraries that many programs bundle.
const LIBRARIES: [&str; 8] = [
    "libtorch",
    "libc10",
    "libopenblas",
    "libmkl_",
    "libblas",
    "liblapack",
    "libhdf5",
    "libfftw",
];
/// Functions between the kernel and the thread's own first function.
const PROLOGUES: [&str; 16] = [
    "_start",
    "__libc_start_main",
    "__libc_start_main_impl",
    "__libc_start_call_main",
    "start_thread",
    "clone",
    "clone3",
    "__clone",
    "__clone3",
    "__GI___clone",
    "__GI___clone3",
    "thread_start",
    "__rust_try",
    "__rust_begin_short_backtrace",
    "execute_native_thread_routine",
    "thread_run",
];

/// Returns the author of a frame's code.
#[must_use]
pub fn owner(frame: &Frame) -> Owner {
    let file = frame.source.as_ref().map_or("", |source| &source.file);
    if PACKAGES.iter().any(|part| file.contains(part)) {
        return Owner::Package;
    }
    if frame.kind == FrameKind::Python {
        return if PYTHON.iter().any(|part| file.contains(part)) || file.contains(FROZEN) {
            Owner::System
        } else {
            Owner::User
        };
    }
    let module = frame.module.as_deref().unwrap_or_default();
    let crate_name = frame.function.as_deref().map_or("", namespace);
    let is_of_the_language = LANGUAGE.contains(&crate_name);
    if frame.kind == FrameKind::Signal
        || is_system(frame)
        || is_of_the_language
        || is_interpreter(frame)
        || is_prologue(frame)
    {
        return Owner::System;
    }
    let is_package = EXTENSIONS.iter().any(|part| module.contains(part))
        || LIBRARIES.iter().any(|start| module.starts_with(start))
        || CRATES.contains(&crate_name);
    if is_package {
        Owner::Package
    } else {
        Owner::User
    }
}

/// Returns the name of a file directly in a directory of Python's standard library. `None` for files in its subdirectories:
/// packages have files of the same names.
pub(super) fn standard_file(file: &str) -> Option<&str> {
    let rest = PYTHON
        .iter()
        .find_map(|part| Some(file.split_once(part)?.1));
    let (_version, name) = rest?.split_once('/')?;
    (!name.contains('/')).then_some(name)
}

/// Returns true if a function belongs to a Python interpreter itself.
#[must_use]
pub fn is_interpreter(frame: &Frame) -> bool {
    let module = frame.module.as_deref().unwrap_or_default();
    INTERPRETERS.iter().any(|start| module.starts_with(start))
}

/// Returns true if a function lies between the kernel and the program, as in every thread.
#[must_use]
pub fn is_prologue(frame: &Frame) -> bool {
    let name = frame.function.as_deref().unwrap_or_default();
    PROLOGUES.contains(&name)
}

/// Returns the index of the frame to cite, among frames that are given outermost first: the innermost one of the user, preferably
/// with a line. Without any, the innermost one of an installed package; `None` if there is neither.
#[must_use]
pub fn own<'a>(
    frames: impl DoubleEndedIterator<Item = &'a Frame> + ExactSizeIterator,
) -> Option<usize> {
    let mut best: Option<((Owner, bool), usize)> = None;
    for (at, frame) in frames.enumerate() {
        let has_line = frame.source.as_ref().is_some_and(|source| source.line > 0);
        let rank = (owner(frame), has_line);
        if rank.0 > Owner::System && best.is_none_or(|(other, _)| rank >= other) {
            best = Some((rank, at));
        }
    }
    best.map(|(_, at)| at)
}

/// Returns the outermost namespace of a name, which in Rust is the crate. For a trait implementation it is the crate of the
/// implementing type; of the trait, if that type is a parameter.
fn namespace(name: &str) -> &str {
    let inner = name.trim_start_matches(['<', '&', '*', '(', '[']);
    let inner = ["dyn ", "mut ", "const ", "impl "]
        .iter()
        .fold(inner, |name, word| name.strip_prefix(word).unwrap_or(name));
    let end = inner.find(|letter: char| !(letter.is_alphanumeric() || letter == '_'));
    let (first, rest) = inner.split_at(end.unwrap_or(inner.len()));
    match rest.strip_prefix(" as ") {
        Some(of_trait) if name.starts_with('<') => namespace(of_trait),
        _ if rest.starts_with("::") => first,
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::Source;

    fn frame(kind: FrameKind, function: &str, module: &str, file: &str) -> Frame {
        Frame {
            function: Some(function.into()),
            module: (!module.is_empty()).then(|| module.into()),
            source: (!file.is_empty()).then(|| Source {
                file: file.into(),
                line: 7,
            }),
            kind,
        }
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table of cases")]
    fn a_frame_is_of_whoever_has_written_it() {
        use FrameKind::{Native, Python};
        use Owner::{Package, System, User};
        for (kind, function, module, file, expected) in [
            (Native, "solve", "a.out", "src/solve.c", User),
            (Native, "heat::step::{{closure}}", "heat", "", User),
            (Native, "standard::step", "heat", "", User),
            (Native, "std::rt::lang_start", "heat", "", System),
            (
                Native,
                "futex_wait",
                "heat",
                "/rustc/5980/library/std/src/sys/futex.rs",
                System,
            ),
            (
                Native,
                "core::ops::function::FnOnce::call_once",
                "heat",
                "",
                System,
            ),
            (
                Native,
                "<alloc::boxed::Box<F,A> as core::ops::function::FnOnce<Args>>::call_once",
                "heat",
                "",
                System,
            ),
            (
                Native,
                "<F as core::future::Future>::poll",
                "heat",
                "",
                System,
            ),
            (
                Native,
                "<heat::Serve as core::future::Future>::poll",
                "heat",
                "",
                User,
            ),
            (
                Native,
                "<&mut heat::Serve as core::fmt::Write>::write",
                "heat",
                "",
                User,
            ),
            (
                Native,
                "tokio::runtime::park::Inner::park",
                "heat",
                "",
                Package,
            ),
            (
                Native,
                "poll",
                "heat",
                "/home/u/.cargo/registry/src/index/mio-1.0/src/poll.rs",
                Package,
            ),
            (Native, "std::thread::join", "a.out", "", System),
            (Native, "MPI_Recv", "libmpi.so.12", "recv.c", System),
            (
                Native,
                "time_sleep",
                "python3.11",
                "Modules/timemodule.c",
                System,
            ),
            (
                Native,
                "_PyEval_EvalFrameDefault",
                "libpython3.12.so.1.0",
                "",
                System,
            ),
            (
                Native,
                "sum",
                "_multiarray.cpython-311-x86_64-linux-gnu.so",
                "",
                Package,
            ),
            (Native, "start_thread", "libpthread.so.0", "", System),
            (Python, "train", "", "/home/u/train.py", User),
            (
                Python,
                "wait",
                "",
                "/usr/lib/python3.11/threading.py",
                System,
            ),
            (Python, "_run_code", "", "<frozen runpy>", System),
            (
                Python,
                "wrapper",
                "",
                "/opt/venv/lib/python3.11/site-packages/torch/distributed/c10d_logger.py",
                Package,
            ),
        ] {
            let frame = frame(kind, function, module, file);
            assert_eq!(owner(&frame), expected, "{function} of {module}, {file}");
        }
    }

    #[test]
    fn the_users_own_frame_is_cited() {
        let main = frame(FrameKind::Python, "main", "", "train.py");
        let wrapper = "/v/lib/python3.11/site-packages/torch/c10d_logger.py";
        let wrapper = frame(FrameKind::Python, "wrapper", "", wrapper);
        let wait = "/usr/lib/python3.11/threading.py";
        let wait = frame(FrameKind::Python, "wait", "", wait);
        let without_line = frame(FrameKind::Native, "helper", "libhelp.so", "");
        for (frames, expected) in [
            (vec![&main, &wrapper, &wait], Some(0)),
            (vec![&wrapper, &wait], Some(0)),
            (vec![&wait], None),
            (vec![&main, &without_line], Some(0)),
            (vec![&without_line, &wait], Some(0)),
            (vec![&main, &main, &wait], Some(1)),
        ] {
            assert_eq!(own(frames.iter().copied()), expected, "{frames:?}");
        }
    }
}
