//! Access to the memory of a process.

use std::fmt;

use thiserror::Error;

/// The memory of a live process, a core file or a recording.
pub trait Memory {
    /// Fills `buffer` with the bytes at `address`.
    ///
    /// # Errors
    /// Not all of them can be read.
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Unreadable>;

    /// Returns the eight bytes at an address as a little-endian number.
    ///
    /// # Errors
    /// Not all of them can be read.
    fn word(&self, address: u64) -> Result<u64, Unreadable> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Returns `length` bytes at an address.
    ///
    /// # Errors
    /// Not all of them can be read, or `length` exceeds [`MAX_BYTES`].
    fn bytes(&self, address: u64, length: usize) -> Result<Vec<u8>, Unreadable> {
        if length > MAX_BYTES {
            return Err(Unreadable { address });
        }
        let mut bytes = vec![0; length];
        self.read(address, &mut bytes)?;
        Ok(bytes)
    }

    /// Returns the zero-terminated string at an address, without the zero byte.
    ///
    /// # Errors
    /// It cannot be read, or has more than about [`MAX_TEXT`] bytes.
    fn text(&self, address: u64) -> Result<Vec<u8>, Unreadable> {
        let mut text = Vec::new();
        let mut at = address;
        while text.len() < MAX_TEXT {
            // Read no further than the end of a page: the next one may not be mapped.
            let room = PAGE - at % PAGE;
            let mut page = vec![0; usize::try_from(room.min(TEXT_STEP)).unwrap_or(1)];
            self.read(at, &mut page)?;
            if let Some(end) = page.iter().position(|&byte| byte == 0) {
                text.extend_from_slice(&page[..end]);
                return Ok(text);
            }
            at = at.wrapping_add(page.len() as u64);
            text.append(&mut page);
        }
        Err(Unreadable { address })
    }
}

/// Maximum number of bytes in one read.
pub const MAX_BYTES: usize = 64 << 20;
/// Maximum length of a zero-terminated string, in bytes.
pub const MAX_TEXT: usize = 4096;
const TEXT_STEP: u64 = 256;
const PAGE: u64 = 4096;

/// The error for memory that is not mapped or may not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("no memory can be read at {address:#x}")]
pub struct Unreadable {
    /// The address where the read began.
    pub address: u64,
}

/// A copy of a part of a process's stack, taken at one moment; reads elsewhere go to the process's memory.
pub struct Copied<'a> {
    /// The address where the copy begins.
    pub start: u64,
    /// The copied bytes.
    pub bytes: &'a [u8],
    /// The memory for all other addresses.
    pub rest: &'a dyn Memory,
}

impl fmt::Debug for Copied<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:#x}", self.bytes.len(), self.start)
    }
}

impl Memory for Copied<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Unreadable> {
        let copied = address
            .checked_sub(self.start)
            .and_then(|at| usize::try_from(at).ok())
            .and_then(|at| self.bytes.get(at..at.checked_add(buffer.len())?));
        match copied {
            Some(copied) => {
                buffer.copy_from_slice(copied);
                Ok(())
            }
            None => self.rest.read(address, buffer),
        }
    }
}
