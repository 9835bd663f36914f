//! A peer that sends requests and reads at random times, and may stop reading. Its answers wait in a backlog.

use std::time::Duration;

use base::Time;
use dvm::backlog::{Backlog, Bounds, Wanted};

use super::{Agenda, Record, Wrong};
use crate::rng::Rng;

const BOUNDS: [Bounds; 2] = [
    Bounds {
        pause: 100,
        most: 1_000,
    },
    // An answer must have been written completely before the next request is read.
    Bounds {
        pause: 0,
        most: 1_000,
    },
];
/// Number of bytes that the kernel buffers for the peer.
const PIPE: usize = 64;
/// Maximum size of an answer, in bytes.
const ANSWER_MAX: usize = 300;
/// Virtual time after which the peer reads no more.
const HORIZON: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
enum Event {
    /// The peer sends a request.
    Asks,
    /// The peer reads at most this number of bytes.
    Reads(usize),
    /// We send this number of bytes that the peer has not requested.
    Notifies(usize),
    /// We start to close the connection: it is closed once all queued bytes were written.
    Closes,
}

struct World {
    agenda: Agenda<Event>,
    bounds: &'static Bounds,
    backlog: Backlog,
    /// Number of queued bytes, which the backlog has to count correctly.
    queued: usize,
    in_kernel: usize,
    questions: usize,
    sent: usize,
    read: usize,
    is_open: bool,
}

impl World {
    /// Queues bytes for the peer, or drops the connection if they do not fit.
    fn queue(&mut self, bytes: usize, record: &mut Record) -> Result<(), Wrong> {
        let fits = self.queued + bytes <= self.bounds.most;
        let is_queued = self.backlog.push(bytes).is_ok();
        record.require(fits == is_queued, || {
            format!(
                "{bytes} bytes behind {} are queued: {is_queued}",
                self.queued
            )
        })?;
        if is_queued {
            self.queued += bytes;
            self.sent += bytes;
        } else {
            self.is_open = false;
        }
        Ok(())
    }

    /// Carries out what the backlog wants, until we have to wait for the peer.
    fn serve(&mut self, rng: &mut Rng, record: &mut Record) -> Result<(), Wrong> {
        while self.is_open {
            let wanted = self.backlog.wanted();
            let reads = matches!(wanted, Wanted::Read | Wanted::ReadAndWrite);
            let writes = matches!(wanted, Wanted::Write | Wanted::ReadAndWrite);
            if writes && self.queued > 0 && self.in_kernel < PIPE {
                let bytes = self.queued.min(PIPE - self.in_kernel);
                self.queued -= bytes;
                self.in_kernel += bytes;
                self.backlog.written(bytes);
            } else if reads && self.questions > 0 {
                record.require(self.queued < self.bounds.pause.max(1), || {
                    format!("a peer with {} bytes to read may ask for more", self.queued)
                })?;
                self.questions -= 1;
                self.queue(rng.length(1, ANSWER_MAX), record)?;
            } else if wanted == Wanted::Close {
                record.require(self.queued == 0, || {
                    format!("it is closed with {} bytes to send", self.queued)
                })?;
                self.is_open = false;
            } else {
                break;
            }
        }
        Ok(())
    }
}

pub(super) fn play(rng: &mut Rng, record: &mut Record) -> Result<Time, Wrong> {
    let bounds = &BOUNDS[rng.length(0, 1)];
    let mut agenda = Agenda::new();
    for _ in 0..rng.between(0, 12) {
        agenda.at(Time::ZERO + rng.millis(0, 2_000), Event::Asks);
    }
    for _ in 0..rng.between(0, 3) {
        let bytes = rng.length(1, 400);
        agenda.at(Time::ZERO + rng.millis(0, 2_000), Event::Notifies(bytes));
    }
    let closes = rng.chance(50);
    if closes {
        agenda.at(Time::ZERO + rng.millis(0, 3_000), Event::Closes);
    }
    // An eager peer reads up to the horizon. Any other peer stops reading when its patience is over.
    let patience = rng.millis(0, 5_000);
    let is_eager = rng.chance(80);
    agenda.at(Time::ZERO, Event::Reads(rng.length(1, 200)));
    let mut world = World {
        agenda,
        bounds,
        backlog: Backlog::new(bounds),
        queued: 0,
        in_kernel: 0,
        questions: 0,
        sent: 0,
        read: 0,
        is_open: true,
    };
    let mut is_closing = false;
    while let Some(event) = world.agenda.next() {
        let now = world.agenda.now;
        record.note(now, || format!("{event:?}"));
        match event {
            Event::Asks => world.questions += 1,
            Event::Notifies(bytes) if world.is_open && !is_closing => world.queue(bytes, record)?,
            Event::Notifies(_) => {}
            Event::Closes => {
                is_closing = true;
                world.backlog.close();
            }
            Event::Reads(most) => {
                let bytes = most.min(world.in_kernel);
                world.in_kernel -= bytes;
                world.read += bytes;
                let goes_on = is_eager || now < Time::ZERO + patience;
                if goes_on && now < Time::ZERO + HORIZON {
                    let next = now + rng.millis(1, 100);
                    world.agenda.at(next, Event::Reads(rng.length(1, 200)));
                }
            }
        }
        world.serve(rng, record)?;
        record.require(world.queued <= world.bounds.most, || {
            format!("{} bytes are queued", world.queued)
        })?;
    }
    if is_eager && world.is_open {
        record.require(world.read == world.sent, || {
            format!(
                "a peer that reads got {} of {} bytes",
                world.read, world.sent
            )
        })?;
        record.require(!closes, || {
            "a peer that has everything is not closed".to_owned()
        })?;
        record.require(world.questions == 0, || {
            format!("{} questions are not read", world.questions)
        })?;
    }
    Ok(world.agenda.now)
}
