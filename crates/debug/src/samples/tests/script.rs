//! Samples written by hand, for tests.
//!
//! A sample is a text with a line for each kind of thread:
//!
//! ```text
//! 0-2: main@a.c:10 > solve@a.c:88 > MPI_Allreduce!libmpi.so.12 = running 100
//! 0-2/progress: start_thread > progress_engine!libpmix.so.2 = poll 0
//! 3: gone
//! ```
//!
//! Before the colon are the ranks, and after a slash the name of a thread other than the main thread. Then follow the frames,
//! outermost first, as `function@file:line!module`; a Python function begins with `py:`. After the equals sign are the
//! activity and the CPU usage in percent.
//!
//! Instead of ranks, `below N`, `beside`, `job` or `neighbor` names a process that is not a rank, with its CPU usage. A
//! `neighbor` also means that the job may be connected to other jobs, and a `spawner` that the program can spawn jobs. `elsewhere` is
//! a process beside the ranks on a second node.
//!
//! Instead of ranks, `child N PID PARENT NAME` is a descendant of rank N. The stack of its main thread follows, or else `not
//! looked at`. A later `below N` sets the CPU usage of all descendants of rank N.

use std::{collections::BTreeMap, time::Duration};

use base::{NodeId, Rank, RankSet};

use super::super::{Recording, Sample};
use crate::stack::{Activity, End, Frame, FrameKind, Missing, Seen, Source, Stack, Thread, Wait};
use crate::{
    image::Joining,
    peers::LocalPeers,
    snapshot::{Child, Snapshot},
};

/// Builds samples from texts. They are `every` apart.
pub(crate) fn recording(every: Duration, texts: &[&str]) -> Recording {
    let mut recording = Recording::default();
    let mut used: BTreeMap<(Rank, String), Duration> = BTreeMap::new();
    for (number, text) in texts.iter().enumerate() {
        let at = every * u32::try_from(number).unwrap();
        let mut snapshot = Snapshot::default();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (who, what) = line.split_once(": ").unwrap_or_else(|| panic!("{line}"));
            if let Ok(percent) = what.parse::<f64>() {
                let cpu = (at + every).mul_f64(percent / 100.0);
                let node = NodeId(u32::from(who == "elsewhere"));
                joins(snapshot.peers.0.entry(node).or_default(), who, cpu);
                continue;
            }
            if let Some(child) = who.strip_prefix("child ") {
                let [rank, pid, parent, name] = child.split(' ').collect::<Vec<_>>()[..] else {
                    panic!("{line}");
                };
                let pid: i32 = pid.parse().unwrap();
                let rank = Rank(rank.parse().unwrap());
                let peers = snapshot.peers.0.entry(NodeId(0)).or_default();
                let below = peers.below.entry(rank).or_default();
                below.pids.insert(pid);
                if what == "not looked at" {
                    continue;
                }
                let seen = missing(what).map_or_else(
                    || {
                        let rank = Rank(u32::try_from(pid).unwrap());
                        let used = used.entry((rank, "child".to_owned())).or_default();
                        let thread = thread(&mut recording, what, (pid, name), (every, used));
                        Seen::Threads(vec![thread])
                    },
                    Seen::Missing,
                );
                snapshot.children.entry(rank).or_default().push(Child {
                    pid,
                    parent: parent.parse().unwrap(),
                    name: name.into(),
                    seen,
                });
                continue;
            }
            let (ranks, name) = who.split_once('/').unwrap_or((who, "main"));
            let ranks: RankSet = ranks.parse().unwrap();
            for rank in ranks.iter() {
                if let Some(missing) = missing(what) {
                    snapshot.procs.insert(rank, Seen::Missing(missing));
                    continue;
                }
                let used = used.entry((rank, name.to_owned())).or_default();
                let thread = thread(&mut recording, what, (tid(rank, name), name), (every, used));
                let entry = snapshot.procs.entry(rank);
                let seen = entry.or_insert_with(|| Seen::Threads(Vec::new()));
                let Seen::Threads(threads) = seen else {
                    panic!("{line}: seen and missing");
                };
                threads.push(thread);
            }
        }
        recording.samples.push(Sample { at, snapshot });
    }
    recording
}

