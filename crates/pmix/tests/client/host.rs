//! The caller of a client, and a scripted server.

use base::Time;
use pmix::{
    client::{Client, Config, Connector, Event, Input, Output, Program, ProgramEvent},
    codec::{Format, Writer},
    frame::{self, Frame, Framer, Tag},
    handshake::Owner,
    message::{Answer, Push, Request},
    tool::{self, Tool},
    value::{Key, Kval, Nspace, PmixRank, Proc, Value},
};

pub(crate) const NOW: Time = Time::ZERO;

/// Interface that all client types share.
pub(crate) trait Machine {
    type Event;
    fn handle(&mut self, now: Time, input: Input<'_>);
    fn poll(&mut self) -> Option<Output<Self::Event>>;
}

macro_rules! machine {
    ($machine:ty, $event:ty) => {
        impl Machine for $machine {
            type Event = $event;

            fn handle(&mut self, now: Time, input: Input<'_>) {
                <$machine>::handle(self, now, input);
            }

            fn poll(&mut self) -> Option<Output<Self::Event>> {
                <$machine>::poll(self)
            }
        }
    };
}

machine!(Client, Event);
machine!(Program, ProgramEvent);
machine!(Tool, tool::Event);

/// A client and its outputs.
pub(crate) struct Host<M: Machine> {
    pub(crate) machine: M,
    pub(crate) format: Format,
    pub(crate) now: Time,
    /// Messages of the client: requests and heartbeats.
    pub(crate) frames: Vec<Frame>,
    pub(crate) hello: Option<Vec<u8>>,
    pub(crate) events: Vec<M::Event>,
    pub(crate) connects: usize,
    pub(crate) closes: usize,
    framer: Framer,
}

impl<M: Machine> Host<M> {
    pub(crate) fn new(machine: M, format: Format) -> Self {
        let mut host = Self {
            machine,
            format,
            now: NOW,
            frames: Vec::new(),
            hello: None,
            events: Vec::new(),
            connects: 0,
            closes: 0,
            framer: Framer::default(),
        };
        host.drain();
        host
    }

    pub(crate) fn handle(&mut self, input: Input<'_>) {
        self.machine.handle(self.now, input);
        self.drain();
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.handle(Input::Bytes(bytes));
    }

    /// Carries out the outputs of the client.
    pub(crate) fn drain(&mut self) {
        while let Some(output) = self.machine.poll() {
            match output {
                Output::Connect(_) => self.connects += 1,
                Output::Close => self.closes += 1,
                Output::Event(event) => self.events.push(event),
                Output::Send(bytes) => {
                    self.framer.push(&bytes);
                    if self.hello.is_none() {
                        let hello = self.framer.next_handshake().unwrap().unwrap();
                        self.hello = Some(hello.to_vec());
                    }
                }
            }
        }
        while let Some(frame) = self.framer.next_frame().unwrap() {
            self.frames.push(frame);
        }
    }

    /// Opens the connection and sends the server's welcome with index 0.
    pub(crate) fn welcome(&mut self) {
        self.handle(Input::Opened);
        self.bytes(&[0; 8]);
    }

    /// Returns the requests since the last call, with their tags.
    pub(crate) fn asked(&mut self) -> Vec<(u32, Request)> {
        let format = self.format;
        let frames = std::mem::take(&mut self.frames);
        let requests = frames.iter().map(|frame| {
            let request = Request::decode(format, &frame.payload).unwrap();
            (frame.tag.number(), request)
        });
        requests.collect()
    }

    /// Returns the only request since the last call.
    pub(crate) fn asked_one(&mut self) -> (u32, Request) {
        let mut asked = self.asked();
        assert_eq!(asked.len(), 1, "{asked:?}");
        asked.remove(0)
    }

    pub(crate) fn answer(&mut self, tag: u32, answer: &Answer) {
        let bytes = message(self.format, Tag::Request(tag), |writer| {
            answer.encode(writer);
        });
        self.bytes(&bytes);
    }

    pub(crate) fn push(&mut self, push: &Push) {
        let bytes = message(self.format, push.tag(), |writer| push.encode(writer));
        self.bytes(&bytes);
    }

    /// Returns the events since the last call.
    pub(crate) fn news(&mut self) -> Vec<M::Event> {
        std::mem::take(&mut self.events)
    }
}

/// Encodes a message of the server.
pub(crate) fn message(format: Format, tag: Tag, payload: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut writer = Writer::appending_to(format, frame::start(0));
    payload(&mut writer);
    frame::finish(writer.into_bytes(), tag)
}

pub(crate) fn proc(nspace: &str, rank: u32) -> Proc {
    Proc {
        nspace: Nspace::from_text(nspace).unwrap(),
        rank: PmixRank(rank),
    }
}

pub(crate) fn key(text: &str) -> Key {
    Key::from_text(text).unwrap()
}

pub(crate) fn fact(text: &str, value: Value) -> Kval {
    let key = key(text);
    Kval { key, value }
}

pub(crate) const OWNER: Owner = Owner {
    uid: 1000,
    gid: 100,
};

/// Returns the configuration of rank 1 of `job`.
pub(crate) fn config() -> Config {
    let server = "daemon.0;tcp4://127.0.0.1:4711".parse().unwrap();
    Config::new(server, Connector::Client(proc("job", 1)), OWNER)
}

pub(crate) fn client() -> Host<Client> {
    Host::new(Client::new(NOW, config()), Format::V4)
}

pub(crate) fn program() -> Host<Program> {
    Host::new(Program::new(NOW, config()), Format::V4)
}

/// Creates a program that is ready, with this job info.
pub(crate) fn started(facts: Vec<Kval>) -> Host<Program> {
    let mut host = program();
    host.welcome();
    let (tag, request) = host.asked_one();
    assert_eq!(request, Request::JobInfo);
    let nspace = proc("job", 0).nspace;
    host.answer(tag, &Answer::JobInfo { nspace, facts });
    assert!(matches!(host.news()[..], [ProgramEvent::Ready { .. }]));
    host
}
