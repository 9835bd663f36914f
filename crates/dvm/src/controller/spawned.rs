//! Jobs that procs spawn by PMIx: what they are made of, and who hears of their beginning and end.

mod beside;
#[cfg(test)]
mod tests;

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use base::{ExitStatus, HostList, JobId, ProcId, Rank, RankSet, Time};
use bytes::Bytes;
use pmix::{
    codec::{Format, Writer},
    keys,
    message::{Answer, Push},
    value::{App as SpawnedApp, Envar, Info, Key, Nspace, PmixRank, Proc, Range, Status, Value},
};

use self::beside::Beside;
use super::{Asker, Controller, Job, MAX_JOBS, Origin, Phase, Puts};
use crate::{
    alloc::LocalNames,
    place::{self, AppRequest, BindTarget, Oversubscribe},
    proto::{
        Cause, EndReason, Note, Outcome, Parent, StartFailure, StartStep, Stream, ToDaemon, ToFront,
    },
    spec::{App, FrontInput, HoldAt, HoldPlan, JobSpec, StdinTarget},
};

impl Controller {
    /// Takes a job that a proc wants to have started. It is answered when the job runs, or cannot.
    pub(super) fn spawn(
        &mut self,
        now: Time,
        asker: Asker,
        by: ProcId,
        infos: &[Info],
        apps: Vec<SpawnedApp>,
    ) {
        if self.living().len() >= MAX_JOBS {
            return self.answer(asker, &Answer::Status(Status::OUT_OF_RESOURCE));
        }
        let Some(spawner) = self.jobs.get(&by.job).filter(|job| !job.is_ending()) else {
            return self.answer(asker, &Answer::Status(Status::NOT_AVAILABLE));
        };
        let mut shares = spawner.shares.iter();
        let here = shares
            .find(|(_, share)| share.ranks.contains(by.rank))
            .and_then(|(node, _)| self.allocation.nodes.get(node.0 as usize));
        let here = LocalNames::new(here.map_or("", |node| node.name.as_str()));
        let spec = self
            .beside(infos, &apps)
            .and_then(|beside| spec(&here, &spawner.spec, beside, infos, apps));
        match spec {
            Ok(spec) => {
                let asker = Some(asker);
                let origin = Origin::Spawned {
                    by,
                    asker,
                    forward: forwarded(infos),
                    preput: preput(infos),
                };
                self.add(now, Box::new(spec), origin);
            }
            Err(status) => self.answer(asker, &Answer::Status(status)),
        }
    }

    /// The proc that has spawned a job.
    pub(super) fn parent(&self, id: JobId) -> Option<Parent> {
        match &self.jobs.get(&id)?.origin {
            Origin::Front => None,
            Origin::Spawned {
                by,
                forward,
                preput,
                ..
            } => Some(Parent {
                proc: *by,
                nspace: self.nspace(by.job),
                forward: forward.clone(),
                preput: preput.clone(),
            }),
        }
    }

    /// The jobs that a job has spawned, and those that they have, as far as they live.
    pub(super) fn descendants(&self, id: JobId) -> Vec<JobId> {
        let mut found = Vec::new();
        let mut ancestors = vec![id];
        while let Some(ancestor) = ancestors.pop() {
            for (child, job) in &self.jobs {
                let Origin::Spawned { by, .. } = &job.origin else {
                    continue;
                };
                if by.job == ancestor && job.phase != Phase::Over {
                    found.push(*child);
                    ancestors.push(*child);
                }
            }
        }
        found
    }

    /// A proc has ended. What it has spawned is held for nobody then: only it was told. And when it was the last of its
    /// job, nobody can push input to those any more.
    pub(super) fn let_go_of_orphans(&mut self, id: JobId, rank: Rank) {
        let by_it = |job: &&Job, whole: bool| match &job.origin {
            Origin::Spawned { by, .. } => by.job == id && (whole || by.rank == rank),
            Origin::Front => false,
        };
        let children = |whole: bool| -> Vec<JobId> {
            let jobs = self.jobs.values().filter(|job| by_it(job, whole));
            jobs.map(|job| job.id).collect()
        };
        let orphans = children(false);
        let is_last = self
            .jobs
            .get(&id)
            .is_some_and(|job| job.settled.len() == job.size as usize);
        let unfed = if is_last { children(true) } else { Vec::new() };
        for orphan in orphans {
            self.release(orphan, None);
        }
        for unfed in unfed {
            self.each_node(unfed, |job| ToDaemon::StdinEof { job });
        }
    }

