//! A mistake while a launch configuration is read: what is wrong, and which bytes.

use std::{ops::Range, path::Path};

use super::{
    super::Error,
    error::{LaunchError, LaunchProblem, Position},
};

/// A mistake, and the bytes that are wrong.
#[derive(Debug)]
pub(super) struct Mistake {
    at: Option<Range<usize>>,
    problem: Problem,
}

#[derive(Debug)]
enum Problem {
    OfFile(LaunchProblem),
    /// A mistake of the command line that the file stands for.
    OfLine(Box<Error>),
}

impl Mistake {
    pub(super) const fn at(at: Range<usize>, problem: LaunchProblem) -> Self {
        Self {
            at: Some(at),
            problem: Problem::OfFile(problem),
        }
    }

    /// Returns a mistake that has a place only if there is one to name.
    pub(super) const fn somewhere(at: Option<Range<usize>>, problem: LaunchProblem) -> Self {
        Self {
            at,
            problem: Problem::OfFile(problem),
        }
    }

    pub(super) fn of_option(at: Range<usize>, error: Error) -> Self {
        Self {
            at: Some(at),
            problem: Problem::OfLine(Box::new(error)),
        }
    }

    /// Returns the error about this text, which is that of a file.
    pub(super) fn in_file(self, path: &Path, text: &str) -> Error {
        let at = self.at.map(|at| Position::of(text, at.start));
        match self.problem {
            Problem::OfFile(problem) => Error::Launch(Box::new(LaunchError {
                path: path.to_owned(),
                at,
                problem,
            })),
            Problem::OfLine(error) => Error::InLaunch {
                path: path.to_owned(),
                at,
                error,
            },
        }
    }
}
