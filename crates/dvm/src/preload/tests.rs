//! One source and several stores, in virtual time, over files that are vectors.

use std::{
    collections::{BTreeMap, VecDeque},
    ffi::OsString,
    time::Duration,
};

use base::{NodeId, Time};
use bytes::Bytes;
use proptest::prelude::*;

use super::{
    CHUNK, WINDOW,
    source::{Source, SourceOutput},
    store::{FileAct, Store, StoreOutput},
};
use crate::{
    proto::{PreloadFailure, PreloadNews, StoredFile, ToPreload},
    spec::{Preload, PreloadFile, Preloaded},
};

/// A node: its store, the messages on their way to it, and what it has.
#[derive(Default)]
struct Host {
    store: Option<Store>,
    down: VecDeque<ToPreload>,
    files: BTreeMap<OsString, (u32, Vec<u8>)>,
    open: Vec<StoredFile>,
    chunks: Vec<u64>,
    /// Room for bytes.
    room: u64,
    is_removed: bool,
}

struct World {
    now: Time,
    source: Source,
    /// The files at the controller.
    files: BTreeMap<OsString, Vec<u8>>,
    hosts: Vec<Host>,
    sent: u64,
    /// The most bytes that a node has not written.
    most: u64,
    progress: Vec<u64>,
    end: Option<Result<(), (Vec<NodeId>, PreloadFailure)>>,
}

fn world(files: &[(&str, u32, &[u8])], nodes: u32) -> World {
    let preload = Preload {
        place: None,
        files: files
            .iter()
            .map(|(name, mode, _)| PreloadFile {
                path: format!("/from/{name}").into(),
                name: name.into(),
                mode: *mode,
            })
            .collect(),
        use_of: Preloaded::default(),
    };
    let content =
        |(name, _, bytes): &(&str, u32, &[u8])| (format!("/from/{name}").into(), bytes.to_vec());
    let mut world = World {
        now: Time::ZERO,
        source: Source::new(preload),
        files: files.iter().map(content).collect(),
        hosts: (0..nodes)
            .map(|_| Host {
                room: u64::MAX,
                ..Host::default()
            })
            .collect(),
        sent: 0,
        most: 0,
        progress: Vec::new(),
        end: None,
    };
    world.source.offer((0..nodes).map(NodeId));
    world
}

impl World {
    /// Carries out what the source asks for.
    fn step_source(&mut self) {
        while let Some(output) = self.source.poll() {
            match output {
                SourceOutput::Find(_) => panic!("all files are known"),
                SourceOutput::Read(order) => {
                    let file = self.files.get(&order.path);
                    let result = file.ok_or_else(|| "gone".to_owned()).map(|file| {
                        let from = usize::try_from(order.offset).unwrap().min(file.len());
                        let to = (from + order.length).min(file.len());
                        Bytes::copy_from_slice(&file[from..to])
                    });
                    self.source.on_read(result);
                }
                SourceOutput::Send(what) => {
                    if let ToPreload::Chunk { bytes, .. } = &what {
                        self.sent += bytes.len() as u64;
                    }
                    for host in &mut self.hosts {
                        host.down.push_back(what.clone());
                    }
                }
                SourceOutput::Progress(progress) => self.progress.push(progress.done),
                SourceOutput::Done => self.end = Some(Ok(())),
                SourceOutput::Failed(nodes, failure) => self.end = Some(Err((nodes, failure))),
            }
        }
        for host in &self.hosts {
            let waiting = host.down.iter().map(|what| match what {
                ToPreload::Chunk { bytes, .. } => bytes.len() as u64,
                ToPreload::Begin(_) | ToPreload::Drop => 0,
            });
            self.most = self.most.max(waiting.sum());
        }
    }

    /// Delivers one message to a node; returns false if there is none.
    fn step_host(&mut self, number: usize) -> bool {
        let host = &mut self.hosts[number];
        let Some(message) = host.down.pop_front() else {
            return false;
        };
        match message {
            ToPreload::Begin(manifest) => host.store = Some(Store::begin(manifest)),
            ToPreload::Chunk { number, bytes } => {
                host.chunks.push(number);
                host.store.as_mut().unwrap().on_chunk(number, bytes);
            }
            ToPreload::Drop => host.store.as_mut().unwrap().remove(),
        }
        for news in host.act() {
            self.now = self.now + Duration::from_millis(30);
            let node = NodeId(u32::try_from(number).unwrap());
            self.source.on_news(self.now, node, news);
        }
        true
    }

