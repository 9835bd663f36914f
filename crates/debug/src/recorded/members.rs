//! The members of a communicator.

use serde::{Deserialize, Serialize};

/// The members of a communicator, in the order of their ranks in it, as ranks of `MPI_COMM_WORLD`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Members {
    /// They are not known.
    Unknown,
    /// An arithmetic series.
    Series {
        /// The first member.
        first: u32,
        /// The difference from each member to the next.
        stride: i32,
        /// Number of members.
        size: u32,
    },
    /// Others.
    List(Vec<u32>),
}

impl Members {
    /// Returns the rank in `MPI_COMM_WORLD` of the member with a rank.
    #[must_use]
    pub fn get(&self, rank: u32) -> Option<u32> {
        match self {
            Self::Unknown => None,
            Self::Series {
                first,
                stride,
                size,
            } => {
                let offset = i64::from(*stride) * i64::from(rank);
                let member = u32::try_from(i64::from(*first) + offset).ok()?;
                (rank < *size).then_some(member)
            }
            Self::List(list) => list.get(rank as usize).copied(),
        }
    }

    /// Returns the number of members; 0 if they are not known.
    #[must_use]
    pub fn len(&self) -> u32 {
        match self {
            Self::Unknown => 0,
            Self::Series { size, .. } => *size,
            Self::List(list) => u32::try_from(list.len()).unwrap_or(u32::MAX),
        }
    }

    /// Returns true if they are not known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the members, in the order of their ranks.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        (0..self.len()).filter_map(|rank| self.get(rank))
    }
}
