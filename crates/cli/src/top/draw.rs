//! Draws the screen. Whatever others have named (jobs, nodes, files) or printed passes through [`visible::line`].

mod tables;

use std::time::Duration;

use base::Time;
use dvm::machine::{State, Status};
use message::visible;
use ratatui::{
    Frame,
    layout::Rect,
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::{Block, Borders, Clear, Paragraph},
};

use super::{
    dialog, help,
    layout::{self, FRAME, Pane, Zoom},
    model::{Dialog, Tone, Top},
    output::{Aim, Blank, Reading, Scroll, Stream},
};
use crate::machine::{SILENCE, clock, silent};

/// The most cells of the bar of slots.
const BAR_MAX: u16 = 20;

/// Whether colors are used (NO_COLOR). Everything can be told without them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Colors {
    Used,
    None,
}

/// Draws with or without colors.
#[derive(Clone, Copy, Debug)]
struct Brush {
    colors: Colors,
}

impl Brush {
    fn color(self, color: Color) -> Style {
        match self.colors {
            Colors::Used => Style::new().fg(color),
            Colors::None => Style::new(),
        }
    }

    fn good(self) -> Style {
        self.color(Color::Green)
    }

    fn warn(self) -> Style {
        self.color(Color::Yellow)
    }

    fn bad(self) -> Style {
        self.color(Color::Red).add_modifier(Modifier::BOLD)
    }

    fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    const fn bold() -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    const fn reversed() -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// Returns the style of a state of a job.
    fn state(self, state: State) -> Style {
        match state {
            State::Running => self.good(),
            State::Waiting => Style::new(),
            State::Held | State::Paused => self.warn(),
            State::Succeeded => self.dim(),
            State::Failed => self.bad(),
            State::Canceled => self.color(Color::Red),
        }
    }
}

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, top: &Top, now: Time, colors: Colors) {
    let brush = Brush { colors };
    let panes = top.panes();
    title(frame, top, now, brush, panes.title);
    summary(frame, top, brush, panes.summary);
    tables::nodes(frame, top, brush, panes.nodes);
    tables::jobs(frame, top, brush, panes.jobs);
    output(frame, top, brush, panes.output);
    keys(frame, top, brush, panes.keys);
    match &top.dialog {
        Dialog::None => {}
        Dialog::Confirm(order) => {
            let question = visible::line(&order.question()).into_owned();
            let lines = [
                question,
                String::new(),
                "y: yes   any other key: no".to_owned(),
            ];
            draw_dialog(frame, brush, "Sure?", &lines, 0);
        }
        Dialog::Text {
            title,
            lines,
            scrolled,
        } => draw_dialog(frame, brush, title, lines, *scrolled),
    }
}

fn title(frame: &mut Frame<'_>, top: &Top, now: Time, brush: Brush, area: Rect) {
    let name = visible::line(&top.name).into_owned();
    let mut spans = vec![Span::styled(format!(" {name} "), Brush::reversed())];
    let silence = top.silence(now);
    let alert = if silence >= SILENCE {
        Some(silent(&top.name, silence))
    } else {
        top.status.as_ref().and_then(trouble)
    };
    if let Some(alert) = alert {
        let alert = visible::line(&alert).into_owned();
        spans.push("  ".into());
        spans.push(Span::styled(
            format!(" {alert} "),
            brush.bad().add_modifier(Modifier::REVERSED),
        ));
    }
    if let Some(status) = &top.status {
        let up = Duration::from_millis(top.wall.0.saturating_sub(status.since.0));
        spans.push(format!("  up {}", clock(up)).into());
    }
    if let Some(load) = &top.load {
        spans.push(format!("  load {}", load.join(" ")).into());
    }
    frame.render_widget(Line::from(spans), area);
}

/// Returns what is wrong with the machine.
fn trouble(status: &Status) -> Option<String> {
    if let Some(why) = &status.trouble {
        return Some(format!("the store cannot be written: {why}"));
    }
    status.is_going_down.then(|| "about to end".to_owned())
}

