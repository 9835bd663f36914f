//! The time of day, for events that tell when they were.

use base::Time;
use pmix::{
    keys,
    value::{Info, Key, Value},
};

use crate::machine::Wall;

/// The time of the last input, and the time of day at [`Time::ZERO`], if that is known.
#[derive(Debug)]
pub(super) struct Clock {
    epoch: Option<Wall>,
    pub(super) now: Time,
}

impl Default for Clock {
    fn default() -> Self {
        Self {
            epoch: None,
            now: Time::ZERO,
        }
    }
}

impl Clock {
    pub(super) const fn set(&mut self, epoch: Wall) {
        self.epoch = Some(epoch);
    }

    /// Returns the time of day in seconds since 1970, in UTC; `None` if it is not known.
    pub(super) fn seconds(&self) -> Option<u64> {
        let millis = self.now.as_nanos() / 1_000_000;
        Some(self.epoch?.0.saturating_add(millis) / 1000)
    }

    /// Returns when an event is that is sent now, in seconds.
    pub(super) fn timestamp(&self) -> Option<Info> {
        let key = Key::new(keys::EVENT_TIMESTAMP).ok()?;
        Some(Info::new(key, Value::Time(self.seconds()?)))
    }
}
