//! This node, as the search for a job sees it.

use debug::{
    image::Files,
    maps::{self, Mapping},
    memory::Memory,
    target::{JobTable, NoAnswer, Numbering, Process, Situation, System},
};
use os::{Pid, PidNamespace};

use super::{
    ask,
    live::{LiveFiles, LiveMemory},
};

/// The node that `dbgr` runs on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine {
    /// Which processes may be asked for their jobs.
    pub(super) ask: Ask,
}

/// The processes that `dbgr` may connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// Launchers that serve PMIx tools.
    Launcher,
    /// None: the search only reads `/proc`. PRRTE 5.0 was seen to hang at the end of its job after two tools had connected
    /// and left. It also crashed when a tool closed its connection without finalizing.
    Nobody,
}

impl System for Machine {
    fn processes(&self) -> Vec<Process> {
        os::all_processes()
            .into_iter()
            .filter_map(os::inspect)
            .map(|info| Process {
                pid: info.pid.as_raw(),
                parent: info.ppid.as_raw(),
                name: info.name,
                started: info.start_time,
                is_kernel: info.is_kernel,
                // The state is that of the first thread, which may have exited before the others.
                state: match info.state {
                    'Z' => state_of_a_thread(info.pid).unwrap_or('Z'),
                    state => state,
                },
            })
            .collect()
    }

    fn environment(&self, pid: i32) -> Option<Vec<u8>> {
        let pid = Pid::from_raw(pid);
        // The environment of an exited thread is missing or empty.
        os::environment_of(pid)
            .filter(|environment| !environment.is_empty())
            .or_else(|| os::environment_of(os::living_thread_of(pid)))
    }

    fn arguments(&self, pid: i32) -> Option<Vec<u8>> {
        os::arguments_of(os::living_thread_of(Pid::from_raw(pid)))
    }

    fn program(&self, pid: i32) -> Option<String> {
        let pid = Pid::from_raw(pid);
        let path = os::program_of(pid).or_else(|| os::program_of(os::living_thread_of(pid)))?;
        Some(path.to_string_lossy().into_owned())
    }

    fn numbering(&self, pid: i32) -> Option<Numbering<'_>> {
        let namespace = PidNamespace::of(Pid::from_raw(pid))?;
        if !namespace.is_nested() {
            return Some(Numbering::Ours);
        }
        let number = move |pid| namespace.number_of(Pid::from_raw(pid));
        Some(Numbering::Other(Box::new(number)))
    }

    fn owner(&self, pid: i32) -> Option<u32> {
        os::owner_of(Pid::from_raw(pid))
    }

    fn mappings(&self, pid: i32) -> Option<Vec<Mapping>> {
        let pid = os::living_thread_of(Pid::from_raw(pid));
        os::mappings(pid).map(|text| maps::parse(&text))
    }

    fn memory(&self, pid: i32) -> Box<dyn Memory + '_> {
        Box::new(LiveMemory(os::living_thread_of(Pid::from_raw(pid))))
    }

    fn files(&self, pid: i32) -> Box<dyn Files + '_> {
        Box::new(LiveFiles(os::living_thread_of(Pid::from_raw(pid))))
    }

    fn ask_launcher(&self, pid: i32) -> Result<Vec<JobTable>, NoAnswer> {
        match self.ask {
            Ask::Launcher => ask::tables(Pid::from_raw(pid)),
            Ask::Nobody => Err(NoAnswer::NotAsked),
        }
    }

    fn host(&self) -> String {
        os::host_name()
    }

    fn user(&self) -> u32 {
        os::effective_uid()
    }

    fn own_pid(&self) -> i32 {
        os::current_pid().as_raw()
    }
}

/// Returns the state of another thread of a process whose first thread has exited. `None` if no thread is alive.
fn state_of_a_thread(pid: Pid) -> Option<char> {
    let thread = os::living_thread_of(pid);
    if thread == pid {
        return None;
    }
    os::inspect_thread(pid, thread).map(|info| info.state)
}

/// Returns the facts that decide whether we may trace a process.
pub(super) fn situation(pid: i32) -> Situation {
    let process = Pid::from_raw(pid);
    Situation {
        pid,
        owner: os::owner_of(process),
        user: os::effective_uid(),
        may_trace_all: os::may_trace_all(),
        ptrace_scope: os::ptrace_scope(),
        contained: os::is_contained(),
        hidden: os::hides_processes(),
        tracer: os::tracer(process).ok().flatten().map(Pid::as_raw),
        guarded: os::is_guarded(process),
    }
}
