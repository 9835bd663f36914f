//! Output that is kept for tools that ask for it later.
//!
//! A tool may spawn a job before it can pull its output, and another tool may come when the job has run for hours. So the server that
//! admits tools keeps some output of each channel of a job whose registration says so, or for which a tool asks when it pulls. Every tool
//! that pulls gets what is kept, in the order in which it came, and then what follows. After the job's end, what is kept stays until the
//! tool that has spawned the job leaves.
//!
//! What is kept has no gaps: either it is the beginning of the output, and nothing more is kept once something was dropped, or it is the
//! end.

use std::collections::{BTreeMap, VecDeque};

use base::{Rank, RankSet};
use bytes::Bytes;

use super::{find, is_set};
use crate::{
    keys,
    planted::{self, Bug},
    value::{Info, IofChannels, Nspace, PmixRank, Proc, Status, Value},
};

/// Bytes that are kept of each channel of a job if nobody says how many.
pub const KEPT_DEFAULT: u32 = 64 << 10;
/// Most bytes that are kept of one channel of a job. Whoever asks for more gets so many.
pub const MAX_KEPT: u32 = 4 << 20;
/// Bytes that are kept of all jobs; a piece counts its length and some more, and so does the end of a stream. Jobs that have ended are
/// forgotten first. All of it fits into what is queued for one tool.
pub const MAX_KEPT_BYTES: usize = 32 << 20;
/// Jobs that have ended and of which output is kept. The first one is forgotten.
pub const MAX_KEPT_JOBS: usize = 64;
/// What a piece costs besides its bytes, and what the end of a stream costs: the rest of a message.
const PIECE_COST: usize = 128;
/// Output of the same process is joined up to this length.
const PIECE: usize = 16 << 10;

/// How much is kept of each channel of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keeping {
    pub bytes: u32,
    pub overflow: Overflow,
}

/// What is dropped when there is more output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    DropOldest,
    /// The default of the Standard.
    #[default]
    DropNewest,
}

impl Keeping {
    /// What is kept of a job for whose sake a tool has not asked for anything.
    pub const DEFAULT: Self = Self {
        bytes: KEPT_DEFAULT,
        overflow: Overflow::DropNewest,
    };

    /// Returns what directives ask for; `None` if they do not mention it.
    ///
    /// # Errors
    ///
    /// [`Status::BAD_PARAM`] if they contradict each other, or the size is no number.
    pub fn asked(infos: &[Info]) -> Result<Option<Self>, Status> {
        let oldest = is_set(infos, keys::IOF_DROP_OLDEST);
        let newest = is_set(infos, keys::IOF_DROP_NEWEST);
        let overflow = match (oldest, newest) {
            (true, true) => return Err(Status::BAD_PARAM),
            (true, false) => Overflow::DropOldest,
            (false, _) => Overflow::DropNewest,
        };
        let bytes = match find(infos, keys::IOF_CACHE_SIZE).map(Value::as_count) {
            None if !oldest && !newest => return Ok(None),
            None => KEPT_DEFAULT,
            Some(None) => return Err(Status::BAD_PARAM),
            Some(Some(size)) => u32::try_from(size).unwrap_or(u32::MAX).min(MAX_KEPT),
        };
        Ok(Some(Self { bytes, overflow }))
    }
}

/// What is kept of all jobs.
#[derive(Debug, Default)]
pub(super) struct Kept {
    by_job: BTreeMap<Nspace, KeptJob>,
    /// Jobs of `by_job` that have ended, the first one first.
    ended: VecDeque<Nspace>,
    /// What all pieces cost.
    cost: usize,
    /// Number of the next piece.
    next: u64,
}

#[derive(Debug, Default)]
struct KeptJob {
    /// The tool that has spawned it, while it is connected.
    spawner: Option<Proc>,
    channels: BTreeMap<IofChannels, Channel>,
}

/// What is kept of one channel of a job.
#[derive(Debug)]
struct Channel {
    keeping: Keeping,
    pieces: VecDeque<Piece>,
    bytes: usize,
    /// True when something was dropped at the end, so that nothing may follow.
    is_closed: bool,
    /// Processes whose stream has ended.
    ended: RankSet,
}

/// Consecutive output of one process.
#[derive(Debug)]
struct Piece {
    number: u64,
    rank: PmixRank,
    bytes: Vec<u8>,
}

