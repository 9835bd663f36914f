//! Memory shared by two processes after a fork: one fills slots, the other reads them.
//!
//! A region is made before the fork. Afterwards each process turns its copy into the side it needs: [`SlotWriter`] hands
//! out [`Slot`]s, [`SlotReader`] reads them by number. A message between the two says which slot holds how many bytes. The
//! writer keeps the [`Slot`] alive until the reader has released it; only then does it return to the free list.
#![expect(unsafe_code, reason = "memory that two processes share")]

use std::{
    ffi::c_void,
    num::NonZeroUsize,
    ptr::NonNull,
    slice,
    sync::{Arc, Mutex, PoisonError},
};

use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::error::Error;

/// Maximum number of slots in a region.
pub const MAX_SLOTS: u32 = 1 << 16;

/// A region for which this process has not chosen its side yet.
#[derive(Debug)]
#[must_use]
pub struct SharedRegion(Mapping);

impl SharedRegion {
    /// Reserves `slots` slots of `slot_size` bytes. Slots that are never written take no memory.
    ///
    /// # Errors
    /// `EINVAL` for no slots, more than [`MAX_SLOTS`], or slots of zero bytes; `ENOMEM`.
    pub fn new(slot_size: usize, slots: u32) -> Result<Self, Error> {
        const OPERATION: &str = "reserve shared memory";
        let invalid = || Error::Call {
            operation: OPERATION,
            errno: libc::EINVAL,
        };
        let length = (slot_size as u64)
            .checked_mul(slots.into())
            .and_then(|length| usize::try_from(length).ok());
        let length = length.filter(|&length| slots <= MAX_SLOTS && isize::try_from(length).is_ok());
        let length = length.and_then(NonZeroUsize::new).ok_or_else(invalid)?;
        // SAFETY: a new mapping that overlaps nothing.
        let base = unsafe {
            mmap_anonymous(
                None,
                length,
                ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
                MapFlags::MAP_SHARED | MapFlags::MAP_NORESERVE,
            )
        }
        .map_err(Error::nix(OPERATION))?;
        Ok(Self(Mapping {
            base: base.cast(),
            length,
            slot_size,
            slots,
        }))
    }

    /// Makes the side that fills slots.
    pub fn into_writer(self) -> SlotWriter {
        // Slots are taken from the end of the list: the same few are reused, and the others take no memory.
        let free = (0..self.0.slots).rev().collect();
        SlotWriter(Arc::new(Pool {
            mapping: self.0,
            free: Mutex::new(free),
        }))
    }

    /// Makes the side that reads slots.
    pub fn into_reader(self) -> SlotReader {
        SlotReader(Arc::new(self.0))
    }
}

/// The writing side of a region.
#[derive(Clone, Debug)]
pub struct SlotWriter(Arc<Pool>);

impl SlotWriter {
    /// Takes a free slot; `None` if all are in use.
    #[must_use]
    pub fn take(&self) -> Option<Slot> {
        let index = self
            .0
            .free
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop()?;
        Some(Slot {
            pool: Arc::clone(&self.0),
            index,
            length: self.0.mapping.slot_size,
        })
    }

    /// Returns the number of free slots.
    #[must_use]
    pub fn available(&self) -> usize {
        self.0
            .free
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }

    /// Returns the place of `bytes` in the region: the slot and the offset in it. `None` if they lie elsewhere. With this,
    /// a part of a slot that was passed around as plain bytes can be announced to the reader.
    #[must_use]
    pub fn place_of(&self, bytes: &[u8]) -> Option<(u32, usize)> {
        let mapping = &self.0.mapping;
        let at = (bytes.as_ptr() as usize).checked_sub(mapping.base.as_ptr() as usize)?;
        if at.checked_add(bytes.len())? > mapping.length.get() {
            return None;
        }
        let slot = u32::try_from(at / mapping.slot_size).ok()?;
        Some((slot, at % mapping.slot_size))
    }

    /// Returns the size of a slot in bytes.
    #[must_use]
    pub fn slot_size(&self) -> usize {
        self.0.mapping.slot_size
    }
}

/// A slot of the region. It is ours until it is dropped, which frees it.
#[derive(Debug)]
pub struct Slot {
    pool: Arc<Pool>,
    index: u32,
    /// Number of valid bytes.
    length: usize,
}

impl Slot {
    /// Returns the slot's number, by which the reader finds it.
    #[must_use]
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// Limits the valid bytes to the first `length`, which is what a read has filled.
    #[must_use]
    pub fn truncated(mut self, length: usize) -> Self {
        self.length = self.length.min(length);
        self
    }
}

impl AsRef<[u8]> for Slot {
    fn as_ref(&self) -> &[u8] {
        let start = self.pool.mapping.slot(self.index);
        // SAFETY: the slot lies in the mapping, which the pool keeps alive. Nothing else has this slot: its number is not
        // in the free list, and the other process only reads.
        unsafe { slice::from_raw_parts(start.as_ptr(), self.length) }
    }
}

