//! The whole terminal for one program: the alternate screen, with keys that are not echoed. What the user had before comes back,
//! however the program ends, except by SIGKILL.
//!
//! A terminal that takes no output (a stopped one, a stalled connection) holds nothing up: a thread writes, and a frame is left out as
//! long as the one before is being written.

use std::{
    cell::RefCell,
    io::{self, Write},
    os::fd::{AsFd, OwnedFd},
    rc::Rc,
    time::Duration,
};

use base::{Signal, Time};
use os::{BlockingWriter, Clock, Event, Interest, Loop, RawMode, ReadOutcome, Token, WindowSize};
use ratatui::{Frame, Terminal, TerminalOptions, Viewport, backend::TermionBackend, layout::Rect};

use crate::exit;

/// The alternate screen, empty, without a cursor.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[0m\x1b[2J\x1b[?25l";
/// Undoes [`ENTER`], wherever a frame was cut off.
const LEAVE: &[u8] = b"\x1b[?2026l\x1b[0m\x1b[?25h\x1b[?1049l";
/// Terminals that know this show a frame as a whole. Others ignore it.
const BEGIN_FRAME: &[u8] = b"\x1b[?2026h";
const END_FRAME: &[u8] = b"\x1b[?2026l";
/// An empty screen, after which everything is drawn.
const CLEAR: &[u8] = b"\x1b[0m\x1b[2J";

/// How long a terminal may take at the end to take the last frame, and [`LEAVE`].
const LEAVE_MAX: Duration = Duration::from_millis(500);
/// Bytes of keys that are read at once.
const KEYS_MAX: usize = 1024;
/// Rows and columns of a terminal that does not say how large it is.
const UNKNOWN: WindowSize = WindowSize {
    rows: 24,
    columns: 80,
};
/// The most rows and columns that are drawn. A frame has a cell for each.
const SIZE_MAX: u16 = 1000;

const SIGNALS: [Signal; 6] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::WINCH,
    Signal::TSTP,
    Signal::CONT,
];

/// What has happened to a program that has the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Happening {
    /// What the user has typed.
    Typed(Vec<u8>),
    /// The descriptor of [`Screen::add`] is readable.
    Readable(Token),
    /// Everything is to be drawn again.
    Redraw,
    /// A signal ends the program, with this exit code.
    End(u8),
    /// The deadline has passed.
    Deadline,
}

/// Whether the terminal can be used, and what for.
#[derive(Debug)]
pub(crate) struct Screen {
    events: Loop,
    buffer: Vec<Event>,
    /// `None` if stdin is no terminal.
    keyboard: Option<Token>,
    output: OwnedFd,
    writer: BlockingWriter,
    written: Token,
    raw: Option<RawMode>,
    ink: Ink,
    terminal: Terminal<TermionBackend<Ink>>,
    /// A frame was left out.
    is_behind: bool,
    is_entered: bool,
}

/// Where a frame is drawn before it is written.
#[derive(Clone, Debug, Default)]
struct Ink(Rc<RefCell<Vec<u8>>>);

impl Write for Ink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Screen {
    /// Takes the terminal of `output`. Keys come from `input`, if that is a terminal.
    pub(crate) fn enter(input: Option<OwnedFd>, output: OwnedFd) -> Result<Self, os::Error> {
        let mut events = Loop::new(&SIGNALS)?;
        let input = input.filter(|fd| os::is_terminal(fd.as_fd()));
        let keyboard = match &input {
            Some(fd) => Some(events.add(os::duplicate(fd.as_fd())?, Interest::Read)?),
            None => None,
        };
        let (writer, notify) = BlockingWriter::new(os::duplicate(output.as_fd())?)?;
        let written = events.add(notify, Interest::Read)?;
        let raw = input.map(RawMode::enter).transpose()?;
        let ink = Ink::default();
        let terminal = terminal(&ink, size_of(&output));
        let mut screen = Self {
            events,
            buffer: Vec::new(),
            keyboard,
            output,
            writer,
            written,
            raw,
            ink,
            terminal,
            is_behind: false,
            is_entered: true,
        };
        screen.put(ENTER.to_vec());
        Ok(screen)
    }

    /// Waits for a descriptor too.
    pub(crate) fn add(&mut self, fd: OwnedFd) -> Result<Token, os::Error> {
        self.events.add(fd, Interest::Read)
    }

    pub(crate) fn size(&self) -> WindowSize {
        size_of(&self.output)
    }

