//! The event handlers of a program.

use std::collections::BTreeMap;

use crate::{
    keys,
    value::{Info, Proc, Range, Status},
};

/// Maximum number of handlers of one program. A further registration fails with `RESOURCE_BUSY`.
pub const MAX_HANDLERS: usize = 1024;

/// Handle of a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HandlerId(u64);

/// Event for a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    pub status: Status,
    /// Process that raised the event.
    pub source: Proc,
    pub infos: Vec<Info>,
    /// Reach of the event; `None` when a server replays an event without it.
    pub range: Option<Range>,
}

impl Notice {
    /// Returns the processes that the event is about, empty if it names none.
    #[must_use]
    pub fn affected(&self) -> Vec<&Proc> {
        affected(&self.infos)
    }

    /// Returns the value of an attribute.
    #[must_use]
    pub fn attribute(&self, key: &std::ffi::CStr) -> Option<&crate::value::Value> {
        let info = self.infos.iter().find(|info| info.key == *key);
        info.map(|info| &info.value)
    }
}

/// Events that a handler matches.
#[derive(Debug)]
struct Handler {
    /// Event codes. If empty, the handler gets every event without another handler.
    codes: Vec<Status>,
    /// Processes that the event must be about. If empty, all events match.
    affected: Vec<Proc>,
}

/// The registrations of a program.
#[derive(Debug, Default)]
pub(super) struct Handlers {
    next: u64,
    handlers: BTreeMap<HandlerId, Handler>,
}

impl Handlers {
    pub(super) fn len(&self) -> usize {
        self.handlers.len()
    }

    pub(super) fn add(&mut self, codes: Vec<Status>, infos: &[Info]) -> HandlerId {
        let id = HandlerId(self.next);
        self.next += 1;
        let affected = affected(infos).into_iter().cloned().collect();
        self.handlers.insert(id, Handler { codes, affected });
        id
    }

    /// Removes a handler and returns the codes that no other handler has.
    pub(super) fn remove(&mut self, id: HandlerId) -> Vec<Status> {
        let Some(gone) = self.handlers.remove(&id) else {
            return Vec::new();
        };
        let mut left = self.handlers.values();
        if gone.codes.is_empty() {
            let alone = !left.any(|handler| handler.codes.is_empty());
            return alone
                .then_some(Status::DEFAULT_HANDLER)
                .into_iter()
                .collect();
        }
        let unwanted = gone.codes.into_iter().filter(|code| {
            let mut left = self.handlers.values();
            !left.any(|handler| handler.codes.contains(code))
        });
        unwanted.collect()
    }

    /// Returns the handlers that match an event.
    pub(super) fn matching(&self, notice: &Notice) -> Vec<HandlerId> {
        let about = notice.affected();
        let concerned = |handler: &Handler| {
            about.is_empty()
                || handler.affected.is_empty()
                || handler.affected.iter().any(|wanted| {
                    about
                        .iter()
                        .any(|proc| wanted.covers(proc) || proc.covers(wanted))
                })
        };
        let of = |wanted: &dyn Fn(&Handler) -> bool| -> Vec<HandlerId> {
            let found = self.handlers.iter();
            let found = found.filter(|(_, handler)| wanted(handler) && concerned(handler));
            found.map(|(id, _)| *id).collect()
        };
        let named = of(&|handler| handler.codes.contains(&notice.status));
        let non_default = notice
            .attribute(keys::EVENT_NON_DEFAULT)
            .is_some_and(crate::value::Value::is_set);
        if named.is_empty() && !non_default {
            return of(&|handler| handler.codes.is_empty());
        }
        named
    }
}

fn affected(infos: &[Info]) -> Vec<&Proc> {
    let named = infos.iter().filter(|info| {
        info.key == *keys::EVENT_AFFECTED_PROC || info.key == *keys::EVENT_AFFECTED_PROCS
    });
    let procs = named.filter_map(|info| info.value.as_procs());
    procs.flatten().collect()
}
