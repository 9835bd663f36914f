//! The places of processes in the tree: who may join, below which process, and who was lost.

use std::{collections::BTreeSet, net::SocketAddr};

use base::Time;
use bytes::Bytes;

use super::{Comer, Conn, DialError, Expected, Node, Output, PENDING_MAX, Phase, Side, Standing};
use crate::{
    lanes::Lane,
    packet::{Address, Head, Hello, Loss, MEMBERS_MAX, Note, Reason, Refusal, Welcome},
    planted::{self, Bug},
};

impl Node {
    /// Expects one more process, whose place is below the root. Its address was never used before: a lost process may still
    /// run, and must not be taken for another one.
    pub fn expect(&mut self, member: Address) {
        let expected = Expected {
            parent: Address::ROOT,
            state: Standing::Absent,
        };
        self.expected.entry(member).or_insert(expected);
    }

    /// Expects a process no longer, because it could not be started or has not joined in time. Processes below it get a place
    /// below the root. The caller sets that time: a process that was lost before the root heard that it had joined is
    /// reported by nobody.
    pub fn give_up(&mut self, now: Time, member: Address) {
        if let Some(expected) = self.expected.get_mut(&member)
            && matches!(expected.state, Standing::Absent)
        {
            expected.state = Standing::Lost;
            if let Some(conn) = self.waiting.get(&(expected.parent, member)).copied() {
                self.refuse(now, conn, Refusal::Expired);
            }
            // It may have been welcomed here, and has not answered.
            self.lose_link(now, member, Loss::Closed);
            self.place_waiting(now, member);
        }
    }

    pub(super) fn on_hello(&mut self, now: Time, conn: Conn, hello: Hello) {
        let from = match self.connections.get(&conn).map(|one| &one.phase) {
            Some(Phase::Accepted(from)) => *from,
            _ => {
                return self.break_rules(
                    now,
                    conn,
                    "it sent a hello to the process that it had accepted",
                );
            }
        };
        match hello {
            Hello::Join {
                me,
                reason,
                link,
                at,
            } => {
                let comer = Comer {
                    from,
                    who: me,
                    link,
                    at,
                };
                self.on_join(now, conn, comer, reason);
            }
            Hello::Resume { me, link, received } => {
                self.on_resume(now, conn, me, link, Some(received));
            }
            Hello::Return {
                me,
                link,
                at,
                seen,
                below,
            } => {
                let comer = Comer {
                    from,
                    who: me,
                    link,
                    at,
                };
                self.on_return(now, conn, comer, seen, &below);
            }
        }
    }

    pub(super) fn on_join(&mut self, now: Time, conn: Conn, comer: Comer, reason: Reason) {
        let who = comer.who;
        match self.links.get(&who) {
            Some(link) if link.side == Side::Child && link.number == comer.link => {
                // It has not heard the answer to its first hello.
                return self.on_resume(now, conn, who, comer.link, None);
            }
            Some(_) if !planted::is(Bug::TakenAdmitted) => {
                return self.refuse(now, conn, Refusal::Taken);
            }
            None if planted::is(Bug::TakenAdmitted) => {}
            None if who == self.config.me || self.is_known_below(who) => {
                return self.refuse(now, conn, Refusal::Taken);
            }
            Some(_) | None => {}
        }
        if self.config.me == Address::ROOT {
            let Some(expected) = self.expected.get(&who) else {
                return self.refuse(now, conn, Refusal::Unknown);
            };
            match expected.state {
                Standing::Absent => {}
                Standing::Joined { .. } if planted::is(Bug::TakenAdmitted) => {}
                Standing::Joined { .. } => return self.refuse(now, conn, Refusal::Taken),
                Standing::Lost => return self.refuse(now, conn, Refusal::Expired),
            }
            let parent = expected.parent;
            if reason == Reason::Start && parent != Address::ROOT {
                match self.expected.get(&parent).map(|parent| &parent.state) {
                    Some(Standing::Joined { at }) => {
                        let at = at.clone();
                        return self.answer(now, conn, Welcome::Elsewhere { parent, at });
                    }
                    Some(Standing::Absent) => return self.wait(now, conn, comer, parent),
                    Some(Standing::Lost) | None => {}
                }
            }
        } else if self.uplink.parent().is_none() {
            // The root may know that this process has joined before the process itself does.
            if self.uplink.is_over() {
                return self.refuse(now, conn, Refusal::Expired);
            }
            return self.wait(now, conn, comer, self.config.me);
        }
        self.adopt(now, conn, comer);
    }