fn summary(frame: &mut Frame<'_>, top: &Top, brush: Brush, area: Rect) {
    let Some(status) = &top.status else {
        let waits = Span::styled(" the machine has not answered yet", brush.dim());
        return frame.render_widget(Line::from(waits), area);
    };
    let used = status.slots.saturating_sub(status.free);
    let mut spans = vec![Span::raw(" slots ")];
    spans.extend(bar(used, status.slots, area.width / 4, brush));
    spans.push(format!(" {used}/{}", status.slots).into());
    let nodes = format!("  nodes {}/{}", status.usable, status.nodes);
    let style = if status.usable < status.nodes {
        brush.warn()
    } else {
        Style::new()
    };
    spans.push(Span::styled(nodes, style));
    let held = top.held();
    let waiting = u64::from(status.waiting).saturating_sub(held);
    spans.push(format!("  running {}  waiting {waiting}", status.running).into());
    if held > 0 {
        spans.push(format!("  held {held}").into());
    }
    frame.render_widget(Line::from(spans), area);
}

/// Returns a bar that shows how much of something is used.
fn bar(used: u64, all: u64, width: u16, brush: Brush) -> [Span<'static>; 2] {
    let width = u64::from(width.clamp(4, BAR_MAX));
    let rounded = (used.saturating_mul(width) + all / 2).checked_div(all);
    // Something is not shown as nothing, and not everything is not shown as everything.
    let full = rounded.map_or(0, |full| {
        full.clamp(u64::from(used > 0), width - u64::from(used < all))
    });
    let cells = |count: u64, cell: &str| cell.repeat(usize::try_from(count).unwrap_or(0));
    [
        Span::styled(cells(full, "█"), brush.good()),
        Span::styled(cells(width - full, "░"), brush.dim()),
    ]
}

/// Draws the head of a pane, and returns the rest.
fn pane(frame: &mut Frame<'_>, top: &Top, which: Pane, title: &str, area: Rect) -> Rect {
    let style = if top.focus == which {
        Brush::bold()
    } else {
        Style::new()
    };
    let mark = if top.focus == which { "▶" } else { " " };
    let title = Span::styled(format!("{mark}{title} "), style);
    let block = Block::new()
        .borders(Borders::TOP)
        .border_style(style)
        .title(title);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    inner
}

fn output(frame: &mut Frame<'_>, top: &Top, brush: Brush, area: Rect) {
    if area.is_empty() {
        return;
    }
    let output = &top.output;
    let rows = top.panes().output_rows();
    let first = output.top(rows);
    let kind = match output.stream {
        Stream::Output => "Output",
        Stream::Errors => "Standard error",
    };
    let pinned = if top.pinned.is_some() { ", kept" } else { "" };
    let head = match &output.aim {
        Aim::Blank(_) => kind.to_owned(),
        Aim::File(task, path) => {
            let path = path.to_string_lossy();
            let place = match output.scroll {
                Scroll::Follow => String::new(),
                Scroll::At(_) => format!(", line {} of {}", first + 1, output.lines.end()),
            };
            format!(
                "{kind} of job {task}{pinned}{place}  {}",
                visible::line(&path)
            )
        }
    };
    let inner = pane(frame, top, Pane::Output, &head, area);
    let quiet = |text: String| {
        let text = visible::line(&text).into_owned();
        vec![Line::from(Span::styled(format!(" {text}"), brush.dim()))]
    };
    let lines = match (&output.aim, &output.reading) {
        (Aim::Blank(blank), _) => quiet(blank_text(blank)),
        (_, Reading::Begins) => Vec::new(),
        (_, Reading::Missing) => quiet("the file does not exist".to_owned()),
        (_, Reading::Unreadable(why)) => quiet(format!("the file cannot be read: {why}")),
        (_, Reading::Text) if output.lines.end() == 0 => quiet("nothing yet".to_owned()),
        (_, Reading::Text) => {
            let shown = output.lines.shown(first, rows).into_iter();
            let shifted = |line: String| line.chars().skip(output.shifted).collect::<String>();
            shown.map(|line| Line::from(shifted(line))).collect()
        }
    };
    frame.render_widget(Paragraph::new(lines), inner);
}

