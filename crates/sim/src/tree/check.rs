//! What happened in a tree, and the checks.

use std::collections::{BTreeMap, BTreeSet};

use base::Time;
use bytes::Bytes;
use overlay::{
    Address,
    lanes::{Lane, window},
    node::{DialError, Load, OUTBOX_MAX, Output, Timing},
    secure::SecureError,
};

use super::{
    gathers::Gathers,
    messages,
    plan::{LONGEST, Stranger},
};
use crate::{
    members::{Members, restless},
    net::{self, Net},
    record::{Played, Record, Recorded, Report},
};

/// What the heads of messages add to their lengths, at most.
const HEADS: u64 = 4_096;

/// What was sent and received, for each process and lane.
type Log = BTreeMap<(Address, Lane), Vec<u32>>;

#[derive(Debug)]
pub(super) struct Ledger {
    record: Record,
    pub(super) members: Members,
    pub(super) gathers: Gathers,
    sent: Log,
    received: Log,
    cast: Log,
    delivered: Log,
    /// The largest number of a bulk message, by receiver and sender.
    bulk: BTreeMap<(Address, Address), u32>,
    /// Strangers that the root has to report, and how often it has.
    pub(super) refused: BTreeMap<Address, Stranger>,
    reports: BTreeMap<Address, u32>,
}

impl Ledger {
    pub(super) fn new(timing: Timing, members: u32, recorded: Recorded) -> Self {
        Self {
            record: Record::new(recorded),
            members: Members::new(timing, members),
            gathers: Gathers::new(),
            sent: Log::new(),
            received: Log::new(),
            cast: Log::new(),
            delivered: Log::new(),
            bulk: BTreeMap::new(),
            refused: BTreeMap::new(),
            reports: BTreeMap::new(),
        }
    }

    pub(super) fn note(&mut self, now: Time, what: impl FnOnce() -> String) {
        self.record.note(now, what);
    }

    pub(super) fn fault(&mut self, now: Time, what: String) {
        self.record.fault(now, what);
    }

    pub(super) fn fault_if(&mut self, now: Time, wrong: Option<String>) {
        if let Some(wrong) = wrong {
            self.fault(now, wrong);
        }
    }

    fn require(&mut self, now: Time, holds: bool, what: impl FnOnce() -> String) {
        self.record.require(now, holds, what);
    }

    pub(super) const fn is_faulty(&self) -> bool {
        self.record.is_faulty()
    }

    pub(super) fn into_played(self, report: Report) -> Played {
        self.record.into_played(report)
    }

    pub(super) fn on_sent(&mut self, now: Time, from: Address, lane: Lane, message: u32) {
        self.note(now, || format!("{from} sends {message} on {lane:?}"));
        self.sent.entry((from, lane)).or_default().push(message);
    }

    pub(super) fn on_cast(&mut self, to: &BTreeSet<Address>, lane: Lane, message: u32) {
        for who in to {
            self.cast.entry((*who, lane)).or_default().push(message);
        }
    }

    pub(super) fn on_news(&mut self, now: Time, who: Address, news: Output) {
        if !matches!(news, Output::Received { .. } | Output::Merged { .. }) {
            self.note(now, || format!("{who}: {news:?}"));
        }
        match news {
            Output::Received { from, lane, body } => {
                self.received(now, who, (&[from].into(), lane, &body));
            }
            Output::Merged { of, lane, body } => self.received(now, who, (&of, lane, &body)),
            news @ (Output::Joined(_)
            | Output::Lost { .. }
            | Output::Ready
            | Output::Unreachable(_)
            | Output::Abandoned(_)
            | Output::Ended) => {
                let wrong = self.members.on_news(now, who, &news);
                self.fault_if(now, wrong);
            }
            Output::Refused { from, why } => {
                let is_from = |who: &Address| net::at(*who).ip() == from.ip();
                let stranger = self.refused.iter().find(|(who, _)| is_from(who));
                if let Some((who, stranger)) = stranger.map(|(who, what)| (*who, *what)) {
                    *self.reports.entry(who).or_default() += 1;
                    let is_why = match stranger {
                        Stranger::Secret => matches!(why, DialError::Secure(SecureError::Secret)),
                        Stranger::Build => {
                            matches!(why, DialError::Secure(SecureError::Build { .. }))
                        }
                        _ => true,
                    };
                    self.require(now, is_why, || {
                        format!("a stranger ({stranger:?}) is refused, because {why}")
                    });
                }
            }
            Output::Asked { id, .. } => {
                let wrong = self.gathers.on_asked(now, who, id);
                self.fault_if(now, wrong);
            }
            Output::Part { id, of, body } => {
                let wrong = self.gathers.on_part(id, &of, &body);
                self.fault_if(now, wrong);
            }
            Output::Gathered { id, missing } => {
                let wrong = self.gathers.on_gathered(now, &self.members, id, &missing);
                self.fault_if(now, wrong);
            }
            Output::Dial(..) | Output::Close(_) => {}
        }
    }

