//! Makes function names readable: demangles them, as their languages write them.

use std::fmt;

use addr2line::gimli::{self, DwLang};
use cpp_demangle::{DemangleOptions, ParseOptions};

use super::MAX_NAME;

/// Maximum length of a readable name in characters; templates make names of any length.
const MAX_READABLE: usize = 512;
/// Maximum bytes of a demangled C++ name. A short symbol can stand for a very long name, since it can refer to its own parts.
const MAX_WRITTEN: usize = 4 * MAX_READABLE + 4;
/// Maximum nesting depth of a C++ name.
const MAX_DEPTH: u32 = 128;

/// Returns the name of a function as a person writes it, from the name in a symbol table or debug information: without
/// parameters, return type and hash, and without the suffixes for parts that the compiler has split off.
pub(super) fn readable(raw: &str, language: Option<DwLang>) -> String {
    let name = unsplit(&raw[..raw.floor_char_boundary(MAX_NAME)]);
    let mut name = rust(name)
        .or_else(|| cpp(name))
        .or_else(|| fortran(name, language))
        .or_else(|| cython(name))
        .unwrap_or_else(|| name.to_owned());
    if let Some((end, _)) = name.char_indices().nth(MAX_READABLE) {
        name.truncate(end);
        name.push('…');
    }
    name
}

/// Removes the suffixes that compilers append to parts and copies of a function: `solve.constprop.0`, `solve.part.1.cold`.
fn unsplit(name: &str) -> &str {
    const ENDINGS: [&str; 7] = [
        "cold",
        "constprop",
        "isra",
        "lto_priv",
        "part",
        "localalias",
        "llvm",
    ];
    let end = ENDINGS
        .iter()
        .filter_map(|ending| {
            let at = name.find(&format!(".{ending}"))?;
            let rest = &name[at + 1 + ending.len()..];
            (at > 0 && (rest.is_empty() || rest.starts_with('.'))).then_some(at)
        })
        .min();
    &name[..end.unwrap_or(name.len())]
}

fn rust(name: &str) -> Option<String> {
    let demangled = rustc_demangle::try_demangle(name).ok()?;
    Some(format!("{demangled:#}"))
}

fn cpp(name: &str) -> Option<String> {
    if !name.starts_with("_Z") {
        return None;
    }
    let parse = ParseOptions::default().recursion_limit(MAX_DEPTH);
    let symbol = cpp_demangle::Symbol::new_with_options(name, &parse).ok()?;
    let show = DemangleOptions::new()
        .no_params()
        .no_return_type()
        .recursion_limit(MAX_DEPTH);
    let mut written = Written(String::new());
    // A name that was too long is cut here, and again with all other names by the caller.
    match symbol.structured_demangle(&mut written, &show) {
        Err(fmt::Error) if written.0.len() < MAX_READABLE => None,
        _ => Some(written.0),
    }
}

/// A string that accepts at most [`MAX_WRITTEN`] bytes.
struct Written(String);

impl fmt::Write for Written {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = MAX_WRITTEN - self.0.len();
        let fits = text.floor_char_boundary(room);
        self.0.push_str(&text[..fits]);
        if fits == text.len() {
            Ok(())
        } else {
            Err(fmt::Error)
        }
    }
}

/// Demangles a Cython function or method: `__pyx_pw_6mpi4py_3MPI_4Comm_123allreduce` is `Comm.allreduce`.
fn cython(name: &str) -> Option<String> {
    /// Prefixes of functions that Python calls, and of their implementations; a number precedes the name.
    const NUMBERED: [&str; 2] = ["__pyx_pw_", "__pyx_pf_"];
    /// Prefix of functions that only Cython code calls.
    const PLAIN: &str = "__pyx_f_";
    let numbered = NUMBERED.iter().find_map(|start| name.strip_prefix(start));
    let mut rest = numbered.or_else(|| name.strip_prefix(PLAIN))?;
    let mut scope = None;
    while let Some((part, after)) = cython_scope(rest) {
        let own = match numbered {
            Some(_) => {
                after
                    .trim_start_matches(|letter: char| letter.is_ascii_digit())
                    .len()
                    < after.len()
            }
            None => true,
        };
        // This part is the function's name, which only looks like another scope.
        if !own {
            break;
        }
        scope = Some(part);
        rest = after;
    }
    let function = match numbered {
        Some(_) => rest.trim_start_matches(|letter: char| letter.is_ascii_digit()),
        None => rest,
    };
    let scope = scope.filter(|_| !function.is_empty())?;
    Some(format!("{scope}.{function}"))
}

