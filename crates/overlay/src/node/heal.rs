//! The loss of a process between the root and others: its children return to the root, with everybody below them.
//!
//! | step | who | what |
//! |---|---|---|
//! | 1 | the parent of the lost process | reports it with `Head::Lost` |
//! | 1 | each child of the lost process | keeps what is below it, dials the root, and says `Hello::Return` |
//! | 2 | the root | reports [`Output::Lost`] for the process alone; those below it are orphans |
//! | 3 | the root | gives the child a place below itself, in whatever order 1 and 2 were |
//! | 4 | both | send again what was lost on the way ([`super::delivery`]) |
//! | 5 | the root | reports the orphans that have not returned within a lease and a window |
//!
//! A process that returns after the root has reported it as lost is refused. Then it gives up, and its children return in turn.

use std::{collections::BTreeSet, net::SocketAddr};

use base::Time;
use bytes::Bytes;

use super::{
    Comer, Conn, LinkState, Node, Output, Side, Standing, Timing, delivery::Outbox, uplink::Uplink,
};
use crate::{
    lanes::Lane,
    packet::{Address, Head, Hello, Loss, Members, Note, Refusal, Then, Welcome},
    planted::{self, Bug},
};

/// A process that the root expects to return.
#[derive(Debug)]
pub(super) struct Orphan {
    /// The process whose loss has cut it off.
    of: Address,
    until: Time,
}

/// A process that has lost its parent and dials the root.
#[derive(Debug)]
pub(super) struct Returning {
    loss: Loss,
    /// What it says is below it.
    below: Option<BTreeSet<Address>>,
}

impl Node {
    /// Handles the loss of the parent.
    pub(super) fn on_parent_lost(&mut self, now: Time, parent: Address, loss: Loss) {
        self.stop_dialing();
        self.held.forget();
        if self.is_ended {
            // The parent has left behind its goodbye. Those below have got theirs too.
            self.uplink = Uplink::Over;
            return;
        }
        let is_last = planted::is(Bug::ReturnNotTried);
        if parent == Address::ROOT || self.root.is_empty() || is_last {
            return self.abandon(loss);
        }
        self.returning = Some(Returning { loss, below: None });
        let Timing { lease, window } = self.config.timing;
        self.uplink = Uplink::restart(now, self.root.clone(), now + lease + window);
        self.dial(now);
    }

    /// Gives up: there is no way to the root.
    pub(super) fn abandon(&mut self, loss: Loss) {
        self.hang_up();
        self.has_place = false;
        self.outbox = Outbox::default();
        self.forget_gathers();
        self.outputs.push_back(Output::Abandoned(loss));
        // Those below return to the root. They hear it now, and not when the caller has cleaned up.
        for link in std::mem::take(&mut self.links).into_values() {
            if let LinkState::Up { conn, .. } | LinkState::Ending { conn, .. } = link.state {
                self.close(conn);
            }
        }
    }

    /// Gives up after attempts to return.
    pub(super) fn give_up_return(&mut self) {
        let returning = self.returning.take();
        self.abandon(returning.map_or(Loss::Closed, |returning| returning.loss));
    }

    /// Returns the hello of a process that returns.
    pub(super) fn return_hello(&mut self, link: u64) -> Option<Hello> {
        let known = self.all_below();
        let below = self.returning.as_mut()?.below.get_or_insert(known);
        Some(Hello::Return {
            me: self.config.me,
            link,
            at: self.config.at.clone(),
            seen: self.casts.seen(),
            below: Members::of(&*below),
        })
    }

    fn all_below(&self) -> BTreeSet<Address> {
        let children = self
            .links
            .iter()
            .filter(|(_, link)| link.side == Side::Child && link.joining.is_none());
        let all = children.flat_map(|(peer, link)| std::iter::once(peer).chain(&link.below));
        all.copied().collect()
    }

    /// Handles that the root has given this process a place again.
    pub(super) fn on_returned(&mut self, now: Time) {
        let said = self.returning.take().and_then(|returning| returning.below);
        let said = said.unwrap_or_default();
        let is = self.all_below();
        // What has changed since the hello.
        for who in said.difference(&is).copied() {
            let head = Head::Lost {
                who,
                below: Members::default(),
                loss: Loss::Closed,
            };
            self.push_up(Lane::Bulk, &head, Bytes::new());
        }
        for who in is.difference(&said).copied() {
            let at = Vec::new();
            self.push_up(Lane::Control, &Head::Joined { who, at }, Bytes::new());
        }
        self.restart_reports(now);
        self.place_waiting(now, self.config.me);
    }

