//! The log: `RALLY_LOG` says what `rally` and its daemons log, and `RALLY_LOG_FILE` where.
//!
//! Hidden here: the grammar of the filter, the form of a line, and how a line gets out. A process never waits for the
//! reader of its log: a line for which there is no room is dropped and counted. The launcher forks its helpers after the
//! log was set up, so they have it too. The daemon of another node gets the filter with its orders, and its lines travel
//! back through its standard error ([`runtime::log`]).

mod filter;

use std::{
    ffi::OsStr,
    fs::File,
    io,
    path::PathBuf,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use message::{Kind, Message, Severity, visible};
use os::WriteOutcome;
use runtime::log::{LINE_MAX, MARK};
use tracing::{Event, Subscriber};
use tracing_subscriber::{
    filter::Targets,
    fmt::{
        FmtContext, FormatEvent, FormatFields, MakeWriter,
        format::Writer,
        time::{FormatTime as _, SystemTime},
    },
    layer::SubscriberExt as _,
    registry::LookupSpan,
};

pub(crate) use self::filter::FilterError;
use crate::{args::World, exit::ExitCode};

/// The part of the log that is the front.
pub(crate) const FRONT: &str = "front";

/// The variable with the filter.
const FILTER: &str = "RALLY_LOG";
/// The variable with the path of a file for the log.
const FILE: &str = "RALLY_LOG_FILE";
/// The filter of a log that has a file and no filter.
const FILTER_DEFAULT: &str = "info";

const BAD_FILTER: Kind = Kind {
    id: "log/filter",
    severity: Severity::Error,
    explanation: "RALLY_LOG says what is logged: a level (`off`, `error`, `warn`, `info`, `debug`, `trace`) for everything, `PART=LEVEL` for one \
part of `rally`, or several of these, separated by commas: `RALLY_LOG=warn,daemon=trace`. The parts are `front`, `guardian`, \
`controller`, `daemon`, `tree` (connections between nodes) and `bootstrap` (starting daemons). A part alone means all of its events.",
};
const BAD_FILE: Kind = Kind {
    id: "log/file",
    severity: Severity::Error,
    explanation: "RALLY_LOG_FILE names a file for the log, to which lines are appended. Without it, the log goes to stderr. The file is \
on the node where `rally` was started; lines of daemons on other nodes are written to it as well.",
};

/// All kinds of messages in this file, for `rally help ID`.
pub(crate) const KINDS: &[&Kind] = &[&BAD_FILTER, &BAD_FILE];

/// Why there is no log.
#[derive(Debug)]
pub(crate) enum LogError {
    Filter(FilterError),
    File { path: PathBuf, error: i32 },
}

impl LogError {
    pub(crate) const fn exit(&self) -> ExitCode {
        match self {
            Self::Filter(_) => ExitCode::Usage,
            Self::File { .. } => ExitCode::BadFile,
        }
    }

    pub(crate) fn message(&self) -> Message {
        match self {
            Self::Filter(error) => error.message(&BAD_FILTER, FILTER),
            Self::File { path, error } => {
                let (path, error) = (path.display(), os::describe_errno(*error));
                Message::new(&BAD_FILE, format!("cannot write to `{path}`: {error}"))
                    .fact("variable", FILE)
                    .with_help(format!("unset {FILE}, or name a file that can be written"))
            }
        }
    }
}

/// Where lines go.
#[derive(Debug)]
enum Place {
    Stderr,
    File(File),
    /// To the launcher.
    MarkedStderr,
}

/// The log of this process, and of those that it forks.
#[derive(Debug)]
struct Log {
    filter: String,
    /// The name of the node, in each line.
    node: String,
    place: Place,
    /// Lines for which there was no room, since the last line that was written.
    dropped: AtomicU64,
}

/// `None` inside and before the first use: nothing is logged.
static LOG: OnceLock<Log> = OnceLock::new();

/// Starts the log that the environment asks for, if it does.
///
/// # Errors
///
/// The filter is wrong, or the file cannot be written.
pub(crate) fn start(world: &World) -> Result<(), LogError> {
    let path = world.variables.get(OsStr::new(FILE)).map(PathBuf::from);
    let path = path.filter(|path| !path.as_os_str().is_empty());
    let text = world.variables.get(OsStr::new(FILTER));
    let text = text.map(|text| text.to_string_lossy());
    let text = match text.as_deref().map(str::trim) {
        Some(text) if !text.is_empty() => text,
        _ if path.is_some() => FILTER_DEFAULT,
        _ => return Ok(()),
    };
    let targets = filter::parse(text).map_err(LogError::Filter)?;
    let place = match path {
        None => Place::Stderr,
        Some(path) => match os::append_to(&path) {
            Ok(file) => Place::File(file),
            Err(error) => {
                let error = error.raw_os_error().unwrap_or_default();
                return Err(LogError::File { path, error });
            }
        },
    };
    install(text, &world.host, place, targets);
    Ok(())
}

/// Starts the log of a daemon on another node. The launcher has checked the filter.
pub(crate) fn start_on_node(filter: &str, node: &str) {
    if let Ok(targets) = filter::parse(filter) {
        install(filter, node, Place::MarkedStderr, targets);
    }
}

fn install(filter: &str, node: &str, place: Place, targets: Targets) {
    let log = Log {
        filter: filter.to_owned(),
        node: node.to_owned(),
        place,
        dropped: AtomicU64::new(0),
    };
    if LOG.set(log).is_ok() {
        let lines = tracing_subscriber::fmt::layer()
            .event_format(Form)
            .with_writer(Lines);
        let subscriber = tracing_subscriber::registry().with(lines).with(targets);
        // Nobody else sets one.
        let _ = tracing::subscriber::set_global_default(subscriber);
    }
}

/// Returns the filter, for daemons on other nodes. `None` if nothing is logged.
pub(crate) fn filter() -> Option<String> {
    LOG.get().map(|log| log.filter.clone())
}

/// Writes a line of the log of another node.
pub(crate) fn pass_on(line: &[u8]) {
    if let Some(log) = LOG.get() {
        log.write(&String::from_utf8_lossy(line));
    }
}

impl Log {
    fn write(&self, line: &str) {
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            let id = std::process::id();
            let note = format!("{}[{id}] dropped {dropped} lines of the log", self.node);
            if self.put(&note) == Put::NoRoom {
                self.dropped.fetch_add(dropped + 1, Ordering::Relaxed);
                return;
            }
        }
        if self.put(line) == Put::NoRoom {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn put(&self, line: &str) -> Put {
        let written = match &self.place {
            Place::Stderr => os::write_if_room(io::stderr(), &bytes_of("", line)),
            Place::File(file) => os::write_if_room(file, &bytes_of("", line)),
            Place::MarkedStderr => os::write_if_room(io::stderr(), &bytes_of(MARK, line)),
        };
        match written {
            Ok(WriteOutcome::WouldBlock) => Put::NoRoom,
            // Without a reader, nobody misses a line.
            Ok(WriteOutcome::Bytes(_) | WriteOutcome::Closed) | Err(_) => Put::Done,
        }
    }
}

/// Whether a line was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Put {
    Done,
    NoRoom,
}

/// Returns the bytes of one line: at most [`LINE_MAX`], and nothing that a terminal would act on.
fn bytes_of(mark: &str, line: &str) -> Vec<u8> {
    const CUT: &str = " …";
    let line = visible::line(line.trim_end());
    let room = LINE_MAX - mark.len() - 1;
    let text = if line.len() <= room {
        format!("{mark}{line}\n")
    } else {
        let end = line.floor_char_boundary(room - CUT.len());
        format!("{mark}{}{CUT}\n", &line[..end])
    };
    text.into_bytes()
}

/// The form of a line: time, level, node and process, part, text, values.
struct Form;

impl<S, N> FormatEvent<S, N> for Form
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let metadata = event.metadata();
        let node = LOG.get().map_or("", |log| &log.node);
        SystemTime.format_time(&mut writer)?;
        let (level, id) = (metadata.level(), std::process::id());
        write!(writer, " {level:>5} {node}[{id}] {}: ", metadata.target())?;
        context.field_format().format_fields(writer.by_ref(), event)
    }
}

