//! Replays the recording of a real run: feeds the recorded inputs into the state machines that ship, and compares what
//! they do with what they did.
//!
//! A recording has the events of one process, in order. Each state machine in it is replayed by itself: the recording has
//! the messages that it got, so no link is simulated. What a state machine does depends on its inputs, their times and
//! the order of polls, all of which are recorded.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
};

use base::{NodeId, Time};
use dvm::{
    Controller, Daemon,
    recording::{Event, Reader, RecordingError},
};

/// Number of events before a difference that are shown.
const RECORD_MAX: usize = 40;
/// Maximum length of a value that is shown, in bytes.
const SHOWN_MAX: usize = 2000;
/// Text before the first difference of two values that is shown, in bytes.
const CONTEXT: usize = 200;

/// The first difference between a recording and its replay.
#[derive(Debug)]
pub struct Difference {
    /// Number of the event in the recording, from 1.
    pub number: u64,
    /// The state machine: `ctl`, or `d` and the number of the node.
    pub source: String,
    pub recorded: String,
    pub replayed: String,
    /// The events before it, in the form of the simulator's record.
    pub record: Vec<String>,
}

/// Why a replay ends before the end of the recording.
#[derive(Debug)]
pub enum ReplayError {
    Differs(Box<Difference>),
    Recording {
        number: u64,
        error: RecordingError,
    },
    /// The recording has no event.
    Empty,
    /// An event of a state machine that the recording has not made.
    NoMachine {
        number: u64,
        source: String,
    },
}

/// Result of a whole replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    pub events: u64,
    /// Outputs and deadlines that were compared.
    pub compared: u64,
    pub machines: u64,
    /// Whether the recording ends inside an event, because its process was killed.
    pub is_cut: bool,
}

/// A replay in progress.
#[derive(Debug, Default)]
pub struct Replay {
    reader: Reader,
    controller: Option<Controller>,
    daemons: BTreeMap<NodeId, Daemon>,
    counts: Replayed,
    record: VecDeque<String>,
    /// The time of the last input.
    now: Time,
}

impl Replay {
    /// Replays the events that the next bytes of the recording complete.
    ///
    /// # Errors
    ///
    /// The first difference, or a mistake in the recording.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), ReplayError> {
        self.reader.take(bytes);
        loop {
            let number = self.counts.events + 1;
            let wrong = |error| ReplayError::Recording { number, error };
            let Some(bytes) = self.reader.next_event().map_err(wrong)? else {
                return Ok(());
            };
            let event = Event::decode(&bytes).map_err(wrong)?;
            self.counts.events = number;
            self.replay(event)?;
        }
    }

    /// Returns what was replayed. The recording has no more bytes.
    ///
    /// # Errors
    ///
    /// Nothing was replayed.
    pub fn end(self) -> Result<Replayed, ReplayError> {
        if self.counts.events == 0 {
            return Err(ReplayError::Empty);
        }
        Ok(Replayed {
            is_cut: self.reader.is_cut(),
            ..self.counts
        })
    }

    fn replay(&mut self, event: Event<'_>) -> Result<(), ReplayError> {
        if let Event::ControllerGets(now, _)
        | Event::DaemonGets(_, now, _)
        | Event::DaemonLoses(_, now) = &event
        {
            self.now = *now;
        }
        let line = Line(self.now, &event).to_string();
        let source = source(&event);
        let machine = |found: Option<()>| {
            found.ok_or_else(|| ReplayError::NoMachine {
                number: self.counts.events,
                source: source.clone(),
            })
        };
        let replayed = match &event {
            Event::Controller { allocation, name } => {
                self.controller = Some(Controller::new(allocation.clone(), name.clone()));
                self.counts.machines += 1;
                None
            }
            Event::Daemon(config) => {
                let daemon = Daemon::new((**config).clone());
                self.daemons.insert(config.node, daemon);
                self.counts.machines += 1;
                None
            }
            Event::ControllerGets(now, input) => {
                let controller = self.controller.as_mut();
                let handled = controller.map(|it| it.handle(*now, (**input).clone()));
                machine(handled)?;
                None
            }
            Event::DaemonGets(node, now, input) => {
                let daemon = self.daemons.get_mut(node);
                let handled = daemon.map(|it| it.handle(*now, (**input).clone()));
                machine(handled)?;
                None
            }
            Event::DaemonLoses(node, now) => {
                let daemon = self.daemons.get_mut(node);
                machine(daemon.map(|it| it.controller_lost(*now)))?;
                None
            }
            Event::ControllerSends(_) | Event::ControllerIdle(_) => {
                machine(self.controller.as_ref().map(|_| ()))?;
                self.controller
                    .as_mut()
                    .map(|controller| match controller.poll() {
                        Some(output) => Event::ControllerSends(Box::new(output)),
                        None => Event::ControllerIdle(controller.deadline()),
                    })
            }
            Event::DaemonSends(node, _) | Event::DaemonIdle(node, _) => {
                machine(self.daemons.get(node).map(|_| ()))?;
                self.daemons
                    .get_mut(node)
                    .map(|daemon| match daemon.poll() {
                        Some(output) => Event::DaemonSends(*node, Box::new(output)),
                        None => Event::DaemonIdle(*node, daemon.deadline()),
                    })
            }
        };
        if let Some(replayed) = replayed {
            let replayed = replayed.hide();
            self.counts.compared += 1;
            if !event.is_repeated_by(&replayed) {
                let (recorded, replayed) = both(&what(&event), &what(&replayed));
                return Err(ReplayError::Differs(Box::new(Difference {
                    number: self.counts.events,
                    source,
                    recorded,
                    replayed,
                    record: std::mem::take(&mut self.record).into(),
                })));
            }
        }
        if self.record.len() == RECORD_MAX {
            self.record.pop_front();
        }
        self.record.push_back(line);
        Ok(())
    }
}

