//! What a program can ask for.

use base::Time;

use super::{
    Event, HandlerId, MAX_HANDLERS, MAX_WAITING, Phase, Program, Purpose, Put, gets::Asking,
};
use crate::{
    client::{Done, Ticket, facts::is_reserved, infos},
    codec::Writer,
    keys,
    message::Request,
    value::{App, Info, Key, Kval, Packed, PmixRank, Proc, Range, Scope, Status, Text, Value},
};

/// Whether a fence also makes what was committed visible to all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collect {
    Nothing,
    Data,
}

/// Where a get looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// On this side, and then at the server, which waits until the process has put the key. Keys of the standard are
    /// not waited for.
    Anywhere,
    /// On this side, and then at the server, which answers at once.
    Immediate,
    /// On this side only.
    Known,
}

/// Why a value was not put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PutError {
    /// Keys that begin with `pmix` are the standard's.
    #[error("the key is reserved")]
    Reserved,
    /// The scope is none of those in which a value can be put.
    #[error("a value cannot be put in this scope")]
    Scope,
}

impl Program {
    /// Keeps a value until the next [`Self::commit`]. The same key again replaces it.
    ///
    /// # Errors
    /// The key or the scope is not one for programs.
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

    /// Gives the server what was put since the last commit.
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
            return self.decided(Ok(Done::Nothing));
        }
        self.ask(&Request::Commit { buckets }, Some(Purpose::Commit(puts)))
    }

    /// Waits until all these processes have called it; none: all of the program's own job.
    pub fn fence(&mut self, procs: Vec<Proc>, collect: Collect) -> Ticket {
        let infos = match collect {
            Collect::Nothing => Vec::new(),
            Collect::Data => infos([(keys::COLLECT_DATA, Value::Bool(true))]),
        };
        let procs = self.or_own_job(procs);
        self.request(&Request::Fence { procs, infos })
    }

    /// Asks for a fact of a process or of its job, or for what the process has put. What is known on this side comes
    /// without the server: the program's own puts, the facts of jobs, and what came with an earlier get.
    pub fn get(&mut self, proc: Proc, key: Key, search: Search) -> Ticket {
        match self.phase {
            Phase::Ready => {}
            Phase::Ended => return self.decided(Err(Status::UNREACH)),
            _ => return self.decided(Err(Status::INIT)),
        }
        if let Some(value) = self.find(&proc, &key) {
            let value = value.clone();
            return self.decided(Ok(Done::Value(value)));
        }
        let asking = match search {
            Search::Known => return self.decided(Err(Status::NOT_FOUND)),
            Search::Immediate => Asking::Immediate,
            Search::Anywhere => Asking::Patient,
        };
        if self.gets.len() >= MAX_WAITING {
            return self.decided(Err(Status::RESOURCE_BUSY));
        }
        let ticket = self.client.ticket();
        if let Some(request) = self.gets.add(ticket, &proc, key, asking) {
            let request = self.client.request(&request);
            self.gets.asked(&proc, request);
            self.pump();
        }
        ticket
    }

    /// What is known on this side.
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

    /// Publishes data: infos with the program's keys, mixed with directives such as [`keys::RANGE`] and
    /// [`keys::PERSISTENCE`].
    pub fn publish(&mut self, infos: Vec<Info>) -> Ticket {
        let uid = self.config().owner.uid;
        self.request(&Request::Publish { uid, infos })
    }

    /// Looks up published data, with directives such as [`keys::WAIT`].
    pub fn lookup(&mut self, keys: Vec<Key>, infos: Vec<Info>) -> Ticket {
        let uid = self.config().owner.uid;
        self.request(&Request::Lookup { uid, keys, infos })
    }

    /// Takes published data back.
    pub fn unpublish(&mut self, keys: Vec<Key>, infos: Vec<Info>) -> Ticket {
        let uid = self.config().owner.uid;
        self.request(&Request::Unpublish { uid, keys, infos })
    }

    /// Joins these processes: when all of them have called it, each knows the facts of the others' jobs.
    pub fn connect(&mut self, procs: Vec<Proc>, infos: Vec<Info>) -> Ticket {
        let procs = self.or_own_job(procs);
        let request = Request::Connect {
            procs,
            infos,
            data: Vec::new(),
        };
        self.ask(&request, Some(Purpose::Connect))
    }

    /// Ends what [`Self::connect`] began.
    pub fn disconnect(&mut self, procs: Vec<Proc>, infos: Vec<Info>) -> Ticket {
        let procs = self.or_own_job(procs);
        self.request(&Request::Disconnect { procs, infos })
    }

    /// Starts a job.
    pub fn spawn(&mut self, infos: Vec<Info>, apps: Vec<App>) -> Ticket {
        self.request(&Request::Spawn { infos, apps })
    }

    /// Makes a group of these processes, when all of them have called it.
    pub fn group_construct(&mut self, group: Text, procs: Vec<Proc>, infos: Vec<Info>) -> Ticket {
        self.request(&Request::GroupConstruct {
            group,
            procs,
            infos,
        })
    }

    /// Ends a group, when all of its members have called it.
    pub fn group_destruct(&mut self, group: Text, procs: Vec<Proc>, infos: Vec<Info>) -> Ticket {
        self.request(&Request::GroupDestruct {
            group,
            procs: Some(procs),
            infos,
        })
    }

    /// Asks for events with these codes, or for those that no other handler is for. With
    /// [`keys::EVENT_AFFECTED_PROC`] or [`keys::EVENT_AFFECTED_PROCS`] only events about these processes come, and
    /// those that do not say whom they are about. Events may come before the ticket is done.
    pub fn register(&mut self, codes: Vec<Status>, infos: Vec<Info>) -> (HandlerId, Ticket) {
        let full = self.handlers.len() >= MAX_HANDLERS;
        let handler = self.handlers.add(codes.clone(), &infos);
        if full {
            self.handlers.remove(handler);
            return (handler, self.decided(Err(Status::RESOURCE_BUSY)));
        }
        let request = Request::Register { codes, infos };
        let ticket = self.ask(&request, Some(Purpose::Register(handler)));
        (handler, ticket)
    }

    /// Asks for no more events.
    pub fn deregister(&mut self, handler: HandlerId) {
        let codes = self.handlers.remove(handler);
        if !codes.is_empty() {
            self.tell(&Request::Deregister { codes });
        }
    }

    /// Raises an event.
    pub fn notify(&mut self, status: Status, range: Range, infos: Vec<Info>) -> Ticket {
        self.request(&Request::Notify {
            status,
            range,
            infos,
        })
    }

    /// Ends these processes, or the whole job where none is named, with `status` as the code with which this program
    /// exits. It ends when it is told to, not by this.
    pub fn abort(&mut self, status: Status, message: Text, procs: Vec<Proc>) -> Ticket {
        self.request(&Request::Abort {
            status,
            message,
            procs,
        })
    }

    /// Asks for what has no method of its own. [`Request::Finalize`] has one, and is answered `BAD_PARAM` here.
    pub fn request(&mut self, request: &Request) -> Ticket {
        self.ask(request, None)
    }

    /// Tells the server that this program is done. After the answer come the end of the connection and
    /// [`Event::Finalized`].
    pub fn finalize(&mut self) -> Ticket {
        if !matches!(self.phase, Phase::Ready | Phase::Ended) {
            return self.decided(Err(Status::INIT));
        }
        let ticket = self.client.finalize(self.now);
        self.pump();
        ticket
    }

    /// Ends the connection without a word. For a process of a job that is an abnormal end.
    pub fn close(&mut self) {
        self.client.close();
        self.pump();
    }

    /// Tells the server that this program lives, where it has asked to be watched.
    pub fn heartbeat(&mut self) {
        self.client.heartbeat();
        self.pump();
    }

    /// Sets the time at which a request that is not done is given up, with `TIMEOUT`.
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
            return self.decided(Err(Status::INIT));
        }
        let ticket = self.client.request(request);
        if let Some(purpose) = purpose {
            self.purposes.insert(ticket, purpose);
        }
        self.pump();
        ticket
    }

    /// Sends what has no answer.
    pub(super) fn tell(&mut self, request: &Request) {
        self.ask(request, Some(Purpose::Nothing));
    }

    /// A ticket whose result is known already.
    pub(crate) fn decided(&mut self, result: Result<Done, Status>) -> Ticket {
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
