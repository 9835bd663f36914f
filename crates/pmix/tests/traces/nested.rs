//! Buffers inside messages: each decodes completely, and encodes to the same bytes again.

use bytes::Bytes;
use pmix::{
    codec::{Format, Reader, Wire, Writer},
    keys,
    message::{Answer, Command, Facts, Request},
    value::{Elements, Info, Kval, Nspace, PmixRank, Proc, Value},
};

use crate::dialogue::Message;

/// Number of decoded buffers of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Opened {
    pub(crate) buckets: usize,
    pub(crate) of_procs: usize,
    pub(crate) of_ranks: usize,
    pub(crate) of_jobs: usize,
}

impl Opened {
    /// Decodes all buffers in a message.
    pub(crate) fn add(&mut self, format: Format, message: &Message) {
        match message {
            Message::Request(Request::Commit { buckets }) => {
                for (_, bucket) in buckets {
                    assert_eq!(bucket.kind, format.buffer_number());
                    let facts: Vec<Kval> = Reader::new(format, &bucket.bytes).each().unwrap();
                    let mut writer = Writer::new(format);
                    writer.each(&facts);
                    assert_eq!(writer.as_bytes(), bucket.bytes);
                    self.buckets += 1;
                    self.facts(format, &facts);
                }
            }
            Message::Request(Request::Spawn { infos, apps }) => {
                self.infos(format, infos);
                for app in apps {
                    self.infos(format, &app.info);
                }
            }
            Message::Answer { command, answer } => self.answer(format, *command, answer),
            Message::Hello(_)
            | Message::Welcome(_)
            | Message::Request(_)
            | Message::Push(_)
            | Message::Unreadable { .. } => {}
        }
    }

    fn answer(&mut self, format: Format, command: Command, answer: &Answer) {
        match answer {
            Answer::JobInfo { facts, .. }
            | Answer::Spawned { facts, .. }
            | Answer::Refreshed { facts, .. } => self.facts(format, facts),
            Answer::Buffers { buffers, .. } if command == Command::Get => {
                for buffer in buffers {
                    self.of_procs += 1;
                    let facts = again::<Proc>(format, buffer);
                    self.facts(format, &facts);
                }
            }
            Answer::Buffers { buffers, .. } => self.jobs(format, buffers),
            Answer::Group(group) => {
                self.jobs(format, &group.buffers);
                self.infos(format, &group.infos);
            }
            Answer::Infos { infos, .. } | Answer::Credential { infos, .. } => {
                self.infos(format, infos);
            }
            Answer::Found { data, .. } => {
                for found in data {
                    self.value(format, found.key.as_bytes(), &found.value);
                }
            }
            Answer::Status(_)
            | Answer::Number { .. }
            | Answer::Procs { .. }
            | Answer::Nodes { .. } => {}
        }
    }

    fn jobs(&mut self, format: Format, buffers: &[Bytes]) {
        for buffer in buffers {
            self.of_jobs += 1;
            let facts = again::<Nspace>(format, buffer);
            self.facts(format, &facts);
        }
    }

    fn facts(&mut self, format: Format, facts: &[Kval]) {
        for fact in facts {
            self.value(format, fact.key.as_bytes(), &fact.value);
        }
    }

    fn infos(&mut self, format: Format, infos: &[Info]) {
        for info in infos {
            self.value(format, info.key.as_bytes(), &info.value);
        }
    }

    fn value(&mut self, format: Format, key: &[u8], value: &Value) {
        match value {
            Value::ByteObject(bytes) if key == keys::PROC_BLOB.to_bytes() => {
                self.of_ranks += 1;
                let facts = again::<PmixRank>(format, bytes);
                self.facts(format, &facts);
            }
            // These programs put no byte objects. Every opaque value here is a buffer from a library and must be decoded.
            Value::ByteObject(_) | Value::Buffer(_) | Value::DataBuffer(_) => {
                panic!("nobody opens the buffer under {}", key.escape_ascii());
            }
            Value::Array(array) => {
                if let Elements::Values(values) = &array.elements {
                    for value in values {
                        self.value(format, key, value);
                    }
                }
            }
            Value::Info(info) => self.value(format, info.key.as_bytes(), &info.value),
            Value::Kval(fact) => self.value(format, fact.key.as_bytes(), &fact.value),
            _ => {}
        }
    }
}

/// Decodes a buffer and checks that it encodes to the same bytes again.
fn again<Owner: Wire>(format: Format, bytes: &Bytes) -> Vec<Kval> {
    let facts = Facts::<Owner>::decode(format, bytes).unwrap();
    assert_eq!(facts.encode(format), bytes);
    facts.facts
}
