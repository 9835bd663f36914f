//! Lists of host names.

use std::{fmt, net::Ipv6Addr, str::FromStr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Maximum length of the text of a host list, in bytes: that of the longest possible list.
const MAX_TEXT: usize = MAX_HOSTS * (MAX_NAME + 1);

/// Maximum number of names that a host list may expand to.
pub const MAX_HOSTS: usize = 1 << 20;

/// Maximum length of one host name in bytes (POSIX allows 255).
const MAX_NAME: usize = 255;

/// Host names in the given order, including repetitions. The text form is `n[1-4,7],login`.
///
/// An IPv6 address is a name too, in brackets or without: `fd00::1`, `[fd00::1]`. It is kept without brackets.
///
/// Zero padding is kept: `n[08-11]` is `n08,n09,n10,n11`. The text form compresses neighbours whose numbers ascend by one.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostList {
    names: Vec<String>,
}

/// Why a text is not a host list. Positions are byte offsets in the text.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParseHostListError {
    #[error("the host list has {length} bytes, more than {MAX_TEXT}")]
    TooLong { length: usize },
    #[error("the host list has more than {MAX_HOSTS} names")]
    TooManyHosts,
    #[error("the host name at position {position} has more than {MAX_NAME} bytes")]
    NameTooLong { position: usize },
    #[error("there is no host name at position {position}")]
    ExpectedName { position: usize },
    #[error("`{found}` at position {position} cannot be part of a host name")]
    BadCharacter { found: char, position: usize },
    #[error("the `[` at position {position} is never closed")]
    Unclosed { position: usize },
    #[error("expected a number at position {position}")]
    ExpectedNumber { position: usize },
    #[error("the number at position {position} is too large")]
    NumberTooLarge { position: usize },
    #[error("the range at position {position} runs backwards")]
    Backwards { position: usize },
}

impl HostList {
    /// Makes the empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self { names: Vec::new() }
    }

    /// Appends a name.
    pub fn push(&mut self, name: impl Into<String>) {
        self.names.push(name.into());
    }

    #[must_use]
    pub const fn len(&self) -> usize {
        self.names.len()
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Returns the names in the given order.
    pub fn iter(&self) -> impl Iterator<Item = &str> + '_ {
        self.names.iter().map(String::as_str)
    }

    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }
}

impl<S: Into<String>> FromIterator<S> for HostList {
    fn from_iter<I: IntoIterator<Item = S>>(iter: I) -> Self {
        Self {
            names: iter.into_iter().map(Into::into).collect(),
        }
    }
}

impl IntoIterator for HostList {
    type Item = String;
    type IntoIter = std::vec::IntoIter<String>;

    fn into_iter(self) -> Self::IntoIter {
        self.names.into_iter()
    }
}

impl TryFrom<String> for HostList {
    type Error = ParseHostListError;

    fn try_from(text: String) -> Result<Self, ParseHostListError> {
        text.parse()
    }
}

impl From<HostList> for String {
    fn from(list: HostList) -> Self {
        list.to_string()
    }
}

impl FromStr for HostList {
    type Err = ParseHostListError;

    /// Parses names separated by commas. Brackets contain numbers and ranges, and may occur more than once in a name.
    fn from_str(text: &str) -> Result<Self, ParseHostListError> {
        if text.len() > MAX_TEXT {
            return Err(ParseHostListError::TooLong { length: text.len() });
        }
        let mut list = Self::new();
        if text.trim_ascii().is_empty() {
            return Ok(list);
        }
        let mut start = 0;
        let mut open = None;
        for (position, byte) in text.bytes().enumerate() {
            match (byte, open) {
                (b'[', None) => open = Some(position),
                (b']', Some(_)) => open = None,
                (b',', None) => {
                    list.expand(text, start, position)?;
                    start = position + 1;
                }
                _ => {}
            }
        }
        if let Some(position) = open {
            return Err(ParseHostListError::Unclosed { position });
        }
        list.expand(text, start, text.len())?;
        Ok(list)
    }
}

