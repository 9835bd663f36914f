//! A running program, with its captured output.

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

/// The bytes read from a stream so far, and whether EOF was reached.
#[derive(Debug, Default)]
struct Text {
    bytes: Vec<u8>,
    ended: bool,
}

/// A stream read by its own thread, so that the program never waits for the test.
#[derive(Clone, Debug, Default)]
pub(super) struct Capture(Arc<(Mutex<Text>, Condvar)>);

impl Capture {
    pub(super) fn read(&self, mut from: impl Read + Send + 'static) {
        let capture = self.clone();
        thread::spawn(move || {
            let mut block = vec![0; 1 << 16];
            loop {
                // After its last user is gone, a terminal returns an error instead of EOF.
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

    /// Waits until `ready` returns true for the text so far, or EOF or the time-out makes that impossible.
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

/// A program that is running.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) pid: i32,
    /// The write end of the program's stdin, if the command requested a pipe. `None` once closed.
    pub(crate) stdin: Option<ChildStdin>,
    line: String,
    marker: String,
    started: Instant,
    streams: [Capture; 2],
    ended: mpsc::Receiver<ExitStatus>,
}

/// A program that has exited.
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) elapsed: Duration,
    line: String,
}

impl Running {
    /// Starts a program with both output streams captured. To redirect one, use a shell.
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
        // Without pipes, the streams are a terminal, whose owner starts the reader.
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
                // The receiver is gone if the test has failed.
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

    /// Returns the bytes of a stream from `start` on.
    pub(crate) fn bytes_from(&self, stream: Stream, start: usize) -> Vec<u8> {
        let mut bytes = self.streams[stream as usize].so_far();
        bytes.split_off(start.min(bytes.len()))
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

    /// Returns true if the program exits within this time.
    pub(crate) fn has_ended_within(&mut self, within: Duration) -> bool {
        match self.ended.recv_timeout(within) {
            Ok(status) => {
                // Put the status back for `end`.
                let (sender, ended) = mpsc::channel();
                sender.send(status).unwrap();
                self.ended = ended;
                true
            }
            Err(_) => false,
        }
    }

    /// Closes stdin and waits for the exit. A run that hangs fails with a list of all its processes.
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
        // Only processes of this test: those of others do not matter.
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
    /// Returns the exit code, or 128 plus the signal, as in a shell.
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

    /// Returns the lines of stdout, sorted, so that they do not depend on which rank was faster.
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

    /// Checks that stderr contains each of these parts, in any order.
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

    /// Checks that stderr is empty, except for the note on nodes with fewer cores than ranks.
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

/// Returns enough of a text to recognize it.
fn shorten(bytes: &[u8]) -> String {
    const SHOWN: usize = 3_000;
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN)]).into_owned();
    if bytes.len() > SHOWN {
        format!("{shown}... ({} bytes)", bytes.len())
    } else {
        shown
    }
}