/// Takes each event as one line.
struct Lines;

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        Self
    }
}

impl io::Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        pass_on(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn a_line_has_a_bound_and_no_control_characters() {
        let text = |mark: &str, line: &str| String::from_utf8(bytes_of(mark, line)).unwrap();
        assert_eq!(text("", "a\nb\u{1b}[2J\n"), "a\\nb\\u{1b}[2J\n");
        assert_eq!(text(MARK, "a"), "@rally-log a\n");
        for length in [LINE_MAX - 13, LINE_MAX - 12, LINE_MAX, 9999] {
            let line = text(MARK, &"ü".repeat(length));
            assert!(line.len() <= LINE_MAX, "{length}");
            assert!(line.ends_with("ü …\n"), "{length}");
        }
        let whole = "x".repeat(LINE_MAX - 1);
        assert_eq!(text("", &whole), format!("{whole}\n"));
    }

    #[test]
    fn lines_without_room_are_dropped_and_counted() {
        let (theirs, ours) = os::pipe().unwrap();
        os::set_nonblocking(theirs.as_fd()).unwrap();
        let log = Log {
            filter: String::new(),
            node: "n1".to_owned(),
            place: Place::File(ours.into()),
            dropped: AtomicU64::new(0),
        };
        let line = "x".repeat(1000);
        (0..1000).for_each(|_| log.write(&line));
        let read = || {
            let (mut text, mut buffer) = (Vec::new(), vec![0; 1 << 20]);
            while let Ok(os::ReadOutcome::Bytes(count)) = os::read(theirs.as_fd(), &mut buffer) {
                text.extend(&buffer[..count]);
            }
            String::from_utf8(text).unwrap()
        };
        let written = read().lines().count();
        assert!(written < 1000);
        log.write("next");
        let id = std::process::id();
        let dropped = 1000 - written;
        assert_eq!(
            read(),
            format!("n1[{id}] dropped {dropped} lines of the log\nnext\n")
        );
    }

    #[test]
    fn every_message() {
        let messages = ["deamon=debug", "debgu", "daemon=loud", "tree=", "warn,a.b"].map(|text| {
            let error = filter::parse(text).map_err(LogError::Filter).unwrap_err();
            message::text(&error.message(), message::Format::Text)
        });
        let file = LogError::File {
            path: "/proc/log".into(),
            error: 2,
        };
        let file = message::text(&file.message(), message::Format::Text);
        insta::assert_snapshot!(format!("{}{file}", messages.concat()), @"
        error: `deamon` in RALLY_LOG is no part of `rally` that logs
          RALLY_LOG: deamon=debug
          levels:    off, error, warn, info, debug, trace
          parts:     front, guardian, controller, daemon, tree, bootstrap
          help:      did you mean `daemon`?
        error: `debgu` in RALLY_LOG is neither a level nor a part of `rally` that logs
          RALLY_LOG: debgu
          levels:    off, error, warn, info, debug, trace
          parts:     front, guardian, controller, daemon, tree, bootstrap
          help:      did you mean `debug`?
        error: `loud` in RALLY_LOG is no level
          RALLY_LOG: daemon=loud
          levels:    off, error, warn, info, debug, trace
          parts:     front, guardian, controller, daemon, tree, bootstrap
          help:      write a level, or PART=LEVEL: `warn,daemon=debug`
        error: `tree=` in RALLY_LOG is neither a level nor a part of `rally` that logs
          RALLY_LOG: tree=
          levels:    off, error, warn, info, debug, trace
          parts:     front, guardian, controller, daemon, tree, bootstrap
          help:      did you mean `tree`?
        error: `a.b` in RALLY_LOG is neither a level nor a part of `rally` that logs
          RALLY_LOG: warn,a.b
          levels:    off, error, warn, info, debug, trace
          parts:     front, guardian, controller, daemon, tree, bootstrap
          help:      write a level, or PART=LEVEL: `warn,daemon=debug`
        error: cannot write to `/proc/log`: No such file or directory
          variable: RALLY_LOG_FILE
          help:     unset RALLY_LOG_FILE, or name a file that can be written
        ");
    }
}
