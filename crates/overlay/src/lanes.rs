//! The two lanes of a link: reliable, ordered streams of frames with flow control, which survive the loss of a connection.
//!
//! A lane is a stream of bytes, and each byte has an offset. The sender keeps the bytes that the receiver has not reported
//! as received. When a connection is lost and another one takes its place, each side says how many bytes it has received,
//! and the other side continues there. So every frame arrives exactly once, in order.
//!
//! The receiver limits what the sender may send ([`Credit`]). Bytes of a complete frame that nobody has taken count against
//! the window of the lane ([`window`]). Bytes of an incomplete frame do not: a frame may be longer than the window. A
//! receiver therefore holds at most a window and a frame for each lane.
//!
//! Records of the control lane are sent first, and the bulk lane waits until all of it was sent. So a control message can
//! overtake a bulk message, but a bulk message never overtakes a control message.

use std::collections::VecDeque;

use bytes::{Buf as _, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use crate::{
    planted::{self, Bug},
    secure::RECORD_MAX,
    wire::FRAME_MAX,
};

/// One of the two streams of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Lane {
    /// Short messages. They never wait for bulk data.
    Control,
    /// Output, input and files.
    Bulk,
}

impl Lane {
    /// Both lanes, in the order in which they are served.
    pub const ALL: [Self; 2] = [Self::Control, Self::Bulk];

    pub(crate) const fn index(self) -> usize {
        match self {
            Self::Control => 0,
            Self::Bulk => 1,
        }
    }
}

/// Returns the number of bytes of complete frames that a receiver holds for one lane before the sender has to wait.
#[must_use]
pub const fn window(lane: Lane) -> u64 {
    match lane {
        Lane::Control => 256 * 1024,
        Lane::Bulk => 1024 * 1024,
    }
}

/// Length of a frame's length in bytes.
const HEAD: usize = 4;
/// Maximum length of pieces that are copied so that they take less memory than as pieces of their own.
const SMALL: usize = 256;
/// Length of the first byte of a record, which names its kind.
const KIND: usize = 1;

/// What a receiver reports about one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credit {
    pub lane: Lane,
    /// Number of bytes received so far. The sender may forget them.
    pub received: u64,
    /// Offset up to which the sender may send.
    pub limit: u64,
}

/// A violation of the rules of a lane by the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaneError {
    #[error("the peer sent byte {offset} of a lane, and its limit is {limit}")]
    Overrun { offset: u64, limit: u64 },
    #[error("the peer sent a frame of {length} bytes, and {FRAME_MAX} is the maximum")]
    Length { length: usize },
    #[error("the peer reports {received} received bytes of a lane, and {sent} were sent")]
    Offset { received: u64, sent: u64 },
    #[error("the peer allows {limit} bytes of a lane after it has received {received}")]
    Limit { received: u64, limit: u64 },
}

#[derive(Debug)]
struct Sender {
    /// Bytes that were sent and that the receiver has not reported as received, from offset `start` on.
    sent: VecDeque<Bytes>,
    /// Bytes to send, from offset `next` on.
    waiting: VecDeque<Bytes>,
    start: u64,
    next: u64,
    /// Offset behind the last byte.
    end: u64,
    /// Largest offset ever sent.
    highest: u64,
    limit: u64,
}

#[derive(Debug)]
struct Receiver {
    /// Bytes received and not yet taken as frames.
    bytes: BytesMut,
    received: u64,
    /// Number of bytes that were taken as frames.
    taken: u64,
    /// The last report that was sent.
    reported: Option<Credit>,
}

/// Both lanes of a link, in both directions.
#[derive(Debug)]
pub struct Lanes {
    senders: [Sender; 2],
    receivers: [Receiver; 2],
}

impl Default for Lanes {
    fn default() -> Self {
        let sender = |lane| Sender {
            sent: VecDeque::new(),
            waiting: VecDeque::new(),
            start: 0,
            next: 0,
            end: 0,
            highest: 0,
            limit: window(lane),
        };
        let receiver = || Receiver {
            bytes: BytesMut::new(),
            received: 0,
            taken: 0,
            reported: None,
        };
        Self {
            senders: Lane::ALL.map(sender),
            receivers: [receiver(), receiver()],
        }
    }
}

