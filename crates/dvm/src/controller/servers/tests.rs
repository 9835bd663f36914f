//! Tests of messages between PMIx servers by way of the controller.

use base::NodeId;
use bytes::Bytes;
use pmix::value::Status;

use crate::{
    controller::{
        ControllerOutput,
        tests::{World, to_daemons},
    },
    proto::{FromServer, ToController, ToDaemon, ToServer},
};

fn says(world: &mut World, node: u32, message: FromServer) -> String {
    words(world.says(node, ToController::Server(Box::new(message))))
}

fn words(outputs: Vec<ControllerOutput>) -> String {
    to_daemons(outputs, |message| match message {
        ToDaemon::Server(message) => Some(match *message {
            ToServer::Gathered { ticket, result } => match result {
                Ok(shares) => {
                    let texts = shares
                        .iter()
                        .map(|(node, share)| format!("{node} {}", String::from_utf8_lossy(share)));
                    let texts: Vec<String> = texts.collect();
                    format!("gathered for {ticket}: {}", texts.join(", "))
                }
                Err(status) => format!("gathered for {ticket}: error {status}"),
            },
            ToServer::Awaited { number, .. } => format!("awaited for {number}"),
            ToServer::Asked { node, ticket, .. } => format!("{node} asks {ticket}"),
            ToServer::NoLongerAsked { node, ticket } => format!("{node} asks {ticket} no longer"),
            ToServer::Told { ticket, result } => format!("{ticket} is {result:?}"),
            ToServer::Event { .. } => "event".to_owned(),
            other @ (ToServer::Over { .. }
            | ToServer::Watch
            | ToServer::Output { .. }
            | ToServer::SetDefined { .. }
            | ToServer::ToolAdmitted { .. }) => {
                format!("{other:?}")
            }
        }),
        _ => None,
    })
}

/// Sends the share of a node whose members have all called a collective of all nodes.
fn share(world: &mut World, node: u32, ticket: u64) -> String {
    let message = FromServer::Gather {
        ticket,
        id: id(),
        nodes: (0..3).map(NodeId).collect(),
        share: Bytes::from(format!("share {ticket}")),
    };
    says(world, node, message)
}

/// Returns an id that does not decode as a collective, so that it fails if a member is lost after it has called.
const fn id() -> Bytes {
    Bytes::from_static(b"name")
}

fn ask(ticket: u64, node: u32) -> FromServer {
    FromServer::Ask {
        ticket,
        node: NodeId(node),
        question: Bytes::from_static(b"?"),
    }
}

/// Returns an answer for node 0.
fn told(ticket: u64) -> FromServer {
    FromServer::Told {
        node: NodeId(0),
        ticket,
        result: Ok(Bytes::from_static(b"!")),
    }
}