    /// Lets a process wait for its parent. Its last connection counts.
    fn wait(&mut self, now: Time, conn: Conn, comer: Comer, parent: Address) {
        if let Some(before) = self.waiting.get(&(parent, comer.who)).copied() {
            self.close(before);
        }
        let said = now;
        let waiting = Phase::Waiting {
            parent,
            comer,
            said,
        };
        self.enter(now, conn, waiting);
    }

    /// Makes a process a child of this one. It has joined when it answers.
    fn adopt(&mut self, now: Time, conn: Conn, comer: Comer) {
        let Comer { who, link, at, .. } = comer;
        self.link(now, conn, who, link, Side::Child);
        if let Some(link) = self.links.get_mut(&who) {
            link.joining = Some(at);
        }
        if let Some(connection) = self.connections.get_mut(&conn) {
            connection.notes.push_back(Note::Welcome(Welcome::Child));
        }
    }

    /// Handles that a peer has sent something on its link: if it is a child that was welcomed, it has joined.
    pub(super) fn on_answered(&mut self, now: Time, peer: Address) {
        let link = self.links.get_mut(&peer);
        let Some(at) = link.and_then(|link| link.joining.take()) else {
            return;
        };
        let who = peer;
        if self.config.me == Address::ROOT {
            if let Some(expected) = self.expected.get_mut(&who) {
                expected.parent = Address::ROOT;
            }
            self.on_joined(now, who, at);
        } else {
            self.push_up(Lane::Control, &Head::Joined { who, at }, Bytes::new());
        }
    }

    /// Returns true if a process is below one of the children.
    fn is_known_below(&self, member: Address) -> bool {
        self.links.values().any(|link| link.below.contains(&member))
    }

    /// Handles that a process has joined below a child.
    pub(super) fn on_joined_below(
        &mut self,
        now: Time,
        peer: Address,
        who: Address,
        at: Vec<SocketAddr>,
    ) {
        if self.config.me == Address::ROOT {
            let expected = self.expected.get(&who).map(|expected| &expected.state);
            // It may have been given up in the meantime.
            let is_expected = matches!(expected, Some(Standing::Absent));
            if is_expected && who != peer && self.is_below(who, peer) {
                if let Some(link) = self.links.get_mut(&peer) {
                    link.below.insert(who);
                }
                self.on_joined(now, who, at);
            }
            return;
        }
        let is_elsewhere =
            who == self.config.me || self.links.contains_key(&who) || self.is_known_below(who);
        match self.links.get_mut(&peer) {
            Some(link) if !is_elsewhere && link.below.len() < MEMBERS_MAX => {
                link.below.insert(who);
                if !planted::is(Bug::JoinedNotTold) {
                    self.push_up(Lane::Control, &Head::Joined { who, at }, Bytes::new());
                }
            }
            _ => {
                let loss = "it announced a process that is elsewhere, or too many";
                self.lose_link(now, peer, Loss::Broken(loss.to_owned()));
            }
        }
    }

    /// Notes at the root that a process has joined, and gives a place to those that wait for it.
    pub(super) fn on_joined(&mut self, now: Time, who: Address, at: Vec<SocketAddr>) {
        if let Some(expected) = self.expected.get_mut(&who) {
            expected.state = Standing::Joined { at };
        }
        self.outputs.push_back(Output::Joined(who));
        self.place_waiting(now, who);
    }

    /// Gives a place to the processes that wait for `parent`, which has joined or will not.
    pub(super) fn place_waiting(&mut self, now: Time, parent: Address) {
        let has_joined = match self.expected.get(&parent).map(|parent| &parent.state) {
            Some(Standing::Absent | Standing::Lost) => false,
            Some(Standing::Joined { .. }) | None => true,
        };
        if planted::is(Bug::WaitingForgotten) && has_joined
            || planted::is(Bug::AbsentParentAwaited) && !has_joined
        {
            return;
        }
        let all = (parent, Address(0))..=(parent, Address(u32::MAX));
        let waiting: Vec<Conn> = self.waiting.range(all).map(|(_, conn)| *conn).collect();
        for conn in waiting {
            if let Some(Standing::Joined { at }) =
                self.expected.get(&parent).map(|parent| &parent.state)
            {
                let at = at.clone();
                self.answer(now, conn, Welcome::Elsewhere { parent, at });
            } else if let Some(Phase::Waiting { comer, .. }) =
                self.connections.get(&conn).map(|one| &one.phase)
            {
                let comer = comer.clone();
                self.adopt(now, conn, comer);
            }
        }
    }

