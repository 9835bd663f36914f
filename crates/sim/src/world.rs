//! The state that all parts of a run share: virtual time, random numbers, future events, links, the ledger and the record.

use std::{
    collections::{BTreeMap, VecDeque},
    ffi::OsString,
    time::Duration,
};

use base::{JobId, NodeId, ProcId, Time};
use bytes::Bytes;
use dvm::{
    SpawnOrder,
    preload::{FoundFile, NotFound},
    proto::{
        FromFront, FrontId, OutputCredit, PreloadFailure, Stream, ToController, ToDaemon, ToFront,
    },
};

use crate::{
    agenda::Agenda,
    carrier::Carrier,
    kernel::{ClientId, Pid},
    ledger::Ledger,
    record::{Played, Record, Recorded, Report},
    rng::Rng,
    scenario::Visit,
};

/// Delays of one run. A maximum bounds a random delay, which may be zero; `pmi` is the same for each piece of a PMI message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Latency {
    pub(crate) link_max: Duration,
    pub(crate) spawn_max: Duration,
    pub(crate) io_max: Duration,
    pub(crate) tick_late_max: Duration,
    pub(crate) pmi: Duration,
}

/// A scheduled event. Events of links carry no message: the receiver takes the oldest message of the link.
#[derive(Debug)]
pub(crate) enum Event {
    Step {
        node: NodeId,
        pid: Pid,
        token: u64,
    },
    Readable {
        node: NodeId,
        proc: ProcId,
        stream: Stream,
    },
    FeedStdin {
        node: NodeId,
        proc: ProcId,
    },
    /// SIGCHLD reaches the daemon, which then reaps all its dead children.
    Reap {
        node: NodeId,
    },
    Trap {
        node: NodeId,
        pid: Pid,
    },
    Spawn {
        node: NodeId,
        order: Box<SpawnOrder>,
    },
    Swept {
        node: NodeId,
        job: JobId,
        left: Vec<Pid>,
    },
    /// An action on the files of a job is done.
    FilesActed {
        node: NodeId,
        job: JobId,
        result: Result<Option<OsString>, PreloadFailure>,
    },
    /// Files were looked up on the controller's node.
    FilesFound {
        job: JobId,
        result: Result<Vec<FoundFile>, NotFound>,
    },
    /// Bytes of a file were read on the controller's node.
    FileRead {
        job: JobId,
        result: Result<Bytes, String>,
    },
    PmiToDaemon {
        node: NodeId,
        proc: ProcId,
        bytes: Vec<u8>,
    },
    PmiClosed {
        node: NodeId,
        proc: ProcId,
    },
    PmiToRank {
        node: NodeId,
        proc: ProcId,
        bytes: Vec<u8>,
    },
    /// Bytes or the end of a PMIx connection may have arrived at the daemon (`ClientUp`) or at the process (`ClientDown`).
    ClientUp {
        node: NodeId,
        id: ClientId,
    },
    ClientDown {
        node: NodeId,
        id: ClientId,
    },
    /// A tool connects to the server of a node.
    Visit {
        visit: Visit,
    },
    /// A tool that has connected has waited for its welcome.
    VisitorTick {
        node: NodeId,
        id: ClientId,
    },
    /// A tool connects to the server beside the controller.
    GuestComes {
        number: usize,
    },
    /// It does what it does next.
    GuestActs {
        node: NodeId,
        id: ClientId,
    },
    GuestTick {
        node: NodeId,
        id: ClientId,
        due: Time,
    },
    /// The pipe to the tool that has started the launcher closes.
    KeepaliveCloses,
    DaemonTick {
        node: NodeId,
        due: Time,
    },
    ControllerTick {
        due: Time,
    },
    /// The oldest message of the link from this daemon arrives at the controller. The next three events are alike.
    ToController {
        node: NodeId,
    },
    ToDaemon {
        node: NodeId,
    },
    ToFront {
        front: FrontId,
    },
    FromFront {
        front: FrontId,
    },
    FrontSubmits {
        front: FrontId,
    },
    FrontActs {
        front: FrontId,
        index: usize,
    },
    FrontReads {
        front: FrontId,
    },
    FrontReleases {
        front: FrontId,
    },
    Printed {
        front: FrontId,
        credit: OutputCredit,
    },
    Fault {
        index: usize,
    },
    /// A fault of the network ends.
    Mend {
        index: usize,
    },
}

/// An item in flight on a link: a message, or the loss of the connection (`Lost`).
#[derive(Debug)]
pub(crate) enum Carried<Message> {
    Message(Message),
    Lost,
}

/// One direction of a link. Each message has its own random delay, but none overtakes an earlier one.
#[derive(Debug)]
pub(crate) struct Link<Message> {
    queue: VecDeque<Carried<Message>>,
    last_at: Time,
}

impl<Message> Link<Message> {
    pub(crate) const fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            last_at: Time::ZERO,
        }
    }

    pub(crate) fn receive(&mut self) -> Option<Carried<Message>> {
        self.queue.pop_front()
    }

    /// Receives the next message if it is of some kind, before its time. The event that is scheduled for it remains.
    pub(crate) fn receive_if(&mut self, is_right: impl Fn(&Message) -> bool) -> Option<Message> {
        match self.queue.front() {
            Some(Carried::Message(message)) if is_right(message) => {}
            _ => return None,
        }
        match self.queue.pop_front() {
            Some(Carried::Message(message)) => Some(message),
            _ => None,
        }
    }

    /// Drops all messages in flight. The events that are scheduled for them remain.
    pub(crate) fn cut(&mut self) {
        self.queue.clear();
    }
}

