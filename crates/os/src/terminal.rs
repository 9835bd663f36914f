//! Terminals: which process group is in the foreground, window size, input modes, pseudo-terminals.
#![expect(
    unsafe_code,
    reason = "window-size ioctls, and reopening a pseudo-terminal's slave"
)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::{
    fcntl::{OFlag, open},
    poll::{PollFd, PollFlags, PollTimeout, poll},
    pty::{grantpt, posix_openpt, ptsname_r, unlockpt},
    sys::{
        stat::Mode,
        termios::{
            InputFlags, LocalFlags, OutputFlags, SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr,
        },
    },
    unistd,
};

use crate::error::{Error, check};

/// Size of a terminal's window, in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowSize {
    /// Number of lines.
    pub rows: u16,
    /// Characters in a line.
    pub columns: u16,
}

/// Returns true if `fd` is a terminal.
#[must_use]
pub fn is_terminal(fd: BorrowedFd<'_>) -> bool {
    unistd::isatty(fd).unwrap_or(false)
}

/// Returns true if `fd` is a terminal, or was one until it hung up. After a hang-up isatty(3) fails too, but not with
/// `ENOTTY`.
pub(crate) fn has_been_terminal(fd: BorrowedFd<'_>) -> bool {
    unistd::isatty(fd) != Ok(false)
}

/// Relation of a terminal to this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Our controlling terminal, with our process group in its foreground.
    Foreground,
    /// Our controlling terminal, with another group in its foreground: reading it would stop us.
    Background,
    /// Another terminal, or one that has hung up. Reading it does not stop us, and no signal reports its hang-up.
    Elsewhere,
}

/// Returns the relation of the terminal `fd` to this process.
#[must_use]
pub fn standing(fd: BorrowedFd<'_>) -> Standing {
    match unistd::tcgetpgrp(fd) {
        Ok(group) if group == unistd::getpgrp() => Standing::Foreground,
        Ok(_) => Standing::Background,
        Err(_) => Standing::Elsewhere,
    }
}

/// Opens our controlling terminal for reading and writing. It does not block.
///
/// # Errors
/// `ENXIO` if there is none.
pub fn controlling_terminal() -> Result<OwnedFd, Error> {
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    open("/dev/tty", flags, Mode::empty()).map_err(Error::nix("open the terminal"))
}

/// Returns true if the other side of the terminal `fd` is gone.
#[must_use]
pub fn has_hung_up(fd: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::new(fd, PollFlags::empty())];
    poll(&mut polled, PollTimeout::ZERO).is_ok()
        && polled[0]
            .revents()
            .is_some_and(|events| events.contains(PollFlags::POLLHUP))
}

/// Returns the size of the terminal's window; `None` if `fd` is no terminal.
#[must_use]
pub fn window_size(fd: BorrowedFd<'_>) -> Option<WindowSize> {
    let mut size = libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: the kernel fills an owned struct.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) };
    (result == 0).then_some(WindowSize {
        rows: size.ws_row,
        columns: size.ws_col,
    })
}

