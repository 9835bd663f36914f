//! A debugger that launches its target directly: it asks a running server (a machine, a session of `rally run`, `prte`) to start a
//! job whose processes wait, and daemons that look at these processes and let them go.
//!
//! ```text
//! rally up
//! cargo run -p runtime --example tool_direct -- -n 3 ./myapp              # the only server there is
//! cargo run -p runtime --example tool_direct -- --pid 4711 -n 3 ./myapp   # the server with this process number
//! cargo run -p runtime --example tool_direct -- --system -n 3 ./myapp     # the system server of this node only
//! ```
//!
//! It is the direct-launch example of the PMIx RFC 0023, step by step. `tool_daemon` is its daemon.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "what the tool sees is what it is for"
)]
#![expect(
    clippy::disallowed_methods,
    reason = "a program reads its environment; the library does not"
)]

use std::{
    error::Error, ffi::CString, io::Write as _, os::unix::ffi::OsStrExt as _, process::ExitCode,
    time::Duration,
};

use base::Time;
use os::Clock;
use pmix::{
    client::{Done, ProgramEvent, infos},
    keys,
    tool::{After, Event, Extent, Follow, JobEnd, Stage, WellKnown, Wish},
    value::{App, Info, Nspace, Proc, Query, Value},
};
use runtime::visit::{Failed, Search, Seen, Visit, find};

/// The longest wait for an answer, and for processes that start.
const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match debug(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tool_direct: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What the command line asks for.
#[derive(Debug, Default)]
struct Orders {
    wish: Wish,
    processes: i32,
    program: Vec<String>,
}

fn orders(words: &[String]) -> Result<Orders, Box<dyn Error>> {
    let mut orders = Orders {
        processes: 1,
        ..Orders::default()
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || {
            words
                .next()
                .ok_or_else(|| format!("`{word}` needs a value"))
        };
        match word.as_str() {
            "--pid" => orders.wish.pid = Some(value()?.parse()?),
            "--uri" => orders.wish.uri = Some(value()?.clone()),
            "--system" => {
                orders.wish.order = vec![WellKnown::System];
                orders.wish.after = After::Stop;
            }
            "-n" => orders.processes = value()?.parse()?,
            program => {
                orders.program.push(program.to_owned());
                orders.program.extend(words.by_ref().cloned());
            }
        }
    }
    if orders.program.is_empty() {
        return Err(
            "usage: tool_direct [--pid N | --uri URI | --system] [-n N] PROGRAM [ARGUMENT...]"
                .into(),
        );
    }
    Ok(orders)
}

fn debug(words: &[String]) -> Result<(), Box<dyn Error>> {
    let orders = orders(words)?;
    // 1. Connect to a server.
    let search = Search {
        wish: orders.wish,
        name: None,
        command_line: "tool_direct",
        patience: PATIENCE,
    };
    let mut visit = find(&search, &Seen(&|name| std::env::var(name).ok()))?;
    let mut seen = Ends::default();

    // 2. Ask what the server can do, and choose where the processes stop.
    let stop = stop(&mut visit, &mut seen)?;

    // 3. Hear of the stages of what we spawn, from now on.
    let followed = visit.tool().follow(Follow::Spawned);
    visit.wait(followed, soon(), &mut |event| seen.on(event))?;

    // 4. Spawn the job. Its output comes to us.
    let flag = || Value::Bool(true);
    let directives = infos([
        (keys::MAP_BY, Value::text("slot")),
        (stop, flag()),
        (keys::FWD_STDOUT, flag()),
        (keys::FWD_STDERR, flag()),
        (keys::NOTIFY_COMPLETION, flag()),
    ]);
    let app = app(&orders.program, orders.processes)?;
    let job = spawn(&mut visit, directives, app, &mut seen)?;

    // 5. Wait until all processes wait for us, and look where they are.
    while !seen.is_ready(&job) && seen.end(&job).is_none() {
        let event = visit.next(soon())?;
        seen.on(event);
    }
    let asked = visit.tool().proc_table(&job, Extent::Job);
    for row in visit.table(asked, soon(), &mut |event| seen.on(event))? {
        let host = row.hostname.unwrap_or_default();
        println!(
            "process {} is {} on {}",
            row.proc.rank,
            row.pid,
            host.to_string_lossy()
        );
    }

    // 6. Spawn a daemon on each node of the job. The daemons let the processes go.
    let directives = infos([
        (keys::MAP_BY, Value::text("ppr:1:node")),
        (keys::DEBUGGER_DAEMONS, flag()),
        (
            keys::DEBUG_TARGET,
            Value::Proc(Box::new(Proc::all(job.clone()))),
        ),
        (keys::FWD_STDOUT, flag()),
        (keys::FWD_STDERR, flag()),
        (keys::NOTIFY_COMPLETION, flag()),
    ]);
    let daemon = std::env::current_exe()?.with_file_name("tool_daemon");
    let daemon = App {
        cwd: app_directory()?,
        ..App::new(vec![CString::new(daemon.as_os_str().as_bytes())?], 1)
    };
    let daemons = spawn(&mut visit, directives, daemon, &mut seen)?;

    // 7. Wait for the end of both.
    for (name, nspace) in [("the job", &job), ("its daemons", &daemons)] {
        while seen.end(nspace).is_none() {
            let event = visit.next(None)?;
            seen.on(event);
        }
        let end = seen.end(nspace).unwrap_or_default();
        let status = end.status.unwrap_or_default();
        println!("{name} ended with {}", end.exit_code.unwrap_or(status.0));
    }
    visit.finalize(soon(), &mut |event| seen.on(event))?;
    Ok(())
}

/// Returns the key of the earliest stop that the server supports.
fn stop(visit: &mut Visit, seen: &mut Ends) -> Result<&'static std::ffi::CStr, Failed> {
    let asked = visit.tool().query(vec![Query {
        keys: vec![Some(keys::QUERY_DEBUG_SUPPORT.to_owned())],
        qualifiers: Vec::new(),
    }]);
    let supported = match visit.wait(asked, soon(), &mut |event| seen.on(event)) {
        Ok(Done::Infos { infos, .. }) => infos
            .iter()
            .filter_map(|info| info.value.as_text())
            .any(|names| names.to_string_lossy().contains("pmix.dbg.exec")),
        // A server need not know this query.
        Ok(_) | Err(Failed::Refused(_)) => false,
        Err(why) => return Err(why),
    };
    Ok(if supported {
        keys::STOP_ON_EXEC
    } else {
        keys::STOP_IN_INIT
    })
}

