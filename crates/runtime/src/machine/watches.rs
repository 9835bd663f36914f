//! The processes that watch submitted jobs for hangs: `dbgr watch`, one for each job. They are the hosts of [`dvm::watchdog`].
//!
//! `dbgr` finds the ranks by the name of the job in their environment, and writes its reports behind what the job has written to the file
//! for its errors. A shell opens that file, because opening may block.

use std::{
    collections::BTreeMap,
    ffi::{CString, OsString},
    os::{fd::AsFd as _, unix::ffi::OsStringExt as _},
    path::Path,
};

use base::{JobId, Signal, Time};
use dvm::{
    JobWatch, NotWatched,
    alloc::LocalNames,
    watchdog::{Input, Output, Watchdog},
};
use os::{Pid, Session, SpawnSpec, Spawner};

use super::Debugger;
use crate::reactor::{Child, Reactor};

/// Appends what the program prints to the file that is named first.
const SCRIPT: &str = r#"file=$1; shift; exec "$@" >>"$file" 2>&1"#;

#[derive(Debug)]
pub(super) struct Watches {
    debugger: Option<Debugger>,
    spawner: Spawner,
    of_jobs: BTreeMap<JobId, Watchdog>,
}

impl Watches {
    pub(super) fn new(debugger: Option<Debugger>) -> Result<Self, os::Error> {
        Ok(Self {
            debugger,
            spawner: Spawner::new()?,
            of_jobs: BTreeMap::new(),
        })
    }

    /// Starts the process that watches a job, whose ranks run.
    pub(super) fn begin(
        &mut self,
        now: Time,
        watch: &JobWatch,
        reactor: &mut Reactor,
    ) -> Result<(), NotWatched> {
        let debugger = self.debugger.as_ref().ok_or(NotWatched::NoDbgr)?;
        let mut watchdog = Watchdog::new(now, Some(watch.idle), watch.left);
        watchdog.handle(now, Input::RanksRun);
        // It wants nothing but its process to be started, and is as good as its process.
        while watchdog.poll().is_some() {}
        let words = words(debugger, watch, &os::host_name());
        let pid = start(&mut self.spawner, debugger, words).map_err(NotWatched::NotStarted)?;
        reactor.children.insert(pid, Child::Watch(watch.job));
        watchdog.handle(now, Input::Started(pid.as_raw()));
        self.of_jobs.insert(watch.job, watchdog);
        Ok(())
    }

    /// Ends the process: the job is over.
    pub(super) fn end(&mut self, now: Time, job: JobId) {
        self.advance(now, job, Input::JobOver);
    }

    pub(super) fn on_exited(&mut self, now: Time, job: JobId, pid: Pid) {
        self.advance(now, job, Input::Exited(pid.as_raw()));
        self.of_jobs.remove(&job);
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.of_jobs.values().filter_map(Watchdog::deadline).min()
    }

    pub(super) fn on_tick(&mut self, now: Time) {
        let jobs: Vec<JobId> = self.of_jobs.keys().copied().collect();
        for job in jobs {
            self.advance(now, job, Input::Tick);
        }
    }

    fn advance(&mut self, now: Time, job: JobId, input: Input) {
        let Some(watchdog) = self.of_jobs.get_mut(&job) else {
            return;
        };
        watchdog.handle(now, input);
        while let Some(output) = watchdog.poll() {
            // The process is our child and was not reaped yet, so its pid cannot have been reused.
            match output {
                Output::Ask(pid) => drop(os::kill(Pid::from_raw(pid), Signal::TERM)),
                Output::Kill(pid) => drop(os::kill(Pid::from_raw(pid), Signal::KILL)),
                // Only [`Self::begin`] starts one.
                Output::Start { .. } => {}
            }
        }
    }
}

