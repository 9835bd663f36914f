//! Access to lists of attributes.

use std::{ffi::CStr, time::Duration};

use base::Time;

use crate::{
    codec::{Format, Writer},
    keys,
    value::{Info, Key, Value},
};

/// Returns an info; `None` only if the key is too long, which no key of this crate is.
pub(super) fn info(key: &CStr, value: Value) -> Option<Info> {
    Key::new(key).ok().map(|key| Info::new(key, value))
}

/// Returns the value of an attribute in a list; `None` if it is absent.
pub(super) fn find<'a>(infos: &'a [Info], key: &CStr) -> Option<&'a Value> {
    infos
        .iter()
        .find(|info| info.key == *key)
        .map(|info| &info.value)
}

/// Returns true if an attribute is in a list and is set.
pub(super) fn is_set(infos: &[Info], key: &CStr) -> bool {
    find(infos, key).is_some_and(Value::is_set)
}

/// Returns the time at which a request times out by its `pmix.timeout` (in seconds); `None` if that is absent or 0.
pub(super) fn timeout(now: Time, infos: &[Info]) -> Option<Time> {
    let seconds = find(infos, keys::TIMEOUT)?.as_count()?;
    (seconds > 0).then(|| now + Duration::from_secs(seconds.min(MAX_TIMEOUT)))
}

/// Returns the size in bytes of a key and value in a message.
pub(super) fn size(key: &Key, value: &Value) -> usize {
    let mut writer = Writer::new(Format::V4);
    writer.kval(key, value);
    writer.as_bytes().len()
}

/// Upper bound on time-outs in seconds. A longer one would make no difference, and could overflow.
pub(super) const MAX_TIMEOUT: u64 = 100 * 365 * 24 * 3600;
