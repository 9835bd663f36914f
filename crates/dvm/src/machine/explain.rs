//! Explanations of the queue, with names and times of day.

use base::{HostList, JobId, NodeId, Time};

use super::{
    Machine, TooMuch, Wall, Work,
    talk::{Explained, NodeStanding, Reason, Sooner, Start},
};
use crate::queue::{Estimate, Hint, Why};

impl Machine {
    pub(super) fn explained(&mut self, now: Time, id: JobId) -> Option<Explained> {
        let found = self.queue.explain(now, id)?;
        let lacks = match found.why {
            Why::TooLarge { .. } | Why::NodesClosed { .. } | Why::NoRoom | Why::Head { .. } => {
                self.lacks(id)
            }
            _ => None,
        };
        let wall = |at: Time| Wall(self.epoch.0.saturating_add(at.as_nanos() / 1_000_000));
        let names = |ids: Vec<NodeId>| -> HostList {
            let names = ids.iter().filter_map(|id| self.nodes.get(id));
            names.map(|node| node.name.as_str()).collect()
        };
        let why = match found.why {
            Why::NothingWaits => Reason::NothingWaits,
            Why::Held(hold) => Reason::Held(hold),
            Why::Blocked(after) => Reason::Blocked(after),
            Why::Limit(hit) => Reason::Limit(hit),
            Why::BehindLimit(id) => Reason::BehindLimit(id),
            Why::NodesClosed { room, closed } => {
                let is_lost = |id: &NodeId| {
                    let node = self.nodes.get(id);
                    node.is_some_and(|node| matches!(node.standing, NodeStanding::Bad(_)))
                };
                let lost = closed.iter().copied().filter(is_lost).collect();
                Reason::NodesClosed {
                    room,
                    closed: names(closed),
                    lost: names(lost),
                }
            }
            Why::TooLarge { room } => Reason::TooLarge { room },
            Why::Head { waits_for } => Reason::Head { waits_for },
            Why::NoRoom => Reason::NoRoom,
            Why::WouldDelay { head, at } => Reason::WouldDelay {
                head,
                at: at.map(wall),
            },
        };
        let why = lacks.map_or(why, Reason::TooMuch);
        let start = match found.start {
            Estimate::At(at) => Start::At(wall(at)),
            Estimate::AfterUnlimited(task) => Start::AfterUnlimited(task),
            Estimate::Unknown => Start::Unknown,
        };
        let sooner = found.sooner.into_iter().map(|hint| match hint {
            Hint::Release => Sooner::Release,
            Hint::TimeLimit(limit) => Sooner::TimeLimit(limit),
            Hint::Units(units) => Sooner::Units(units),
            Hint::Shared => Sooner::Shared,
        });
        Some(Explained {
            record: self.jobs.get(&id)?.record.clone(),
            why,
            ahead: found.ahead,
            ahead_count: found.ahead_count,
            start,
            sooner: sooner.collect(),
        })
    }

    /// Returns what of its resources a job waits for that is nowhere.
    fn lacks(&mut self, id: JobId) -> Option<TooMuch> {
        let entry = self.jobs.get(&id)?;
        let Work::Programs(spec) = &entry.work else {
            return None;
        };
        let (spec, sharing) = (spec.open(), entry.record.wishes.sharing);
        let demand = self.demand(&spec, sharing, None);
        self.check_room(&demand).err()
    }
}
