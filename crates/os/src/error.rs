//! Errors of calls into the kernel.

use std::{io, path::PathBuf};

use nix::errno::Errno;

/// A call that the kernel refused, or a kernel file without its documented form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("cannot {operation}: {}", describe_errno(*errno))]
    Call {
        /// What was attempted, as a verb phrase that follows "cannot".
        operation: &'static str,
        /// The error number, see errno(3).
        errno: i32,
    },
    /// A system call on a named file failed.
    #[error("cannot {operation} `{}`: {}", path.display(), describe_errno(*errno))]
    File {
        /// What was attempted, as a verb phrase that the path completes.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The error number, see errno(3).
        errno: i32,
    },
    /// A file of the kernel does not have its documented form.
    #[error("cannot understand `{}`: expected {expected}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What was expected instead.
        expected: &'static str,
    },
    /// A plain fork was requested while other threads run; locks that they hold would stay locked in the child for ever.
    #[error("cannot fork: the process has {threads} threads and may have one")]
    Threads {
        /// Number of threads of this process, including the calling one.
        threads: u64,
    },
}

impl Error {
    /// Returns the error number, see errno(3); `EINVAL` for errors that did not come from a system call.
    #[must_use]
    pub const fn errno(&self) -> i32 {
        match self {
            Self::Call { errno, .. } | Self::File { errno, .. } => *errno,
            Self::Malformed { .. } | Self::Threads { .. } => libc::EINVAL,
        }
    }

    /// Makes an error of the current `errno`.
    pub(crate) fn last(operation: &'static str) -> Self {
        Self::Call {
            operation,
            errno: Errno::last_raw(),
        }
    }

    /// Converts an error of `nix`.
    pub(crate) fn nix(operation: &'static str) -> impl Fn(Errno) -> Self {
        move |errno| Self::Call {
            operation,
            errno: errno as i32,
        }
    }

    /// Converts an error of the standard library.
    pub(crate) fn std(operation: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| Self::Call {
            operation,
            errno: error.raw_os_error().unwrap_or(libc::EIO),
        }
    }

    /// Converts an error of the standard library about a file.
    pub(crate) fn file(
        operation: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| Self::File {
            operation,
            path,
            errno: error.raw_os_error().unwrap_or(libc::EIO),
        }
    }
}

/// Returns the description of `errno` from errno(3), or "Unknown errno".
#[must_use]
pub fn describe_errno(errno: i32) -> &'static str {
    Errno::from_raw(errno).desc()
}

/// Turns the `-1` of a system call into an error made of `errno`.
pub(crate) fn check(operation: &'static str, result: libc::c_int) -> Result<libc::c_int, Error> {
    if result == -1 {
        Err(Error::last(operation))
    } else {
        Ok(result)
    }
}

/// Does what [`check`] does, for calls that return a size.
pub(crate) fn check_size(operation: &'static str, result: isize) -> Result<usize, Error> {
    usize::try_from(result).map_err(|_| Error::last(operation))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_names_its_operation() {
        let errors = [
            Error::Call {
                operation: "create a pipe",
                errno: libc::EMFILE,
            },
            Error::File {
                operation: "read",
                path: "/proc/1/stat".into(),
                errno: libc::ENOENT,
            },
            Error::Malformed {
                path: "/sys/x".into(),
                expected: "a list of CPUs",
            },
            Error::Threads { threads: 2 },
        ];
        let text: Vec<String> = errors
            .iter()
            .map(|error| format!("{error} [{}]", error.errno()))
            .collect();
        insta::assert_snapshot!(text.join("\n"), @"
        cannot create a pipe: Too many open files [24]
        cannot read `/proc/1/stat`: No such file or directory [2]
        cannot understand `/sys/x`: expected a list of CPUs [22]
        cannot fork: the process has 2 threads and may have one [22]
        ");
    }

    #[test]
    fn errno_of_the_last_call_is_kept() {
        let error = Error::std("open nothing")(io::Error::from_raw_os_error(libc::EACCES));
        assert_eq!(error.errno(), libc::EACCES);
        assert_eq!(describe_errno(libc::ENOSPC), "No space left on device");
    }
}
