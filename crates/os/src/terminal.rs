//! Terminals: which process group is in the foreground, window size, raw mode, pseudo-terminals.
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
        termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr},
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

    /// Restores the old mode, once.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub fn restore(&mut self) -> Result<(), Error> {
        match self.saved.take() {
            None => Ok(()),
            Some(saved) => tcsetattr(&self.fd, SetArg::TCSADRAIN, &saved)
                .map_err(Error::nix("put a terminal's mode back")),
        }
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // An error means that the terminal is gone.
        drop(self.restore());
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::termios::{LocalFlags, OutputFlags};

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
}