/// Sets the size of the terminal's window; if it changed, the foreground group gets SIGWINCH.
///
/// # Errors
/// `ENOTTY`.
pub fn set_window_size(fd: BorrowedFd<'_>, size: WindowSize) -> Result<(), Error> {
    let size = libc::winsize {
        ws_row: size.rows,
        ws_col: size.columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: the kernel reads an owned struct.
    check("set a window size", unsafe {
        libc::ioctl(fd.as_raw_fd(), libc::TIOCSWINSZ, &raw const size)
    })
    .map(drop)
}

/// Makes a pseudo-terminal: master and slave. Neither becomes our controlling terminal; both close on exec.
///
/// # Errors
/// `ENOSPC` if there are no more; `ENOENT` in a container without /dev/pts.
pub fn open_pty() -> Result<(OwnedFd, OwnedFd), Error> {
    open_both(OFlag::O_RDWR)
}

/// Makes a pseudo-terminal for output only. The slave cannot be read. What is written to it reaches the master unchanged:
/// in particular, no carriage returns are added.
///
/// # Errors
/// Those of [`open_pty`].
pub fn open_output_pty(size: WindowSize) -> Result<(OwnedFd, OwnedFd), Error> {
    let (master, slave) = open_both(OFlag::O_WRONLY)?;
    let mut raw = tcgetattr(&slave).map_err(Error::nix("ask for a terminal's mode"))?;
    cfmakeraw(&mut raw);
    tcsetattr(&slave, SetArg::TCSANOW, &raw).map_err(Error::nix("set a terminal's mode"))?;
    set_window_size(master.as_fd(), size)?;
    Ok((master, slave))
}

fn open_both(slave: OFlag) -> Result<(OwnedFd, OwnedFd), Error> {
    const OPERATION: &str = "create a pseudo-terminal";
    let flags = OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let master = posix_openpt(OFlag::O_RDWR | flags).map_err(Error::nix(OPERATION))?;
    grantpt(&master).map_err(Error::nix(OPERATION))?;
    unlockpt(&master).map_err(Error::nix(OPERATION))?;
    let name = ptsname_r(&master).map_err(Error::nix(OPERATION))?;
    let slave = open(name.as_str(), slave | flags, Mode::empty()).map_err(Error::nix(OPERATION))?;
    let master = master
        .as_fd()
        .try_clone_to_owned()
        .map_err(Error::std(OPERATION))?;
    Ok((master, slave))
}

/// A terminal in raw input mode: every key goes to the program, including Ctrl-C. Dropping this restores the mode.
#[derive(Debug)]
pub struct RawMode {
    fd: OwnedFd,
    /// The old mode; `None` once it was restored.
    saved: Option<Termios>,
}

impl RawMode {
    /// Puts the terminal into raw mode for input and output: a line feed does not return to the left margin any more.
    ///
    /// # Errors
    /// `ENOTTY`; `EIO` from an orphaned background group.
    pub fn enter(fd: OwnedFd) -> Result<Self, Error> {
        let saved = tcgetattr(&fd).map_err(Error::nix("ask for a terminal's mode"))?;
        let mut raw = saved.clone();
        cfmakeraw(&mut raw);
        tcsetattr(&fd, SetArg::TCSADRAIN, &raw).map_err(Error::nix("set a terminal's mode"))?;
        Ok(Self {
            fd,
            saved: Some(saved),
        })
    }

    /// Restores the old mode, once, when the terminal has taken all output.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub fn restore(&mut self) -> Result<(), Error> {
        self.put_back(SetArg::TCSADRAIN)
    }

    /// Restores the old mode, once, also if the terminal takes no output.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub fn restore_now(&mut self) -> Result<(), Error> {
        self.put_back(SetArg::TCSANOW)
    }

    fn put_back(&mut self, when: SetArg) -> Result<(), Error> {
        match self.saved.take() {
            None => Ok(()),
            Some(saved) => {
                tcsetattr(&self.fd, when, &saved).map_err(Error::nix("put a terminal's mode back"))
            }
        }
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // An error means that the terminal is gone.
        drop(self.restore());
    }
}

/// Whether a terminal shows what the user types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Echo {
    Shown,
    Hidden,
}

/// A terminal that the user answers in lines, with Ctrl-C, Ctrl-Z and the keys for corrections. Dropping this restores the mode.
/// What was typed before, and what was not read at the end, is discarded.
#[derive(Debug)]
pub struct LineMode {
    fd: OwnedFd,
    saved: Termios,
}

