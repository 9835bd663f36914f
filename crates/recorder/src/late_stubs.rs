//! The stubs that have no symbol, because some libraries lack their functions. [`arch`](crate::arch) has their code, one after the
//! other. A stub loads its place among them, of which `rally_late` makes its number.

use core::ffi::c_void;

use calls::{COUNT, FUNCTIONS, Provision};

/// Number of such stubs.
pub(crate) const LATE_STUBS: usize = numbers_before(2 * COUNT);
/// Bytes of each: two instructions of five.
pub(crate) const STUB_SIZE: usize = 10;

/// The numbers of such stubs, by their place, in ascending order.
pub(crate) static NUMBERS: [u16; LATE_STUBS] = numbers();

const fn is_late(stub: usize) -> bool {
    matches!(FUNCTIONS[stub / 2].provision, Provision::Late)
}

const fn numbers_before(end: usize) -> usize {
    let (mut stub, mut count) = (0, 0);
    while stub < end {
        count += is_late(stub) as usize;
        stub += 1;
    }
    count
}

const fn numbers() -> [u16; LATE_STUBS] {
    assert!(2 * COUNT <= u16::MAX as usize);
    let mut numbers = [0; LATE_STUBS];
    let (mut stub, mut place) = (0, 0);
    while stub < 2 * COUNT {
        if is_late(stub) {
            numbers[place] = stub as u16;
            place += 1;
        }
        stub += 1;
    }
    numbers
}

/// Returns the address of a stub, if it is one of these.
pub(crate) fn address(stub: u32) -> Option<*const c_void> {
    unsafe extern "C" {
        safe static rally_stubs: [[u8; STUB_SIZE]; LATE_STUBS];
    }
    let place = NUMBERS.binary_search_by_key(&stub, |number| u32::from(*number));
    Some(rally_stubs[place.ok()?].as_ptr().cast())
}
