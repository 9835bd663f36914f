//! Following a job.

mod hang;

pub use self::hang::{Cause, Observed, PARTS, Progress, Watch};