    /// The job that an MPI program began with: its procs may spawn others by PMI, which are parts of it.
    pub(super) fn program_of(&self, id: JobId) -> JobId {
        let mut program = id;
        while let Some(job) = self.jobs.get(&program)
            && let Origin::Spawned {
                by,
                preput: Some(_),
                ..
            } = &job.origin
            && self.jobs.contains_key(&by.job)
        {
            program = by.job;
        }
        program
    }

    /// Which job is to end, and why, when this one does: one that fails takes the MPI program along that it is a part of.
    pub(super) fn taken_along(&mut self, id: JobId, cause: Cause) -> (JobId, Cause) {
        let program = self.program_of(id);
        let failed = matches!(
            cause,
            Cause::Failed { .. } | Cause::Aborted { .. } | Cause::Protocol { .. }
        );
        if !failed || program == id {
            return (id, cause);
        }
        self.end_one(id, cause.clone());
        let cause = Box::new(cause);
        (program, Cause::Spawned { job: id, cause })
    }

    /// Every proc of a spawned job was started, or will never be: the spawner is told.
    pub(super) fn tell_spawned(&mut self, id: JobId) {
        let nspace = CString::new(self.nspace(id)).ok();
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let Origin::Spawned { asker, .. } = &mut job.origin else {
            return;
        };
        let Some(asker) = asker.take() else { return };
        let answer = match job.failures.keys().next() {
            None => Answer::Spawned {
                status: Status::SUCCESS,
                nspace,
                facts: Vec::new(),
            },
            Some(failure) => Answer::Status(status_of(failure)),
        };
        self.answer(asker, &answer);
    }

    /// A spawned job could not even be placed.
    pub(super) fn spawn_refused(&mut self, id: JobId) {
        let Some(job) = self.jobs.remove(&id) else {
            return;
        };
        if let Origin::Spawned {
            asker: Some(asker), ..
        } = job.origin
        {
            self.answer(asker, &Answer::Status(Status::JOB_FAILED_TO_MAP));
        }
    }

    /// A spawned job is over: whoever has registered for it is told, and the user when it failed.
    pub(super) fn spawned_ended(&mut self, id: JobId, outcome: Outcome) {
        // Who waits for its start gets an answer even where it was ended before.
        self.tell_spawned(id);
        if let Some(job) = self.jobs.remove(&id) {
            self.offset = self.offset.max(job.offset.saturating_add(job.size));
        }
        if let Ok(nspace) = Nspace::from_text(&self.nspace(id)) {
            self.published.job_ended(&nspace);
            self.tell_end(&nspace, &outcome);
        }
        // Where it takes the others along, their end says why.
        let told = |cause: &Cause| matches!(cause, Cause::Spawned { job, .. } if *job == id);
        let mut causes = self.jobs.values().filter_map(|job| job.cause.as_ref());
        let silent = match outcome.cause {
            Cause::Success => true,
            // What the user or the end of its spawner did to it is no news.
            Cause::Ended(reason) => reason != EndReason::DebuggerLost,
            _ => causes.any(told),
        };
        if !silent {
            self.tell(ToFront::Note(Note::SpawnedFailed {
                job: id,
                cause: Box::new(outcome.cause),
            }));
        }
    }

    fn tell_end(&mut self, nspace: &Nspace, outcome: &Outcome) {
        let mut writer = Writer::new(Format::V4);
        let info = |key, value| Key::new(key).ok().map(|key| Info::new(key, value));
        let infos = [
            info(keys::EVENT_NON_DEFAULT, Value::Bool(true)),
            info(
                keys::JOB_TERM_STATUS,
                Value::Status(Status(exit_code(&outcome.cause))),
            ),
            info(
                keys::EVENT_AFFECTED_PROC,
                Value::Proc(Box::new(Proc::all(nspace.clone()))),
            ),
        ];
        let event = Push::Event {
            status: Status::EVENT_JOB_END,
            source: Proc {
                nspace: nspace.clone(),
                rank: PmixRank(0),
            },
            infos: infos.into_iter().flatten().collect(),
            range: Some(Range::SESSION),
        };
        event.encode(&mut writer);
        self.tell_nodes(Bytes::from(writer.into_bytes()));
    }
}

