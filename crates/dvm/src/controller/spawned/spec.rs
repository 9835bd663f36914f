//! The specification of a spawned job: its programs, the directives, and defaults from the spawner's own job, as one
//! [`JobSpec`]. Files that are to be copied are not found yet (`files`).

use std::{
    ffi::{CStr, CString, OsStr, OsString},
    os::unix::ffi::OsStrExt,
};

use base::{HostList, Rank, RankSet};
use pmix::{
    keys,
    value::{App as SpawnedApp, Envar, Info, PmixRank, Status, Value},
};

use super::{colocation::Colocation, files::Files};
use crate::{
    alloc::LocalNames,
    place::{self, AppRequest, BindTarget, Oversubscribe},
    preload::WantedFile,
    proto::Stream,
    spec::{App, FrontInput, HoldAt, HoldPlan, JobSpec, MapFor, StdinTarget},
};

/// Builds the specification of a job from the programs and directives of a spawn request, and returns the files that it
/// needs.
pub(super) fn spec(
    here: &LocalNames,
    spawner: &JobSpec,
    colocation: Option<Colocation>,
    infos: &[Info],
    apps: Vec<SpawnedApp>,
) -> Result<(JobSpec, Vec<WantedFile>), Status> {
    if apps.is_empty() {
        return Err(Status::BAD_PARAM);
    }
    let text = |key| find(infos, key).and_then(Value::as_text);
    let policy = |key| text(key).and_then(|text| text.to_str().ok());
    let base = spawner.apps.first().ok_or(Status::BAD_PARAM)?;
    let mut request = place::Request {
        oversubscribe: Oversubscribe::Allow,
        // The spawner's procs keep running: binding to the same cores would slow down both.
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
    let mut files = Files::default();
    let held: Vec<Info> = apps.iter().flat_map(|app| app.info.clone()).collect();
    for (index, app) in (0..).zip(apps) {
        let most = u32::try_from(app.maxprocs).map_err(|_| Status::BAD_PARAM)?;
        // Colocation determines the number of procs; `maxprocs` can only lower it.
        let count = match colocation.as_ref().and_then(|colocation| colocation.count) {
            Some(count) if most == 0 => count,
            Some(count) => count.min(most),
            None => most,
        };
        let nodes = match (&colocation, hosts(here, infos, &app)?) {
            (None, said) => said,
            (Some(colocation), None) => Some(colocation.hosts.clone()),
            // Colocation and a host list contradict each other.
            (Some(_), Some(_)) => return Err(Status::BAD_PARAM),
        };
        request.apps.push(AppRequest {
            count: Some(count),
            hosts: nodes,
            ..AppRequest::default()
        });
        let own = app.info.clone();
        let program = program(base, infos, app)?;
        // Directives of the app take precedence over those of the job.
        let said = |key: &CStr| find(&own, key).or_else(|| find(infos, key));
        files.add(index, &program, said)?;
        programs.push(program);
    }
    let (preload, wanted) = files.finish();
    let spec = JobSpec {
        preload,
        map: MapFor::Launch,
        apps: programs,
        placement: request,
        universe: spawner.universe,
        stdin: input(infos)?,
        stdio: crate::spec::StdioPlan {
            pty: None,
            // Input comes from processes that push it, and not from the front.
            input: FrontInput::Readable,
            // The spawner's procs may write to the same files, so do not truncate them.
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
    };
    Ok((spec, wanted))
}

/// Returns the output streams that the spawner wants forwarded to itself.
pub(super) fn forwarded(infos: &[Info]) -> Vec<Stream> {
    let wants = |key| find(infos, key).is_some_and(Value::is_set);
    let streams = [
        (Stream::Stdout, keys::FWD_STDOUT),
        (Stream::Stderr, keys::FWD_STDERR),
    ];
    let wanted = streams.into_iter().filter(|(_, key)| wants(key));
    wanted.map(|(stream, _)| stream).collect()
}

/// Returns the initial key-value pairs of a job that was spawned by PMI; `None` if it was spawned otherwise.
pub(super) fn preput(infos: &[Info]) -> Option<Vec<(String, String)>> {
    let pairs = find(infos, keys::PMI_PREPUT)?.as_infos()?;
    let pairs = pairs.into_iter().filter_map(|info| {
        let key = info.key.as_c_str().to_str().ok()?;
        let value = info.value.as_text()?.to_str().ok()?;
        Some((key.to_owned(), value.to_owned()))
    });
    Some(pairs.collect())
}

/// Returns the ranks that read pushed input. If input is forwarded without a target, that is rank 0.
pub(super) fn input(infos: &[Info]) -> Result<StdinTarget, Status> {
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

/// Returns the holding point of the ranks, from the directives of a debugger that spawns them.
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

/// Returns the nodes that the spawner requests, if any. It may call its own node `localhost`.
fn hosts(here: &LocalNames, job: &[Info], app: &SpawnedApp) -> Result<Option<HostList>, Status> {
    let said = find(&app.info, keys::HOST).or_else(|| find(job, keys::HOST));
    let Some(text) = said.and_then(Value::as_text) else {
        return Ok(None);
    };
    let text = text.to_str().map_err(|_| Status::BAD_PARAM)?;
    let list: HostList = text.parse().map_err(|_| Status::BAD_PARAM)?;
    Ok(Some(list.iter().map(|name| here.canonical(name)).collect()))
}

/// Builds one program, in the environment of the spawner's first app with the request's changes.
pub(super) fn program(base: &App, job: &[Info], app: SpawnedApp) -> Result<App, Status> {
    let os = |text: &CString| OsStr::from_bytes(text.as_bytes()).to_os_string();
    let mut argv = app.argv.iter().flatten().map(os);
    // libpmix sends the name of the program both as the command and as `argv[0]`, but a caller may omit either.
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
    // Open MPI's launcher searches the working directory last; Hydra does not search it.
    let is_there = search.as_bytes().ends_with(b":.");
    if find(job, keys::PMI_PREPUT).is_none() && !is_there {
        search.push(":.");
    }
    let mut elsewhere = base.elsewhere.clone();
    let is_as_before = |name: &OsString| {
        let entry = base.env.iter().find(|(other, _)| other == name);
        entry.is_some_and(|entry| env.contains(entry))
    };
    elsewhere.own.retain(is_as_before);
    Ok(App {
        program,
        args,
        env,
        elsewhere,
        directory,
        search,
        umask: base.umask,
        tracers: base.tracers,
    })
}

/// Applies one directive to an environment variable.
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

pub(super) fn find<'a>(infos: &'a [Info], key: &CStr) -> Option<&'a Value> {
    let info = infos.iter().find(|info| info.key == *key)?;
    Some(&info.value)
}
