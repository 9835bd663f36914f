//! Reads of the ranks' output, and writes of their input.

use base::{JobId, ProcId};
use dvm::{
    Input,
    proto::Stream,
    stdio::{LINE_MAX, OUTPUT_WINDOW},
};

use super::{Node, PIPE_ROOM};
use crate::{
    kernel::Taken,
    ledger::TapeEnd,
    world::{Event, World},
};

/// Maximum size of one read from a stream, in bytes.
const READ_MAX: usize = 256 * 1024;

impl Node {
    pub(super) fn watch(&mut self, world: &mut World, proc: ProcId, stream: Stream) {
        let Some(port) = self.ports.get_mut(&(proc, stream)) else {
            return;
        };
        if port.open && port.reading && !port.scheduled {
            port.scheduled = true;
            let delay = world.delay(world.latency.io_max);
            world.after(
                delay,
                Event::Readable {
                    node: self.id,
                    proc,
                    stream,
                },
            );
        }
    }

    pub(super) fn read(&mut self, world: &mut World, proc: ProcId, stream: Stream) {
        let Some(port) = self.ports.get_mut(&(proc, stream)) else {
            return;
        };
        port.scheduled = false;
        if !port.open || !port.reading {
            return;
        }
        let pipe = port.pipe;
        let max = if world.rng.chance(60) {
            READ_MAX
        } else {
            world.rng.length(PIPE_ROOM, READ_MAX)
        };
        match self.kernel.take(world.now, pipe, max) {
            Taken::Bytes(bytes) => {
                if let Some(tape) = world.ledger.tapes.get_mut(&(proc, stream)) {
                    tape.on_read(world.now, bytes.len());
                }
                self.tell(
                    world,
                    Input::Output {
                        proc,
                        stream,
                        bytes,
                    },
                );
                let more = self
                    .kernel
                    .pipe(pipe, |pipe| !pipe.is_empty() || pipe.writers == 0);
                if more == Some(true) {
                    self.watch(world, proc, stream);
                }
            }
            Taken::Nothing => {}
            Taken::End => {
                self.close_port(world, proc, stream, TapeEnd::Whole);
                self.tell(world, Input::OutputEnded { proc, stream });
            }
        }
    }

    pub(super) fn close_port(
        &mut self,
        world: &mut World,
        proc: ProcId,
        stream: Stream,
        end: TapeEnd,
    ) {
        let Some(port) = self.ports.get_mut(&(proc, stream)).filter(|port| port.open) else {
            return;
        };
        port.open = false;
        self.kernel.close_reader(world.now, port.pipe);
        if let Some(tape) = world.ledger.tapes.get_mut(&(proc, stream)) {
            tape.end = end;
        }
    }

    pub(super) fn watch_stdin(&mut self, world: &mut World, proc: ProcId) {
        let Some(feed) = self.feeds.get_mut(&proc) else {
            return;
        };
        if feed.writing.is_some() && !feed.scheduled {
            feed.scheduled = true;
            let delay = world.delay(world.latency.io_max);
            world.after(
                delay,
                Event::FeedStdin {
                    node: self.id,
                    proc,
                },
            );
        }
    }

    pub(super) fn feed(&mut self, world: &mut World, proc: ProcId) {
        let Some(feed) = self.feeds.get_mut(&proc) else {
            return;
        };
        feed.scheduled = false;
        let Some(mut bytes) = feed.writing.take() else {
            return;
        };
        match self.kernel.put(world.now, feed.pipe, &mut bytes) {
            Some(put) => {
                feed.written += put as u64;
                if bytes.is_empty() {
                    self.tell(world, Input::StdinWritten { proc });
                } else {
                    feed.writing = Some(bytes);
                    self.absorb(world);
                }
            }
            None => {
                self.close_feed(world, proc);
                self.tell(world, Input::StdinBroken { proc });
            }
        }
    }

    pub(super) fn close_feed(&mut self, world: &mut World, proc: ProcId) {
        if let Some(feed) = self.feeds.remove(&proc) {
            self.kernel.close_writer(world.now, feed.pipe);
        }
    }

    /// Returns the maximum amount of uncredited output of a job on this node, for each stream. When the window is full, one
    /// more read and the partial line of each rank may still be sent.
    pub(super) fn window_bound(&self, job: JobId) -> u64 {
        let each = LINE_MAX as u64 + 1_024;
        OUTPUT_WINDOW
            + READ_MAX as u64
            + each * self.shares.get(&job).map_or(0, |share| share.ranks.len()) as u64
    }
}