/// Returns the command. `own` is the name of this host.
fn words(debugger: &Debugger, watch: &JobWatch, own: &str) -> Vec<OsString> {
    let files = &watch.files;
    let errors = files.stderr.as_ref().unwrap_or(&files.stdout);
    let millis = |time: std::time::Duration| OsString::from(format!("{}ms", time.as_millis()));
    let mut words: Vec<OsString> = vec![
        "/bin/sh".into(),
        "-c".into(),
        SCRIPT.into(),
        "rally".into(),
        errors.clone(),
        debugger.program.clone().into_os_string(),
        "watch".into(),
        watch.nspace.clone().into(),
        "--idle".into(),
        millis(watch.idle),
        "--output".into(),
        page(watch),
    ];
    if let Some(left) = watch.left {
        words.extend(["--limit".into(), millis(left)]);
    }
    let local = LocalNames::new(own);
    if watch.hosts.iter().any(|host| !local.contains(host)) {
        words.extend(["--hosts".into(), watch.hosts.to_string().into()]);
        words.extend(debugger.options.iter().map(OsString::from));
    }
    words
}

/// Returns the name of the page with the report: beside the output, and such that no other task has the same. If the output goes to a
/// device, the page is where the job runs.
fn page(watch: &JobWatch) -> OsString {
    let index = watch.task.index.map(|index| format!("-{index}"));
    let name = format!(
        "rally-{}{}-hang.html",
        watch.task.job,
        index.unwrap_or_default()
    );
    let stdout = Path::new(&watch.files.stdout);
    let page = if stdout.starts_with("/dev") {
        Path::new(&watch.directory).join(name)
    } else {
        stdout.with_file_name(name)
    };
    page.into_os_string()
}

fn start(spawner: &mut Spawner, debugger: &Debugger, words: Vec<OsString>) -> Result<Pid, String> {
    let c_string = |word: OsString| {
        CString::new(word.into_vec()).map_err(|_| "a name contains a NUL byte".to_owned())
    };
    let argv: Vec<CString> = words.into_iter().map(c_string).collect::<Result<_, _>>()?;
    let entries = debugger.environment.iter().cloned();
    let envp: Vec<CString> = entries.map(c_string).collect::<Result<_, _>>()?;
    let null = os::dev_null().map_err(|error| error.to_string())?;
    let program = argv.first().ok_or("there is no program")?;
    let spec = SpawnSpec {
        fds: &[(null.as_fd(), 0), (null.as_fd(), 1), (null.as_fd(), 2)],
        session: Session::Own,
        ..SpawnSpec::new(program, &argv, &envp)
    };
    spawner.spawn(&spec).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dvm::{machine::OutputFiles, queue::TaskId};

    use super::*;

    #[test]
    fn the_watch_writes_beside_the_output_and_reaches_other_nodes() {
        let debugger = Debugger {
            program: "/opt/dbgr".into(),
            options: vec!["--ssh".to_owned(), "rsh".to_owned()],
            environment: Vec::new(),
        };
        let text = |stdout: &str, stderr: Option<&str>, hosts: &[&str], left: Option<u64>| {
            let watch = JobWatch {
                task: TaskId {
                    job: JobId(7),
                    index: left.map(|_| 2),
                },
                directory: "/home/u".into(),
                job: JobId(3),
                nspace: "rally-n1-40@3".to_owned(),
                hosts: hosts.iter().copied().collect(),
                idle: Duration::from_secs(60),
                left: left.map(Duration::from_secs),
                files: OutputFiles {
                    stdout: stdout.into(),
                    stderr: stderr.map(OsString::from),
                },
            };
            let words = words(&debugger, &watch, "n1").into_iter().skip(4);
            let words: Vec<String> = words.map(|word| word.into_string().unwrap()).collect();
            words.join(" ")
        };
        assert_eq!(
            text("/w/rally-3.out", None, &["n1"], None),
            "/w/rally-3.out /opt/dbgr watch rally-n1-40@3 --idle 60000ms --output /w/rally-7-hang.html"
        );
        assert_eq!(
            text("/dev/null", None, &["n1"], None),
            "/dev/null /opt/dbgr watch rally-n1-40@3 --idle 60000ms --output /home/u/rally-7-hang.html"
        );
        assert_eq!(
            text("/w/a", Some("/w/a.err"), &["n1", "n2"], Some(5)),
            "/w/a.err /opt/dbgr watch rally-n1-40@3 --idle 60000ms --output /w/rally-7-2-hang.html --limit 5000ms \
             --hosts n[1-2] --ssh rsh"
        );
    }
}
