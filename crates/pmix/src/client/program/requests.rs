//! The requests of a program.

use base::Time;

use super::{
    Event, HandlerId, MAX_HANDLERS, MAX_WAITING, Phase, Program, Purpose, Put, gets::Asking,
};
use crate::{
    client::{Done, Ticket, facts::is_reserved, infos},
    codec::Writer,
    keys,
    message::Request,
    value::{
        AllocDirective, App, Info, Key, Kval, Packed, PmixRank, Proc, Range, Scope, Status, Text,
        Value,
    },
};

/// Committed data that a fence distributes to its participants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collect {
    Nothing,
    Data,
}

/// Scope of a search for a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// Search the cache, then the server, which waits until the process has put the key. It does not wait for reserved keys.
    Anywhere,
    /// Search the cache, then the server, which answers immediately.
    Immediate,
    /// Search the cache only.
    Known,
}

/// Reason why a value was not put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PutError {
    /// Keys that begin with `pmix` are reserved for the standard.
    #[error("the key is reserved")]
    Reserved,
    /// Values cannot be put in this scope.
    #[error("a value cannot be put in this scope")]
    Scope,
}

impl Program {
    /// Stores a value for the next [`Self::commit`]. It replaces an earlier value of the same key.
    ///
    /// # Errors
    /// The key is reserved, or the scope is invalid.
    pub fn put(&mut self, scope: Scope, key: Key, value: Value) -> Result<(), PutError> {
        if is_reserved(key.as_c_str()) {
            return Err(PutError::Reserved);
        }
        if !(Scope::LOCAL..=Scope::INTERNAL).contains(&scope) {
            return Err(PutError::Scope);
        }
        let number = self.puts;
        self.puts += 1;
        self.uncommitted.insert(number, key.clone());
        let put = Put {
            number,
            scope,
            value,
        };
        if let Some(before) = self.own.insert(key, put) {
            self.uncommitted.remove(&before.number);
        }
        Ok(())
    }

    /// Sends the values put since the last commit to the server.
    pub fn commit(&mut self) -> Ticket {
        if self.phase != Phase::Ready {
            return self.request(&Request::Commit {
                buckets: Vec::new(),
            });
        }
        let puts = std::mem::take(&mut self.uncommitted);
        let format = self.config().format();
        let mut buckets = Vec::new();
        for bucket in [Scope::LOCAL, Scope::REMOTE] {
            let mut writer = Writer::new(format);
            for key in puts.values() {
                if let Some(put) = self.own.get(key)
                    && [bucket, Scope::GLOBAL].contains(&put.scope)
                {
                    writer.item(&Kval {
                        key: key.clone(),
                        value: put.value.clone(),
                    });
                }
            }
            let bytes = writer.into_bytes();
            if !bytes.is_empty() {
                let kind = format.buffer_number();
                let bytes = bytes.into();
                buckets.push((bucket, Packed { kind, bytes }));
            }
        }
        if buckets.is_empty() {
            return self.completed_ticket(Ok(Done::Nothing));
        }
        self.ask(&Request::Commit { buckets }, Some(Purpose::Commit(puts)))
    }

    /// Starts a fence that completes when all these processes have called it. Empty `procs` mean all of the program's own job.
    pub fn fence(&mut self, procs: Vec<Proc>, collect: Collect) -> Ticket {
        let infos = match collect {
            Collect::Nothing => Vec::new(),
            Collect::Data => infos([(keys::COLLECT_DATA, Value::Bool(true))]),
        };
        let procs = self.or_own_job(procs);
        self.request(&Request::Fence { procs, infos })
    }

