//! Jobs that a tool at the door spawns, and the ranks that it releases.

use std::ffi::CString;

use base::{NodeId, ProcId, Rank, Time};
use pmix::{
    client::{Done, infos},
    keys,
    tool::Stage,
    value::{App, Nspace, Proc, Status, Value},
};

use super::{ANSWER_MAX, Asked, Guest, Held, Order, State, Stop};
use crate::{
    kernel::ClientId, ledger::job_id, names::nspace, node::Node, scenario::Then, world::World,
};

impl Guest {
    /// Spawns a job. Its output goes nowhere: what a tool pulls is checked, and that of these jobs can be pulled too.
    pub(super) fn spawn(&mut self, now: Time, order: Order) {
        let mut directives = infos([
            (keys::FWD_STDOUT, Value::Bool(false)),
            (keys::FWD_STDERR, Value::Bool(false)),
        ]);
        let stop = match order.stop {
            Stop::Nowhere => None,
            Stop::Exec => Some(keys::STOP_ON_EXEC),
            Stop::Init => Some(keys::STOP_IN_INIT),
        };
        let stays = (order.then == Then::GoesOn).then_some(keys::NOHUP);
        for key in stop.into_iter().chain(stays) {
            directives.extend(infos([(key, Value::Bool(true))]));
        }
        let name = CString::new(order.child.to_string()).ok();
        let app = App {
            command: name.clone(),
            argv: vec![name],
            maxprocs: i32::try_from(order.ranks).unwrap_or(1),
            ..App::default()
        };
        let ticket = self.tool.spawn(directives, vec![app]);
        self.hears_own_ends |= self.follows.is_none();
        self.asked.insert(ticket, (Asked::Spawn(order.child), now));
    }

    /// Takes the answer to a request to spawn a job.
    pub(super) fn on_spawned(
        &mut self,
        world: &World,
        child: usize,
        asked: Time,
        result: &Result<Done, Status>,
    ) -> Option<String> {
        if *result == Err(Status::UNREACH) && self.state != State::There {
            return None;
        }
        if let Ok(Done::Spawned(name)) = result
            && let Some(job) = job_id(name)
        {
            self.jobs.insert(child, job);
        }
        let tool = ProcId {
            job: self.job_number(world)?,
            rank: Rank(0),
        };
        let ledger = &world.ledger;
        ledger.on_tool_spawn_answered(tool, child, asked, result)
    }

    /// Returns what it has not heard of the jobs that it has spawned.
    pub(super) fn unheard_of_jobs(
        &self,
        world: &World,
        door: NodeId,
        finished: Time,
    ) -> Option<String> {
        let ledger = &world.ledger;
        let patience = ledger.slack + ANSWER_MAX;
        for job in self.jobs.values() {
            let key = (door, *job);
            let over = ledger.over_at.get(job);
            let over = over.filter(|at| **at + patience < finished);
            if let Some(at) = ledger.over_told.get(&key).or(over)
                && !self.ended.contains(job)
            {
                return Some(format!(
                    "has not heard of the end of job {job}, which it has spawned, and which was over at {at}"
                ));
            }
            if let Some(at) = ledger.held_told.get(&key)
                && self.follows.is_some_and(|since| *at > since)
                && !self.stages.contains(&(*job, Stage::ReadyForDebug))
            {
                return Some(format!("has not heard at {at} that job {job} is held"));
            }
        }
        None
    }
}

impl Node {
    /// Lets a tool release held ranks.
    pub(super) fn let_go(&mut self, world: &mut World, id: ClientId, held: Held) {
        let Some(guest) = self.guests.get(&id) else {
            return;
        };
        let job = match held {
            Held::Child(child) => guest.jobs.get(&child).copied(),
            Held::Controlled => {
                let number = guest.job_number(world);
                number.and_then(|number| world.ledger.facts.controlled_by(number))
            }
        };
        let Some((job, name)) = job.and_then(|job| {
            let name = Nspace::from_text(&nspace(job)).ok()?;
            Some((job, name))
        }) else {
            return;
        };
        let now = world.now;
        for rank in (0..world.ledger.facts.size(job)).map(Rank) {
            let proc = ProcId { job, rank };
            world.ledger.released.entry(proc).or_insert(now);
        }
        world.ledger.on_notified_at(self.id);
        self.with_guest(world, id, |guest, now| {
            let ticket = guest.tool.release(vec![Proc::all(name)]);
            guest.asked.insert(ticket, (Asked::Release, now));
            Vec::new()
        });
    }
}