    /// Draws a frame, unless the terminal has not taken the one before.
    pub(crate) fn draw(&mut self, render: impl FnOnce(&mut Frame<'_>)) {
        if !self.writer.idle() {
            self.is_behind = true;
            return;
        }
        self.is_behind = false;
        self.ink.0.borrow_mut().extend_from_slice(BEGIN_FRAME);
        // Memory takes every byte.
        let _ = self.terminal.draw(render);
        let mut frame = std::mem::take(&mut *self.ink.0.borrow_mut());
        frame.extend_from_slice(END_FRAME);
        self.put(frame);
    }

    /// Forgets what the terminal shows, and learns its size.
    fn refresh(&mut self) {
        self.terminal = terminal(&self.ink, self.size());
        *self.ink.0.borrow_mut() = CLEAR.to_vec();
    }

    fn put(&mut self, bytes: Vec<u8>) {
        // It is refused if the terminal is gone, which ends the program, or if no thread can be started.
        if self.writer.push(bytes).is_err() {
            self.is_behind = true;
        }
    }

    /// Waits until something happens, at most until `deadline`.
    pub(crate) fn wait(&mut self, deadline: Option<Time>) -> Result<Vec<Happening>, os::Error> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let waited = self.events.wait(deadline, &mut buffer);
        let mut happened = Vec::new();
        for event in buffer.drain(..) {
            happened.extend(self.on_event(event));
        }
        self.buffer = buffer;
        waited.map(|()| happened)
    }

    fn on_event(&mut self, event: Event) -> Option<Happening> {
        match event {
            Event::Deadline => Some(Happening::Deadline),
            Event::Readable(token) if token == self.written => {
                let _ = self.writer.completed();
                if self.writer.error().is_some() {
                    return Some(Happening::End(exit::signal(Signal::HUP)));
                }
                (self.is_behind && self.writer.idle()).then_some(Happening::Redraw)
            }
            Event::Readable(token) if Some(token) == self.keyboard => Some(self.read_keys(token)),
            Event::Readable(token) | Event::Writable(token) => Some(Happening::Readable(token)),
            Event::Signal(info) => match info.signal {
                Signal::TSTP => {
                    self.suspend();
                    Some(Happening::Redraw)
                }
                Signal::WINCH | Signal::CONT => {
                    self.refresh();
                    Some(Happening::Redraw)
                }
                Signal::INT | Signal::TERM | Signal::HUP => {
                    Some(Happening::End(exit::signal(info.signal)))
                }
                _ => None,
            },
        }
    }

    fn read_keys(&self, token: Token) -> Happening {
        let mut keys = vec![0; KEYS_MAX];
        let read = match self.events.fd(token) {
            Some(fd) => os::read(fd, &mut keys),
            None => Ok(ReadOutcome::Closed),
        };
        match read {
            Ok(ReadOutcome::Bytes(length)) => {
                keys.truncate(length);
                Happening::Typed(keys)
            }
            Ok(ReadOutcome::WouldBlock) => Happening::Typed(Vec::new()),
            // The terminal is gone.
            Ok(ReadOutcome::Closed) | Err(_) => Happening::End(exit::signal(Signal::HUP)),
        }
    }

    /// Draws everything again, for a user whose screen another program has written on.
    pub(crate) fn redraw(&mut self) {
        self.refresh();
    }

    /// Gives the terminal back and stops, as Ctrl-Z does. Returns when the shell lets the program go on, with the terminal.
    pub(crate) fn suspend(&mut self) {
        let input = self.keyboard.and_then(|token| self.events.fd(token));
        let input = input.and_then(|fd| os::duplicate(fd).ok());
        self.leave();
        // In an orphaned process group nothing happens: no shell could let it go on.
        let _ = os::suspend();
        self.raw = input.and_then(|fd| RawMode::enter(fd).ok());
        self.put(ENTER.to_vec());
        self.is_entered = true;
        self.refresh();
    }

