use std::ffi::CString;

use base::{JobId, NodeId, ProcId, Rank};
use bytes::Bytes;
use pmix::{
    codec::{Format, Writer},
    message::{Answer, Request, Shape},
    value::{App as SpawnedApp, Info, Key},
};

use super::*;
use crate::{
    controller::{
        ControllerInput, ControllerOutput,
        spawned::{find, tests::app},
        tests::{FRONT, JOB, NODES, World},
    },
    preload::{FoundFile, NotFound},
    proto::{
        AskId, EndReason, FromFront, Note, PreloadFailure, PreloadNews, ToController, ToDaemon,
        ToFront, ToPreload,
    },
};

/// The job that a rank spawns.
const SPAWNED: JobId = JobId(2);
const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const EISDIR: i32 = 21;

fn directive(key: &CStr, value: Value) -> Info {
    Info::new(Key::new(key).unwrap(), value)
}

fn binary() -> Info {
    directive(keys::PRELOAD_BIN, Value::Bool(true))
}

fn list(text: &str) -> Info {
    directive(keys::PRELOAD_FILES, Value::text(text))
}

/// Formats what two apps want, of which the second is in another directory.
fn said(programs: [&str; 2], own: [&[Info]; 2], job: &[Info]) -> String {
    let mut files = Files::default();
    for (index, (program, own)) in (0..).zip(programs.into_iter().zip(own)) {
        let mut app = app(program);
        if program == "local" {
            app.search.push(":.");
        }
        if index == 1 {
            app.directory = "/b".into();
        }
        let said = |key: &CStr| find(own, key).or_else(|| find(job, key));
        if let Err(status) = files.add(index, &app, said) {
            return status.name().unwrap().to_owned();
        }
    }
    let (Some(preload), wanted) = files.finish() else {
        return "nothing".to_owned();
    };
    let mut lines = Vec::new();
    for (file, wanted) in preload.files.iter().zip(&wanted) {
        let (path, place) = (wanted.path.display(), wanted.directory.display());
        let search = wanted.search.as_ref().map_or("", |_| " by search");
        let name = file.name.display();
        lines.push(format!("{name} {:o}: {path} in {place}{search}", file.mode));
    }
    assert_eq!(preload.files.len(), wanted.len());
    let used = preload.use_of;
    if !used.programs.is_empty() {
        lines.push(format!("programs {:?}", used.programs));
    }
    if !used.inside.is_empty() {
        lines.push(format!("inside {:?}", used.inside));
    }
    lines.join("\n")
}

