//! Jobs that tools at the door spawn, some of which are held until their tool releases them, or is gone.

use std::time::Duration;

use ::dvm::proto::{EndReason, Stream};
use base::Rank;

use super::{
    Act, Child, Scenario,
    doors::{ControlPlan, DoorPlan, Errand, GuestPlan, Held, Order, PATIENCE, Stop, Then},
};
use crate::{
    rng::Rng,
    script::{FOR_EVER, Op, PmixOp, line},
};

/// Maximum number of jobs that the tools of a run spawn.
const ORDERS_MAX: u64 = 4;
/// Maximum number of ranks of such a job.
const RANKS_MAX: u32 = 4;

/// Lets tools of a door spawn jobs.
pub(super) fn add(rng: &mut Rng, scenario: &mut Scenario) {
    let Some(DoorPlan { guests, control }) = &mut scenario.door else {
        return;
    };
    if let ControlPlan::Started(starter) = control
        && rng.chance(40)
    {
        starter.stop = Stop::Exec;
        if rng.chance(60) {
            let release = |(_, errand): &(_, Errand)| *errand == Errand::Release;
            let after = starter.errands.iter().position(release);
            let at = after.map_or(starter.errands.len(), |at| at + 1);
            let errand = Errand::LetGo(Held::Controlled);
            starter.errands.insert(at, (pause(rng), errand));
        }
    }
    if guests.is_empty() || rng.chance(30) {
        return;
    }
    for _ in 0..rng.between(1, ORDERS_MAX) {
        let order = Order {
            child: scenario.children.len(),
            ranks: rng.number(1, RANKS_MAX),
            stop: match rng.below(10) {
                0..3 => Stop::Nowhere,
                3..8 => Stop::Exec,
                _ => Stop::Init,
            },
            then: match rng.below(10) {
                0..6 => Then::Ends,
                _ => Then::GoesOn,
            },
        };
        let ranks = (0..order.ranks).map(|rank| (Rank(rank), script(rng, order.stop)));
        scenario.children.push(Child {
            scripts: ranks.collect(),
            ..Child::default()
        });
        let index = rng.length(0, guests.len() - 1);
        if let Some(guest) = guests.get_mut(index) {
            place(rng, guest, order);
        }
    }
    if let Some(front) = scenario.fronts.first_mut() {
        // Nobody may release what is held.
        front.acts.push((PATIENCE, Act::End(EndReason::TimeLimit)));
    }
}

/// Adds an order to what a tool does, before it leaves. Half of the tools are killed some time later.
fn place(rng: &mut Rng, guest: &mut GuestPlan, order: Order) {
    let leaves = |(_, errand): &(_, Errand)| {
        matches!(errand, Errand::Finalize | Errand::Die | Errand::Babble)
    };
    let last = guest.errands.iter().position(leaves);
    let end = last.unwrap_or(guest.errands.len());
    let at = rng.length(0, end);
    guest.errands.insert(at, (pause(rng), Errand::Spawn(order)));
    if order.stop != Stop::Nowhere && rng.chance(50) {
        let errand = Errand::LetGo(Held::Child(order.child));
        guest.errands.insert(at + 1, (rng.millis(0, 400), errand));
    }
    if last.is_none() && rng.chance(50) {
        let errand = rng.pick([Errand::Die, Errand::Die, Errand::Finalize, Errand::Babble]);
        guest.errands.push((rng.millis(0, 1_500), errand));
    }
}

fn pause(rng: &mut Rng) -> Duration {
    match rng.below(3) {
        0 => Duration::ZERO,
        1 => rng.micros(0, 3_000),
        _ => rng.millis(0, 800),
    }
}

/// Returns the program of a rank. One that is held ends soon after its release, so that it is seen that it was held.
fn script(rng: &mut Rng, stop: Stop) -> Vec<Op> {
    let mut ops = Vec::new();
    if stop == Stop::Init {
        ops.push(Op::Pmix(PmixOp::Init));
    }
    if rng.chance(40) {
        let length = rng.length(1, 200);
        ops.push(Op::Write(Stream::Stdout, line(rng, length)));
    }
    ops.push(Op::Sleep(rng.millis(0, 400)));
    match stop {
        Stop::Init => ops.push(Op::Pmix(PmixOp::Finalize)),
        Stop::Nowhere if rng.chance(30) => ops.push(Op::Sleep(FOR_EVER)),
        Stop::Nowhere | Stop::Exec => {}
    }
    ops.push(Op::Exit(if rng.chance(10) { 3 } else { 0 }));
    ops
}