/// What a job is, of which a proc of another job has said the programs.
fn spec(
    here: &LocalNames,
    spawner: &JobSpec,
    beside: Option<Beside>,
    infos: &[Info],
    apps: Vec<SpawnedApp>,
) -> Result<JobSpec, Status> {
    if apps.is_empty() {
        return Err(Status::BAD_PARAM);
    }
    let text = |key| find(infos, key).and_then(Value::as_text);
    let policy = |key| text(key).and_then(|text| text.to_str().ok());
    let base = spawner.apps.first().ok_or(Status::BAD_PARAM)?;
    let mut request = place::Request {
        oversubscribe: Oversubscribe::Allow,
        // The procs of the spawner are there already: to bind to cores that they are bound to would slow down both.
        bind_to: Some(BindTarget::None.into()),
        ..place::Request::default()
    };
    if let Some(map_by) = policy(keys::MAP_BY) {
        request.map_by = Some(place::map_by(map_by).map_err(|_| Status::BAD_PARAM)?);
    }
    if let Some(rank_by) = policy(keys::RANK_BY) {
        request.rank_by = Some(place::rank_by(rank_by).map_err(|_| Status::BAD_PARAM)?);
    }
    if let Some(bind_to) = policy(keys::BIND_TO) {
        request.bind_to = Some(place::bind_to(bind_to).map_err(|_| Status::BAD_PARAM)?);
    }
    let mut programs = Vec::new();
    let held: Vec<Info> = apps.iter().flat_map(|app| app.info.clone()).collect();
    for app in apps {
        let most = u32::try_from(app.maxprocs).map_err(|_| Status::BAD_PARAM)?;
        // With so many for each of the others the number of procs follows; what is said besides can only lower it.
        let count = match beside.as_ref().and_then(|beside| beside.count) {
            Some(count) if most == 0 => count,
            Some(count) => count.min(most),
            None => most,
        };
        let nodes = match (&beside, hosts(here, infos, &app)?) {
            (None, said) => said,
            (Some(beside), None) => Some(beside.hosts.clone()),
            // Two answers to one question.
            (Some(_), Some(_)) => return Err(Status::BAD_PARAM),
        };
        request.apps.push(AppRequest {
            count: Some(count),
            hosts: nodes,
            ..AppRequest::default()
        });
        programs.push(program(base, infos, app)?);
    }
    Ok(JobSpec {
        apps: programs,
        placement: request,
        universe: spawner.universe,
        stdin: input(infos)?,
        stdio: crate::spec::StdioPlan {
            pty: None,
            // It is pushed by processes, and not what the front reads.
            input: FrontInput::Readable,
            // The spawner's procs write to the same files.
            open: crate::spec::OpenMode::Append,
            ..spawner.stdio.clone()
        },
        end: crate::spec::EndPolicy {
            time_limit: None,
            warning: None,
            wait: None,
            ..spawner.end
        },
        hold: hold(infos, &held)?,
        variables: spawner.variables.clone(),
        gpus: None,
    })
}

/// Output that the spawner wants to have.
fn forwarded(infos: &[Info]) -> Vec<Stream> {
    let wants = |key| find(infos, key).is_some_and(Value::is_set);
    let streams = [
        (Stream::Stdout, keys::FWD_STDOUT),
        (Stream::Stderr, keys::FWD_STDERR),
    ];
    let wanted = streams.into_iter().filter(|(_, key)| wants(key));
    wanted.map(|(stream, _)| stream).collect()
}

/// What the key-value space of a job begins with that was spawned by PMI.
fn preput(infos: &[Info]) -> Option<Puts> {
    let pairs = find(infos, keys::PMI_PREPUT)?.as_infos()?;
    let pairs = pairs.into_iter().filter_map(|info| {
        let key = info.key.as_c_str().to_str().ok()?;
        let value = info.value.as_text()?.to_str().ok()?;
        Some((key.to_owned(), value.to_owned()))
    });
    Some(pairs.collect())
}