    /// Runs to the end; in each turn, the node that `choose` selects gets a message.
    fn run(&mut self, mut choose: impl FnMut(usize) -> usize) {
        loop {
            self.step_source();
            let ready: Vec<usize> = (0..self.hosts.len())
                .filter(|number| !self.hosts[*number].down.is_empty())
                .collect();
            if ready.is_empty() {
                return;
            }
            let chosen = ready[choose(ready.len()) % ready.len()];
            assert!(self.step_host(chosen));
        }
    }
}

impl Host {
    /// Carries out what the store asks for, and returns what it says.
    fn act(&mut self) -> Vec<PreloadNews> {
        let mut said = Vec::new();
        let store = self.store.as_mut().unwrap();
        while let Some(output) = store.poll() {
            let act = match output {
                StoreOutput::Act(act) => act,
                StoreOutput::Send(news) => {
                    said.push(news);
                    continue;
                }
                StoreOutput::Log(what) => panic!("{what}"),
            };
            let mut answer = Ok(None);
            match act {
                FileAct::Make { bytes, .. } if bytes > self.room => {
                    answer = Err(PreloadFailure::NoRoom {
                        directory: "/tmp".into(),
                        needed: bytes,
                        free: self.room,
                    });
                }
                FileAct::Make { .. } => answer = Ok(Some("/tmp/d".into())),
                FileAct::Create { files } => {
                    assert!(self.open.is_empty());
                    for file in &files {
                        let before = self.files.insert(file.name.clone(), (0, Vec::new()));
                        assert_eq!(before, None, "{file:?} is written twice");
                    }
                    self.open = files;
                }
                FileAct::Write { bytes } => {
                    assert!(!self.open.is_empty());
                    for file in &self.open {
                        self.files
                            .get_mut(&file.name)
                            .unwrap()
                            .1
                            .extend_from_slice(&bytes);
                    }
                }
                FileAct::Close => {
                    for file in self.open.drain(..) {
                        self.files.get_mut(&file.name).unwrap().0 = file.mode;
                    }
                }
                FileAct::Remove => {
                    self.is_removed = true;
                    self.files.clear();
                    continue;
                }
            }
            store.on_acted(answer);
        }
        said
    }
}

fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length)
        .map(|at| (at / 7).to_le_bytes()[0] ^ seed)
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever the sizes and the order of delivery, each node ends with the same files, got each chunk once, in order, and
    /// never had more than a window before it.
    #[test]
    fn every_node_gets_every_file_once(
        sizes in prop::collection::vec(
            prop_oneof![Just(0), 1..100usize, Just(CHUNK), CHUNK - 1..CHUNK * 3, Just(CHUNK * 50)], 0..5,
        ),
        nodes in 1..5u32,
        order in prop::collection::vec(any::<usize>(), 1..50),
    ) {
        let contents: Vec<(String, Vec<u8>)> = (0..)
            .zip(&sizes)
            .map(|(number, size)| (format!("d/f{number}"), pattern(*size, number)))
            .collect();
        let mut files: Vec<(&str, u32, &[u8])> = contents
            .iter()
            .map(|(name, bytes)| (name.as_str(), 0o644, bytes.as_slice()))
            .collect();
        // The same content again, under another name and with other permissions.
        if let Some((_, _, bytes)) = files.last().copied() {
            files.push(("again", 0o755, bytes));
        }
        let mut world = world(&files, nodes);
        let mut turn = order.iter().cycle();
        world.run(|_| *turn.next().unwrap());
        prop_assert_eq!(&world.end, &Some(Ok(())));
        prop_assert!(world.most <= WINDOW);
        let distinct: std::collections::BTreeSet<&[u8]> =
            files.iter().map(|(_, _, bytes)| *bytes).collect();
        let total: u64 = distinct.iter().map(|bytes| bytes.len() as u64).sum();
        prop_assert_eq!(world.sent, total);
        for host in &world.hosts {
            prop_assert!(host.chunks.iter().copied().eq(0..host.chunks.len() as u64));
            for (name, mode, bytes) in &files {
                let (has_mode, has) = &host.files[&OsString::from(name)];
                prop_assert_eq!(has_mode, mode);
                prop_assert!(has == bytes);
            }
        }
    }
}