    /// Gives a place below the root to the processes that have waited long enough for the one above them.
    pub(super) fn place_late(&mut self, now: Time) {
        let Some(most) = self.waits_for else {
            return;
        };
        let all = self.connections.iter();
        let late = all.filter_map(|(conn, one)| match &one.phase {
            Phase::Waiting { comer, .. } if one.since + most <= now => Some((*conn, comer.clone())),
            _ => None,
        });
        for (conn, comer) in late.collect::<Vec<_>>() {
            self.adopt(now, conn, comer);
        }
    }

    pub(super) fn refuse(&mut self, now: Time, conn: Conn, refusal: Refusal) {
        // The loss of a process that comes back too late was reported before: it is no stranger.
        if refusal != Refusal::Expired
            && let Some(Phase::Accepted(from)) = self.connections.get(&conn).map(|one| &one.phase)
        {
            self.report_refused(*from, refusal.into());
        }
        self.answer(now, conn, Welcome::Refused(refusal));
    }

    pub(super) fn answer(&mut self, now: Time, conn: Conn, welcome: Welcome) {
        if let Some(connection) = self.connections.get_mut(&conn) {
            connection.notes.push_back(Note::Welcome(welcome));
            self.enter(now, conn, Phase::Closing);
        }
    }

    pub(super) fn report_refused(&mut self, from: SocketAddr, why: DialError) {
        if planted::is(Bug::StrangerNotReported) {
            return;
        }
        let is_first = self.refused.len() < PENDING_MAX && self.refused.insert(from.ip());
        if is_first || planted::is(Bug::StrangerReportedAgain) {
            self.outputs.push_back(Output::Refused { from, why });
        }
    }

    /// Returns true at the root if all processes have joined, and none of them is at this address. A process dials several
    /// addresses of the root, and closes all connections but one, so a closed connection alone is no sign of a stranger.
    pub(super) fn is_stranger(&self, ip: std::net::IpAddr) -> bool {
        let mut standings = self.expected.values().map(|expected| &expected.state);
        self.config.me == Address::ROOT
            && standings.all(|standing| match standing {
                // Its addresses are unknown.
                Standing::Absent | Standing::Lost => false,
                Standing::Joined { at } => at.iter().all(|at| at.ip() != ip),
            })
    }

    /// Returns true at the root if a process is `top`, or was given a place below it.
    pub(super) fn is_below(&self, member: Address, top: Address) -> bool {
        let parent = |one: &Address| self.expected.get(one).map(|expected| expected.parent);
        let mut way = std::iter::successors(Some(member), parent).take(self.expected.len() + 1);
        way.any(|one| one == top)
    }

    /// Handles at the root that the link to `who`, below `peer`, was lost. Everything below `who` has to return.
    pub(super) fn on_lost_below(&mut self, now: Time, peer: Address, who: Address, loss: Loss) {
        let Some(link) = self.links.get(&peer) else {
            return;
        };
        if !link.below.contains(&who) {
            return;
        }
        let below = link.below.iter().copied();
        let members: BTreeSet<Address> = below.filter(|one| self.is_below(*one, who)).collect();
        if let Some(link) = self.links.get_mut(&peer) {
            link.below.retain(|member| !members.contains(member));
        }
        let orphans = members.into_iter().filter(|one| *one != who).collect();
        self.await_orphans(now, who, orphans);
        self.on_members_lost(now, who, [who].into(), loss);
    }

    /// Reports at the root that these members were lost.
    pub(super) fn on_members_lost(
        &mut self,
        now: Time,
        who: Address,
        members: BTreeSet<Address>,
        loss: Loss,
    ) {
        for member in &members {
            if let Some(expected) = self.expected.get_mut(member) {
                expected.state = Standing::Lost;
            }
            self.forget_heard(*member);
        }
        let all: Vec<Address> = members.iter().copied().collect();
        self.outputs.push_back(Output::Lost { who, members, loss });
        self.miss_answers(now, &all.iter().copied().collect());
        for member in all {
            self.place_waiting(now, member);
        }
    }
}