/// Which ranks read what is pushed to the job. To forward the input and not to say to whom means the first rank.
fn input(infos: &[Info]) -> Result<StdinTarget, Status> {
    let forwarded = find(infos, keys::FWD_STDIN);
    let directive = find(infos, keys::STDIN_TARGET).or(forwarded);
    match directive {
        None | Some(Value::Bool(false)) => Ok(StdinTarget::None),
        Some(Value::Bool(true)) => Ok(StdinTarget::Rank(Rank(0))),
        Some(value) => {
            let rank = value.as_count().and_then(|rank| u32::try_from(rank).ok());
            match rank.map(PmixRank).ok_or(Status::BAD_PARAM)? {
                PmixRank::WILDCARD => Ok(StdinTarget::All),
                PmixRank::INVALID => Ok(StdinTarget::None),
                rank => Ok(StdinTarget::Rank(Rank(rank.0))),
            }
        }
    }
}

/// Where the ranks are held, as a debugger that spawns them says.
fn hold(job: &[Info], apps: &[Info]) -> Result<HoldPlan, Status> {
    let places = [
        (keys::STOP_ON_EXEC, HoldAt::Exec),
        (keys::STOP_IN_INIT, HoldAt::Init),
        (keys::STOP_IN_APP, HoldAt::App),
    ];
    for (key, at) in places {
        let Some(value) = find(job, key).or_else(|| find(apps, key)) else {
            continue;
        };
        let rank = match value {
            Value::Bool(true) => return Ok(HoldPlan::all(at)),
            Value::Bool(false) => continue,
            Value::Proc(proc) => proc.rank,
            Value::Rank(rank) => *rank,
            _ => return Err(Status::BAD_PARAM),
        };
        let ranks = (rank != PmixRank::WILDCARD).then(|| RankSet::single(Rank(rank.0)));
        return Ok(HoldPlan { at, ranks });
    }
    Ok(HoldPlan::NOWHERE)
}

/// The nodes that the spawner wants, if it has said any; it may call its own `localhost`.
fn hosts(here: &LocalNames, job: &[Info], app: &SpawnedApp) -> Result<Option<HostList>, Status> {
    let said = find(&app.info, keys::HOST).or_else(|| find(job, keys::HOST));
    let Some(text) = said.and_then(Value::as_text) else {
        return Ok(None);
    };
    let text = text.to_str().map_err(|_| Status::BAD_PARAM)?;
    let list: HostList = text.parse().map_err(|_| Status::BAD_PARAM)?;
    Ok(Some(list.iter().map(|name| here.canonical(name)).collect()))
}

/// One program, in the environment of the spawner and with what the spawner adds.
fn program(base: &App, job: &[Info], app: SpawnedApp) -> Result<App, Status> {
    let os = |text: &CString| OsStr::from_bytes(text.as_bytes()).to_os_string();
    let mut argv = app.argv.iter().flatten().map(os);
    // libpmix sends the name of the program twice, but a caller may leave either away.
    let first = argv.next();
    let program = app
        .command
        .as_ref()
        .map(os)
        .or(first)
        .ok_or(Status::JOB_NO_EXE_SPECIFIED)?;
    let args = argv.collect();
    let mut env = base.env.clone();
    for variable in app.env.iter().flatten() {
        let bytes = variable.as_bytes();
        let at = bytes.iter().position(|byte| *byte == b'=');
        let (name, value) = bytes.split_at(at.ok_or(Status::BAD_PARAM)?);
        set(
            &mut env,
            OsStr::from_bytes(name),
            OsStr::from_bytes(&value[1..]),
        );
    }
    for info in job.iter().chain(&app.info) {
        match &info.value {
            Value::Envar(envar) => change(&mut env, info, envar),
            Value::String(Some(name)) if info.key == *keys::UNSET_ENVAR => {
                let name = OsStr::from_bytes(name.as_bytes());
                env.retain(|(other, _)| other != name);
            }
            _ => {}
        }
    }
    let directive = find(&app.info, keys::WORKING_DIR).or_else(|| find(job, keys::WORKING_DIR));
    let directory = directive
        .and_then(Value::as_text)
        .or(app.cwd.as_deref())
        .map_or_else(
            || base.directory.clone(),
            |text| OsStr::from_bytes(text.to_bytes()).to_os_string(),
        );
    let directory = if directory.as_bytes().starts_with(b"/") {
        directory
    } else {
        let mut path = std::path::PathBuf::from(&base.directory);
        path.push(directory);
        path.into_os_string()
    };
    let mut search = base.search.clone();
    let path = find(&app.info, keys::SPAWN_PATH).and_then(Value::as_text);
    let mut program = program;
    if let Some(path) = path.map(|text| OsStr::from_bytes(text.to_bytes())) {
        let bytes = program.as_bytes();
        if !bytes.contains(&b'/') {
            let first = std::mem::replace(&mut search, path.to_os_string());
            search.push(":");
            search.push(first);
        } else if !bytes.starts_with(b"/") {
            let mut below = std::path::PathBuf::from(path);
            below.push(program);
            program = below.into_os_string();
        }
    }
    // Open MPI's launcher looks in the working directory last; Hydra does not.
    let is_there = search.as_bytes().ends_with(b":.");
    if find(job, keys::PMI_PREPUT).is_none() && !is_there {
        search.push(":.");
    }
    Ok(App {
        program,
        args,
        env,
        directory,
        search,
        umask: base.umask,
        tracers: base.tracers,
    })
}