/// Returns the name of the event's state machine, as in the simulator's record.
fn source(event: &Event<'_>) -> String {
    match event {
        Event::Controller { .. }
        | Event::ControllerGets(..)
        | Event::ControllerSends(_)
        | Event::ControllerIdle(_) => "ctl".to_owned(),
        Event::Daemon(config) => format!("d{}", config.node),
        Event::DaemonGets(node, ..)
        | Event::DaemonLoses(node, _)
        | Event::DaemonSends(node, _)
        | Event::DaemonIdle(node, _) => format!("d{node}"),
    }
}

/// Returns what happens in an event, as in the simulator's record.
fn what(event: &Event<'_>) -> String {
    match event {
        Event::Controller { name, .. } => format!("starts as {name}"),
        Event::Daemon(config) => format!("starts on {}", config.host),
        Event::ControllerGets(_, input) => format!("<- {input:?}"),
        Event::DaemonGets(_, _, input) => format!("<- {input:?}"),
        Event::DaemonLoses(..) => "<- the controller is lost".to_owned(),
        Event::ControllerSends(output) => format!("-> {output:?}"),
        Event::DaemonSends(_, output) => format!("-> {output:?}"),
        Event::ControllerIdle(None) | Event::DaemonIdle(_, None) => "waits".to_owned(),
        Event::ControllerIdle(Some(until)) | Event::DaemonIdle(_, Some(until)) => {
            format!("waits until {until}")
        }
    }
}

/// Shortens two values to what is around their first difference.
fn both(one: &str, other: &str) -> (String, String) {
    let same = one
        .bytes()
        .zip(other.bytes())
        .take_while(|(one, other)| one == other);
    let from = match same.count() {
        _ if one.len().max(other.len()) <= SHOWN_MAX => 0,
        same => same.saturating_sub(CONTEXT),
    };
    (shortened(one, from), shortened(other, from))
}

fn shortened(text: &str, from: usize) -> String {
    let start = text.floor_char_boundary(from.min(text.len()));
    let end = text.floor_char_boundary(start.saturating_add(SHOWN_MAX).min(text.len()));
    let before = if start > 0 { "… " } else { "" };
    let after = if end < text.len() { " …" } else { "" };
    format!("{before}{}{after}", &text[start..end])
}

/// An event in the form of the simulator's record.
struct Line<'a>(Time, &'a Event<'a>);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = self.0.to_string();
        let what = what(self.1);
        write!(
            f,
            "{time:>14} {:<6} {}",
            source(self.1),
            shortened(&what, 0)
        )
    }
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Differs(difference) => {
                for line in &difference.record {
                    writeln!(f, "{line}")?;
                }
                let Difference { number, source, .. } = &**difference;
                writeln!(f, "event {number}, {source}: the replay differs")?;
                writeln!(f, "  recorded: {}", difference.recorded)?;
                write!(f, "  replayed: {}", difference.replayed)
            }
            Self::Recording {
                error: error @ (RecordingError::Foreign | RecordingError::Version { .. }),
                ..
            } => write!(f, "{error}"),
            Self::Recording { number, error } => write!(f, "event {number}: {error}"),
            Self::Empty => f.write_str("the recording has no event"),
            Self::NoMachine { number, source } => write!(
                f,
                "event {number}: the recording has not started {source}, so its beginning is missing"
            ),
        }
    }
}

impl fmt::Display for Replayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            events,
            compared,
            machines,
            is_cut,
        } = self;
        write!(
            f,
            "no difference: events {events}, state machines {machines}, compared outputs {compared}"
        )?;
        if *is_cut {
            f.write_str("; the recording ends inside an event")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
