//! The memory that the two ends of a link share: places in it that are lent and released.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;

/// Minimum length of data passed by place, in bytes. Shorter data is copied into the frame, since a small copy costs less
/// than an occupied slot.
pub(super) const SHARED_MIN: usize = 16 * 1024;

/// Why the body of a frame does not decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) &'static str);

/// Numbers of places that are no longer used, to be released to the peer.
type Returned = Arc<Mutex<Vec<u64>>>;

/// Bytes in a slot of the peer. Dropping the last reference to them releases the place.
struct Borrowed {
    view: os::SlotView,
    number: u64,
    returned: Returned,
}

impl AsRef<[u8]> for Borrowed {
    fn as_ref(&self) -> &[u8] {
        self.view.as_ref()
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        self.returned
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(self.number);
    }
}

/// Our view of a region whose slots we fill.
#[derive(Debug)]
pub(super) struct Lender {
    region: os::SlotWriter,
    /// Bytes that the peer has not released, by the number of their place.
    lent: BTreeMap<u64, Bytes>,
    next: u64,
}

impl Lender {
    const fn new(region: os::SlotWriter) -> Self {
        Self {
            region,
            lent: BTreeMap::new(),
            next: 0,
        }
    }

    /// Returns the place of `bytes` as the fixed part of a frame, and keeps them until the peer releases it. Returns `None`
    /// for short data, and for data outside the region.
    fn lend(&mut self, bytes: &Bytes) -> Option<[u8; PLACE]> {
        if bytes.len() < SHARED_MIN {
            return None;
        }
        let (slot, offset) = self.region.place_of(bytes)?;
        let number = self.next;
        self.next += 1;
        let mut place = [0; PLACE];
        place[..8].copy_from_slice(&number.to_le_bytes());
        place[8..12].copy_from_slice(&slot.to_le_bytes());
        // A slot is smaller than 4 GiB.
        place[12..16].copy_from_slice(&u32::try_from(offset).unwrap_or(u32::MAX).to_le_bytes());
        place[16..].copy_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
        self.lent.insert(number, bytes.clone());
        Some(place)
    }

    fn on_release(&mut self, body: &mut Bytes) -> Result<(), Malformed> {
        self.lent.remove(&u64::from_le_bytes(fixed(body)?));
        Ok(())
    }
}

/// Length of an encoded place, in bytes: number, slot, offset, length.
pub(super) const PLACE: usize = 20;

/// Our view of a region that the peer fills.
#[derive(Debug)]
pub(super) struct Borrower {
    region: os::SlotReader,
    returned: Returned,
}

impl Borrower {
    fn new(region: os::SlotReader) -> Self {
        Self {
            region,
            returned: Returned::default(),
        }
    }

    fn borrow(&self, body: &mut Bytes) -> Result<Bytes, Malformed> {
        let number = u64::from_le_bytes(fixed(body)?);
        let slot = u32::from_le_bytes(fixed(body)?);
        let offset = u32::from_le_bytes(fixed(body)?) as usize;
        let length = u32::from_le_bytes(fixed(body)?) as usize;
        let view = self.region.view(slot, offset, length);
        let view = view.ok_or(Malformed("a place outside of the shared region"))?;
        Ok(Bytes::from_owner(Borrowed {
            view,
            number,
            returned: Arc::clone(&self.returned),
        }))
    }

    /// Returns the numbers of the places that were dropped since the last call.
    fn used(&self) -> Vec<u64> {
        std::mem::take(&mut *self.returned.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Error for a place from a peer that shares no memory with us.
const NOTHING_SHARED: Malformed = Malformed("a place in memory that is not shared");

/// The memory that one end shares with the other.
#[derive(Debug)]
pub(super) enum Memory {
    Shared {
        lender: Lender,
        borrower: Borrower,
    },
    /// No shared memory: the peer was not forked from us, nor we from it.
    Apart,
}

impl Memory {
    /// Makes both views: we fill the region `ours`, the peer fills `theirs`.
    pub(super) fn shared(ours: os::SlotWriter, theirs: os::SlotReader) -> Self {
        Self::Shared {
            lender: Lender::new(ours),
            borrower: Borrower::new(theirs),
        }
    }

    /// Returns the place of `bytes` as the fixed part of a frame, or `None` if they must be sent in the frame.
    pub(super) fn lend(&mut self, bytes: &Bytes) -> Option<[u8; PLACE]> {
        match self {
            Self::Shared { lender, .. } => lender.lend(bytes),
            Self::Apart => None,
        }
    }

    /// Returns a copy of `bytes` in a free slot, for data that lies elsewhere: to copy it costs less than to send it and to
    /// receive it. Returns `bytes` themselves if they lie in a slot, if they are short, or if no slot is free.
    pub(super) fn placed(&self, bytes: Bytes) -> Bytes {
        let Self::Shared { lender, .. } = self else {
            return bytes;
        };
        let region = &lender.region;
        let fits = (SHARED_MIN..=region.slot_size()).contains(&bytes.len());
        if !fits || region.place_of(&bytes).is_some() {
            return bytes;
        }
        match region.take() {
            Some(slot) => {
                let mut slot = slot.truncated(bytes.len());
                slot.as_mut().copy_from_slice(&bytes);
                Bytes::from_owner(slot)
            }
            None => bytes,
        }
    }

    /// Returns a free slot to fill.
    pub(super) fn slot(&self) -> Option<os::Slot> {
        match self {
            Self::Shared { lender, .. } => lender.region.take(),
            Self::Apart => None,
        }
    }

    /// Decodes a place that the peer has lent, and returns its bytes.
    pub(super) fn borrow(&self, body: &mut Bytes) -> Result<Bytes, Malformed> {
        match self {
            Self::Shared { borrower, .. } => borrower.borrow(body),
            Self::Apart => Err(NOTHING_SHARED),
        }
    }

    /// Handles the peer's release of a place.
    pub(super) fn on_release(&mut self, body: &mut Bytes) -> Result<(), Malformed> {
        match self {
            Self::Shared { lender, .. } => lender.on_release(body),
            Self::Apart => Err(NOTHING_SHARED),
        }
    }

    /// Returns the numbers of the places that were dropped since the last call and are to be released to the peer.
    pub(super) fn used(&self) -> Vec<u64> {
        match self {
            Self::Shared { borrower, .. } => borrower.used(),
            Self::Apart => Vec::new(),
        }
    }
}

/// Splits the first `N` bytes off a body.
pub(super) fn fixed<const N: usize>(body: &mut Bytes) -> Result<[u8; N], Malformed> {
    let head = *body.first_chunk::<N>().ok_or(Malformed("a short frame"))?;
    let _ = body.split_to(N);
    Ok(head)
}
