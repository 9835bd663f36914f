//! What of a stack is worth comparing.
//!
//! Libraries that wait make progress meanwhile: below the function that a person knows ([`crate::known`]) two
//! looks never find the same frames. There a stack is cut. What runs is not on the same line twice: the innermost
//! function of a user counts without its line.
//!
//! Libraries also call the user's functions: the operation of a reduction, an error handler, a signal handler. Who is in
//! one of those does not wait where the library was called: what counts is what that function does.

use std::sync::Arc;

use crate::{
    known::{self, Known, Position},
    stack::{FrameId, FrameKind, Frames},
};

/// Where stacks end that are compared and shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Boundary {
    /// At the function that a person knows as the place where one waits.
    #[default]
    Known,
    /// At their innermost frame.
    Full,
}

/// A stack up to its boundary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Outermost first, without what recursion repeats.
    pub frames: Vec<FrameId>,
    /// What the thread waits in; then that is the last of the frames.
    pub wait: Option<Known>,
    /// How many of the frames, from the outermost one, are up to the user's innermost.
    user: usize,
}

/// Equal for stacks that are at the same place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spot {
    /// The callers, with the lines of the calls.
    outer: Vec<FrameId>,
    /// The function without a line: of a wait the name that people know.
    inner: Option<Arc<str>>,
}

/// The longest pattern of frames whose repetitions are one.
const MAX_CYCLE: usize = 4;

impl Boundary {
    /// Cuts a stack, outermost frame first.
    #[must_use]
    pub fn cut(self, frames: &Frames, stack: &[FrameId]) -> Cut {
        let found = wait(frames, stack);
        let found = found.map(|(at, known)| {
            let below = stack[at + 1..].iter().map(|&id| frames.get(id));
            (at, known.given(below))
        });
        let kept = match (self, &found) {
            (Self::Known, Some((at, _))) => &stack[..=*at],
            _ => stack,
        };
        let kept = fold(kept);
        let end = kept.len() - usize::from(found.is_some() && self == Self::Known);
        let user = kept[..end]
            .iter()
            .rposition(|&id| !known::is_system(frames.get(id)))
            .map_or(0, |at| at + 1);
        Cut {
            frames: kept,
            wait: found.map(|(_, known)| known),
            user,
        }
    }
}

impl Cut {
    /// The place, for comparing.
    #[must_use]
    pub fn place(&self, frames: &Frames) -> Spot {
        match &self.wait {
            Some(wait) => Spot {
                outer: self.frames[..self.frames.len().saturating_sub(1)].to_vec(),
                inner: Some(Arc::clone(&wait.name)),
            },
            None => self.working(frames),
        }
    }

    /// The place in the user's own code, for comparing.
    #[must_use]
    pub fn working(&self, frames: &Frames) -> Spot {
        let own = if self.user == 0 {
            &self.frames[..]
        } else {
            &self.frames[..self.user]
        };
        // Whether the compiler has put a function into this one says nothing about what the program does.
        let last = own
            .iter()
            .rposition(|&id| frames.get(id).kind != FrameKind::Inlined);
        let own = last.map_or(own, |last| &own[..=last]);
        Spot {
            outer: own[..own.len().saturating_sub(1)].to_vec(),
            inner: own.last().and_then(|&id| frames.get(id).function.clone()),
        }
    }

    /// The frame that a person wants to be told: the innermost that the user has written, not that of a library that has
    /// lines too.
    #[must_use]
    pub fn cited(&self, frames: &Frames) -> Option<FrameId> {
        let waits = usize::from(self.wait.is_some());
        let callers = &self.frames[..self.frames.len().saturating_sub(waits)];
        known::own(callers.iter().map(|&id| frames.get(id))).map(|at| callers[at])
    }
}

/// Where a thread waits, and in what; nothing where the user's own code runs below every function that is known.
fn wait(frames: &Frames, stack: &[FrameId]) -> Option<(usize, Known)> {
    let is_signal = |&id: &FrameId| frames.get(id).kind == FrameKind::Signal;
    // What a signal has interrupted stands until the handler returns.
    let mut from = stack.iter().rposition(is_signal).map_or(0, |at| at + 1);
    let mut outer: Option<(usize, Known)> = None;
    loop {
        let (at, known) = outermost(frames, stack, from)?;
        // A tool stands between `MPI_Send` of its own and the library's `PMPI_Send`: that is one call.
        let found = match outer.take() {
            Some(outer) if outer.1.name == known.name => outer,
            _ => (at, known),
        };
        match called_back(frames, stack, at, &found.1) {
            Some(callback) => from = callback,
            None => return Some(found),
        }
        outer = Some(found);
    }
}

/// The outermost function from one place on that people know as a place where one waits.
fn outermost(frames: &Frames, stack: &[FrameId], from: usize) -> Option<(usize, Known)> {
    let rest = stack.get(from..)?.iter().zip(from..);
    rest.into_iter().find_map(|(&id, at)| {
        let place = if at + 1 == stack.len() {
            Position::Inner
        } else {
            Position::Outer
        };
        known::known(frames.get(id), place).map(|known| (at, known))
    })
}

/// The first function of the user below a call that calls the user's functions.
fn called_back(frames: &Frames, stack: &[FrameId], at: usize, call: &Known) -> Option<usize> {
    if !call.calls_back() {
        return None;
    }
    let mut home = frames.get(stack[at]);
    for (place, &id) in stack.iter().enumerate().skip(at + 1) {
        let frame = frames.get(id);
        let again = known::known(frame, Position::Outer);
        if again.is_some_and(|it| it.name == call.name) {
            home = frame;
        } else if known::is_callback(frame, home) {
            return Some(place);
        }
    }
    None
}

/// Leaves out what recursion repeats: runs of a frame, and of a pattern of up to four.
fn fold(stack: &[FrameId]) -> Vec<FrameId> {
    let mut folded: Vec<FrameId> = Vec::with_capacity(stack.len());
    for &frame in stack {
        folded.push(frame);
        for length in 1..=MAX_CYCLE.min(folded.len() / 2) {
            let (before, last) = folded.split_at(folded.len() - length);
            if before.ends_with(last) {
                folded.truncate(folded.len() - length);
                break;
            }
        }
    }
    folded
}
