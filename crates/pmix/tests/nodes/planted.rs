//! A test finds each planted bug in the messages between nodes.

use std::panic;

use pmix::planted::{self, Bug};

use crate::{events, fences, gets, groups};

#[test]
fn every_planted_bug_is_found() {
    let found_by: [(Bug, fn()); 7] = [
        (Bug::FenceStaysHere, fences::all_come),
        (Bug::ShareForgotten, groups::a_number_for_all),
        (Bug::LocalDataLeavesTheNode, fences::scopes),
        (Bug::ContextOfEachNode, groups::a_number_for_all),
        (
            Bug::GoneNotTold,
            fences::a_member_that_has_not_called_is_lost,
        ),
        (Bug::EventEchoes, events::no_echo),
        (Bug::DeathNotTold, gets::the_target_dies),
    ];
    for (bug, test) in found_by {
        test();
        let outcome = panic::catch_unwind(|| planted::with(bug, test));
        assert!(outcome.is_err(), "{bug:?} is not found");
    }
}