impl Piece {
    const fn cost(&self) -> usize {
        self.bytes.len() + PIECE_COST
    }
}

impl Kept {
    /// Keeps output of these channels of a job from now on. What is kept already, and more than this, stays. What is dropped is decided by
    /// the first one who asks for something else than the default.
    pub(super) fn keep(
        &mut self,
        nspace: &Nspace,
        channels: IofChannels,
        keeping: Keeping,
        spawner: Option<Proc>,
    ) {
        if keeping.bytes == 0 {
            return;
        }
        let job = self.by_job.entry(nspace.clone()).or_default();
        job.spawner = spawner.or_else(|| job.spawner.take());
        for one in [IofChannels::STDOUT, IofChannels::STDERR] {
            if !one.meets(channels) {
                continue;
            }
            let channel = job.channels.entry(one).or_insert_with(|| Channel {
                keeping,
                pieces: VecDeque::new(),
                bytes: 0,
                is_closed: false,
                ended: RankSet::new(),
            });
            if channel.keeping == Keeping::DEFAULT {
                channel.keeping.overflow = keeping.overflow;
            }
            channel.keeping.bytes = channel.keeping.bytes.max(keeping.bytes);
        }
    }

    /// Returns the living jobs and channels of which output is to be kept.
    pub(super) fn wanted(&self) -> impl Iterator<Item = (&Nspace, IofChannels)> {
        let living = self
            .by_job
            .iter()
            .filter(|(nspace, _)| !self.ended.contains(nspace));
        living.flat_map(|(nspace, job)| job.channels.keys().map(move |channel| (nspace, *channel)))
    }

    /// Takes output of a process. Empty `bytes` mean EOF.
    pub(super) fn add(&mut self, proc: &Proc, channels: IofChannels, bytes: &Bytes) {
        // It makes room for others, and gets nothing more.
        if self.ended.contains(&proc.nspace) {
            return;
        }
        let channel = |kept: &mut Self| {
            let job = kept.by_job.get_mut(&proc.nspace)?;
            job.channels.remove(&channels)
        };
        // Taken out, so that other jobs can make room for it.
        let Some(mut channel) = channel(self) else {
            return;
        };
        if bytes.is_empty() {
            // Without room, who pulls late does not hear of this end.
            let is_left_out = planted::is(Bug::KeptWithoutEnd);
            if !is_left_out && !channel.ended.contains(Rank(proc.rank.0)) && self.has_room(0) {
                channel.ended.insert(Rank(proc.rank.0));
                self.cost += PIECE_COST;
            }
        } else {
            self.fit(&mut channel, proc.rank, bytes);
        }
        if let Some(job) = self.by_job.get_mut(&proc.nspace) {
            job.channels.insert(channels, channel);
        }
    }

    fn fit(&mut self, channel: &mut Channel, rank: PmixRank, bytes: &[u8]) {
        let limit = channel.keeping.bytes as usize;
        let mut bytes = bytes;
        if channel.keeping.overflow == Overflow::DropOldest {
            bytes = &bytes[bytes.len().saturating_sub(limit)..];
            // A closed channel has kept the beginning, until a tool has asked for the end.
            if std::mem::take(&mut channel.is_closed) {
                self.cost -= channel.clear();
            }
            let excess = (channel.bytes + bytes.len()).saturating_sub(limit);
            if excess > 0 && planted::is(Bug::KeptWithHole) {
                return;
            }
            self.cost -= channel.drop_oldest(excess);
            while !self.has_room(bytes.len()) {
                let first = channel.pieces.front().map(|piece| piece.bytes.len());
                let Some(first) = first else {
                    return;
                };
                self.cost -= channel.drop_oldest(first);
            }
        } else {
            let room = limit.saturating_sub(channel.bytes);
            if channel.is_closed || !self.has_room(room.min(bytes.len())) {
                channel.is_closed = true;
                return;
            }
            channel.is_closed = bytes.len() > room;
            bytes = &bytes[..room.min(bytes.len())];
        }
        if !bytes.is_empty() {
            self.next += 1;
            self.cost += channel.push(self.next, rank, bytes);
        }
    }

