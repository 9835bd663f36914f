//! Where the panes are on a screen of a given size.
//!
//! | screen | panes |
//! |---|---|
//! | small, or zoomed | the pane with the focus |
//! | usual | nodes above jobs above output |
//! | wide | nodes above jobs beside output |

use os::WindowSize;
use ratatui::layout::Rect;

/// Rows of the title, the summary and the keys.
const AROUND: u16 = 3;
/// With fewer rows between them, there is one pane.
const SEVERAL_MIN: u16 = 12;
/// From this width on, jobs and output stand side by side.
const WIDE_MIN: u16 = 150;
/// The title of a pane, and the names of its columns.
const HEADS: u16 = 2;
/// The list of jobs is not shorter, so that it does not jump with each job.
const JOBS_MIN: u16 = 5;
/// Rows and columns of a dialog that are not text.
pub(super) const FRAME: u16 = 2;

/// A part of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pane {
    Nodes,
    Jobs,
    Output,
}

impl Pane {
    pub(super) const fn next(self) -> Self {
        match self {
            Self::Nodes => Self::Jobs,
            Self::Jobs => Self::Output,
            Self::Output => Self::Nodes,
        }
    }
}

/// Whether the pane with the focus has all the room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Zoom {
    Off,
    On,
}

impl Zoom {
    pub(super) const fn other(self) -> Self {
        match self {
            Self::Off => Self::On,
            Self::On => Self::Off,
        }
    }
}

/// The parts of a screen. A part that is not shown is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Panes {
    pub(super) title: Rect,
    pub(super) summary: Rect,
    pub(super) nodes: Rect,
    pub(super) jobs: Rect,
    pub(super) output: Rect,
    pub(super) keys: Rect,
}

impl Panes {
    pub(super) fn node_rows(&self) -> usize {
        usize::from(self.nodes.height.saturating_sub(HEADS))
    }

    pub(super) fn job_rows(&self) -> usize {
        usize::from(self.jobs.height.saturating_sub(HEADS))
    }

    pub(super) fn output_rows(&self) -> usize {
        usize::from(self.output.height.saturating_sub(1))
    }
}

/// Returns where the panes are.
///
/// Room that a short list of jobs does not need is for the output.
pub(super) fn panes(size: WindowSize, focus: Pane, zoom: Zoom, nodes: usize, jobs: usize) -> Panes {
    let WindowSize { rows, columns } = size;
    let row = |y, height| Rect::new(0, y, columns, height);
    let title = row(0, rows.min(1));
    let summary = row(1, rows.saturating_sub(1).min(1));
    let keys = row(rows.saturating_sub(1), rows.saturating_sub(2).min(1));
    let body = row(2, rows.saturating_sub(AROUND));
    let mut panes = Panes {
        title,
        summary,
        keys,
        ..Panes::default()
    };
    if zoom == Zoom::On || body.height < SEVERAL_MIN {
        match focus {
            Pane::Nodes => panes.nodes = body,
            Pane::Jobs => panes.jobs = body,
            Pane::Output => panes.output = body,
        }
        return panes;
    }
    let nodes = u16::try_from(nodes).unwrap_or(u16::MAX);
    let above = HEADS + nodes.clamp(1, body.height / 4);
    panes.nodes = row(body.y, above);
    let (y, height) = (body.y + above, body.height - above);
    if columns >= WIDE_MIN {
        let left = columns / 2;
        panes.jobs = Rect::new(0, y, left, height);
        panes.output = Rect::new(left + 1, y, columns - left - 1, height);
    } else {
        let jobs = u16::try_from(jobs).unwrap_or(u16::MAX).max(JOBS_MIN);
        let most = height - height * 2 / 5;
        let below = height - most.min(jobs.saturating_add(HEADS));
        panes.jobs = row(y, height - below);
        panes.output = row(y + height - below, below);
    }
    panes
}

/// Returns the number of lines of text in a dialog.
pub(super) fn dialog_rows(size: WindowSize) -> usize {
    usize::from(size.rows.saturating_sub(AROUND + FRAME).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No part leaves the screen, and none covers another one.
    #[test]
    fn every_size_has_a_layout() {
        for rows in 0..70 {
            for columns in [0, 1, 20, 80, 149, 150, 151, 400] {
                for (nodes, jobs) in [(0, 0), (1, 5), (5, 10_000), (10_000, 20)] {
                    for zoom in [Zoom::Off, Zoom::On] {
                        let size = WindowSize { rows, columns };
                        let found = panes(size, Pane::Jobs, zoom, nodes, jobs);
                        let all = [
                            found.title,
                            found.summary,
                            found.nodes,
                            found.jobs,
                            found.output,
                            found.keys,
                        ];
                        let screen = Rect::new(0, 0, columns, rows);
                        for (index, one) in all.iter().enumerate() {
                            assert!(one.is_empty() || screen.intersection(*one) == *one);
                            let mut others = all.iter().skip(index + 1);
                            assert!(others.all(|other| one.intersection(*other).is_empty()));
                        }
                        if rows >= 6 && columns > 0 {
                            assert!(found.job_rows() >= 1, "{size:?}");
                        }
                    }
                }
            }
        }
    }
}