    /// Handles at the root that a process asks for another place, because it has lost its parent.
    pub(super) fn on_return(
        &mut self,
        now: Time,
        conn: Conn,
        comer: Comer,
        seen: [u64; 2],
        below: &Members,
    ) {
        let who = comer.who;
        match self.links.get(&who) {
            Some(link) if link.side == Side::Child && link.number == comer.link => {
                // It has not heard the answer to its first hello.
                return self.on_resume(now, conn, who, comer.link, None);
            }
            Some(_) => return self.refuse(now, conn, Refusal::Taken),
            None => {}
        }
        match self.expected.get(&who).map(|expected| &expected.state) {
            Some(Standing::Joined { .. } | Standing::Absent) => {}
            Some(Standing::Lost) if planted::is(Bug::LostMayReturn) => {}
            Some(Standing::Lost) => return self.refuse(now, conn, Refusal::Expired),
            None => return self.refuse(now, conn, Refusal::Unknown),
        }
        if self.casts.are_gone(seen) {
            return self.refuse(now, conn, Refusal::Expired);
        }
        let mut members = below.among(self.expected.keys());
        members.retain(|one| *one != who && self.is_below(*one, who) && !self.is_lost(*one));
        let before = self.detach(who);
        let missing = before.difference(&members);
        let missing: BTreeSet<Address> = missing.copied().filter(|one| *one != who).collect();
        self.link(now, conn, who, comer.link, Side::Child);
        if let Some(expected) = self.expected.get_mut(&who) {
            expected.parent = Address::ROOT;
        }
        if let Some(link) = self.links.get_mut(&who) {
            link.below.clone_from(&members);
        }
        if let Some(connection) = self.connections.get_mut(&conn) {
            connection.notes.push_back(Note::Welcome(Welcome::Child));
        }
        self.await_orphans(now, who, missing);
        self.admit(now, who, comer.at);
        for member in &members {
            self.admit(now, *member, Vec::new());
        }
        members.insert(who);
        self.report_heard(&members, Then::Resend);
        if !self.cast_again(who, seen) {
            return self.lose_link(now, who, Loss::Slow);
        }
        self.ask_returned(now, &members);
        if self.is_ended
            && let Some(link) = self.links.get_mut(&who)
        {
            link.push(Lane::Control, &Head::Bye, Bytes::new());
        }
        self.forget_casts();
    }

    /// Notes that a process has joined, if that is news.
    fn admit(&mut self, now: Time, who: Address, at: Vec<SocketAddr>) {
        match self.expected.get_mut(&who).map(|one| &mut one.state) {
            Some(Standing::Joined { at: known }) if !at.is_empty() => *known = at,
            Some(Standing::Absent) => self.on_joined(now, who, at),
            _ => {}
        }
    }

    fn is_lost(&self, member: Address) -> bool {
        let state = self.expected.get(&member).map(|one| &one.state);
        matches!(state, None | Some(Standing::Lost))
    }

    /// Takes a process and everything below it out of their old place, and returns them.
    fn detach(&mut self, who: Address) -> BTreeSet<Address> {
        let links = self.links.values().flat_map(|link| &link.below);
        let known = links.chain(self.orphans.keys()).copied();
        let members: BTreeSet<Address> = known.filter(|one| self.is_below(*one, who)).collect();
        for link in self.links.values_mut() {
            link.below.retain(|one| !members.contains(one));
        }
        self.orphans.retain(|one, _| !members.contains(one));
        members
    }

    /// Expects processes to return that were cut off by the loss of another one.
    pub(super) fn await_orphans(&mut self, now: Time, of: Address, members: BTreeSet<Address>) {
        if planted::is(Bug::OrphansForgotten) {
            return;
        }
        if planted::is(Bug::OrphansLost) {
            return self.on_members_lost(now, of, members, Loss::Orphan);
        }
        let Timing { lease, window } = self.config.timing;
        let until = now + lease + window;
        let orphans = members.into_iter().map(|one| (one, Orphan { of, until }));
        self.orphans.extend(orphans);
    }

    /// Reports the orphans that have not returned in time.
    pub(super) fn give_up_orphans(&mut self, now: Time) {
        while let Some(of) = self
            .orphans
            .values()
            .find_map(|orphan| (orphan.until <= now).then_some(orphan.of))
        {
            let late = self.orphans.iter();
            let late = late.filter(|(_, orphan)| orphan.of == of && orphan.until <= now);
            let late: BTreeSet<Address> = late.map(|(who, _)| *who).collect();
            self.orphans.retain(|who, _| !late.contains(who));
            self.on_members_lost(now, of, late, Loss::Orphan);
        }
        self.forget_casts();
    }

    pub(super) fn orphan_deadline(&self) -> Option<Time> {
        self.orphans.values().map(|orphan| orphan.until).min()
    }
}
