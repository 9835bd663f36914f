//! Random files that are copied to the nodes of a job, and what goes wrong with them.

use base::NodeId;

use super::{Act, Family, Fault, make::Maker};
use crate::files::{Fate, FilePlan, FilesPlan, Owner, Room};

/// Length of a chunk.
const CHUNK: u64 = dvm::preload::CHUNK as u64;

impl Maker<'_> {
    /// Returns the files of a job; none, except in one family.
    pub(super) fn files(&mut self) -> FilesPlan {
        if self.family != Family::Files {
            return FilesPlan::default();
        }
        let many = match self.files_of {
            Owner::FirstJob => self.rng.number(1, 4),
            // `FILES` names them.
            Owner::SpawnedJobs => 2,
        };
        // More than the window holds, on a few nodes: bytes take time.
        let is_large = matches!(self.nodes, 2 | 3) && self.rng.chance(60);
        let mut plan = FilesPlan {
            files: (0..many)
                .map(|number| self.file(number, is_large && number == 0))
                .collect(),
            owner: self.files_of,
            ..FilesPlan::default()
        };
        if self.rng.chance(if is_large { 80 } else { 20 }) {
            let node = self.rng.number(0, self.nodes - 1);
            plan.slow = Some((node, self.rng.micros(100, 10_000)));
        }
        let total: u64 = plan.files.iter().map(|file| file.length).sum();
        if self.rng.chance(12) {
            let node = self.rng.number(0, self.nodes - 1);
            let some = self.rng.between(0, total);
            let room = if self.rng.chance(50) {
                Room {
                    free: some,
                    ..Room::PLENTY
                }
            } else {
                Room {
                    writable: some,
                    ..Room::PLENTY
                }
            };
            plan.rooms.insert(node, room);
        }
        self.disturb_copies();
        plan
    }

    fn file(&mut self, number: u32, is_large: bool) -> FilePlan {
        let length = match self.rng.below(8) {
            _ if is_large => self.rng.between(34 * CHUNK, 40 * CHUNK),
            0 => 0,
            1 => 1,
            2 => CHUNK,
            3 => 2 * CHUNK,
            4 | 5 => self.rng.between(2, CHUNK),
            _ => self.rng.between(CHUNK, 6 * CHUNK),
        };
        let fate = match self.rng.below(40) {
            0 => Fate::IsAbsent,
            1 => Fate::Changes,
            2 => Fate::Shrinks,
            _ => Fate::Stays,
        };
        FilePlan {
            name: format!("f{number}"),
            mode: self.rng.pick([0o400, 0o644, 0o755]),
            // Some files have the same content.
            content: self.rng.between(0, 2),
            length,
            fate,
        }
    }

    /// Ends the job, or loses a part of the cluster, most often while files are copied.
    fn disturb_copies(&mut self) {
        let early = self.rng.chance(75);
        let when = if early {
            self.rng.micros(0, 60_000)
        } else {
            self.rng.millis(0, 2_000)
        };
        let fault = match self.rng.below(12) {
            0 => return self.acts.push((when, Act::Vanish)),
            1 => {
                let reason = self.reason();
                return self.acts.push((when, Act::End(reason)));
            }
            2 => {
                let reason = self.reason();
                return self.acts.push((when, Act::Kill(reason)));
            }
            3 | 4 => Fault::LoseController,
            5..8 => Fault::LoseNode(NodeId(self.rng.number(0, self.nodes - 1))),
            _ => return,
        };
        self.faults.push((when, fault));
    }
}
