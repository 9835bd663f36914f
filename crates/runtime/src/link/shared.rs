//! The memory that the two ends of a link share: places in it that were lent, and that come back.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;

/// Shorter output is copied into the frame: a place in the region is worth more than a small copy.
pub(super) const SHARED_MIN: usize = 16 * 1024;

/// Why a body is none of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) &'static str);

/// Numbers of places that were used and can be given back.
type Returned = Arc<Mutex<Vec<u64>>>;

/// Bytes in the peer's slot. Dropping them is what gives the slot back, whoever holds them last.
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

/// The side of a region whose slots we fill.
#[derive(Debug)]
pub(super) struct Lender {
    region: os::SlotWriter,
    /// What the peer has not given back.
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

    /// Where `bytes` lie, if that is worth telling, as the fixed part of a frame; they are kept until they come back.
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

/// Bytes of a place: number, slot, offset, length.
pub(super) const PLACE: usize = 20;

/// The side of a region that the peer fills.
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

    /// The numbers of the places that were used since the last call.
    fn used(&self) -> Vec<u64> {
        std::mem::take(&mut *self.returned.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A place from a peer that shares no memory with us.
const NOTHING_SHARED: Malformed = Malformed("a place in memory that is not shared");

/// What one end has of the memory that is shared with the other.
#[derive(Debug)]
pub(super) enum Memory {
    Shared {
        lender: Lender,
        borrower: Borrower,
    },
    /// The peer is not related to us.
    Apart,
}

impl Memory {
    /// `ours` is the region that we fill, `theirs` that which the peer fills.
    pub(super) fn shared(ours: os::SlotWriter, theirs: os::SlotReader) -> Self {
        Self::Shared {
            lender: Lender::new(ours),
            borrower: Borrower::new(theirs),
        }
    }

    /// Where bytes lie that the peer can read there, as the fixed part of a frame.
    pub(super) fn lend(&mut self, bytes: &Bytes) -> Option<[u8; PLACE]> {
        match self {
            Self::Shared { lender, .. } => lender.lend(bytes),
            Self::Apart => None,
        }
    }

    /// A slot to fill.
    pub(super) fn slot(&self) -> Option<os::Slot> {
        match self {
            Self::Shared { lender, .. } => lender.region.take(),
            Self::Apart => None,
        }
    }

    /// The bytes of a place that the peer has lent.
    pub(super) fn borrow(&self, body: &mut Bytes) -> Result<Bytes, Malformed> {
        match self {
            Self::Shared { borrower, .. } => borrower.borrow(body),
            Self::Apart => Err(NOTHING_SHARED),
        }
    }

    /// The peer gives a place back.
    pub(super) fn on_release(&mut self, body: &mut Bytes) -> Result<(), Malformed> {
        match self {
            Self::Shared { lender, .. } => lender.on_release(body),
            Self::Apart => Err(NOTHING_SHARED),
        }
    }

    /// The numbers of the places that were used here since the last call: they go back to the peer.
    pub(super) fn used(&self) -> Vec<u64> {
        match self {
            Self::Shared { borrower, .. } => borrower.used(),
            Self::Apart => Vec::new(),
        }
    }
}

/// The first bytes of a body, which are taken from it.
pub(super) fn fixed<const N: usize>(body: &mut Bytes) -> Result<[u8; N], Malformed> {
    let head = *body.first_chunk::<N>().ok_or(Malformed("a short frame"))?;
    let _ = body.split_to(N);
    Ok(head)
}
