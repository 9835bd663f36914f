//! `dbgr`: where is everybody?

mod live;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use base::Rank;
use debug::{
    stack::{Frames, Seen},
    tree::{Ending, NodeId, Threads, Tree},
};
use os::Pid;

/// Runs the program `dbgr`.
pub fn dbgr() -> ExitCode {
    let pids: Vec<i32> = std::env::args()
        .skip(1)
        .filter_map(|word| word.parse().ok())
        .collect();
    let (mut looker, mut tree) = (live::Looker::default(), Tree::new());
    for (rank, pid) in pids.iter().enumerate() {
        let rank = Rank(u32::try_from(rank).unwrap_or(u32::MAX));
        match looker.look(Pid::from_raw(*pid)) {
            Seen::Threads(threads) => {
                for thread in threads {
                    let ending = Ending {
                        activity: thread.activity,
                        end: thread.stack.end,
                    };
                    tree.insert(&thread.stack.frames, ending, rank);
                }
            }
            Seen::Missing(missing) => {
                let _ = writeln!(io::stderr(), "rank {rank}: {missing:?}");
            }
        }
    }
    let passing = tree.passing();
    let mut text = String::new();
    show(&tree, &looker.frames, &passing, Tree::ROOT, 0, &mut text);
    let _ = io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

fn show(
    tree: &Tree,
    frames: &Frames,
    passing: &[Threads],
    at: NodeId,
    depth: usize,
    text: &mut String,
) {
    for (ending, threads) in tree.ends(at) {
        text.push_str(&format!(
            "{:depth$}= {} {:?} [{}]\n",
            "",
            ending.activity,
            ending.end,
            threads.ranks()
        ));
    }
    for (frame, child) in tree.children(at, frames) {
        text.push_str(&format!(
            "{:depth$}{} [{}] {}\n",
            "",
            frames.get(frame),
            passing[child.index()].ranks(),
            passing[child.index()].count()
        ));
        show(tree, frames, passing, child, depth + 1, text);
    }
}