fn spawn(
    visit: &mut Visit,
    directives: Vec<Info>,
    app: App,
    seen: &mut Ends,
) -> Result<Nspace, Failed> {
    let spawn = visit.tool().spawn(directives, vec![app]);
    match visit.wait(spawn, soon(), &mut |event| seen.on(event))? {
        Done::Spawned(nspace) => Ok(nspace),
        _ => Err(Failed::OtherAnswer),
    }
}

fn app(program: &[String], processes: i32) -> Result<App, Box<dyn Error>> {
    let words: Result<Vec<CString>, _> = program
        .iter()
        .map(|word| CString::new(word.as_str()))
        .collect();
    Ok(App {
        cwd: app_directory()?,
        ..App::new(words?, processes)
    })
}

/// Returns our own working directory, for what we spawn.
fn app_directory() -> Result<Option<CString>, Box<dyn Error>> {
    Ok(Some(CString::new(
        std::env::current_dir()?.as_os_str().as_bytes(),
    )?))
}

fn soon() -> Option<Time> {
    Some(Clock::now() + PATIENCE)
}

/// What has happened to jobs while we were waiting for something else.
#[derive(Debug, Default)]
struct Ends {
    ready: Vec<Nspace>,
    ended: Vec<(Nspace, JobEnd)>,
}

impl Ends {
    fn on(&mut self, event: Event) {
        match event {
            Event::JobStage {
                nspace,
                stage: Stage::ReadyForDebug,
            } => self.ready.push(nspace),
            Event::JobEnded { nspace, end } => self.ended.push((nspace, end)),
            Event::Program(ProgramEvent::Stdio(piece)) => {
                // Output of the server's processes is ours to show.
                let _ = std::io::stdout().write_all(&piece.bytes);
            }
            _ => {}
        }
    }

    fn is_ready(&self, job: &Nspace) -> bool {
        self.ready.contains(job)
    }

    fn end(&self, job: &Nspace) -> Option<JobEnd> {
        let found = self.ended.iter().find(|(nspace, _)| nspace == job);
        found.map(|(_, end)| *end)
    }
}
