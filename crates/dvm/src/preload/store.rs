//! The files of a job on one node.
//!
//! | state | event | response | next state |
//! |---|---|---|---|
//! | `Making` | the directory is made | `Ready`; create files without content | `Filling` |
//! | `Filling` | a chunk | create the files of its content if it is the first, write, close them behind the last | `Filling` |
//! | `Filling` | a write is done | `Taken`, every [`REPORT`] bytes | `Filling` |
//! | `Filling` | everything is written and closed | `Stored` | `Full` |
//! | `Making`, `Filling` | an action fails, a digest differs, a chunk is not the next one | remove everything, `Failed` | `Failed` |
//! | `Failed` | a chunk | – | `Failed` |
//! | any | dropped, or the job is over | remove everything | – |
//!
//! One action is under way at a time. Chunks that arrive meanwhile wait; the window of the source bounds them.

use std::{collections::VecDeque, ffi::OsString, sync::Arc};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::REPORT;
use crate::proto::{Manifest, PreloadFailure, PreloadNews, StoredFile};

/// An action on the directory of a job. Each is answered, and the next one follows the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileAct {
    /// Make the directory, in a place with room for so many bytes. The answer is its path.
    Make {
        place: Option<OsString>,
        bytes: u64,
        /// Whether programs must be executable there.
        has_programs: bool,
    },
    /// Create these files and the directories in their names. They all get the bytes that follow.
    Create {
        files: Vec<StoredFile>,
    },
    Write {
        bytes: Bytes,
    },
    /// Close the files, and set their permissions.
    Close,
    /// Remove the directory and everything in it.
    Remove,
}

/// What a store asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreOutput {
    Act(FileAct),
    Send(PreloadNews),
    /// A violation of the protocol: a bug of ours.
    Log(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Making,
    Filling,
    Full,
    Failed,
}

/// The state machine of the files of one job on one node.
#[derive(Debug)]
pub(crate) struct Store {
    manifest: Arc<Manifest>,
    directory: Option<OsString>,
    state: State,
    /// Number of the next chunk.
    next: u64,
    /// Content of the next chunk, and the number of its bytes that have arrived.
    content: usize,
    arrived: u64,
    hasher: Sha256,
    waiting: VecDeque<FileAct>,
    /// The number of bytes of the action that is under way; `None` if there is none.
    acting: Option<u64>,
    written: u64,
    reported: u64,
    outputs: VecDeque<StoreOutput>,
}

impl Store {
    pub(crate) fn begin(manifest: Arc<Manifest>) -> Self {
        let files = || manifest.contents.iter().flat_map(|content| &content.files);
        let make = FileAct::Make {
            place: manifest.place.clone(),
            bytes: manifest.contents.iter().map(needed).sum(),
            has_programs: files().any(|file| file.mode & 0o111 != 0),
        };
        let mut store = Self {
            manifest,
            directory: None,
            state: State::Making,
            next: 0,
            content: 0,
            arrived: 0,
            hasher: Sha256::new(),
            waiting: VecDeque::from([make]),
            acting: None,
            written: 0,
            reported: 0,
            outputs: VecDeque::new(),
        };
        store.act();
        store
    }

    pub(crate) fn poll(&mut self) -> Option<StoreOutput> {
        self.outputs.pop_front()
    }

    /// Returns the job's directory, once all files are there.
    pub(crate) fn directory(&self) -> Option<&OsString> {
        let directory = self.directory.as_ref();
        directory.filter(|_| self.state == State::Full)
    }

