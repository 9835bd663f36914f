//! The seeds of the fuzz targets `front_link` and `front_messages`: every message, and frames that break the link.
//! `UPDATE_SEEDS=1 cargo test -p runtime seeds` writes them to `fuzz/seeds`. Without it, the test reports missing and outdated
//! files.

#![expect(
    clippy::disallowed_methods,
    reason = "a test reads its files, and a variable says whether to write them"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use dvm::bootstrap::{Delivery, Hosting, LateStart, Prompting, StartCommand};

use super::*;

/// Slots of a region in the fuzz target.
const SLOTS: u32 = 2;

/// Returns the bytes that a peer sends first, and then these.
fn stream(bytes: &[u8]) -> Vec<u8> {
    let preamble: Vec<u8> = Outgoing::default().pieces().flatten().copied().collect();
    [&preamble, bytes].concat()
}

fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut outgoing = Outgoing::default();
    outgoing.push(kind, &[], body.to_vec().into()).unwrap();
    outgoing.pieces().flatten().copied().collect()
}

fn place(slot: u32, offset: u32, length: u32) -> Vec<u8> {
    let number = 0_u64.to_le_bytes();
    let rest = [slot, offset, length].map(u32::to_le_bytes).concat();
    [&number[..], &rest].concat()
}

fn openings() -> [Opening; 2] {
    let node = AllocatedNode {
        name: "vm".to_owned(),
        slots: Slots::Explicit(2),
        max_slots: None,
        granted: None,
    };
    let nodes = vec![node];
    let opening = Opening {
        allocation: Allocation { nodes },
        daemons: None,
        recording: None,
        machine: None,
        slurm: None,
    };
    let command = StartCommand {
        argv: vec!["ssh".into(), "n1".into()],
        nodes: vec![NodeId(1)],
        delivery: Delivery::Staged,
        check: vec!["ssh".into()],
        prompting: Prompting::OnTerminal,
        elsewhere: Some(vec!["ssh".into()]),
    };
    let late = LateStart::OfMachine {
        command: StartCommand {
            nodes: Vec::new(),
            ..command.clone()
        },
        here: "head".to_owned(),
        command_here: StartCommand {
            delivery: Delivery::Direct,
            ..command.clone()
        },
    };
    let daemons = DaemonPlan {
        local: Some(NodeId(0)),
        commands: vec![command],
        program: "/rally".into(),
        argument: "__daemon".to_owned(),
        environment: vec!["A=1".into()],
        radix: dvm::bootstrap::RADIX,
        ports: Some((20_000, 20_100)),
        interfaces: vec!["eth0".to_owned()],
        hosting: Hosting::Alone,
        lease: dvm::bootstrap::LEASE,
        window: dvm::bootstrap::WINDOW,
        tree_start: dvm::bootstrap::TreeStart::From(2),
        late: Some(Box::new(late)),
    };
    let over_nodes = Opening {
        daemons: Some(daemons),
        recording: Some("/r".into()),
        slurm: Some(SlurmPlan {
            setup: dvm::slurm::Setup {
                job: 17,
                patience: std::time::Duration::from_secs(30),
            },
            environment: vec!["PATH=/bin".into()],
        }),
        ..opening.clone()
    };
    [opening, over_nodes]
}

