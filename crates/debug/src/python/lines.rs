//! Line tables of code objects: find the line of an instruction.

use super::layout::Lines;

impl Lines {
    /// Returns the line of the instruction at `offset` bytes, in code that begins on line `first`. `None` if the instruction
    /// belongs to no line, or is beyond the table.
    pub(super) fn line(self, table: &[u8], first: i64, offset: i64) -> Option<i64> {
        // A new frame is before its first instruction.
        let Ok(offset) = u64::try_from(offset) else {
            return Some(first);
        };
        match self {
            Self::Increments => Some(increments(table, first, offset)),
            Self::Ranges => ranges(table, first, offset),
            Self::Locations => locations(table, first, offset),
        }
    }
}

/// Decodes pairs of bytes: the increment of the code offset, and the increment of the line.
fn increments(table: &[u8], first: i64, offset: u64) -> i64 {
    let (mut at, mut line) = (0, first);
    for pair in table.chunks_exact(2) {
        at += u64::from(pair[0]);
        if at > offset {
            break;
        }
        line += i64::from(pair[1].cast_signed());
    }
    line
}

/// Decodes pairs of bytes: the length of a range of code, and the line increment from the range before; -128 for code of no line.
fn ranges(table: &[u8], first: i64, offset: u64) -> Option<i64> {
    const NO_LINE: i8 = -128;
    let (mut end, mut line) = (0, first);
    for pair in table.chunks_exact(2) {
        end += u64::from(pair[0]);
        let step = pair[1].cast_signed();
        if step != NO_LINE {
            line += i64::from(step);
        }
        if offset < end {
            return (step != NO_LINE).then_some(line);
        }
    }
    None
}

/// Decodes entries. Each begins with a byte whose highest bit is set; then come four bits of its kind, and three of its number of
/// instructions, less one.
fn locations(table: &[u8], first: i64, offset: u64) -> Option<i64> {
    let mut rest = table.iter();
    let (mut end, mut line) = (0, first);
    while let Some(&head) = rest.next() {
        end += 2 * (u64::from(head & 7) + 1);
        let kind = (head >> 3) & 15;
        let has_line = match kind {
            // The same line; columns follow.
            0..=9 => rest.next().map(|_| true),
            // The same line or one of the next two; columns follow.
            10..=12 => {
                line += i64::from(kind - 10);
                rest.nth(1).map(|_| true)
            }
            // A line without columns.
            13 => {
                line = line.checked_add(signed(&mut rest)?)?;
                Some(true)
            }
            // Several lines, with columns.
            14 => {
                line = line.checked_add(signed(&mut rest)?)?;
                let _ = unsigned(&mut rest)?;
                let _ = unsigned(&mut rest)?;
                let _ = unsigned(&mut rest)?;
                Some(true)
            }
            _ => Some(false),
        }?;
        if offset < end {
            return has_line.then_some(line);
        }
    }
    None
}

/// Decodes a number of six bits per byte, the lowest first; the next bit is set if more bytes follow.
fn unsigned<'a>(bytes: &mut impl Iterator<Item = &'a u8>) -> Option<u64> {
    let mut number = 0;
    for shift in (0..60).step_by(6) {
        let byte = bytes.next()?;
        number |= u64::from(byte & 63) << shift;
        if byte & 64 == 0 {
            return Some(number);
        }
    }
    None
}

/// Decodes a number whose lowest bit is the sign.
fn signed<'a>(bytes: &mut impl Iterator<Item = &'a u8>) -> Option<i64> {
    let number = unsigned(bytes)?;
    let size = i64::try_from(number >> 1).ok()?;
    Some(if number & 1 == 0 { size } else { -size })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Checks the output of `testdata/python/lines.py` with each Python: version, first line, table, and the lines of all
    /// instructions as that Python itself computes them.
    #[test]
    fn tables_of_real_pythons() {
        let data = include_str!("../../../../testdata/python/lines.txt");
        let mut seen = std::collections::BTreeMap::new();
        for text in data.lines() {
            let mut words = text.split(' ');
            let version: u8 = words.next().unwrap().parse().unwrap();
            let first: i64 = words.next().unwrap().parse().unwrap();
            let table = unhex(words.next().unwrap());
            let lines = match version {
                8 | 9 => Lines::Increments,
                10 => Lines::Ranges,
                _ => Lines::Locations,
            };
            for pair in words {
                let (offset, line) = pair.split_once(':').unwrap();
                let offset = offset.parse().unwrap();
                let expected = line.parse().ok();
                let found = lines.line(&table, first, offset);
                assert_eq!(found, expected, "3.{version}, {pair} of {text}");
                *seen.entry(version).or_insert(0) += 1;
            }
        }
        assert_eq!(
            seen.keys().copied().collect::<Vec<_>>(),
            [8, 9, 10, 11, 12, 13, 14]
        );
        assert!(seen.values().all(|&count| count > 300), "{seen:?}");
    }

    fn unhex(text: &str) -> Vec<u8> {
        (0..text.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
            .collect()
    }

    #[test]
    fn before_the_first_instruction_is_the_first_line() {
        assert_eq!(Lines::Locations.line(&[], 7, -2), Some(7));
        assert_eq!(Lines::Increments.line(&[], 7, -1), Some(7));
        assert_eq!(Lines::Locations.line(&[], 7, 0), None);
    }

    proptest! {
        #[test]
        fn any_table_gives_an_answer(table: Vec<u8>, first: i32, offset: i64) {
            for lines in [Lines::Increments, Lines::Ranges, Lines::Locations] {
                let _ = lines.line(&table, i64::from(first), offset);
            }
        }
    }
}
