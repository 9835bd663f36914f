//! Parsers for the values of options. They consult nothing but the text.

mod limits;
mod machine;

use std::{
    fmt,
    net::SocketAddr,
    num::{NonZeroU8, NonZeroU32},
    time::Duration,
};

use base::{JobId, RankSet, Signal};
use dvm::{
    bootstrap::TreeStart,
    spec::{SetName, SetNameError, UniverseSize, Warning},
};
use thiserror::Error;

use crate::{choices::OnHang, quoting::Open};

pub(crate) use self::limits::{cpus, memory};
pub(crate) use self::machine::{
    MachineLimit, Named, Released, Tasks, array, dependency, host_list, job_number, machine,
    machine_limit, named_job, named_tasks, node_resource, released, resource, slurm_option, tasks,
};

/// The most procs of one job: as many as a rank set can contain.
pub(crate) const MAX_PROCS: u32 = 1 << 24;

/// The longest time that can be given, in seconds: a hundred years.
pub(crate) const MAX_SECONDS: u64 = 100 * 365 * 24 * 3600;

/// The name of a running job, as typed by the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JobName {
    /// The pid of the front or of the controller.
    pub(crate) pid: i32,
    /// The id of the job. `None` means the job that the front has submitted.
    pub(crate) job: Option<JobId>,
    pub(crate) typed: String,
}

impl JobName {
    /// Parses `PID`, `PID@JOB` and `ANYTHING-PID@JOB`.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let (process, job) = match text.rsplit_once('@') {
            Some((process, job)) => (process, Some(JobId(job.parse().ok()?))),
            None => (text, None),
        };
        let pid = process.rsplit('-').next()?.parse().ok()?;
        Some(Self {
            pid,
            job,
            typed: text.to_owned(),
        })
    }
}

/// An error in the value of an option. The text continues "`-n` cannot be `abc`: ".
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum ValueError {
    #[error("it is not a whole number")]
    NotANumber,
    #[error("a job has at least one proc")]
    NoProcs,
    #[error("a job runs on at least one node")]
    NoNodes,
    #[error("the larger number comes first")]
    Backwards,
    #[error("a proc has at least one CPU")]
    NoCpus,
    #[error("the number is below zero")]
    Negative,
    #[error("at most {max} are possible")]
    TooMany { max: u64 },
    #[error("it is not a time (seconds, or a number with ms, s, m or h)")]
    NotATime,
    #[error(
        "it is not a time in one of srun's forms (minutes, minutes:seconds, hours:minutes:seconds, days-hours)"
    )]
    NotASlurmTime,
    #[error("a time cannot be longer than {MAX_SECONDS} seconds")]
    TimeTooLong,
    #[error(
        "it is neither a process number (`123`, or `123@2` for a job spawned by it) nor a PMIx namespace"
    )]
    NotAJob,
    #[error("it is no name of a machine (letters, digits, `-`, `_` and `.`, at most 64)")]
    NotAMachine,
    #[error(
        "it is no number of a job (`17`, or `17[3-5]` for tasks of an array where they are possible)"
    )]
    NotAJobNumber,
    #[error("it names tasks of an array, and only a whole job can be meant here")]
    NotAWholeJob,
    #[error("it is no address with a port (`127.0.0.1:12345`, `[::1]:12345`)")]
    NotAnAddress,
    #[error("it is no option of sbatch (`partition=NAME`, `--qos=NAME`)")]
    NotASlurmOption,
    #[error("it is no list of indexes (`1-1000` or `0,4-7`)")]
    NotIndexes,
    #[error("it is no job to wait for (`12`, `ok:12`, `any:12` or `start:12`)")]
    NotADependency,
    #[error("it is no amount of a resource (`matlab=2`)")]
    NotAResource,
    #[error(
        "slots, GPUs and memory are counted in any case (`-n`, `--gpus-per-proc`, `--memory-limit`)"
    )]
    OwnResource,
    #[error("it is no limit (`jobs=N`, `running=N`, `slots=N`, `job-slots=N`, `job-time=TIME`)")]
    NotAMachineLimit,
    #[error("it is no list of nodes (`n[1-3],gpu7`)")]
    NotNodes,
    #[error("it is neither `all` nor a list of ranks (`0,4-7`)")]
    NotRanks,
    #[error("it is neither a rank nor `all` nor `none`")]
    NotATarget,
    #[error("it is neither `nothing` nor `report` nor `report:TIME`")]
    NotAHangAction,
    #[error("it must be at least 1s")]
    IdleTooShort,
    #[error("it must be at least {} ms", .0.as_millis())]
    LeaseTooShort(Duration),
    #[error("it is not a range of ports (`20000-20100`)")]
    NotPorts,
    #[error("it has no place for the node and the program (`{{host}}`, `{{daemon}}`)")]
    NotATemplate,
    #[error(transparent)]
    Open(Open),
    #[error(transparent)]
    Set(SetNameError),
    #[error("a daemon has at least one child")]
    NoChildren,
    #[error("it is neither a number of nodes nor `on` nor `off`")]
    NotATreeStart,
    #[error("it is not an octal mask between 0 and 777")]
    NotAMask,
    #[error("it is not a list of PUs for each rank (`0,2`, `0+1,2+3`, `numa:0,1`, or `each`)")]
    NotBindings,
    #[error("it is not `SIGNAL` or `SIGNAL@SECONDS`")]
    NotAWarning,
    #[error("`{0}` is not a signal (give a name such as `USR1`, or a number from 1 to 64)")]
    NotASignal(String),
    #[error("it is not an exit code from 1 to 255")]
    NotAnExitCode,
    #[error("it is neither a number of procs nor `slots` nor `infinite`")]
    NotAUniverse,
    #[error("known values are {}", Alternatives(.0))]
    NotOneOf(Vec<String>),
    #[error("the name of a variable may not be empty or contain `=`")]
    BadVariable,
    #[error("it is not of the form `NAME[SEPARATOR]=VALUE`")]
    NoSeparator,
    #[error("it is not of the form `NAME=VALUE`")]
    NoAssignment,
    #[error("it is not a size (a number with K, M, G or T: `512M`, `1.5G`)")]
    NotASize,
    #[error("a program needs at least 1M")]
    TooLittleMemory,
    #[error("the kernel takes no such size")]
    TooMuchMemory,
    #[error("it is not a number of CPUs (`4`, `0.5`)")]
    NotCpus,
    #[error("it must be at least 0.01")]
    TooFewCpus,
    #[error("it is not valid UTF-8")]
    NotText,
    #[error("it is empty")]
    Empty,
    #[error("{0}")]
    Pattern(PatternError),
    #[error("{0}")]
    OwnPattern(dvm::spec::PatternError),
}

