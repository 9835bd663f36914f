//! A zip file whose bytes depend only on its content: no times, no owners, no computer.
//!
//! This is the part of the format that a wheel needs: compressed files below 4 GiB with ASCII names. The `zip` crate adds eleven
//! packages to Cargo.lock, most of them for encryption.

use std::io::Write as _;

use anyhow::{Context as _, Result, ensure};
use flate2::{Compression, Crc, write::DeflateEncoder};

/// 1980-01-01, the first day of the format.
const DATE: u16 = 0x21;
const MIDNIGHT: u16 = 0;
/// Version of the format that readers need: 2.0, with compression.
const NEEDED: u16 = 20;
/// The writer: version 2.0, on Unix, so that modes count.
const MADE_BY: u16 = 3 << 8 | NEEDED;
const DEFLATED: u16 = 8;

#[derive(Debug, Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    directory: Vec<u8>,
    count: u16,
}

impl Archive {
    /// Appends a file with this mode, which includes its type.
    pub(super) fn add(&mut self, name: &str, mode: u32, content: &[u8]) -> Result<()> {
        ensure!(name.is_ascii(), "the name {name:?} is not ASCII");
        let mut crc = Crc::new();
        crc.update(content);
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(content)?;
        let packed = encoder.finish()?;
        let start = size(self.bytes.len())?;

        let mut common = Vec::new();
        let no_flags = 0;
        for word in [NEEDED, no_flags, DEFLATED, MIDNIGHT, DATE] {
            common.extend(word.to_le_bytes());
        }
        for word in [crc.sum(), size(packed.len())?, size(content.len())?] {
            common.extend(word.to_le_bytes());
        }
        let name_length = u16::try_from(name.len()).context("the name is too long")?;
        let no_extra = [0; 2];
        common.extend(name_length.to_le_bytes());
        common.extend(no_extra);

        self.bytes.extend(b"PK\x03\x04");
        self.bytes.extend(&common);
        self.bytes.extend(name.as_bytes());
        self.bytes.extend(packed);

        self.directory.extend(b"PK\x01\x02");
        self.directory.extend(MADE_BY.to_le_bytes());
        self.directory.extend(&common);
        let no_comment_first_disk_binary = [0; 6];
        self.directory.extend(no_comment_first_disk_binary);
        self.directory.extend((mode << 16).to_le_bytes());
        self.directory.extend(start.to_le_bytes());
        self.directory.extend(name.as_bytes());
        self.count = self.count.checked_add(1).context("too many files")?;
        Ok(())
    }

    /// Returns the bytes of the whole file.
    pub(super) fn finish(mut self) -> Result<Vec<u8>> {
        let start = size(self.bytes.len())?;
        let length = size(self.directory.len())?;
        self.bytes.extend(self.directory);
        self.bytes.extend(b"PK\x05\x06");
        let only_disk = [0; 4];
        self.bytes.extend(only_disk);
        self.bytes.extend(self.count.to_le_bytes());
        self.bytes.extend(self.count.to_le_bytes());
        self.bytes.extend(length.to_le_bytes());
        self.bytes.extend(start.to_le_bytes());
        let no_comment = [0; 2];
        self.bytes.extend(no_comment);
        Ok(self.bytes)
    }
}

fn size(length: usize) -> Result<u32> {
    u32::try_from(length).context("the file is too large for a wheel")
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use super::*;
    use crate::env::text_of;

    /// Python's own module reads the file, checks the sums, and sees modes and times.
    #[test]
    fn python_reads_it() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("it.zip");
        let mut archive = Archive::default();
        archive.add("a/b", 0o100_755, b"program").unwrap();
        archive.add("c", 0o100_644, &[b'x'; 100_000]).unwrap();
        fs::write(&path, archive.finish().unwrap()).unwrap();
        let script = "import sys, zipfile\nz = zipfile.ZipFile(sys.argv[1])\nassert z.testzip() is None\nfor i in z.infolist():\n print(i.filename, i.file_size, oct(i.external_attr >> 16), i.date_time)";
        let mut python = Command::new("python3");
        let said = text_of(python.args(["-c", script]).arg(&path)).unwrap();
        assert_eq!(
            said,
            "a/b 7 0o100755 (1980, 1, 1, 0, 0, 0)\nc 100000 0o100644 (1980, 1, 1, 0, 0, 0)"
        );
    }
}
