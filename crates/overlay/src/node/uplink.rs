//! The way to the root: which process is dialed, at which addresses, and what that led to.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use base::Time;

use super::{Conn, DialError, LinkState, Node, Output, Phase, Side};
use crate::{
    packet::{Address, Hello, Loss, Note, Reason, Welcome},
    secure::Secure,
};

/// Time after which the next address is dialed, while the ones before have not answered yet.
pub const DIAL_STAGGER: Duration = Duration::from_millis(250);
/// Time within which a dialed address has to answer.
pub const DIAL_MAX: Duration = Duration::from_secs(5);
/// The same while a link can be resumed. The network may work again at any time, and the kernel's own attempts become rare.
const REDIAL_MAX: Duration = Duration::from_millis(500);
/// Time for which a process waits for its place, which it gets when the process above it has joined. The root gives up
/// earlier. Meanwhile it sends signs of life.
pub const PLACE_MAX: Duration = Duration::from_secs(600);
/// Pause before all addresses are dialed again, while a link can be resumed.
const DIAL_PAUSE: Duration = Duration::from_millis(100);

/// Time for which a process is dialed again that closes connections without an answer: it may have too many at the moment.
pub const AGAIN_MAX: Duration = Duration::from_secs(10);

/// What a connection is dialed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Join(Reason),
    /// Continue the link, which can be resumed until then.
    Resume {
        until: Time,
    },
    /// Get another place, after the loss of the parent.
    Return,
}

#[derive(Debug)]
pub(super) enum Uplink {
    Dialing(Dialing),
    Joined {
        parent: Address,
        /// Where the parent was reached.
        at: SocketAddr,
    },
    /// There is no way, or none is needed.
    Over,
}

/// The attempts to reach one process.
#[derive(Debug)]
pub(super) struct Dialing {
    whom: Address,
    at: Vec<SocketAddr>,
    purpose: Purpose,
    /// Index of the address to dial next.
    next: usize,
    next_at: Time,
    /// True once a handshake is complete: the other addresses are not needed.
    is_greeted: bool,
    /// Until then, connections that were closed without an answer are made again.
    again: Time,
    /// Until then the process waits for its place, or dials the root to get another one.
    until: Time,
    /// The number of the link that a hello asks for.
    link: Option<u64>,
    /// Connections that have not failed, with the time at which they do.
    open: Vec<(Conn, SocketAddr, Time)>,
    failed: Vec<(SocketAddr, DialError)>,
}

impl Uplink {
    pub(super) fn start(now: Time, whom: Address, at: Vec<SocketAddr>, purpose: Purpose) -> Self {
        Self::until(now, whom, at, purpose, now + PLACE_MAX)
    }

    /// Dials the root until then, to get another place.
    pub(super) fn restart(now: Time, at: Vec<SocketAddr>, until: Time) -> Self {
        Self::until(now, Address::ROOT, at, Purpose::Return, until)
    }

    fn until(now: Time, whom: Address, at: Vec<SocketAddr>, purpose: Purpose, until: Time) -> Self {
        Self::Dialing(Dialing {
            whom,
            at,
            purpose,
            next: 0,
            next_at: now,
            is_greeted: false,
            again: now + AGAIN_MAX,
            until,
            link: None,
            open: Vec::new(),
            failed: Vec::new(),
        })
    }

    /// Returns true if this process has no way to the root and does not look for one.
    pub(super) const fn is_over(&self) -> bool {
        matches!(self, Self::Over)
    }

    /// Returns the parent, if this process has its place.
    pub(super) const fn parent(&self) -> Option<Address> {
        match self {
            Self::Joined { parent, .. } => Some(*parent),
            // Messages wait in the link while it is resumed.
            Self::Dialing(Dialing {
                whom,
                purpose: Purpose::Resume { .. },
                ..
            }) => Some(*whom),
            Self::Dialing(_) | Self::Over => None,
        }
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        let Self::Dialing(dialing) = self else {
            return None;
        };
        let is_next = dialing.next < dialing.at.len() && !dialing.is_greeted;
        let next = is_next.then_some(dialing.next_at);
        let open = dialing.open.iter().map(|one| one.2);
        open.chain(next).min()
    }
}

impl Dialing {
    /// Returns true if the root is asked for a place, which it may give much later.
    fn waits_for_place(&self) -> bool {
        self.whom == Address::ROOT && matches!(self.purpose, Purpose::Join(_))
    }

    /// Dials all addresses again after a pause.
    fn pause(&mut self, now: Time) {
        self.next = 0;
        self.next_at = now + DIAL_PAUSE;
    }
}