#[test]
fn everybody_gets_the_shares_of_all() {
    let mut world = World::new();
    assert_eq!(share(&mut world, 2, 7), "");
    assert_eq!(share(&mut world, 0, 5), "");
    // This share is sent before the collective is complete, so it belongs to the next one.
    assert_eq!(share(&mut world, 0, 6), "");
    insta::assert_snapshot!(share(&mut world, 1, 0), @"
    0: gathered for 5: 0 share 5, 1 share 0, 2 share 7
    1: gathered for 0: 0 share 5, 1 share 0, 2 share 7
    2: gathered for 7: 0 share 5, 1 share 0, 2 share 7
    ");
    assert_eq!(share(&mut world, 1, 1), "");
    insta::assert_snapshot!(share(&mut world, 2, 8), @"
    0: gathered for 6: 0 share 6, 1 share 1, 2 share 8
    1: gathered for 1: 0 share 6, 1 share 1, 2 share 8
    2: gathered for 8: 0 share 6, 1 share 1, 2 share 8
    ");
}

#[test]
fn a_share_is_taken_back() {
    let mut world = World::new();
    share(&mut world, 0, 1);
    share(&mut world, 1, 2);
    let withdrawn = FromServer::Withdrawn {
        ticket: 1,
        id: id(),
        status: Status::TIMEOUT.0,
    };
    insta::assert_snapshot!(says(&mut world, 0, withdrawn), @"1: gathered for 2: error -24");
}

#[test]
fn a_lost_node_breaks_what_waits_for_it_and_what_begins_later() {
    let mut world = World::new();
    share(&mut world, 0, 1);
    insta::assert_snapshot!(words(world.lose(1)), @"
    0: Watch
    2: Watch
    0: gathered for 1: error -61
    ");
    insta::assert_snapshot!(share(&mut world, 2, 2), @"2: gathered for 2: error -61");
}

#[test]
fn where_members_have_gone_they_are_asked_about_what_waits_for_them() {
    let mut world = World::new();
    share(&mut world, 0, 1);
    insta::assert_snapshot!(says(&mut world, 1, FromServer::MembersGone), @"
    0: Watch
    2: Watch
    1: awaited for 0
    ");
    let declined = |number| FromServer::Declined {
        id: id(),
        number,
        result: Err(Status::LOST_CONNECTION.0),
    };
    insta::assert_snapshot!(says(&mut world, 1, declined(0)), @"0: gathered for 1: error -61");
    // The next collective is asked about as soon as it begins.
    insta::assert_snapshot!(share(&mut world, 2, 2), @"1: awaited for 1");
    insta::assert_snapshot!(says(&mut world, 1, declined(1)), @"2: gathered for 2: error -61");
}

#[test]
fn each_node_is_told_once_to_watch() {
    let mut world = World::new();
    insta::assert_snapshot!(says(&mut world, 1, FromServer::MembersGone), @"
    0: Watch
    2: Watch
    ");
    assert_eq!(says(&mut world, 1, FromServer::MembersGone), "");
    insta::assert_snapshot!(says(&mut world, 2, FromServer::MembersGone), @"1: Watch");
    assert_eq!(says(&mut world, 0, FromServer::MembersGone), "");
    assert_eq!(words(world.lose(2)), "");
}

#[test]
fn questions_are_carried_to_the_node_and_back() {
    let mut world = World::new();
    insta::assert_snapshot!(says(&mut world, 0, ask(1, 2)), @"2: 0 asks 1");
    insta::assert_snapshot!(says(&mut world, 0, ask(2, 1)), @"1: 0 asks 2");
    // Node 1 was not asked.
    assert_eq!(says(&mut world, 1, told(1)), "");
    insta::assert_snapshot!(says(&mut world, 2, told(1)), @r#"0: 1 is Ok(b"!")"#);
    assert_eq!(says(&mut world, 2, told(1)), "");
    insta::assert_snapshot!(words(world.lose(1)), @"
    0: Watch
    2: Watch
    0: 2 is Err(-61)
    ");
    insta::assert_snapshot!(says(&mut world, 2, ask(7, 1)), @"2: 7 is Err(-61)");
}

#[test]
fn a_question_that_nobody_asks_any_more() {
    let mut world = World::new();
    says(&mut world, 0, ask(1, 2));
    let over = |node| FromServer::NoLongerAsks {
        ticket: 1,
        node: NodeId(node),
    };
    // These do not match the open question.
    assert_eq!(says(&mut world, 0, over(1)), "");
    assert_eq!(says(&mut world, 1, over(2)), "");
    insta::assert_snapshot!(says(&mut world, 0, over(2)), @"2: 0 asks 1 no longer");
    assert_eq!(says(&mut world, 0, over(2)), "");
    // A late answer, which was already in flight, is dropped.
    assert_eq!(says(&mut world, 2, told(1)), "");
    // A lost node's questions are cancelled, too.
    says(&mut world, 0, ask(3, 2));
    insta::assert_snapshot!(words(world.lose(0)), @"
    1: Watch
    2: Watch
    2: 0 asks 3 no longer
    ");
}

fn event(nodes: Option<Vec<NodeId>>) -> FromServer {
    FromServer::Event {
        event: Bytes::new(),
        nodes,
    }
}

#[test]
fn events_go_to_others() {
    let mut world = World::new();
    insta::assert_snapshot!(says(&mut world, 1, event(None)), @"
    0: event
    2: event
    ");
    let some = vec![NodeId(1), NodeId(2)];
    insta::assert_snapshot!(says(&mut world, 1, event(Some(some))), @"2: event");
}
