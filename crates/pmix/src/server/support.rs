//! What can be asked for: the keys of queries, and the functions and attributes that have an effect here.
//!
//! The lists are those by which requests are checked ([`directive`]), so they name nothing that is not carried out.

use std::ffi::CStr;

use super::{
    attributes::{self, Attribute},
    directive,
    facts::joined,
    find, info,
};
use crate::{
    keys,
    message::NamesForm,
    value::{DataType, Info, Key, Record, Value},
};

/// Keys of queries that this server answers. Facts about jobs, nodes and ranks can be asked for as well.
const ANSWERED: [&CStr; 17] = [
    keys::SERVER_URI,
    keys::QUERY_SUPPORTED_KEYS,
    keys::QUERY_SUPPORTED_QUALIFIERS,
    keys::QUERY_ATTRIBUTE_SUPPORT,
    keys::QUERY_NAMESPACES,
    keys::QUERY_NAMESPACE_INFO,
    keys::QUERY_PROC_TABLE,
    keys::QUERY_LOCAL_PROC_TABLE,
    keys::QUERY_SPAWN_SUPPORT,
    keys::QUERY_DEBUG_SUPPORT,
    keys::QUERY_NUM_PSETS,
    keys::QUERY_PSET_NAMES,
    keys::QUERY_PSET_MEMBERSHIP,
    keys::QUERY_NUM_GROUPS,
    keys::QUERY_GROUP_NAMES,
    keys::QUERY_GROUP_MEMBERSHIP,
    keys::PROC_PID,
];

/// Keys of queries that the host answers. Hosts without a queue do not know the queues and their allocations.
pub(super) const OF_HOST: [&CStr; 7] = [
    keys::QUERY_JOB_STATUS,
    keys::QUERY_MEMORY_USAGE,
    keys::QUERY_QUEUE_LIST,
    keys::QUERY_QUEUE_STATUS,
    keys::QUERY_ALLOC_STATUS,
    keys::QUERY_AVAILABLE_SLOTS,
    keys::TIME_REMAINING,
];

/// The functions of the library that have attributes here, with these.
const FUNCTIONS: [(&str, &[&[&CStr]]); 18] = [
    ("PMIx_Get", &[&directive::OF_GET]),
    ("PMIx_Fence", &[&directive::OF_FENCE]),
    ("PMIx_Publish", &[&directive::OF_PUBLISH]),
    ("PMIx_Lookup", &[&directive::OF_LOOKUP]),
    ("PMIx_Unpublish", &[&directive::OF_UNPUBLISH]),
    ("PMIx_Spawn", &[&directive::OF_SPAWN, &directive::OF_HOLD]),
    ("PMIx_Connect", &[&directive::OF_CONNECT]),
    ("PMIx_Disconnect", &[&directive::OF_CONNECT]),
    ("PMIx_Group_construct", &[&directive::OF_CONSTRUCT]),
    ("PMIx_Group_destruct", &[&directive::OF_CONNECT]),
    ("PMIx_Register_event_handler", &[&directive::OF_REGISTER]),
    (
        "PMIx_Query_info",
        &[&ANSWERED, &OF_HOST, &directive::OF_QUERY],
    ),
    ("PMIx_Log", &[&directive::OF_LOG, &directive::OF_SYSLOG]),
    ("PMIx_Job_control", &[&directive::OF_CONTROL]),
    ("PMIx_Process_monitor", &[&directive::OF_MONITOR]),
    ("PMIx_Get_credential", &[&[keys::CRED_TYPE]]),
    ("PMIx_IOF_pull", &[&directive::OF_PULL]),
    ("PMIx_IOF_push", &[&directive::OF_PUSH]),
];

/// Returns the answer to a query for a list of what is supported; `None` for other keys.
pub(super) fn answer(key: &CStr) -> Option<Value> {
    let list = |lists: &[&[&'static CStr]]| {
        let keys = lists.iter().copied().flatten().copied();
        Some(Value::String(joined(keys, b',')))
    };
    match key {
        _ if key == keys::QUERY_SUPPORTED_KEYS => list(&[&ANSWERED, &OF_HOST]),
        _ if key == keys::QUERY_SUPPORTED_QUALIFIERS => list(&[&directive::OF_QUERY]),
        _ if key == keys::QUERY_SPAWN_SUPPORT => list(&[&directive::OF_SPAWN]),
        _ if key == keys::QUERY_DEBUG_SUPPORT => list(&[&directive::OF_HOLD]),
        _ => None,
    }
}

/// Returns the functions or attributes that the qualifiers ask for: the names of the functions, or each function with its attributes. Our
/// server and its host are one program, so both levels have the same. Libraries know what they carry out themselves.
pub(super) fn supported(qualifiers: &[Info], form: NamesForm) -> Vec<Info> {
    let mut found = Vec::new();
    for level in [keys::SERVER_FUNCTIONS, keys::HOST_FUNCTIONS] {
        if find(qualifiers, level).is_some() {
            let names: Vec<&str> = FUNCTIONS.iter().map(|(name, _)| *name).collect();
            let names = info(level, Value::text(&names.join(",")));
            found.extend(names.and_then(|names| match form {
                NamesForm::Bare => Some(names),
                NamesForm::Nested => info(keys::QUERY_ATTRIBUTE_SUPPORT, Value::infos(vec![names])),
            }));
        }
    }
    let levels = [keys::SERVER_ATTRIBUTES, keys::HOST_ATTRIBUTES];
    let Some(wanted) = levels.iter().find_map(|level| find(qualifiers, level)) else {
        return found;
    };
    let wanted = wanted.as_text().map_or(&b"all"[..], CStr::to_bytes);
    let is_wanted = |name: &str| {
        let mut names = wanted.split(|byte| *byte == b',');
        names.any(|one| one == b"all" || one == name.as_bytes())
    };
    let wanted = FUNCTIONS.iter().filter(|(name, _)| is_wanted(name));
    let mut wanted: Vec<(&str, Vec<&Attribute>)> = wanted
        .map(|(name, lists)| {
            let all = lists.iter().copied().flatten();
            (*name, all.filter_map(|key| attributes::of(key)).collect())
        })
        .collect();
    // The command `pattrs` of libpmix 4.2 shows as many attributes of each function as the first one has, whether there are so many or not.
    wanted.sort_by_key(|(_, attributes)| attributes.len());
    let infos = wanted.into_iter().filter_map(|(name, attributes)| {
        let records = attributes.into_iter().map(record);
        let records = Value::array(DataType::REGATTR, records.collect());
        Some(Info::new(Key::from_text(name).ok()?, records))
    });
    let infos: Vec<Info> = infos.collect();
    if !infos.is_empty() {
        found.extend(info(keys::QUERY_ATTRIBUTE_SUPPORT, Value::infos(infos)));
    }
    found
}

/// Libraries write a type as a number without a sign, and read it as one with a sign, which is encoded as twice its value: they misread
/// what they write themselves. So it is doubled.
fn record((key, name, kind): &Attribute) -> Value {
    Value::Record(Box::new(Record {
        kind: DataType::REGATTR,
        fields: vec![
            Value::text(name),
            Value::String(Some((*key).to_owned())),
            Value::DataType(DataType(kind.0 << 1)),
            // The same command takes it for granted that there is a description.
            Value::array(
                DataType::STRING,
                vec![Value::text("as the PMIx Standard says")],
            ),
        ],
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_attribute_that_is_reported_is_described() {
        for (name, lists) in FUNCTIONS {
            for key in lists.iter().copied().flatten() {
                assert!(attributes::of(key).is_some(), "{name}: {key:?}");
            }
        }
    }
}
