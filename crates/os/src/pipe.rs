//! Pipes, socket pairs, and non-blocking reads and writes.
#![expect(unsafe_code, reason = "read and writev on borrowed descriptors")]

use std::{
    fs::{File, OpenOptions},
    io::{self, IoSlice},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
    },
    path::Path,
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, fcntl},
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{AddressFamily, SockFlag, SockType, socketpair},
    unistd,
};

use base::Time;

use crate::{
    clock::Clock,
    error::{Error, check, check_size},
    terminal,
};

/// Maximum number of buffers in one [`write_vectored`]; the kernel's own limit is 1,024.
pub const MAX_SLICES: usize = 64;
/// Device number of /dev/null: character device 1:3 on every Linux.
const NULL_DEVICE: (u32, u32) = (1, 3);
/// `PIPE_BUF` of Linux: the number of bytes that a pipe takes without blocking if poll(2) reports room.
const PIPE_BUF: usize = 4096;

/// Result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// This many bytes, at least one unless the buffer was empty.
    Bytes(usize),
    /// There is nothing to read now.
    WouldBlock,
    /// There will never be more: end of file, or the peer is gone.
    Closed,
}

/// Result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// This many bytes were written.
    Bytes(usize),
    /// There is no room now.
    WouldBlock,
    /// There is no reader any more.
    Closed,
}

/// Makes a pipe: the reading end, then the writing end. Both are blocking and close on exec.
///
/// # Errors
/// `EMFILE`, `ENFILE`.
pub fn pipe() -> Result<(OwnedFd, OwnedFd), Error> {
    unistd::pipe2(OFlag::O_CLOEXEC).map_err(Error::nix("create a pipe"))
}

/// Makes a connected pair of stream sockets. Both are blocking and close on exec.
///
/// # Errors
/// `EMFILE`, `ENFILE`.
pub fn socket_pair() -> Result<(OwnedFd, OwnedFd), Error> {
    socketpair(
        AddressFamily::Unix,
        SockType::Stream,
        None,
        SockFlag::SOCK_CLOEXEC,
    )
    .map_err(Error::nix("create a socket pair"))
}

/// Requests a capacity of `bytes` for a pipe. It may keep the capacity that it has: the kernel limits unprivileged users to
/// 1 MiB per pipe, and limits the total of their pipes. Does nothing to a descriptor that is no pipe.
pub fn request_pipe_size(fd: BorrowedFd<'_>, bytes: usize) {
    let wanted = i32::try_from(bytes).unwrap_or(i32::MAX);
    // A smaller pipe serves as well.
    let _ = fcntl(fd, FcntlArg::F_SETPIPE_SZ(wanted));
}

/// Makes reads and writes non-blocking. This changes the open file, which other processes may share: never do it to a
/// descriptor that we were started with.
///
/// # Errors
/// Only for descriptors that cannot be changed (O_PATH).
pub fn set_nonblocking(fd: BorrowedFd<'_>) -> Result<(), Error> {
    let flags = file_flags(fd)?;
    fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))
        .map(drop)
        .map_err(Error::nix("make a descriptor non-blocking"))
}

/// Opens a file for appending, and makes it if it is missing. It does not wait for the reader of a FIFO.
///
/// # Errors
/// Those of open(2); `ENXIO` for a FIFO without a reader.
pub fn append_to(path: &Path) -> io::Result<File> {
    let file = File::options()
        .append(true)
        .create(true)
        .mode(0o666)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(path)?;
    // The program that gets the descriptor expects a blocking one.
    fcntl(&file, FcntlArg::F_GETFL)
        .map(OFlag::from_bits_retain)
        .and_then(|flags| fcntl(&file, FcntlArg::F_SETFL(flags - OFlag::O_NONBLOCK)))?;
    Ok(file)
}

/// What a file for output has at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// What it had before.
    Kept,
    Nothing,
}

/// Opens a file for output like [`append_to`], with the permissions that a process with this umask gives it, as far as our own umask
/// lets it.
///
/// # Errors
/// Those of [`append_to`] and ftruncate(2).
pub fn open_output(path: &Path, umask: u32, start: Start) -> io::Result<File> {
    let file = File::options()
        .append(true)
        .create(true)
        .mode(0o666 & !umask)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(path)?;
    if start == Start::Nothing && file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    // A FIFO stays non-blocking: its slow reader must not hold up the files of others.
    Ok(file)
}

