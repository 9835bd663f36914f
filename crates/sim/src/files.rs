//! Files that are copied to the nodes of a job: those on the controller's node, and a disk for each node.
//!
//! The disk checks what it is told: no chunk arrives twice, the window holds, nothing is removed under a rank. When a rank starts,
//! the node has each file with the content that the controller has read first.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    sync::Arc,
    time::Duration,
};

use base::JobId;
use bytes::Bytes;
use dvm::{
    preload::{FileAct, FoundFile, NotFound, WINDOW, WantedFile},
    proto::PreloadFailure,
    spec::{Preload, PreloadFile, Preloaded},
};

/// The directory of the files on the controller's node.
const FROM: &str = "/from/";
/// The names of the files of spawned jobs.
pub(crate) const FILES: &str = "f0,f1";
/// ENOENT of Linux.
const ENOENT: i32 = 2;

/// A file on the controller's node.
#[derive(Clone, Debug)]
pub(crate) struct FilePlan {
    pub(crate) name: String,
    pub(crate) mode: u32,
    /// Number of the content: a prefix of the same bytes for each number.
    pub(crate) content: u64,
    pub(crate) length: u64,
    pub(crate) fate: Fate,
}

/// What happens to a file while it is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Stays,
    IsAbsent,
    /// Its content is another one when it is read again.
    Changes,
    /// It is shorter when it is read again.
    Shrinks,
}

/// The room of a disk in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// What the file system says.
    pub(crate) free: u64,
    /// After so many bytes, a write fails.
    pub(crate) writable: u64,
}

impl Room {
    pub(crate) const PLENTY: Self = Self {
        free: u64::MAX,
        writable: u64::MAX,
    };
}

/// Which jobs have the files of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Owner {
    #[default]
    FirstJob,
    /// Some of those that ranks spawn.
    SpawnedJobs,
}

/// The files of a run, and the disks with too little room, by the number of the node.
#[derive(Clone, Debug, Default)]
pub(crate) struct FilesPlan {
    pub(crate) files: Arc<[FilePlan]>,
    pub(crate) owner: Owner,
    pub(crate) rooms: BTreeMap<u32, Room>,
    /// A node whose disk is slow, and how long it takes for each action in addition.
    pub(crate) slow: Option<(u32, Duration)>,
}

impl FilesPlan {
    /// Returns what the front asks for; `None` if the job has no files.
    pub(crate) fn preload(&self) -> Option<Preload> {
        let file = |plan: &FilePlan| PreloadFile {
            path: format!("{FROM}{}", plan.name).into(),
            name: plan.name.clone().into(),
            mode: plan.mode,
        };
        let has_files = self.owner == Owner::FirstJob && !self.files.is_empty();
        has_files.then(|| Preload {
            place: None,
            files: self.files.iter().map(file).collect(),
            use_of: Preloaded {
                programs: BTreeMap::new(),
                arguments: BTreeMap::new(),
                inside: [0].into(),
            },
        })
    }

    /// Returns true if something may keep the job from its launch.
    pub(crate) fn is_troubled(&self) -> bool {
        !self.rooms.is_empty() || self.files.iter().any(|plan| plan.fate != Fate::Stays)
    }
}

/// The disk of the controller's node.
#[derive(Debug, Default)]
pub(crate) struct Source {
    files: Arc<[FilePlan]>,
    /// Files that were read from their start for a job, and how often.
    begun: BTreeMap<(JobId, String), u32>,
}

impl Source {
    pub(crate) const fn new(files: Arc<[FilePlan]>) -> Self {
        Self {
            files,
            begun: BTreeMap::new(),
        }
    }

