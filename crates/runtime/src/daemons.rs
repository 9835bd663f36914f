//! The tree that joins the daemons: it encodes the messages between them and the controller.

use std::{collections::BTreeSet, net::SocketAddr};

use base::{NodeId, Time};
use bytes::{Bytes, BytesMut};
use dvm::proto::{Chunk, ToController, ToDaemon};
use overlay::{
    Address, BODY_MAX, Loss,
    lanes::Lane,
    node::{Class, Conn},
    wire,
};
use pmix::server::MAX_CARRIED;
use serde::Serialize;

use tracing::{error, info, warn};

use crate::{
    log,
    reactor::Reactor,
    tree::{self, TreeHost},
};

/// News from the tree.
#[derive(Debug)]
pub(crate) enum News {
    /// At the root: a message of a daemon.
    FromDaemon(NodeId, ToController),
    /// At the root: a message of several daemons, merged on its way.
    FromDaemons(BTreeSet<NodeId>, ToController),
    /// At a daemon: a message of the controller.
    ToDaemon(ToDaemon),
    Joined(NodeId),
    Lost {
        nodes: BTreeSet<NodeId>,
        loss: Loss,
    },
    /// This daemon has its place in the tree.
    Ready,
    /// This daemon cannot connect, for the reason given.
    Unreachable(String),
    /// This daemon has lost the controller.
    Abandoned(Loss),
    /// The controller has ended the session.
    Ended,
    /// A connection to the port of this process was refused.
    Refused {
        from: SocketAddr,
        why: String,
    },
    /// A violation of the protocol: for the log.
    Report(String),
}

impl News {
    /// Logs what concerns the tree. The state machines log the messages that it carries.
    pub(crate) fn log(&self) {
        match self {
            Self::FromDaemon(..) | Self::FromDaemons(..) | Self::ToDaemon(_) => {}
            Self::Joined(node) => info!(target: log::TREE, %node, "joined"),
            Self::Lost { nodes, loss } => {
                for node in nodes {
                    warn!(target: log::TREE, %node, "lost: {loss}");
                }
            }
            Self::Ready => info!(target: log::TREE, "connected"),
            Self::Unreachable(why) => error!(target: log::TREE, "cannot connect: {why}"),
            Self::Abandoned(loss) => error!(target: log::TREE, "the launcher is gone: {loss}"),
            Self::Ended => info!(target: log::TREE, "the session is over"),
            Self::Refused { from, why } => {
                warn!(target: log::TREE, %from, "refused a connection: {why}");
            }
            Self::Report(what) => warn!(target: log::TREE, "{what}"),
        }
    }
}

/// The place of this process in the tree of daemons.
#[derive(Debug)]
pub(crate) struct DaemonTree {
    host: TreeHost,
    /// A message that is not sent yet: a copy for another daemon may follow.
    cast: Option<Cast>,
}

/// One message for several daemons.
#[derive(Debug)]
struct Cast {
    to: BTreeSet<Address>,
    message: ToDaemon,
}

impl Cast {
    /// Adds another daemon if its message is the same. Returns false if that message has to be sent by itself: a second copy
    /// for one daemon is a message of its own, like the credit for another block of the same length.
    fn takes(&mut self, to: Address, message: &ToDaemon) -> bool {
        self.message.is_same(message) && self.to.insert(to)
    }
}

/// The reason why a message cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unsendable {
    #[error(transparent)]
    Wire(#[from] wire::WireError),
    #[error("a message for it has {length} bytes, and {BODY_MAX} is the maximum")]
    TooLong { length: usize },
}

/// Encodes a message. The servers and the controller keep what they carry for ranks below [`MAX_CARRIED`], so only a launch
/// can be too long.
fn encode<T: Serialize>(message: &T) -> Result<Bytes, Unsendable> {
    const {
        assert!(
            MAX_CARRIED < BODY_MAX - (1 << 20),
            "no room for the rest of a message"
        )
    };
    let body = wire::encode(message)?;
    if body.len() > BODY_MAX {
        let length = body.len();
        return Err(Unsendable::TooLong { length });
    }
    Ok(body)
}

/// Encodes a message of a daemon. The bytes of output follow their message as they are, so that the root does not copy them.
fn encode_to_root(message: &ToController) -> Result<Bytes, Unsendable> {
    let ToController::Output { job, chunk } = message else {
        return encode(message);
    };
    let head = encode(&ToController::Output {
        job: *job,
        chunk: Chunk {
            bytes: Bytes::new(),
            ..chunk.clone()
        },
    })?;
    let mut body = BytesMut::with_capacity(head.len() + chunk.bytes.len());
    body.extend_from_slice(&head);
    body.extend_from_slice(&chunk.bytes);
    Ok(body.freeze())
}

