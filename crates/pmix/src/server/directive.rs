//! Directives: the attributes of a request that say how to carry it out.
//!
//! A directive that this server does not understand is ignored, as the Standard demands, unless the caller marked it as
//! required. In that case the whole request fails with NOT_SUPPORTED before any part of it is carried out. This holds
//! for every request, including those that the host carries out. The infos of an event are not checked: they are for
//! the processes that receive it.

use std::{ffi::CStr, iter};

use crate::{
    allocation::Wish,
    keys,
    message::Request,
    value::{Info, InfoFlags, Key},
};

/// Directives of a spawn request, which `pmix.qry.spawn` reports as supported.
pub(super) const OF_SPAWN: [&CStr; 33] = [
    keys::WORKING_DIR,
    keys::HOST,
    keys::MAP_BY,
    keys::RANK_BY,
    keys::BIND_TO,
    keys::COLOCATE_PROCS,
    keys::COLOCATE_PER_PROC,
    keys::COLOCATE_PER_NODE,
    keys::COSPAWN_APP,
    keys::EXEC_AGENT,
    keys::PRELOAD_BIN,
    keys::PRELOAD_FILES,
    keys::SET_SESSION_CWD,
    keys::PSET_NAME,
    keys::SET_ENVAR,
    keys::ADD_ENVAR,
    keys::UNSET_ENVAR,
    keys::PREPEND_ENVAR,
    keys::APPEND_ENVAR,
    keys::STDIN_TARGET,
    keys::FWD_STDIN,
    keys::FWD_STDOUT,
    keys::FWD_STDERR,
    keys::IOF_CACHE_SIZE,
    keys::IOF_DROP_OLDEST,
    keys::IOF_DROP_NEWEST,
    keys::NOTIFY_COMPLETION,
    keys::NOTIFY_JOB_EVENTS,
    keys::NOTIFY_PROC_TERMINATION,
    keys::NOTIFY_PROC_ABNORMAL_TERMINATION,
    keys::LOG_JOB_EVENTS,
    keys::LOG_COMPLETION,
    keys::NOHUP,
];

/// Directives that hold a spawned job for a debugger, or start daemons of one, which `pmix.qry.debug` reports as supported.
pub(super) const OF_HOLD: [&CStr; 7] = [
    keys::STOP_ON_EXEC,
    keys::STOP_IN_INIT,
    keys::STOP_IN_APP,
    keys::DEBUGGER_DAEMONS,
    keys::DEBUG_TARGET,
    keys::DEBUG_DAEMONS_PER_NODE,
    keys::DEBUG_DAEMONS_PER_PROC,
];

/// Directives of a spawn request that are understood and not reported. PERSONALITY has no effect: all programs are started alike,
/// whatever library they use. The next two say what the server knows. The library of the spawner carries out the rest, when it writes
/// the output.
pub(super) const OF_SPAWN_BESIDES: [&CStr; 11] = [
    keys::DEBUG_JOB,
    keys::PERSONALITY,
    keys::REQUESTOR_IS_TOOL,
    keys::REQUESTOR_IS_CLIENT,
    keys::IOF_TAG_OUTPUT,
    keys::IOF_TAG_DETAILED_OUTPUT,
    keys::IOF_TAG_FULLNAME_OUTPUT,
    keys::IOF_RANK_OUTPUT,
    keys::IOF_TIMESTAMP_OUTPUT,
    keys::IOF_XML_OUTPUT,
    keys::IOF_MERGE_STDERR_STDOUT,
];

/// Directives for the job of a launcher that a tool has started, besides those of [`OF_HOLD`] and [`OF_SPAWN_BESIDES`].
const OF_LAUNCH: [&CStr; 21] = [
    keys::MAP_BY,
    keys::RANK_BY,
    keys::BIND_TO,
    keys::EXEC_AGENT,
    keys::SET_ENVAR,
    keys::ADD_ENVAR,
    keys::UNSET_ENVAR,
    keys::PREPEND_ENVAR,
    keys::APPEND_ENVAR,
    keys::FWD_STDOUT,
    keys::FWD_STDERR,
    keys::IOF_CACHE_SIZE,
    keys::IOF_DROP_OLDEST,
    keys::IOF_DROP_NEWEST,
    keys::NOTIFY_COMPLETION,
    keys::NOTIFY_JOB_EVENTS,
    keys::NOTIFY_PROC_TERMINATION,
    keys::NOTIFY_PROC_ABNORMAL_TERMINATION,
    keys::LOG_JOB_EVENTS,
    keys::LOG_COMPLETION,
    keys::NOHUP,
];

pub(super) const OF_FENCE: [&CStr; 3] = [keys::COLLECT_DATA, keys::COLLECT_JOB_INFO, keys::TIMEOUT];

