//! The part of a stack that is worth comparing.
//!
//! A library that waits keeps working internally: two samples never find the same frames below a known wait function
//! ([`crate::known`]), such as `MPI_Recv`. So the stack is cut at that function. A running thread is hardly ever on the same
//! line in two samples. So the innermost function of the user's code is compared without its line.
//!
//! Libraries also call functions of the user: the operation of a reduction, an error handler, a signal handler. A thread in
//! such a callback does not wait at the place where the library was called: what counts is what the callback does.

use std::sync::Arc;

use crate::{
    known::{self, Known, Position},
    stack::{FrameId, FrameKind, Frames},
};

/// The point at which stacks end when they are compared and shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Boundary {
    /// The known wait function, if the thread is in one.
    #[default]
    Known,
    /// The innermost frame.
    Full,
}

/// A stack up to its boundary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The frames, outermost first. Repetitions by recursion are left out.
    pub frames: Vec<FrameId>,
    /// The call that the thread waits in, if any. With [`Boundary::Known`] its frame is the last one.
    pub wait: Option<Known>,
    /// Number of frames from the outermost one to the user's innermost, inclusive.
    user: usize,
}

/// A place in the program. Stacks at the same place have equal locations.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// The callers, each with the line of its call.
    outer: Vec<FrameId>,
    /// The innermost function, without a line. For a wait, the public name of the wait function.
    inner: Option<Arc<str>>,
}

/// Longest pattern of frames whose repetitions are folded into one.
const MAX_CYCLE: usize = 4;

impl Boundary {
    /// Cuts a stack, given with its outermost frame first.
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
    /// Returns the place at which two stacks are compared: the wait, or the user's innermost function.
    #[must_use]
    pub fn place(&self, frames: &Frames) -> Location {
        match &self.wait {
            Some(wait) => Location {
                outer: self.frames[..self.frames.len().saturating_sub(1)].to_vec(),
                inner: Some(Arc::clone(&wait.name)),
            },
            None => self.working(frames),
        }
    }

    /// Returns the place in the user's own code: the callers, and the innermost function without its line.
    #[must_use]
    pub fn working(&self, frames: &Frames) -> Location {
        let own = if self.user == 0 {
            &self.frames[..]
        } else {
            &self.frames[..self.user]
        };
        // Whether the compiler inlined a function here says nothing about what the program does.
        let last = own
            .iter()
            .rposition(|&id| frames.get(id).kind != FrameKind::Inlined);
        let own = last.map_or(own, |last| &own[..=last]);
        Location {
            outer: own[..own.len().saturating_sub(1)].to_vec(),
            inner: own.last().and_then(|&id| frames.get(id).function.clone()),
        }
    }

    /// Returns the frame to cite in messages: the innermost one of the user's own code, even if frames of a library below it
    /// have lines too.
    #[must_use]
    pub fn cited_frame(&self, frames: &Frames) -> Option<FrameId> {
        let waits = usize::from(self.wait.is_some());
        let callers = &self.frames[..self.frames.len().saturating_sub(waits)];
        known::own(callers.iter().map(|&id| frames.get(id))).map(|at| callers[at])
    }
}

/// Returns the wait function and its index in the stack; `None` if the user's own code runs below every known wait function.
fn wait(frames: &Frames, stack: &[FrameId]) -> Option<(usize, Known)> {
    let is_signal = |&id: &FrameId| frames.get(id).kind == FrameKind::Signal;
    // The interrupted frames above a signal handler do not move until the handler returns.
    let mut from = stack.iter().rposition(is_signal).map_or(0, |at| at + 1);
    let mut outer: Option<(usize, Known)> = None;
    loop {
        let (at, known) = outermost(frames, stack, from)?;
        // A tool has frames of its own between its `MPI_Send` and the library's `PMPI_Send`. Both are one call.
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

/// Returns the outermost wait function at index `from` or deeper, and its index.
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

/// Returns the index of the first frame of the user's code below a call that can call back into the user's code.
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

/// Folds recursion: adjacent repetitions of a frame, or of a pattern of up to [`MAX_CYCLE`] frames, are kept once.
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
