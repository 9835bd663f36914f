//! Memory that is read in whole pages, each only once.
//!
//! Structures that are close together cost one system call: this keeps short the time that a thread is stopped to read its
//! frames.

use std::{cell::RefCell, collections::BTreeMap, fmt};

use crate::memory::{Memory, Unreadable};

/// The bytes of one page; `None` if they cannot be read.
type Page = Option<Box<[u8]>>;

/// A cache of pages, for as long as changes of the memory do not matter.
pub struct Pages<'a> {
    rest: &'a dyn Memory,
    kept: RefCell<BTreeMap<u64, Page>>,
}

/// The size of a page in bytes.
const PAGE: usize = 4096;
/// Maximum number of cached pages; others are read directly.
const MAX_PAGES: usize = 1 << 14;

impl<'a> Pages<'a> {
    /// Returns an empty cache of `rest`.
    #[must_use]
    pub const fn new(rest: &'a dyn Memory) -> Self {
        Self {
            rest,
            kept: RefCell::new(BTreeMap::new()),
        }
    }

    /// Returns the pages that could be read, by address.
    #[must_use]
    pub fn into_kept(self) -> BTreeMap<u64, Box<[u8]>> {
        let kept = self.kept.into_inner();
        kept.into_iter()
            .filter_map(|(address, page)| Some((address, page?)))
            .collect()
    }
}

impl fmt::Debug for Pages<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pages", self.kept.borrow().len())
    }
}

impl Memory for Pages<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Unreadable> {
        let mut kept = self.kept.borrow_mut();
        let (mut at, mut rest) = (address, buffer);
        while !rest.is_empty() {
            let start = at & !(PAGE as u64 - 1);
            if kept.len() >= MAX_PAGES && !kept.contains_key(&start) {
                return self.rest.read(at, rest);
            }
            let page = kept
                .entry(start)
                .or_insert_with(|| {
                    let mut page = vec![0; PAGE].into_boxed_slice();
                    self.rest.read(start, &mut page).ok().map(|()| page)
                })
                .as_ref()
                .ok_or(Unreadable { address })?;
            // The offset in the page, which is less than its size.
            let inside = usize::try_from(at - start).unwrap_or(0);
            let length = rest.len().min(PAGE - inside);
            let (now, later) = rest.split_at_mut(length);
            now.copy_from_slice(&page[inside..inside + length]);
            at = at
                .checked_add(length as u64)
                .ok_or(Unreadable { address })?;
            rest = later;
        }
        Ok(())
    }
}