/// Changes one variable as the directive says.
fn change(env: &mut Vec<(OsString, OsString)>, info: &Info, envar: &Envar) {
    let Some(name) = &envar.name else { return };
    let name = OsStr::from_bytes(name.as_bytes());
    let value = envar.value.as_ref().map_or(&[][..], |text| text.as_bytes());
    let old = env
        .iter()
        .find(|(other, _)| other == name)
        .map(|(_, value)| value.as_bytes().to_vec());
    let joined = |first: &[u8], second: &[u8]| [first, &[envar.separator], second].concat();
    let key = info.key.as_c_str();
    let new = match old {
        _ if key == keys::UNSET_ENVAR => return env.retain(|(other, _)| other != name),
        Some(_) if key == keys::ADD_ENVAR => return,
        Some(old) if key == keys::PREPEND_ENVAR => joined(value, &old),
        Some(old) if key == keys::APPEND_ENVAR => joined(&old, value),
        _ if [
            keys::SET_ENVAR,
            keys::ADD_ENVAR,
            keys::PREPEND_ENVAR,
            keys::APPEND_ENVAR,
        ]
        .contains(&key) =>
        {
            value.to_vec()
        }
        _ => return,
    };
    set(env, name, OsStr::from_bytes(&new));
}

fn set(env: &mut Vec<(OsString, OsString)>, name: &OsStr, value: &OsStr) {
    env.retain(|(other, _)| other != name);
    env.push((name.to_os_string(), value.to_os_string()));
}

fn find<'a>(infos: &'a [Info], key: &std::ffi::CStr) -> Option<&'a Value> {
    let info = infos.iter().find(|info| info.key == *key)?;
    Some(&info.value)
}

/// Why a job could not be started, in PMIx's words.
fn status_of(failure: &StartFailure) -> Status {
    const EACCES: i32 = 13;
    match failure.step {
        StartStep::Find => Status::JOB_EXE_NOT_FOUND,
        StartStep::Exec if failure.errno == EACCES => Status::JOB_APP_NOT_EXECUTABLE,
        StartStep::Directory => Status::JOB_WDIR_NOT_FOUND,
        _ => Status::JOB_FAILED_TO_LAUNCH,
    }
}

/// What a job came to, as a number: the code of the proc that decided, 128 and the signal where it was killed.
fn exit_code(cause: &Cause) -> i32 {
    match cause {
        Cause::Success => 0,
        Cause::Failed { status, .. } => match status {
            ExitStatus::Exited(code) => i32::from(*code),
            ExitStatus::Signaled { signal, .. } => 128 + signal.0,
        },
        Cause::Aborted { code, .. } => i32::from(*code),
        Cause::Spawned { cause, .. } => exit_code(cause),
        Cause::NotStarted(_)
        | Cause::Protocol { .. }
        | Cause::Absent(_)
        | Cause::Unfinished(_)
        | Cause::Ended(_) => 1,
    }
}
