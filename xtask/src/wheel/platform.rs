//! The systems on which the binaries run, as tags of a wheel.

use anyhow::{Result, bail, ensure};
use object::{
    Endianness,
    elf::{self, FileHeader64},
    read::elf::{FileHeader as _, ProgramHeader as _},
};

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

    /// Reads the headers of a program. `None` if it is no ELF file of 64 bits for these architectures.
    fn of(bytes: &[u8]) -> Option<Self> {
        let header = FileHeader64::<Endianness>::parse(bytes).ok()?;
        let endian = header.endian().ok()?;
        let architecture = match header.e_machine(endian) {
            elf::EM_X86_64 => "x86_64",
            elf::EM_AARCH64 => "aarch64",
            _ => return None,
        };
        let programs = header.program_headers(endian, bytes).ok()?;
        let mut types = programs.iter().map(|program| program.p_type(endian));
        let linkage = if types.any(|kind| kind == elf::PT_INTERP) {
            Linkage::Dynamic
        } else {
            Linkage::Static
        };
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
        bytes[6] = 1;
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