/// Decodes a message of a daemon; `None` if it is malformed.
fn decode_at_root(body: &Bytes) -> Option<ToController> {
    let (mut message, rest) = wire::decode_first(body).ok()?;
    match &mut message {
        ToController::Output { chunk, .. } if chunk.bytes.is_empty() => chunk.bytes = rest,
        _ if rest.is_empty() => {}
        _ => return None,
    }
    Some(message)
}

/// Merges messages of daemons that are on their way.
pub(crate) fn merge(bodies: &[Bytes]) -> Option<Bytes> {
    let messages = bodies.iter().map(decode_at_root);
    let messages: Option<Vec<ToController>> = messages.collect();
    encode(&ToController::merge(messages?)?).ok()
}

/// Returns the address of a daemon. The root is no node: its address is 0.
pub(crate) const fn address_of(node: NodeId) -> Address {
    Address(node.0.saturating_add(1))
}

pub(crate) const fn node_of(address: Address) -> NodeId {
    NodeId(address.0.saturating_sub(1))
}

impl DaemonTree {
    pub(crate) const fn new(host: TreeHost) -> Self {
        Self { host, cast: None }
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        self.host.deadline()
    }

    pub(crate) fn on_tick(&mut self, now: Time, reactor: &mut Reactor) {
        self.host.on_tick(now, reactor);
    }

    /// Accepts connections again: a descriptor may be free.
    pub(crate) fn resume(&mut self, reactor: &mut Reactor) {
        self.host.resume(reactor);
    }

    /// Expects one more daemon.
    pub(crate) fn expect(&mut self, node: NodeId) {
        self.host.expect(address_of(node));
    }

    pub(crate) fn give_up(&mut self, now: Time, node: NodeId) {
        self.host.give_up(now, address_of(node));
    }

    /// Ends the session.
    pub(crate) fn end(&mut self) {
        self.host.end();
    }

    /// Returns true if no other process is connected.
    pub(crate) fn is_alone(&self) -> bool {
        self.host.is_alone()
    }

    /// Returns true if no connection has bytes to write.
    pub(crate) fn is_written(&self) -> bool {
        self.host.is_written()
    }

    /// Returns true if the way to the controller takes another message.
    pub(crate) fn has_room(&self) -> bool {
        self.host.has_room()
    }

    /// Sends a message of this daemon to the controller.
    pub(crate) fn send(&mut self, now: Time, message: &ToController) -> Result<(), Unsendable> {
        let (lane, body) = (lane_of(message), encode_to_root(message)?);
        match message.class() {
            Some(class) => self.host.send_mergeable(now, lane, Class(class), body),
            None => self.host.send(lane, body),
        }
        Ok(())
    }

    /// Sends a message of the controller to a daemon. Equal messages for several daemons in succession travel as one.
    pub(crate) fn cast(
        &mut self,
        now: Time,
        node: NodeId,
        message: ToDaemon,
    ) -> Result<(), (BTreeSet<NodeId>, Unsendable)> {
        let to = address_of(node);
        if let Some(cast) = &mut self.cast
            && cast.takes(to, &message)
        {
            return Ok(());
        }
        let sent = self.flush_cast(now);
        let to = BTreeSet::from([to]);
        self.cast = Some(Cast { to, message });
        sent
    }

    /// Sends the message that waits for copies. An error comes with the daemons that do not get it.
    pub(crate) fn flush_cast(&mut self, now: Time) -> Result<(), (BTreeSet<NodeId>, Unsendable)> {
        if let Some(Cast { to, message }) = self.cast.take() {
            let body = encode(&message)
                .map_err(|error| (to.iter().copied().map(node_of).collect(), error))?;
            self.host.cast(now, &to, lane_to_daemon(&message), &body);
        }
        Ok(())
    }

    /// Handles events of the port.
    pub(crate) fn on_port_readable(&mut self, now: Time, reactor: &mut Reactor) -> Option<News> {
        self.host.on_port_readable(now, reactor).map(news)
    }

    pub(crate) fn on_readable(&mut self, now: Time, conn: Conn, reactor: &mut Reactor) {
        self.host.on_readable(now, conn, reactor);
    }

    pub(crate) fn on_writable(&mut self, now: Time, conn: Conn, reactor: &mut Reactor) {
        self.host.on_writable(now, conn, reactor);
    }

    /// Carries out what the node asks for, and returns the next news.
    pub(crate) fn step(&mut self, now: Time, reactor: &mut Reactor) -> Option<News> {
        self.host.step(now, reactor).map(news)
    }