    /// Makes room for a piece of this length, at the expense of jobs that have ended. Returns false if there is none.
    fn has_room(&mut self, length: usize) -> bool {
        while self.cost + length + PIECE_COST > MAX_KEPT_BYTES {
            let Some(first) = self.ended.front().cloned() else {
                return false;
            };
            self.forget(&first);
        }
        true
    }

    /// Returns what is kept of the processes for which `wants` is true, in the order in which it came; after it the ends of their
    /// streams.
    pub(super) fn of<'a>(
        &'a self,
        nspace: &'a Nspace,
        wants: impl Fn(&Proc, IofChannels) -> bool,
    ) -> Vec<(Proc, IofChannels, Bytes)> {
        let Some(job) = self.by_job.get(nspace) else {
            return Vec::new();
        };
        let proc = |rank| Proc {
            nspace: nspace.clone(),
            rank,
        };
        let mut pieces: Vec<(IofChannels, &Piece)> = Vec::new();
        let mut ends = Vec::new();
        for (number, channel) in &job.channels {
            let all = channel.pieces.iter();
            let wanted = all.filter(|piece| wants(&proc(piece.rank), *number));
            pieces.extend(wanted.map(|piece| (*number, piece)));
            let ended = channel.ended.iter().map(|rank| proc(rank.into()));
            let ended = ended.filter(|proc| wants(proc, *number));
            ends.extend(ended.map(|proc| (proc, *number, Bytes::new())));
        }
        pieces.sort_by_key(|(_, piece)| piece.number);
        let pieces = pieces.into_iter().map(|(number, piece)| {
            let bytes = Bytes::copy_from_slice(&piece.bytes);
            (proc(piece.rank), number, bytes)
        });
        pieces.chain(ends).collect()
    }

    /// Notes the end of a job. Its tool may be about to ask for the output of a job that was short.
    pub(super) fn job_ended(&mut self, nspace: &Nspace) {
        let Some(job) = self.by_job.get(nspace) else {
            return;
        };
        if job.spawner.is_none() {
            return self.forget(nspace);
        }
        self.ended.push_back(nspace.clone());
        if self.ended.len() > MAX_KEPT_JOBS
            && let Some(first) = self.ended.front().cloned()
        {
            self.forget(&first);
        }
    }

    /// Forgets the jobs that have ended and that this tool has spawned.
    pub(super) fn tool_left(&mut self, tool: &Proc) {
        let mut over = Vec::new();
        for (nspace, job) in &mut self.by_job {
            if job.spawner.as_ref() == Some(tool) {
                job.spawner = None;
                over.push(nspace.clone());
            }
        }
        over.retain(|nspace| self.ended.contains(nspace));
        for nspace in over {
            self.forget(&nspace);
        }
    }

    pub(super) fn forget(&mut self, nspace: &Nspace) {
        self.ended.retain(|ended| ended != nspace);
        let job = self.by_job.remove(nspace).unwrap_or_default();
        for mut channel in job.channels.into_values() {
            self.cost -= channel.clear() + channel.ended.len() * PIECE_COST;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_job.is_empty() && self.ended.is_empty() && self.cost == 0
    }
}

impl Channel {
    /// Adds bytes for which there is room, and returns what they cost.
    fn push(&mut self, number: u64, rank: PmixRank, bytes: &[u8]) -> usize {
        self.bytes += bytes.len();
        match self.pieces.back_mut() {
            Some(last) if last.rank == rank && last.bytes.len() + bytes.len() <= PIECE => {
                last.bytes.extend_from_slice(bytes);
                bytes.len()
            }
            _ => {
                let bytes = bytes.to_vec();
                let piece = Piece {
                    number,
                    rank,
                    bytes,
                };
                let cost = piece.cost();
                self.pieces.push_back(piece);
                cost
            }
        }
    }

    /// Drops so many bytes from the beginning, and returns what they have cost.
    fn drop_oldest(&mut self, mut count: usize) -> usize {
        let mut cost = 0;
        while count > 0
            && let Some(first) = self.pieces.front_mut()
        {
            if first.bytes.len() > count {
                first.bytes.drain(..count);
                self.bytes -= count;
                return cost + count;
            }
            count -= first.bytes.len();
            self.bytes -= first.bytes.len();
            cost += first.cost();
            self.pieces.pop_front();
        }
        cost
    }

    fn clear(&mut self) -> usize {
        self.drop_oldest(self.bytes)
    }
}
