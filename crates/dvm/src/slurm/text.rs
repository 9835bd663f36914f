//! The words of the commands, and what they print.

use std::{collections::BTreeMap, time::Duration};

use base::{CpuSet, HostList};
use pmix::value::Status;

use super::{Described, NAME_MAX, Origin, Tool, WORDS_MAX, Wanted};

const MINUTE: u64 = 60;
/// What the comments of all allocations begin with. That of a submitted job has no colon.
const MARK: &str = "rally:";

/// Returns the command that requests an allocation, and waits for it.
///
/// Values are in the same word as their option, so that none is taken for an option.
pub(super) fn salloc(wanted: &Wanted) -> Vec<String> {
    let mut words = vec![
        Tool::Salloc.name().to_owned(),
        "--no-shell".to_owned(),
        format!("--job-name={}", wanted.name),
    ];
    let origin = Origin {
        job: wanted.owner,
        request: wanted.request.clone(),
    };
    words.push(format!("--comment={}", origin.comment()));
    words.extend(wanted.nodes.map(|nodes| format!("--nodes={nodes}")));
    words.extend(wanted.cpus.map(|cpus| format!("--ntasks={cpus}")));
    let hosts = wanted.hosts.as_ref();
    words.extend(hosts.map(|hosts| format!("--nodelist={hosts}")));
    words.extend(wanted.time.map(|time| format!("--time={}", minutes(time))));
    let partition = wanted.partition.as_ref();
    words.extend(partition.map(|name| format!("--partition={name}")));
    words
}

/// Returns the command that describes a job, and what it has of each node.
pub(super) fn show(job: u32) -> Vec<String> {
    ["scontrol", "--details", "show", "job", &job.to_string()]
        .map(str::to_owned)
        .into()
}

/// Returns the command that gives a job more time.
pub(super) fn extend(job: u32, time: Duration) -> Vec<String> {
    let job = format!("JobId={job}");
    let limit = format!("TimeLimit=+{}", minutes(time));
    ["scontrol", "update", &job, &limit]
        .map(str::to_owned)
        .into()
}

/// Returns the command that ends a job.
pub(super) fn scancel(job: u32) -> Vec<String> {
    [Tool::Scancel.name(), &job.to_string()]
        .map(str::to_owned)
        .into()
}

/// Slurm counts minutes. A part of a minute is a whole one.
fn minutes(time: Duration) -> u64 {
    time.as_secs().div_ceil(MINUTE).max(1)
}

/// Returns the name of all jobs of Slurm that a controller of this name requests. If it is killed, they are found by it.
#[must_use]
pub fn job_name(controller: &str) -> String {
    plain(controller)
}

/// Returns a name that cannot be taken for another field where Slurm prints it.
fn plain(name: &str) -> String {
    let is_plain = |character: &char| {
        character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.' | '@')
    };
    let shown = name.chars().take(NAME_MAX);
    shown
        .map(|character| if is_plain(&character) { character } else { '_' })
        .collect()
}

impl Origin {
    /// Returns the comment of the allocation: `rally:17`, or `rally:17:NAME`.
    fn comment(&self) -> String {
        match &self.request {
            Some(name) => format!("{MARK}{}:{}", self.job, plain(name)),
            None => format!("{MARK}{}", self.job),
        }
    }

    /// Returns what a comment says; `None` if it is not that of an allocation.
    #[must_use]
    pub fn of(comment: &str) -> Option<Self> {
        let rest = comment.strip_prefix(MARK)?;
        let (job, request) = match rest.split_once(':') {
            Some((job, name)) => (job, Some(name.to_owned())),
            None => (rest, None),
        };
        let job = job.parse().ok()?;
        Some(Self { job, request })
    }
}

/// Returns the number of the job of which `salloc` speaks, as soon as it does.
pub(super) fn number(printed: &[u8]) -> Option<u32> {
    let text = String::from_utf8_lossy(printed);
    // The last line may be cut.
    let (whole, _) = text.rsplit_once('\n')?;
    let marks = ["Pending job allocation ", "Granted job allocation "];
    whole.lines().find_map(|line| {
        let rest = marks
            .iter()
            .find_map(|mark| Some(line.split_once(mark)?.1))?;
        rest.trim().parse().ok()
    })
}

/// What `scontrol show job` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Runs(Described),
    /// The job has ended, or is about to.
    Over,
    Unclear,
}

/// Reads what `scontrol show job` has printed.
pub(super) fn describe(printed: &[u8]) -> Said {
    let text = String::from_utf8_lossy(printed);
    let field = |name: &str| {
        let mut words = text.split_whitespace();
        words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    };
    let described = || {
        let hosts: HostList = field("NodeList")?.parse().ok()?;
        let cpus = field("NumCPUs")?.parse().ok()?;
        Some(Described {
            slots: slots(&text, &hosts).unwrap_or_else(|| shared_out(cpus, &hosts)),
            hosts,
            cpus,
            time: limit(field("TimeLimit")?)?,
        })
    };
    match field("JobState") {
        Some("RUNNING" | "CONFIGURING" | "SUSPENDED") => {
            described().map_or(Said::Unclear, Said::Runs)
        }
        Some(_) => Said::Over,
        None => Said::Unclear,
    }
}

