//! The messages of a recorded dialogue.

use std::{collections::BTreeMap, fmt};

use bytes::Bytes;
use pmix::{
    Error,
    codec::{Format, Writer},
    frame::{self, Frame, Framer, Tag},
    handshake::{ConnectorKind, Hello, Welcome},
    message::{Answer, Command, GroupForm, Push, Request, Shape},
};

use crate::recording::{Recording, Side};

/// Message of either side.
#[derive(Debug)]
pub(crate) enum Message {
    Hello(Hello),
    Welcome(Welcome),
    Request(Request),
    Answer {
        command: Command,
        answer: Answer,
    },
    Push(Push),
    /// Undecodable answer to a command.
    Unreadable {
        command: Command,
        error: Error,
    },
}

/// Message with its original bytes.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) side: Side,
    pub(crate) message: Message,
    pub(crate) payload: Bytes,
    /// Sender index and tag of the header; `None` for the handshake.
    pub(crate) header: Option<(u32, Tag)>,
}

/// All messages of a connection.
#[derive(Debug)]
pub(crate) struct Dialogue {
    pub(crate) format: Format,
    /// Layout of the answers to group constructs.
    pub(crate) group: GroupForm,
    pub(crate) entries: Vec<Entry>,
    /// Number of trailing bytes in each side's stream that are not a whole message.
    pub(crate) left: [usize; 2],
    /// Requests without an answer.
    pub(crate) unanswered: Vec<Command>,
}

impl Dialogue {
    pub(crate) fn of(recording: &Recording) -> Self {
        let mut reading = Reading::new(recording);
        for (side, bytes) in &recording.parts {
            match side {
                Side::Client => reading.client(bytes),
                Side::Server => reading.server(bytes),
            }
        }
        Self {
            format: reading.hello.unwrap().1,
            group: reading.group,
            entries: reading.entries,
            left: [
                reading.from_client.pending(),
                reading.from_server.pending() + reading.welcome.len(),
            ],
            unanswered: reading.asked.into_values().collect(),
        }
    }

    /// Encodes the messages of one side.
    pub(crate) fn encoded(&self, side: Side) -> Vec<u8> {
        let entries = self.entries.iter().filter(|entry| entry.side == side);
        entries
            .flat_map(|entry| entry.encoded(self.format))
            .collect()
    }
}

impl Entry {
    fn encoded(&self, format: Format) -> Vec<u8> {
        if let Message::Welcome(welcome) = &self.message {
            return welcome.encode();
        }
        let Some((sender, tag)) = self.header else {
            return frame::handshake(&self.repacked(format));
        };
        let mut message = frame::start(sender);
        message.extend_from_slice(&self.repacked(format));
        frame::finish(message, tag)
    }

    /// Encodes the payload again from the decoded message.
    pub(crate) fn repacked(&self, format: Format) -> Vec<u8> {
        let mut writer = Writer::new(format);
        match &self.message {
            Message::Hello(hello) => return hello.encode(),
            Message::Welcome(welcome) => return welcome.encode(),
            Message::Request(request) => request.encode(&mut writer),
            Message::Answer { answer, .. } => answer.encode(&mut writer),
            Message::Push(push) => push.encode(&mut writer),
            Message::Unreadable { .. } => writer.raw(&self.payload),
        }
        writer.into_bytes()
    }
}

/// Prints one line per message.
impl fmt::Display for Dialogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for entry in &self.entries {
            let arrow = match entry.side {
                Side::Client => "->",
                Side::Server => "<-",
            };
            match entry.header {
                Some((_, Tag::Request(tag))) => write!(f, "{arrow} {tag} ")?,
                _ => write!(f, "{arrow} ")?,
            }
            match &entry.message {
                Message::Hello(hello) => writeln!(f, "{hello}")?,
                Message::Welcome(welcome) => writeln!(f, "{welcome}")?,
                Message::Request(request) => writeln!(f, "{}", request.display(self.format))?,
                Message::Answer { answer, .. } => writeln!(f, "{}", answer.display(self.format))?,
                Message::Push(push) => writeln!(f, "{}", push.display(self.format))?,
                Message::Unreadable { command, error } => writeln!(f, "{command:?}: {error}")?,
            }
        }
        Ok(())
    }
}

/// State while a recording is read.
struct Reading {
    group: GroupForm,
    from_client: Framer,
    from_server: Framer,
    hello: Option<(ConnectorKind, Format)>,
    /// The received part of the server's answer to the handshake.
    welcome: Vec<u8>,
    welcomed: bool,
    asked: BTreeMap<u32, Command>,
    entries: Vec<Entry>,
}

impl Reading {
    fn new(recording: &Recording) -> Self {
        Self {
            // These servers use the layout of their own version, regardless of the client's.
            group: GroupForm::of_version([recording.server_major(), 0, 0]),
            from_client: Framer::default(),
            from_server: Framer::default(),
            hello: None,
            welcome: Vec::new(),
            welcomed: false,
            asked: BTreeMap::new(),
            entries: Vec::new(),
        }
    }

    fn client(&mut self, bytes: &[u8]) {
        self.from_client.push(bytes);
        if self.hello.is_none() {
            let Some(payload) = self.from_client.next_handshake().unwrap() else {
                return;
            };
            let hello = Hello::decode(&payload).unwrap();
            self.hello = Some((hello.kind, hello.format().unwrap()));
            self.entries.push(Entry {
                side: Side::Client,
                message: Message::Hello(hello),
                payload,
                header: None,
            });
        }
        let (_, format) = self.hello.unwrap();
        while let Some(frame) = self.from_client.next_frame().unwrap() {
            let request = Request::decode(format, &frame.payload).unwrap();
            let Tag::Request(tag) = frame.tag else {
                panic!("{:?} from a client", frame.tag);
            };
            if Shape::of(request.command(), self.group) != Shape::Nothing {
                let before = self.asked.insert(tag, request.command());
                assert_eq!(before, None, "two requests have the tag {tag}");
            }
            self.keep(Side::Client, frame, Message::Request(request));
        }
    }

    fn server(&mut self, bytes: &[u8]) {
        let (kind, format) = self.hello.unwrap();
        if self.welcomed {
            self.from_server.push(bytes);
        } else {
            self.welcome.extend_from_slice(bytes);
            let Some((welcome, used)) = Welcome::decode(kind, &self.welcome).unwrap() else {
                return;
            };
            self.welcomed = true;
            let rest = self.welcome.split_off(used);
            self.from_server.push(&rest);
            self.entries.push(Entry {
                side: Side::Server,
                message: Message::Welcome(welcome),
                payload: std::mem::take(&mut self.welcome).into(),
                header: None,
            });
        }
        while let Some(frame) = self.from_server.next_frame().unwrap() {
            let message = self.answer_or_push(format, &frame);
            self.keep(Side::Server, frame, message);
        }
    }

    fn answer_or_push(&mut self, format: Format, frame: &Frame) -> Message {
        let Tag::Request(tag) = frame.tag else {
            let push = Push::decode(format, frame.tag, &frame.payload).unwrap();
            return Message::Push(push.unwrap());
        };
        let command = self.asked.remove(&tag).unwrap();
        let shape = Shape::of(command, self.group);
        match Answer::decode(format, shape, &frame.payload) {
            Ok(answer) => Message::Answer { command, answer },
            Err(error) => Message::Unreadable { command, error },
        }
    }

    fn keep(&mut self, side: Side, frame: Frame, message: Message) {
        self.entries.push(Entry {
            side,
            message,
            payload: frame.payload,
            header: Some((frame.sender, frame.tag)),
        });
    }
}
