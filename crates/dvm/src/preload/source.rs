//! The files of a job at the controller.
//!
//! | state | event | response | next state |
//! |---|---|---|---|
//! | `Finding` | the files of a spawned job are found | read the first | `Hashing` |
//! | `Finding` | the nodes are known | – | `Finding` |
//! | `Hashing` | bytes of a file | read on, or the next file | `Hashing`, or `Hashed` behind the last |
//! | `Hashed` | the nodes are known | `Begin` | `Offered` |
//! | `Hashing` | the nodes are known | – | `Hashing` |
//! | `Offered` | all nodes are ready | read the first chunk | `Sending` |
//! | `Offered` | all nodes have answered, and some have failed | report it | `Failed` |
//! | `Sending` | bytes of a file | send the chunk; read on within the window | `Sending` |
//! | `Sending` | a node has written more | read on within the window | `Sending` |
//! | `Sending` | all nodes have stored all files | report it | `Done` |
//! | `Sending` | a node fails | report it | `Failed` |
//! | `Hashing`, `Sending` | a file cannot be read, or has changed | report it | `Failed` |
//!
//! The caller handles files that are not found, and lost nodes: the job is then refused, and the source dropped.

use std::{
    collections::{BTreeMap, VecDeque},
    ffi::OsString,
    mem,
    sync::Arc,
    time::Duration,
};

use base::{NodeId, Time};
use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::{CHUNK, FoundFile, MAX_FAILED_HOSTS, WINDOW, WantedFile};
use crate::{
    planted::{self, Bug},
    proto::{
        Content, Manifest, PreloadFailure, PreloadNews, PreloadProgress, StoredFile, ToPreload,
    },
    spec::Preload,
};

/// Time between two reports of progress.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// The permission bit that lets the owner of a file execute it.
const OWNER_EXECUTES: u32 = 0o100;

/// Bytes of a file that are to be read. The answer has fewer only at the end of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReadOrder {
    pub(crate) path: OsString,
    pub(crate) offset: u64,
    pub(crate) length: usize,
}

/// What a source asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SourceOutput {
    /// Look up all files of the job. There is at least one.
    Find(Vec<WantedFile>),
    Read(ReadOrder),
    /// Send this to all nodes of the job.
    Send(ToPreload),
    Progress(PreloadProgress),
    /// Every node has all files.
    Done,
    /// These nodes have failed, the first for this reason. Without nodes, the launcher has.
    Failed(Vec<NodeId>, PreloadFailure),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Finding,
    Hashing,
    Hashed,
    Offered,
    Sending,
    Done,
    Failed,
}

/// What a node has said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Answer {
    #[default]
    None,
    Ready,
    Stored,
    Failed,
}

#[derive(Clone, Copy, Debug, Default)]
struct Peer {
    answer: Answer,
    taken: u64,
}

/// The state machine of the files of one job at the controller.
#[derive(Debug)]
pub(crate) struct Source {
    spec: Preload,
    state: State,
    /// The file that is read for its digest, or the content that is sent, and the bytes of it that were read.
    index: usize,
    offset: u64,
    hasher: Sha256,
    manifest: Manifest,
    /// The file from which each content is sent.
    paths: Vec<OsString>,
    total: u64,
    peers: BTreeMap<NodeId, Peer>,
    /// How many nodes have taken so many bytes.
    taken: BTreeMap<u64, usize>,
    failed: Vec<(NodeId, PreloadFailure)>,
    is_reading: bool,
    sent: u64,
    number: u64,
    told: Option<Time>,
    outputs: VecDeque<SourceOutput>,
}

impl Source {
    pub(crate) fn new(spec: Preload) -> Self {
        let mut source = Self::hashing(spec);
        source.hash_next();
        source
    }

    /// Returns the source of files that have to be looked up. `spec` has their names, and the permissions that they need at
    /// least.
    pub(crate) fn find(spec: Preload, wanted: Vec<WantedFile>) -> Self {
        let mut source = Self::hashing(spec);
        source.state = State::Finding;
        source.outputs.push_back(SourceOutput::Find(wanted));
        source
    }

    fn hashing(spec: Preload) -> Self {
        Self {
            manifest: Manifest {
                place: spec.place.clone(),
                contents: Vec::new(),
            },
            spec,
            state: State::Hashing,
            index: 0,
            offset: 0,
            hasher: Sha256::new(),
            paths: Vec::new(),
            total: 0,
            peers: BTreeMap::new(),
            taken: BTreeMap::new(),
            failed: Vec::new(),
            is_reading: false,
            sent: 0,
            number: 0,
            told: None,
            outputs: VecDeque::new(),
        }
    }