impl Node {
    /// Dials the next address if it is due, and gives up connections that have not answered in time.
    pub(super) fn dial(&mut self, now: Time) {
        let Uplink::Dialing(dialing) = &self.uplink else {
            return;
        };
        let late: Vec<Conn> = dialing
            .open
            .iter()
            .filter(|one| one.2 <= now)
            .map(|one| one.0)
            .collect();
        let patience = match dialing.is_greeted && dialing.waits_for_place() {
            true => self.silence(),
            false => DIAL_MAX,
        };
        for conn in late {
            self.close(conn);
            self.on_dial_failed(now, conn, DialError::Silent(patience));
        }
        if let Uplink::Dialing(dialing) = &self.uplink
            && dialing.at.is_empty()
        {
            return self.on_unreachable(now);
        }
        if let Uplink::Dialing(dialing) = &mut self.uplink
            && dialing.next_at <= now
            && !dialing.is_greeted
            && let Some(to) = dialing.at.get(dialing.next).copied()
        {
            dialing.next += 1;
            dialing.next_at = now + DIAL_STAGGER;
            let config = &self.config;
            let secure = Secure::dial(&config.build, &config.secret, &mut self.entropy);
            let conn = self.add(now, secure, Phase::Dialing);
            if let Uplink::Dialing(dialing) = &mut self.uplink {
                let most = match dialing.purpose {
                    Purpose::Join(_) => DIAL_MAX,
                    Purpose::Resume { .. } | Purpose::Return => REDIAL_MAX,
                };
                dialing.open.push((conn, to, now + most));
            }
            self.outputs.push_back(Output::Dial(conn, to));
        }
    }

    /// Dials the parent again, to resume the link until the given time.
    pub(super) fn redial(&mut self, now: Time, parent: Address, until: Time) {
        if let Uplink::Joined { at, .. } = self.uplink {
            self.uplink = Uplink::start(now, parent, vec![at], Purpose::Resume { until });
            self.dial(now);
        }
    }

    /// Returns the first note of a dialed connection whose handshake is complete. The other connections are closed.
    pub(super) fn greet(&mut self, now: Time, conn: Conn) -> Option<Hello> {
        let silence = self.silence();
        let Uplink::Dialing(dialing) = &mut self.uplink else {
            return None;
        };
        dialing.is_greeted = true;
        let index = dialing.open.iter().position(|one| one.0 == conn)?;
        let mut chosen = dialing.open.swap_remove(index);
        if dialing.waits_for_place() {
            chosen.2 = dialing.until.min(now + silence);
        }
        let others = std::mem::replace(&mut dialing.open, vec![chosen]);
        let number = *dialing.link.get_or_insert_with(|| self.entropy.number());
        let (whom, purpose) = (dialing.whom, dialing.purpose);
        for (other, _, _) in others {
            self.close(other);
        }
        let me = self.config.me;
        match purpose {
            Purpose::Return => self.return_hello(number),
            Purpose::Resume { .. } => self.links.get(&whom).map(|link| Hello::Resume {
                me,
                link: link.number,
                received: link.lanes.received(),
            }),
            Purpose::Join(reason) => Some(Hello::Join {
                me,
                reason,
                link: number,
                at: self.config.at.clone(),
            }),
        }
    }

    /// Returns the time without a sign of life after which the root is given up by a process that waits for its place.
    fn silence(&self) -> Duration {
        self.config.timing.lease + self.config.timing.window
    }

    /// Handles a sign of life on a connection that is no link. Returns false if this process awaits no answer there.
    pub(super) fn is_awaited(&mut self, now: Time, conn: Conn) -> bool {
        let silence = self.silence();
        let Uplink::Dialing(dialing) = &mut self.uplink else {
            return false;
        };
        let (is_place, until) = (dialing.waits_for_place(), dialing.until);
        let Some(open) = dialing.open.iter_mut().find(|one| one.0 == conn) else {
            return false;
        };
        if is_place {
            open.2 = until.min(now + silence);
        }
        dialing.is_greeted
    }

    /// Handles the failure of a dialed connection.
    pub(super) fn on_dial_failed(&mut self, now: Time, conn: Conn, error: DialError) {
        let Uplink::Dialing(dialing) = &mut self.uplink else {
            return;
        };
        let Some(index) = dialing.open.iter().position(|one| one.0 == conn) else {
            return;
        };
        let (_, at, _) = dialing.open.remove(index);
        dialing.failed.push((at, error));
        if std::mem::take(&mut dialing.is_greeted) && dialing.again <= now && now < dialing.until {
            // The process has waited for its place until the network broke the connection.
            dialing.again = now + AGAIN_MAX;
        }
        if dialing.next < dialing.at.len() {
            // Do not wait for the stagger.
            dialing.next_at = now;
            return self.dial(now);
        }
        if dialing.open.is_empty() {
            self.on_unreachable(now);
        }
    }

