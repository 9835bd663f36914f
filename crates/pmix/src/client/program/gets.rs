//! Gets that wait for the server.
//!
//! A server gives all data of a process when it is asked for one key of it. So there is at most one get outstanding
//! for each process; the others wait for its answer, and only those whose key was not in it are asked in turn. libpmix
//! fails them instead, which is of no use to anyone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::Time;

use super::super::{Ticket, facts::is_reserved, infos};
use crate::{
    keys,
    message::Request,
    value::{Key, Proc, Status, Value},
};

/// Gets that may wait; another one is answered `RESOURCE_BUSY` at once.
pub const MAX_WAITING: usize = 65_536;

/// Whether the server is to wait for a key that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asking {
    Patient,
    Immediate,
}

/// One get that waits.
#[derive(Debug)]
struct Waiter {
    ticket: Ticket,
    key: Key,
    asking: Asking,
    limit: Option<Time>,
}

/// The gets of one process: the first waiter's key is being asked.
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
    /// Whose get a request is.
    requests: BTreeMap<Ticket, Proc>,
    /// Whose data a get waits for.
    waiting: BTreeMap<Ticket, Proc>,
    limits: BTreeSet<(Time, Ticket)>,
}

/// What is to be done after something happened to the gets of a process.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) done: Vec<(Ticket, Result<Value, Status>)>,
    /// This process is to be asked for this key; [`Gets::asked`] takes the number of the request.
    pub(super) ask: Option<Request>,
    /// This request is of no use any more.
    pub(super) forget: Option<Ticket>,
}

impl Gets {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Adds a get. Gives the request when the process is to be asked; [`Self::asked`] must follow.
    pub(super) fn add(
        &mut self,
        ticket: Ticket,
        proc: &Proc,
        key: Key,
        asking: Asking,
    ) -> Option<Request> {
        // The library's own keys do not come later: a server that does not have them says so.
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

    /// The process is asked by this request.
    pub(super) fn asked(&mut self, proc: &Proc, request: Ticket) {
        if let Some(target) = self.targets.get_mut(proc) {
            target.request = request;
            self.requests.insert(request, proc.clone());
        }
    }

    /// Whose data this request asks for.
    pub(super) fn whose(&self, request: Ticket) -> Option<Proc> {
        self.requests.get(&request).cloned()
    }

    /// A request was answered, and what the answer contained is stored where `find` finds it.
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
                // The connection or the process is gone: asking for another key would not help.
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

    /// Sets the time at which a get is given up; tells whether there is such a get.
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

    /// Gives up one get whose time has come.
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
            // Nobody waits for what is being asked, and the others must not wait for it either.
            self.requests.remove(&target.request);
            outcome.forget = Some(target.request);
            outcome.ask = self.ask_next(proc.clone(), target);
        }
        Some((proc, outcome))
    }

    /// Gives up all gets, because the connection is gone.
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
