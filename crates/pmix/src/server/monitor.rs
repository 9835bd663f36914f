//! Heartbeats: a process asks to be missed when it is silent for too long.

use std::{collections::BTreeMap, time::Duration};

use base::Time;

use super::{Event, ReplyTo, Server, event::From, find, info};
use crate::{
    keys,
    message::Answer,
    value::{Info, Proc, Range, Status, Value},
};

/// The shortest time between heartbeats that is watched, so that nobody keeps a node awake.
const SHORTEST: Duration = Duration::from_millis(100);

/// Processes whose heartbeats are awaited.
#[derive(Debug, Default)]
pub(super) struct Monitors {
    by_proc: BTreeMap<Proc, Monitor>,
}

#[derive(Debug)]
struct Monitor {
    every: Duration,
    /// So many may be missed before anybody is told.
    drops: u64,
    missed: u64,
    due: Time,
    /// The code of the event.
    error: Status,
    id: Option<Value>,
}

impl Monitors {
    pub(super) fn deadline(&self) -> Option<Time> {
        self.by_proc.values().map(|monitor| monitor.due).min()
    }

    pub(super) fn forget(&mut self, proc: &Proc) {
        self.by_proc.remove(proc);
    }

    pub(super) fn heartbeat(&mut self, now: Time, proc: &Proc) {
        if let Some(monitor) = self.by_proc.get_mut(proc) {
            monitor.missed = 0;
            monitor.due = now + monitor.every;
        }
    }
}

impl Server {
    pub(super) fn on_monitor(
        &mut self,
        now: Time,
        reply: ReplyTo,
        from: &Proc,
        monitor: &Info,
        error: Status,
        infos: &[Info],
    ) {
        let done = Answer::Infos {
            status: Status::SUCCESS,
            infos: Vec::new(),
        };
        if monitor.key == *keys::MONITOR_CANCEL {
            self.monitors.forget(from);
            return self.answer(reply, &done);
        }
        if monitor.key != *keys::MONITOR_HEARTBEAT {
            return self.status(reply, Status::NOT_SUPPORTED);
        }
        let seconds = find(infos, keys::MONITOR_HEARTBEAT_TIME).and_then(Value::as_count);
        let Some(seconds) = seconds.filter(|seconds| *seconds > 0) else {
            return self.status(reply, Status::BAD_PARAM);
        };
        let every = Duration::from_secs(seconds.min(super::MAX_TIMEOUT)).max(SHORTEST);
        let monitor = Monitor {
            every,
            drops: find(infos, keys::MONITOR_HEARTBEAT_DROPS)
                .and_then(Value::as_count)
                .unwrap_or(0),
            missed: 0,
            due: now + every,
            error,
            id: find(infos, keys::MONITOR_ID).cloned(),
        };
        self.monitors.by_proc.insert(from.clone(), monitor);
        self.answer(reply, &done);
    }

    pub(super) fn check_heartbeats(&mut self, now: Time) {
        let mut silent = Vec::new();
        self.monitors.by_proc.retain(|proc, monitor| {
            if monitor.due > now {
                return true;
            }
            monitor.missed += 1;
            monitor.due = now + monitor.every;
            let over = monitor.missed > monitor.drops;
            if over {
                silent.push((proc.clone(), monitor.error, monitor.id.take()));
            }
            // Said once.
            !over
        });
        for (proc, error, id) in silent {
            let about = Value::Proc(Box::new(proc.clone()));
            let infos = [
                info(keys::EVENT_AFFECTED_PROC, about),
                id.and_then(|id| info(keys::MONITOR_ID, id)),
            ];
            let event = Event {
                status: if error == Status::SUCCESS {
                    Status::MONITOR_HEARTBEAT_ALERT
                } else {
                    error
                },
                source: self.config.identity.clone(),
                range: Range::NAMESPACE,
                infos: infos.into_iter().flatten().collect(),
            };
            // The range is that of the process, whose server speaks for it.
            let event = Event {
                source: proc,
                ..event
            };
            self.deliver(&event, From::Peer);
        }
    }
}
