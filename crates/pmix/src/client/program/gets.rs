//! Gets that wait for the server.
//!
//! A server returns all data of a process in answer to a get for one key. Therefore at most one get per process is outstanding,
//! and the others wait for its answer. Only a get whose key is missing there is then sent too. libpmix fails such gets instead,
//! which helps no program.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::Time;

use super::super::{Ticket, facts::is_reserved, infos};
use crate::{
    keys,
    message::Request,
    value::{Key, Proc, Status, Value},
};

/// Maximum number of waiting gets. A further one is answered `RESOURCE_BUSY` immediately.
pub const MAX_WAITING: usize = 65_536;

/// Behavior of the server for a key that does not exist yet: wait, or answer immediately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asking {
    Patient,
    Immediate,
}

/// A waiting get.
#[derive(Debug)]
struct Waiter {
    ticket: Ticket,
    key: Key,
    asking: Asking,
    limit: Option<Time>,
}

/// The waiting gets for one process, and the outstanding request for it.
#[derive(Debug)]
struct Target {
    request: Ticket,
    key: Key,
    asking: Asking,
    waiters: VecDeque<Waiter>,
}

/// All gets that wait, by process.
#[derive(Debug, Default)]
pub(super) struct Gets {
    targets: BTreeMap<Proc, Target>,
    /// The process that each outstanding request is for.
    requests: BTreeMap<Ticket, Proc>,
    /// The process that each waiting get is for.
    waiting: BTreeMap<Ticket, Proc>,
    limits: BTreeSet<(Time, Ticket)>,
}

/// Actions that follow from a change in the gets for a process.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) done: Vec<(Ticket, Result<Value, Status>)>,
    /// Request to send; [`Gets::asked`] must be called with its ticket.
    pub(super) ask: Option<Request>,
    /// Request whose answer is no longer needed.
    pub(super) forget: Option<Ticket>,
}

impl Gets {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Adds a get. Returns a request if none is outstanding for this process; [`Self::asked`] must be called with its ticket.
    pub(super) fn add(
        &mut self,
        ticket: Ticket,
        proc: &Proc,
        key: Key,
        asking: Asking,
    ) -> Option<Request> {
        // Reserved keys never appear later: a server that lacks one answers so immediately.
        let asking = if is_reserved(key.as_c_str()) {
            Asking::Immediate
        } else {
            asking
        };
        self.waiting.insert(ticket, proc.clone());
        let waiter = Waiter {
            ticket,
            key: key.clone(),
            asking,
            limit: None,
        };
        if let Some(target) = self.targets.get_mut(proc) {
            target.waiters.push_back(waiter);
            return None;
        }
        let request = request(proc, &key, asking);
        let target = Target {
            request: ticket,
            key,
            asking,
            waiters: VecDeque::from([waiter]),
        };
        self.targets.insert(proc.clone(), target);
        Some(request)
    }

    /// Records the ticket of the request sent for a process.
    pub(super) fn asked(&mut self, proc: &Proc, request: Ticket) {
        if let Some(target) = self.targets.get_mut(proc) {
            target.request = request;
            self.requests.insert(request, proc.clone());
        }
    }

    /// Returns the process that a request is for.
    pub(super) fn whose(&self, request: Ticket) -> Option<Proc> {
        self.requests.get(&request).cloned()
    }

    /// Processes the answer to a request. `find` must already return the values in the answer.
    pub(super) fn answered(
        &mut self,
        request: Ticket,
        status: Status,
        find: impl Fn(&Key) -> Option<Value>,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        let Some(proc) = self.requests.remove(&request) else {
            return outcome;
        };
        let Some(mut target) = self.targets.remove(&proc) else {
            return outcome;
        };
        let refusal = if status == Status::SUCCESS {
            Status::NOT_FOUND
        } else {
            status
        };
        let mut left = VecDeque::new();
        for waiter in target.waiters {
            let same = waiter.key == target.key && waiter.asking == target.asking;
            if let Some(value) = find(&waiter.key) {
                outcome.done.push((waiter.ticket, Ok(value)));
            } else if same || status == Status::UNREACH {
                // With `UNREACH` the connection or the process is gone: a request for another key would fail too.
                outcome.done.push((waiter.ticket, Err(refusal)));
            } else {
                left.push_back(waiter);
                continue;
            }
            self.waiting.remove(&waiter.ticket);
            if let Some(limit) = waiter.limit {
                self.limits.remove(&(limit, waiter.ticket));
            }
        }
        target.waiters = left;
        outcome.ask = self.ask_next(proc, target);
        outcome
    }

    /// Sets the time at which a get fails with `TIMEOUT`. Returns false if there is no such get.
    pub(super) fn limit(&mut self, ticket: Ticket, until: Time) -> bool {
        let waiting = self.waiting.get(&ticket);
        let target = waiting.and_then(|proc| self.targets.get_mut(proc));
        let mut waiters = target.into_iter().flat_map(|target| &mut target.waiters);
        let Some(waiter) = waiters.find(|waiter| waiter.ticket == ticket) else {
            return false;
        };
        if let Some(before) = waiter.limit.replace(until) {
            self.limits.remove(&(before, ticket));
        }
        self.limits.insert((until, ticket));
        true
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.limits.first().map(|(time, _)| *time)
    }

    /// Fails one get whose time has come.
    pub(super) fn expired(&mut self, now: Time) -> Option<(Proc, Outcome)> {
        let (time, ticket) = *self.limits.first()?;
        if time > now {
            return None;
        }
        self.limits.pop_first();
        let proc = self.waiting.remove(&ticket)?;
        let mut outcome = Outcome {
            done: vec![(ticket, Err(Status::TIMEOUT))],
            ..Outcome::default()
        };
        let mut target = self.targets.remove(&proc)?;
        target.waiters.retain(|waiter| waiter.ticket != ticket);
        let mut waiters = target.waiters.iter();
        if waiters.any(|waiter| waiter.key == target.key && waiter.asking == target.asking) {
            self.targets.insert(proc.clone(), target);
        } else {
            // No get waits for the outstanding request any more, and the other gets must not wait for it either.
            self.requests.remove(&target.request);
            outcome.forget = Some(target.request);
            outcome.ask = self.ask_next(proc.clone(), target);
        }
        Some((proc, outcome))
    }

    /// Drops all gets because the connection has ended, and returns their tickets.
    pub(super) fn clear(&mut self) -> Vec<Ticket> {
        let tickets = std::mem::take(&mut self.waiting).into_keys().collect();
        *self = Self::default();
        tickets
    }

    fn ask_next(&mut self, proc: Proc, mut target: Target) -> Option<Request> {
        let next = target.waiters.front()?;
        target.key = next.key.clone();
        target.asking = next.asking;
        let request = request(&proc, &target.key, target.asking);
        self.targets.insert(proc, target);
        Some(request)
    }
}

fn request(proc: &Proc, key: &Key, asking: Asking) -> Request {
    Request::Get {
        nspace: proc.nspace.clone(),
        rank: proc.rank,
        infos: match asking {
            Asking::Patient => Vec::new(),
            Asking::Immediate => infos([(keys::IMMEDIATE, Value::Bool(true))]),
        },
        key: Some(key.clone()),
    }
}
