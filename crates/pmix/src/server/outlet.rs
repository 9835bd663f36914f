//! Output of processes that others want to have.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{Conn, Output, ReplyTo, Server, event::packed};
use crate::{
    codec::Format,
    message::{Answer, Push},
    value::{IofChannels, Nspace, Proc, Status},
};

/// What one connection may want output of, in so many requests at once. The next one is OUT_OF_RESOURCE.
pub const MAX_OUTLETS: usize = 256;
/// Processes that one request for output may name. More are BAD_PARAM: all of a job are one name.
pub const MAX_OUTLET_PROCS: usize = 4096;

/// Who wants what output.
#[derive(Debug, Default)]
pub(super) struct Outlets {
    /// By the number that the server has given.
    by_number: BTreeMap<u64, Outlet>,
    /// What the host was told to feed.
    wanted: BTreeMap<Nspace, IofChannels>,
    next: u64,
}

#[derive(Debug)]
struct Outlet {
    conn: Conn,
    /// The number that the receiver has chosen.
    id: u64,
    procs: Vec<Proc>,
    channels: IofChannels,
}

impl Outlets {
    fn insert(&mut self, outlet: Outlet) -> Result<u64, Status> {
        let same = |other: &&Outlet| other.conn == outlet.conn;
        if self.by_number.values().filter(same).count() >= MAX_OUTLETS {
            return Err(Status::OUT_OF_RESOURCE);
        }
        let number = self.next;
        self.next += 1;
        self.by_number.insert(number, outlet);
        Ok(number)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_number.is_empty() && self.wanted.is_empty()
    }
}

impl Server {
    pub(super) fn on_pull(
        &mut self,
        reply: ReplyTo,
        from: &Proc,
        procs: Vec<Proc>,
        channels: IofChannels,
        id: u64,
    ) {
        if procs.is_empty() || procs.len() > MAX_OUTLET_PROCS {
            return self.status(reply, Status::BAD_PARAM);
        }
        let conn = reply.conn;
        let mut meant = Vec::with_capacity(procs.len());
        for proc in procs {
            match self.group_of(from, &proc) {
                Some(members) if !self.jobs.contains_key(&proc.nspace) => meant.extend(members),
                _ => meant.push(proc),
            }
        }
        let outlet = Outlet {
            conn,
            id,
            procs: meant,
            channels,
        };
        match self.outlets.insert(outlet) {
            Ok(number) => {
                let status = Status::SUCCESS;
                self.answer(reply, &Answer::Number { status, number });
                self.say_wanted();
            }
            Err(status) => self.status(reply, status),
        }
    }

    /// Output of a job goes to a process from its beginning, under the number 0: it has spawned the job.
    pub(super) fn forward(&mut self, nspace: &Nspace, to: &Proc, channels: IofChannels) {
        let conn = self.peers.iter().find_map(|(conn, peer)| {
            let known = peer.connected()?;
            (known.proc == *to).then_some(*conn)
        });
        let Some(conn) = conn else {
            return;
        };
        let outlet = Outlet {
            conn,
            id: 0,
            procs: vec![Proc::all(nspace.clone())],
            channels,
        };
        if self.outlets.insert(outlet).is_ok() {
            self.say_wanted();
        }
    }

    pub(super) fn on_stop_pulling(&mut self, reply: ReplyTo, number: u64) {
        let outlets = &mut self.outlets.by_number;
        let own = outlets
            .get(&number)
            .is_some_and(|outlet| outlet.conn == reply.conn);
        let status = if own {
            outlets.remove(&number);
            Status::SUCCESS
        } else {
            Status::NOT_FOUND
        };
        self.status(reply, status);
        self.say_wanted();
    }

    /// Output of a process, for those who want it. No bytes are the end of the stream.
    pub(super) fn on_output(&mut self, proc: &Proc, channels: IofChannels, bytes: &Bytes) {
        let mut due = Vec::new();
        for outlet in self.outlets.by_number.values() {
            let wants = outlet.channels.meets(channels)
                && outlet.procs.iter().any(|wanted| wanted.covers(proc));
            let known = self.peers.get(&outlet.conn);
            if let Some(known) = known.and_then(|peer| peer.connected())
                && wants
                // What a process has written is no news to it, and it might write it once more.
                && known.proc != *proc
            {
                due.push((outlet.conn, outlet.id, known.format));
            }
        }
        // Packed once for all who get the same: those who have spawned a job.
        let mut last: Option<(u64, Format, Bytes)> = None;
        for (conn, id, format) in due {
            let message = match last.take() {
                Some((last_id, last_format, message)) if (last_id, last_format) == (id, format) => {
                    message
                }
                _ => packed(
                    &Push::Output {
                        source: proc.clone(),
                        channels,
                        id,
                        infos: Vec::new(),
                        bytes: bytes.clone(),
                    },
                    format,
                ),
            };
            self.out.push_back(Output::Send {
                conn,
                bytes: message.clone(),
            });
            last = Some((id, format, message));
        }
    }

    /// A connection is gone, or takes no part any more.
    pub(super) fn outlets_of(&mut self, conn: Conn) {
        self.outlets
            .by_number
            .retain(|_, outlet| outlet.conn != conn);
        self.say_wanted();
    }

    /// A job is over.
    pub(super) fn outlets_without(&mut self, nspace: &Nspace) {
        self.outlets.by_number.retain(|_, outlet| {
            outlet.procs.retain(|proc| proc.nspace != *nspace);
            !outlet.procs.is_empty()
        });
        // The host knows.
        self.outlets.wanted.remove(nspace);
    }

    /// Tells the host what has changed in what it is to feed.
    fn say_wanted(&mut self) {
        let mut wanted: BTreeMap<Nspace, IofChannels> = BTreeMap::new();
        for outlet in self.outlets.by_number.values() {
            for proc in &outlet.procs {
                let channels = wanted.entry(proc.nspace.clone()).or_default();
                *channels = channels.with(outlet.channels);
            }
        }
        if wanted == self.outlets.wanted {
            return;
        }
        let before = std::mem::replace(&mut self.outlets.wanted, wanted);
        for (nspace, channels) in &self.outlets.wanted {
            if before.get(nspace) != Some(channels) {
                self.out.push_back(Output::Wanted {
                    nspace: nspace.clone(),
                    channels: *channels,
                });
            }
        }
        for nspace in before.into_keys() {
            if !self.outlets.wanted.contains_key(&nspace) {
                self.out.push_back(Output::Wanted {
                    nspace,
                    channels: IofChannels::default(),
                });
            }
        }
    }
}
