//! One run of a program, watched.

use std::{
    io::Read,
    os::unix::process::ExitStatusExt,
    process::{ChildStdin, Command, ExitStatus, Stdio},
    sync::{Arc, Condvar, Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

use super::{CLEAN_WITHIN, DEADLINE, sandbox};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

/// What was read of a stream so far, and whether it has ended.
#[derive(Debug, Default)]
struct Text {
    bytes: Vec<u8>,
    ended: bool,
}

/// A stream that a thread of its own reads, so that the program never waits for the test.
#[derive(Clone, Debug, Default)]
pub(super) struct Capture(Arc<(Mutex<Text>, Condvar)>);

impl Capture {
    pub(super) fn read(&self, mut from: impl Read + Send + 'static) {
        let capture = self.clone();
        thread::spawn(move || {
            let mut block = vec![0; 1 << 16];
            loop {
                // A terminal whose last user has gone gives an error instead of an end of file.
                let got = from.read(&mut block).unwrap_or(0);
                let (text, news) = &*capture.0;
                let mut text = text.lock().unwrap();
                text.bytes.extend(&block[..got]);
                text.ended |= got == 0;
                news.notify_all();
                if text.ended {
                    return;
                }
            }
        });
    }

    fn end(&self) {
        self.0.0.lock().unwrap().ended = true;
    }

    /// Waits until `ready` holds for the text so far, or until it never will.
    fn wait(&self, within: Duration, mut ready: impl FnMut(&[u8], bool) -> bool) -> bool {
        let (text, news) = &*self.0;
        let guard = text.lock().unwrap();
        let (guard, _) = news
            .wait_timeout_while(guard, within, |text| {
                !ready(&text.bytes, text.ended) && !text.ended
            })
            .unwrap();
        ready(&guard.bytes, guard.ended)
    }

    pub(super) fn so_far(&self) -> Vec<u8> {
        self.0.0.lock().unwrap().bytes.clone()
    }
}

/// A program that runs.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) pid: i32,
    /// Open until taken or dropped, when the command asked for a pipe.
    pub(crate) stdin: Option<ChildStdin>,
    line: String,
    marker: String,
    started: Instant,
    streams: [Capture; 2],
    ended: mpsc::Receiver<ExitStatus>,
}

/// A program that has ended.
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) elapsed: Duration,
    line: String,
}

