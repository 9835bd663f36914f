//! The lanes of a link: whatever a peer sends, what it may make us keep has a bound; and frames arrive once and in order,
//! whichever records and reports are lost with their connections.
#![no_main]

use arbitrary::Arbitrary;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use overlay::lanes::{Credit, Lane, Lanes};

#[derive(Arbitrary, Debug)]
enum Step {
    Push { end: bool, bulk: bool, length: u16 },
    Carry { from: bool },
    Lose { from: bool },
    Take { end: bool },
}

#[derive(Arbitrary, Debug)]
enum Lie {
    Record {
        bulk: bool,
        bytes: Vec<u8>,
    },
    Credit {
        bulk: bool,
        received: u64,
        limit: u64,
    },
    Resume([u64; 2]),
    Push {
        length: u16,
    },
}

const STEPS_MAX: usize = 200;

fn lane(bulk: bool) -> Lane {
    if bulk { Lane::Bulk } else { Lane::Control }
}

/// What a peer does that keeps to no rule.
fn lie(lies: &[Lie]) {
    let mut lanes = Lanes::default();
    for lie in lies.iter().take(STEPS_MAX) {
        let result = match lie {
            Lie::Record { bulk, bytes } => lanes.on_record(lane(*bulk), bytes),
            Lie::Credit {
                bulk,
                received,
                limit,
            } => lanes.on_credit(Credit {
                lane: lane(*bulk),
                received: *received,
                limit: *limit,
            }),
            Lie::Resume(received) => lanes.resume(*received),
            Lie::Push { length } => {
                let body = Bytes::from(vec![0; usize::from(*length)]);
                lanes.push(Lane::Bulk, &[1], body)
            }
        };
        if result.is_err() {
            return;
        }
        for lane in Lane::ALL {
            while let Ok(Some(_)) = lanes.frame(lane) {}
        }
        while lanes.record(&mut Vec::new()).is_some() || lanes.credit().is_some() {}
    }
}

fn carry(ends: &mut [Lanes; 2], from: usize) -> bool {
    if let Some(credit) = ends[from].credit() {
        ends[1 - from].on_credit(credit).expect("it is honest");
        return true;
    }
    let mut bytes = Vec::new();
    let Some(lane) = ends[from].record(&mut bytes) else {
        return false;
    };
    ends[1 - from]
        .on_record(lane, &bytes)
        .expect("it keeps to its limit");
    true
}

fn take(ends: &mut [Lanes; 2], at: usize, arrived: &mut [Vec<(Lane, Bytes)>; 2]) {
    for lane in Lane::ALL {
        while let Some(frame) = ends[at].frame(lane).expect("it is honest") {
            arrived[1 - at].push((lane, frame));
        }
    }
}

fn resume(ends: &mut [Lanes; 2]) {
    let received = [ends[0].received(), ends[1].received()];
    ends[0].resume(received[1]).expect("it is honest");
    ends[1].resume(received[0]).expect("it is honest");
}

fuzz_target!(|input: (Vec<Lie>, Vec<Step>)| {
    let (lies, steps) = input;
    lie(&lies);
    let mut ends = [Lanes::default(), Lanes::default()];
    let mut sent: [Vec<(Lane, Bytes)>; 2] = Default::default();
    let mut arrived: [Vec<(Lane, Bytes)>; 2] = Default::default();
    for (number, step) in steps.iter().take(STEPS_MAX).enumerate() {
        match step {
            Step::Push { end, bulk, length } => {
                let mut body = number.to_le_bytes().to_vec();
                body.resize(8 + usize::from(*length), 3);
                let body = Bytes::from(body);
                ends[usize::from(*end)]
                    .push(lane(*bulk), &[], body.clone())
                    .expect("it is short");
                sent[usize::from(*end)].push((lane(*bulk), body));
            }
            Step::Carry { from } => drop(carry(&mut ends, usize::from(*from))),
            Step::Lose { from } => {
                let end = &mut ends[usize::from(*from)];
                let _ = (end.credit(), end.record(&mut Vec::new()));
                resume(&mut ends);
            }
            Step::Take { end } => take(&mut ends, usize::from(*end), &mut arrived),
        }
    }
    let mut is_moving = true;
    while is_moving {
        take(&mut ends, 0, &mut arrived);
        take(&mut ends, 1, &mut arrived);
        is_moving = carry(&mut ends, 0) || carry(&mut ends, 1);
    }
    for (sent, arrived) in sent.iter().zip(&arrived) {
        for lane in Lane::ALL {
            let of = |all: &[(Lane, Bytes)]| {
                let of = all.iter().filter(|one| one.0 == lane);
                of.map(|one| one.1.clone()).collect::<Vec<_>>()
            };
            assert_eq!(of(sent), of(arrived));
        }
    }
});