    /// Returns true if this one of the files is executed.
    pub(crate) fn is_program(&self, index: usize) -> bool {
        let file = self.spec.files.get(index);
        file.is_some_and(|file| file.mode & OWNER_EXECUTES != 0)
    }

    /// Handles the files that were to be looked up, in the order in which they were named.
    pub(crate) fn on_found(&mut self, found: Vec<FoundFile>) {
        if self.state == State::Finding {
            for (file, found) in self.spec.files.iter_mut().zip(found) {
                file.path = found.path;
                file.mode |= found.mode;
            }
            self.state = State::Hashing;
            self.hash_next();
        }
    }

    pub(crate) fn poll(&mut self) -> Option<SourceOutput> {
        self.outputs.pop_front()
    }

    /// Returns true if every node has all files.
    pub(crate) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Returns the nodes that may have files.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.peers.keys().copied()
    }

    /// Learns the nodes of the job. Later calls change nothing.
    pub(crate) fn offer(&mut self, nodes: impl IntoIterator<Item = NodeId>) {
        if self.peers.is_empty() {
            self.peers = nodes
                .into_iter()
                .map(|node| (node, Peer::default()))
                .collect();
            self.taken.insert(0, self.peers.len());
            self.begin();
        }
    }

    /// Handles the bytes of a file, or why they cannot be read.
    pub(crate) fn on_read(&mut self, result: Result<Bytes, String>) {
        if !mem::take(&mut self.is_reading) {
            return;
        }
        match (result, self.state) {
            (Ok(bytes), State::Hashing) => self.on_hashed(&bytes),
            (Ok(bytes), State::Sending) => self.on_chunk(bytes),
            (Err(why), State::Hashing | State::Sending) => {
                let path = self.path().unwrap_or_default();
                self.fail(PreloadFailure::Unreadable { path, why });
            }
            (_, State::Finding | State::Hashed | State::Offered | State::Done | State::Failed) => {}
        }
    }

    /// Handles the answer of a node.
    pub(crate) fn on_news(&mut self, now: Time, node: NodeId, news: PreloadNews) {
        let Some(peer) = self.peers.get_mut(&node) else {
            return;
        };
        match (news, peer.answer, self.state) {
            (_, _, State::Done | State::Failed) | (_, Answer::Failed, _) => {}
            (PreloadNews::Ready, Answer::None, State::Offered) => {
                peer.answer = Answer::Ready;
                self.on_answered();
            }
            (PreloadNews::Taken { bytes }, Answer::Ready, State::Sending)
                if bytes > peer.taken && bytes <= self.sent =>
            {
                let before = mem::replace(&mut peer.taken, bytes);
                self.count(before, bytes);
                self.tell(now);
                self.read_on();
            }
            (PreloadNews::Stored, Answer::Ready, _) => {
                peer.answer = Answer::Stored;
                self.on_answered();
            }
            (PreloadNews::Failed(failure), _, State::Offered) => {
                peer.answer = Answer::Failed;
                self.failed.push((node, failure));
                self.on_answered();
            }
            (PreloadNews::Failed(failure), _, _) => {
                self.failed.push((node, failure));
                self.report_failed();
            }
            // A message out of order gives no credit.
            (PreloadNews::Ready | PreloadNews::Taken { .. } | PreloadNews::Stored, _, _) => {}
        }
    }

    /// Reads the next bytes for a digest, or begins if there are none.
    fn hash_next(&mut self) {
        if let Some(file) = self.spec.files.get(self.index) {
            let path = file.path.clone();
            self.read(path, CHUNK);
        } else {
            self.state = State::Hashed;
            self.begin();
        }
    }

    fn on_hashed(&mut self, bytes: &Bytes) {
        self.hasher.update(bytes);
        self.offset += bytes.len() as u64;
        if bytes.len() < CHUNK {
            let digest: [u8; 32] = self.hasher.finalize_reset().into();
            let size = mem::take(&mut self.offset);
            if let Some(file) = self.spec.files.get(self.index) {
                let (name, mode) = (file.name.clone(), file.mode);
                let stored = StoredFile { name, mode };
                let contents = &mut self.manifest.contents;
                match contents
                    .iter_mut()
                    .find(|one| one.digest == digest && one.size == size)
                {
                    Some(content) => content.files.push(stored),
                    None => {
                        contents.push(Content {
                            digest,
                            size,
                            files: vec![stored],
                        });
                        self.paths.push(file.path.clone());
                    }
                }
            }
            self.index += 1;
        }
        self.hash_next();
    }

    /// Offers the files to the nodes, once both are known.
    fn begin(&mut self) {
        if self.state == State::Hashed && !self.peers.is_empty() {
            self.state = State::Offered;
            self.index = 0;
            self.total = self.manifest.bytes();
            let manifest = Arc::new(self.manifest.clone());
            let begin = SourceOutput::Send(ToPreload::Begin(manifest));
            self.outputs.push_back(begin);
        }
    }

    fn on_answered(&mut self) {
        let all = |answers: &[Answer]| {
            self.peers
                .values()
                .all(|peer| answers.contains(&peer.answer))
        };
        let is_early = || {
            let mut peers = self.peers.values();
            let is_stored = peers.any(|peer| peer.answer == Answer::Stored);
            is_stored && planted::is(Bug::LaunchedBeforeLastCopy)
        };
        match self.state {
            // Nodes without bytes to wait for are complete at once.
            State::Offered if all(&[Answer::Ready, Answer::Stored]) => {
                self.state = State::Sending;
                self.skip_empty();
                self.read_on();
                self.on_answered();
            }
            State::Offered if all(&[Answer::Ready, Answer::Stored, Answer::Failed]) => {
                self.report_failed();
            }
            State::Sending if all(&[Answer::Stored]) || is_early() => {
                self.state = State::Done;
                self.outputs.push_back(SourceOutput::Done);
            }
            _ => {}
        }
    }

    /// Reads the next chunk, unless a read is under way or the window is full.
    fn read_on(&mut self) {
        let slowest = if planted::is(Bug::FilesAtFastestPace) {
            self.taken.last_key_value()
        } else {
            self.taken.first_key_value()
        };
        let slowest = slowest.map_or(0, |(bytes, _)| *bytes);
        let Some(content) = self.manifest.contents.get(self.index) else {
            return;
        };
        let left = usize::try_from(content.size - self.offset).unwrap_or(usize::MAX);
        let length = left.min(CHUNK);
        let is_due = self.state == State::Sending
            && !self.is_reading
            && self.sent + length as u64 <= slowest + WINDOW;
        if is_due && let Some(path) = self.path() {
            self.read(path, length);
        }
    }

    fn on_chunk(&mut self, bytes: Bytes) {
        let length = bytes.len() as u64;
        let content = self.manifest.contents.get(self.index);
        let left = content.map_or(0, |content| content.size - self.offset);
        if length != left.min(CHUNK as u64) {
            let name = self.path().unwrap_or_default();
            return self.fail(PreloadFailure::Changed { name });
        }
        let number = self.number;
        self.number += 1;
        self.sent += length;
        self.offset += length;
        let chunk = SourceOutput::Send(ToPreload::Chunk { number, bytes });
        self.outputs.push_back(chunk);
        if length == left {
            self.index += 1;
            self.offset = 0;
            self.skip_empty();
        }
        self.read_on();
    }

    fn skip_empty(&mut self) {
        let contents = &self.manifest.contents;
        while contents.get(self.index).is_some_and(|one| one.size == 0) {
            self.index += 1;
        }
    }

    /// Returns the file that is read.
    fn path(&self) -> Option<OsString> {
        match self.state {
            State::Hashing => self
                .spec
                .files
                .get(self.index)
                .map(|file| file.path.clone()),
            _ => self.paths.get(self.index).cloned(),
        }
    }

    fn read(&mut self, path: OsString, length: usize) {
        self.is_reading = true;
        let offset = self.offset;
        self.outputs.push_back(SourceOutput::Read(ReadOrder {
            path,
            offset,
            length,
        }));
    }

    /// Moves one node in the counts of bytes.
    fn count(&mut self, from: u64, to: u64) {
        if let Some(nodes) = self.taken.get_mut(&from) {
            *nodes -= 1;
            if *nodes == 0 {
                self.taken.remove(&from);
            }
        }
        *self.taken.entry(to).or_default() += 1;
    }

    fn tell(&mut self, now: Time) {
        if self.told.is_none_or(|told| told + PROGRESS_EVERY <= now) {
            self.told = Some(now);
            let done = self.taken.first_key_value().map_or(0, |(bytes, _)| *bytes);
            self.outputs
                .push_back(SourceOutput::Progress(PreloadProgress {
                    done,
                    total: self.total,
                    nodes: self.peers.len(),
                }));
        }
    }

    fn report_failed(&mut self) {
        self.failed.truncate(MAX_FAILED_HOSTS);
        if let Some((_, failure)) = self.failed.first() {
            let nodes = self.failed.iter().map(|(node, _)| *node).collect();
            let failed = SourceOutput::Failed(nodes, failure.clone());
            self.outputs.push_back(failed);
        }
        self.state = State::Failed;
    }

    fn fail(&mut self, failure: PreloadFailure) {
        self.state = State::Failed;
        let failed = SourceOutput::Failed(Vec::new(), failure);
        self.outputs.push_back(failed);
    }
}