/// All links: `up` and `down` connect the controller and the daemon of each node.
#[derive(Debug)]
pub(crate) struct Links {
    pub(crate) up: BTreeMap<NodeId, Link<ToController>>,
    pub(crate) down: BTreeMap<NodeId, Link<ToDaemon>>,
    pub(crate) to_front: BTreeMap<FrontId, Link<ToFront>>,
    pub(crate) from_front: BTreeMap<FrontId, Link<FromFront>>,
}

/// The state that all parts of a run share.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) rng: Rng,
    pub(crate) latency: Latency,
    pub(crate) links: Links,
    /// The tree between the controller and the daemons, instead of the links `up` and `down`.
    pub(crate) carrier: Option<Box<Carrier>>,
    /// The node whose daemon is beside the controller, and no process of the tree.
    pub(crate) beside_root: Option<NodeId>,
    pub(crate) ledger: Ledger,
    agenda: Agenda<Event>,
    record: Record,
}

impl World {
    pub(crate) fn new(
        rng: Rng,
        latency: Latency,
        links: Links,
        ledger: Ledger,
        recorded: Recorded,
    ) -> Self {
        Self {
            now: Time::ZERO,
            rng,
            latency,
            links,
            carrier: None,
            beside_root: None,
            ledger,
            agenda: Agenda::new(),
            record: Record::new(recorded),
        }
    }

    pub(crate) fn at(&mut self, at: Time, event: Event) {
        self.agenda.at(at.max(self.now), event);
    }

    pub(crate) fn after(&mut self, delay: Duration, event: Event) {
        self.at(self.now + delay, event);
    }

    /// Removes and returns the next event, and sets the virtual time to that of the event. `None` if no event is scheduled.
    pub(crate) fn next(&mut self) -> Option<Event> {
        let event = self.agenda.next()?;
        self.now = self.agenda.now;
        Some(event)
    }

    /// Returns a random delay from zero to `max`, inclusive, in whole microseconds.
    pub(crate) fn delay(&mut self, max: Duration) -> Duration {
        let max = u64::try_from(max.as_micros()).unwrap_or(u64::MAX);
        self.rng.micros(0, max)
    }

    /// Returns the time of the next event.
    pub(crate) fn next_at(&self) -> Option<Time> {
        self.agenda.next_at()
    }

    pub(crate) fn send_up(&mut self, node: NodeId, message: Carried<ToController>) {
        if let Carried::Message(message) = &message
            && let Some(wrong) = self.ledger.on_said(node, message)
        {
            return self.fault(wrong);
        }
        if let (Some(carrier), Carried::Message(message)) = (&mut self.carrier, &message)
            && self.beside_root != Some(node)
        {
            return carrier.send_up(self.now, node, message.clone());
        }
        let delay = self.delay(self.latency.link_max);
        let Some(link) = self.links.up.get_mut(&node) else {
            return;
        };
        link.last_at = link.last_at.max(self.now + delay);
        link.queue.push_back(message);
        let at = link.last_at;
        self.at(at, Event::ToController { node });
    }

    pub(crate) fn send_down(&mut self, node: NodeId, message: Carried<ToDaemon>) {
        if let Carried::Message(message) = &message
            && let Some(wrong) = self.ledger.on_told(node, message)
        {
            return self.fault(wrong);
        }
        if let (Some(carrier), Carried::Message(message)) = (&mut self.carrier, &message)
            && self.beside_root != Some(node)
        {
            return carrier.send_down(self.now, node, message.clone());
        }
        let delay = self.delay(self.latency.link_max);
        let Some(link) = self.links.down.get_mut(&node) else {
            return;
        };
        link.last_at = link.last_at.max(self.now + delay);
        link.queue.push_back(message);
        let at = link.last_at;
        self.at(at, Event::ToDaemon { node });
    }

    pub(crate) fn tell_front(&mut self, front: FrontId, message: ToFront) {
        let delay = self.delay(self.latency.link_max);
        let Some(link) = self.links.to_front.get_mut(&front) else {
            return;
        };
        link.last_at = link.last_at.max(self.now + delay);
        link.queue.push_back(Carried::Message(message));
        let at = link.last_at;
        self.at(at, Event::ToFront { front });
    }

    pub(crate) fn hear_front(&mut self, front: FrontId, message: Carried<FromFront>) {
        let delay = self.delay(self.latency.link_max);
        let Some(link) = self.links.from_front.get_mut(&front) else {
            return;
        };
        link.last_at = link.last_at.max(self.now + delay);
        link.queue.push_back(message);
        let at = link.last_at;
        self.at(at, Event::FromFront { front });
    }

    /// Writes one line to the record. `who` and `what` are called only if there is a record. The text of `what` is cut to 110
    /// characters.
    pub(crate) fn note(&mut self, who: impl FnOnce() -> String, what: impl FnOnce() -> String) {
        self.record.note(self.now, || {
            let what: String = what().chars().take(110).collect();
            format!("{:<6} {what}", who())
        });
    }

    /// Records a fault, which ends the run. Later faults are ignored.
    pub(crate) fn fault(&mut self, what: String) {
        self.record.fault(self.now, what);
    }

    /// Records a fault unless `holds` is true. `what` returns its description.
    pub(crate) fn require(&mut self, holds: bool, what: impl FnOnce() -> String) {
        self.record.require(self.now, holds, what);
    }

    pub(crate) const fn is_faulty(&self) -> bool {
        self.record.is_faulty()
    }

    /// Ends a run: it has failed if a fault was recorded.
    pub(crate) fn into_played(self, report: Report) -> Played {
        self.record.into_played(report)
    }
}
