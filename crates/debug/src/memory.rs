//! The memory of what is debugged.

use std::fmt;

use thiserror::Error;

/// The memory of a process, or of what is left of one: a live process, a core file, a recording.
pub trait Memory {
    /// Fills `buffer` with what stands at `address`.
    ///
    /// # Errors
    /// Not all of it is there.
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Unreadable>;

    /// The eight bytes at an address.
    ///
    /// # Errors
    /// They are not there.
    fn word(&self, address: u64) -> Result<u64, Unreadable> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// `length` bytes at an address.
    ///
    /// # Errors
    /// They are not all there, or more than `MAX_BYTES` are asked for.
    fn bytes(&self, address: u64, length: usize) -> Result<Vec<u8>, Unreadable> {
        if length > MAX_BYTES {
            return Err(Unreadable { address });
        }
        let mut bytes = vec![0; length];
        self.read(address, &mut bytes)?;
        Ok(bytes)
    }

    /// The text at an address up to its zero byte, of at most `MAX_TEXT` bytes.
    ///
    /// # Errors
    /// It is not there, or too long.
    fn text(&self, address: u64) -> Result<Vec<u8>, Unreadable> {
        let mut text = Vec::new();
        let mut at = address;
        while text.len() < MAX_TEXT {
            // A page at most, so that what stands before an unmapped page can be read.
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

/// Bytes that are read at once at most.
pub const MAX_BYTES: usize = 64 << 20;
/// Bytes of a text that ends with a zero byte.
pub const MAX_TEXT: usize = 4096;
const TEXT_STEP: u64 = 256;
const PAGE: u64 = 4096;

/// Memory that is not there, or may not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("no memory can be read at {address:#x}")]
pub struct Unreadable {
    /// Where the read began.
    pub address: u64,
}

/// A part of a process's stack that was copied at one moment, with the rest of its memory behind it.
pub struct Copied<'a> {
    /// Where the copy begins.
    pub start: u64,
    /// What stood there.
    pub bytes: &'a [u8],
    /// Where the rest is read.
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
