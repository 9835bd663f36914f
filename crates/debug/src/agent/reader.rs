//! State that an agent keeps from one sample to the next: parsed files, and what it knows of each process.

use std::collections::{BTreeMap, BTreeSet};

use base::Arch;

use super::kernel::{Identity, Lent};
use crate::{
    image::{self, Joining},
    maps, python,
    recorded::region,
    reply::{MAX_BUILDS, MAX_THREADS},
    report::Detail,
    stack::Frames,
    unwind::{Build, Code, Images},
};

/// Maximum number of frames kept; beyond it the reader starts again from nothing.
const MAX_FRAMES: usize = 200_000;

/// Reads stacks.
#[derive(Debug)]
pub(super) struct Reader {
    /// All frames seen so far.
    pub(super) frames: Frames,
    /// How much of the Python interpreter is shown.
    pub(super) plumbing: python::Plumbing,
    pub(super) images: Images,
    runtimes: python::Runtimes,
    /// What is known of each process, by pid.
    pub(super) known: BTreeMap<i32, Known>,
    /// The buffer for the copy of a stack, which is reused for each thread.
    pub(super) room: Vec<u8>,
    /// How many recorded calls of each thread are read.
    pub(super) extent: region::Extent,
    /// Maximum number of threads sampled in one process.
    pub(super) max_threads: usize,
    /// The pids of processes with more threads, and their largest number of threads.
    pub(super) many_threads: BTreeMap<i32, usize>,
}

/// Facts about a process from the last sample.
#[derive(Debug)]
pub(super) struct Known {
    /// The process and program that the facts are about: the pid may belong to another process by now.
    pub(super) identity: Identity,
    pub(super) code: Code,
    pub(super) python: Option<python::Process>,
    pub(super) recorded: region::Found,
}

impl Reader {
    /// Returns a reader without any knowledge. With [`Detail::Full`], it also reads source lines inside the system's libraries.
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
            extent: region::Extent::Current,
            max_threads: MAX_THREADS,
            many_threads: BTreeMap::new(),
        }
    }

    /// Forgets frames, files and processes if there are too many frames: a program that generates code at run time always has new
    /// ones.
    pub(super) fn bound(&mut self, detail: Detail) {
        if self.frames.len() > MAX_FRAMES {
            *self = Self {
                max_threads: self.max_threads,
                many_threads: std::mem::take(&mut self.many_threads),
                ..Self::new(detail)
            };
        }
    }

    /// Forgets all processes except these.
    pub(super) fn keep(&mut self, wanted: &BTreeSet<i32>) {
        self.known.retain(|pid, _| wanted.contains(pid));
        self.many_threads.retain(|pid, _| wanted.contains(pid));
    }

    /// Returns the code of a process with these mappings and this pid, as it sees it, its Python if it has one, and where its recorded calls are.
    pub(super) fn read(
        &mut self,
        (mappings, pid): (&[u8], Option<i32>),
        lent: Lent<'_>,
    ) -> (Code, Option<python::Process>, region::Found) {
        let maps = maps::parse(mappings);
        let code = self.images.code(&maps, lent.files, lent.memory);
        let python = python::Process::find(&mut self.runtimes, &self.images, &code, lent.memory);
        (code, python, region::find(&maps, pid))
    }

    /// Returns the recorded calls of a process that was just sampled.
    pub(super) fn calls(&mut self, pid: i32, lent: Lent<'_>) -> region::Content {
        let Some(known) = self.known.get(&pid) else {
            return region::Content::Nothing;
        };
        let region::Found::At(region) = known.recorded else {
            return region::Content::Nothing;
        };
        let (images, frames, code) = (&mut self.images, &mut self.frames, &known.code);
        region::read(lent.memory, region, self.extent, &mut |site| {
            images.place_of_call(code, site, lent.memory, lent.files, frames)
        })
    }

    /// Returns the builds of the programs and MPI libraries of the processes that were sampled.
    pub(super) fn builds(&self) -> BTreeSet<Build> {
        let builds = self.known.values();
        let builds: BTreeSet<Build> = builds
            .flat_map(|known| self.images.builds(&known.code))
            .collect();
        builds.into_iter().take(MAX_BUILDS).collect()
    }

    /// Returns whether one of these processes can connect its job with another, as far as they were sampled.
    pub(super) fn joining(&self, pids: impl Iterator<Item = i32>) -> Joining {
        let known = pids.filter_map(|pid| self.known.get(&pid));
        let joining = known.map(|known| self.images.joining(&known.code));
        joining.max().unwrap_or_default()
    }
}
