//! A debugger that launches its target through a launcher: it starts the launcher with the user's own command line, gives it
//! directives, lets it go, and is told when the processes wait.
//!
//! ```text
//! cargo run -p runtime --example tool_indirect -- rally run -n 3 ./myapp
//! cargo run -p runtime --example tool_indirect -- mpirun -n 3 ./myapp       # Open MPI 5, PRRTE
//! ```
//!
//! The tool need not understand the launcher's command line. `tool_daemon` is the daemon on each node.
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
    error::Error,
    ffi::{CString, OsString},
    io::Write as _,
    os::{fd::AsFd as _, unix::ffi::OsStrExt as _},
    process::ExitCode,
    time::Duration,
};

use base::{ExitStatus, Time};
use os::Clock;
use pmix::{
    client::{Done, ProgramEvent, infos},
    keys,
    tool::{Event, Extent, Follow, Stage},
    value::{App, Nspace, Proc, Value},
};
use runtime::visit::{Failed, Launch, Visit};

const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    let command: Vec<OsString> = std::env::args_os().skip(1).collect();
    match debug(&command) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("tool_indirect: {error}");
            ExitCode::FAILURE
        }
    }
}

fn debug(command: &[OsString]) -> Result<u8, Box<dyn Error>> {
    if command.is_empty() {
        return Err("usage: tool_indirect LAUNCHER [ARGUMENT...]".into());
    }
    let flag = || Value::Bool(true);
    // 1. Start the launcher with directives for its job. It connects to us, and waits.
    let environment: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    let mut visit = Visit::launch(
        Launch {
            command,
            environment: &environment,
            input: Some(os::duplicate(std::io::stdin().as_fd())?),
            number: 1,
            directives: infos([
                (keys::STOP_IN_INIT, flag()),
                (keys::FWD_STDOUT, flag()),
                (keys::FWD_STDERR, flag()),
                (keys::NOTIFY_COMPLETION, flag()),
            ]),
        },
        PATIENCE,
    )?;
    let mut heard = Heard::default();

    // 2. Say what we want to hear of, and let the launcher go.
    let followed = visit.tool().follow(Follow::All);
    visit.wait(followed, soon(), &mut |event| heard.on(event))?;
    let released = visit.release_launcher();
    visit.wait(released, soon(), &mut |event| heard.on(event))?;

    // 3. Wait until all processes wait for us, and look where they are.
    while heard.ready.is_none() {
        match visit.next(soon()) {
            Ok(event) => heard.on(event),
            // A launcher that finds an error on its command line says so and ends.
            Err(Failed::Lost(_)) => return code(&mut visit),
            Err(why) => return Err(why.into()),
        }
    }
    let job = heard.ready.clone().ok_or("no job is ready")?;
    let asked = visit.tool().proc_table(&job, Extent::Job);
    for row in visit.table(asked, soon(), &mut |event| heard.on(event))? {
        let host = row.hostname.unwrap_or_default();
        println!(
            "process {} is {} on {}",
            row.proc.rank,
            row.pid,
            host.to_string_lossy()
        );
    }

    // 4. Spawn a daemon on each node of the job. The daemons let the processes go.
    let daemon = std::env::current_exe()?.with_file_name("tool_daemon");
    let daemon = App {
        cwd: Some(CString::new(
            std::env::current_dir()?.as_os_str().as_bytes(),
        )?),
        ..App::new(vec![CString::new(daemon.as_os_str().as_bytes())?], 1)
    };
    let directives = infos([
        (keys::MAP_BY, Value::text("ppr:1:node")),
        (keys::DEBUGGER_DAEMONS, flag()),
        (keys::DEBUG_TARGET, Value::Proc(Box::new(Proc::all(job)))),
        (keys::FWD_STDOUT, flag()),
        (keys::FWD_STDERR, flag()),
        (keys::NOTIFY_COMPLETION, flag()),
    ]);
    let spawn = visit.tool().spawn(directives, vec![daemon]);
    match visit.wait(spawn, soon(), &mut |event| heard.on(event))? {
        Done::Spawned(_) => {}
        _ => return Err(Failed::OtherAnswer.into()),
    }

    // 5. Show what comes until the launcher closes the connection, and end as it does.
    loop {
        match visit.next(None) {
            Ok(event) => heard.on(event),
            Err(Failed::Lost(_)) => return code(&mut visit),
            Err(why) => return Err(why.into()),
        }
    }
}

fn code(visit: &mut Visit) -> Result<u8, Box<dyn Error>> {
    let end = visit.launcher_end(soon())?;
    println!("the launcher {end}");
    Ok(match end {
        ExitStatus::Exited(code) => code,
        _ => 1,
    })
}

/// What the launcher has told.
#[derive(Debug, Default)]
struct Heard {
    ready: Option<Nspace>,
}

impl Heard {
    fn on(&mut self, event: Event) {
        match event {
            Event::JobStage {
                nspace,
                stage: Stage::ReadyForDebug,
            } => self.ready = Some(nspace),
            Event::JobStage { nspace, stage } => println!("{nspace}: {stage:?}"),
            Event::JobEnded { nspace, end } => {
                let status = end.status.unwrap_or_default();
                println!("{nspace} ended with {}", end.exit_code.unwrap_or(status.0));
            }
            Event::Program(ProgramEvent::Stdio(piece)) => {
                let _ = std::io::stdout().write_all(&piece.bytes);
            }
            _ => {}
        }
    }
}

fn soon() -> Option<Time> {
    Some(Clock::now() + PATIENCE)
}
