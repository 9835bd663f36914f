//! Runs small random programs step by step. Their messages have one receiver each, so whatever the order of the steps, the same ranks
//! end and the same ranks are stuck. No state of a run may prove anything else.

use proptest::prelude::*;

use super::*;

/// Ranks of a program.
const RANKS: usize = 3;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Sends to a rank with a tag, and waits until it receives.
    Send(usize, i32),
    Receive(usize, i32),
    /// Enters a collective operation of one of two communicators.
    Collective(usize),
    /// Sends to a rank and receives from another one at the same time, with a tag.
    Exchange(usize, usize, i32),
}

/// What the library does with a message that is sent in an exchange.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sent {
    /// It copies it, so the send is done at once.
    Copied,
    /// The send is done when the message is received.
    Received,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..RANKS, 0..2_i32).prop_map(|(to, tag)| Step::Send(to, tag)),
        (0..RANKS, 0..2_i32).prop_map(|(from, tag)| Step::Receive(from, tag)),
        (0..2_usize).prop_map(Step::Collective),
    ]
}

fn step_or_exchange() -> impl Strategy<Value = Step> {
    let exchange = (0..RANKS, 0..RANKS, 0..2_i32);
    prop_oneof![
        step(),
        exchange.prop_map(|(to, from, tag)| Step::Exchange(to, from, tag)),
    ]
}

/// A run: what each rank has done, and whether it is inside its next step.
struct Run<'a> {
    programs: &'a [Vec<Step>],
    done: [usize; RANKS],
    inside: [bool; RANKS],
    /// Begun sends and receives by (from, to, tag), and collective operations by (rank, communicator).
    sent: std::collections::BTreeMap<(usize, usize, i32), u64>,
    received: std::collections::BTreeMap<(usize, usize, i32), u64>,
    entered: [[u64; 2]; RANKS],
    /// Numbers of the operation that each rank is inside of; of exchanges, that of the receive.
    ordinals: [u64; RANKS],
    /// Numbers of the sends of exchanges.
    sends: [u64; RANKS],
    library: Sent,
}

impl<'a> Run<'a> {
    fn new(programs: &'a [Vec<Step>], library: Sent) -> Self {
        Self {
            programs,
            done: [0; RANKS],
            inside: [false; RANKS],
            sent: std::collections::BTreeMap::new(),
            received: std::collections::BTreeMap::new(),
            entered: [[0; 2]; RANKS],
            ordinals: [0; RANKS],
            sends: [0; RANKS],
            library,
        }
    }

    fn next(&self, rank: usize) -> Option<Step> {
        self.programs[rank].get(self.done[rank]).copied()
    }

    /// Lets a rank begin or end its next step. Returns false if it cannot.
    fn advance(&mut self, rank: usize) -> bool {
        let Some(step) = self.next(rank) else {
            return false;
        };
        if !self.inside[rank] {
            self.inside[rank] = true;
            if let Step::Exchange(to, _, tag) = step {
                let count = self.sent.entry((rank, to, tag)).or_default();
                *count += 1;
                self.sends[rank] = *count;
            }
            let count = match step {
                Step::Send(to, tag) => self.sent.entry((rank, to, tag)).or_default(),
                Step::Receive(from, tag) | Step::Exchange(_, from, tag) => {
                    self.received.entry((from, rank, tag)).or_default()
                }
                Step::Collective(on) => &mut self.entered[rank][on],
            };
            *count += 1;
            self.ordinals[rank] = *count;
            return true;
        }
        let ordinal = self.ordinals[rank];
        let is_received = |to, tag, ordinal| self.received.get(&(rank, to, tag)) >= Some(&ordinal);
        let is_sent = |from, tag| self.sent.get(&(from, rank, tag)) >= Some(&ordinal);
        let can = match step {
            Step::Send(to, tag) => is_received(to, tag, ordinal),
            Step::Receive(from, tag) => is_sent(from, tag),
            Step::Exchange(to, from, tag) => {
                let is_done =
                    self.library == Sent::Copied || is_received(to, tag, self.sends[rank]);
                is_done && is_sent(from, tag)
            }
            Step::Collective(on) => self.entered.iter().all(|entered| entered[on] >= ordinal),
        };
        if can {
            self.inside[rank] = false;
            self.done[rank] += 1;
        }
        can
    }