impl AsMut<[u8]> for Slot {
    fn as_mut(&mut self) -> &mut [u8] {
        let start = self.pool.mapping.slot(self.index);
        // SAFETY: as in `as_ref`, and the exclusive borrow excludes other views in this process. The other process reads
        // only slots that were announced to it, and that happens after the last write.
        unsafe { slice::from_raw_parts_mut(start.as_ptr(), self.length) }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.pool
            .free
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(self.index);
    }
}

/// The reading side of a region.
#[derive(Clone, Debug)]
pub struct SlotReader(Arc<Mapping>);

impl SlotReader {
    /// Returns `length` bytes of slot `index` from `offset` on; `None` if that range is not inside the slot. Read only
    /// places that the writer has announced and that were not released since: other slots may change during the read.
    #[must_use]
    pub fn slice(&self, index: u32, offset: usize, length: usize) -> Option<&[u8]> {
        let end = offset.checked_add(length)?;
        if index >= self.0.slots || end > self.0.slot_size {
            return None;
        }
        // SAFETY: the range lies within one slot of the mapping, which lives as long as `self`. Nothing in this process
        // writes there: making a reader consumed the region. The other process does not write to a slot that it has
        // announced. If it breaks that promise, bytes change between two reads, and whatever receives them only copies them
        // out.
        Some(unsafe { slice::from_raw_parts(self.0.slot(index).add(offset).as_ptr(), length) })
    }
}

/// Bytes of a slot that the other process has filled, in a form that another thread can hold. Dropping it does not release
/// the slot.
#[derive(Clone, Debug)]
pub struct SlotView {
    reader: SlotReader,
    index: u32,
    offset: usize,
    length: usize,
}

impl SlotReader {
    /// Does what [`Self::slice`] does, for a [`crate::BlockingWriter`].
    #[must_use]
    pub fn view(&self, index: u32, offset: usize, length: usize) -> Option<SlotView> {
        self.slice(index, offset, length)?;
        Some(SlotView {
            reader: self.clone(),
            index,
            offset,
            length,
        })
    }
}

impl AsRef<[u8]> for SlotView {
    fn as_ref(&self) -> &[u8] {
        // The range was checked when the view was made, and a region never shrinks.
        self.reader
            .slice(self.index, self.offset, self.length)
            .unwrap_or_default()
    }
}

#[derive(Debug)]
struct Pool {
    mapping: Mapping,
    free: Mutex<Vec<u32>>,
}

#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    length: NonZeroUsize,
    slot_size: usize,
    slots: u32,
}

// SAFETY: the mapping belongs to no thread. `Slot` and `SlotReader` decide which bytes may be accessed, and follow the
// rules of shared and exclusive borrows.
unsafe impl Send for Mapping {}
// SAFETY: as above; `Mapping` itself gives out addresses only, not references.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Returns the start of a slot; `index` must be below `slots`.
    fn slot(&self, index: u32) -> NonNull<u8> {
        assert!(index < self.slots, "slot {index} of {}", self.slots);
        // SAFETY: the product is below the mapping's length, which fits an isize.
        unsafe { self.base.add(index as usize * self.slot_size) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and slots keep their pool and so the mapping alive. A failure would leave it mapped,
        // which is harmless.
        let _ = unsafe { munmap(self.base.cast::<c_void>(), self.length.get()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_handed_out_once_and_come_back() {
        let writer = SharedRegion::new(16, 3).unwrap().into_writer();
        let mut slots: Vec<Slot> = std::iter::from_fn(|| writer.take()).collect();
        assert_eq!(slots.iter().map(Slot::index).collect::<Vec<_>>(), [0, 1, 2]);
        for slot in &mut slots {
            let byte = u8::try_from(slot.index()).unwrap();
            slot.as_mut().fill(byte);
        }
        for slot in &slots {
            assert!(
                slot.as_ref()
                    .iter()
                    .all(|&byte| u32::from(byte) == slot.index())
            );
        }
        let short = slots.remove(1).truncated(5);
        assert_eq!(short.as_ref(), [1; 5]);
        assert_eq!(writer.available(), 0);
        // A slot may be dropped by another thread, which has written its bytes.
        std::thread::spawn(move || drop(short)).join().unwrap();
        assert_eq!(writer.take().map(|slot| slot.index()), Some(1));
        assert_eq!(writer.available(), 1);
        assert_eq!(writer.slot_size(), 16);
    }

    #[test]
    fn readers_cannot_leave_their_slot() {
        let reader = SharedRegion::new(16, 3).unwrap().into_reader();
        for (index, offset, length, inside) in [
            (0, 0, 16, true),
            (2, 8, 8, true),
            (2, 16, 0, true),
            (0, 1, 16, false),
            (0, 17, 0, false),
            (3, 0, 1, false),
            (u32::MAX, 0, 1, false),
            (0, usize::MAX, 2, false),
        ] {
            assert_eq!(
                reader.slice(index, offset, length).map(<[u8]>::len),
                inside.then_some(length)
            );
        }
    }

    #[test]
    fn impossible_regions_are_refused() {
        for (size, slots) in [(0, 1), (1, 0), (usize::MAX, 2), (1, MAX_SLOTS + 1)] {
            assert_eq!(
                SharedRegion::new(size, slots).unwrap_err().errno(),
                libc::EINVAL,
                "{size} {slots}"
            );
        }
    }
}