impl HostList {
    /// Appends the names that the item `text[start..end]` expands to.
    fn expand(&mut self, text: &str, start: usize, end: usize) -> Result<(), ParseHostListError> {
        let item = &text[start..end];
        let begin = start + (item.len() - item.trim_ascii_start().len());
        let item = item.trim_ascii();
        if item.is_empty() {
            return Err(ParseHostListError::ExpectedName { position: begin });
        }
        if let Some(address) = ipv6(item) {
            if self.names.len() >= MAX_HOSTS {
                return Err(ParseHostListError::TooManyHosts);
            }
            self.names.push(address);
            return Ok(());
        }
        let mut heads = vec![String::new()];
        let mut at = 0;
        while at < item.len() {
            let rest = &item[at..];
            if let Some(inside) = rest.strip_prefix('[') {
                let close = inside.find(']').ok_or(ParseHostListError::Unclosed {
                    position: begin + at,
                })?;
                heads = multiply(
                    &heads,
                    &inside[..close],
                    begin + at + 1,
                    MAX_HOSTS - self.names.len(),
                )?;
                at += close + 2;
            } else {
                let literal = &rest[..rest.find('[').unwrap_or(rest.len())];
                let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
                if let Some((offset, found)) = literal.char_indices().find(|(_, c)| !good(*c)) {
                    return Err(ParseHostListError::BadCharacter {
                        found,
                        position: begin + at + offset,
                    });
                }
                for head in &mut heads {
                    head.push_str(literal);
                }
                at += literal.len();
            }
            if heads.iter().any(|name| name.starts_with('-')) {
                // Commands that get the name would take it for an option.
                let (found, position) = ('-', begin);
                return Err(ParseHostListError::BadCharacter { found, position });
            }
            if heads.iter().any(|name| name.len() > MAX_NAME) {
                return Err(ParseHostListError::NameTooLong { position: begin });
            }
        }
        if self.names.len() + heads.len() > MAX_HOSTS {
            return Err(ParseHostListError::TooManyHosts);
        }
        self.names.append(&mut heads);
        Ok(())
    }
}

/// Returns every head followed by every number of `numbers` (`1-4,07`), at most `room` names.
fn multiply(
    heads: &[String],
    numbers: &str,
    mut position: usize,
    room: usize,
) -> Result<Vec<String>, ParseHostListError> {
    let number = |text: &str, position: usize| {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(ParseHostListError::ExpectedNumber { position });
        }
        text.parse::<u64>()
            .map_err(|_| ParseHostListError::NumberTooLarge { position })
    };
    let mut ranges = Vec::new();
    let mut total = 0_u64;
    for item in numbers.split(',') {
        let (low, high) = item.split_once('-').unwrap_or((item, item));
        if low.len() > MAX_NAME {
            return Err(ParseHostListError::NameTooLong { position });
        }
        let first = number(low, position)?;
        let last = number(
            high,
            position + if item.contains('-') { low.len() + 1 } else { 0 },
        )?;
        if last < first {
            return Err(ParseHostListError::Backwards { position });
        }
        total = total.saturating_add((last - first).saturating_add(1));
        ranges.push((first, last, low.len()));
        position += item.len() + 1;
    }
    let names = total.saturating_mul(heads.len() as u64);
    if usize::try_from(names).map_or(true, |names| names > room) {
        return Err(ParseHostListError::TooManyHosts);
    }
    let mut out = Vec::with_capacity(heads.len());
    for head in heads {
        for (first, last, width) in &ranges {
            out.extend((*first..=*last).map(|number| format!("{head}{number:0width$}")));
        }
    }
    Ok(out)
}

/// Returns an IPv6 address without its brackets, in its usual form. A zone (`fe80::1%eth0`) stays. `None` if the text is none.
#[must_use]
pub fn ipv6(text: &str) -> Option<String> {
    let inside = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let text = inside.unwrap_or(text);
    let (address, zone) = match text.split_once('%') {
        Some((address, zone)) => (address, Some(zone)),
        None => (text, None),
    };
    let address: Ipv6Addr = address.parse().ok()?;
    let Some(zone) = zone else {
        return Some(address.to_string());
    };
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let is_name = !zone.is_empty() && zone.len() < MAX_NAME / 2 && zone.chars().all(good);
    is_name.then(|| format!("{address}%{zone}"))
}

/// Splits a name at the last number of its first label: `rack2-n07.site` becomes `rack2-n`, `07`, `.site`.
fn parts(name: &str) -> Option<(&str, &str, &str)> {
    // The digits of an IPv6 address are no number.
    if name.contains(':') {
        return None;
    }
    let label = name.find('.').unwrap_or(name.len());
    let end = name[..label].rfind(|c: char| c.is_ascii_digit())? + 1;
    let start = name[..end]
        .rfind(|c: char| !c.is_ascii_digit())
        .map_or(0, |at| {
            at + name[at..].chars().next().map_or(1, char::len_utf8)
        });
    let digits = &name[start..end];
    // A number too large for a range is part of the name.
    digits.parse::<u64>().ok()?;
    Some((&name[..start], digits, &name[end..]))
}