    /// Returns the ranks that have not ended when nobody can advance.
    fn never_ending(mut self) -> Vec<u32> {
        while (0..RANKS).any(|rank| self.advance(rank)) {}
        let stuck = (0..RANKS).filter(|rank| self.next(*rank).is_some());
        stuck.map(|rank| u32::try_from(rank).unwrap()).collect()
    }

    /// Returns what the regions say now.
    fn calls(&self) -> Calls {
        let size = u32::try_from(RANKS).unwrap();
        let number = |rank: usize| i32::try_from(rank).unwrap();
        job((0..RANKS).map(|own| {
            let own_number = u32::try_from(own).unwrap();
            let mut calls = rank(own_number, size);
            calls
                .communicators
                .push(communicator(2, WORLD + 1, own_number, size));
            for (on, entered) in self.entered[own].iter().enumerate() {
                calls.communicators[on].collectives = *entered;
                let barriers = (0..*entered).map(|_| Some((function("MPI_Barrier"), 0)));
                calls.communicators[on].last = barriers.collect();
            }
            for (&(from, to, tag), count) in &self.sent {
                if from == own {
                    calls = calls.with(Direction::Sent, number(to), tag, *count);
                }
            }
            for (&(from, to, tag), count) in &self.received {
                if to == own {
                    calls = calls.with(Direction::Received, number(from), tag, *count);
                }
            }
            let ordinal = self.ordinals[own];
            let inside = self.next(own).filter(|_| self.inside[own]);
            let current = inside.map(|step| match step {
                Step::Send(to, tag) => call("MPI_Ssend", number(to), tag, ordinal),
                Step::Receive(from, tag) => call("MPI_Recv", number(from), tag, ordinal),
                Step::Exchange(to, from, tag) if own % 2 == 0 => {
                    let mut call = call("MPI_Waitall", 0, 0, 0);
                    call.pending = vec![
                        pending("MPI_Isend", number(to), tag, self.sends[own]),
                        pending("MPI_Irecv", number(from), tag, ordinal),
                    ];
                    call
                }
                Step::Exchange(to, from, tag) => {
                    let mut call = call("MPI_Sendrecv", number(to), tag, ordinal);
                    (call.source, call.source_tag) = (number(from), tag);
                    call.sent = self.sends[own];
                    call
                }
                Step::Collective(on) => {
                    let mut call = call("MPI_Barrier", 0, 0, ordinal);
                    call.communicator = u32::try_from(on).unwrap() + 1;
                    call
                }
            });
            match current {
                Some(current) => calls.in_call(current),
                None => calls,
            }
        }))
    }
}

proptest! {
    #[test]
    fn what_is_proved_never_ends(
        programs in prop::collection::vec(prop::collection::vec(step(), 0..5), RANKS),
        order in prop::collection::vec(0..RANKS, 0..60),
    ) {
        let never = Run::new(&programs, Sent::Received).never_ending();
        let mut run = Run::new(&programs, Sent::Received);
        for rank in order {
            run.advance(rank);
            for stuck in stuck(&run.calls()) {
                prop_assert!(never.contains(&stuck), "{stuck} {never:?}");
            }
        }
        while (0..RANKS).any(|rank| run.advance(rank)) {}
        // Ranks that have ended are not finalized here: they might still send, so those who wait for them are not proved.
        let ended = (0..3_u32).any(|rank| !never.contains(&rank));
        if !ended {
            prop_assert_eq!(stuck(&run.calls()), never);
        }
    }

    /// Whatever the library does with messages.
    #[test]
    fn nothing_else_is_proved_of_exchanges(
        programs in prop::collection::vec(prop::collection::vec(step_or_exchange(), 0..5), RANKS),
        order in prop::collection::vec(0..RANKS, 0..60),
        library in prop_oneof![Just(Sent::Copied), Just(Sent::Received)],
    ) {
        let never = Run::new(&programs, library).never_ending();
        let mut run = Run::new(&programs, library);
        for rank in order {
            run.advance(rank);
            for stuck in stuck(&run.calls()) {
                prop_assert!(never.contains(&stuck), "{stuck} {never:?}");
            }
        }
    }
}