/// Reads how many CPUs a job has of each node: `Nodes=n[1-2] CPU_IDs=0-3,8 Mem=0 GRES=` for each group of equal nodes.
fn slots(text: &str, hosts: &HostList) -> Option<Vec<(String, u32)>> {
    let mut slots: BTreeMap<String, u32> = BTreeMap::new();
    let mut group = HostList::default();
    for word in text.split_whitespace() {
        if let Some(nodes) = word.strip_prefix("Nodes=") {
            group = nodes.parse().ok()?;
        } else if let Some(ids) = word.strip_prefix("CPU_IDs=") {
            let ids: CpuSet = ids.parse().ok()?;
            slots.extend(group.iter().map(|host| (host.to_owned(), ids.len())));
        }
    }
    let of = |host: &str| Some((host.to_owned(), *slots.get(host)?));
    hosts.iter().map(of).collect()
}

/// Returns as many CPUs of each node as of the others, if it is unknown how many they are.
fn shared_out(cpus: u32, hosts: &HostList) -> Vec<(String, u32)> {
    let nodes = u32::try_from(hosts.len()).unwrap_or(u32::MAX).max(1);
    let each = |(number, host): (u32, &str)| {
        let rest = u32::from(number < cpus % nodes);
        (host.to_owned(), (cpus / nodes + rest).max(1))
    };
    (0..).zip(hosts.iter()).map(each).collect()
}

/// Reads a limit: `[days-]hours:minutes:seconds`. The inner `None` is no limit.
fn limit(text: &str) -> Option<Option<Duration>> {
    if text == "UNLIMITED" {
        return Some(None);
    }
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (days.parse::<u64>().ok()?, rest),
        None => (0, text),
    };
    let mut seconds = days;
    let mut parts = rest.split(':');
    for (part, size) in parts.by_ref().zip([24, MINUTE, MINUTE]) {
        seconds = seconds.checked_mul(size)?.checked_add(part.parse().ok()?)?;
    }
    let is_whole = rest.matches(':').count() == 2;
    is_whole.then_some(Some(Duration::from_secs(seconds)))
}

/// Returns what a command that has failed has said, without its own name at the start of each line.
pub(super) fn words(tool: Tool, printed: &[u8]) -> String {
    let text = String::from_utf8_lossy(printed);
    let prefix = format!("{}: ", tool.name());
    let lines = text.lines().map(|line| {
        let line = line.strip_prefix(&prefix).unwrap_or(line);
        line.strip_prefix("error: ").unwrap_or(line).trim()
    });
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    let mut words = lines.join("; ");
    words.truncate(words.floor_char_boundary(WORDS_MAX));
    words
}

/// Returns true if `scancel` complains only that the job is over.
pub(super) fn is_over(words: &str) -> bool {
    let over = ["Invalid job id", "already completing or completed"];
    over.iter().any(|mark| words.contains(mark))
}

/// Words of Slurm's refusals, and what they mean to a proc. The first one that matches counts.
const STATUSES: [(&str, Status); 18] = [
    ("Job has been cancelled", Status::JOB_CANCELED),
    ("Access/permission denied", Status::NO_PERMISSIONS),
    ("Invalid user id", Status::NO_PERMISSIONS),
    ("User's group not permitted", Status::NO_PERMISSIONS),
    ("Invalid account", Status::NO_PERMISSIONS),
    ("Invalid qos", Status::NO_PERMISSIONS),
    ("Invalid partition", Status::NOT_FOUND),
    ("invalid partition", Status::NOT_FOUND),
    ("Invalid node name", Status::NOT_FOUND),
    ("Invalid job id", Status::NOT_FOUND),
    ("already completing or completed", Status::NOT_FOUND),
    ("has been revoked", Status::JOB_CANCELED),
    ("nable to contact", Status::NOT_AVAILABLE),
    ("Unable to confirm allocation", Status::NOT_AVAILABLE),
    ("Socket timed out", Status::NOT_AVAILABLE),
    ("Connection refused", Status::NOT_AVAILABLE),
    ("unrecognized option", Status::NOT_SUPPORTED),
    ("nvalid --time", Status::BAD_PARAM),
];

pub(super) fn status(tool: Tool, words: &str) -> Status {
    let found = STATUSES.iter().find(|(mark, _)| words.contains(mark));
    let otherwise = match tool {
        Tool::Salloc => Status::OUT_OF_RESOURCE,
        Tool::Scontrol | Tool::Scancel => Status::ERROR,
    };
    found.map_or(otherwise, |(_, status)| *status)
}
