//! Runs a command of Slurm, with a limit to our patience.

use std::{
    collections::BTreeMap,
    ffi::{CString, OsStr, OsString},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::ffi::{OsStrExt as _, OsStringExt as _},
    },
    time::Duration,
};

use base::{ExitStatus, Signal, Time};
use os::{ChildEvent, Clock, Found, Pid, ReadOutcome, SpawnSpec, Spawner, WriteOutcome};

use crate::args::is_of_a_host;

/// The variables of an environment, by name.
type Variables = BTreeMap<OsString, OsString>;

/// Bytes that are read at once.
const READ_SIZE: usize = 64 << 10;
/// The most bytes that a command may print to one stream: a line for each of a million tasks.
const OUTPUT_MAX: usize = 1 << 30;
/// Pause between two looks at both streams.
const PAUSE: Duration = Duration::from_millis(5);

/// What a command has printed, and how it has ended.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) status: ExitStatus,
    pub(super) out: Vec<u8>,
    pub(super) err: Vec<u8>,
}

impl Ran {
    pub(super) fn succeeded(&self) -> bool {
        self.status == ExitStatus::Exited(0)
    }

    /// Returns the last words of the command, without its own name at the start of each line.
    pub(super) fn words(&self, program: &str) -> String {
        let text = String::from_utf8_lossy(&self.err);
        let prefix = format!("{program}: ");
        let lines = text.lines().map(|line| {
            let line = line.strip_prefix(&prefix).unwrap_or(line);
            line.strip_prefix("error: ").unwrap_or(line).trim()
        });
        let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
        lines.join("; ")
    }
}

/// Why a command has given no answer.
#[derive(Debug)]
pub(super) enum NotRun {
    Missing,
    /// The system refused something.
    System(String),
    Slow(Duration),
    /// It has printed more bytes than this to one stream.
    TooLong(usize),
}

impl From<os::Error> for NotRun {
    fn from(error: os::Error) -> Self {
        Self::System(error.to_string())
    }
}

/// Variables with options of `squeue` and `scontrol`, by prefix: the commands would print something else.
const OF_LISTINGS: [&[u8]; 2] = [b"SQUEUE_", b"SCONTROL_"];
/// Variables with options of `scancel`: it would pass over jobs that do not match, or ask the user. The job does not get them either.
const OF_SCANCEL: &[u8] = b"SCANCEL_";

/// Variables that stand for options of ours, or for those that `--slurm-option` refuses, because they would change what `rally`
/// submits or what it gets for an answer. Other variables of `sbatch` are defaults of the user or the site, for a partition, an
/// account, memory, a time limit, which `rally` leaves to Slurm; or our options override them.
const DISTURBING: [&[u8]; 9] = [
    // Another cluster, whose jobs the next command would not find, and answers with a line for each cluster.
    b"SBATCH_CLUSTERS",
    b"SLURM_CLUSTERS",
    // Answers after the end of the job.
    b"SBATCH_WAIT",
    // Many tasks instead of one.
    b"SBATCH_ARRAY_INX",
    // Files that are not those of the job.
    b"SBATCH_INPUT",
    b"SBATCH_ERROR",
    // Words that look like complaints.
    b"SBATCH_DEBUG",
    b"SLURM_DEBUG_FLAGS",
    // The exit code of a command that has failed, which could be 0.
    b"SLURM_EXIT_ERROR",
];

/// Variables of `salloc` that would do so: another cluster, and further words.
const OF_REQUESTS: [&[u8]; 3] = [b"SALLOC_CLUSTERS", b"SALLOC_DEBUG", b"SALLOC_BELL"];

/// Returns true for a variable that would change what a command does or prints. `sbatch` passes all others on to the job.
fn disturbs(program: &str, name: &[u8]) -> bool {
    let is_of_listings = OF_LISTINGS.iter().any(|prefix| name.starts_with(prefix));
    name.starts_with(OF_SCANCEL)
        || DISTURBING.contains(&name)
        || (program != "sbatch" && is_of_listings)
        || is_set(program, name)
}

/// Variables that we set.
fn set_for(program: &str) -> &'static [(&'static str, &'static str)] {
    match program {
        // The job would get them.
        "sbatch" => &[],
        // All indexes of an array, however many ranges they are.
        _ => &[("SLURM_BITSTR_LEN", "0"), ("SLURM_TIME_FORMAT", "standard")],
    }
}