fn blank_text(blank: &Blank) -> String {
    match blank {
        Blank::NoJob => "no job is chosen".to_owned(),
        Blank::Allocation(job) => {
            format!("job {job} is an allocation: the jobs that run in it print")
        }
        Blank::Attached(job) => format!("job {job} prints to the terminal of its `rally run`"),
        Blank::NotStarted(task) => format!("job {task} has not started"),
        Blank::OneFile(job) => {
            format!("the standard error of job {job} is with its standard output: s shows it")
        }
    }
}

/// Draws the last line: a notice, or the keys that matter here.
fn keys(frame: &mut Frame<'_>, top: &Top, brush: Brush, area: Rect) {
    if let Some(notice) = &top.notice {
        let style = match notice.tone {
            Tone::Done => brush.good(),
            Tone::Failed => brush.bad(),
        };
        let text = visible::line(&notice.text).into_owned();
        let line = Line::from(Span::styled(format!(" {text}"), style));
        return frame.render_widget(line, area);
    }
    let mut left = usize::from(area.width);
    let mut spans = Vec::new();
    let unzoom = match top.zoom {
        Zoom::On => &[("z", "all panes")][..],
        Zoom::Off => &[],
    };
    let hints = help::hints(top.focus).iter();
    let hints = hints.filter(|(key, _)| unzoom.is_empty() || *key != "z");
    for (key, what) in unzoom.iter().chain(hints) {
        // Two blanks before, one between.
        let width = key.chars().count() + what.chars().count() + 3;
        if width > left {
            break;
        }
        left -= width;
        spans.push(Span::raw("  "));
        spans.push(Span::styled(*key, Brush::bold()));
        spans.push(Span::styled(format!(" {what}"), brush.dim()));
    }
    frame.render_widget(Line::from(spans), area);
}

/// Draws a box in the middle of the screen.
fn draw_dialog(
    frame: &mut Frame<'_>,
    brush: Brush,
    title: &str,
    lines: &[String],
    scrolled: usize,
) {
    let screen = frame.area();
    let size = os::WindowSize {
        rows: screen.height,
        columns: screen.width,
    };
    let room = dialog::room(size);
    let wrapped = dialog::wrapped(lines, size);
    let rows = layout::dialog_rows(size);
    let longest = wrapped.iter().map(|line| line.chars().count()).max();
    let longest = longest
        .unwrap_or(0)
        .max(title.chars().count() + 2)
        .min(room);
    let width = u16::try_from(longest)
        .unwrap_or(screen.width)
        .saturating_add(FRAME + 2);
    let height = u16::try_from(wrapped.len().min(rows)).unwrap_or(0) + FRAME;
    let area = Rect {
        x: screen.width.saturating_sub(width) / 2,
        y: screen.height.saturating_sub(height) / 2,
        width: width.min(screen.width),
        height: height.min(screen.height),
    };
    let more = wrapped.len() > scrolled + rows;
    let mut block = Block::bordered()
        .border_style(brush.color(Color::Cyan))
        .title(Span::styled(
            format!(" {} ", visible::line(title)),
            Brush::bold(),
        ));
    if more {
        block = block.title_bottom(" ↓ more ");
    }
    let shown = wrapped.into_iter().skip(scrolled).take(rows);
    let shown: Vec<Line<'_>> = shown.map(|line| Line::from(format!(" {line}"))).collect();
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(shown).block(block), area);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_tells_nothing_from_little_and_much_from_all() {
        let brush = Brush {
            colors: Colors::None,
        };
        for (used, all, shown) in [
            (0, 0, "░░░░░░░░░░"),
            (0, 100, "░░░░░░░░░░"),
            (1, 100, "█░░░░░░░░░"),
            (50, 100, "█████░░░░░"),
            (99, 100, "█████████░"),
            (100, 100, "██████████"),
        ] {
            let text: String = bar(used, all, 10, brush)
                .iter()
                .map(|span| span.content.to_string())
                .collect();
            assert_eq!(text, shown, "{used}/{all}");
        }
    }
}
