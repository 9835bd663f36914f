//! Lines for the syslog of this node.

use dvm::syslog::{SyslogFailure, SyslogLine};

/// Sends a line to the syslog. Does not wait for it.
pub(crate) fn send(line: &SyslogLine) -> Result<(), SyslogFailure> {
    let datagram = line.datagram(os::local_seconds());
    os::log_to_syslog(&datagram).map_err(|why| match why {
        os::NotLogged::Absent => SyslogFailure::Absent,
        os::NotLogged::Busy => SyslogFailure::Busy,
        os::NotLogged::NotPermitted => SyslogFailure::NotPermitted,
        os::NotLogged::TooLong => SyslogFailure::TooLong,
        os::NotLogged::Other => SyslogFailure::Other,
    })
}