impl LineMode {
    /// Changes the mode of the terminal.
    ///
    /// # Errors
    /// `ENOTTY`; `EIO` from an orphaned background group.
    pub fn enter(fd: OwnedFd, echo: Echo) -> Result<Self, Error> {
        let saved = tcgetattr(&fd).map_err(Error::nix("ask for a terminal's mode"))?;
        let mut lines = saved.clone();
        lines.input_flags.insert(InputFlags::ICRNL);
        lines
            .input_flags
            .remove(InputFlags::IGNCR | InputFlags::INLCR);
        let output = OutputFlags::OPOST | OutputFlags::ONLCR;
        lines.output_flags.insert(output);
        let local = &mut lines.local_flags;
        local.insert(LocalFlags::ICANON | LocalFlags::ISIG | LocalFlags::IEXTEN);
        let shown = LocalFlags::ECHO | LocalFlags::ECHOE | LocalFlags::ECHOK;
        match echo {
            Echo::Shown => local.insert(shown),
            Echo::Hidden => local.remove(LocalFlags::ECHO | LocalFlags::ECHONL),
        }
        tcsetattr(&fd, SetArg::TCSAFLUSH, &lines).map_err(Error::nix("set a terminal's mode"))?;
        Ok(Self { fd, saved })
    }
}

impl Drop for LineMode {
    fn drop(&mut self) {
        // An error means that the terminal is gone.
        let _ = tcsetattr(&self.fd, SetArg::TCSAFLUSH, &self.saved);
    }
}

/// The controlling terminal, for a process that will have left it: it may have to show again what is typed, if the process that
/// has hidden that is killed.
#[derive(Debug)]
pub struct HiddenInput {
    fd: OwnedFd,
    /// The mode before the input is hidden; `None` if it is not.
    saved: Option<Termios>,
}

impl HiddenInput {
    /// Opens the controlling terminal.
    ///
    /// # Errors
    /// `ENXIO` if there is none.
    pub fn open() -> Result<Self, Error> {
        let fd = controlling_terminal()?;
        Ok(Self { fd, saved: None })
    }

    /// Notes the mode, before another process hides the input. A mode that was noted before stays: the input may be hidden.
    pub fn begin(&mut self) {
        if self.saved.is_none() {
            self.saved = tcgetattr(&self.fd).ok();
        }
    }

    /// Forgets the mode: the other process has restored it.
    pub fn end(&mut self) {
        self.saved = None;
    }

