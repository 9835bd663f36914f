//! Under which name the launcher was called, and what that name implies.

use std::{ffi::OsStr, path::Path};

/// Whose habits the command line follows where the peers' meanings of one spelling differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Personality {
    /// `rally run`: a spelling with two meanings is refused.
    Rally,
    /// `mpiexec`: the MPI standard's forms, then what Open MPI and MPICH agree on.
    Mpiexec,
    /// `mpirun`: as `mpiexec`.
    Mpirun,
    /// `srun`: Slurm's meanings.
    Srun,
}

impl Personality {
    pub(crate) const ALL: [Self; 4] = [Self::Rally, Self::Mpiexec, Self::Mpirun, Self::Srun];

    /// The name users call it by.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Rally => "rally",
            Self::Mpiexec => "mpiexec",
            Self::Mpirun => "mpirun",
            Self::Srun => "srun",
        }
    }

    /// How the command line starts in usage lines and hints.
    pub(crate) const fn command(self) -> &'static str {
        match self {
            Self::Rally => "rally run",
            other => other.name(),
        }
    }

    /// The personality that a program name (`argv[0]`) stands for: its last path component up to the first dot or
    /// hyphen, so that `mpiexec.rally` and `/opt/bin/mpirun-0.1` work. Anything unknown is plain `rally`.
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

    /// The personality that `--personality NAME` asks for; the names that Open MPI and PRRTE give are understood too.
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