impl fmt::Display for HostList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut index = 0;
        while let Some(name) = self.names.get(index) {
            if index > 0 {
                f.write_str(",")?;
            }
            index += 1;
            let Some((head, digits, tail)) = parts(name) else {
                f.write_str(name)?;
                continue;
            };
            // Ranges of numbers, each with the width of its first number. A name joins a range only if the range would
            // expand to it.
            let mut ranges = vec![(digits, digits)];
            while let Some((next_head, next, next_tail)) =
                self.names.get(index).and_then(|name| parts(name))
            {
                if (next_head, next_tail) != (head, tail) {
                    break;
                }
                index += 1;
                match ranges.last_mut() {
                    Some((first, last)) if follows(first, last, next) => *last = next,
                    Some(_) | None => ranges.push((next, next)),
                }
            }
            if let [(first, last)] = ranges.as_slice()
                && first == last
            {
                f.write_str(name)?;
                continue;
            }
            write!(f, "{head}[")?;
            for (position, (first, last)) in ranges.iter().enumerate() {
                let comma = if position > 0 { "," } else { "" };
                write!(f, "{comma}{first}")?;
                if first != last {
                    write!(f, "-{last}")?;
                }
            }
            write!(f, "]{tail}")?;
        }
        Ok(())
    }
}

/// Returns true if `next` is the number after `last` in a range that begins with `first` and has its width.
fn follows(first: &str, last: &str, next: &str) -> bool {
    let width = first.len();
    last.parse::<u64>()
        .ok()
        .and_then(|last| last.checked_add(1))
        .is_some_and(|n| format!("{n:0width$}") == next)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn expands_and_compresses() {
        for (text, names, again) in [
            ("", "", ""),
            ("login", "login", "login"),
            ("n[1-4,7],login", "n1 n2 n3 n4 n7 login", "n[1-4,7],login"),
            ("n[08-11]", "n08 n09 n10 n11", "n[08-11]"),
            (
                "fd00::1,fd00::2,[fd00:0::a],n[1-2]",
                "fd00::1 fd00::2 fd00::a n1 n2",
                "fd00::1,fd00::2,fd00::a,n[1-2]",
            ),
            ("fe80::1%eth0,[::1]", "fe80::1%eth0 ::1", "fe80::1%eth0,::1"),
            ("n[8-11]", "n8 n9 n10 n11", "n[8-11]"),
            (
                "93025525773025257125710,0,0",
                "93025525773025257125710 0 0",
                "93025525773025257125710,[0,0]",
            ),
            (
                "n0417,n0418,n0419,n0420",
                "n0417 n0418 n0419 n0420",
                "n[0417-0420]",
            ),
            ("b1,a2,a1,a1", "b1 a2 a1 a1", "b1,a[2,1,1]"),
            (
                "r[1-2]n[1-2].site",
                "r1n1.site r1n2.site r2n1.site r2n2.site",
                "r1n[1-2].site,r2n[1-2].site",
            ),
            (
                "10.0.0.1, 10.0.0.2",
                "10.0.0.1 10.0.0.2",
                "10.0.0.1,10.0.0.2",
            ),
        ] {
            let list = text.parse::<HostList>().unwrap();
            assert_eq!(list.iter().collect::<Vec<_>>().join(" "), names);
            assert_eq!(list.to_string(), again);
            assert_eq!(list.to_string().parse::<HostList>().unwrap(), list);
        }
    }

    #[test]
    fn bad_text_says_where() {
        let error = |text: &str| text.parse::<HostList>().unwrap_err().to_string();
        insta::assert_snapshot!(error("a,,b"), @"there is no host name at position 2");
        insta::assert_snapshot!(error("n1,-x"), @"`-` at position 3 cannot be part of a host name");
        insta::assert_snapshot!(error("a b"), @"` ` at position 1 cannot be part of a host name");
        insta::assert_snapshot!(error("n[1-4"), @"the `[` at position 1 is never closed");
        insta::assert_snapshot!(error("n[1-x]"), @"expected a number at position 4");
        insta::assert_snapshot!(error("n[4-1]"), @"the range at position 2 runs backwards");
        insta::assert_snapshot!(error("n[1-99999999]"), @"the host list has more than 1048576 names");
        insta::assert_snapshot!(error("n[1-9999]x[1-9999]"), @"the host list has more than 1048576 names");
        insta::assert_snapshot!(error("n[99999999999999999999]"), @"the number at position 2 is too large");
        insta::assert_snapshot!(error("n]"), @"`]` at position 1 cannot be part of a host name");
        insta::assert_snapshot!(error(&"n".repeat(300)), @"the host name at position 0 has more than 255 bytes");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(names in proptest::collection::vec("[ab]{0,2}[0-2]{0,3}[a.]{0,1}x", 0..20)) {
            let list = names.into_iter().collect::<HostList>();
            prop_assert_eq!(list.to_string().parse::<HostList>().unwrap(), list);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[an0-3\\[\\],-]{0,16}") {
            if let Ok(list) = text.parse::<HostList>() {
                prop_assert_eq!(list.to_string().parse::<HostList>().unwrap(), list);
            }
        }
    }
}