    /// Writes what the sockets take.
    pub(crate) fn flush(&mut self, now: Time, reactor: &mut Reactor) {
        self.host.flush(now, reactor);
    }
}

/// Returns the lane of a message to the controller: output is bulk.
const fn lane_of(message: &ToController) -> Lane {
    match message.is_urgent() {
        true => Lane::Control,
        false => Lane::Bulk,
    }
}

const fn lane_to_daemon(message: &ToDaemon) -> Lane {
    match message.is_bulk() {
        true => Lane::Bulk,
        false => Lane::Control,
    }
}

/// Decodes news of the tree.
fn news(news: tree::News) -> News {
    match news {
        tree::News::Received { from, body } => received(from, &body),
        tree::News::Merged { of, body } => match decode_at_root(&body) {
            Some(message) => News::FromDaemons(of.into_iter().map(node_of).collect(), message),
            None => News::Report(format!("a message of {} nodes does not decode", of.len())),
        },
        tree::News::Asked { id, .. } | tree::News::Part { id, .. } | tree::News::Gathered(id) => {
            News::Report(format!(
                "daemons have no gathers, and this is number {}",
                id.0
            ))
        }
        tree::News::Joined(who) => News::Joined(node_of(who)),
        tree::News::Lost { members, loss } => {
            let nodes = members.into_iter().map(node_of).collect();
            News::Lost { nodes, loss }
        }
        tree::News::Ready => News::Ready,
        tree::News::Unreachable(why) => News::Unreachable(why),
        tree::News::Abandoned(loss) => News::Abandoned(loss),
        tree::News::Ended => News::Ended,
        tree::News::Refused { from, why } => News::Refused { from, why },
        tree::News::Report(what) => News::Report(what),
    }
}

fn received(from: Address, body: &Bytes) -> News {
    let malformed = || News::Report(format!("a message of {from} does not decode"));
    if from == Address::ROOT {
        wire::decode(body).map_or_else(|_| malformed(), News::ToDaemon)
    } else {
        decode_at_root(body).map_or_else(malformed, |message| {
            News::FromDaemon(node_of(from), message)
        })
    }
}

#[cfg(test)]
mod tests {
    use base::JobId;

    use super::*;

    /// Equal messages for different daemons are one cast. A second one for the same daemon is another message.
    #[test]
    fn a_cast_has_one_copy_for_each_daemon() {
        let message = ToDaemon::Kill { job: JobId(1) };
        let mut cast = Cast {
            to: BTreeSet::from([Address(1)]),
            message: message.clone(),
        };
        assert!(cast.takes(Address(2), &message));
        assert!(!cast.takes(Address(1), &message));
        assert!(!cast.takes(Address(3), &ToDaemon::Kill { job: JobId(2) }));
        assert_eq!(cast.to, BTreeSet::from([Address(1), Address(2)]));
    }

    /// What travels with a class can be merged, and nothing else.
    #[test]
    fn messages_are_merged_as_they_travel() {
        let clean = |job| {
            encode_to_root(&ToController::Clean {
                job: JobId(job),
                spent: base::Usage::default(),
            })
            .unwrap()
        };
        assert_eq!(merge(&[clean(1), clean(1)]), Some(clean(1)));
        assert_eq!(merge(&[clean(1), clean(2)]), None);
        assert_eq!(merge(&[clean(1), Bytes::from_static(b"garbage")]), None);
        let bug = encode_to_root(&ToController::Bug("n".to_owned())).unwrap();
        assert_eq!(merge(&[bug.clone(), bug]), None);
    }

    #[test]
    fn the_bytes_of_output_follow_their_message() {
        let chunk = Chunk {
            job: JobId(1),
            rank: base::Rank(2),
            stream: dvm::proto::Stream::Stderr,
            bytes: Bytes::from_static(b"a line\n"),
            end: dvm::proto::ChunkEnd::Line,
        };
        let output = ToController::Output {
            job: JobId(1),
            chunk,
        };
        let bug = ToController::Bug("n".to_owned());
        for message in [&output, &bug] {
            let body = encode_to_root(message).unwrap();
            assert_eq!(decode_at_root(&body).as_ref(), Some(message));
        }
        let body = encode_to_root(&output).unwrap();
        assert!(body.ends_with(b"a line\n"));
        // Only output has bytes behind it.
        let tail = [&encode_to_root(&bug).unwrap()[..], b"x"].concat();
        assert_eq!(decode_at_root(&Bytes::from(tail)), None);
    }
}
