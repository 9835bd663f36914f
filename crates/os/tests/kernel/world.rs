//! What most tests need: a spawner, a loop, and shorthands for starting programs.

use std::{
    ffi::{CStr, CString},
    mem,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    time::Duration,
};

use base::ExitStatus;
use os::{ChildEvent, Clock, Event, Loop, Pid, ReadOutcome, SpawnSpec, Spawner};

/// Far longer than anything here takes: exceeding it means that something hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct World {
    pub(crate) spawner: Spawner,
    pub(crate) events: Loop,
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            spawner: Spawner::new().unwrap(),
            events: Loop::new(&[]).unwrap(),
        }
    }

    /// Waits for the next child event.
    pub(crate) fn next(&mut self) -> ChildEvent {
        let deadline = Clock::now() + PATIENCE;
        let mut events = Vec::new();
        loop {
            if let Some(event) = os::reap() {
                return event;
            }
            self.events.wait(Some(deadline), &mut events).unwrap();
            assert!(
                !events.contains(&Event::Deadline),
                "no child event within {PATIENCE:?}"
            );
        }
    }

    /// Waits for the exit of `pid`, which must be the next child event, and returns its status.
    pub(crate) fn exit_of(&mut self, pid: Pid) -> ExitStatus {
        match self.next() {
            ChildEvent::Exited {
                pid: other, status, ..
            } if other == pid => status,
            other => panic!("expected the end of {pid}, got {other:?}"),
        }
    }

    /// Runs a shell script and returns its output and exit status.
    pub(crate) fn shell(
        &mut self,
        script: &str,
        change: impl FnOnce(&mut SpawnSpec<'_>),
    ) -> (String, ExitStatus) {
        let (reader, writer) = os::pipe().unwrap();
        let null = os::dev_null().unwrap();
        let argv = strings(&["sh", "-c", script]);
        let fds = [(null.as_fd(), 0), (writer.as_fd(), 1), (writer.as_fd(), 2)];
        let mut spec = SpawnSpec {
            fds: &fds,
            ..spec(c"/bin/sh", &argv)
        };
        change(&mut spec);
        let pid = self.spawner.spawn(&spec).unwrap();
        drop(writer);
        let text = read_to_end(&reader);
        (text, self.exit_of(pid))
    }
}

pub(crate) fn strings(words: &[&str]) -> Vec<CString> {
    words
        .iter()
        .map(|word| CString::new(*word).unwrap())
        .collect()
}

pub(crate) fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

pub(crate) const fn spec<'a>(program: &'a CStr, argv: &'a [CString]) -> SpawnSpec<'a> {
    SpawnSpec::new(program, argv, &[])
}

pub(crate) fn read_to_end(reader: &OwnedFd) -> String {
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    while let ReadOutcome::Bytes(size) = os::read(reader.as_fd(), &mut buffer).unwrap() {
        text.extend_from_slice(&buffer[..size]);
    }
    String::from_utf8(text).unwrap()
}

/// Polls until `condition` holds, for what the kernel does a moment later without an event.
pub(crate) fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = Clock::now() + PATIENCE;
    while !condition() {
        assert!(Clock::now() < deadline, "it never came true that {what}");
    }
}

/// Returns the CPU time of this process. A sleeping process uses none, however busy the node is.
#[expect(unsafe_code, reason = "the standard library does not tell")]
pub(crate) fn cpu_time() -> Duration {
    // SAFETY: fills an owned struct.
    let spent = unsafe {
        let mut spent: libc::timespec = mem::zeroed();
        libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut spent);
        spent
    };
    Duration::new(
        spent.tv_sec.try_into().unwrap(),
        spent.tv_nsec.try_into().unwrap(),
    )
}
