//! Memory that is read a page at a time, each once.
//!
//! What lies close together costs one call: a stopped thread stands for as long as its frames are read.

use std::{cell::RefCell, collections::BTreeMap, fmt};

use crate::memory::{Memory, Unreadable};

/// The bytes of one page; nothing where there are none.
type Page = Option<Box<[u8]>>;

/// Memory of which pages are kept, for as long as it does not matter that they change.
pub struct Pages<'a> {
    rest: &'a dyn Memory,
    kept: RefCell<BTreeMap<u64, Page>>,
}

/// Bytes of a page.
const PAGE: usize = 4096;
/// Pages that are kept at most; others are read as they are asked for.
const MAX_PAGES: usize = 1 << 14;

impl<'a> Pages<'a> {
    /// None yet of `rest`.
    #[must_use]
    pub const fn new(rest: &'a dyn Memory) -> Self {
        Self {
            rest,
            kept: RefCell::new(BTreeMap::new()),
        }
    }

    /// The pages that were there, by their addresses.
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
            // Less than a page.
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