    /// Gives the terminal back.
    pub(crate) fn leave(&mut self) {
        if !std::mem::take(&mut self.is_entered) {
            return;
        }
        self.put(LEAVE.to_vec());
        let until = Clock::now() + LEAVE_MAX;
        let mut events = Vec::new();
        while !self.writer.idle() && self.writer.error().is_none() && Clock::now() < until {
            // Other events that are ready do not end the wait, and there is nothing to do about them any more.
            let soon = Clock::now() + Duration::from_millis(1);
            if self
                .events
                .wait(Some(soon.min(until)), &mut events)
                .is_err()
            {
                break;
            }
            let _ = self.writer.completed();
        }
        // An error means that the terminal is gone. Whether it has taken the last bytes does not matter to the mode.
        if let Some(mut raw) = self.raw.take() {
            let _ = raw.restore_now();
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.leave();
    }
}

fn size_of(output: &OwnedFd) -> WindowSize {
    let size = os::window_size(output.as_fd());
    let size = size.filter(|size| size.rows > 0 && size.columns > 0);
    let size = size.unwrap_or(UNKNOWN);
    WindowSize {
        rows: size.rows.min(SIZE_MAX),
        columns: size.columns.min(SIZE_MAX),
    }
}

fn terminal(ink: &Ink, size: WindowSize) -> Terminal<TermionBackend<Ink>> {
    let viewport = Viewport::Fixed(Rect::new(0, 0, size.columns, size.rows));
    let options = TerminalOptions { viewport };
    let backend = TermionBackend::new(ink.clone());
    #[expect(
        clippy::expect_used,
        reason = "a terminal of a fixed size asks its backend nothing, and the backend writes to memory"
    )]
    Terminal::with_options(backend, options).expect("no I/O")
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, num::NonZero, panic};

    use nix::sys::termios::{Termios, tcgetattr};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn size(of: u16) -> NonZero<u16> {
        NonZero::new(of).unwrap()
    }

    /// The modes of a terminal, and what was written to it.
    struct Pty {
        master: OwnedFd,
        slave: OwnedFd,
        before: Termios,
        parser: vt100::Parser,
        unread: VecDeque<u8>,
    }

    impl Pty {
        fn new() -> Self {
            let (master, slave) = os::open_pty().unwrap();
            let size = WindowSize {
                rows: 5,
                columns: 20,
            };
            os::set_window_size(master.as_fd(), size).unwrap();
            let before = tcgetattr(&slave).unwrap();
            Self {
                master,
                slave,
                before,
                parser: vt100::Parser::new(self::size(5), self::size(20), 0),
                unread: VecDeque::new(),
            }
        }

        fn screen(&self) -> Screen {
            let copy = || self.slave.try_clone().unwrap();
            Screen::enter(Some(copy()), copy()).unwrap()
        }

        fn is_raw(&self) -> bool {
            let now = tcgetattr(&self.slave).unwrap();
            now.local_flags != self.before.local_flags
        }

        /// Reads what was written until the screen is as expected. The kernel passes it on in parts, and later.
        fn expect(&mut self, is_right: impl Fn(&vt100::Screen) -> bool) {
            let until = Clock::now() + PATIENCE;
            while !is_right(self.parser.screen()) {
                if let Some(byte) = self.unread.pop_front() {
                    self.parser.process(&[byte]);
                    continue;
                }
                let is_there = os::wait_readable(self.master.as_fd(), Some(until)).unwrap();
                assert!(is_there, "{:?}", self.parser.screen().contents());
                let mut bytes = vec![0; 1 << 16];
                match os::read(self.master.as_fd(), &mut bytes).unwrap() {
                    ReadOutcome::Bytes(length) => self.unread.extend(&bytes[..length]),
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    fn wait_for_writer(screen: &mut Screen) {
        let until = Clock::now() + PATIENCE;
        while !screen.writer.idle() && Clock::now() < until {
            screen.wait(Some(Clock::now() + LEAVE_MAX)).unwrap();
        }
    }

    #[test]
    fn the_terminal_is_given_back_at_the_end_and_after_a_panic() {
        let is_taken = |shown: &vt100::Screen| shown.alternate_screen() && shown.hide_cursor();
        let is_back = |shown: &vt100::Screen| !shown.alternate_screen() && !shown.hide_cursor();
        let mut pty = Pty::new();
        let mut screen = pty.screen();
        assert!(pty.is_raw());
        wait_for_writer(&mut screen);
        screen.draw(|frame| frame.render_widget("text", frame.area()));
        pty.expect(|shown| shown.contents() == "text" && is_taken(shown));
        drop(screen);
        assert!(!pty.is_raw());
        pty.expect(is_back);

        let mut pty = Pty::new();
        let panicked = panic::catch_unwind(panic::AssertUnwindSafe(|| {
            let _screen = pty.screen();
            assert!(pty.is_raw());
            panic!("a panic");
        }));
        assert!(panicked.is_err());
        assert!(!pty.is_raw());
        pty.expect(is_taken);
        pty.expect(is_back);
    }

    /// A frame is left out while the terminal takes nothing, and drawn when it does again.
    #[test]
    fn a_terminal_that_takes_nothing_holds_nothing_up() {
        let pty = Pty::new();
        let mut screen = pty.screen();
        wait_for_writer(&mut screen);
        // Far more than the terminal takes while nobody reads.
        screen.put(vec![b'x'; 1 << 20]);
        for _ in 0..100 {
            screen.draw(|frame| frame.render_widget("text", frame.area()));
        }
        assert!(screen.is_behind);
        // It does not wait for the terminal for ever.
        drop(screen);
        assert!(!pty.is_raw());
    }
}
