//! The seeds of the fuzz targets, taken from the recordings. There is one for each command, shape, kind of value and codec, so
//! that the fuzzers start with every message that real libraries send.
//!
//! `UPDATE_SEEDS=1 cargo test -p pmix --test traces` writes them to `fuzz/seeds`. Without it, the test reports missing and
//! obsolete seeds.

use std::{collections::BTreeMap, fs, path::Path};

use pmix::{
    codec::{Format, Reader, Wire, Writer},
    frame::Frame,
    message::{Answer, Request},
    value::{DataArray, DataType, Elements, Info, Kval, Value},
};

use crate::{
    choice,
    dialogue::{Dialogue, Message},
    recording, shapes,
};

/// Longest text in a seed, in bytes. Longer texts are cut: a topology of 6 KB does not help a fuzzer.
const TEXT_MAX: usize = 40;
/// Maximum number of seeds: enough for one of everything.
const SEEDS_MAX: usize = 200;
const BYTES_MAX: usize = 300_000;

/// Seeds by target and name. Among several with the same name the shortest is kept.
#[derive(Default)]
struct Seeds(BTreeMap<String, Vec<u8>>);

impl Seeds {
    fn add(&mut self, name: String, first: usize, bytes: &[u8]) {
        let mut seed = vec![u8::try_from(first).unwrap()];
        seed.extend_from_slice(bytes);
        let kept = self.0.entry(name).or_insert_with(|| seed.clone());
        if seed.len() < kept.len() {
            *kept = seed;
        }
    }

    fn dialogue(&mut self, dialogue: &Dialogue) {
        let format = dialogue.format;
        let number = number(format);
        let codec = format.codec_name().to_string_lossy();
        for entry in &dialogue.entries {
            match &entry.message {
                Message::Hello(hello) => {
                    let [major, ..] = hello.version_numbers();
                    let name = format!("pmix_frame/{:?}-{major}", hello.kind).to_lowercase();
                    let mut stream = pmix::frame::handshake(&entry.payload);
                    // Followed by the first request.
                    let question = dialogue.entries.iter().find_map(|entry| {
                        let (sender, tag) = entry.header?;
                        let payload = entry.payload.clone();
                        let frame = Frame {
                            sender,
                            tag,
                            payload,
                        };
                        matches!(entry.message, Message::Request(_)).then_some(frame)
                    });
                    stream.extend(question.unwrap().to_bytes());
                    self.add(name, 6, &stream);
                }
                Message::Welcome(welcome) => {
                    let tool = matches!(welcome, pmix::handshake::Welcome::Tool { .. });
                    let whom = if tool { "tool" } else { "client" };
                    self.add(format!("pmix_frame/welcome-{whom}"), 6, &entry.payload);
                }
                Message::Request(request) => {
                    let what = format!("{:?}", request.command()).to_lowercase();
                    let payload = packed(format, |writer| request.encode(writer));
                    self.add(format!("pmix_request/{what}-{codec}"), number, &payload);
                    self.request(format, request);
                }
                Message::Answer { command, answer } => {
                    let answer = shortened_answer(answer);
                    let payload = packed(format, |writer| answer.encode(writer));
                    let shape = pmix::message::Shape::of(*command, dialogue.group);
                    let number = number | position(&shapes::SHAPES, &shape) << 2;
                    let what = format!("{command:?}").to_lowercase();
                    let how = if answer.status().0 == 0 {
                        "good"
                    } else {
                        "refused"
                    };
                    let name = format!("pmix_answer/{what}-{how}-{codec}");
                    self.add(name, number, &payload);
                    if let Answer::JobInfo { facts, .. } = &answer {
                        facts
                            .iter()
                            .for_each(|fact| self.value(format, &fact.value));
                    }
                }
                Message::Push(push) => {
                    let number = number | shapes::SHAPES.len() << 2;
                    let what = format!("{:?}", push.tag()).to_lowercase();
                    self.add(
                        format!("pmix_answer/{what}-{codec}"),
                        number,
                        &entry.payload,
                    );
                }
                Message::Unreadable { .. } => {}
            }
        }
    }