    /// Handles that no address of the dialed process has led to it.
    fn on_unreachable(&mut self, now: Time) {
        let Uplink::Dialing(dialing) = &mut self.uplink else {
            return;
        };
        let failed = std::mem::take(&mut dialing.failed);
        let whom = dialing.whom;
        let is_unanswered = failed.iter().any(|one| one.1 == DialError::Unanswered);
        match dialing.purpose {
            Purpose::Join(_) if is_unanswered && now < dialing.again => dialing.pause(now),
            Purpose::Join(Reason::Place) if whom != Address::ROOT => {
                let purpose = Purpose::Join(Reason::Unreachable);
                self.uplink = Uplink::start(now, Address::ROOT, self.root.clone(), purpose);
                self.dial(now);
            }
            Purpose::Join(_) => {
                self.hang_up();
                self.outputs.push_back(Output::Unreachable(failed));
            }
            Purpose::Resume { until } => {
                // A refused connection means that the process has died.
                let is_dead = failed
                    .iter()
                    .all(|(_, error)| matches!(error, DialError::Refused | DialError::Declined(_)));
                if is_dead || until <= now + DIAL_PAUSE {
                    let loss = match self.links.get(&whom).map(|link| &link.state) {
                        Some(LinkState::Down { loss, .. }) => loss.clone(),
                        _ => Loss::Closed,
                    };
                    self.lose_link(now, whom, loss);
                } else {
                    dialing.pause(now);
                }
            }
            Purpose::Return => {
                // The root has refused this process, or has died. Any other failure may pass.
                let is_refused = failed
                    .iter()
                    .any(|(_, error)| matches!(error, DialError::Declined(_)));
                let is_closed = |error| matches!(error, &DialError::Refused | DialError::System(_));
                let is_dead = failed.iter().all(|one| is_closed(&one.1))
                    && failed.iter().any(|one| one.1 == DialError::Refused);
                if is_refused || is_dead || dialing.until <= now + DIAL_PAUSE {
                    self.give_up_return();
                } else {
                    dialing.pause(now);
                }
            }
        }
    }

    /// Closes the connection on which the parent was silent.
    fn close_silent(&mut self) {
        let connections = self.connections.iter();
        let mut silent = connections.filter(|(_, one)| matches!(one.phase, Phase::Silent));
        if let Some(conn) = silent.next().map(|(conn, _)| *conn) {
            self.close(conn);
        }
    }

    /// Closes what is dialed.
    pub(super) fn stop_dialing(&mut self) {
        self.close_silent();
        if let Uplink::Dialing(dialing) = std::mem::replace(&mut self.uplink, Uplink::Over) {
            for (conn, _, _) in dialing.open {
                self.close(conn);
            }
        }
    }

    /// Closes what is dialed, and the connections of those that wait: there is no way to the root any more.
    pub(super) fn hang_up(&mut self) {
        self.stop_dialing();
        let waiting: Vec<Conn> = self.waiting.values().copied().collect();
        for conn in waiting {
            self.close(conn);
        }
    }

    pub(super) fn on_welcome(&mut self, now: Time, conn: Conn, welcome: Welcome) {
        let Uplink::Dialing(dialing) = &mut self.uplink else {
            return self.break_rules(now, conn, "it sent a welcome that was not expected");
        };
        let Some((_, at, _)) = dialing.open.iter().find(|one| one.0 == conn).copied() else {
            return self.break_rules(now, conn, "it sent a welcome that was not expected");
        };
        let whom = dialing.whom;
        match (welcome, dialing.purpose) {
            (Welcome::Child, Purpose::Join(_)) => {
                let number = dialing.link.unwrap_or_default();
                self.settle(conn, whom, at);
                self.link(now, conn, whom, number, Side::Parent);
                if let Some(connection) = self.connections.get_mut(&conn) {
                    // The parent announces us to the root when it hears something on this link.
                    connection.notes.push_back(Note::Alive);
                }
                self.has_place = true;
                self.outputs.push_back(Output::Ready);
                self.place_waiting(now, self.config.me);
            }
            (Welcome::Child, Purpose::Return) => {
                let number = dialing.link.unwrap_or_default();
                self.settle(conn, whom, at);
                self.link(now, conn, whom, number, Side::Parent);
                self.on_returned(now);
            }
            (Welcome::Resumed { received }, Purpose::Resume { .. }) => {
                self.settle(conn, whom, at);
                self.continue_link(now, conn, whom, received);
            }
            (Welcome::Elsewhere { parent, at }, Purpose::Join(Reason::Start)) => {
                let others: BTreeSet<Conn> = dialing.open.iter().map(|one| one.0).collect();
                self.uplink = Uplink::start(now, parent, at, Purpose::Join(Reason::Place));
                for one in others {
                    self.close(one);
                }
                self.dial(now);
            }
            (Welcome::Refused(refusal), _) => {
                self.close(conn);
                self.on_dial_failed(now, conn, refusal.into());
            }
            (Welcome::Child | Welcome::Resumed { .. } | Welcome::Elsewhere { .. }, _) => {
                self.break_rules(now, conn, "it sent another welcome than was asked for");
            }
        }
    }

    /// Keeps one of the dialed connections and closes the others.
    fn settle(&mut self, conn: Conn, parent: Address, at: SocketAddr) {
        self.close_silent();
        let joined = Uplink::Joined { parent, at };
        if let Uplink::Dialing(dialing) = std::mem::replace(&mut self.uplink, joined) {
            for (other, _, _) in dialing.open {
                if other != conn {
                    self.close(other);
                }
            }
        }
    }
}