impl Lanes {
    /// Appends a frame to a lane. `head` is copied, `body` is not.
    ///
    /// # Errors
    ///
    /// [`LaneError::Length`] for a frame that the peer would refuse. It is not queued.
    pub fn push(&mut self, lane: Lane, head: &[u8], body: Bytes) -> Result<(), LaneError> {
        let length = head.len() + body.len();
        let written = match u32::try_from(length) {
            Ok(written) if length <= FRAME_MAX => written,
            _ => return Err(LaneError::Length { length }),
        };
        let sender = &mut self.senders[lane.index()];
        let mut first = Vec::with_capacity(HEAD + head.len());
        first.extend_from_slice(&written.to_le_bytes());
        first.extend_from_slice(head);
        sender.end += (first.len() + body.len()) as u64;
        sender.waiting.push_back(Bytes::from(first));
        if !body.is_empty() {
            sender.waiting.push_back(body);
        }
        Ok(())
    }

    /// Returns the number of bytes of a lane that wait to be sent.
    #[must_use]
    pub const fn unsent(&self, lane: Lane) -> u64 {
        let sender = &self.senders[lane.index()];
        sender.end - sender.next
    }

    /// Returns the number of bytes that were received and not taken as frames.
    #[must_use]
    pub fn arrived(&self) -> u64 {
        let receivers = self.receivers.iter();
        receivers.map(|receiver| receiver.bytes.len() as u64).sum()
    }

    /// Returns true if a record can be sent now.
    #[must_use]
    pub fn can_send(&self) -> bool {
        let sender = self.senders.iter().find(|sender| sender.next < sender.end);
        sender.is_some_and(|sender| sender.next < sender.limit)
    }

    /// Appends the bytes of the next record to `record`, and returns its lane; `None` if there is nothing to send, or no credit
    /// for it.
    pub fn record(&mut self, record: &mut Vec<u8>) -> Option<Lane> {
        let is_waiting = |lane: &Lane| self.unsent(*lane) > 0;
        let lane = if planted::is(Bug::BulkFirst) {
            Lane::ALL.into_iter().rev().find(is_waiting)?
        } else {
            Lane::ALL.into_iter().find(is_waiting)?
        };
        let appended = self.senders[lane.index()].record(record);
        (appended > 0).then_some(lane)
    }

    /// Takes a report of the peer.
    ///
    /// # Errors
    ///
    /// [`LaneError::Offset`] if the peer reports bytes that were not sent, [`LaneError::Limit`] if it allows more than its
    /// window: the bytes that it has not received are kept here.
    pub fn on_credit(&mut self, credit: Credit) -> Result<(), LaneError> {
        let Credit {
            lane,
            received,
            limit,
        } = credit;
        if limit.saturating_sub(received) > window(lane) {
            return Err(LaneError::Limit { received, limit });
        }
        let sender = &mut self.senders[lane.index()];
        sender.forget(credit.received)?;
        sender.limit = sender.limit.max(credit.limit);
        Ok(())
    }

