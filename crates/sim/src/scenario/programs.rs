//! Random programs that do not use PMIx.

use std::time::Duration;

use base::{Rank, Signal};
use dvm::proto::Stream;
use pmix::pmi::Dialect;

use super::make::{Maker, RANKS_MAX, Spoiling};
use crate::script::{FOR_EVER, Fork, Op, PmiOp, line, words};

impl Maker<'_> {
    /// Returns the last operation of a program, usually a successful exit.
    pub(super) fn ending(&mut self) -> Op {
        match self.rng.below(10) {
            0 => Op::Exit(u8::try_from(self.rng.between(1, 255)).unwrap_or(1)),
            1 => Op::Crash(
                self.rng
                    .pick([Signal::SEGV, Signal::ABRT, Signal::KILL, Signal::PIPE]),
            ),
            _ => Op::Exit(0),
        }
    }

    /// Returns the operations of a program that does not end by itself.
    pub(super) fn endless(&mut self) -> Vec<Op> {
        self.needs_end = true;
        let mut ops = Vec::new();
        if self.rng.chance(30) {
            ops.push(Op::IgnoreTerm);
        }
        ops.push(if self.rng.chance(25) {
            Op::Stop
        } else {
            Op::Sleep(FOR_EVER)
        });
        ops
    }

    /// Returns a fork whose child may outlive the rank.
    pub(super) fn stray(&mut self) -> Op {
        let mut ops = Vec::new();
        for stream in Stream::BOTH {
            if self.rng.chance(60) {
                ops.push(Op::Close(stream));
            }
        }
        match self.rng.below(8) {
            0 => ops.push(Op::IgnoreTerm),
            1 => {
                // The child writes now and then.
                for _ in 0..self.rng.between(1, 40) {
                    ops.push(Op::Sleep(self.rng.millis(10, 900)));
                    ops.push(Op::Write(Stream::Stdout, line(self.rng, 20)));
                }
            }
            2 => ops.push(Op::Stop),
            3 => {
                let time = if self.rng.chance(30) {
                    FOR_EVER
                } else {
                    self.rng.millis(100, 2_500)
                };
                ops.push(Op::Uninterruptible(time));
            }
            4 => {
                let grandchild = vec![Op::IgnoreTerm, Op::Sleep(FOR_EVER)];
                ops.push(Op::Fork(Fork::Session, grandchild));
            }
            _ => {}
        }
        ops.push(Op::Sleep(if self.rng.chance(50) {
            FOR_EVER
        } else {
            self.rng.millis(0, 3_000)
        }));
        Op::Fork(
            self.rng.pick([Fork::Plain, Fork::Session, Fork::Twice]),
            ops,
        )
    }

    /// Returns a program that runs for a while and may leave processes behind.
    pub(super) fn life(&mut self) -> Vec<Op> {
        let mut ops = vec![Op::Sleep(self.rng.millis(0, 80))];
        if self.rng.chance(15) {
            ops.extend(self.endless());
            return ops;
        }
        if self.rng.chance(20) {
            ops.push(Op::IgnoreTerm);
        }
        for _ in 0..self.rng.below(3) {
            ops.push(self.stray());
        }
        if self.rng.chance(50) {
            ops.extend(self.some_output(3));
        }
        ops.push(Op::Sleep(self.rng.millis(0, 1_500)));
        ops.push(self.ending());
        ops
    }

    /// Returns writes of at most `lines` lines, split into pieces of random sizes. Some lines lack their line feed.
    pub(super) fn some_output(&mut self, lines: u64) -> Vec<Op> {
        let mut ops = Vec::new();
        for _ in 0..self.rng.between(0, lines) {
            let stream = if self.rng.chance(75) {
                Stream::Stdout
            } else {
                Stream::Stderr
            };
            let length = match self.rng.below(20) {
                0 => self.rng.length(60_000, 66_000),
                1 => self.rng.length(65_530, 65_542),
                2 => self.rng.length(1, 200_000),
                3..6 => self.rng.length(1_000, 20_000),
                _ => self.rng.length(1, 200),
            };
            let mut rest = if self.rng.chance(12) {
                words(self.rng, length)
            } else {
                line(self.rng, length)
            };
            for _ in 1..self.rng.between(1, 4) {
                let part = self.rng.length(0, rest.len());
                ops.push(Op::Write(stream, rest.split_to(part)));
                if self.rng.chance(60) {
                    let short = self.rng.chance(70);
                    ops.push(Op::Sleep(if short {
                        self.rng.micros(0, 20_000)
                    } else {
                        self.rng.millis(20, 90)
                    }));
                }
            }
            ops.push(Op::Write(stream, rest));
        }
        ops.retain(|op| !matches!(op, Op::Write(_, bytes) if bytes.is_empty()));
        ops
    }

    /// Returns a program that writes as real programs do: lines, prompts, very long lines, streams closed early.
    pub(super) fn writer(&mut self) -> Vec<Op> {
        let mut ops = self.some_output(12);
        if self.rng.chance(15) {
            // A prompt, and a pause in which no answer comes.
            ops.push(Op::Write(Stream::Stdout, words(self.rng, 12)));
            ops.push(Op::Sleep(self.rng.millis(60, 300)));
        }
        if self.rng.chance(2) {
            ops.push(Op::Write(Stream::Stdout, line(self.rng, 10_000_000)));
        }
        if self.rng.chance(20) {
            ops.push(self.stray());
        }
        if self.rng.chance(15) {
            ops.push(Op::Close(Stream::Stdout));
            ops.push(Op::Sleep(self.rng.millis(0, 1_500)));
            ops.extend(self.some_output(3));
        }
        ops.push(self.ending());
        ops
    }

    /// Returns a program that writes this number of mebibytes and exits.
    pub(super) fn flood(&mut self, megabytes: u64) -> Vec<Op> {
        // Some programs begin to write only when the window may already be shut.
        let late = self.rng.chance(30);
        let mut ops = vec![Op::Sleep(if late {
            self.rng.millis(0, 1_000)
        } else {
            Duration::ZERO
        })];
        let mut left = usize::try_from(megabytes << 20).unwrap_or(1 << 20);
        let stream = if self.rng.chance(80) {
            Stream::Stdout
        } else {
            Stream::Stderr
        };
        while left > 0 {
            let length = self.rng.length(10_000, 300_000).min(left);
            left -= length;
            ops.push(Op::Write(stream, line(self.rng, length)));
        }
        if self.rng.chance(30) {
            ops.push(self.stray());
        }
        if self.rng.chance(25) {
            // A descendant may still write after its rank has exited.
            let noise = (0..40)
                .map(|_| Op::Write(stream, line(self.rng, 250_000)))
                .collect();
            ops.push(Op::Fork(Fork::Twice, noise));
        }
        ops.push(self.ending());
        ops
    }

    /// Returns a program that reads its input in one of the ways that real programs do.
    pub(super) fn reader(&mut self) -> Vec<Op> {
        let late = self.rng.chance(15);
        let mut ops = vec![Op::Sleep(if late {
            self.rng.millis(500, 3_000)
        } else {
            self.rng.millis(0, 30)
        })];
        match self.rng.below(10) {
            0..5 => ops.push(Op::ReadToEnd),
            5 => ops.push(Op::Read(self.rng.between(0, 200_000))),
            6 => ops.push(Op::CloseStdin),
            7 => {
                for _ in 0..self.rng.between(1, 12) {
                    ops.push(Op::Read(self.rng.between(1, 200_000)));
                    ops.push(Op::Sleep(self.rng.millis(0, 60)));
                }
                ops.push(Op::ReadToEnd);
            }
            8 => ops.push(Op::Fork(Fork::Plain, vec![Op::ReadToEnd])),
            _ => {}
        }
        self.waits_for_input_end |= ops
            .iter()
            .any(|op| matches!(op, Op::Read(_) | Op::ReadToEnd));
        ops.push(Op::Sleep(self.rng.millis(0, 600)));
        ops.extend(self.some_output(2));
        ops.push(self.ending());
        ops
    }

    /// Returns a program that uses PMI. In each of `fences` rounds, the rank puts a value, publishes a service and enters a
    /// fence. It then looks up the service of its neighbour and gets the values of all ranks.
    ///
    /// The number of fences decides on the protocol: PMI-1 for all ranks, PMI-2 for all, or PMI-1 for
    /// even and PMI-2 for odd ranks.
    pub(super) fn fencer(&mut self, rank: Rank, size: u32, fences: u64) -> Vec<Op> {
        let dialect = match (fences % 3, rank.0 % 2) {
            (0, _) | (2, 0) => Dialect::One,
            _ => Dialect::Two,
        };
        let mut ops = vec![
            Op::Sleep(self.rng.millis(0, 40)),
            Op::Pmi(PmiOp::Init(dialect)),
        ];
        if dialect == Dialect::Two {
            ops.push(Op::Pmi(PmiOp::FullInit));
        }
        let service = |fence: u64, rank: u32| format!("s{fence}-{rank}");
        let port = |fence: u64, rank: u32| format!("port {fence}-{rank}");
        // The even ranks have a barrier of their own, if they use PMI-1.
        let even: Vec<Rank> = (0..size).step_by(2).map(Rank).collect();
        for fence in 0..fences {
            let key = |rank: u32| format!("k{fence}-{rank}");
            let value = |rank: u32| format!("value-{fence}-of-{rank}");
            ops.push(Op::Pmi(PmiOp::Put {
                key: key(rank.0),
                value: value(rank.0),
            }));
            ops.push(Op::Pmi(PmiOp::Publish {
                service: service(fence, rank.0),
                port: port(fence, rank.0),
            }));
            ops.push(Op::Sleep(self.rng.millis(0, 30)));
            if dialect == Dialect::One && rank.0.is_multiple_of(2) {
                ops.push(Op::Pmi(PmiOp::Group(even.clone())));
            }
            ops.push(Op::Pmi(PmiOp::Barrier));
            let neighbour = (rank.0 + 1) % size;
            ops.push(Op::Pmi(PmiOp::Lookup {
                service: service(fence, neighbour),
                port: port(fence, neighbour),
            }));
            // The only rank that looks up the previous service did so before it reached this fence.
            if fence > 0 {
                ops.push(Op::Pmi(PmiOp::Unpublish {
                    service: service(fence - 1, rank.0),
                }));
            }
            for other in 0..size.min(RANKS_MAX) {
                ops.push(Op::Pmi(PmiOp::Get {
                    key: key(other),
                    value: value(other),
                }));
            }
        }
        ops.push(Op::Pmi(PmiOp::Finalize));
        ops.push(Op::Sleep(self.rng.millis(0, 30)));
        ops
    }

    /// Cuts a PMI script at a random position, and appends an exit, a crash, an abort, invalid bytes or a close of
    /// the connection.
    pub(super) fn spoil(&mut self, ops: &mut Vec<Op>, how: Spoiling) {
        let at = self.rng.length(0, ops.len().saturating_sub(2));
        ops.truncate(at);
        let any = how == Spoiling::Any;
        match self.rng.below(5) {
            0 if any => ops.push(Op::Exit(0)),
            1 if any => {
                ops.push(Op::Pmi(PmiOp::HangUp));
                ops.push(Op::Sleep(Duration::from_secs(4)));
            }
            2 => {
                ops.push(Op::Pmi(PmiOp::Abort(17)));
                ops.push(Op::Sleep(FOR_EVER));
            }
            3 => {
                ops.push(Op::Pmi(PmiOp::Garbage));
                ops.push(Op::Sleep(Duration::from_secs(3)));
            }
            _ => ops.push(if self.rng.chance(50) {
                Op::Exit(3)
            } else {
                Op::Crash(Signal::SEGV)
            }),
        }
    }
}
