//! Tests of PMI fences over three nodes.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;

use crate::{
    controller::{
        ControllerOutput,
        tests::{JOB, NODES, World, to_daemons},
    },
    proto::{Broken, FenceId, FenceNews, ToController, ToDaemon},
};

fn words(outputs: Vec<ControllerOutput>) -> String {
    to_daemons(outputs, |message| match message {
        ToDaemon::Fenced { number, shares, .. } => Some(match shares {
            Ok(shares) => {
                let shares = shares.iter();
                let texts = shares.map(|(_, share)| String::from_utf8_lossy(share));
                format!("number {number}: {}", texts.collect::<Vec<_>>().join(" "))
            }
            Err(Broken) => format!("number {number}: broken"),
        }),
        ToDaemon::FenceAwaited { gather, .. } => Some(format!("awaited for {gather}")),
        _ => None,
    })
}

/// Sends the share of a node whose ranks have all entered a fence of the whole job.
fn share(world: &mut World, node: u32, number: u32) -> String {
    let news = FenceNews::Share {
        number,
        nodes: None,
        share: Bytes::from(format!("{node}.{number}")),
    };
    says(world, node, news)
}

fn says(world: &mut World, node: u32, news: FenceNews) -> String {
    let id = FenceId {
        job: JOB,
        group: None,
    };
    words(world.says(node, ToController::Fence { id, news }))
}

#[test]
fn ranks_that_come_no_more() {
    let mut world = World::new();
    share(&mut world, 0, 0);
    let left = ToController::FencesAbandoned { job: JOB };
    insta::assert_snapshot!(words(world.says(1, left)), @"1: awaited for 0");
    insta::assert_snapshot!(says(&mut world, 1, FenceNews::Declined { gather: 0 }), @"0: number 0: broken");
    // The next fence goes the same way.
    insta::assert_snapshot!(share(&mut world, 2, 0), @"1: awaited for 1");
}

#[test]
fn a_share_is_taken_back() {
    let mut world = World::new();
    share(&mut world, 0, 0);
    share(&mut world, 2, 0);
    insta::assert_snapshot!(says(&mut world, 0, FenceNews::Withdrawn { number: 0 }), @"2: number 0: broken");
}

proptest! {
    /// In any order of arrivals, and whichever node is lost in the end, every share is answered exactly once. The
    /// answers keep the order of the shares, and have the shares with the same number.
    #[test]
    fn every_share_is_answered_once(
        order in prop::collection::vec(0..NODES, 0..60),
        lost in 0..NODES,
    ) {
        let mut world = World::new();
        let mut sent: BTreeMap<u32, u32> = BTreeMap::new();
        let mut answered: BTreeMap<u32, u32> = BTreeMap::new();
        for node in order {
            let number = sent.entry(node).or_default();
            let told = share(&mut world, node, *number);
            *number += 1;
            for line in told.lines() {
                let (head, shares) = line.rsplit_once(": ").unwrap();
                let (to, number) = head.split_once(": number ").unwrap();
                let next = answered.entry(to.parse().unwrap()).or_default();
                prop_assert_eq!(number, next.to_string());
                let expected: Vec<String> =
                    (0..NODES).map(|node| format!("{node}.{number}")).collect();
                prop_assert_eq!(shares, expected.join(" "));
                *next += 1;
            }
        }
        for line in words(world.lose(lost)).lines() {
            let (head, shares) = line.rsplit_once(": ").unwrap();
            let (to, _) = head.split_once(": number ").unwrap();
            prop_assert_eq!(shares, "broken");
            *answered.entry(to.parse().unwrap()).or_default() += 1;
        }
        sent.remove(&lost);
        for (node, count) in sent {
            prop_assert_eq!(answered.get(&node).copied().unwrap_or_default(), count);
        }
    }
}