    /// Takes bytes of a record of the peer.
    ///
    /// # Errors
    ///
    /// [`LaneError::Overrun`] if the peer sends more than its limit.
    pub fn on_record(&mut self, lane: Lane, bytes: &[u8]) -> Result<(), LaneError> {
        let receiver = &mut self.receivers[lane.index()];
        let limit = receiver
            .reported
            .map_or_else(|| window(lane), |credit| credit.limit);
        let offset = receiver.received + bytes.len() as u64;
        if offset > limit {
            return Err(LaneError::Overrun { offset, limit });
        }
        receiver.received = offset;
        receiver.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Returns the next complete frame of a lane.
    ///
    /// # Errors
    ///
    /// [`LaneError::Length`] if the peer announces a frame that is too long.
    pub fn frame(&mut self, lane: Lane) -> Result<Option<Bytes>, LaneError> {
        self.receivers[lane.index()].frame()
    }

    /// Returns true if a complete frame waits.
    #[cfg(test)]
    pub(crate) fn has_frame(&self) -> bool {
        let is_complete = |receiver: &Receiver| {
            let first = receiver.first();
            first.is_some_and(|length| receiver.bytes.len() >= length)
        };
        self.receivers.iter().any(is_complete)
    }

    /// Returns a report that the peer needs: it has used up half of its window, or has to keep as many bytes. Ask for it
    /// when it can be sent: from then on the peer may use it.
    pub fn credit(&mut self) -> Option<Credit> {
        let credit = self.due()?;
        self.receivers[credit.lane.index()].reported = Some(credit);
        Some(credit)
    }

    /// Returns true if the peer needs a report.
    #[must_use]
    pub fn has_credit(&self) -> bool {
        self.due().is_some()
    }

    fn due(&self) -> Option<Credit> {
        if planted::is(Bug::CreditNotSent) {
            return None;
        }
        let credits = Lane::ALL
            .into_iter()
            .zip(&self.receivers)
            .map(|(lane, receiver)| {
                let credit = receiver.credit(lane);
                let half = window(lane) / 2;
                // The first window is known without a report.
                let is_due = receiver.reported.map_or(credit.received >= half, |last| {
                    credit.received - last.received >= half || credit.limit - last.limit >= half
                });
                is_due.then_some(credit)
            });
        credits.flatten().next()
    }

    /// Returns the numbers of bytes received so far, by lane, for a peer that continues on another connection.
    #[must_use]
    pub fn received(&self) -> [u64; 2] {
        [self.receivers[0].received, self.receivers[1].received]
    }

    /// Continues on another connection, behind the bytes that the peer has received.
    ///
    /// # Errors
    ///
    /// [`LaneError::Offset`] if the peer reports bytes that were not sent, or that it has reported before.
    pub fn resume(&mut self, received: [u64; 2]) -> Result<(), LaneError> {
        for (sender, received) in self.senders.iter_mut().zip(received) {
            sender.rewind(received)?;
        }
        for (lane, receiver) in Lane::ALL.into_iter().zip(&mut self.receivers) {
            // The peer may have missed the last report. Its limit must not shrink: the peer may have read it.
            if let Some(last) = receiver.reported {
                receiver.reported = Some(Credit {
                    lane,
                    received: 0,
                    limit: last.limit,
                });
            }
        }
        Ok(())
    }
}

impl Sender {
    /// Appends the bytes of the next record, and returns their number.
    fn record(&mut self, record: &mut Vec<u8>) -> usize {
        let end = if planted::is(Bug::LimitIgnored) {
            self.end
        } else {
            self.end.min(self.limit)
        };
        let room = end.saturating_sub(self.next);
        let most = usize::try_from(room).map_or(RECORD_MAX, |room| room.min(RECORD_MAX - KIND));
        let mut room = most;
        while room > 0
            && let Some(mut piece) = self.waiting.pop_front()
        {
            let part = piece.split_to(piece.len().min(room));
            room -= part.len();
            record.extend_from_slice(&part);
            self.keep(part);
            if !piece.is_empty() {
                self.waiting.push_front(piece);
            }
        }
        let appended = most - room;
        self.next += appended as u64;
        self.highest = self.highest.max(self.next);
        appended
    }

    /// Keeps bytes that were sent. Small pieces become one: many short messages are kept for a long time, and each piece takes
    /// more memory than such a message.
    fn keep(&mut self, part: Bytes) {
        match self.sent.back_mut() {
            Some(last) if last.len() + part.len() <= SMALL => {
                *last = Bytes::from([&last[..], &part[..]].concat());
            }
            _ => self.sent.push_back(part),
        }
    }

    /// Forgets the sent bytes before `received`.
    fn forget(&mut self, received: u64) -> Result<(), LaneError> {
        if received > self.highest {
            let sent = self.highest;
            return Err(LaneError::Offset { received, sent });
        }
        while self.start < received
            && let Some(first) = self.sent.front_mut()
        {
            let count = usize::try_from(received - self.start).unwrap_or(usize::MAX);
            let part = first.split_to(count.min(first.len()));
            self.start += part.len() as u64;
            if first.is_empty() {
                self.sent.pop_front();
            }
        }
        Ok(())
    }

