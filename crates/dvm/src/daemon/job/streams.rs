//! Output and input of procs: chunks, windows, credit, EOF.

use base::{Rank, Time};
use bytes::Bytes;

use super::{Audience, LocalJob, Out, slot};
use crate::{
    daemon::{Output, proc_id},
    planted::{self, Bug},
    proto::{Chunk, Stream, ToController},
    spec::WindowSize,
    stdio::{Feed, Feeder, Flow, Piece},
};

impl LocalJob {
    pub(in crate::daemon) fn on_output(
        &mut self,
        now: Time,
        rank: Rank,
        stream: Stream,
        bytes: Bytes,
        out: &mut Out,
    ) {
        let Some(proc) = self.procs.get_mut(&rank) else {
            return;
        };
        proc.life.on_output(now, stream);
        let leak_at = proc.life.leak_deadline();
        let assembler = proc.assembler(stream);
        let mut pieces = Vec::new();
        assembler.push(now, bytes, &mut pieces);
        let flush_at = assembler.deadline();
        self.wake_at(leak_at);
        self.wake_at(flush_at);
        self.pass_on(rank, stream, pieces, out);
    }

    pub(in crate::daemon) fn on_output_ended(
        &mut self,
        now: Time,
        rank: Rank,
        stream: Stream,
        out: &mut Out,
    ) {
        let Some(proc) = self.procs.get_mut(&rank) else {
            return;
        };
        if !proc.life.is_open(stream) {
            return;
        }
        let mut pieces = Vec::new();
        proc.assembler(stream).finish(&mut pieces);
        proc.life.on_stream_ended(stream);
        self.pass_on(rank, stream, pieces, out);
        self.report_if_done(now, rank, out);
    }

    pub(super) fn pass_on(
        &mut self,
        rank: Rank,
        stream: Stream,
        pieces: Vec<Piece>,
        out: &mut Out,
    ) {
        let job = self.launch.job;
        if self.audience == Audience::Gone {
            return;
        }
        for (bytes, end) in pieces {
            let shut = self.windows[slot(stream)].sent(bytes.len());
            let chunk = Chunk {
                job: self.launch.job,
                rank,
                stream,
                bytes,
                end,
            };
            out.push_back(Output::Send(ToController::Output { job, chunk }));
            if shut.is_some() && !planted::is(Bug::PauseNotSent) {
                for (rank, _) in self
                    .procs
                    .iter()
                    .filter(|(_, proc)| proc.life.is_open(stream))
                {
                    out.push_back(Output::Pause {
                        proc: proc_id(job, *rank),
                        stream,
                    });
                }
            }
        }
    }

    pub(in crate::daemon) fn on_output_credit(
        &mut self,
        now: Time,
        stream: Stream,
        bytes: u64,
        out: &mut Out,
    ) {
        if self.windows[slot(stream)].credited(bytes) != Some(Flow::Open) {
            return;
        }
        let mut check = None;
        for (rank, proc) in self
            .procs
            .iter_mut()
            .filter(|(_, proc)| proc.life.is_open(stream))
        {
            proc.life.on_reading_resumed(now, stream);
            proc.assembler(stream).on_reading_resumed(now);
            let timers = [proc.life.leak_deadline(), proc.assembler(stream).deadline()];
            check = timers.into_iter().flatten().chain(check).min();
            if planted::is(Bug::ResumeForgotten) {
                continue;
            }
            out.push_back(Output::Resume {
                proc: proc_id(self.launch.job, *rank),
                stream,
            });
        }
        self.wake_at(check);
    }

    pub(in crate::daemon) fn on_stdin(&mut self, bytes: &Bytes, out: &mut Out) {
        let mut fed = Vec::new();
        for (rank, proc) in &mut self.procs {
            if let Some(feeder) = &mut proc.feeder {
                feeder.push(bytes.clone());
                fed.push(*rank);
            }
        }
        for rank in fed {
            self.feed(rank, out);
        }
    }

    pub(in crate::daemon) fn on_stdin_eof(&mut self, out: &mut Out) {
        let ranks: Vec<_> = self.procs.keys().copied().collect();
        for rank in ranks {
            if let Some(feeder) = self
                .procs
                .get_mut(&rank)
                .and_then(|proc| proc.feeder.as_mut())
            {
                feeder.end();
                self.feed(rank, out);
            }
        }
    }

    pub(in crate::daemon) fn on_stdin_written(&mut self, rank: Rank, out: &mut Out) {
        let Some(proc) = self.procs.get_mut(&rank) else {
            return;
        };
        let Some(feeder) = &mut proc.feeder else {
            return;
        };
        let before = feeder.consumed();
        feeder.written();
        self.input.advance(before, feeder.consumed());
        self.credit_stdin(out);
        self.feed(rank, out);
        self.take_pushed(out);
    }

    pub(in crate::daemon) fn on_stdin_broken(&mut self, rank: Rank, out: &mut Out) {
        self.stop_feeding(rank, out);
    }

    pub(super) fn feed(&mut self, rank: Rank, out: &mut Out) {
        let Some(proc) = self.procs.get_mut(&rank) else {
            return;
        };
        if !proc.life.is_alive() {
            return;
        }
        let id = proc_id(self.launch.job, rank);
        match proc.feeder.as_deref_mut().and_then(Feeder::poll) {
            Some(Feed::Write(bytes)) => out.push_back(Output::WriteStdin { proc: id, bytes }),
            Some(Feed::Close) => {
                if let Some(feeder) = proc.feeder.take() {
                    self.input.leave(feeder.consumed());
                }
                out.push_back(Output::CloseStdin { proc: id });
                self.close_stdin_if_unread(out);
            }
            None => {}
        }
    }

    pub(super) fn stop_feeding(&mut self, rank: Rank, out: &mut Out) {
        let Some(feeder) = self
            .procs
            .get_mut(&rank)
            .and_then(|proc| proc.feeder.take())
        else {
            return;
        };
        self.input.leave(feeder.consumed());
        self.credit_stdin(out);
        out.push_back(Output::CloseStdin {
            proc: proc_id(self.launch.job, rank),
        });
        self.close_stdin_if_unread(out);
        self.take_pushed(out);
    }

    /// Sends credit for the input that every reader has consumed.
    fn credit_stdin(&mut self, out: &mut Out) {
        if let Some(bytes) = self.input.due() {
            out.push_back(Output::Send(ToController::StdinCredit {
                job: self.launch.job,
                bytes,
            }));
        }
    }

    pub(super) fn close_stdin_if_unread(&mut self, out: &mut Out) {
        if !self.stdin_closed && self.input.is_unread() {
            self.stdin_closed = true;
            out.push_back(Output::Send(ToController::StdinClosed {
                job: self.launch.job,
            }));
        }
    }

    pub(in crate::daemon) fn resize(&mut self, size: WindowSize, out: &mut Out) {
        for (rank, proc) in &self.procs {
            let has_terminal =
                self.launch.has_pty(*rank) || self.line_terminal(*rank, Stream::Stdout).is_some();
            if has_terminal && proc.life.is_alive() {
                out.push_back(Output::Resize {
                    proc: proc_id(self.launch.job, *rank),
                    size,
                });
            }
        }
    }
}