/// Directives of connect, disconnect, and of the end of a group.
pub(super) const OF_CONNECT: [&CStr; 1] = [keys::TIMEOUT];

pub(super) const OF_PUBLISH: [&CStr; 4] = [
    keys::RANGE,
    keys::PERSISTENCE,
    keys::USER_ID,
    keys::GROUP_USER_ID,
];

pub(super) const OF_LOOKUP: [&CStr; 3] = [keys::RANGE, keys::WAIT, keys::TIMEOUT];

pub(super) const OF_UNPUBLISH: [&CStr; 1] = [keys::RANGE];

pub(super) const OF_REGISTER: [&CStr; 2] = [keys::EVENT_AFFECTED_PROC, keys::EVENT_AFFECTED_PROCS];

/// What a log request can log, and where.
pub(super) const OF_LOG: [&CStr; 6] = [
    keys::LOG_STDOUT,
    keys::LOG_STDERR,
    keys::LOG_MESSAGE,
    keys::LOG_SYSLOG,
    keys::LOG_LOCAL_SYSLOG,
    keys::LOG_GLOBAL_SYSLOG,
];

/// Directives of a log request: they are for what goes to a syslog.
pub(super) const OF_SYSLOG: [&CStr; 3] = [
    keys::LOG_SYSLOG_PRIORITY,
    keys::LOG_TIMESTAMP,
    keys::LOG_GENERATE_TIMESTAMP,
];

pub(super) const OF_MONITOR: [&CStr; 3] = [
    keys::MONITOR_HEARTBEAT_TIME,
    keys::MONITOR_HEARTBEAT_DROPS,
    keys::MONITOR_ID,
];

pub(super) const OF_PUSH: [&CStr; 1] = [keys::IOF_COMPLETE];

pub(super) const OF_PULL: [&CStr; 4] = [
    keys::IOF_COPY,
    keys::IOF_CACHE_SIZE,
    keys::IOF_DROP_OLDEST,
    keys::IOF_DROP_NEWEST,
];

/// Directives of a get. Only IMMEDIATE and TIMEOUT matter here. The others are for the client library, or select a
/// class of facts that the server finds without them.
pub(super) const OF_GET: [&CStr; 10] = [
    keys::IMMEDIATE,
    keys::TIMEOUT,
    keys::OPTIONAL,
    keys::GET_REFRESH_CACHE,
    keys::GET_STATIC_VALUES,
    keys::GET_POINTER_VALUES,
    keys::SESSION_INFO,
    keys::JOB_INFO,
    keys::APP_INFO,
    keys::NODE_INFO,
];

pub(super) const OF_QUERY: [&CStr; 18] = [
    keys::NSPACE,
    keys::RANK,
    keys::PROC_ID,
    keys::GROUP_ID,
    keys::PSET_NAME,
    keys::HOSTNAME,
    keys::NODE_ID,
    keys::ALLOC_ID,
    keys::ALLOC_REQ_ID,
    keys::ALLOC_QUEUE,
    keys::QUERY_REFRESH_CACHE,
    keys::QUERY_LOCAL_ONLY,
    keys::QUERY_REPORT_AVG,
    keys::QUERY_REPORT_MINMAX,
    keys::SERVER_ATTRIBUTES,
    keys::SERVER_FUNCTIONS,
    keys::HOST_ATTRIBUTES,
    keys::HOST_FUNCTIONS,
];

pub(super) const OF_CONSTRUCT: [&CStr; 13] = [
    keys::TIMEOUT,
    keys::PROC_DATA,
    keys::GROUP_ID,
    keys::GROUP_ASSIGN_CONTEXT_ID,
    keys::GROUP_LOCAL_CID,
    keys::GROUP_MEMBERSHIP,
    keys::GROUP_OPTIONAL,
    keys::GROUP_NOTIFY_TERMINATION,
    keys::GROUP_INFO,
    keys::GROUP_INFO_ARRAY,
    keys::GROUP_BOOTSTRAP,
    keys::GROUP_ADD_MEMBERS,
    keys::GROUP_FINAL_ORDER,
];

pub(super) const OF_CONTROL: [&CStr; 9] = [
    keys::JOB_CTRL_ID,
    keys::JOB_CTRL_KILL,
    keys::JOB_CTRL_SIGNAL,
    keys::JOB_CTRL_TERMINATE,
    keys::JOB_CTRL_PAUSE,
    keys::JOB_CTRL_RESUME,
    keys::JOB_CTRL_DEFINE_PSET,
    keys::REGISTER_CLEANUP,
    keys::REGISTER_CLEANUP_DIR,
];

