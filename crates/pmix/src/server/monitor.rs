//! Heartbeat monitoring: a process asks for an event if it sends no heartbeat for too long.

use std::{collections::BTreeMap, time::Duration};

use base::Time;

use super::{
    Event, ReplyTo, Server,
    event::From,
    find, info,
    timers::{Timer, Timers},
};
use crate::{
    keys,
    message::Answer,
    value::{Info, Nspace, Proc, Range, Status, Value},
};

/// Processes that have asked to be monitored.
#[derive(Debug, Default)]
pub(super) struct Monitors {
    by_proc: BTreeMap<Proc, Monitor>,
}

#[derive(Debug)]
struct Monitor {
    every: Duration,
    /// Number of heartbeats that may be missed before the event is sent.
    drops: u64,
    missed: u64,
    due: Time,
    /// Status code of the event; SUCCESS for the default code.
    error: Status,
    id: Option<Value>,
}

impl Monitors {
    pub(super) fn forget(&mut self, proc: &Proc, timers: &mut Timers) {
        if let Some(monitor) = self.by_proc.remove(proc) {
            timers.clear(monitor.due, Timer::Heartbeat(proc.clone()));
        }
    }

    /// Stops monitoring the processes of a job.
    pub(super) fn forget_job(&mut self, nspace: &Nspace, timers: &mut Timers) {
        let gone = self
            .by_proc
            .extract_if(.., |proc, _| proc.nspace == *nspace);
        for (proc, monitor) in gone {
            timers.clear(monitor.due, Timer::Heartbeat(proc));
        }
    }

    pub(super) fn heartbeat(&mut self, now: Time, proc: &Proc, timers: &mut Timers) {
        if let Some(monitor) = self.by_proc.get_mut(proc) {
            monitor.missed = 0;
            timers.clear(monitor.due, Timer::Heartbeat(proc.clone()));
            monitor.due = now + monitor.every;
            timers.set(monitor.due, Timer::Heartbeat(proc.clone()));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_proc.is_empty()
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
            self.monitors.forget(from, &mut self.timers);
            return self.answer(reply, &done);
        }
        if monitor.key != *keys::MONITOR_HEARTBEAT {
            return self.status(reply, Status::NOT_SUPPORTED);
        }
        let seconds = find(infos, keys::MONITOR_HEARTBEAT_TIME).and_then(Value::as_count);
        let Some(seconds) = seconds.filter(|seconds| *seconds > 0) else {
            return self.status(reply, Status::BAD_PARAM);
        };
        let every = Duration::from_secs(seconds.min(super::infos::MAX_TIMEOUT));
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
        self.monitors.forget(from, &mut self.timers);
        self.timers.set(monitor.due, Timer::Heartbeat(from.clone()));
        self.monitors.by_proc.insert(from.clone(), monitor);
        self.answer(reply, &done);
    }

    /// Handles a missed heartbeat.
    pub(super) fn on_missed(&mut self, now: Time, proc: Proc) {
        let Some(monitor) = self.monitors.by_proc.get_mut(&proc) else {
            return;
        };
        monitor.missed += 1;
        if monitor.missed <= monitor.drops {
            monitor.due = now + monitor.every;
            self.timers.set(monitor.due, Timer::Heartbeat(proc));
            return;
        }
        // Send the event only once.
        let Some(monitor) = self.monitors.by_proc.remove(&proc) else {
            return;
        };
        let about = Value::Proc(Box::new(proc.clone()));
        let infos = [
            info(keys::EVENT_AFFECTED_PROC, about),
            monitor.id.and_then(|id| info(keys::MONITOR_ID, id)),
        ];
        let event = Event {
            status: if monitor.error == Status::SUCCESS {
                Status::MONITOR_HEARTBEAT_ALERT
            } else {
                monitor.error
            },
            // The server sends the event in the name of the silent process.
            source: proc,
            range: Range::NAMESPACE,
            infos: infos.into_iter().flatten().collect(),
        };
        self.deliver(&event, From::Peer);
    }
}
