//! What an agent keeps from one sample to the next: the files that it has parsed, and what it knows of each process.

use std::collections::{BTreeMap, BTreeSet};

use base::Arch;

use super::kernel::{Identity, Lent};
use crate::{
    image::{self, Joining},
    maps, python,
    reply::{MAX_BUILDS, MAX_THREADS},
    report::Detail,
    stack::Frames,
    unwind::{Build, Code, Images},
};

/// Frames that are kept, beyond which what is known is forgotten and learnt anew.
const MAX_FRAMES: usize = 200_000;

/// Reads stacks.
#[derive(Debug)]
pub(super) struct Reader {
    /// Every frame that was seen.
    pub(super) frames: Frames,
    /// How much of Python's interpreter is shown.
    pub(super) plumbing: python::Plumbing,
    pub(super) images: Images,
    runtimes: python::Runtimes,
    /// What is known of each process, by its number.
    pub(super) known: BTreeMap<i32, Known>,
    /// Room for the copy of a stack, used again for each.
    pub(super) room: Vec<u8>,
    /// Threads of one process that are looked at.
    pub(super) max_threads: usize,
    /// Processes that have had more, and how many in their largest sample.
    pub(super) many_threads: BTreeMap<i32, usize>,
}

/// What is known of a process from the last sample.
#[derive(Debug)]
pub(super) struct Known {
    /// Another process, or another program, may be there now.
    pub(super) identity: Identity,
    pub(super) code: Code,
    pub(super) python: Option<python::Process>,
}

impl Reader {
    /// Has read nothing yet. For stacks that are shown in full, lines inside the system's libraries are read too.
    pub(super) fn new(detail: Detail) -> Self {
        let (reading, plumbing) = match detail {
            Detail::Folded => (image::Reading::Names, python::Plumbing::Hidden),
            Detail::Full => (image::Reading::Lines, python::Plumbing::Shown),
        };
        Self {
            frames: Frames::new(),
            plumbing,
            images: Images::new(Arch::NATIVE, reading),
            runtimes: python::Runtimes::default(),
            known: BTreeMap::new(),
            room: Vec::new(),
            max_threads: MAX_THREADS,
            many_threads: BTreeMap::new(),
        }
    }

    /// Forgets frames, files and processes where there are too many frames: a program that makes code while it runs has
    /// ever new ones.
    pub(super) fn bound(&mut self, detail: Detail) {
        if self.frames.len() > MAX_FRAMES {
            *self = Self {
                max_threads: self.max_threads,
                many_threads: std::mem::take(&mut self.many_threads),
                ..Self::new(detail)
            };
        }
    }

    /// Forgets what it knows of other processes than these.
    pub(super) fn keep(&mut self, wanted: &BTreeSet<i32>) {
        self.known.retain(|pid, _| wanted.contains(pid));
        self.many_threads.retain(|pid, _| wanted.contains(pid));
    }

    /// The code of a process with these mappings, and its Python where it has one.
    pub(super) fn read(
        &mut self,
        mappings: &[u8],
        lent: Lent<'_>,
    ) -> (Code, Option<python::Process>) {
        let maps = maps::parse(mappings);
        let code = self.images.code(&maps, lent.files, lent.memory);
        let python = python::Process::find(&mut self.runtimes, &self.images, &code, lent.memory);
        (code, python)
    }

    /// Which builds of programs and of MPI the processes have that were looked at.
    pub(super) fn builds(&self) -> BTreeSet<Build> {
        let builds = self.known.values();
        let builds: BTreeSet<Build> = builds
            .flat_map(|known| self.images.builds(&known.code))
            .collect();
        builds.into_iter().take(MAX_BUILDS).collect()
    }

    /// Whether one of these processes can join its job with another, as far as they were looked at.
    pub(super) fn joining(&self, pids: impl Iterator<Item = i32>) -> Joining {
        let known = pids.filter_map(|pid| self.known.get(&pid));
        let joining = known.map(|known| self.images.joining(&known.code));
        joining.max().unwrap_or_default()
    }
}