/// Opens a FIFO for writing, without blocking.
///
/// # Errors
/// `ENXIO`: no process reads it, or it is no FIFO.
pub fn open_fifo(path: &Path) -> Result<OwnedFd, Error> {
    const OPEN: &str = "open the FIFO";
    let file = File::options()
        .write(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(path)
        .map_err(Error::file(OPEN, path))?;
    let kind = file
        .metadata()
        .map_err(Error::file(OPEN, path))?
        .file_type();
    if kind.is_fifo() {
        Ok(file.into())
    } else {
        Err(Error::File {
            operation: OPEN,
            path: path.to_owned(),
            errno: libc::ENXIO,
        })
    }
}

fn file_flags(fd: BorrowedFd<'_>) -> Result<OFlag, Error> {
    fcntl(fd, FcntlArg::F_GETFL)
        .map(OFlag::from_bits_retain)
        .map_err(Error::nix("ask how a descriptor was opened"))
}

/// Makes a second descriptor of the same open file, which closes on exec.
///
/// # Errors
/// `EMFILE`.
pub fn duplicate(fd: BorrowedFd<'_>) -> Result<OwnedFd, Error> {
    fd.try_clone_to_owned()
        .map_err(Error::std("duplicate a descriptor"))
}

/// Makes a descriptor of our own, which closes on exec, for the one that we inherited under this number.
///
/// # Errors
/// `EBADF` if it is not open; `EMFILE`.
pub fn duplicate_inherited(number: i32) -> Result<OwnedFd, Error> {
    // SAFETY: the call touches no memory, and a number that is not open is an error.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    let copy = check("duplicate a descriptor", copy)?;
    // SAFETY: it was opened just now, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Makes `onto` a duplicate of `fd`, which closes on exec; what it was before is closed.
pub(crate) fn duplicate_onto(fd: BorrowedFd<'_>, onto: BorrowedFd<'_>) -> Result<(), Error> {
    // SAFETY: both numbers are open, and the owner of `onto` owns whatever is there.
    let result = unsafe { libc::dup3(fd.as_raw_fd(), onto.as_raw_fd(), libc::O_CLOEXEC) };
    check("duplicate a descriptor", result).map(drop)
}

/// Direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To us: we read.
    Read,
    /// From us: we write.
    Write,
}

/// Opens a pipe or terminal that we inherited a second time, non-blocking. The open file that we share with other processes
/// stays as it is. Returns `None` if that is impossible: for sockets, for pipes or terminals of another user, without
/// /proc.
#[must_use]
pub fn reopen_nonblocking(fd: BorrowedFd<'_>, direction: Direction) -> Option<OwnedFd> {
    let file_type = File::from(fd.try_clone_to_owned().ok()?)
        .metadata()
        .ok()?
        .file_type();
    if !file_type.is_fifo() && !terminal::is_terminal(fd) {
        return None;
    }
    let mut options = OpenOptions::new();
    match direction {
        Direction::Read => options.read(true),
        Direction::Write => options.write(true),
    };
    options
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(format!("/proc/self/fd/{}", fd.as_raw_fd()))
        .ok()
        .map(OwnedFd::from)
}

/// Returns duplicates of descriptors 0, 1 and 2 of this process; `None` for one that our caller had closed.
///
/// # Errors
/// `EMFILE`.
pub fn standard_streams() -> Result<[Option<OwnedFd>; 3], Error> {
    let duplicated = |number| {
        // SAFETY: the number is only duplicated; a closed one is refused with EBADF.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        match duplicate(fd) {
            Ok(fd) => Ok(Some(fd)),
            Err(error) if error.errno() == libc::EBADF => Ok(None),
            Err(error) => Err(error),
        }
    };
    Ok([duplicated(0)?, duplicated(1)?, duplicated(2)?])
}

/// Replaces a standard stream of this process (0 to 2) by /dev/null, so that we do not keep the caller's file open.
///
/// # Errors
/// If /dev/null cannot be opened.
pub fn let_go_of_standard_stream(number: i32) -> Result<(), Error> {
    replace_standard_stream(number, dev_null()?.as_fd())
}

/// Replaces a standard stream of this process (0 to 2) by another open file.
///
/// # Errors
/// Those of dup2(2).
pub fn replace_standard_stream(number: i32, by: BorrowedFd<'_>) -> Result<(), Error> {
    // SAFETY: descriptors 0 to 2 are owned by nothing in this process: standard_streams returns duplicates only.
    let result = unsafe { libc::dup2(by.as_raw_fd(), number.clamp(0, 2)) };
    check_size("replace a standard stream", result as isize).map(drop)
}

