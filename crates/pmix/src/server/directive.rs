//! Directives: the attributes of a request that say how to carry it out.
//!
//! A directive that this server does not understand is ignored, as the Standard demands, unless the caller marked it as
//! required. In that case the whole request fails with NOT_SUPPORTED before any part of it is carried out. This holds
//! for every request, including those that the host carries out. The infos of an event are not checked: they are for
//! the processes that receive it.

use std::{ffi::CStr, iter};

use crate::{
    keys,
    message::Request,
    value::{Info, InfoFlags},
};

/// Directives of a spawn request, which `pmix.qry.spawn` reports as supported.
pub(super) const OF_SPAWN: [&CStr; 15] = [
    keys::WORKING_DIR,
    keys::HOST,
    keys::MAP_BY,
    keys::RANK_BY,
    keys::BIND_TO,
    keys::COLOCATE_PROCS,
    keys::COLOCATE_PER_PROC,
    keys::COLOCATE_PER_NODE,
    keys::PRELOAD_BIN,
    keys::PRELOAD_FILES,
    keys::SET_SESSION_CWD,
    keys::STDIN_TARGET,
    keys::FWD_STDIN,
    keys::FWD_STDOUT,
    keys::FWD_STDERR,
];

/// Directives that hold a spawned job for a debugger, which `pmix.qry.debug` reports as supported.
pub(super) const OF_HOLD: [&CStr; 3] = [keys::STOP_ON_EXEC, keys::STOP_IN_INIT, keys::STOP_IN_APP];

/// Directives of a spawn request that are understood and not reported. PERSONALITY has no effect: all programs are
/// started alike, whatever library they use.
const OF_SPAWN_BESIDES: [&CStr; 7] = [
    keys::SET_ENVAR,
    keys::ADD_ENVAR,
    keys::UNSET_ENVAR,
    keys::PREPEND_ENVAR,
    keys::APPEND_ENVAR,
    keys::NOTIFY_COMPLETION,
    keys::PERSONALITY,
];

/// Directives of a get. Only IMMEDIATE and TIMEOUT matter here. The others are for the client library, or select a
/// class of facts that the server finds without them.
const OF_GET: [&CStr; 10] = [
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

const OF_QUERY: [&CStr; 5] = [
    keys::NSPACE,
    keys::RANK,
    keys::PROC_ID,
    keys::GROUP_ID,
    keys::QUERY_REFRESH_CACHE,
];

const OF_CONSTRUCT: [&CStr; 13] = [
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

const OF_CONTROL: [&CStr; 8] = [
    keys::JOB_CTRL_ID,
    keys::JOB_CTRL_KILL,
    keys::JOB_CTRL_SIGNAL,
    keys::JOB_CTRL_TERMINATE,
    keys::JOB_CTRL_PAUSE,
    keys::JOB_CTRL_RESUME,
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
        Request::Fence { infos, .. } => among(
            infos,
            &[keys::COLLECT_DATA, keys::COLLECT_JOB_INFO, keys::TIMEOUT],
        ),
        Request::Connect { infos, .. }
        | Request::Disconnect { infos, .. }
        | Request::GroupDestruct { infos, .. } => among(infos, &[keys::TIMEOUT]),
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
            let understood = [
                keys::RANGE,
                keys::PERSISTENCE,
                keys::USER_ID,
                keys::GROUP_USER_ID,
            ];
            let is_unmet = |info: &Info| {
                is_required(info)
                    && info.key.as_bytes().starts_with(b"pmix.")
                    && !is_one_of(info, &understood)
            };
            infos.iter().any(is_unmet)
        }
        Request::Lookup { infos, .. } => among(infos, &[keys::RANGE, keys::WAIT, keys::TIMEOUT]),
        Request::Unpublish { infos, .. } => among(infos, &[keys::RANGE]),
        Request::Spawn { infos, apps } => {
            let understood = [&OF_SPAWN[..], &OF_HOLD, &OF_SPAWN_BESIDES].concat();
            let of_apps = apps.iter().map(|app| &app.info);
            iter::once(infos)
                .chain(of_apps)
                .any(|infos| among(infos, &understood))
        }
        Request::Register { infos, .. } => among(
            infos,
            &[keys::EVENT_AFFECTED_PROC, keys::EVENT_AFFECTED_PROCS],
        ),
        Request::Query { queries } => queries
            .iter()
            .any(|query| among(&query.qualifiers, &OF_QUERY)),
        Request::Log {
            data, directives, ..
        } => {
            let channels = [keys::LOG_STDOUT, keys::LOG_STDERR, keys::LOG_MESSAGE];
            among(data, &channels) || among(directives, &[keys::LOG_SOURCE, keys::LOG_TIMESTAMP])
        }
        Request::JobControl { infos, .. } => among(infos, &OF_CONTROL),
        Request::Monitor { infos, .. } => among(
            infos,
            &[
                keys::MONITOR_HEARTBEAT_TIME,
                keys::MONITOR_HEARTBEAT_DROPS,
                keys::MONITOR_ID,
            ],
        ),
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
        Request::ValidateCredential { infos, .. }
        | Request::IofPull { infos, .. }
        | Request::IofDeregister { infos, .. }
        | Request::GroupLeave { infos, .. } => among(infos, &[]),
        Request::IofPush { infos, .. } => among(infos, &[keys::IOF_COMPLETE]),
        Request::GroupConstruct { infos, .. } => among(infos, &OF_CONSTRUCT),
        // These requests have no directives, are not supported, or are events, whose infos are for the receivers.
        Request::JobInfo
        | Request::Abort { .. }
        | Request::Commit { .. }
        | Request::Finalize
        | Request::Notify { .. }
        | Request::Deregister { .. }
        | Request::Allocate { .. }
        | Request::FabricRegister { .. }
        | Request::FabricUpdate { .. }
        | Request::RefreshCache { .. }
        | Request::SessionControl { .. }
        | Request::ResolvePeers { .. }
        | Request::ResolveNode { .. }
        | Request::Opaque { .. } => false,
    }
}

/// Returns true if the caller marked the directive as required, and its library has not processed it already.
const fn is_required(info: &Info) -> bool {
    info.flags.has(InfoFlags::REQUIRED) && !info.flags.has(InfoFlags::REQUIRED_PROCESSED)
}

fn is_one_of(info: &Info, keys: &[&CStr]) -> bool {
    keys.iter().any(|key| info.key == **key)
}
