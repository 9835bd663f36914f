//! The systems on which the binaries run, as tags of a wheel.

use anyhow::{Result, bail, ensure};

/// Type of a program header that names the dynamic linker.
const INTERPRETER: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Linkage {
    /// Runs with any C library.
    Static,
    /// Runs here: the file needs a dynamic linker and libraries of some versions.
    Dynamic,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Platform {
    architecture: &'static str,
    linkage: Linkage,
}

impl Platform {
    /// Returns the platform of all these programs.
    pub(super) fn of_all<'a>(programs: impl Iterator<Item = (&'a str, &'a [u8])>) -> Result<Self> {
        let mut all: Option<Self> = None;
        for (name, bytes) in programs {
            let Some(own) = Self::of(bytes) else {
                bail!("`{name}` is not a program for x86_64 or aarch64");
            };
            let before = all.get_or_insert(own);
            ensure!(
                before.architecture == own.architecture,
                "`{name}` is for another architecture than the others"
            );
            if own.linkage == Linkage::Dynamic {
                before.linkage = Linkage::Dynamic;
            }
        }
        match all {
            Some(all) => Ok(all),
            None => bail!("no programs"),
        }
    }

    /// Reads the header of an ELF file of 64 bits, little-endian. `None` if it is another file.
    fn of(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        if !bytes.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let architecture = match word(18)? {
            62 => "x86_64",
            183 => "aarch64",
            _ => return None,
        };
        let start = u64::from_le_bytes(*bytes.get(32..)?.first_chunk()?);
        let start = usize::try_from(start).ok()?;
        let (size, count) = (usize::from(word(54)?), usize::from(word(56)?));
        let mut linkage = Linkage::Static;
        for index in 0..count {
            let header = bytes.get(start.checked_add(index * size)?..)?;
            if u32::from_le_bytes(*header.first_chunk()?) == INTERPRETER {
                linkage = Linkage::Dynamic;
            }
        }
        Some(Self {
            architecture,
            linkage,
        })
    }

    /// Returns the tags. Registries refuse `linux`: a dynamic program is for tests on this computer.
    pub(super) fn tags(self) -> Vec<String> {
        let kinds: &[&str] = match self.linkage {
            Linkage::Static => &["manylinux_2_17", "manylinux2014", "musllinux_1_1"],
            Linkage::Dynamic => &["linux"],
        };
        let tag = |kind: &&str| format!("{kind}_{}", self.architecture);
        kinds.iter().map(tag).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(machine: u8, header: u8) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01".to_vec();
        bytes.resize(64 + 56, 0);
        bytes[18] = machine;
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = 1;
        bytes[64] = header;
        bytes
    }

    #[test]
    fn only_a_static_program_runs_everywhere() {
        let tags = |programs: &[Vec<u8>]| {
            let named = programs.iter().map(|bytes| ("it", &**bytes));
            Platform::of_all(named).map(|all| all.tags().join("."))
        };
        let (free, bound, other) = (program(62, 1), program(62, 3), program(183, 1));
        assert_eq!(
            tags(&[free.clone(), free.clone()]).unwrap(),
            "manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64"
        );
        assert_eq!(tags(&[free.clone(), bound]).unwrap(), "linux_x86_64");
        assert!(tags(&[free, other]).is_err());
        assert!(tags(&[b"#!/bin/sh".to_vec()]).is_err());
    }
}
