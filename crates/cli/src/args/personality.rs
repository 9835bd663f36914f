//! The name under which the launcher was called, and what that name implies.

use std::{ffi::OsStr, path::Path};

/// The launcher whose rules apply to spellings that differ between launchers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Personality {
    /// `rally run`: a spelling with two meanings is refused.
    Rally,
    /// `mpiexec`: the MPI standard's forms, then what Open MPI and MPICH agree on.
    Mpiexec,
    /// `mpirun`: the same rules as `mpiexec`.
    Mpirun,
    /// `srun`: Slurm's meanings.
    Srun,
}

impl Personality {
    pub(crate) const ALL: [Self; 4] = [Self::Rally, Self::Mpiexec, Self::Mpirun, Self::Srun];

    /// Returns the name of the command.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Rally => "rally",
            Self::Mpiexec => "mpiexec",
            Self::Mpirun => "mpirun",
            Self::Srun => "srun",
        }
    }

    /// Returns the start of the command line for usage lines and hints.
    pub(crate) const fn command(self) -> &'static str {
        match self {
            Self::Rally => "rally run",
            other => other.name(),
        }
    }

    /// Returns the personality for a program name (`argv[0]`). Only its last path component counts, up to the first dot or
    /// hyphen, so that `mpiexec.rally` and `/opt/bin/mpirun-0.1` work. Any unknown name means `rally`.
    pub(crate) fn from_program(argv0: &OsStr) -> Self {
        let name = Path::new(argv0)
            .file_name()
            .and_then(OsStr::to_str)
            .unwrap_or_default();
        let stem = name.split(['.', '-']).next().unwrap_or_default();
        Self::ALL
            .into_iter()
            .find(|personality| personality.name() == stem)
            .unwrap_or(Self::Rally)
    }

    /// Returns the personality that `--personality NAME` selects. The names of Open MPI and PRRTE are also accepted.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "rally" => Self::Rally,
            "mpiexec" | "mpich" | "hydra" => Self::Mpiexec,
            "mpirun" | "ompi" | "openmpi" | "prte" => Self::Mpirun,
            "srun" | "slurm" => Self::Srun,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_names_choose_the_personality() {
        let cases = [
            ("rally", Personality::Rally),
            ("/usr/bin/mpiexec", Personality::Mpiexec),
            ("mpiexec.rally", Personality::Mpiexec),
            ("./mpirun-0.1", Personality::Mpirun),
            ("srun", Personality::Srun),
            ("srunner", Personality::Rally),
            ("", Personality::Rally),
            ("..", Personality::Rally),
        ];
        for (name, expected) in cases {
            assert_eq!(
                Personality::from_program(OsStr::new(name)),
                expected,
                "{name}"
            );
        }
    }
}