/// Returns true if a request has a required directive that this server does not understand.
pub(super) fn requires_unknown(request: &Request) -> bool {
    let among = |infos: &[Info], understood: &[&CStr]| {
        let mut infos = infos.iter().filter(|info| is_required(info));
        infos.any(|info| !is_one_of(info, understood))
    };
    match request {
        Request::Fence { infos, .. } => among(infos, &OF_FENCE),
        Request::Connect { infos, .. }
        | Request::Disconnect { infos, .. }
        | Request::GroupDestruct { infos, .. } => among(infos, &OF_CONNECT),
        Request::Get { infos, .. } => {
            let is_unmet = |info: &Info| {
                is_required(info)
                    && !info.flags.has(InfoFlags::QUALIFIER)
                    && !is_one_of(info, &OF_GET)
            };
            infos.iter().any(is_unmet)
        }
        // One list holds both data and directives: a key without the prefix `pmix.` is data.
        Request::Publish { infos, .. } => {
            let is_unmet = |info: &Info| {
                is_required(info)
                    && info.key.as_bytes().starts_with(b"pmix.")
                    && !is_one_of(info, &OF_PUBLISH)
            };
            infos.iter().any(is_unmet)
        }
        Request::Lookup { infos, .. } => among(infos, &OF_LOOKUP),
        Request::Unpublish { infos, .. } => among(infos, &OF_UNPUBLISH),
        Request::Spawn { infos, apps } => {
            // Only hosts with a scheduler carry out those about allocations.
            let understood = [&OF_SPAWN[..], &OF_HOLD, &OF_SPAWN_BESIDES, &Wish::KEYS].concat();
            let of_apps = apps.iter().map(|app| &app.info);
            iter::once(infos)
                .chain(of_apps)
                .any(|infos| among(infos, &understood))
        }
        Request::Register { infos, .. } => among(infos, &OF_REGISTER),
        Request::Query { queries } => queries
            .iter()
            .any(|query| among(&query.qualifiers, &OF_QUERY)),
        Request::Log {
            data, directives, ..
        } => {
            let understood = [&OF_SYSLOG[..], &[keys::LOG_SOURCE]].concat();
            among(data, &OF_LOG) || among(directives, &understood)
        }
        Request::Allocate { infos, .. } => {
            among(infos, &[&Wish::KEYS[..], &[keys::TIMEOUT]].concat())
        }
        Request::JobControl { infos, .. } => among(infos, &OF_CONTROL),
        Request::Monitor { infos, .. } => among(infos, &OF_MONITOR),
        Request::GetCredential { infos } => {
            let is_ours = |info: &Info| {
                info.key == *keys::CRED_TYPE
                    && info.value.as_text().is_some_and(|kinds| {
                        let mut kinds = kinds.to_bytes().split(|byte| *byte == b',');
                        kinds.any(|kind| kind == b"native")
                    })
            };
            infos.iter().any(|info| is_required(info) && !is_ours(info))
        }
        // Who requires a redirection wants to take the output away from others, too.
        Request::IofPull { infos, .. } => among(infos, &OF_PULL),
        Request::ValidateCredential { infos, .. }
        | Request::IofDeregister { infos, .. }
        | Request::GroupLeave { infos, .. } => among(infos, &[]),
        Request::IofPush { infos, .. } => among(infos, &OF_PUSH),
        Request::GroupConstruct { infos, .. } => among(infos, &OF_CONSTRUCT),
        // These requests have no directives, are not supported, or are events, whose infos are for the receivers.
        Request::JobInfo
        | Request::Abort { .. }
        | Request::Commit { .. }
        | Request::Finalize
        | Request::Notify { .. }
        | Request::Deregister { .. }
        | Request::FabricRegister { .. }
        | Request::FabricUpdate { .. }
        | Request::RefreshCache { .. }
        | Request::SessionControl { .. }
        | Request::ResolvePeers { .. }
        | Request::ResolveNode { .. }
        | Request::Opaque { .. } => false,
    }
}

/// Returns the first required directive for a launch that is not understood. A tool gives them to the launcher that it starts.
#[must_use]
pub fn unknown_launch_directive(directives: &[Info]) -> Option<&Key> {
    let understood = [&OF_LAUNCH[..], &OF_HOLD, &OF_SPAWN_BESIDES].concat();
    let mut required = directives.iter().filter(|info| is_required(info));
    let unknown = required.find(|info| !is_one_of(info, &understood));
    unknown.map(|info| &info.key)
}

/// Returns true if the caller marked the directive as required, and its library has not processed it already.
const fn is_required(info: &Info) -> bool {
    info.flags.has(InfoFlags::REQUIRED) && !info.flags.has(InfoFlags::REQUIRED_PROCESSED)
}

fn is_one_of(info: &Info, keys: &[&CStr]) -> bool {
    keys.iter().any(|key| info.key == **key)
}