/// An error in another launcher's file name pattern.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum PatternError {
    #[error("`%{letter}` of {whose} has no equivalent here (known: {known})")]
    NoEquivalent {
        letter: char,
        whose: &'static str,
        known: &'static str,
    },
    #[error("a lone `%` ends the pattern (write `%%` for a percent sign)")]
    Unfinished,
}

struct Alternatives<'a>(&'a [String]);

impl fmt::Display for Alternatives<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, name) in self.0.iter().enumerate() {
            let joint = if position == 0 { "" } else { ", " };
            write!(f, "{joint}`{name}`")?;
        }
        Ok(())
    }
}

/// The ranks to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HeldRanks {
    All,
    Only(RankSet),
}

/// Parses `all`, or a list of ranks.
pub(crate) fn held_ranks(text: &str) -> Result<HeldRanks, ValueError> {
    if text == "all" {
        return Ok(HeldRanks::All);
    }
    let ranks: RankSet = text.parse().map_err(|_| ValueError::NotRanks)?;
    if ranks.is_empty() {
        return Err(ValueError::NotRanks);
    }
    Ok(HeldRanks::Only(ranks))
}

/// The default time without any motion after which a job is reported.
const IDLE: Duration = Duration::from_secs(60);
/// The shortest such time: more frequent samples would slow the job.
const SHORTEST_IDLE: Duration = Duration::from_secs(1);

/// Parses a time during which nothing of a job moves.
pub(crate) fn idle(text: &str) -> Result<Duration, ValueError> {
    match time(text)? {
        idle if idle < SHORTEST_IDLE => Err(ValueError::IdleTooShort),
        idle => Ok(idle),
    }
}

/// Parses the reaction to a job in which nothing moves: `nothing`, `report`, `report:90s`.
pub(crate) fn on_hang(text: &str) -> Result<OnHang, ValueError> {
    match text.split_once(':') {
        None if text == "nothing" => Ok(OnHang::Nothing),
        None if text == "report" => Ok(OnHang::Report(IDLE)),
        Some(("report", text)) => idle(text).map(OnHang::Report),
        _ => Err(ValueError::NotAHangAction),
    }
}

/// Parses the name of a running job.
pub(crate) fn job(text: &str) -> Result<JobName, ValueError> {
    JobName::read(text).ok_or(ValueError::NotAJob)
}