fn is_set(program: &str, name: &[u8]) -> bool {
    let mut all = set_for(program).iter();
    all.any(|(ours, _)| ours.as_bytes() == name)
}

/// Variables of an allocation in which we are: the new job would take them for its own. Others that begin so are about Slurm itself.
fn is_of_allocation(name: &[u8]) -> bool {
    const KEPT: [&[u8]; 3] = [b"SLURM_CONF", b"SLURM_JWT", b"SLURM_CLUSTER_NAME"];
    (name.starts_with(b"SLURM_") || name.starts_with(b"SLURMD_")) && !KEPT.contains(&name)
}

fn environment(program: &str, variables: &Variables) -> Result<Vec<CString>, NotRun> {
    let in_allocation = variables.contains_key(OsStr::new("SLURM_JOB_ID"));
    let kept = variables.iter().filter(|(name, _)| {
        let is_ours = in_allocation && is_of_allocation(name.as_bytes());
        // The job gets our variables on other hosts.
        !(is_ours || is_of_a_host(name) || disturbs(program, name.as_bytes()))
    });
    let ours = set_for(program).iter();
    let ours = ours.map(|(name, value)| (OsStr::new(name), OsStr::new(value)));
    let all = kept.map(|(name, value)| (name.as_os_str(), value.as_os_str()));
    let texts = all
        .chain(ours)
        .map(|(name, value)| CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()));
    texts
        .collect::<Result<_, _>>()
        .map_err(|error| NotRun::System(error.to_string()))
}

/// Returns the environment of the commands for requests of a job that runs inside an allocation. Defaults of the user for `salloc`
/// stay. The rest of what describes that allocation, and what would change the commands' answers, does not.
pub(super) fn variables_of_requests(variables: &Variables) -> Vec<OsString> {
    let kept = variables.iter().filter(|(name, _)| {
        let name_bytes = name.as_bytes();
        !(is_of_allocation(name_bytes)
            || is_of_a_host(name)
            || OF_REQUESTS.contains(&name_bytes)
            || disturbs("scontrol", name_bytes))
    });
    let entry = |(name, value): (&OsString, &OsString)| {
        let mut entry = name.clone();
        entry.push("=");
        entry.push(value);
        entry
    };
    kept.map(entry).collect()
}

/// Runs a command, and waits until it has ended.
///
/// # Errors
///
/// See [`NotRun`]. A slow command is killed, and so is one that prints too much.
pub(super) fn run(
    program: &str,
    words: &[OsString],
    input: &[u8],
    patience: Duration,
    variables: &Variables,
) -> Result<Ran, NotRun> {
    let path = variables.get(OsStr::new("PATH"));
    let path = path.map(OsString::as_os_str).unwrap_or_default();
    let Found::Program(file) = os::find_program(OsStr::new(program), path) else {
        return Err(NotRun::Missing);
    };
    let argv: Vec<CString> = std::iter::once(OsString::from(program))
        .chain(words.iter().cloned())
        .map(|word| CString::new(word.into_vec()))
        .collect::<Result<_, _>>()
        .map_err(|error| NotRun::System(error.to_string()))?;
    let file = CString::new(file.into_os_string().into_vec())
        .map_err(|error| NotRun::System(error.to_string()))?;
    let envp = environment(program, variables)?;
    let until = Clock::now() + patience;
    let (their_input, our_input) = os::pipe()?;
    let (our_out, their_out) = os::pipe()?;
    let (our_err, their_err) = os::pipe()?;
    for ours in [&our_input, &our_out, &our_err] {
        os::set_nonblocking(ours.as_fd())?;
    }
    let spec = SpawnSpec {
        fds: &[
            (their_input.as_fd(), 0),
            (their_out.as_fd(), 1),
            (their_err.as_fd(), 2),
        ],
        ..SpawnSpec::new(&file, &argv, &envp)
    };
    let pid = Spawner::new()?
        .spawn(&spec)
        .map_err(|error| NotRun::System(error.to_string()))?;
    drop((their_input, their_out, their_err));
    let mut talk = Talk {
        input: Some(our_input),
        left: input,
        out: Stream::new(our_out, OUTPUT_MAX),
        err: Stream::new(our_err, OUTPUT_MAX),
    };
    let status = match talk.until_closed(until) {
        Talked::Closed => wait(pid, until).ok_or(NotRun::Slow(patience)),
        Talked::Late => Err(NotRun::Slow(patience)),
        Talked::TooLong => Err(NotRun::TooLong(OUTPUT_MAX)),
    };
    if status.is_err() {
        let _ = os::kill_group(pid, Signal::KILL);
        // SIGKILL ends it, so that this is short, unless it sleeps in the kernel.
        let _ = wait(pid, Clock::now() + Duration::from_secs(1));
    }
    let status = status?;
    Ok(Ran {
        status,
        out: talk.out.text,
        err: talk.err.text,
    })
}

