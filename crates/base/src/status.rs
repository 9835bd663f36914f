//! How a process ended.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A signal by its Linux number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Signal(pub i32);

impl Signal {
    pub const HUP: Self = Self(1);
    pub const INT: Self = Self(2);
    pub const QUIT: Self = Self(3);
    pub const TRAP: Self = Self(5);
    pub const ABRT: Self = Self(6);
    pub const KILL: Self = Self(9);
    pub const USR1: Self = Self(10);
    pub const SEGV: Self = Self(11);
    pub const USR2: Self = Self(12);
    pub const PIPE: Self = Self(13);
    pub const ALRM: Self = Self(14);
    pub const TERM: Self = Self(15);
    pub const CHLD: Self = Self(17);
    pub const CONT: Self = Self(18);
    pub const STOP: Self = Self(19);
    pub const TSTP: Self = Self(20);
    pub const TTIN: Self = Self(21);
    pub const TTOU: Self = Self(22);
    pub const WINCH: Self = Self(28);

    /// Returns the name without `SIG`, if the number has the same name on every Linux architecture that we build for.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            1 => "HUP",
            2 => "INT",
            3 => "QUIT",
            4 => "ILL",
            5 => "TRAP",
            6 => "ABRT",
            7 => "BUS",
            8 => "FPE",
            9 => "KILL",
            10 => "USR1",
            11 => "SEGV",
            12 => "USR2",
            13 => "PIPE",
            14 => "ALRM",
            15 => "TERM",
            16 => "STKFLT",
            17 => "CHLD",
            18 => "CONT",
            19 => "STOP",
            20 => "TSTP",
            21 => "TTIN",
            22 => "TTOU",
            23 => "URG",
            24 => "XCPU",
            25 => "XFSZ",
            26 => "VTALRM",
            27 => "PROF",
            28 => "WINCH",
            29 => "IO",
            30 => "PWR",
            31 => "SYS",
            _ => return None,
        })
    }

    /// Parses the name or number of a signal: `TERM`, `SIGTERM`, `term` or `15`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if let Ok(number) = text.parse::<i32>() {
            return (1..=64).contains(&number).then_some(Self(number));
        }
        let upper = text.to_ascii_uppercase();
        let bare = upper.strip_prefix("SIG").unwrap_or(&upper);
        (1..=31)
            .map(Self)
            .find(|signal| signal.name() == Some(bare))
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "SIG{name}"),
            None => write!(f, "signal {}", self.0),
        }
    }
}

/// How a process ended, as reported by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ExitStatus {
    /// It called `exit(code)`; only the low eight bits remain.
    Exited(u8),
    /// It was killed by a signal.
    Signaled { signal: Signal, core_dumped: bool },
    /// It was killed by SIGKILL of the kernel: it and the processes with which it shares a limit of memory, in bytes, needed more.
    OutOfMemory { limit: u64 },
}

impl ExitStatus {
    pub const SUCCESS: Self = Self::Exited(0);

    #[must_use]
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Exited(0))
    }

    /// Returns the exit code that a shell would show: the code itself, or 128 plus the signal's number.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Exited(code) => code,
            Self::Signaled { signal, .. } => u8::try_from(128 + signal.0).unwrap_or(u8::MAX),
            Self::OutOfMemory { .. } => 128 + 9,
        }
    }
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exited with code {code}"),
            Self::Signaled {
                signal,
                core_dumped: false,
            } => write!(f, "killed by {signal}"),
            Self::Signaled {
                signal,
                core_dumped: true,
            } => write!(f, "killed by {signal}, core dumped"),
            Self::OutOfMemory { .. } => f.write_str("killed by the kernel, at its limit of memory"),
        }
    }
}