/// The most GPUs of a node.
pub(crate) const MAX_GPUS: u32 = 1 << 12;

/// Parses a number of GPUs.
pub(crate) fn gpus(text: &str) -> Result<u32, ValueError> {
    let max = u64::from(MAX_GPUS);
    u32::try_from(number(text, max)?).map_err(|_| ValueError::TooMany { max })
}

/// Parses the number of procs that a job may grow to: a number, `slots`, or `infinite`.
pub(crate) fn universe(text: &str) -> Result<UniverseSize, ValueError> {
    match text {
        "slots" => Ok(UniverseSize::Slots),
        "infinite" => Ok(UniverseSize::Unknown),
        number => match procs(number) {
            Ok(size) => Ok(UniverseSize::Procs(size)),
            Err(ValueError::NotANumber) => Err(ValueError::NotAUniverse),
            Err(other) => Err(other),
        },
    }
}

/// The default time between the signal and the time limit, as in Slurm.
const WARNING: Duration = Duration::from_secs(60);

/// Parses a signal that is sent before the time limit: `USR1`, `TERM@90`, also with Slurm's `R:` or `B:`.
pub(crate) fn warning(text: &str) -> Result<Warning, ValueError> {
    let text = text
        .strip_prefix("R:")
        .or_else(|| text.strip_prefix("r:"))
        .unwrap_or(text);
    let (name, before) = match text.split_once('@') {
        Some((name, before)) => (name, time(before)?),
        None => (text, WARNING),
    };
    if name.is_empty() {
        return Err(ValueError::NotAWarning);
    }
    let signal = signal(name)?;
    Ok(Warning { signal, before })
}

/// Parses the name of a signal, with or without `SIG`, or its number.
pub(crate) fn signal(name: &str) -> Result<Signal, ValueError> {
    signal_of(name).ok_or_else(|| ValueError::NotASignal(name.to_owned()))
}

fn signal_of(name: &str) -> Option<Signal> {
    if let Ok(number) = name.parse::<i32>() {
        return (1..=LAST_SIGNAL)
            .contains(&number)
            .then_some(Signal(number));
    }
    let name = name.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name).to_owned();
    (1..=LAST_SIGNAL)
        .map(Signal)
        .find(|signal| signal.to_string().strip_prefix("SIG") == Some(&name))
}

/// The last signal number of Linux, including real-time signals.
const LAST_SIGNAL: i32 = 64;
/// A shorter lease would end jobs on a busy machine.
const SHORTEST_LEASE: Duration = Duration::from_millis(100);

/// Parses a number of procs, from 1 to [`MAX_PROCS`].
pub(crate) fn procs(text: &str) -> Result<u32, ValueError> {
    match number(text, u64::from(MAX_PROCS))? {
        0 => Err(ValueError::NoProcs),
        count => u32::try_from(count).map_err(|_| ValueError::TooMany {
            max: u64::from(MAX_PROCS),
        }),
    }
}

/// Parses an address with a port.
pub(crate) fn address(text: &str) -> Result<SocketAddr, ValueError> {
    text.parse().map_err(|_| ValueError::NotAnAddress)
}

/// Parses a number of nodes, at least and at most: `2`, `2-4`.
pub(crate) fn node_range(text: &str) -> Result<(u32, u32), ValueError> {
    let (least, most) = text.split_once('-').unwrap_or((text, text));
    match (procs(least)?, procs(most)?) {
        (least, most) if least <= most => Ok((least, most)),
        _ => Err(ValueError::Backwards),
    }
}

/// Parses a range of ports: `20000-20100`, or one port.
pub(crate) fn port_range(text: &str) -> Result<(u16, u16), ValueError> {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let port = |text: &str| text.parse().map_err(|_| ValueError::NotPorts);
    match (port(low)?, port(high)?) {
        (low, high) if 0 < low && low <= high => Ok((low, high)),
        _ => Err(ValueError::NotPorts),
    }
}

/// Parses a number of children, from 1.
pub(crate) fn radix(text: &str) -> Result<NonZeroU32, ValueError> {
    let radix = u32::try_from(number(text, u64::from(MAX_PROCS))?).unwrap_or(MAX_PROCS);
    NonZeroU32::new(radix).ok_or(ValueError::NoChildren)
}

/// The default of [`tree_start`].
pub(crate) const TREE_START: &str = "128";

