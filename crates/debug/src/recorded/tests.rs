mod bytes;
mod healthy;
mod overview;
mod programs;
mod proofs;

use std::collections::BTreeSet;

use base::Rank;

use super::{
    Call, Communicator, Direction, FUNCTIONS, Flavor, Members, Messages, Pending, RankCalls,
    ThreadCalls, Threading,
    proof::{Calls, Proof, prove},
};

/// The id of WORLD in these tests.
const WORLD: u64 = 11;

/// Returns a rank that has initialized MPI and is in no call.
fn rank(rank: u32, size: u32) -> RankCalls {
    RankCalls {
        flavor: Flavor::Mpich,
        rank: Some(rank),
        finalized: false,
        ended: false,
        threading: Threading::Main,
        doubts: BTreeSet::new(),
        progress: 0,
        threads: vec![ThreadCalls {
            is_first: true,
            tid: 100 + rank,
            calls: Vec::new(),
        }],
        communicators: vec![communicator(1, WORLD, rank, size)],
        messages: Vec::new(),
    }
}

/// Returns a rank of two that has sent so many messages.
pub(crate) fn that_has_sent(own: u32, count: u64) -> RankCalls {
    rank(own, 2).with(Direction::Sent, 0, 0, count)
}

/// Returns a rank of two that has polled so often.
pub(crate) fn that_has_polled(own: u32, times: u32) -> RankCalls {
    let mut poll = call("MPI_Test", 0, 0, 0);
    poll.in_progress = false;
    poll.repeated = times;
    rank(own, 2).in_call(poll)
}

/// Returns a communicator of all ranks.
fn communicator(serial: u32, id: u64, rank: u32, size: u32) -> Communicator {
    Communicator {
        serial,
        id: Some(id),
        parent: None,
        origin: 0,
        rank,
        members: Members::Series {
            first: 0,
            stride: 1,
            size,
        },
        collectives: 0,
        last: Vec::new(),
        flags: 0,
        name: None,
    }
}

fn function(name: &str) -> u32 {
    let found = FUNCTIONS.iter().position(|it| it.name == name).unwrap();
    u32::try_from(found).unwrap()
}

/// Returns a call on WORLD that has not returned.
fn call(name: &str, peer: i32, tag: i32, ordinal: u64) -> Call {
    Call {
        number: 7,
        function: function(name),
        in_progress: true,
        nested: false,
        communicator: 1,
        peer,
        tag,
        source: 0,
        source_tag: 0,
        root: 0,
        count: 0,
        ordinal,
        sent: 0,
        repeated: 0,
        result: 0,
        place: Some("a.c:1".into()),
        pending: Vec::new(),
        unknown: 0,
    }
}

fn pending(name: &str, peer: i32, tag: i32, ordinal: u64) -> Pending {
    Pending {
        index: 0,
        function: function(name),
        communicator: 1,
        peer,
        tag,
        root: 0,
        ordinal,
        place: None,
    }
}

impl RankCalls {
    fn in_call(mut self, call: Call) -> Self {
        self.threads[0].calls.push(call);
        self
    }

    /// Sets a number of messages on WORLD.
    fn with(mut self, direction: Direction, peer: i32, tag: i32, count: u64) -> Self {
        self.messages.push(Messages {
            communicator: 1,
            direction,
            peer,
            tag,
            count,
        });
        self
    }

    /// Begins a collective operation on WORLD, and is in it.
    fn in_collective(mut self, name: &str, root: i32) -> Self {
        let on = &mut self.communicators[0];
        on.collectives += 1;
        on.last.push(Some((function(name), root)));
        let mut call = call(name, 0, 0, on.collectives);
        call.root = root;
        self.in_call(call)
    }
}

fn job(ranks: impl IntoIterator<Item = RankCalls>) -> Calls {
    (0..).map(Rank).zip(ranks).collect()
}

/// Returns what two equal samples prove, of ranks whose other threads do not call MPI.
fn proved(calls: &Calls) -> Option<Proof<'_>> {
    prove(calls, calls, |_| true)
}

/// Returns the ranks that are proved to be stuck.
fn stuck(calls: &Calls) -> Vec<u32> {
    proved(calls).map_or(Vec::new(), |proof| proof.stuck.keys().copied().collect())
}