/// Reads once into `buffer`.
///
/// # Errors
/// Those of read(2), except "would block", "interrupted" and "closed".
pub fn read(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<ReadOutcome, Error> {
    loop {
        // SAFETY: the kernel writes at most the buffer's length into it.
        let result =
            unsafe { libc::read(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
        let error = match check_size("read", result) {
            Ok(0) if !buffer.is_empty() => return Ok(ReadOutcome::Closed),
            Ok(size) => return Ok(ReadOutcome::Bytes(size)),
            Err(error) => error,
        };
        match Errno::from_raw(error.errno()) {
            Errno::EINTR => {}
            errno => return without_bytes(fd, errno).ok_or(error),
        }
    }
}

/// Returns the outcome of a failed read, or `None` if it is an error.
fn without_bytes(fd: BorrowedFd<'_>, errno: Errno) -> Option<ReadOutcome> {
    match errno {
        Errno::EAGAIN => Some(ReadOutcome::WouldBlock),
        Errno::ECONNRESET => Some(ReadOutcome::Closed),
        // A terminal returns EIO when its other side goes away, and may have hung up since. A disk returns EIO when it
        // fails.
        Errno::EIO if terminal::has_been_terminal(fd) => Some(ReadOutcome::Closed),
        _ => None,
    }
}

/// Writes as much as there is room for.
///
/// # Errors
/// Those of write(2), except "would block", "interrupted" and "closed".
pub fn write(fd: BorrowedFd<'_>, bytes: &[u8]) -> Result<WriteOutcome, Error> {
    write_vectored(fd, &[IoSlice::new(bytes)])
}

/// Writes the beginning of `bytes` in one piece, at most 4,096 bytes, or nothing if it would block. It is meant for
/// descriptors that we share with other processes and so cannot make non-blocking.
///
/// # Errors
/// Those of poll(2) and write(2), except "would block", "interrupted" and "closed".
pub fn write_if_room(fd: impl AsFd, bytes: &[u8]) -> Result<WriteOutcome, Error> {
    let fd = fd.as_fd();
    let mut polled = [PollFd::new(fd, PollFlags::POLLOUT)];
    match poll(&mut polled, PollTimeout::ZERO) {
        // An error is also reported as ready; then the write returns it.
        Ok(1..) => write(fd, &bytes[..bytes.len().min(PIPE_BUF)]),
        Ok(_) | Err(Errno::EINTR) => Ok(WriteOutcome::WouldBlock),
        Err(errno) => Err(Error::nix("ask whether there is room")(errno)),
    }
}

/// Writes several buffers with one call, as far as there is room. Those beyond [`MAX_SLICES`] are not written.
///
/// # Errors
/// Those of writev(2), except "would block", "interrupted" and "closed".
pub fn write_vectored(fd: BorrowedFd<'_>, buffers: &[IoSlice<'_>]) -> Result<WriteOutcome, Error> {
    let buffers = &buffers[..buffers.len().min(MAX_SLICES)];
    let count = libc::c_int::try_from(buffers.len()).unwrap_or(0);
    loop {
        // SAFETY: IoSlice has the layout of iovec, the count is that of the slice, all buffers outlive the call.
        let result = unsafe { libc::writev(fd.as_raw_fd(), buffers.as_ptr().cast(), count) };
        let error = match check_size("write", result) {
            Ok(size) => return Ok(WriteOutcome::Bytes(size)),
            Err(error) => error,
        };
        match Errno::from_raw(error.errno()) {
            Errno::EINTR => {}
            Errno::EAGAIN => return Ok(WriteOutcome::WouldBlock),
            Errno::EPIPE | Errno::ECONNRESET => return Ok(WriteOutcome::Closed),
            _ => return Err(error),
        }
    }
}

/// Opens /dev/null for reading and writing.
///
/// # Errors
/// In a container without /dev.
pub fn dev_null() -> Result<OwnedFd, Error> {
    const PATH: &str = "/dev/null";
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(PATH)
        .map_err(Error::file("open", PATH))?;
    Ok(file.into())
}

/// Returns true if `fd` can be read at all: it is open for reading, and no directory.
#[must_use]
pub fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let metadata = fd
        .try_clone_to_owned()
        .map(File::from)
        .and_then(|file| file.metadata());
    let is_directory = metadata.is_ok_and(|metadata| metadata.is_dir());
    let is_open = file_flags(fd).is_ok_and(|flags| {
        flags & OFlag::O_ACCMODE != OFlag::O_WRONLY && !flags.contains(OFlag::O_PATH)
    });
    is_open && !is_directory
}

/// Waits until reading from `fd` does not block, at most until `until`. Returns false if that time has passed.
///
/// # Errors
/// Those of poll(2), except "interrupted".
pub fn wait_readable(fd: BorrowedFd<'_>, until: Option<Time>) -> Result<bool, Error> {
    loop {
        let timeout = match until {
            // Rounded up, so that the time has passed when the wait is over.
            Some(until) => {
                let millis = Clock::until(until).as_micros().div_ceil(1000);
                PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
            }
            None => PollTimeout::NONE,
        };
        let mut polled = [PollFd::new(fd, PollFlags::POLLIN)];
        match poll(&mut polled, timeout) {
            Ok(0) if until.is_some_and(|until| until > Clock::now()) => {}
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(Error::nix("poll")(error)),
        }
    }
}

/// Opens /dev/null for writing only, so that a process that reads it gets an error, as from an unreadable input.
///
/// # Errors
/// In a container without /dev.
pub fn unreadable_input() -> Result<OwnedFd, Error> {
    const PATH: &str = "/dev/null";
    let file = OpenOptions::new()
        .write(true)
        .open(PATH)
        .map_err(Error::file("open", PATH))?;
    Ok(file.into())
}

/// Returns true if `fd` never blocks in the sense of poll(2): a regular file or /dev/null. epoll refuses both.
#[must_use]
pub fn is_regular_or_null(fd: BorrowedFd<'_>) -> bool {
    let Ok(metadata) = fd
        .try_clone_to_owned()
        .map(File::from)
        .and_then(|file| file.metadata())
    else {
        return false;
    };
    let device = metadata.rdev();
    metadata.is_file()
        || metadata.file_type().is_char_device()
            && (libc::major(device), libc::minor(device)) == NULL_DEVICE
}

/// Returns true if both descriptors lead to the same file, pipe or terminal, as after `2>&1`.
#[must_use]
pub fn is_same_file(left: BorrowedFd<'_>, right: BorrowedFd<'_>) -> bool {
    let identity = |fd: BorrowedFd<'_>| {
        let metadata = fd
            .try_clone_to_owned()
            .map(File::from)
            .and_then(|file| file.metadata())
            .ok()?;
        Some((metadata.dev(), metadata.ino()))
    };
    identity(left.as_fd()).is_some_and(|identity_left| Some(identity_left) == identity(right))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_known_before() {
        let (reader, writer) = pipe().unwrap();
        let directory = OwnedFd::from(File::open("/").unwrap());
        let unreadable = unreadable_input().unwrap();
        assert!(is_readable(reader.as_fd()));
        for fd in [writer, directory, unreadable] {
            assert!(!is_readable(fd.as_fd()));
            read(fd.as_fd(), &mut [0]).unwrap_err();
        }
    }

    /// A read may fail because the terminal closes; the terminal may be gone by the time we check that it was one.
    #[test]
    fn a_terminal_that_closes_is_no_error() {
        let (master, slave) = terminal::open_pty().unwrap();
        let (reader, _writer) = pipe().unwrap();
        let file = OwnedFd::from(File::open("/proc/self/exe").unwrap());
        let closed = Some(ReadOutcome::Closed);
        assert_eq!(without_bytes(slave.as_fd(), Errno::EIO), closed);
        drop(master);
        assert_eq!(without_bytes(slave.as_fd(), Errno::EIO), closed);
        for fd in [reader, file] {
            assert_eq!(without_bytes(fd.as_fd(), Errno::EIO), None);
        }
    }

    #[test]
    fn what_is_inherited_is_the_same_file_and_closes_on_exec() {
        let (reader, writer) = pipe().unwrap();
        let copy = duplicate_inherited(writer.as_raw_fd()).unwrap();
        assert_ne!(copy.as_raw_fd(), writer.as_raw_fd());
        let flags = fcntl(&copy, FcntlArg::F_GETFD).unwrap();
        assert_eq!(flags, libc::FD_CLOEXEC);
        drop(writer);
        assert_eq!(write(copy.as_fd(), b"x").unwrap(), WriteOutcome::Bytes(1));
        let mut byte = [0];
        assert_eq!(
            read(reader.as_fd(), &mut byte).unwrap(),
            ReadOutcome::Bytes(1)
        );
    }

    #[test]
    fn a_number_that_is_not_open_is_an_error() {
        for number in [-1, i32::MAX] {
            let error = duplicate_inherited(number).unwrap_err();
            assert_eq!(error.errno(), libc::EBADF);
        }
    }
}