    /// Requests a fact of a process or its job, or a value that the process has put. Cached values need no server: the program's
    /// own puts, job info, and data from earlier gets.
    pub fn get(&mut self, proc: Proc, key: Key, search: Search) -> Ticket {
        match self.phase {
            Phase::Ready => {}
            Phase::Ended => return self.completed_ticket(Err(Status::UNREACH)),
            _ => return self.completed_ticket(Err(Status::INIT)),
        }
        if let Some(value) = self.find(&proc, &key) {
            let value = value.clone();
            return self.completed_ticket(Ok(Done::Value(value)));
        }
        let asking = match search {
            Search::Known => return self.completed_ticket(Err(Status::NOT_FOUND)),
            Search::Immediate => Asking::Immediate,
            Search::Anywhere => Asking::Patient,
        };
        if self.gets.len() >= MAX_WAITING {
            return self.completed_ticket(Err(Status::RESOURCE_BUSY));
        }
        let ticket = self.client.ticket();
        if let Some(request) = self.gets.add(ticket, &proc, key, asking) {
            let request = self.client.request(&request);
            self.gets.asked(&proc, request);
            self.pump();
        }
        ticket
    }

    /// Returns a cached value.
    #[must_use]
    pub fn find(&self, proc: &Proc, key: &Key) -> Option<&Value> {
        if self.me.as_ref() == Some(proc)
            && let Some(put) = self.own.get(key)
        {
            return Some(&put.value);
        }
        let job = self.jobs.get(&proc.nspace)?;
        job.find(proc.rank, key.as_c_str())
    }

    /// Publishes data: infos with the program's keys, mixed with directives such as [`keys::RANGE`] and [`keys::PERSISTENCE`].
    pub fn publish(&mut self, infos: Vec<Info>) -> Ticket {
        let uid = self.config().owner.uid;
        self.request(&Request::Publish { uid, infos })
    }

    /// Looks up published data, with directives such as [`keys::WAIT`].
    pub fn lookup(&mut self, keys: Vec<Key>, infos: Vec<Info>) -> Ticket {
        let uid = self.config().owner.uid;
        self.request(&Request::Lookup { uid, keys, infos })
    }

    /// Withdraws published data.
    pub fn unpublish(&mut self, keys: Vec<Key>, infos: Vec<Info>) -> Ticket {
        let uid = self.config().owner.uid;
        self.request(&Request::Unpublish { uid, keys, infos })
    }

    /// Connects these processes: when all of them have called it, each gets the job info of the others' jobs.
    pub fn connect(&mut self, procs: Vec<Proc>, infos: Vec<Info>) -> Ticket {
        let procs = self.or_own_job(procs);
        let request = Request::Connect {
            procs,
            infos,
            data: Vec::new(),
        };
        self.ask(&request, Some(Purpose::Connect))
    }

    /// Disconnects processes that [`Self::connect`] has connected.
    pub fn disconnect(&mut self, procs: Vec<Proc>, infos: Vec<Info>) -> Ticket {
        let procs = self.or_own_job(procs);
        self.request(&Request::Disconnect { procs, infos })
    }

    /// Spawns a job.
    pub fn spawn(&mut self, infos: Vec<Info>, apps: Vec<App>) -> Ticket {
        self.request(&Request::Spawn { infos, apps })
    }

    /// Requests an allocation, or changes one, with directives such as [`keys::ALLOC_ID`] and [`keys::ALLOC_NUM_NODES`].
    pub fn allocate(&mut self, directive: AllocDirective, infos: Vec<Info>) -> Ticket {
        self.request(&Request::Allocate { directive, infos })
    }

    /// Constructs a group of these processes. It completes when all of them have called it.
    pub fn group_construct(&mut self, group: Text, procs: Vec<Proc>, infos: Vec<Info>) -> Ticket {
        self.request(&Request::GroupConstruct {
            group,
            procs,
            infos,
        })
    }

    /// Destructs a group. It completes when all members have called it.
    pub fn group_destruct(&mut self, group: Text, procs: Vec<Proc>, infos: Vec<Info>) -> Ticket {
        self.request(&Request::GroupDestruct {
            group,
            procs: Some(procs),
            infos,
        })
    }

