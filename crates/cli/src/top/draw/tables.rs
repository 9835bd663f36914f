//! The lists of nodes and jobs.

use dvm::machine::{NodeLine, NodeStanding, Record, State};
use message::visible;
use ratatui::{
    Frame,
    layout::{Constraint, Rect},
    style::Style,
    text::{Line, Span},
    widgets::{Cell, Row, Table},
};

use super::{Brush, bar, pane};
use crate::{
    machine::{clock, elapsed, standing_word, state_word},
    top::{
        layout::Pane,
        model::{Cursor, Listed, Top, uses_something},
        reason,
    },
};

/// Characters of a name.
const NAME_MAX: usize = 24;
const NAME_FAIR: usize = 16;
const NAME_MIN: usize = 8;
/// Columns of the bar of a node.
const BAR: u16 = 10;
/// Columns that the last column has at least, before others are left out for it.
const PLACE_MIN: usize = 26;

/// A column of the list of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Job,
    Name,
    State,
    Slots,
    Tasks,
    Cpu,
    Memory,
    Time,
    Limit,
    Place,
}

impl Column {
    const ALL: [Self; 10] = [
        Self::Job,
        Self::Name,
        Self::State,
        Self::Slots,
        Self::Tasks,
        Self::Cpu,
        Self::Memory,
        Self::Time,
        Self::Limit,
        Self::Place,
    ];
    /// Those that are left out, in this order, before a name becomes shorter than [`NAME_FAIR`].
    const EXTRA: [Self; 2] = [Self::Memory, Self::Cpu];
    /// Those that a narrow screen does without, in this order.
    const OPTIONAL: [Self; 4] = [Self::Limit, Self::Slots, Self::Tasks, Self::Time];

    const fn head(self) -> &'static str {
        match self {
            Self::Job => "JOB",
            Self::Name => "NAME",
            Self::State => "STATE",
            Self::Slots => "SLOTS",
            Self::Tasks => "TASKS",
            Self::Cpu => "CPU",
            Self::Memory => "MEMORY",
            Self::Time => "TIME",
            Self::Limit => "LIMIT",
            Self::Place => "NODES, REASON",
        }
    }

    /// Returns true for columns of numbers.
    const fn is_right(self) -> bool {
        match self {
            Self::Job | Self::Slots | Self::Cpu | Self::Memory | Self::Time | Self::Limit => true,
            Self::Name | Self::State | Self::Tasks | Self::Place => false,
        }
    }

    /// Returns the width of the column, which is wider only for a text that needs it. Measurements change all the time, and other columns
    /// are not to move with them.
    const fn width_min(self) -> usize {
        match self {
            Self::Name => NAME_MIN,
            Self::Cpu => "100.0".len(),
            Self::Memory => "1000 MiB".len(),
            _ => 0,
        }
    }

    /// Returns true if the column says something about one of these jobs.
    fn is_useful(self, shown: &[&Record]) -> bool {
        let mut shown = shown.iter();
        match self {
            Self::Tasks => shown.any(|record| record.is_array()),
            Self::Cpu | Self::Memory => shown.any(|record| uses_something(record)),
            _ => true,
        }
    }

    fn text(self, record: &Record, top: &Top) -> String {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        match self {
            Self::Job => record.id.to_string(),
            Self::Name => cut(&visible::line(&record.name), NAME_MAX),
            Self::State => state_word(record).to_owned(),
            Self::Slots => record.slots.to_string(),
            Self::Tasks => tasks(record),
            Self::Cpu => or_dash(top.meter.cores(record.id)),
            Self::Memory => or_dash(top.meter.memory(record.id)),
            Self::Time => or_dash(elapsed(record, top.wall).map(clock)),
            Self::Limit => or_dash(record.time_limit.map(clock)),
            Self::Place => {
                let text = reason::place(record, top.reasons.get(&record.id));
                visible::line(&text).into_owned()
            }
        }
    }
}

/// Returns how many tasks of an array are over. Those that have failed are in the last column.
fn tasks(record: &Record) -> String {
    if !record.is_array() {
        return "-".to_owned();
    }
    let tasks = &record.tasks;
    let left = tasks.waiting.len() + tasks.running.len();
    format!("{}/{}", tasks.count() - left, tasks.count())
}

/// Shortens a text so that one sees that it is shortened.
fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    kept + "…"
}

pub(super) fn jobs(frame: &mut Frame<'_>, top: &Top, brush: Brush, area: Rect) {
    if area.is_empty() {
        return;
    }
    let count = top.listed().len();
    let which = match top.which {
        Listed::Queue => "",
        Listed::OverToo => ", with those that are over",
    };
    let title = format!("Jobs {}{which}", position(top.job, count));
    let inner = pane(frame, top, Pane::Jobs, &title, area);
    if count == 0 {
        let text = if top.status.is_some() { " no jobs" } else { "" };
        return frame.render_widget(Line::from(Span::styled(text, brush.dim())), inner);
    }
    let shown: Vec<&Record> = top.shown().collect();
    let texts = |column: Column| -> Vec<String> {
        shown
            .iter()
            .map(|record| column.text(record, top))
            .collect()
    };
    let mut columns: Vec<(Column, Vec<String>, usize)> = Column::ALL
        .into_iter()
        .filter(|column| column.is_useful(&shown))
        .map(|column| {
            let texts = texts(column);
            let widest = texts.iter().map(|text| text.chars().count()).max();
            let widest = widest.unwrap_or(0).max(column.head().len());
            (column, texts, widest.max(column.width_min()))
        })
        .collect();
    fit(&mut columns, usize::from(inner.width));
    let head = columns.iter().map(|(column, ..)| {
        let text = column.head();
        cell(*column, text, brush.dim())
    });
    let widths = columns.iter().map(|(column, _, width)| match column {
        Column::Place => Constraint::Fill(1),
        _ => Constraint::Length(u16::try_from(*width).unwrap_or(u16::MAX)),
    });
    let rows = (0..shown.len()).map(|index| {
        let state = shown[index].state();
        let cells = columns.iter().map(|(column, texts, _)| {
            let style = match column {
                Column::State => brush.state(state),
                Column::Place if matches!(state, State::Waiting | State::Held) => brush.dim(),
                _ => Style::new(),
            };
            cell(*column, &texts[index], style)
        });
        let row = Row::new(cells.collect::<Vec<_>>());
        row.style(selection(top, Pane::Jobs, top.job, index))
    });
    let table = Table::new(rows.collect::<Vec<_>>(), widths.collect::<Vec<_>>())
        .header(Row::new(head.collect::<Vec<_>>()));
    frame.render_widget(table, inner);
}

