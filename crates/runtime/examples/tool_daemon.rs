//! A debugger's daemon: the server starts one on each node of the target. It finds its target, looks at the processes of its node,
//! lets all of them go, and waits for their end.
//!
//! `tool_direct` and `tool_indirect` spawn it. It cannot be started by hand, because its environment says where its server is.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "what the daemon sees is what it is for"
)]
#![expect(
    clippy::disallowed_methods,
    reason = "a program reads its environment; the library does not"
)]

use std::{error::Error, process::ExitCode, time::Duration};

use base::Time;
use os::Clock;
use pmix::{
    client::{Collect, Done, Search as Where},
    keys,
    tool::{Event, Extent, Follow, JobEnd},
    value::{Key, Nspace, Proc, Value},
};
use runtime::visit::{Failed, Search, Seen, Visit, find};

const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tool_daemon: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> Result<(), Box<dyn Error>> {
    // 1. Connect to the server that has started us. The environment names it.
    let search = Search {
        wish: pmix::tool::Wish::default(),
        name: None,
        command_line: "tool_daemon",
        patience: PATIENCE,
    };
    let mut visit = find(&search, &Seen(&|name| std::env::var(name).ok()))?;
    let me = visit.me().cloned().ok_or("the server gave us no name")?;
    let mut end = None;

    // 2. The job that we are for is a fact of our own job.
    let target = target(&mut visit, &me)?;
    let followed = visit.tool().follow(Follow::Job(target.clone()));
    visit.wait(followed, soon(), &mut |event| watch(&mut end, event))?;

    // 3. Look at its processes on this node. Here a debugger would attach to them.
    let asked = visit.tool().proc_table(&target, Extent::Node);
    let rows = visit.table(asked, soon(), &mut |event| watch(&mut end, event))?;
    for row in &rows {
        let pid = i32::try_from(row.pid).unwrap_or_default();
        let state = os::inspect(os::Pid::from_raw(pid)).map_or('-', |info| info.state);
        println!(
            "daemon {} sees process {} as {pid} in state {state}",
            me.rank, row.proc.rank
        );
    }

    // 4. Let the processes go when every daemon has looked: the release is for all of them.
    let fence = visit.tool().program().fence(Vec::new(), Collect::Nothing);
    visit.wait(fence, soon(), &mut |event| watch(&mut end, event))?;
    let release = visit.tool().release(vec![Proc::all(target.clone())]);
    visit.wait(release, soon(), &mut |event| watch(&mut end, event))?;
    // PRRTE leaves processes that stop on exec to the debugger, which continues them when it detaches.
    for row in &rows {
        let pid = os::Pid::from_raw(i32::try_from(row.pid)?);
        if os::inspect(pid).is_some_and(|info| info.state == 'T') {
            os::kill(pid, base::Signal::CONT)?;
        }
    }

    // 5. Wait for their end.
    while end.is_none() {
        let event = visit.next(None)?;
        watch(&mut end, event);
    }
    let status = end.and_then(|end| end.status).unwrap_or_default();
    println!("daemon {} saw the end with {}", me.rank, status.0);
    end_visit(visit)
}

/// Takes leave of the server. A launcher that has ended with its job does not answer any more.
fn end_visit(visit: Visit) -> Result<(), Box<dyn Error>> {
    match visit.finalize(soon(), &mut drop) {
        Ok(()) | Err(Failed::Lost(_)) => Ok(()),
        Err(why) => Err(why.into()),
    }
}

fn target(visit: &mut Visit, me: &Proc) -> Result<Nspace, Box<dyn Error>> {
    let own = Proc::all(me.nspace.clone());
    let key = Key::new(keys::DEBUG_TARGET)?;
    let asked = visit.tool().program().get(own, key, Where::Immediate);
    match visit.wait(asked, soon(), &mut drop)? {
        Done::Value(Value::Proc(proc)) => Ok(proc.nspace),
        _ => Err(Failed::OtherAnswer.into()),
    }
}

fn watch(end: &mut Option<JobEnd>, event: Event) {
    if let Event::JobEnded { end: ended, .. } = event {
        *end = Some(ended);
    }
}

fn soon() -> Option<Time> {
    Some(Clock::now() + PATIENCE)
}