impl Running {
    /// Starts with both output streams captured. To give one elsewhere, let a shell redirect it.
    pub(super) fn start(command: &mut Command, marker: &str) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let streams = [Capture::default(), Capture::default()];
        let mut running = Self::spawn(command, marker, streams);
        running.started = Instant::now();
        running
    }

    pub(super) fn spawn(command: &mut Command, marker: &str, streams: [Capture; 2]) -> Self {
        let line = format!("{command:?}");
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{line}: {error}"));
        let pid = i32::try_from(child.id()).unwrap();
        let stdin = child.stdin.take();
        // Without a pipe the stream is a terminal, and its owner starts the reader.
        if let Some(stdout) = child.stdout.take() {
            streams[0].read(stdout);
        }
        match child.stderr.take() {
            Some(stderr) => streams[1].read(stderr),
            None => streams[1].end(),
        }
        let (sender, ended) = mpsc::channel();
        thread::spawn(move || {
            if let Ok(status) = child.wait() {
                // Nobody listens any more when the test has failed meanwhile.
                let _ = sender.send(status);
            }
        });
        Self {
            pid,
            stdin,
            line,
            marker: marker.to_owned(),
            started: Instant::now(),
            streams,
            ended,
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        signal::kill(Pid::from_raw(self.pid), signal).unwrap();
    }

    pub(crate) fn so_far(&self, stream: Stream) -> String {
        String::from_utf8_lossy(&self.streams[stream as usize].so_far()).into_owned()
    }

    /// Waits until `text` was seen `times` times on a stream.
    pub(crate) fn expect_times(&self, stream: Stream, text: &str, times: usize) {
        let seen = self.streams[stream as usize].wait(DEADLINE, |bytes, _| {
            String::from_utf8_lossy(bytes).matches(text).count() >= times
        });
        if !seen {
            self.fail(&format!("{stream:?} never showed {text:?} {times} times"));
        }
    }

    pub(crate) fn expect(&self, stream: Stream, text: &str) {
        self.expect_times(stream, text, 1);
    }

    /// Whether the program has ended already, without waiting.
    pub(crate) fn has_ended_within(&mut self, within: Duration) -> bool {
        match self.ended.recv_timeout(within) {
            Ok(status) => {
                // Put it back for `end`.
                let (sender, ended) = mpsc::channel();
                sender.send(status).unwrap();
                self.ended = ended;
                true
            }
            Err(_) => false,
        }
    }

    /// Closes stdin and waits for the end; a run that hangs fails with a picture of all its processes.
    pub(crate) fn end(mut self) -> Finished {
        drop(self.stdin.take());
        let left = DEADLINE
            .saturating_sub(self.started.elapsed())
            .max(Duration::from_secs(1));
        let Ok(status) = self.ended.recv_timeout(left) else {
            self.fail(&format!("still running after {:?}", self.started.elapsed()));
        };
        let elapsed = self.started.elapsed();
        for (stream, capture) in [Stream::Stdout, Stream::Stderr]
            .into_iter()
            .zip(&self.streams)
        {
            if !capture.wait(CLEAN_WITHIN, |_, ended| ended) {
                self.fail(&format!(
                    "it has ended, but something still holds its {stream:?} open"
                ));
            }
        }
        Finished {
            status,
            stdout: self.streams[0].so_far(),
            stderr: self.streams[1].so_far(),
            elapsed,
            line: self.line.clone(),
        }
    }

    fn fail(&self, what: &str) -> ! {
        // Only what the test started: the command lines of others are none of its business.
        let mut processes = mischief::marked_procs(&self.marker);
        processes.sort_by_key(|process| process.pid);
        let tree = processes
            .iter()
            .map(|process| format!("  {process}\n"))
            .collect::<String>();
        sandbox::kill_all(&self.marker);
        panic!(
            "{what}\ncommand: {}\nstdout: {}\nstderr: {}\n{tree}",
            self.line,
            shorten(&self.streams[0].so_far()),
            shorten(&self.streams[1].so_far()),
        );
    }
}

impl Finished {
    /// The exit code, or 128 plus the signal, as a shell shows it.
    pub(crate) fn code(&self) -> i32 {
        self.status
            .code()
            .or_else(|| self.status.signal().map(|signal| 128 + signal))
            .unwrap()
    }

    pub(crate) fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub(crate) fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// The lines of stdout in an order that does not depend on which rank was faster.
    pub(crate) fn sorted(&self) -> String {
        let out = self.out();
        let mut lines = out.lines().collect::<Vec<_>>();
        lines.sort_unstable();
        lines.join("\n")
    }

    #[track_caller]
    pub(crate) fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.code(), code, "{self:?}");
        self
    }

    /// Stderr contains each of these, in whatever order.
    #[track_caller]
    pub(crate) fn expect_err(self, parts: &[&str]) -> Self {
        let err = self.err();
        for part in parts {
            assert!(err.contains(part), "{part:?} is not said: {self:?}");
        }
        self
    }

    #[track_caller]
    pub(crate) fn expect_out(self, expected: &str) -> Self {
        assert_eq!(self.out(), expected, "{self:?}");
        self
    }

    /// Nothing on stderr, but for the one note that a node with fewer cores than ranks gets.
    #[track_caller]
    pub(crate) fn expect_quiet(self) -> Self {
        let err = self.err();
        let unbound =
            |line: &&str| !(line.starts_with("note: ") && line.ends_with("are not bound"));
        assert_eq!(err.lines().filter(unbound).count(), 0, "{self:?}");
        self
    }
}

impl std::fmt::Debug for Finished {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "\ncommand: {}\nended with {} after {:?}\nstdout: {}\nstderr: {}",
            self.line,
            self.status,
            self.elapsed,
            shorten(&self.stdout),
            shorten(&self.stderr)
        )
    }
}

/// Enough of a text to see what it is.
fn shorten(bytes: &[u8]) -> String {
    const SHOWN: usize = 3_000;
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN)]).into_owned();
    if bytes.len() > SHOWN {
        format!("{shown}... ({} bytes)", bytes.len())
    } else {
        shown
    }
}