/// Leaves out columns, and shortens the name, until the last column has room.
fn fit(columns: &mut Vec<(Column, Vec<String>, usize)>, room: usize) {
    let need = |columns: &[(Column, Vec<String>, usize)]| {
        let all = columns.iter().map(|(column, _, width)| match column {
            Column::Place => (*width).min(PLACE_MIN),
            _ => *width,
        });
        all.sum::<usize>() + columns.len().saturating_sub(1)
    };
    let is_name = |column: &&(Column, Vec<String>, usize)| column.0 == Column::Name;
    let name = columns.iter().find(is_name);
    let spare = name.map_or(0, |(_, _, width)| width.saturating_sub(NAME_FAIR));
    for extra in Column::EXTRA {
        if need(columns) > room + spare {
            columns.retain(|(column, ..)| *column != extra);
        }
    }
    let surplus = need(columns).saturating_sub(room);
    if let Some((_, texts, width)) = columns
        .iter_mut()
        .find(|(column, ..)| *column == Column::Name)
        && surplus > 0
    {
        *width = width.saturating_sub(surplus).max(NAME_MIN.min(*width));
        for text in texts {
            *text = cut(text, *width);
        }
    }
    for optional in Column::OPTIONAL {
        if need(columns) <= room {
            return;
        }
        columns.retain(|(column, ..)| *column != optional);
    }
}

fn cell(column: Column, text: &str, style: Style) -> Cell<'static> {
    let line = Line::from(Span::styled(text.to_owned(), style));
    Cell::from(if column.is_right() {
        line.right_aligned()
    } else {
        line
    })
}

/// Returns the style of a row on the screen.
fn selection(top: &Top, pane: Pane, cursor: Cursor, row: usize) -> Style {
    if cursor.top + row != cursor.index {
        Style::new()
    } else if top.focus == pane {
        Brush::reversed()
    } else {
        Brush::bold()
    }
}

/// Returns the number of the chosen entry, and of all.
fn position(cursor: Cursor, count: usize) -> String {
    match count {
        0 | 1 => count.to_string(),
        _ => format!("{}/{count}", cursor.index + 1),
    }
}

pub(super) fn nodes(frame: &mut Frame<'_>, top: &Top, brush: Brush, area: Rect) {
    if area.is_empty() {
        return;
    }
    let title = format!("Nodes {}", position(top.node, top.nodes.len()));
    let inner = pane(frame, top, Pane::Nodes, &title, area);
    let rows = top.panes().node_rows();
    let shown: Vec<&NodeLine> = top.nodes.iter().skip(top.node.top).take(rows).collect();
    if shown.is_empty() {
        return;
    }
    let name = |node: &NodeLine| cut(&visible::line(&node.name), NAME_MAX);
    let used = |node: &NodeLine| node.slots.saturating_sub(node.free);
    let count = |node: &NodeLine| format!("{}/{}", used(node), node.slots);
    let widest = |text: &dyn Fn(&NodeLine) -> String, head: &str| {
        let all = shown.iter().map(|node| text(node).chars().count());
        let widest = all.max().unwrap_or(0).max(head.len());
        Constraint::Length(u16::try_from(widest).unwrap_or(u16::MAX))
    };
    let widths = [
        widest(&name, "NODE"),
        Constraint::Length(8),
        Constraint::Length(BAR),
        widest(&count, "SLOTS"),
        Constraint::Fill(1),
    ];
    let head = ["NODE", "STATE", "", "SLOTS", "JOBS"]
        .map(|text| Cell::from(Span::styled(text, brush.dim())));
    let rows = (0..).zip(&shown).map(|(index, node)| {
        let style = match node.state {
            NodeStanding::Up => brush.good(),
            NodeStanding::Drained | NodeStanding::Leaving | NodeStanding::Starting => brush.warn(),
            NodeStanding::Bad(_) => brush.bad(),
        };
        let last = match &node.state {
            NodeStanding::Bad(why) => visible::line(why).into_owned(),
            _ => {
                let jobs: Vec<String> = node.jobs.iter().map(ToString::to_string).collect();
                jobs.join(",")
            }
        };
        let bar = bar(u64::from(used(node)), u64::from(node.slots), BAR, brush);
        let cells = [
            Cell::from(name(node)),
            Cell::from(Span::styled(standing_word(&node.state), style)),
            Cell::from(Line::from(bar.to_vec())),
            Cell::from(Line::from(count(node)).right_aligned()),
            Cell::from(last),
        ];
        Row::new(cells).style(selection(top, Pane::Nodes, top.node, index))
    });
    let table = Table::new(rows.collect::<Vec<_>>(), widths).header(Row::new(head));
    frame.render_widget(table, inner);
}
