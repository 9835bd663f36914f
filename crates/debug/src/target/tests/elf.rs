//! A library that contains only the symbols of a launcher.

use bytes::Bytes;

use crate::image::{Image, tests::made::Program};

/// The offsets of the variables from the start of the mapping.
pub(super) const TABLE: u64 = 0x800;
pub(super) const SIZE: u64 = 0x810;
pub(super) const STATE: u64 = 0x820;
pub(super) const JOB: u64 = 0x830;

/// The first address in the file, which differs from the address in memory.
const FIRST: u64 = 0x4000;
/// The size of the mapping in bytes.
const LENGTH: usize = 0x1000;

pub(super) fn library(with_job: bool) -> Bytes {
    let mut library = Program::stripped(FIRST, LENGTH);
    library.variable("MPIR_proctable", TABLE, 8);
    library.variable("MPIR_proctable_size", SIZE, 4);
    library.variable("MPIR_debug_state", STATE, 4);
    if with_job {
        library.variable("totalview_jobid", JOB, 8);
    }
    library.build()
}

#[test]
fn it_is_one() {
    let image = Image::parse("x", library(true)).unwrap();
    let names = ["none", "MPIR_debug_state", "", "MPIR_proctable"];
    let found = [
        None,
        Some((FIRST + STATE, 4)),
        None,
        Some((FIRST + TABLE, 8)),
    ];
    assert_eq!(image.symbols(names), found);
    assert_eq!(image.symbols([]), []);
    assert_eq!(image.bias(0x10_0000, 0), Some(0x10_0000 - FIRST));
}