/// Parses the number of nodes from which on daemons start others.
pub(crate) fn tree_start(text: &str) -> Result<TreeStart, ValueError> {
    match text {
        "on" => Ok(TreeStart::From(0)),
        "off" => Ok(TreeStart::Never),
        _ => match number(text, u64::from(MAX_PROCS)) {
            Ok(nodes) => Ok(TreeStart::From(u32::try_from(nodes).unwrap_or(MAX_PROCS))),
            Err(ValueError::NotANumber) => Err(ValueError::NotATreeStart),
            Err(error) => Err(error),
        },
    }
}

/// Parses the time of silence after which a node counts as lost.
pub(crate) fn lease(text: &str) -> Result<Duration, ValueError> {
    match time(text)? {
        lease if lease < SHORTEST_LEASE => Err(ValueError::LeaseTooShort(SHORTEST_LEASE)),
        lease => Ok(lease),
    }
}

/// Parses the exit code of a failure.
pub(crate) fn exit_code(text: &str) -> Result<NonZeroU8, ValueError> {
    text.parse().map_err(|_| ValueError::NotAnExitCode)
}

/// Parses a whole number from 0 to `max`.
fn number(text: &str, max: u64) -> Result<u64, ValueError> {
    let digits = text.strip_prefix('+').unwrap_or(text);
    if let Some(rest) = text.strip_prefix('-')
        && !rest.is_empty()
        && rest.bytes().all(|byte| byte.is_ascii_digit())
    {
        return Err(ValueError::Negative);
    }
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ValueError::NotANumber);
    }
    match digits.parse::<u64>() {
        Ok(value) if value <= max => Ok(value),
        _ => Err(ValueError::TooMany { max }),
    }
}

/// Parses a rank.
pub(crate) fn rank(text: &str) -> Result<u32, ValueError> {
    let max = u64::from(MAX_PROCS - 1);
    u32::try_from(number(text, max)?).map_err(|_| ValueError::TooMany { max })
}

/// Parses a time: seconds with an optional fraction, or a number with a unit `ms`, `s`, `m`, `h`.
pub(crate) fn time(text: &str) -> Result<Duration, ValueError> {
    let split = text
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let nanos_per_unit: u64 = match unit {
        "ms" => 1_000_000,
        "" | "s" | "sec" | "seconds" => 1_000_000_000,
        "m" | "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return Err(ValueError::NotATime),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let valid = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if !valid(whole) || !valid(fraction) || (whole.is_empty() && fraction.is_empty()) {
        return Err(ValueError::NotATime);
    }
    // Nine digits of a fraction give nanoseconds of a second; further digits make no difference.
    let mut parts = 0u128;
    for position in 0..9 {
        let digit = fraction
            .as_bytes()
            .get(position)
            .map_or(0, |byte| byte - b'0');
        parts = parts * 10 + u128::from(digit);
    }
    let whole: u64 = if whole.is_empty() {
        0
    } else {
        whole.parse().map_err(|_| ValueError::TimeTooLong)?
    };
    let nanos = u128::from(whole) * u128::from(nanos_per_unit)
        + parts * u128::from(nanos_per_unit) / 1_000_000_000;
    duration(nanos)
}

fn duration(nanos: u128) -> Result<Duration, ValueError> {
    if nanos > u128::from(MAX_SECONDS) * 1_000_000_000 {
        return Err(ValueError::TimeTooLong);
    }
    let seconds = u64::try_from(nanos / 1_000_000_000).map_err(|_| ValueError::TimeTooLong)?;
    let rest = u32::try_from(nanos % 1_000_000_000).map_err(|_| ValueError::TimeTooLong)?;
    Ok(Duration::new(seconds, rest))
}

/// Parses a time in the form of `srun -t`: `MIN`, `MIN:SEC`, `HOURS:MIN:SEC`, `DAYS-HOURS[:MIN[:SEC]]`. Returns `None` for
/// no limit.
pub(crate) fn slurm_time(text: &str) -> Result<Option<Duration>, ValueError> {
    if matches!(
        text,
        "0" | "INFINITE" | "UNLIMITED" | "infinite" | "unlimited" | "-1"
    ) {
        return Ok(None);
    }
    let bad = ValueError::NotASlurmTime;
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (Some(days), clock),
        None => (None, text),
    };
    let mut parts = [0u64; 3];
    let mut count = 0;
    for part in clock.split(':') {
        let slot = parts.get_mut(count).ok_or_else(|| bad.clone())?;
        if part.is_empty() || part.len() > 9 || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(bad);
        }
        *slot = part.parse().map_err(|_| bad.clone())?;
        count += 1;
    }
    let [first, second, third] = parts;
    let seconds = match (days, count) {
        (Some(days), _) => {
            if days.is_empty() || days.len() > 6 {
                return Err(bad);
            }
            let days: u64 = days.parse().map_err(|_| bad)?;
            days * 86_400 + first * 3600 + second * 60 + third
        }
        (None, 3) => first * 3600 + second * 60 + third,
        (None, _) => first * 60 + second,
    };
    duration(u128::from(seconds) * 1_000_000_000).map(Some)
}

