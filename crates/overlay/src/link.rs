//! The link between two roles in one process: a controller and the daemon of its own node.
//!
//! It is a pair of bounded queues; nothing in it waits. Its owner moves the messages: it takes the output of one side,
//! offers it to the link, and gives the other side what the link delivers. A full queue returns the message: the sender
//! keeps it and stops reading its source, which is backpressure.

use std::collections::VecDeque;

/// Maximum number of messages in flight in one direction. A message is at most as large as a chunk of output, so this also
/// bounds the memory of a link.
pub const LANE_CAPACITY: usize = 64;

/// Both directions of a link. `Down` is the type of messages from the root side, `Up` that of messages to it.
#[derive(Debug)]
pub struct InProcess<Down, Up> {
    /// Messages from the root.
    pub down: Lane<Down>,
    /// Messages to the root.
    pub up: Lane<Up>,
}

impl<Down, Up> InProcess<Down, Up> {
    /// Makes a link with no messages in flight.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            down: Lane::new(),
            up: Lane::new(),
        }
    }

    /// Returns true if no message is in flight in either direction.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.down.is_idle() && self.up.is_idle()
    }
}

impl<Down, Up> Default for InProcess<Down, Up> {
    fn default() -> Self {
        Self::new()
    }
}

/// One direction of a link: each message arrives once, in the order of sending.
#[derive(Debug)]
pub struct Lane<Message> {
    queue: VecDeque<Message>,
}

impl<Message> Lane<Message> {
    const fn new() -> Self {
        Self {
            queue: VecDeque::new(),
        }
    }

    /// Sends a message.
    ///
    /// # Errors
    ///
    /// [`Full`] with the message if [`LANE_CAPACITY`] messages are in flight. Offer it again after a [`Self::receive`].
    pub fn send(&mut self, message: Message) -> Result<(), Full<Message>> {
        if self.credits() == 0 {
            return Err(Full(message));
        }
        self.queue.push_back(message);
        Ok(())
    }

    /// Takes the oldest message off the link, which returns its credit to the sender.
    pub fn receive(&mut self) -> Option<Message> {
        self.queue.pop_front()
    }

    /// Returns the number of messages that can be sent before the next one is received.
    #[must_use]
    pub fn credits(&self) -> usize {
        LANE_CAPACITY.saturating_sub(self.queue.len())
    }

    /// Returns true if no message is in flight.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }
}

/// A message that the full queue has refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{LANE_CAPACITY} messages are in flight and none has been received")]
pub struct Full<Message>(pub Message);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_directions_do_not_share_credits() {
        let mut link = InProcess::<usize, char>::new();
        for message in 0..LANE_CAPACITY {
            link.down.send(message).unwrap();
        }
        assert_eq!(link.down.send(99), Err(Full(99)));
        link.up.send('a').unwrap();
        assert_eq!(link.down.receive(), Some(0));
        link.down.send(99).unwrap();
        assert_eq!(link.down.credits(), 0);
        assert_eq!(link.up.receive(), Some('a'));
        while link.down.receive().is_some() {}
        assert!(link.is_idle());
        insta::assert_snapshot!(Full(1), @"64 messages are in flight and none has been received");
    }

    proptest! {
        #[test]
        fn what_was_taken_arrives_once_and_in_order(script in prop::collection::vec(prop::bool::weighted(0.6), 0..600)) {
            let mut link = InProcess::<u32, ()>::default();
            let (mut next, mut received) = (0, Vec::new());
            for sends in script {
                if sends {
                    match link.down.send(next) {
                        Ok(()) => next += 1,
                        Err(Full(message)) => {
                            prop_assert_eq!(message, next);
                            prop_assert_eq!(link.down.credits(), 0);
                        }
                    }
                } else {
                    received.extend(link.down.receive());
                }
                prop_assert!(link.down.credits() <= LANE_CAPACITY);
            }
            received.extend(std::iter::from_fn(|| link.down.receive()));
            prop_assert_eq!(received, (0..next).collect::<Vec<_>>());
        }
    }
}
