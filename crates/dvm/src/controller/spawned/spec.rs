//! The specification of a spawned job: its programs, the directives, and defaults from the spawner's own job, as one
//! [`JobSpec`]. Files that are to be copied are not found yet (`files`).

use std::{
    collections::BTreeMap,
    ffi::{CStr, CString, OsStr, OsString},
    ops::Range,
    os::unix::ffi::OsStrExt,
    sync::Arc,
};

use base::{HostList, MAX_HOSTS, Rank, RankSet};
use bytes::Bytes;
use pmix::{
    codec::{Format, Writer},
    keys,
    server::{self, Overflow},
    value::{App as SpawnedApp, Envar, Info, Key, PmixRank, Status, Value},
};

use super::{
    super::job::{LoggedNews, Spawner, StartNews},
    agent,
    colocation::{Colocation, Places, debugged},
    files::Files,
    find,
};
use crate::{
    alloc::LocalNames,
    place::{self, AppRequest, BindTarget, MapBy, MapTo, Oversubscribe},
    preload::WantedFile,
    proto::{Dropped, Keeping, Stream},
    spec::{
        App, Destination, Environment, FrontInput, HoldAt, HoldPlan, JobSpec, MapFor,
        ResourceNeeds, SetName, StdinTarget, StdioPlan,
    },
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
    let places = colocation
        .as_ref()
        .and_then(|colocation| colocation.places.as_ref());
    // `ppr:N:node` says how many daemons there are, and they are placed already.
    let map_by = match places {
        Some(Places::Exactly(_)) => None,
        Some(Places::AtMost(_)) | None => policy(keys::MAP_BY),
    };
    if let Some(map_by) = map_by {
        request.map_by = Some(place::map_by(map_by).map_err(|_| Status::BAD_PARAM)?);
    }
    let is_placed = request.map_by.is_none();
    let mut sequence = HostList::new();
    if let Some(rank_by) = policy(keys::RANK_BY) {
        request.rank_by = Some(place::rank_by(rank_by).map_err(|_| Status::BAD_PARAM)?);
    }
    if let Some(bind_to) = policy(keys::BIND_TO) {
        request.bind_to = Some(place::bind_to(bind_to).map_err(|_| Status::BAD_PARAM)?);
    }
    let mut programs = Vec::new();
    let mut files = Files::default();
    let mut sets = BTreeMap::new();
    let mut stops = Vec::new();
    let mut before = 0_u32;
    for (index, app) in (0..).zip(apps) {
        let most = u32::try_from(app.maxprocs).map_err(|_| Status::BAD_PARAM)?;
        // Colocation determines the number of procs; `maxprocs` can only lower it.
        let count = match places {
            Some(places) => add_places(&mut sequence, places, most)?,
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
        stops.push((before..before.saturating_add(count), own.clone()));
        before = before.saturating_add(count);
        let mut program = program(base, infos, app)?;
        // Directives of the app take precedence over those of the job.
        let said = |key: &CStr| find(&own, key).or_else(|| find(infos, key));
        files.add(index, &program, said)?;
        if let Some(name) = said(keys::PSET_NAME) {
            sets.insert(index, set_name(name)?);
        }
        // Daemons of a debugger are no application.
        let is_daemon = said(keys::DEBUGGER_DAEMONS).is_some_and(Value::is_set);
        if let Some(agent) = said(keys::EXEC_AGENT).filter(|_| !is_daemon) {
            let argument = agent::execute(agent, &mut program)?;
            files.executed_by_agent(index, argument);
        }
        programs.push(program);
    }
    if is_placed && !sequence.is_empty() {
        request.map_by = Some(by_name(sequence, places));
    }
    let (preload, wanted) = files.finish();
    let spec = JobSpec {
        preload,
        map: MapFor::Launch,
        watch: None,
        needs: ResourceNeeds::default(),
        sets,
        recorder: spawner.recorder,
        apps: programs,
        placement: request,
        universe: spawner.universe,
        stdin: input(infos)?,
        stdio: StdioPlan {
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
        hold: hold(infos, &stops)?,
        variables: spawner.variables.clone(),
        gpus: None,
        limits: spawner.limits,
    };
    Ok((spec, wanted))
}

/// Returns the process set to which the procs of an app are to belong.
fn set_name(value: &Value) -> Result<SetName, Status> {
    let text = value.as_text().and_then(|text| text.to_str().ok());
    let name = text.ok_or(Status::BAD_PARAM)?;
    SetName::try_from(name.to_owned()).map_err(|_| Status::BAD_PARAM)
}

/// Returns the policy that maps the procs to these nodes, in this order.
fn by_name(sequence: HostList, places: Option<&Places>) -> MapBy {
    let by_name = MapBy::from(MapTo::Sequence(sequence));
    match places {
        // The targets have the slots.
        Some(Places::Exactly(_)) => MapBy {
            oversubscribe: Some(Oversubscribe::Allow),
            ..by_name
        },
        Some(Places::AtMost(_)) | None => by_name,
    }
}

/// Adds the places of an app to those of the job, and returns how many there are.
fn add_places(sequence: &mut HostList, places: &Places, said: u32) -> Result<u32, Status> {
    let before = sequence.len();
    for name in places.of_app(said).take(MAX_HOSTS + 1 - before) {
        sequence.push(name);
    }
    let added = sequence.len() - before;
    let is_bounded = sequence.len() <= MAX_HOSTS;
    let added = u32::try_from(added).ok().filter(|_| is_bounded);
    added.ok_or(Status::OUT_OF_RESOURCE)
}

/// Returns the output streams that the spawner wants forwarded to itself. A tool gets both, unless it does not want one.
pub(in crate::controller) fn forwarded(infos: &[Info], spawner: Spawner) -> Vec<Stream> {
    let wants = |key| match (find(infos, key), spawner) {
        (Some(value), _) => value.is_set(),
        (None, Spawner::Tool(_)) => true,
        (None, Spawner::Rank) => false,
    };
    let streams = [
        (Stream::Stdout, keys::FWD_STDOUT),
        (Stream::Stderr, keys::FWD_STDERR),
    ];
    let wanted = streams.into_iter().filter(|(_, key)| wants(key));
    wanted.map(|(stream, _)| stream).collect()
}

/// Returns how much of a job's output is kept for tools. A tool cannot pull the output of a job before it has spawned it, so some is kept
/// for it in any case.
pub(in crate::controller) fn kept(
    infos: &[Info],
    spawner: Spawner,
) -> Result<Option<Keeping>, Status> {
    let unasked = match spawner {
        Spawner::Tool(_) => Some(server::Keeping::DEFAULT),
        Spawner::Rank => None,
    };
    let keeping = server::Keeping::asked(infos)?.or(unasked);
    Ok(keeping.map(|keeping| Keeping {
        bytes: keeping.bytes,
        dropped: match keeping.overflow {
            Overflow::DropOldest => Dropped::Oldest,
            Overflow::DropNewest => Dropped::Newest,
        },
    }))
}

/// Returns whether the spawner wants events about the start of a job. A tool does, unless it says otherwise.
pub(super) fn start_news(infos: &[Info], spawner: Spawner) -> StartNews {
    let said = find(infos, keys::NOTIFY_JOB_EVENTS).map(Value::is_set);
    match said.unwrap_or(matches!(spawner, Spawner::Tool(_))) {
        true => StartNews::Told,
        false => StartNews::Untold,
    }
}

/// Returns what the spawner wants logged of a job's start and end.
pub(in crate::controller) fn logged_news(infos: &[Info]) -> LoggedNews {
    let is_set = |key| find(infos, key).is_some_and(Value::is_set);
    match (is_set(keys::LOG_JOB_EVENTS), is_set(keys::LOG_COMPLETION)) {
        (true, _) => LoggedNews::StartAndEnd,
        (false, true) => LoggedNews::End,
        (false, false) => LoggedNews::Nothing,
    }
}

/// Returns the destinations of the output of a job of a tool: no files or terminals of the user's own job.
pub(super) const fn to_tool(stdio: &StdioPlan) -> StdioPlan {
    StdioPlan {
        stdout: Destination::Forward,
        stderr: Destination::Forward,
        open: stdio.open,
        pty: None,
        lines: None,
        input: stdio.input,
    }
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
        Some(value) => match target(value).ok_or(Status::BAD_PARAM)? {
            PmixRank::WILDCARD => Ok(StdinTarget::All),
            PmixRank::INVALID => Ok(StdinTarget::None),
            rank => Ok(StdinTarget::Rank(Rank(rank.0))),
        },
    }
}

/// Returns the rank to which input goes, given as a rank, a number, a process, or one of the words `all` and `none`.
fn target(value: &Value) -> Option<PmixRank> {
    match value {
        Value::Proc(proc) => Some(proc.rank),
        value => match value.as_text().map(CStr::to_bytes) {
            Some(b"all") => Some(PmixRank::WILDCARD),
            Some(b"none") => Some(PmixRank::INVALID),
            Some(text) => std::str::from_utf8(text).ok()?.parse().ok().map(PmixRank),
            None => value
                .as_count()
                .and_then(|rank| u32::try_from(rank).ok())
                .map(PmixRank),
        },
    }
}

/// Returns the holding point of the ranks, from the directives of a debugger that spawns them: for the job, or for each app with its ranks.
pub(in crate::controller) fn hold(
    job: &[Info],
    apps: &[(Range<u32>, Vec<Info>)],
) -> Result<HoldPlan, Status> {
    let mut all = job.iter().chain(apps.iter().flat_map(|(_, infos)| infos));
    // Daemons of a debugger are held nowhere.
    if all.any(|info| info.key == *keys::DEBUGGER_DAEMONS && info.value.is_set()) {
        return Ok(HoldPlan::NOWHERE);
    }
    if let Some((at, held)) = stop(job)? {
        let ranks = match held {
            Stopped::All => None,
            Stopped::Ranks(ranks) => Some(ranks),
        };
        return Ok(HoldPlan { at, ranks });
    }
    let mut plan: Option<(HoldAt, RankSet)> = None;
    for (ranks, infos) in apps {
        let Some((at, held)) = stop(infos)? else {
            continue;
        };
        let held = match held {
            Stopped::All => RankSet::range(ranks.clone()),
            Stopped::Ranks(held) => held,
        };
        plan = match plan {
            None => Some((at, held)),
            Some((before, ranks)) if before == at => Some((at, ranks.union(&held))),
            // A job has one holding point.
            Some(_) => return Err(Status::NOT_SUPPORTED),
        };
    }
    Ok(plan.map_or(HoldPlan::NOWHERE, |(at, ranks)| HoldPlan {
        at,
        ranks: Some(ranks),
    }))
}

/// The ranks that stop.
enum Stopped {
    All,
    Ranks(RankSet),
}

/// Returns where processes stop, and which, as a list of directives says.
fn stop(infos: &[Info]) -> Result<Option<(HoldAt, Stopped)>, Status> {
    let places = [
        (keys::STOP_ON_EXEC, HoldAt::Exec),
        (keys::STOP_IN_INIT, HoldAt::Init),
        (keys::STOP_IN_APP, HoldAt::App),
    ];
    for (key, at) in places {
        let ranks: Vec<PmixRank> = match find(infos, key) {
            None | Some(Value::Bool(false)) => continue,
            Some(Value::Bool(true)) => vec![PmixRank::WILDCARD],
            Some(Value::Rank(rank)) => vec![*rank],
            Some(value) => {
                let procs = value.as_procs().ok_or(Status::BAD_PARAM)?;
                procs.iter().map(|proc| proc.rank).collect()
            }
        };
        let held = match ranks.contains(&PmixRank::WILDCARD) {
            true => Stopped::All,
            false => Stopped::Ranks(ranks.iter().map(|rank| Rank(rank.0)).collect()),
        };
        return Ok(Some((at, held)));
    }
    Ok(None)
}

/// Returns the attributes of a debugger's request that its daemons find among the facts of their job, packed. If the request names the
/// target by its old attribute only, the daemons find it under the new one too: they may be younger than the debugger.
pub(super) fn told(infos: &[Info]) -> Bytes {
    let is_told = |info: &&Info| {
        [
            keys::DEBUGGER_DAEMONS,
            keys::DEBUG_TARGET,
            keys::DEBUG_JOB,
            keys::DEBUG_DAEMONS_PER_NODE,
            keys::DEBUG_DAEMONS_PER_PROC,
        ]
        .iter()
        .any(|key| info.key == **key)
    };
    let mut told: Vec<Info> = infos.iter().filter(is_told).cloned().collect();
    if find(infos, keys::DEBUG_TARGET).is_none() {
        let target = find(infos, keys::DEBUG_JOB).and_then(debugged);
        let target = target.and_then(|targets| targets.into_iter().next());
        let key = Key::new(keys::DEBUG_TARGET).ok();
        let both = key.zip(target);
        told.extend(both.map(|(key, target)| Info::new(key, Value::Proc(Box::new(target)))));
    }
    if told.is_empty() {
        return Bytes::new();
    }
    let mut writer = Writer::new(Format::V4);
    writer.list(&told);
    writer.into_bytes().into()
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
        env.set(OsStr::from_bytes(name), OsStr::from_bytes(&value[1..]));
    }
    vary(&mut env, job.iter().chain(&app.info));
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
        let value = base.env.get(name);
        value.is_some() && value == env.get(name)
    };
    if !elsewhere.own.iter().all(is_as_before) {
        Arc::make_mut(&mut elsewhere).own.retain(is_as_before);
    }
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

/// Applies directives to the environment, in their order.
pub(in crate::controller) fn vary<'a>(
    env: &mut Environment,
    infos: impl IntoIterator<Item = &'a Info>,
) {
    for info in infos {
        match &info.value {
            Value::Envar(envar) => change(env, info, envar),
            Value::String(Some(name)) if info.key == *keys::UNSET_ENVAR => {
                env.remove(OsStr::from_bytes(name.as_bytes()));
            }
            _ => {}
        }
    }
}

/// Applies one directive to an environment variable.
fn change(env: &mut Environment, info: &Info, envar: &Envar) {
    let Some(name) = &envar.name else { return };
    let name = OsStr::from_bytes(name.as_bytes());
    let value = envar.value.as_ref().map_or(&[][..], |text| text.as_bytes());
    let old = env.get(name).map(|value| value.as_bytes().to_vec());
    let joined = |first: &[u8], second: &[u8]| [first, &[envar.separator], second].concat();
    let key = info.key.as_c_str();
    let new = match old {
        _ if key == keys::UNSET_ENVAR => return env.remove(name),
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
    env.set(name, OsStr::from_bytes(&new));
}