/// Parses the name of a process set.
pub(crate) fn set(text: &str) -> Result<SetName, ValueError> {
    SetName::try_from(text.to_owned()).map_err(ValueError::Set)
}

/// Parses a file mode creation mask in octal.
pub(crate) fn mask(text: &str) -> Result<u32, ValueError> {
    let valid = !text.is_empty()
        && text.len() <= 5
        && text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    if !valid {
        return Err(ValueError::NotAMask);
    }
    u32::from_str_radix(text, 8)
        .ok()
        .filter(|mask| *mask <= 0o777)
        .ok_or(ValueError::NotAMask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts() {
        let cases = [
            ("1", Ok(1)),
            ("+4", Ok(4)),
            ("16777216", Ok(1 << 24)),
            ("0", Err(ValueError::NoProcs)),
            ("-3", Err(ValueError::Negative)),
            ("1000000000", Err(ValueError::TooMany { max: 1 << 24 })),
            (
                "99999999999999999999999",
                Err(ValueError::TooMany { max: 1 << 24 }),
            ),
            ("abc", Err(ValueError::NotANumber)),
            ("", Err(ValueError::NotANumber)),
            ("-", Err(ValueError::NotANumber)),
            ("4x", Err(ValueError::NotANumber)),
            ("1e3", Err(ValueError::NotANumber)),
        ];
        for (text, expected) in cases {
            assert_eq!(procs(text), expected, "{text}");
        }
    }

    #[test]
    fn hang_actions() {
        let report = |seconds| Ok(OnHang::Report(Duration::from_secs(seconds)));
        let cases = [
            ("nothing", Ok(OnHang::Nothing)),
            ("report", report(60)),
            ("report:90s", report(90)),
            ("report:2m", report(120)),
            ("report:0", Err(ValueError::IdleTooShort)),
            ("report:soon", Err(ValueError::NotATime)),
            ("60s", Err(ValueError::NotAHangAction)),
            ("kill:60s", Err(ValueError::NotAHangAction)),
            ("", Err(ValueError::NotAHangAction)),
        ];
        for (text, expected) in cases {
            assert_eq!(on_hang(text), expected, "{text}");
        }
    }

    #[test]
    fn times() {
        let ms = Duration::from_millis;
        let cases = [
            ("5", Ok(ms(5000))),
            ("0", Ok(ms(0))),
            ("1.5", Ok(ms(1500))),
            (".25", Ok(ms(250))),
            ("250ms", Ok(ms(250))),
            ("2m", Ok(ms(120_000))),
            ("0.5h", Ok(ms(1_800_000))),
            ("5 s", Err(ValueError::NotATime)),
            ("", Err(ValueError::NotATime)),
            (".", Err(ValueError::NotATime)),
            ("-1", Err(ValueError::NotATime)),
            ("1d", Err(ValueError::NotATime)),
            ("999999999999", Err(ValueError::TimeTooLong)),
            ("99999999999999999999999999", Err(ValueError::TimeTooLong)),
        ];
        for (text, expected) in cases {
            assert_eq!(time(text), expected, "{text}");
        }
    }

    #[test]
    fn slurm_times() {
        let s = |seconds| Ok(Some(Duration::from_secs(seconds)));
        let cases = [
            ("1", s(60)),
            ("1:30", s(90)),
            ("1:00:01", s(3601)),
            ("1-2", s(93_600)),
            ("1-0:0:5", s(86_405)),
            ("0", Ok(None)),
            ("UNLIMITED", Ok(None)),
            ("1:2:3:4", Err(ValueError::NotASlurmTime)),
            ("-5", Err(ValueError::NotASlurmTime)),
            ("x", Err(ValueError::NotASlurmTime)),
            ("", Err(ValueError::NotASlurmTime)),
        ];
        for (text, expected) in cases {
            assert_eq!(slurm_time(text), expected, "{text}");
        }
    }

    #[test]
    fn masks() {
        assert_eq!(mask("022"), Ok(0o22));
        assert_eq!(mask("0777"), Ok(0o777));
        for text in ["", "8", "1000", "rwx", "000000000"] {
            assert_eq!(mask(text), Err(ValueError::NotAMask), "{text}");
        }
    }
}
