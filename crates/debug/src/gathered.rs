//! Merges the answers of several nodes on their way to the session, in whatever process they meet.

use bytes::Bytes;

use crate::{
    planted::{self, Bug},
    proto::Answers,
    wire,
};

/// Merges encoded [`Answers`] about different nodes. `None` if one of them does not decode or is of another kind, or if the
/// result is too long for a message or exceeds another bound of the decoder: then they have to travel as they are.
#[must_use]
pub fn merge(bodies: &[Bytes]) -> Option<Bytes> {
    let mut merged = Answers::default();
    for body in bodies {
        merged.add(wire::decode(body).ok()?)?;
    }
    let bytes = wire::encode(&merged).ok()?;
    // Each answer may be within the bounds, and their sum not. The next process would drop it.
    wire::decode::<Answers>(&bytes).ok()?;
    Some(Bytes::from(bytes))
}

impl Answers {
    /// Adds the answers of other nodes; `None` if they are of another kind.
    fn add(&mut self, other: Self) -> Option<()> {
        match (&mut self.part, other.part) {
            (Some(part), Some(other)) => part.merge(other).ok()?,
            (None, Some(_)) if planted::is(Bug::RefusedHidesAnswer) && !self.refused.is_empty() => {
            }
            (part @ None, other) => *part = other,
            (Some(_), None) => {}
        }
        if !planted::is(Bug::RefusalsForgotten) || self.refused.is_empty() {
            self.refused.extend(other.refused);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use base::{NodeId, Rank};

    use super::*;
    use crate::{
        reply::{Description, MAX_COPIES, Partial, PartialSample},
        stack::{Activity, End, Missing, Seen, Stack, Thread},
    };

    fn sample(rank: u32) -> Bytes {
        let mut part = PartialSample::default();
        let seen = Seen::Missing(Missing::Gone);
        part.snapshot.procs.insert(Rank(rank), seen);
        encoded(Some(Partial::Sample(part)), None)
    }

    fn encoded(part: Option<Partial>, refused: Option<u32>) -> Bytes {
        let refused = refused.map(NodeId).into_iter().collect();
        Bytes::from(wire::encode(&Answers { part, refused }).unwrap())
    }

    #[test]
    fn answers_that_no_process_accepts_in_one_message_are_not_merged() {
        // The threads of each answer have more than half of the bytes of names.
        let name: Arc<str> = "x".repeat(MAX_COPIES / 64).into();
        let many = |rank: u32| {
            let thread = |tid| Thread {
                tid,
                name: Arc::clone(&name),
                stack: Stack {
                    frames: [].into(),
                    end: End::Start,
                },
                activity: Activity::Running,
                cpu: Duration::ZERO,
                stopped: Duration::ZERO,
            };
            let mut part = PartialSample::default();
            let threads = Seen::Threads((0..33).map(thread).collect());
            part.snapshot.procs.insert(Rank(rank), threads);
            encoded(Some(Partial::Sample(part)), None)
        };
        assert_eq!(merge(&[many(0), many(1)]), None);
        assert!(merge(&[many(0), sample(1)]).is_some());
    }

    #[test]
    fn answers_and_refusals_merge_and_other_bytes_do_not() {
        let refused = encoded(None, Some(3));
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
            let all = [sample(4), sample(7), refused.clone()];
            let all: Vec<Bytes> = order.iter().map(|index| all[*index].clone()).collect();
            let answers: Answers = wire::decode(&merge(&all).unwrap()).unwrap();
            assert_eq!(answers.part.unwrap().ranks().to_string(), "4,7");
            assert_eq!(answers.refused, [NodeId(3)].into());
        }
        let other = encoded(Some(Partial::Description(Description::default())), None);
        assert_eq!(merge(&[sample(4), other]), None);
        assert_eq!(merge(&[sample(4), Bytes::from_static(b"?")]), None);
    }
}