    /// Registers a handler for events with these codes. Without codes it gets events that have no other handler.
    /// [`keys::EVENT_AFFECTED_PROC`] or [`keys::EVENT_AFFECTED_PROCS`] restrict it to events about these processes and events
    /// that name no process. Events may arrive before the ticket is done.
    pub fn register(&mut self, codes: Vec<Status>, infos: Vec<Info>) -> (HandlerId, Ticket) {
        let full = self.handlers.len() >= MAX_HANDLERS;
        let handler = self.handlers.add(codes.clone(), &infos);
        if full {
            self.handlers.remove(handler);
            return (handler, self.completed_ticket(Err(Status::RESOURCE_BUSY)));
        }
        let request = Request::Register { codes, infos };
        let ticket = self.ask(&request, Some(Purpose::Register(handler)));
        (handler, ticket)
    }

    /// Removes a handler.
    pub fn deregister(&mut self, handler: HandlerId) {
        let codes = self.handlers.remove(handler);
        if !codes.is_empty() {
            self.tell(&Request::Deregister { codes });
        }
    }

    /// Notifies other processes of an event.
    pub fn notify(&mut self, status: Status, range: Range, infos: Vec<Info>) -> Ticket {
        self.request(&Request::Notify {
            status,
            range,
            infos,
        })
    }

    /// Aborts these processes, or the whole job if `procs` is empty. `status` is the exit code that this program will use. The
    /// abort itself does not end this program: it runs until it exits or the launcher kills it.
    pub fn abort(&mut self, status: Status, message: Text, procs: Vec<Proc>) -> Ticket {
        self.request(&Request::Abort {
            status,
            message,
            procs,
        })
    }

    /// Sends a request that has no method of its own. [`Request::Finalize`] has one, and is answered `BAD_PARAM` here.
    pub fn request(&mut self, request: &Request) -> Ticket {
        self.ask(request, None)
    }

    /// Sends a finalize. After its answer the connection closes, and [`Event::Finalized`] follows.
    pub fn finalize(&mut self, now: Time) -> Ticket {
        // The last input may be long ago: a program computes between its requests.
        self.now = now;
        if !matches!(self.phase, Phase::Ready | Phase::Ended) {
            return self.completed_ticket(Err(Status::INIT));
        }
        let ticket = self.client.finalize(now);
        self.pump();
        ticket
    }

    /// Ends the connection without a finalize. For a process of a job this is an abnormal end.
    pub fn close(&mut self) {
        self.client.close();
        self.pump();
    }

    /// Sends a heartbeat, for a program that has asked to be monitored.
    pub fn heartbeat(&mut self) {
        self.client.heartbeat();
        self.pump();
    }

    /// Sets the time at which an outstanding request fails with `TIMEOUT`.
    pub fn limit(&mut self, ticket: Ticket, until: Time) {
        if !self.gets.limit(ticket, until) {
            self.client.limit(ticket, until);
        }
    }

    pub(super) fn ask(&mut self, request: &Request, purpose: Option<Purpose>) -> Ticket {
        if !matches!(self.phase, Phase::Ready | Phase::Ended) {
            if let Some(Purpose::Register(handler)) = purpose {
                self.handlers.remove(handler);
            }
            return self.completed_ticket(Err(Status::INIT));
        }
        let ticket = self.client.request(request);
        if let Some(purpose) = purpose {
            self.purposes.insert(ticket, purpose);
        }
        self.pump();
        ticket
    }

    /// Sends a request whose answer the program does not get.
    pub(super) fn tell(&mut self, request: &Request) {
        self.ask(request, Some(Purpose::Nothing));
    }

    /// Returns a ticket whose result is already known.
    pub(crate) fn completed_ticket(&mut self, result: Result<Done, Status>) -> Ticket {
        let ticket = self.client.ticket();
        self.event(Event::Done { ticket, result });
        ticket
    }

    fn or_own_job(&self, procs: Vec<Proc>) -> Vec<Proc> {
        match &self.me {
            Some(me) if procs.is_empty() => vec![Proc {
                nspace: me.nspace.clone(),
                rank: PmixRank::WILDCARD,
            }],
            _ => procs,
        }
    }
}