    /// Looks up files of a spawned job.
    pub(crate) fn find(&self, wanted: &[WantedFile]) -> Result<Vec<FoundFile>, NotFound> {
        let found = wanted.iter().enumerate().map(|(index, wanted)| {
            let name = wanted.path.to_str().and_then(|path| path.strip_prefix('/'));
            let plan = name.and_then(|name| self.files.iter().find(|plan| plan.name == name));
            match plan.filter(|plan| plan.fate != Fate::IsAbsent) {
                Some(plan) => Ok(FoundFile {
                    path: format!("{FROM}{}", plan.name).into(),
                    mode: plan.mode,
                }),
                None => Err(NotFound {
                    index,
                    path: wanted.path.clone(),
                    errno: ENOENT,
                    why: "there is no such file".to_owned(),
                }),
            }
        });
        found.collect()
    }

    /// Reads bytes of a file: fewer only at its end.
    pub(crate) fn read(
        &mut self,
        job: JobId,
        path: &OsStr,
        offset: u64,
        length: usize,
    ) -> Result<Bytes, String> {
        let name = path.to_str().and_then(|path| path.strip_prefix(FROM));
        let plan = name.and_then(|name| self.files.iter().find(|plan| plan.name == name));
        let plan = plan.filter(|plan| plan.fate != Fate::IsAbsent);
        let plan = plan.ok_or("there is no such file")?;
        let begun = self.begun.entry((job, plan.name.clone())).or_default();
        *begun += u32::from(offset == 0);
        let is_again = *begun > 1;
        let (content, end) = match plan.fate {
            Fate::Changes if is_again => (plan.content + 1, plan.length),
            Fate::Shrinks if is_again => (plan.content, plan.length / 2),
            _ => (plan.content, plan.length),
        };
        let length = (length as u64).min(end.saturating_sub(offset));
        Ok(Bytes::from(bytes(content, offset, length)))
    }
}

