//! The names of the functions, one after the other. A table of strings would have a pointer for each of them, which the dynamic linker
//! would have to write at each start of a rank.

use core::cmp::Ordering;

use calls::{COUNT, FUNCTIONS};

/// How all names begin. It is not part of the table.
pub(crate) const PREFIX: &[u8] = b"MPI_";

/// The names without their prefix, sorted.
static NAMES: [u8; begin(COUNT)] = names();
/// Where in [`NAMES`] each name begins, and after the last one its end.
static BEGINS: [u16; COUNT + 1] = begins();

/// Returns where a name begins.
const fn begin(number: usize) -> usize {
    let (mut begin, mut at) = (0, 0);
    while at < number {
        begin += FUNCTIONS[at].name.len() - PREFIX.len();
        at += 1;
    }
    begin
}

const fn names() -> [u8; begin(COUNT)] {
    let mut names = [0; begin(COUNT)];
    let (mut used, mut number) = (0, 0);
    while number < COUNT {
        let name = FUNCTIONS[number].name.as_bytes();
        let mut at = PREFIX.len();
        while at < name.len() {
            names[used] = name[at];
            used += 1;
            at += 1;
        }
        number += 1;
    }
    names
}

const fn begins() -> [u16; COUNT + 1] {
    let mut begins = [0; COUNT + 1];
    let mut number = 0;
    while number < COUNT {
        let end = begins[number] as usize + FUNCTIONS[number].name.len() - PREFIX.len();
        assert!(end <= u16::MAX as usize);
        begins[number + 1] = end as u16;
        number += 1;
    }
    begins
}

/// Returns the name of a function without its prefix.
pub(crate) fn name(number: usize) -> &'static [u8] {
    let (begin, end) = (BEGINS[number], BEGINS[number + 1]);
    &NAMES[usize::from(begin)..usize::from(end)]
}

/// Returns the number of the function with a name, which has no prefix.
pub(crate) fn find(wanted: &[u8]) -> Option<usize> {
    let (mut low, mut high) = (0, COUNT);
    while low < high {
        let middle = usize::midpoint(low, high);
        match name(middle).cmp(wanted) {
            Ordering::Less => low = middle + 1,
            Ordering::Greater => high = middle,
            Ordering::Equal => return Some(middle),
        }
    }
    None
}