/// Splits off a part that its length precedes, and the underscore after it; returns the part and the remaining text.
fn cython_scope(text: &str) -> Option<(&str, &str)> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit())?;
    let length: usize = text[..digits].parse().ok()?;
    let end = digits.checked_add(length)?;
    Some((text.get(digits..end)?, text.get(end..)?.strip_prefix('_')?))
}

fn fortran(name: &str, language: Option<DwLang>) -> Option<String> {
    if let Some((module, procedure)) = name
        .strip_prefix("__")
        .and_then(|name| name.split_once("_MOD_"))
    {
        return Some(format!("{module}::{procedure}"));
    }
    let is_fortran = matches!(
        language?,
        gimli::DW_LANG_Fortran77
            | gimli::DW_LANG_Fortran90
            | gimli::DW_LANG_Fortran95
            | gimli::DW_LANG_Fortran03
            | gimli::DW_LANG_Fortran08
            | gimli::DW_LANG_Fortran18
    );
    let plain = name.strip_suffix('_').filter(|plain| !plain.is_empty())?;
    is_fortran.then(|| plain.strip_suffix('_').unwrap_or(plain).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_people() {
        for (raw, language, expected) in [
            ("main", None, "main"),
            ("solve.constprop.0", None, "solve"),
            ("solve.part.0.cold", None, "solve"),
            ("solve.partial", None, "solve.partial"),
            ("_ZN3foo3barEi", None, "foo::bar"),
            ("_ZN3foo3barIiEEvT_", None, "foo::bar<int>"),
            ("_ZN3foo3barEi.isra.0", None, "foo::bar"),
            (
                "_ZN4core3fmt5write17h0123456789abcdefE",
                None,
                "core::fmt::write",
            ),
            ("_RNvC6_123foo3bar", None, "123foo::bar"),
            ("__solver_MOD_step", None, "solver::step"),
            ("exchange_", Some(gimli::DW_LANG_Fortran95), "exchange"),
            ("exchange_", None, "exchange_"),
            ("_Znonsense", None, "_Znonsense"),
            (
                "__pyx_pw_6mpi4py_3MPI_4Comm_123allreduce",
                None,
                "Comm.allreduce",
            ),
            (
                "__pyx_pf_6mpi4py_3MPI_4Comm_5Abort_now",
                None,
                "Comm.Abort_now",
            ),
            ("__pyx_pw_6mpi4py_3MPI_23Init.constprop.0", None, "MPI.Init"),
            (
                "__pyx_f_6mpi4py_3MPI_PyMPI_bcast_p2p",
                None,
                "MPI.PyMPI_bcast_p2p",
            ),
            ("__pyx_f_4heat_4Grid_step", None, "Grid.step"),
            ("__pyx_pymod_exec_MPI", None, "__pyx_pymod_exec_MPI"),
            ("__pyx_pw_99heat", None, "__pyx_pw_99heat"),
            ("_Zmore", None, "_Zmore"),
        ] {
            assert_eq!(readable(raw, language), expected, "{raw}");
        }
        assert_eq!(
            readable(&"x".repeat(2000), None).chars().count(),
            MAX_READABLE + 1
        );
    }

    #[test]
    fn a_short_name_that_stands_for_a_long_one_is_cut() {
        let digits = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
        // `pair<int, int>`, then a pair of two of those, and so on: each is twice as long.
        let mut name = "_Z1fISt4pairIiiE".to_owned();
        for &digit in &digits[..30] {
            let last = char::from(digit);
            name.push_str(&format!("S_IS{last}_S{last}_E"));
        }
        name.push_str("Evv");
        let readable = readable(&name, None);
        assert!(readable.starts_with("f<std::pair<int, int>"), "{readable}");
        assert_eq!(readable.chars().count(), MAX_READABLE + 1);
    }
}
