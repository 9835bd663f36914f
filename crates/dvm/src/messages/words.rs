//! Phrases that several messages share.

use std::ffi::OsStr;

use base::RankSet;

/// Maximum number of characters that a message shows of a foreign text, a rank set or a host list. The rest is cut.
const TEXT_MAX: usize = 1024;

/// Maximum number of characters of a list in a headline.
const LIST_MAX: usize = 160;

/// Returns a number with its noun: `1 rank`, `2 ranks`.
pub(super) fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Returns `rank 3` or `ranks 0-2,5`. A long set is cut at a comma, and its size is added.
pub(super) fn ranks_text(ranks: &RankSet) -> String {
    match ranks.len() {
        1 => format!("rank {ranks}"),
        _ => format!("ranks {}", ranks_list(ranks)),
    }
}

/// Returns `0-2,5`. A long set is cut at a comma, and its size is added.
pub(super) fn ranks_list(ranks: &RankSet) -> String {
    let text = ranks.to_string();
    match text.get(..LIST_MAX).and_then(|head| head.rfind(',')) {
        Some(cut) if text.len() > LIST_MAX => {
            format!(
                "{},… ({} in all)",
                text.get(..cut).unwrap_or_default(),
                ranks.len()
            )
        }
        _ => text,
    }
}

/// Returns a list with the number of items left out: `1, 2 and 5 more`.
pub(super) fn list(items: impl Iterator<Item = String>, left_out: usize) -> String {
    let text = items.collect::<Vec<_>>().join(", ");
    match left_out {
        0 => text,
        _ => format!("{text} and {left_out} more"),
    }
}

/// Returns the parts of a fact, separated by semicolons; `None` if there are no parts.
pub(super) fn join_facts(parts: Vec<String>) -> Option<String> {
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Returns a foreign text that cannot move the cursor or start a line of its own: control characters are escaped. Text
/// longer than [`TEXT_MAX`] is cut.
pub(super) fn plain(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for (index, character) in text.chars().enumerate() {
        if index == TEXT_MAX {
            shown.push('…');
            break;
        }
        if character.is_control() {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Returns a text, cut to the length that fits into a headline.
pub(super) fn brief(text: &str) -> String {
    match text.char_indices().nth(LIST_MAX) {
        Some((cut, _)) => format!("{}…", text.get(..cut).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Returns a name in backticks.
pub(super) fn quoted(name: &OsStr) -> String {
    format!("`{}`", plain(&name.to_string_lossy()))
}

/// Values of `errno` that can occur when a proc is started, as Linux numbers them on x86-64 and AArch64.
pub(super) mod errno {
    pub(crate) const EPERM: i32 = 1;
    pub(crate) const ENOENT: i32 = 2;
    pub(crate) const E2BIG: i32 = 7;
    pub(crate) const ENOEXEC: i32 = 8;
    pub(crate) const EAGAIN: i32 = 11;
    pub(crate) const ENOMEM: i32 = 12;
    pub(crate) const EACCES: i32 = 13;
    pub(crate) const EISDIR: i32 = 21;
    pub(crate) const ENFILE: i32 = 23;
    pub(crate) const EMFILE: i32 = 24;
    pub(crate) const ETXTBSY: i32 = 26;
    pub(crate) const ENOTDIR: i32 = 20;
    pub(crate) const ENAMETOOLONG: i32 = 36;
    pub(crate) const ELOOP: i32 = 40;
    pub(crate) const ELIBBAD: i32 = 80;
}

/// Returns the meaning of an errno as a phrase that fits into a sentence.
pub(super) fn errno_text(number: i32) -> String {
    let text = match number {
        errno::EPERM => "operation not permitted",
        errno::ENOENT => "no such file or directory",
        4 => "interrupted system call",
        5 => "input/output error",
        6 => "no such device or address",
        errno::E2BIG => "argument list too long",
        errno::ENOEXEC => "exec format error",
        9 => "bad descriptor",
        errno::EAGAIN => "resource temporarily unavailable",
        errno::ENOMEM => "out of memory",
        errno::EACCES => "permission denied",
        14 => "bad address",
        16 => "device or resource busy",
        17 => "file exists",
        19 => "no such device",
        errno::ENOTDIR => "not a directory",
        errno::EISDIR => "is a directory",
        22 => "invalid argument",
        errno::ENFILE => "too many open files in the system",
        errno::EMFILE => "too many open files",
        errno::ETXTBSY => "text file busy",
        27 => "file too large",
        28 => "no space left on device",
        30 => "read-only file system",
        errno::ENAMETOOLONG => "file name too long",
        38 => "not implemented by this kernel",
        errno::ELOOP => "too many symbolic links",
        75 => "value too large",
        errno::ELIBBAD => "corrupted shared library",
        116 => "stale file handle",
        122 => "disk quota exceeded",
        _ => return format!("error {number}"),
    };
    text.to_owned()
}

/// Returns a sentence about ranks that could not be ended; `None` if there are none.
pub(super) fn left(ranks: &RankSet) -> Option<String> {
    let run = if ranks.len() == 1 { "runs" } else { "run" };
    (!ranks.is_empty()).then(|| format!("{} {run} on", ranks_text(ranks)))
}
