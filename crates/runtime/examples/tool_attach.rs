//! A tool that attaches to a running job: it shows where its processes are and what they print, sends them what it reads from its
//! standard input, and waits for the end.
//!
//! ```text
//! rally run -n 3 ./myapp & cargo run -p runtime --example tool_attach -- $!
//! cargo run -p runtime --example tool_attach -- 4711 signal 10     # also sends a signal to all processes; see kill(1) for numbers
//! cargo run -p runtime --example tool_attach -- 4711 kill
//! cargo run -p runtime --example tool_attach -- 4711 log "I am here"   # the launcher shows it
//! ```
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "what the tool sees is what it is for"
)]
#![expect(
    clippy::disallowed_methods,
    reason = "a program reads its environment; the library does not"
)]

use std::{error::Error, io::Write as _, os::fd::AsFd as _, process::ExitCode, time::Duration};

use base::Time;
use os::Clock;
use pmix::{
    client::{Done, ProgramEvent},
    keys,
    tool::{Control, Event, Extent, Follow, JobEnd, LogTo, Wish},
    value::{IofChannels, Nspace, PmixRank, Proc, Query},
};
use runtime::visit::{Failed, Search, Seen, Visit, find};

const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match attach(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tool_attach: {error}");
            ExitCode::FAILURE
        }
    }
}

fn attach(words: &[String]) -> Result<(), Box<dyn Error>> {
    let (pid, order) = words
        .split_first()
        .ok_or("usage: tool_attach PID [kill | signal N | log TEXT]")?;
    // 1. Connect to the launcher with this process number.
    let search = Search {
        wish: Wish {
            pid: Some(pid.parse()?),
            ..Wish::default()
        },
        name: None,
        command_line: "tool_attach",
        patience: PATIENCE,
    };
    let mut visit = find(&search, &Seen(&|name| std::env::var(name).ok()))?;
    let mut end = None;

    // 2. Find its job, and show where the processes are.
    let (job, rows) = job(&mut visit)?;
    for row in rows {
        let host = row.hostname.unwrap_or_default();
        println!(
            "process {} is {} on {}",
            row.proc.rank,
            row.pid,
            host.to_string_lossy()
        );
    }

    // 3. Hear of its end, and get what it prints from now on.
    let followed = visit.tool().follow(Follow::Job(job.clone()));
    visit.wait(followed, soon(), &mut |event| show(&mut end, event))?;
    let all = || vec![Proc::all(job.clone())];
    let channels = IofChannels(IofChannels::STDOUT.0 | IofChannels::STDERR.0);
    let (_, pulled) = visit.tool().pull(all(), channels, Vec::new());
    visit.wait(pulled, soon(), &mut |event| show(&mut end, event))?;
    println!("attached to {job}");

    // 4. What we read is the input of rank 0.
    let first = Proc {
        nspace: job.clone(),
        rank: PmixRank(0),
    };
    visit.feed(os::duplicate(std::io::stdin().as_fd())?, vec![first])?;

    // 5. Carry out the order.
    let words: Vec<&str> = order.iter().map(String::as_str).collect();
    let asked = match words[..] {
        [] => None,
        ["kill"] => Some(visit.tool().control(all(), Control::Kill)),
        ["signal", number] => {
            let signal = Control::Signal(number.parse()?);
            Some(visit.tool().control(all(), signal))
        }
        ["log", text] => Some(visit.tool().log(LogTo::Stderr, &format!("{text}\n"))),
        _ => return Err("the orders are `kill`, `signal N` and `log TEXT`".into()),
    };
    if let Some(asked) = asked {
        visit.wait(asked, soon(), &mut |event| show(&mut end, event))?;
    }

    // 6. Wait for the end.
    while end.is_none() {
        let event = visit.next(None)?;
        show(&mut end, event);
    }
    let end = end.unwrap_or_default();
    let status = end.status.unwrap_or_default();
    println!("{job} ended with {}", end.exit_code.unwrap_or(status.0));
    match visit.finalize(soon(), &mut drop) {
        // A launcher that has ended with its job does not answer any more.
        Ok(()) | Err(Failed::Lost(_)) => Ok(()),
        Err(why) => Err(why.into()),
    }
}

/// Returns the first job with processes, and these. PRRTE lists itself as a job without any.
fn job(visit: &mut Visit) -> Result<(Nspace, Vec<pmix::value::ProcInfo>), Box<dyn Error>> {
    let asked = visit.tool().query(vec![Query {
        keys: vec![Some(keys::QUERY_NAMESPACES.to_owned())],
        qualifiers: Vec::new(),
    }]);
    let Done::Infos { infos, .. } = visit.wait(asked, soon(), &mut drop)? else {
        return Err(Failed::OtherAnswer.into());
    };
    let names = infos.iter().find_map(|info| info.value.as_text());
    let names = names.ok_or("the launcher has no job")?.to_string_lossy();
    for name in names.split(',') {
        let nspace = Nspace::from_text(name)?;
        let asked = visit.tool().proc_table(&nspace, Extent::Job);
        match visit.table(asked, soon(), &mut drop) {
            Ok(rows) if !rows.is_empty() => return Ok((nspace, rows)),
            Ok(_) | Err(Failed::Refused(_)) => {}
            Err(why) => return Err(why.into()),
        }
    }
    Err("no job of the launcher has processes".into())
}

fn show(end: &mut Option<JobEnd>, event: Event) {
    match event {
        Event::JobEnded { end: ended, .. } => *end = Some(ended),
        Event::Program(ProgramEvent::Stdio(piece)) => {
            let text = String::from_utf8_lossy(&piece.bytes);
            let mut out = std::io::stdout();
            for line in text.lines() {
                let _ = writeln!(out, "[{}] {line}", piece.source.rank);
            }
        }
        _ => {}
    }
}

fn soon() -> Option<Time> {
    Some(Clock::now() + PATIENCE)
}