/// Builds a thread from the text `what`, and adds the CPU time that it used since the last sample.
fn thread(
    recording: &mut Recording,
    what: &str,
    (tid, name): (i32, &str),
    (every, used): (Duration, &mut Duration),
) -> Thread {
    let (frames, state) = what.rsplit_once(" = ").unwrap();
    let (activity, percent) = state.rsplit_once(' ').unwrap();
    let percent: f64 = percent.parse().unwrap();
    let time = every.mul_f64(percent.abs() / 100.0);
    // Only another thread has less CPU time.
    *used = if percent < 0.0 {
        *used - time
    } else {
        *used + time
    };
    let frames = frames
        .split(" > ")
        .map(|text| recording.frames.intern(frame(text)))
        .collect();
    Thread {
        tid,
        name: name.into(),
        stack: Stack {
            frames,
            end: End::Start,
        },
        activity: doing(activity),
        cpu: *used,
        stopped: Duration::ZERO,
    }
}

fn joins(peers: &mut LocalPeers, who: &str, cpu: Duration) {
    let group = match who.strip_prefix("below ") {
        Some(rank) => peers.below.entry(Rank(rank.parse().unwrap())).or_default(),
        None if who == "neighbor" => {
            peers.joining = Joining::Possible;
            &mut peers.neighbors
        }
        None if who == "spawner" => {
            peers.joining = Joining::Spawning;
            return;
        }
        None => &mut peers.beside,
    };
    group.cpu += cpu;
    if who.starts_with("below") && !group.pids.is_empty() {
        return;
    }
    let pid = 1_000 + i32::try_from(group.pids.len()).unwrap();
    group.pids.insert(pid);
    if who == "job" {
        peers.jobs.insert(pid);
    }
}

fn tid(rank: Rank, name: &str) -> i32 {
    let mut number = i32::try_from(rank.0).unwrap() * 100_000;
    if name != "main" {
        number += 1 + name
            .bytes()
            .fold(0, |sum, byte| (sum * 7 + i32::from(byte)) % 9_999);
    }
    number
}

fn frame(text: &str) -> Frame {
    if text == "<signal handler called>" {
        return Frame {
            function: Some(text.into()),
            module: None,
            source: None,
            kind: FrameKind::Signal,
        };
    }
    let (text, kind) = match text.strip_prefix("py:") {
        Some(text) => (text, FrameKind::Python),
        None => match text.strip_prefix("inl:") {
            Some(text) => (text, FrameKind::Inlined),
            None => (text, FrameKind::Native),
        },
    };
    let (text, module) = text.rsplit_once('!').unwrap_or((text, "a.out"));
    let (function, source) = match text.rsplit_once('@') {
        Some((function, source)) => {
            let (file, line) = source.split_once(':').unwrap();
            let line = line.parse().unwrap();
            let file = file.into();
            (function, Some(Source { file, line }))
        }
        None => (text, None),
    };
    Frame {
        function: Some(function.into()),
        module: (kind != FrameKind::Python).then(|| module.into()),
        source,
        kind,
    }
}

fn doing(text: &str) -> Activity {
    match text {
        "running" => Activity::Running,
        "disk" => Activity::Disk,
        "stopped" => Activity::Stopped,
        "frozen" => Activity::Frozen,
        "traced" => Activity::Traced,
        "ended" => Activity::Ended,
        "futex" => Activity::Waiting(Wait::Futex),
        "timed" => Activity::Waiting(Wait::Timed),
        "shared" => Activity::Waiting(Wait::Shared),
        "poll" => Activity::Waiting(Wait::Poll),
        "read" => Activity::Waiting(Wait::Read),
        "write" => Activity::Waiting(Wait::Write),
        "sleep" => Activity::Waiting(Wait::Sleep),
        "child" => Activity::Waiting(Wait::Child),
        _ => panic!("{text}"),
    }
}

fn missing(text: &str) -> Option<Missing> {
    Some(match text {
        "gone" => Missing::Gone,
        "zombie" => Missing::Zombie,
        "not permitted" => Missing::NotPermitted,
        "unproved" => Missing::Unproved,
        "traced by 7" => Missing::TracedBy(7),
        "unreachable" => Missing::Unreachable,
        "changed" => Missing::Changed,
        "not found" => Missing::NotFound("n2".into()),
        "silent" => Missing::AgentSilent("n3".to_owned()),
        "lost" => Missing::AgentLost("n2".to_owned()),
        "not started" => Missing::NotStarted {
            host: "n2".to_owned(),
            why: "no route".to_owned(),
        },
        _ => return None,
    })
}