/// Waits until a child has ended, and reaps it. `None` if it has not ended in time.
fn wait(pid: Pid, until: Time) -> Option<ExitStatus> {
    loop {
        match os::reap() {
            Some(ChildEvent::Exited {
                pid: ended, status, ..
            }) if ended == pid => return Some(status),
            Some(_) => {}
            None if Clock::now() >= until => return None,
            None => os::sleep(PAUSE),
        }
    }
}

/// How the talk with a command has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Talked {
    /// The command has closed both its streams.
    Closed,
    /// It has not done so in time.
    Late,
    /// It has printed more than there is room for.
    TooLong,
}

/// The streams of a command.
struct Talk<'a> {
    /// `None` once everything was written.
    input: Option<OwnedFd>,
    left: &'a [u8],
    out: Stream,
    err: Stream,
}

impl Talk<'_> {
    fn until_closed(&mut self, until: Time) -> Talked {
        loop {
            let mut is_busy = self.write();
            for stream in [&mut self.out, &mut self.err] {
                match stream.read() {
                    Took::Some => is_busy = true,
                    Took::Nothing => {}
                    Took::TooMuch => return Talked::TooLong,
                }
            }
            let open = [&self.out.fd, &self.err.fd].into_iter().flatten().next();
            let Some(waited) = open else {
                return Talked::Closed;
            };
            let now = Clock::now();
            if now >= until {
                return Talked::Late;
            }
            if !is_busy {
                let _ = os::wait_readable(waited.as_fd(), Some(until.min(now + PAUSE)));
            }
        }
    }

    /// Writes what there is room for. Returns true if there was any.
    fn write(&mut self) -> bool {
        let Some(input) = &self.input else {
            return false;
        };
        if self.left.is_empty() {
            self.input = None;
            return false;
        }
        match os::write(input.as_fd(), self.left) {
            Ok(WriteOutcome::Bytes(count)) => {
                self.left = &self.left[count..];
                true
            }
            Ok(WriteOutcome::WouldBlock) => false,
            // It reads no more, and will say why.
            Ok(WriteOutcome::Closed) | Err(_) => {
                self.input = None;
                false
            }
        }
    }
}

/// What a look at a stream has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Took {
    Some,
    Nothing,
    /// More than there is room for.
    TooMuch,
}

struct Stream {
    /// `None` at the end.
    fd: Option<OwnedFd>,
    text: Vec<u8>,
    /// The most bytes of the text.
    room: usize,
}

impl Stream {
    const fn new(fd: OwnedFd, room: usize) -> Self {
        Self {
            fd: Some(fd),
            text: Vec::new(),
            room,
        }
    }

    /// Reads what there is.
    fn read(&mut self) -> Took {
        let Some(fd) = &self.fd else {
            return Took::Nothing;
        };
        let mut buffer = vec![0; READ_SIZE];
        match os::read(fd.as_fd(), &mut buffer) {
            Ok(ReadOutcome::Bytes(count)) if self.text.len() + count > self.room => Took::TooMuch,
            Ok(ReadOutcome::Bytes(count)) => {
                self.text.extend(&buffer[..count]);
                Took::Some
            }
            Ok(ReadOutcome::WouldBlock) => Took::Nothing,
            Ok(ReadOutcome::Closed) | Err(_) => {
                self.fd = None;
                Took::Nothing
            }
        }
    }
}

#[cfg(test)]
mod tests;