    /// Restores the mode that was noted, if input is still hidden. The shell may have restored it, and set another one.
    pub fn restore(&mut self) {
        if let (Some(saved), Ok(now)) = (self.saved.take(), tcgetattr(&self.fd))
            && now.local_flags.contains(LocalFlags::ICANON)
            && !now.local_flags.contains(LocalFlags::ECHO)
        {
            // An error means that the terminal is gone.
            let _ = tcsetattr(&self.fd, SetArg::TCSANOW, &saved);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipe::{ReadOutcome, pipe, read, write};

    #[test]
    fn a_pseudo_terminal_is_a_terminal() {
        let (master, slave) = open_pty().unwrap();
        assert!(is_terminal(slave.as_fd()));
        assert_eq!(standing(slave.as_fd()), Standing::Elsewhere);
        assert!(!has_hung_up(slave.as_fd()));
        let size = WindowSize {
            rows: 24,
            columns: 80,
        };
        set_window_size(master.as_fd(), size).unwrap();
        assert_eq!(window_size(slave.as_fd()), Some(size));
        let (reader, writer) = pipe().unwrap();
        assert!(!is_terminal(reader.as_fd()));
        assert_eq!(window_size(writer.as_fd()), None);
        drop(master);
        assert!(has_hung_up(slave.as_fd()));
        assert!(!is_terminal(slave.as_fd()));
        assert!(has_been_terminal(slave.as_fd()));
        assert!(!has_been_terminal(reader.as_fd()));
        assert_eq!(standing(slave.as_fd()), Standing::Elsewhere);
        assert_eq!(
            set_window_size(writer.as_fd(), size).unwrap_err().errno(),
            libc::ENOTTY
        );
    }

    #[test]
    fn a_master_whose_slave_is_closed_has_ended() {
        let (master, slave) = open_pty().unwrap();
        write(slave.as_fd(), b"last words\n").unwrap();
        drop(slave);
        let mut buffer = [0; 64];
        assert_eq!(
            read(master.as_fd(), &mut buffer).unwrap(),
            ReadOutcome::Bytes(12)
        );
        assert_eq!(&buffer[..12], b"last words\r\n");
        assert_eq!(
            read(master.as_fd(), &mut buffer).unwrap(),
            ReadOutcome::Closed
        );
    }

    #[test]
    fn a_terminal_for_output_changes_nothing_and_cannot_be_read() {
        let size = WindowSize {
            rows: 30,
            columns: 100,
        };
        let (master, slave) = open_output_pty(size).unwrap();
        assert!(is_terminal(slave.as_fd()));
        assert_eq!(window_size(slave.as_fd()), Some(size));
        let mut buffer = [0; 64];
        assert_eq!(
            read(slave.as_fd(), &mut buffer).unwrap_err().errno(),
            libc::EBADF
        );
        let odd = b"\x04\x03 a\r\tb\n\xff\x00";
        write(slave.as_fd(), odd).unwrap();
        drop(slave);
        assert_eq!(
            read(master.as_fd(), &mut buffer).unwrap(),
            ReadOutcome::Bytes(odd.len())
        );
        assert_eq!(&buffer[..odd.len()], odd);
        assert_eq!(
            read(master.as_fd(), &mut buffer).unwrap(),
            ReadOutcome::Closed
        );
    }

    #[test]
    fn raw_mode_is_put_back() {
        let (_master, slave) = open_pty().unwrap();
        let modes = || {
            let termios = tcgetattr(&slave).unwrap();
            (termios.local_flags, termios.output_flags)
        };
        let before = modes();
        let mut raw = RawMode::enter(slave.try_clone().unwrap()).unwrap();
        assert!(
            !modes()
                .0
                .intersects(LocalFlags::ISIG | LocalFlags::ICANON | LocalFlags::ECHO)
        );
        assert!(!modes().1.contains(OutputFlags::OPOST));
        raw.restore().unwrap();
        assert_eq!(modes(), before);
        drop(RawMode::enter(slave.try_clone().unwrap()).unwrap());
        assert_eq!(modes(), before);
    }

    /// Also if the terminal was in raw mode: the user corrects the line, and Ctrl-C works.
    #[test]
    fn an_answer_is_a_line_that_is_shown_or_hidden() {
        let (master, slave) = open_pty().unwrap();
        let copy = || slave.try_clone().unwrap();
        let flags = || tcgetattr(&slave).unwrap().local_flags;
        let lines = LocalFlags::ICANON | LocalFlags::ISIG;
        let raw = RawMode::enter(copy()).unwrap();
        for (echo, is_shown) in [(Echo::Hidden, false), (Echo::Shown, true)] {
            let before = flags();
            let mode = LineMode::enter(copy(), echo).unwrap();
            assert!(flags().contains(lines));
            assert_eq!(flags().contains(LocalFlags::ECHO), is_shown);
            write(master.as_fd(), b"my\x7fy answer\nrest").unwrap();
            let mut buffer = [0; 64];
            let read = read(slave.as_fd(), &mut buffer).unwrap();
            assert_eq!(read, ReadOutcome::Bytes(10));
            assert_eq!(&buffer[..10], b"my answer\n");
            drop(mode);
            assert_eq!(flags(), before);
        }
        drop(raw);
    }

    #[test]
    fn hidden_input_is_shown_again_unless_the_mode_is_another() {
        let (_master, slave) = open_pty().unwrap();
        let copy = || slave.try_clone().unwrap();
        let mut terminal = HiddenInput {
            fd: copy(),
            saved: None,
        };
        let is_shown = || {
            let flags = tcgetattr(&slave).unwrap().local_flags;
            flags.contains(LocalFlags::ECHO)
        };
        let hide = || std::mem::forget(LineMode::enter(copy(), Echo::Hidden).unwrap());
        terminal.begin();
        hide();
        terminal.restore();
        assert!(is_shown());
        terminal.begin();
        hide();
        terminal.end();
        terminal.restore();
        assert!(!is_shown());
        // A shell that reads keys.
        let raw = RawMode::enter(copy()).unwrap();
        terminal.begin();
        terminal.restore();
        assert!(!is_shown());
        drop(raw);
    }
}
