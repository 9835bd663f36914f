//! Lines for the syslog of a node. Hidden here: their form.

use message::{rfc3164, rfc3339, visible};
use serde::{Deserialize, Serialize};

/// Maximum length of a line without its header, in bytes: that of rsyslog. Longer ones are refused, because the syslog would cut them.
pub const SYSLOG_TEXT_MAX: usize = 8192;

/// The program that the syslog shows as the source.
const TAG: &str = "rally";

/// A line for the syslog, from a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyslogLine {
    /// Facility and severity.
    priority: u8,
    text: String,
}

/// Why a line is not in the syslog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SyslogFailure {
    /// The host has none: nothing receives at `/dev/log`.
    Absent,
    /// It does not read fast enough.
    Busy,
    NotPermitted,
    TooLong,
    Other,
}

impl SyslogLine {
    /// Returns the line with its source, by which a reader of the syslog finds all lines of a job, and with the time that the source gives,
    /// in seconds since 1970.
    ///
    /// # Errors
    ///
    /// The text is too long.
    pub(crate) fn new(
        priority: u8,
        source: &str,
        time: Option<u64>,
        text: &[u8],
    ) -> Result<Self, SyslogFailure> {
        if text.len() > SYSLOG_TEXT_MAX {
            return Err(SyslogFailure::TooLong);
        }
        let text = String::from_utf8_lossy(text);
        // The syslog has lines. The text is that of a user's program, and a control character might look like a line of another one.
        let text = visible::line(text.trim_end_matches('\n'));
        let time = time.map_or_else(String::new, |time| {
            let time = rfc3339((i64::try_from(time).unwrap_or(i64::MAX), 0));
            format!("{} ", String::from_utf8_lossy(&time))
        });
        let text = format!("{time}{source}: {text}");
        if text.len() > SYSLOG_TEXT_MAX {
            return Err(SyslogFailure::TooLong);
        }
        Ok(Self { priority, text })
    }

    /// Returns the line as programs send it to the socket of the syslog (RFC 3164), at this time of the local clock, in seconds since
    /// 1970.
    #[must_use]
    pub fn datagram(&self, local_seconds: i64) -> Vec<u8> {
        let Self { priority, text } = self;
        let time = rfc3164(local_seconds);
        format!("<{priority}>{time} {TAG}: {text}").into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_the_form_of_the_syslog() {
        let line = |time, text: &[u8]| {
            let line = SyslogLine::new(11, "rally-node-7@1:3", time, text);
            line.map(|line| String::from_utf8(line.datagram(951_782_400)).unwrap())
        };
        for (time, text, expected) in [
            (None, &b"disk full\n"[..], "disk full"),
            (None, b"a\n<0>b\x1b[1m\0", r"a\n<0>b\u{1b}[1m\u{0}"),
            (None, b"", ""),
            (None, b"\xff", "\u{fffd}"),
        ] {
            let expected = format!("<11>Feb 29 00:00:00 rally: rally-node-7@1:3: {expected}");
            assert_eq!(line(time, text), Ok(expected));
        }
        let expected = "<11>Feb 29 00:00:00 rally: 2026-11-21T11:35:48.000Z rally-node-7@1:3: then";
        assert_eq!(line(Some(1_795_260_948), b"then"), Ok(expected.to_owned()));
    }

    #[test]
    fn a_line_that_the_syslog_would_cut_is_refused() {
        let line = |text: &[u8]| SyslogLine::new(11, "a:0", None, text).map(|_| ());
        let room = SYSLOG_TEXT_MAX - "a:0: ".len();
        assert_eq!(line(&vec![b'x'; room]), Ok(()));
        assert_eq!(line(&vec![b'x'; room + 1]), Err(SyslogFailure::TooLong));
        // What is visible of it is longer.
        assert_eq!(line(&vec![0; room]), Err(SyslogFailure::TooLong));
    }
}