#[test]
fn what_a_spawn_wants_on_the_nodes() {
    let inside = || directive(keys::SET_SESSION_CWD, Value::Bool(true));
    let off = || directive(keys::PRELOAD_BIN, Value::Bool(false));
    let many: Vec<String> = (0..=MAX_FILES).map(|number| number.to_string()).collect();
    let two = ["./a", "tool"];
    let cases = [
        ("nothing", said(two, [&[], &[]], &[])),
        ("refused", said(two, [&[off()], &[]], &[])),
        ("programs", said(two, [&[], &[]], &[binary()])),
        ("by search", said(["tool", "tool"], [&[], &[]], &[binary()])),
        (
            "by search in two directories",
            said(["local", "local"], [&[], &[]], &[binary()]),
        ),
        ("one", said(two, [&[binary()], &[off()]], &[])),
        (
            "files",
            said(two, [&[list("in,./in,d/../in2,,/x/y")], &[]], &[]),
        ),
        ("both", said(two, [&[binary(), list("a")], &[]], &[])),
        ("two places", said(two, [&[list("in")], &[list("in")]], &[])),
        ("directory", said(two, [&[], &[inside()]], &[])),
        (
            "no text",
            said(
                two,
                [&[directive(keys::PRELOAD_FILES, Value::Bool(true))], &[]],
                &[],
            ),
        ),
        ("no name", said(two, [&[list("..")], &[]], &[])),
        ("too many", said(two, [&[list(&many.join(","))], &[]], &[])),
    ];
    let cases = cases.map(|(case, said)| format!("{case}\n{said}"));
    insta::assert_snapshot!(cases.join("\n\n"), @r#"
    nothing
    nothing

    refused
    nothing

    programs
    a 500: /home/u/./a in /home/u
    tool 500: tool in /b by search
    programs {0: "a", 1: "tool"}

    by search
    tool 500: tool in /home/u by search
    programs {0: "tool", 1: "tool"}

    by search in two directories
    BAD_PARAM

    one
    a 500: /home/u/./a in /home/u
    programs {0: "a"}

    files
    in 400: /home/u/in in /home/u
    in2 400: /home/u/d/../in2 in /home/u
    x/y 400: /x/y in /home/u

    both
    a 500: /home/u/./a in /home/u
    programs {0: "a"}

    two places
    BAD_PARAM

    directory
    inside {1}

    no text
    BAD_PARAM

    no name
    BAD_PARAM

    too many
    OUT_OF_RESOURCE
    "#);
}

/// Rank 0 spawns a job with a program and a file, on all nodes.
fn spawn(world: &mut World, ticket: u64) -> Vec<String> {
    spawn_with(world, ticket, vec![binary(), list("in")])
}

fn spawn_with(world: &mut World, ticket: u64, infos: Vec<Info>) -> Vec<String> {
    let request = Request::Spawn {
        infos,
        apps: vec![SpawnedApp {
            command: CString::new("./tool").ok(),
            maxprocs: NODES.try_into().unwrap(),
            ..SpawnedApp::default()
        }],
    };
    words(&world.says(0, asks(&request, ticket)))
}

/// Returns a request of rank 0.
fn asks(request: &Request, ticket: u64) -> ToController {
    let mut writer = Writer::new(Format::V4);
    request.encode(&mut writer);
    let (job, rank) = (JOB, Rank(0));
    ToController::Ask {
        proc: ProcId { job, rank },
        ticket: AskId::Pmix(ticket),
        request: writer.into_bytes().into(),
    }
}

fn words(outputs: &[ControllerOutput]) -> Vec<String> {
    let one = |output: &ControllerOutput| match output {
        ControllerOutput::FindFiles { wanted, .. } => Some(format!("find {}", wanted.len())),
        ControllerOutput::ReadFile { path, .. } => Some(format!("read {}", path.display())),
        ControllerOutput::Daemon(NodeId(0), ToDaemon::Preload { what, .. }) => Some(match what {
            ToPreload::Begin(manifest) => format!("begin {:?}", manifest.contents[0].files),
            ToPreload::Chunk { .. } => "chunk".to_owned(),
            ToPreload::Drop => "drop".to_owned(),
        }),
        ControllerOutput::Daemon(NodeId(0), ToDaemon::Launch(launch)) => {
            Some(format!("launch {}", launch.job))
        }
        ControllerOutput::Daemon(NodeId(0), ToDaemon::Answer { answer, .. }) => {
            let answer = Answer::decode(Format::V4, Shape::Spawned, answer).unwrap();
            Some(answer.status().name().unwrap().to_owned())
        }
        ControllerOutput::Front(FRONT, ToFront::Note(note)) => match note {
            Note::SpawnRefused { by, why } => Some(format!("note {by:?} {why:?}")),
            other => Some(format!("{other:?}")),
        },
        ControllerOutput::Front(_, ToFront::Preloading(_)) => Some("progress".to_owned()),
        ControllerOutput::Log(what) => Some(what.clone()),
        _ => None,
    };
    outputs.iter().filter_map(one).collect()
}

fn found(world: &mut World) -> Vec<String> {
    let file = |path: &str, mode| FoundFile {
        path: path.into(),
        mode,
    };
    let found = vec![file("/home/u/tool", 0o711), file("/home/u/in", 0o640)];
    world_gets(world, Ok(found))
}

fn world_gets(world: &mut World, result: Result<Vec<FoundFile>, NotFound>) -> Vec<String> {
    let job = SPAWNED;
    words(&world.handle(ControllerInput::FilesFound { job, result }))
}

fn read(world: &mut World) -> Vec<String> {
    let read = ControllerInput::FileRead {
        job: SPAWNED,
        result: Ok(Bytes::from_static(b"abc")),
    };
    words(&world.handle(read))
}

fn all_say(world: &mut World, news: &PreloadNews) -> Vec<String> {
    let all = (0..NODES).flat_map(|node| {
        let (job, news) = (SPAWNED, news.clone());
        words(&world.says(node, ToController::Preload { job, news }))
    });
    all.collect()
}

/// Both files have the same content, which is sent once.
#[test]
fn a_spawned_job_is_launched_when_its_files_are_on_its_nodes() {
    let mut world = World::new();
    assert_eq!(spawn(&mut world, 7), ["find 2"]);
    assert_eq!(found(&mut world), ["read /home/u/tool"]);
    assert_eq!(read(&mut world), ["read /home/u/in"]);
    let files = "StoredFile { name: \"tool\", mode: 457 }, StoredFile { name: \"in\", mode: 416 }";
    assert_eq!(read(&mut world), [format!("begin [{files}]")]);
    let ready = all_say(&mut world, &PreloadNews::Ready);
    assert_eq!(ready, ["read /home/u/tool"]);
    assert_eq!(read(&mut world), ["chunk"]);
    assert_eq!(
        all_say(&mut world, &PreloadNews::Taken { bytes: 3 }),
        [""; 0]
    );
    assert_eq!(all_say(&mut world, &PreloadNews::Stored), ["launch 2"]);
}

#[test]
fn a_file_that_is_not_found_is_the_answer_to_the_spawn() {
    let cases = [
        (0, ENOENT, "JOB_EXE_NOT_FOUND"),
        (0, EACCES, "JOB_APP_NOT_EXECUTABLE"),
        (0, EISDIR, "JOB_SYS_OP_FAILED"),
        (1, ENOENT, "NOT_FOUND"),
        (1, EACCES, "NO_PERMISSIONS"),
        (1, EISDIR, "JOB_SYS_OP_FAILED"),
    ];
    for (index, errno, status) in cases {
        let mut world = World::new();
        spawn(&mut world, 7);
        let missing = NotFound {
            index,
            path: "/x".into(),
            errno,
            why: "no".to_owned(),
        };
        let heard = world_gets(&mut world, Err(missing));
        let [_, note, answer] = &heard[..] else {
            panic!("{heard:?}")
        };
        assert!(note.starts_with("note "), "{note}");
        assert!(
            note.contains("Unreadable { path: \"/x\", why: \"no\" }"),
            "{note}"
        );
        assert_eq!(answer, status);
        assert_eq!(found(&mut world), [""; 0]);
        // The next job can have files.
        assert_eq!(spawn(&mut world, 8), ["find 2"]);
    }
}

#[test]
fn files_that_cannot_be_stored_are_the_answer_to_the_spawn() {
    let no_room = PreloadFailure::NoRoom {
        directory: "/tmp".into(),
        needed: 3,
        free: 2,
    };
    let unwritable = PreloadFailure::Unwritable {
        path: "/tmp/x".into(),
        why: "no".to_owned(),
    };
    for (failure, status) in [
        (no_room, "JOB_INSUFFICIENT_RESOURCES"),
        (unwritable, "JOB_SYS_OP_FAILED"),
    ] {
        let mut world = World::new();
        spawn(&mut world, 7);
        found(&mut world);
        read(&mut world);
        read(&mut world);
        let heard = all_say(&mut world, &PreloadNews::Failed(failure));
        let [drop, note, answer] = &heard[..] else {
            panic!("{heard:?}")
        };
        assert_eq!((drop.as_str(), answer.as_str()), ("drop", status));
        assert!(note.starts_with("note "), "{note}");
    }
}

/// The spawner may be among those that are ended, or it may wait for the answer in a job that goes on.
#[test]
fn a_spawn_is_answered_if_its_job_ends_while_files_are_copied() {
    let end = |world: &mut World| {
        let end = FromFront::End(EndReason::TimeLimit);
        words(&world.hears(FRONT, end))
    };
    let mut world = World::new();
    spawn(&mut world, 7);
    assert_eq!(end(&mut world), ["JOB_CANCELED", "drop"]);
    let mut world = World::new();
    spawn(&mut world, 7);
    found(&mut world);
    read(&mut world);
    read(&mut world);
    assert_eq!(end(&mut world), ["JOB_CANCELED", "drop"]);
    let mut world = World::new();
    spawn(&mut world, 7);
    found(&mut world);
    read(&mut world);
    read(&mut world);
    let heard = words(&world.lose(2));
    let [loss, drop, note, answer] = &heard[..] else {
        panic!("{heard:?}")
    };
    assert!(loss.starts_with("NodeLost"), "{loss}");
    assert!(note.contains(r#"NodeLost { host: "n2" }"#), "{note}");
    assert_eq!([drop.as_str(), answer], ["drop", "JOB_FAILED_TO_MAP"]);
}

/// The spawner's job goes on, and so do its spawns, unless they need the lost node.
#[test]
fn a_job_that_goes_on_without_a_node_spawns_on_the_others() {
    let mut world = World::new();
    world.lose(1);
    let request = Request::Spawn {
        infos: Vec::new(),
        apps: vec![SpawnedApp {
            command: CString::new("tool").ok(),
            maxprocs: 4,
            ..SpawnedApp::default()
        }],
    };
    let nodes = spawned_on(&world.says(0, asks(&request, 7)));
    assert_eq!(nodes, [NodeId(0), NodeId(2)]);
    let text = |key, text: &str| directive(key, Value::String(CString::new(text).ok()));
    let refused = |world: &mut World, info| {
        let heard = spawn_with(world, 8, vec![info]);
        let [note, answer] = &heard[..] else {
            panic!("{heard:?}")
        };
        assert_eq!(answer, "JOB_FAILED_TO_MAP");
        note.clone()
    };
    let note = refused(&mut world, text(keys::HOST, "n1"));
    assert!(note.contains(r#"NodeLost { host: "n1" }"#), "{note}");
    // Three procs, one for each of two nodes.
    let note = refused(&mut world, text(keys::MAP_BY, "ppr:1:node"));
    assert!(note.contains("NotEnoughPlaces"), "{note}");
    assert!(note.contains(r#""n1""#), "{note}");
}

/// Returns the nodes on which a job is launched.
fn spawned_on(outputs: &[ControllerOutput]) -> Vec<NodeId> {
    let launch = outputs.iter().find_map(|output| match output {
        ControllerOutput::Daemon(_, ToDaemon::Launch(launch)) => Some(launch),
        _ => None,
    });
    launch.map_or_else(Vec::new, |launch| launch.map.nodes().collect())
}

#[test]
fn the_front_is_told_of_so_many_refused_spawns() {
    let mut world = World::new();
    let mut notes = 0;
    for ticket in 0..40 {
        spawn(&mut world, ticket);
        let job = JobId(SPAWNED.0 + u32::try_from(ticket).unwrap());
        let result = Err(NotFound {
            index: 1,
            path: "/home/u/in".into(),
            errno: ENOENT,
            why: "No such file or directory".to_owned(),
        });
        let heard = words(&world.handle(ControllerInput::FilesFound { job, result }));
        let (answer, others) = heard.split_last().unwrap();
        assert_eq!(answer, "NOT_FOUND");
        notes += others
            .iter()
            .filter(|word| word.starts_with("note"))
            .count();
    }
    assert_eq!(notes, 16);
}

#[test]
fn so_many_jobs_are_copied_at_once() {
    let mut world = World::new();
    for number in 0..MAX_COPIED {
        assert_eq!(spawn(&mut world, number as u64), ["find 2"]);
    }
    assert_eq!(spawn(&mut world, 99), ["OUT_OF_RESOURCE"]);
    let without = spawn_with(&mut world, 100, Vec::new());
    assert_eq!(without, [format!("launch {}", MAX_COPIED + 2)]);
}
