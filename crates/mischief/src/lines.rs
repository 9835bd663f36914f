//! Lines with a header, so that a reader detects torn, lost, duplicated or mixed lines.

use std::collections::BTreeMap;

use crate::Digest;

/// Returns line number `index` of a rank, without the line feed. It has `length` bytes, or more if its header needs more.
///
/// The content is derived from the arguments: a header with rank, index and length, then letters.
#[must_use]
pub fn line(rank: u32, index: u32, length: usize) -> Vec<u8> {
    let mut line = format!("{rank} {index} {length} ").into_bytes();
    let mut state = u64::from(rank) << 32 | u64::from(index);
    while line.len() < length {
        state = state
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        line.push(b'a' + ((state >> 33) % 26) as u8);
    }
    line
}

/// A fault in the output of several ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineError {
    /// The first bytes of a line that no rank has written.
    Torn(String),
    /// A line that is out of order, duplicated, or follows a gap.
    Order { rank: u32, expected: u32, got: u32 },
    /// A rank with fewer lines than expected.
    Missing { rank: u32, got: u32 },
}

/// Checks that `text` consists of `count` complete lines from each of the ranks `0..ranks`, in order for each rank. Lines of
/// different ranks may be interleaved.
pub fn check_lines(text: &[u8], ranks: u32, count: u32) -> Result<Digest, LineError> {
    let mut next = BTreeMap::<u32, u32>::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest
            .iter()
            .position(|byte| *byte == b'\n')
            .unwrap_or(rest.len());
        let (whole, tail) = rest.split_at(end);
        rest = tail.get(1..).unwrap_or_default();
        let shown = || {
            String::from_utf8_lossy(whole.get(..whole.len().min(80)).unwrap_or_default())
                .into_owned()
        };
        let head = String::from_utf8_lossy(whole.get(..whole.len().min(40)).unwrap_or_default())
            .into_owned();
        let mut numbers = head.split(' ').map(str::parse::<u32>);
        let (Some(Ok(rank)), Some(Ok(index)), Some(Ok(length))) =
            (numbers.next(), numbers.next(), numbers.next())
        else {
            return Err(LineError::Torn(shown()));
        };
        if tail.is_empty() || whole != line(rank, index, length as usize) {
            return Err(LineError::Torn(shown()));
        }
        let expected = next.entry(rank).or_default();
        if *expected != index {
            return Err(LineError::Order {
                rank,
                expected: *expected,
                got: index,
            });
        }
        *expected += 1;
    }
    for rank in 0..ranks {
        let got = next.remove(&rank).unwrap_or(0);
        if got != count {
            return Err(LineError::Missing { rank, got });
        }
    }
    match next.pop_first() {
        Some((rank, got)) => Err(LineError::Order {
            rank,
            expected: 0,
            got,
        }),
        None => Ok(Digest::of(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(lines: &[(u32, u32)]) -> Vec<u8> {
        let mut text = Vec::new();
        for (rank, index) in lines {
            text.extend(line(*rank, *index, 60));
            text.push(b'\n');
        }
        text
    }

    #[test]
    fn whole_lines_pass_and_every_fault_is_named() {
        let whole = text(&[(0, 0), (1, 0), (1, 1), (0, 1)]);
        assert!(check_lines(&whole, 2, 2).is_ok());
        let torn = whole.strip_suffix(b"\n").unwrap();
        assert!(matches!(check_lines(torn, 2, 2), Err(LineError::Torn(_))));
        let mut changed = whole.clone();
        changed[30] ^= 1;
        assert!(matches!(
            check_lines(&changed, 2, 2),
            Err(LineError::Torn(_))
        ));
        let order = LineError::Order {
            rank: 0,
            expected: 1,
            got: 0,
        };
        assert_eq!(check_lines(&text(&[(0, 0), (0, 0)]), 1, 2), Err(order));
        let missing = LineError::Missing { rank: 1, got: 0 };
        assert_eq!(check_lines(&text(&[(0, 0)]), 2, 1), Err(missing));
    }
}