/// Returns bytes of a content, which repeat. The period is prime, so no two chunks of a file are equal.
fn bytes(content: u64, offset: u64, length: u64) -> Vec<u8> {
    const PERIOD: usize = 4_099;
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let start = content.wrapping_mul(1_000_003).wrapping_add(1);
    let byte = |at: u64| start.wrapping_add(at).wrapping_mul(ODD).to_le_bytes()[5];
    let (from, length) = (size(offset) % PERIOD, size(length));
    let period: Vec<u8> = (0..PERIOD as u64).map(byte).collect();
    let mut all = Vec::with_capacity(length + PERIOD);
    all.extend_from_slice(&period[from..]);
    while all.len() < length {
        all.extend_from_slice(&period);
    }
    all.truncate(length);
    all
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[derive(Debug, Default)]
struct Stored {
    mode: u32,
    bytes: Vec<u8>,
    is_closed: bool,
}

#[derive(Debug, Default)]
struct Directory {
    files: BTreeMap<OsString, Stored>,
    open: Vec<OsString>,
}

/// The disk of a node.
#[derive(Debug)]
pub(crate) struct Disk {
    files: Arc<[FilePlan]>,
    room: Room,
    /// How long each action takes in addition to the usual delay.
    pub(crate) pause: Duration,
    directories: BTreeMap<JobId, Directory>,
    chunks: BTreeSet<(JobId, u64)>,
    /// Bytes that the controller has sent, and that were written.
    sent: BTreeMap<JobId, u64>,
    written: BTreeMap<JobId, u64>,
}

/// The answer to an action; `None` if there is none.
pub(crate) type Acted = Option<Result<Option<OsString>, PreloadFailure>>;

impl Disk {
    pub(crate) fn new(plan: &FilesPlan, node: u32) -> Self {
        let room = plan.rooms.get(&node).copied();
        let slow = plan.slow.filter(|(slow, _)| *slow == node);
        Self {
            files: Arc::clone(&plan.files),
            room: room.unwrap_or(Room::PLENTY),
            pause: slow.map_or(Duration::ZERO, |(_, pause)| pause),
            directories: BTreeMap::new(),
            chunks: BTreeSet::new(),
            sent: BTreeMap::new(),
            written: BTreeMap::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.directories.is_empty()
    }

    /// Notes that the controller has sent a chunk to this node. Returns a fault if too many bytes are on their way.
    pub(crate) fn on_sent(&mut self, job: JobId, length: u64) -> Option<String> {
        let sent = self.sent.entry(job).or_default();
        *sent += length;
        let written = self.written.get(&job).copied().unwrap_or(0);
        let waiting = *sent - written;
        (waiting > WINDOW).then(|| format!("{waiting} bytes of files are on their way to a node"))
    }

    /// Notes that a chunk has arrived. Returns a fault if it has arrived before.
    pub(crate) fn on_chunk(&mut self, job: JobId, number: u64) -> Option<String> {
        let is_new = self.chunks.insert((job, number));
        (!is_new).then(|| format!("chunk {number} of job {job} arrives twice"))
    }

    /// Carries out an action of the daemon. Returns a fault if it makes no sense.
    pub(crate) fn act(&mut self, job: JobId, act: FileAct) -> Result<Acted, String> {
        let path = OsString::from(format!("/tmp/{job}"));
        let needed = match act {
            FileAct::Remove => {
                self.directories.remove(&job);
                return Ok(None);
            }
            FileAct::Make { bytes, .. } => {
                let free = self.room.free;
                if bytes > free {
                    return Ok(Some(Err(PreloadFailure::NoRoom {
                        directory: path,
                        needed: bytes,
                        free,
                    })));
                }
                let before = self.directories.insert(job, Directory::default());
                return match before {
                    Some(_) => Err(format!("the directory of job {job} is made twice")),
                    None => Ok(Some(Ok(Some(path)))),
                };
            }
            FileAct::Write { ref bytes } => bytes.len() as u64,
            FileAct::Create { .. } | FileAct::Close => 0,
        };
        let Some(directory) = self.directories.get_mut(&job) else {
            return Err(format!("job {job} has no directory for {act:?}"));
        };
        let written = self.written.entry(job).or_default();
        *written += needed;
        if *written > self.room.writable {
            let why = "the disk is full".to_owned();
            return Ok(Some(Err(PreloadFailure::Unwritable { path, why })));
        }
        let Directory { files, open } = directory;
        match act {
            FileAct::Create { files: new } => {
                if !open.is_empty() {
                    return Err(format!("{open:?} are not closed"));
                }
                for file in new {
                    let stored = Stored {
                        mode: file.mode,
                        ..Stored::default()
                    };
                    if files.insert(file.name.clone(), stored).is_some() {
                        return Err(format!("{:?} is created twice", file.name));
                    }
                    open.push(file.name);
                }
            }
            FileAct::Write { bytes } => {
                if open.is_empty() {
                    return Err(format!("{} bytes are for no file", bytes.len()));
                }
                for name in open.iter() {
                    let stored = files.entry(name.clone()).or_default();
                    stored.bytes.extend_from_slice(&bytes);
                }
            }
            FileAct::Close => {
                for name in open.drain(..) {
                    files.entry(name).or_default().is_closed = true;
                }
            }
            FileAct::Make { .. } | FileAct::Remove => {}
        }
        Ok(Some(Ok(None)))
    }

    /// Returns what a rank of a job would miss.
    pub(crate) fn missing(&self, job: JobId) -> Option<String> {
        let Some(directory) = self.directories.get(&job) else {
            return Some("there is no directory".to_owned());
        };
        let many = directory.files.len();
        if many != self.files.len() {
            return Some(format!("there are {many} files"));
        }
        self.files.iter().find_map(|plan| {
            let Some(stored) = directory.files.get(OsStr::new(&plan.name)) else {
                return Some(format!("`{}` is not there", plan.name));
            };
            let length = stored.bytes.len() as u64;
            let is_right = stored.is_closed
                && stored.mode == plan.mode
                && length == plan.length
                && bytes(plan.content, 0, length) == stored.bytes;
            (!is_right).then(|| format!("`{}` is not as it was", plan.name))
        })
    }
}
