//! `dbgr`: where is everybody?

mod args;
mod ask;
mod live;
mod looks;
mod machine;
pub(crate) mod messages;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use base::RankSet;
use clap::Parser as _;
use debug::{
    stack::{Frames, Missing, Seen},
    target,
    tree::{Ending, NodeId, Threads, Tree},
};
use dvm::messages::Message;
use os::Pid;

use self::{
    args::{Command, CommandLine},
    machine::Machine,
};
use crate::{args::MessageFormat, exit, report};

/// Runs the program `dbgr`.
pub fn dbgr() -> ExitCode {
    os::close_on_exec_from(3);
    let code = match CommandLine::try_parse() {
        Ok(line) => match line.command {
            Command::Stacks(args) => stacks(&args),
            Command::Verdict(args) => looks::verdict(&args),
        },
        Err(error) => {
            // Where neither stream is there any more, the code says it.
            let _ = error.print();
            if error.use_stderr() {
                exit::ExitCode::Usage.code()
            } else {
                exit::SUCCESS
            }
        }
    };
    ExitCode::from(code)
}

fn stacks(args: &args::Stacks) -> u8 {
    let machine = Machine {
        ask: args.target.ask(),
    };
    let target = match target::find(&machine, &args.target.wish()) {
        Ok(target) => target,
        Err(why) => {
            say(&messages::not_found(&why, machine::situation));
            return exit::ExitCode::Usage.code();
        }
    };
    if args.explain {
        return print(&target.to_string());
    }
    target
        .doubts
        .iter()
        .map(messages::doubt)
        .for_each(|message| say(&message));
    target
        .notes
        .iter()
        .map(messages::note)
        .for_each(|message| say(&message));
    let (mut looker, mut tree) = (live::Looker::default(), Tree::new());
    let (mut forbidden, mut first) = (RankSet::new(), None);
    for (&rank, proc) in &target.procs {
        let seen = match &proc.host {
            Some(host) => Seen::Missing(Missing::Elsewhere(host.clone())),
            None => looker.look(Pid::from_raw(proc.pid)),
        };
        match seen {
            Seen::Threads(threads) => {
                for thread in threads {
                    let ending = Ending {
                        activity: thread.activity,
                        end: thread.stack.end,
                    };
                    tree.insert(&thread.stack.frames, ending, rank);
                }
            }
            Seen::Missing(Missing::NotPermitted) => {
                forbidden.insert(rank);
                first.get_or_insert(proc.pid);
            }
            Seen::Missing(missing) => {
                let _ = writeln!(io::stderr(), "rank {rank}: {missing:?}");
            }
        }
    }
    if let Some(pid) = first {
        say(&messages::not_permitted(
            &forbidden,
            &machine::situation(pid),
        ));
    }
    let passing = tree.passing();
    let mut text = String::new();
    show(&tree, &looker.frames, &passing, Tree::ROOT, 0, &mut text);
    print(&text)
}

/// Prints what was asked for. Nobody reading it is no failure, as with any filter.
fn print(text: &str) -> u8 {
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => exit::SUCCESS,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => exit::SUCCESS,
        Err(error) => {
            say(&messages::output_lost(&error));
            exit::INTERNAL
        }
    }
}

fn say(message: &Message) {
    // Where stderr is gone there is nobody to tell; the exit code says the rest.
    let _ = report::print(message, MessageFormat::Text, &mut io::stderr().lock());
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