    pub(crate) fn on_chunk(&mut self, number: u64, bytes: Bytes) {
        if self.state == State::Failed {
            return;
        }
        let manifest = Arc::clone(&self.manifest);
        let content = manifest.contents.get(self.content);
        let length = bytes.len() as u64;
        let Some(content) = content.filter(|content| {
            self.state == State::Filling
                && number == self.next
                && length > 0
                && self.arrived + length <= content.size
        }) else {
            let why = format!("chunk {number} has arrived, and {} is next", self.next);
            let what = format!("preloaded files: {why}");
            self.outputs.push_back(StoreOutput::Log(what));
            let path = self.directory.clone().unwrap_or_default();
            return self.fail(PreloadFailure::Unwritable { path, why });
        };
        if self.arrived == 0 {
            let files = content.files.clone();
            self.waiting.push_back(FileAct::Create { files });
        }
        self.next += 1;
        self.arrived += length;
        self.hasher.update(&bytes);
        self.waiting.push_back(FileAct::Write { bytes });
        if self.arrived == content.size {
            let digest: [u8; 32] = self.hasher.finalize_reset().into();
            if digest != content.digest {
                let first = content.files.first();
                let name = first.map_or_else(OsString::new, |file| file.name.clone());
                return self.fail(PreloadFailure::Changed { name });
            }
            self.waiting.push_back(FileAct::Close);
            self.content += 1;
            self.arrived = 0;
            self.create_empty();
        }
        self.act();
    }

    /// Handles the answer to the action that is under way: the path of the directory, if it was made.
    pub(crate) fn on_acted(&mut self, result: Result<Option<OsString>, PreloadFailure>) {
        let Some(bytes) = self.acting.take() else {
            return;
        };
        match (result, self.state) {
            (_, State::Failed | State::Full) => {}
            (Err(failure), State::Making | State::Filling) => self.fail(failure),
            (Ok(directory), State::Making) => {
                self.directory = directory;
                self.state = State::Filling;
                self.outputs
                    .push_back(StoreOutput::Send(PreloadNews::Ready));
                self.create_empty();
            }
            (Ok(_), State::Filling) => {
                self.written += bytes;
                if self.written >= self.reported + REPORT {
                    self.reported = self.written;
                    let bytes = self.written;
                    let taken = PreloadNews::Taken { bytes };
                    self.outputs.push_back(StoreOutput::Send(taken));
                }
            }
        }
        self.act();
    }

    /// Removes everything.
    pub(crate) fn remove(&mut self) {
        self.waiting.clear();
        if self.state != State::Failed {
            self.state = State::Failed;
            self.outputs.push_back(StoreOutput::Act(FileAct::Remove));
        }
    }

    fn fail(&mut self, failure: PreloadFailure) {
        self.remove();
        let failed = StoreOutput::Send(PreloadNews::Failed(failure));
        self.outputs.push_back(failed);
    }

    /// Creates the files without content that are next: no chunk comes for them.
    fn create_empty(&mut self) {
        while let Some(content) = self.manifest.contents.get(self.content)
            && content.size == 0
        {
            let files = content.files.clone();
            self.waiting.push_back(FileAct::Create { files });
            self.waiting.push_back(FileAct::Close);
            self.content += 1;
        }
    }

    /// Begins the next action, unless one is under way. If nothing is left to do, all files are there.
    fn act(&mut self) {
        if self.acting.is_some() || self.state == State::Failed {
            return;
        }
        match self.waiting.pop_front() {
            Some(act) => {
                self.acting = Some(match &act {
                    FileAct::Write { bytes } => bytes.len() as u64,
                    _ => 0,
                });
                self.outputs.push_back(StoreOutput::Act(act));
            }
            None if self.state == State::Filling
                && self.content == self.manifest.contents.len() =>
            {
                self.state = State::Full;
                self.outputs
                    .push_back(StoreOutput::Send(PreloadNews::Stored));
            }
            None => {}
        }
    }
}

/// Returns the bytes that a content takes on a node: files with equal permissions share them.
fn needed(content: &crate::proto::Content) -> u64 {
    let mut modes: Vec<u32> = content.files.iter().map(|file| file.mode).collect();
    modes.sort_unstable();
    modes.dedup();
    content.size.saturating_mul(modes.len() as u64)
}