    /// Sends again, from `received` on.
    fn rewind(&mut self, received: u64) -> Result<(), LaneError> {
        if received < self.start {
            let sent = self.start;
            return Err(LaneError::Offset { received, sent });
        }
        if planted::is(Bug::ResumeBehindSent) {
            return Ok(());
        }
        while let Some(last) = self.sent.pop_back() {
            self.waiting.push_front(last);
        }
        self.next = self.start;
        if received > self.highest {
            let sent = self.highest;
            return Err(LaneError::Offset { received, sent });
        }
        while self.next < received
            && !planted::is(Bug::ResumeFromStart)
            && let Some(first) = self.waiting.front_mut()
        {
            let count = usize::try_from(received - self.next).unwrap_or(usize::MAX);
            let part = first.split_to(count.min(first.len()));
            self.next += part.len() as u64;
            if first.is_empty() {
                self.waiting.pop_front();
            }
        }
        self.start = self.next;
        Ok(())
    }
}

impl Receiver {
    /// Returns the length of the first frame, with its head, if it is known.
    fn first(&self) -> Option<usize> {
        let head = self.bytes.first_chunk::<HEAD>()?;
        Some(HEAD + u32::from_le_bytes(*head) as usize)
    }

    fn frame(&mut self) -> Result<Option<Bytes>, LaneError> {
        let Some(length) = self.first() else {
            return Ok(None);
        };
        if length > HEAD + FRAME_MAX {
            let length = length - HEAD;
            return Err(LaneError::Length { length });
        }
        if self.bytes.len() < length {
            return Ok(None);
        }
        let mut frame = self.bytes.split_to(length).freeze();
        if self.bytes.is_empty() && length <= SMALL {
            // The empty rest would keep the buffer when the frame is gone. Long frames come in succession and use it again.
            self.bytes = BytesMut::new();
        }
        frame.advance(HEAD);
        self.taken += length as u64;
        Ok(Some(frame))
    }

