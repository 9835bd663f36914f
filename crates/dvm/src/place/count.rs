//! Number of procs of an app on each node.

use super::resolve::Spread;

/// Capacity of a node for procs of one app.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Free slots.
    pub(super) slots: u32,
    /// Maximum number of further procs. Equal to `slots` if oversubscription is not allowed.
    pub(super) most: u32,
    /// Number of objects for a spread over objects or for `ppr`.
    pub(super) objects: u32,
}

/// Number of procs that found no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leftover(pub(super) u32);

/// Distributes `count` procs over the nodes. Returns the procs of each node, and the number that no node accepts.
pub(super) fn deal(rooms: &[Room], spread: Spread, count: u32) -> (Vec<u32>, Leftover) {
    let mut counts = vec![0_u32; rooms.len()];
    let slots = rooms.iter().map(|room| room.slots);
    let mut left = match spread {
        Spread::Fill => {
            let mut left = count;
            for (given, slots) in counts.iter_mut().zip(slots) {
                *given = slots.min(left);
                left -= *given;
            }
            left
        }
        Spread::PerNode(each) => exact(&mut counts, rooms, count, each, |_| 1),
        Spread::PerObject(each, _) => exact(&mut counts, rooms, count, each, |room| room.objects),
        Spread::Nodes => in_turn(&mut counts, rooms, count, |room| (1, room.slots)),
        Spread::Objects(_) => in_turn(&mut counts, rooms, count, |room| {
            (room.objects.max(1), room.slots)
        }),
    };
    if left > 0 && !matches!(spread, Spread::PerNode(_) | Spread::PerObject(..)) {
        left = over(&mut counts, rooms, left);
    }
    (counts, Leftover(left))
}

/// Visits the nodes in rounds. In each round, a node gets up to `step` procs until it is full.
fn in_turn(
    counts: &mut [u32],
    rooms: &[Room],
    count: u32,
    step: impl Fn(&Room) -> (u32, u32),
) -> u32 {
    let mut left = count;
    let mut open = (0..rooms.len()).collect::<Vec<_>>();
    while left > 0 && !open.is_empty() {
        open.retain(|index| {
            let (Some(room), Some(given)) = (rooms.get(*index), counts.get_mut(*index)) else {
                return false;
            };
            let (step, most) = step(room);
            let add = step.min(most.saturating_sub(*given)).min(left);
            *given += add;
            left -= add;
            *given < most
        });
    }
    left
}

/// Puts `each` procs on every object. A node without enough slots for all its objects uses fewer of them.
fn exact(
    counts: &mut [u32],
    rooms: &[Room],
    count: u32,
    each: u32,
    objects: impl Fn(&Room) -> u32,
) -> u32 {
    let mut left = count;
    for (given, room) in counts.iter_mut().zip(rooms) {
        let objects = objects(room).min(room.most.checked_div(each).unwrap_or(0));
        *given = each.saturating_mul(objects).min(left);
        left -= *given;
    }
    left
}

/// Distributes procs beyond the slots evenly over the nodes that accept more, the earlier ones first.
fn over(counts: &mut [u32], rooms: &[Room], left: u32) -> u32 {
    let mut left = left;
    let mut open = (0..rooms.len()).collect::<Vec<_>>();
    loop {
        let more = |index: &usize, counts: &[u32]| match (rooms.get(*index), counts.get(*index)) {
            (Some(room), Some(given)) => room.most.saturating_sub(*given),
            _ => 0,
        };
        open.retain(|index| more(index, counts) > 0);
        let nodes = u32::try_from(open.len()).unwrap_or(u32::MAX);
        if left == 0 || nodes == 0 {
            return left;
        }
        // Give every open node the largest share that all of them accept.
        let least = open
            .iter()
            .map(|index| more(index, counts))
            .min()
            .unwrap_or(0);
        let share = (left / nodes).min(least);
        let mut extra = if share == 0 { left.min(nodes) } else { 0 };
        for index in &open {
            let Some(given) = counts.get_mut(*index) else {
                continue;
            };
            let one = u32::from(extra > 0);
            extra -= one;
            *given += share + one;
            left -= share + one;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(slots: u32, most: u32) -> Room {
        Room {
            slots,
            most,
            objects: 2,
        }
    }

    #[test]
    fn deals() {
        let uneven = [room(5, 5), room(2, 2), room(3, 3)];
        let soft = [room(2, 100), room(2, 3), room(2, 100)];
        let cases = [
            (uneven, Spread::Fill, 6, [5, 1, 0], 0),
            (uneven, Spread::Fill, 11, [5, 2, 3], 1),
            (uneven, Spread::Nodes, 9, [4, 2, 3], 0),
            (
                uneven,
                Spread::Objects(base::Level::Package),
                9,
                [4, 2, 3],
                0,
            ),
            (uneven, Spread::PerNode(2), 6, [2, 2, 2], 0),
            (uneven, Spread::PerNode(3), 9, [3, 0, 3], 3),
            (soft, Spread::Fill, 8, [3, 3, 2], 0),
            (soft, Spread::Fill, 107, [52, 3, 52], 0),
            (
                soft,
                Spread::PerObject(4, base::Level::Package),
                24,
                [8, 0, 8],
                8,
            ),
        ];
        for (rooms, spread, count, counts, left) in cases {
            assert_eq!(
                deal(&rooms, spread, count),
                (counts.to_vec(), Leftover(left)),
                "{spread:?} {count}"
            );
        }
    }
}