/// Returns the seeds of `front_link` that are no message.
fn frames() -> Vec<(&'static str, Vec<u8>)> {
    let chunk = Chunk {
        job: JobId(2),
        rank: Rank(5),
        stream: Stream::Stderr,
        bytes: Bytes::new(),
        end: ChunkEnd::Partial,
    };
    let head = output_head(NodeId(3), &chunk);
    let shared = |place: &[u8]| frame(KIND_OUTPUT_SHARED, &[&head[..], place].concat());
    let [first, second] = openings().map(|it| frame(KIND_OPENING, &wire::encode(&it).unwrap()));
    let output = frame(KIND_OUTPUT, &[&head[..], b"a line"].concat());
    let released = frame(KIND_RELEASE, &0_u64.to_le_bytes());
    let released = &released[stream(&[]).len()..];
    let lent = frame(KIND_STDIN_SHARED, &place(0, 256, 9));
    vec![
        ("cut", output[..output.len() - 6].to_vec()),
        ("empty-frame", stream(&0_u32.to_le_bytes())),
        ("opening-0", first),
        ("opening-1", second),
        ("output", output),
        ("output-shared", shared(&place(1, 4096, 16_384))),
        ("outside", shared(&place(SLOTS, 0, 1))),
        (
            "overflow",
            frame(KIND_STDIN_SHARED, &place(0, u32::MAX, u32::MAX)),
        ),
        ("short-head", frame(KIND_OUTPUT, &head[..3])),
        ("stdin", frame(KIND_STDIN, b"input\n")),
        ("stdin-shared", [&lent, released].concat()),
        ("too-long", stream(&u32::MAX.to_le_bytes())),
        ("unknown-kind", frame(120, b"x")),
    ]
}

/// Returns every seed, by its directory and name.
fn seeds() -> BTreeMap<PathBuf, Vec<u8>> {
    let mut seeds: BTreeMap<PathBuf, Vec<u8>> = frames()
        .into_iter()
        .map(|(name, bytes)| (Path::new("front_link").join(name), bytes))
        .collect();
    let from_front = from_front()
        .into_iter()
        .map(|it| wire::encode(&it).unwrap())
        .enumerate()
        .map(|(number, body)| (format!("from-front-{number}"), body));
    let to_front = to_front()
        .into_iter()
        .map(|it| wire::encode(&it).unwrap())
        .enumerate()
        .map(|(number, body)| (format!("to-front-{number}"), body));
    for (name, body) in from_front.chain(to_front) {
        let path = Path::new("front_link").join(&name);
        seeds.insert(path, frame(KIND_MESSAGE, &body));
        seeds.insert(Path::new("front_messages").join(&name), body.to_vec());
    }
    seeds
}

fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let targets = ["front_link", "front_messages"].map(Path::new);
    let read = |target: &Path| {
        let entries = fs::read_dir(directory.join(target)).unwrap();
        let entries = entries.map(|entry| entry.unwrap());
        let seeds = entries.map(|entry| {
            (
                target.join(entry.file_name()),
                fs::read(entry.path()).unwrap(),
            )
        });
        seeds.collect::<Vec<_>>()
    };
    targets.into_iter().flat_map(read).collect()
}

#[test]
fn the_seeds_of_the_fuzz_targets_are_of_this_version() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    let mut there = files(&directory);
    let seeds = seeds();
    // Inputs that a fuzzer has found are kept as they are.
    there.retain(|path, _| !path.to_string_lossy().contains("/found-"));
    if std::env::var_os("UPDATE_SEEDS").is_some() {
        for path in there.keys().filter(|path| !seeds.contains_key(*path)) {
            fs::remove_file(directory.join(path)).unwrap();
        }
        for (path, seed) in &seeds {
            fs::write(directory.join(path), seed).unwrap();
        }
        return;
    }
    let outdated = |path: &&PathBuf| there.get(*path) != seeds.get(*path);
    let all = there.keys().chain(seeds.keys());
    let outdated: BTreeSet<_> = all.filter(outdated).collect();
    assert!(outdated.is_empty(), "UPDATE_SEEDS=1 mends {outdated:?}");
    for (path, seed) in there
        .iter()
        .filter(|(path, _)| path.starts_with("front_link"))
    {
        let mut incoming = Incoming::default();
        incoming.take(seed);
        let frame = incoming.frame();
        assert!(
            !matches!(frame, Err(WireError::Foreign | WireError::Version { .. })),
            "{}: {frame:?}",
            path.display()
        );
    }
}