    fn credit(&self, lane: Lane) -> Credit {
        // Bytes of an incomplete first frame are not counted. If the first frame is complete, all bytes count.
        let is_incomplete = self.first().is_none_or(|length| self.bytes.len() < length);
        let base = if is_incomplete {
            self.received
        } else {
            self.taken
        };
        let last = self
            .reported
            .map_or_else(|| window(lane), |credit| credit.limit);
        Credit {
            lane,
            received: self.received,
            limit: last.max(base + window(lane)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Two ends, and what is on its way between them.
    #[derive(Default)]
    struct Pair {
        ends: [Lanes; 2],
        arrived: [Vec<(Lane, Vec<u8>)>; 2],
    }

    impl Pair {
        /// Passes one record or report from an end to the other; returns false if it had none.
        fn carry(&mut self, from: usize) -> bool {
            let to = 1 - from;
            if let Some(credit) = self.ends[from].credit() {
                self.ends[to].on_credit(credit).unwrap();
                return true;
            }
            let mut bytes = Vec::new();
            let Some(lane) = self.ends[from].record(&mut bytes) else {
                return false;
            };
            self.ends[to].on_record(lane, &bytes).unwrap();
            true
        }

        fn take(&mut self, at: usize) {
            for lane in Lane::ALL {
                while let Some(frame) = self.ends[at].frame(lane).unwrap() {
                    self.arrived[at].push((lane, frame.to_vec()));
                }
            }
        }

        /// Loses the connection, and what was sent on it after each end had received `self.received()`.
        fn resume(&mut self) {
            let received = [self.ends[0].received(), self.ends[1].received()];
            self.ends[0].resume(received[1]).unwrap();
            self.ends[1].resume(received[0]).unwrap();
        }
    }

    fn frame(lanes: &mut Lanes, lane: Lane, length: usize) {
        lanes
            .push(lane, &[1], Bytes::from(vec![2; length - 1]))
            .unwrap();
    }

    #[test]
    fn control_overtakes_bulk() {
        let mut lanes = Lanes::default();
        frame(&mut lanes, Lane::Bulk, 100_000);
        assert_eq!(lanes.record(&mut Vec::new()), Some(Lane::Bulk));
        frame(&mut lanes, Lane::Control, 10);
        assert_eq!(lanes.record(&mut Vec::new()), Some(Lane::Control));
        assert_eq!(lanes.record(&mut Vec::new()), Some(Lane::Bulk));
    }

    #[test]
    fn frames_that_nobody_takes_stop_the_sender_and_its_lane_only() {
        let mut pair = Pair::default();
        for _ in 0..3 {
            frame(&mut pair.ends[0], Lane::Bulk, 600 * 1024);
        }
        while pair.carry(0) || pair.carry(1) {}
        // One window, and not the rest.
        assert_eq!(
            pair.ends[0].unsent(Lane::Bulk),
            3 * (600 * 1024 + 4) - window(Lane::Bulk)
        );
        assert!(!pair.ends[0].can_send());
        frame(&mut pair.ends[0], Lane::Control, 10);
        while pair.carry(0) || pair.carry(1) {}
        assert_eq!(
            pair.ends[1].frame(Lane::Control).unwrap().unwrap().len(),
            10
        );
        pair.take(1);
        while pair.carry(0) || pair.carry(1) {
            pair.take(1);
        }
        assert_eq!(pair.arrived[1].len(), 3);
    }

    #[test]
    fn a_frame_may_be_longer_than_the_window() {
        let mut pair = Pair::default();
        frame(&mut pair.ends[0], Lane::Control, 3 * 1024 * 1024);
        while pair.carry(0) || pair.carry(1) {}
        pair.take(1);
        assert_eq!(pair.arrived[1][0].1.len(), 3 * 1024 * 1024);
    }

    #[test]
    fn a_peer_that_breaks_the_rules_is_found_out() {
        let mut lanes = Lanes::default();
        let said = [
            lanes
                .on_record(Lane::Control, &vec![0; 256 * 1024 + 1])
                .unwrap_err(),
            lanes
                .on_credit(Credit {
                    lane: Lane::Bulk,
                    received: 1,
                    limit: 0,
                })
                .unwrap_err(),
            lanes.resume([0, 1]).unwrap_err(),
            {
                lanes.on_record(Lane::Control, &[0xff; 4]).unwrap();
                lanes.frame(Lane::Control).unwrap_err()
            },
            lanes
                .push(Lane::Bulk, &[0], Bytes::from(vec![0; FRAME_MAX]))
                .unwrap_err(),
        ];
        let said = said.map(|error| error.to_string()).join("\n");
        insta::assert_snapshot!(said, @"
        the peer sent byte 262145 of a lane, and its limit is 262144
        the peer reports 1 received bytes of a lane, and 0 were sent
        the peer reports 1 received bytes of a lane, and 0 were sent
        the peer sent a frame of 4294967295 bytes, and 67108864 is the maximum
        the peer sent a frame of 67108865 bytes, and 67108864 is the maximum
        ");
    }

    /// Half of the frames are small, so that pieces are joined.
    fn length() -> impl Strategy<Value = usize> {
        prop_oneof![1_usize..SMALL, 1_usize..200_000]
    }

    proptest! {
        #[test]
        fn every_frame_arrives_once_whatever_is_lost(
            script in prop::collection::vec((0_usize..6, 0_usize..2, length()), 1..60),
        ) {
            let mut pair = Pair::default();
            let mut sent: [Vec<(Lane, Vec<u8>)>; 2] = Default::default();
            for (number, (what, from, length)) in script.into_iter().enumerate() {
                match what {
                    0 | 1 => {
                        let lane = Lane::ALL[what];
                        let body = vec![u8::try_from(number).unwrap(); length];
                        pair.ends[from].push(lane, &[], Bytes::from(body.clone())).unwrap();
                        sent[from].push((lane, body));
                    }
                    2 => drop(pair.carry(from)),
                    // A record that is lost with its connection.
                    3 => {
                        let _ = pair.ends[from].record(&mut Vec::new());
                        let _ = pair.ends[from].credit();
                        pair.resume();
                    }
                    4 => pair.take(from),
                    _ => pair.resume(),
                }
            }
            let mut is_moving = true;
            while is_moving {
                pair.take(0);
                pair.take(1);
                is_moving = pair.carry(0) || pair.carry(1);
            }
            for from in [0, 1] {
                for lane in Lane::ALL {
                    let of = |all: &[(Lane, Vec<u8>)]| {
                        let of = all.iter().filter(|one| one.0 == lane);
                        of.map(|one| (one.1[0], one.1.len())).collect::<Vec<_>>()
                    };
                    prop_assert_eq!(of(&sent[from]), of(&pair.arrived[1 - from]));
                }
            }
        }
    }
}
