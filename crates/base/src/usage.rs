//! What processes have used of their node.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Resources that a process has used, or several together. Adding saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time in user mode.
    pub user: Duration,
    /// CPU time in the kernel.
    pub system: Duration,
    /// The most memory that was resident in one process, in bytes.
    pub peak: u64,
    /// Read from storage, in bytes.
    pub read: u64,
    /// Written to storage, in bytes.
    pub written: u64,
}

impl Usage {
    /// Adds what another process has used.
    pub fn add(&mut self, other: &Self) {
        self.user = self.user.saturating_add(other.user);
        self.system = self.system.saturating_add(other.system);
        self.peak = self.peak.max(other.peak);
        self.read = self.read.saturating_add(other.read);
        self.written = self.written.saturating_add(other.written);
    }

    /// Returns the CPU time.
    #[must_use]
    pub const fn cpu(&self) -> Duration {
        self.user.saturating_add(self.system)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_bytes_add_up_and_the_peak_is_the_greatest() {
        let one = Usage {
            user: Duration::from_secs(1),
            system: Duration::from_secs(2),
            peak: 10,
            read: u64::MAX,
            written: 4,
        };
        let mut all = one;
        all.add(&Usage { peak: 7, ..one });
        let expected = Usage {
            user: Duration::from_secs(2),
            system: Duration::from_secs(4),
            peak: 10,
            read: u64::MAX,
            written: 8,
        };
        assert_eq!(all, expected);
        assert_eq!(all.cpu(), Duration::from_secs(6));
    }
}
