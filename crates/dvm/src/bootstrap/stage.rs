//! The words between us and the shell of another node: the script that we send, and its answers.
//!
//! The script looks for our program at the path that it has on our node, and then in a few directories of its node, by the
//! hash of the program's content. It asks for the hash and for the program when it needs them, and then becomes the daemon.
//! Login shells print text of their own, before and between: an answer is a line that begins with `@rally`, and all other
//! lines are kept as evidence.
//!
//! A command for many nodes runs a shorter script, as an argument of the shell, because all of them get the same standard input.
//! It looks at the launcher's path only, and says which nodes do not have the program there (`absent`).

use base::Arch;
use serde::{Deserialize, Serialize};

/// The start of an answer.
const MARK: &str = "@rally ";
/// Number of versions that stay in the cache of a node, the new one included.
pub const CACHED_MAX: u32 = 8;
/// Maximum number of places in which a node tries to store the program.
pub const PLACES_MAX: usize = 8;
/// What both scripts begin with.
const COMMON: &str = include_str!("common.sh");
const SCRIPT: &str = include_str!("stage.sh");
const CHECK: &str = include_str!("check.sh");

/// The program that runs on all nodes: ours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    pub size: u64,
    /// Time of its last change in seconds since 1970; `None` if it is unknown.
    pub modified: Option<i64>,
    /// Its path on the launcher's node: other nodes may have the same file.
    pub path: Vec<u8>,
    /// The argument with which it runs on other nodes: one word of letters.
    pub argument: String,
}

/// An answer of the script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The node has the program, and executes it.
    Have,
    /// The node needs the hash of the program's content, as 64 hexadecimal digits in a line.
    Which,
    /// The node needs the program. The name of its kernel and its machine, as `uname -s -m` prints them.
    Need { system: String },
    /// The program cannot be stored in a directory: the directory and the reason.
    Skip(String),
    /// The program cannot be stored anywhere.
    None,
    /// A node among those of a command does not have the program: the name of the node.
    Absent(String),
}

/// Returns the script for the standard input of `/bin/sh`.
#[must_use]
pub fn script(program: &Program) -> Vec<u8> {
    filled(SCRIPT, program)
}

/// Returns the script for `/bin/sh -c` on many nodes, which share a standard input: it only checks whether the node has the
/// program at the launcher's path.
#[must_use]
pub fn check(program: &Program) -> Vec<u8> {
    filled(CHECK, program)
}

/// Fills in the words between two `@`.
fn filled(script: &str, program: &Program) -> Vec<u8> {
    let mut own = b"'".to_vec();
    for byte in &program.path {
        match byte {
            b'\'' => own.extend_from_slice(b"'\\''"),
            other => own.push(*other),
        }
    }
    own.push(b'\'');
    let modified = program
        .modified
        .map_or_else(String::new, |time| time.to_string());
    let text = script
        .replace("@COMMON@", COMMON)
        .replace("@ARGUMENT@", &program.argument)
        .replace("@SIZE@", &program.size.to_string())
        .replace("@MODIFIED@", &modified)
        .replace("@SYSTEM@", own_system())
        .replace("@ARCH@", &Arch::NATIVE.to_string())
        .replace("@KEEP@", &CACHED_MAX.to_string());
    match text.split_once("@OWN@") {
        Some((before, after)) => [before.as_bytes(), &own, after.as_bytes()].concat(),
        None => text.into_bytes(),
    }
}

/// Returns the systems that execute programs for this architecture, as `uname -s -m` prints them. The first is what the
/// message about another system names.
///
/// Rust's names of architectures (`std::env::consts::ARCH`) are not those of the kernel: they agree for some only. A new
/// architecture needs a row here.
const fn systems(arch: Arch) -> &'static [&'static str] {
    match arch {
        Arch::X86_64 => &["Linux x86_64"],
        Arch::Aarch64 => &["Linux aarch64"],
    }
}

/// Returns whether a system executes this program.
pub(super) fn is_ours(system: &str) -> bool {
    systems(Arch::NATIVE).contains(&system)
}

/// Returns the system for which this program was built, as `uname -s -m` prints it.
pub(crate) fn own_system() -> &'static str {
    systems(Arch::NATIVE).first().copied().unwrap_or("Linux")
}

/// Parses a line. `None` if it is not an answer.
pub(super) fn answer(line: &str) -> Option<Answer> {
    let (word, rest) = match line.strip_prefix(MARK)?.split_once(' ') {
        Some((word, rest)) => (word, rest),
        None => (line.strip_prefix(MARK)?, ""),
    };
    match word {
        "have" => Some(Answer::Have),
        "which" => Some(Answer::Which),
        "need" => Some(Answer::Need {
            system: rest.to_owned(),
        }),
        "skip" => Some(Answer::Skip(rest.to_owned())),
        "none" => Some(Answer::None),
        "absent" => Some(Answer::Absent(rest.to_owned())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_architecture_has_its_systems_and_no_other_has_them() {
        // What `uname -s -m` prints, and the architecture whose programs run there.
        let cases = [
            ("Linux x86_64", Some(Arch::X86_64)),
            ("Linux aarch64", Some(Arch::Aarch64)),
            ("Linux aarch64_be", None),
            ("Linux armv7l", None),
            ("Linux i686", None),
            ("Linux ppc64le", None),
            ("Linux riscv64", None),
            ("Linux s390x", None),
            ("Darwin x86_64", None),
            ("FreeBSD amd64", None),
            ("", None),
        ];
        for (system, wanted) in cases {
            for arch in Arch::ALL {
                let runs = systems(arch).contains(&system);
                assert_eq!(runs, wanted == Some(arch), "{system:?} with {arch}");
            }
            assert_eq!(is_ours(system), wanted == Some(Arch::NATIVE), "{system:?}");
        }
        for arch in Arch::ALL {
            assert_eq!(systems(arch).first(), Some(&&*format!("Linux {arch}")));
        }
    }
}