/// The slowest node sets the pace: the others get no more than a window ahead of it.
#[test]
fn the_slowest_node_sets_the_pace() {
    let bytes = pattern(CHUNK * 100, 0);
    let mut world = world(&[("a", 0o644, &bytes)], 3);
    // Nodes 0 and 1 take all that comes, and node 2 only the announcement.
    world.step_source();
    world.step_host(2);
    loop {
        world.step_source();
        if !(world.step_host(0) | world.step_host(1)) {
            break;
        }
    }
    assert_eq!(world.sent, WINDOW);
    assert_eq!(world.end, None);
    world.run(|_| 0);
    assert_eq!(world.end, Some(Ok(())));
    // Progress is that of the slowest, and is reported at most every 100 ms.
    assert!(world.progress.is_sorted() && world.progress.len() > 2);
    assert!(
        world
            .progress
            .iter()
            .all(|done| *done <= CHUNK as u64 * 100)
    );
}

#[test]
fn a_node_without_room_is_named_after_all_have_answered() {
    let mut world = world(&[("a", 0o644, b"abc"), ("b", 0o600, b"abc")], 4);
    for full in [1, 3] {
        // Files with other permissions are not shared, and take their room twice.
        world.hosts[full].room = 5;
    }
    world.run(|_| 0);
    let failure = PreloadFailure::NoRoom {
        directory: "/tmp".into(),
        needed: 6,
        free: 5,
    };
    assert_eq!(world.end, Some(Err((vec![NodeId(1), NodeId(3)], failure))));
    assert_eq!(world.sent, 0);
    assert!(!world.source.is_done());
}

#[test]
fn a_file_that_changes_or_goes_is_not_stored() {
    type Change = fn(&mut World);
    let changes: [(&str, Change, PreloadFailure); 3] = [
        (
            "shrinks",
            |world| drop(world.files.insert("/from/a".into(), b"ab".to_vec())),
            PreloadFailure::Changed {
                name: "/from/a".into(),
            },
        ),
        (
            "changes",
            |world| drop(world.files.insert("/from/a".into(), b"abX".to_vec())),
            PreloadFailure::Changed { name: "a".into() },
        ),
        (
            "goes",
            |world| world.files.clear(),
            PreloadFailure::Unreadable {
                path: "/from/a".into(),
                why: "gone".to_owned(),
            },
        ),
    ];
    for (name, change, expected) in changes {
        let mut world = world(&[("a", 0o644, b"abc")], 1);
        // The digest is taken before the change, and the file sent after it.
        world.step_source();
        change(&mut world);
        world.run(|_| 0);
        let (_, failure) = world.end.take().unwrap().unwrap_err();
        assert_eq!(failure, expected, "{name}");
    }
}

/// A chunk that comes twice, or too early, ends the copy.
#[test]
fn a_repeated_chunk_is_refused() {
    let mut world = world(&[("a", 0o644, &pattern(CHUNK * 2, 1))], 1);
    world.step_source();
    world.step_host(0);
    world.step_source();
    let again = world.hosts[0].down.front().cloned().unwrap();
    world.step_host(0);
    let ToPreload::Chunk { number, bytes } = again else {
        panic!("{again:?}");
    };
    let store = world.hosts[0].store.as_mut().unwrap();
    store.on_chunk(number, bytes);
    assert!(matches!(store.poll(), Some(StoreOutput::Log(_))));
    assert_eq!(store.poll(), Some(StoreOutput::Act(FileAct::Remove)));
    assert!(matches!(
        store.poll(),
        Some(StoreOutput::Send(PreloadNews::Failed(
            PreloadFailure::Unwritable { .. }
        )))
    ));
}

/// What is dropped is removed once, also if chunks follow.
#[test]
fn what_is_dropped_is_removed() {
    let mut world = world(&[("a", 0o644, &pattern(CHUNK * 2, 1))], 1);
    world.step_source();
    world.step_host(0);
    world.step_source();
    world.step_host(0);
    let host = &mut world.hosts[0];
    assert_eq!(host.files.len(), 1);
    host.down.push_front(ToPreload::Drop);
    while world.step_host(0) {}
    assert!(world.hosts[0].is_removed && world.hosts[0].files.is_empty());
    assert_eq!(world.hosts[0].store.as_ref().unwrap().directory(), None);
}