    fn request(&mut self, format: Format, request: &Request) {
        match request {
            Request::Commit { buckets } => {
                for (_, bucket) in buckets {
                    let facts: Vec<Kval> = Reader::new(format, &bucket.bytes).each().unwrap();
                    facts
                        .iter()
                        .for_each(|fact| self.value(format, &fact.value));
                }
            }
            Request::Spawn { apps, .. } => {
                let codec = format.codec_name().to_string_lossy();
                for app in apps {
                    let bytes = packed(format, |writer| app.write(writer));
                    self.add(
                        format!("pmix_value/app-{codec}"),
                        number(format) | 2 << 2,
                        &bytes,
                    );
                }
            }
            _ => {}
        }
    }

    fn value(&mut self, format: Format, value: &Value) {
        let kind = value.kind().name().unwrap().to_lowercase();
        let codec = format.codec_name().to_string_lossy();
        let bytes = packed(format, |writer| value.write(writer));
        self.add(format!("pmix_value/{kind}-{codec}"), number(format), &bytes);
    }

    /// Adds a seed of zeros for every type that accepts zeros, because no recorded program sends some of them.
    fn every_kind(&mut self) {
        for kind in 0..=73 {
            let mut writer = Writer::new(Format::V4);
            DataType(kind).write(&mut writer);
            writer.raw(&[0; 64]);
            if let Ok(value) = Value::read(&mut Reader::new(Format::V4, writer.as_bytes())) {
                self.value(Format::V4, &value);
            }
        }
    }
}

fn number(format: Format) -> usize {
    position(&choice::FORMATS, &format)
}

fn position<T: PartialEq>(all: &[T], one: &T) -> usize {
    all.iter().position(|other| other == one).unwrap()
}

fn packed(format: Format, write: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut writer = Writer::new(format);
    write(&mut writer);
    writer.into_bytes()
}

fn shortened_answer(answer: &Answer) -> Answer {
    let mut answer = answer.clone();
    match &mut answer {
        Answer::JobInfo { facts, .. } | Answer::Spawned { facts, .. } => {
            for fact in facts {
                fact.value = shortened(&fact.value);
            }
        }
        Answer::Infos { infos, .. } => {
            for info in infos {
                info.value = shortened(&info.value);
            }
        }
        _ => {}
    }
    answer
}

fn shortened(value: &Value) -> Value {
    match value {
        Value::String(Some(text)) if text.count_bytes() > TEXT_MAX => {
            Value::text(&text.to_string_lossy()[..TEXT_MAX])
        }
        Value::Array(array) => match &array.elements {
            Elements::Values(values) => Value::Array(Box::new(DataArray {
                kind: array.kind,
                elements: Elements::Values(values.iter().take(12).map(shortened).collect()),
            })),
            _ => value.clone(),
        },
        Value::Info(info) => Value::Info(Box::new(Info {
            key: info.key.clone(),
            flags: info.flags,
            value: shortened(&info.value),
        })),
        value => value.clone(),
    }
}

/// Returns the seed files of our targets.
fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for target in ["pmix_frame", "pmix_value", "pmix_request", "pmix_answer"] {
        let Ok(entries) = fs::read_dir(directory.join(target)) else {
            continue;
        };
        for entry in entries {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            files.insert(format!("{target}/{name}"), fs::read(entry.path()).unwrap());
        }
    }
    files
}

#[test]
fn the_seeds_of_the_fuzz_targets_are_of_the_recordings() {
    let mut seeds = Seeds::default();
    for recording in recording::all() {
        seeds.dialogue(&Dialogue::of(&recording));
    }
    seeds.every_kind();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    let mut there = files(&directory);
    // Inputs that a fuzzer has found are kept.
    there.retain(|name, _| !name.contains("/found-"));
    if std::env::var_os("UPDATE_SEEDS").is_some() {
        for name in there.keys().filter(|name| !seeds.0.contains_key(*name)) {
            fs::remove_file(directory.join(name)).unwrap();
        }
        for (name, seed) in &seeds.0 {
            let path = directory.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, seed).unwrap();
        }
        return;
    }
    let names = |seeds: &BTreeMap<String, Vec<u8>>| seeds.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&there), names(&seeds.0), "UPDATE_SEEDS=1 mends it");
    assert!(there == seeds.0, "UPDATE_SEEDS=1 mends it");
    let bytes: usize = there.values().map(Vec::len).sum();
    assert!(
        there.len() <= SEEDS_MAX && bytes <= BYTES_MAX,
        "{}, {bytes}",
        there.len()
    );
}
