//! Attributes in lists.

use std::{ffi::CStr, time::Duration};

use base::Time;

use crate::{
    codec::{Format, Writer},
    keys,
    value::{Info, Key, Value},
};

/// A fact under a key that is one of ours, and so never too long.
pub(super) fn info(key: &CStr, value: Value) -> Option<Info> {
    Key::new(key).ok().map(|key| Info::new(key, value))
}

/// The value of an attribute in a list.
pub(super) fn find<'a>(infos: &'a [Info], key: &CStr) -> Option<&'a Value> {
    infos
        .iter()
        .find(|info| info.key == *key)
        .map(|info| &info.value)
}

/// Whether an attribute is in a list and set.
pub(super) fn is_set(infos: &[Info], key: &CStr) -> bool {
    find(infos, key).is_some_and(Value::is_set)
}

/// When a request gives up by its own wish: `pmix.timeout`, in seconds; 0 is never.
pub(super) fn timeout(now: Time, infos: &[Info]) -> Option<Time> {
    let seconds = find(infos, keys::TIMEOUT)?.as_count()?;
    (seconds > 0).then(|| now + Duration::from_secs(seconds.min(MAX_TIMEOUT)))
}

/// Bytes of a value under its key, as they are in a message.
pub(super) fn size(key: &Key, value: &Value) -> usize {
    let mut writer = Writer::new(Format::V4);
    writer.kval(key, value);
    writer.as_bytes().len()
}

/// Seconds: a longer time-out is as good as none, and must not overflow.
pub(super) const MAX_TIMEOUT: u64 = 100 * 365 * 24 * 3600;