    /// Checks messages that came together.
    fn received(&mut self, now: Time, who: Address, came: (&BTreeSet<Address>, Lane, &Bytes)) {
        let (of, lane, body) = came;
        let Some(messages) = messages(of, body) else {
            return self.fault(now, format!("{who} gets a message that nobody sent"));
        };
        for (from, message) in messages {
            self.note(now, || {
                format!("{who} gets {message} of {from} on {lane:?}")
            });
            if who == Address::ROOT {
                let is_member = self.members.is_member(from);
                self.require(now, is_member, || {
                    format!("{from} speaks, and is no member")
                });
                self.arrived(now, who, from, lane, message);
            } else {
                self.arrived(now, who, who, lane, message);
            }
        }
    }

    /// Checks that a message is the next one of its sender on its lane, and overtakes no control message.
    fn arrived(&mut self, now: Time, at: Address, key: Address, lane: Lane, message: u32) {
        let (sent, received) = if at == Address::ROOT {
            (&self.sent, &mut self.received)
        } else {
            (&self.cast, &mut self.delivered)
        };
        let received = received.entry((key, lane)).or_default();
        let sent = sent.get(&(key, lane)).map_or(&[][..], Vec::as_slice);
        let expected = sent.get(received.len()).copied();
        received.push(message);
        let bulk = self.bulk.entry((at, key)).or_default();
        let overtaken = (lane == Lane::Control && *bulk > message).then_some(*bulk);
        if lane == Lane::Bulk {
            *bulk = (*bulk).max(message);
        }
        self.require(now, expected == Some(message), || {
            format!("{at} gets message {message} of or for {key}, the next one is {expected:?}")
        });
        self.require(now, overtaken.is_none(), || {
            format!("{at}: bulk message {overtaken:?} has overtaken {message}")
        });
    }

    /// Checks the bounds of what waits in a process.
    pub(super) fn check_load(&mut self, now: Time, who: Address, load: &Load) {
        let deaths = u64::try_from(self.members.unlucky()).unwrap_or(u64::MAX);
        let frame = LONGEST as u64 + HEADS;
        let both: u64 = Lane::ALL.into_iter().map(window).sum();
        // A process that was lost leaves what had arrived. After the loss of its parent, a process sends again what it keeps.
        let resent = if deaths > 0 { OUTBOX_MAX } else { 0 };
        let up = (both + 4 * frame) * (1 + deaths) + resent;
        self.require(now, load.to_parent <= up, || {
            format!(
                "{} bytes wait at {who} for its parent, {up} may",
                load.to_parent
            )
        });
        let arrived = both + 2 * frame;
        self.require(now, load.arrived <= arrived, || {
            format!(
                "{} bytes of one peer wait at {who}, {arrived} may",
                load.arrived
            )
        });
        let kept = OUTBOX_MAX + frame;
        self.require(now, load.outbox <= kept, || {
            format!(
                "{who} keeps {} bytes for the root, {kept} may be",
                load.outbox
            )
        });
    }

    /// Checks, when nothing happens any more, that all that could arrive has arrived, and that nothing waits.
    pub(super) fn check_rest(&mut self, net: &Net, members: u32) {
        let now = net.now;
        for who in (1..=members).map(Address) {
            if net.node(who).is_none() || !self.members.is_lucky(who) {
                continue;
            }
            for lane in Lane::ALL {
                let up = (&self.sent, &self.received);
                let down = (&self.cast, &self.delivered);
                let missing = [up, down].into_iter().find_map(|(sent, received)| {
                    let of = |log: &Log| log.get(&(who, lane)).map_or(0, Vec::len);
                    (of(sent) != of(received)).then(|| (of(sent), of(received)))
                });
                self.require(now, missing.is_none(), || {
                    format!("sent and received by or for {who} on {lane:?}: {missing:?}")
                });
            }
        }
        let wrong = self.members.check_rest(net);
        let wrong = wrong.or_else(|| self.gathers.check_rest());
        self.fault_if(now, wrong.or_else(|| restless(net, members)));
        for (stranger, what) in self.refused.clone() {
            let reports = self.reports.get(&stranger).copied().unwrap_or(0);
            self.require(now, reports == 1, || {
                format!("a stranger ({what:?}) is reported {reports} times")
            });
        }
    }

    /// Checks that every member has heard the end.
    pub(super) fn check_end(&mut self, now: Time) {
        let wrong = self.members.check_end();
        self.fault_if(now, wrong);
    }
}
