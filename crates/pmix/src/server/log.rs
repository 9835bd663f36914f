//! PMIx_Log: texts for the streams of a process or of a tool, and for the syslog.
//!
//! | some texts are on a stream | the host's answer about the syslog | the answer to the process |
//! |---|---|---|
//! | no | any | the same |
//! | yes | success | success |
//! | yes | an error | PARTIAL_SUCCESS |

use bytes::Bytes;

use super::{LogStream, Output, ReplyTo, Server, Syslog, SyslogPlace, find, help};
use crate::{
    keys,
    message::Answer,
    value::{Info, Proc, Status, Value},
};

/// Facility *user*, severity *error*: the defaults of the syslog and of the Standard.
const PRIORITY: u8 = FACILITY_USER | 3;
/// The facility of a priority that says none. The one with number 0 is for the kernel only.
const FACILITY_USER: u8 = 1 << 3;
/// The last severity of the last facility.
const LAST_PRIORITY: u64 = (23 << 3) | 7;

impl Server {
    pub(super) fn on_log(
        &mut self,
        reply: ReplyTo,
        from: &Proc,
        time: u64,
        data: &[Info],
        directives: &[Info],
    ) {
        let Some(priority) = priority(directives) else {
            return self.status(reply, Status::BAD_PARAM);
        };
        let Some(texts) = for_syslog(data) else {
            return self.status(reply, Status::BAD_PARAM);
        };
        let mut status = Status::NOT_SUPPORTED;
        for (stream, text) in data.iter().filter_map(for_stream) {
            status = Status::SUCCESS;
            if self.is_tool(reply.conn) {
                self.show_tool(reply.conn, from, stream, &text);
                continue;
            }
            self.out.push_back(Output::Log {
                proc: from.clone(),
                stream,
                text,
            });
        }
        if texts.is_empty() {
            return self.status(reply, status);
        }
        let given = match find(directives, keys::LOG_TIMESTAMP) {
            Some(Value::Time(given)) => *given,
            _ => time,
        };
        let ticket = self.ticket(reply);
        if status == Status::SUCCESS {
            self.partly_logged.insert(ticket);
        }
        self.out.push_back(Output::Syslog {
            ticket,
            from: from.clone(),
            log: Box::new(Syslog {
                texts,
                priority,
                time: Some(given).filter(|given| *given > 0),
            }),
        });
    }
}

/// Returns the answer to a log request of which a part is on a stream.
pub(super) fn partly(answer: Answer) -> Answer {
    match answer.status() {
        Status::SUCCESS => answer,
        _ => Answer::Status(Status::PARTIAL_SUCCESS),
    }
}

/// Returns the texts for a syslog; `None` if one of them is no text.
fn for_syslog(data: &[Info]) -> Option<Vec<(SyslogPlace, Bytes)>> {
    let places = [
        (keys::LOG_SYSLOG, SyslogPlace::Either),
        (keys::LOG_LOCAL_SYSLOG, SyslogPlace::Local),
        (keys::LOG_GLOBAL_SYSLOG, SyslogPlace::Global),
    ];
    let texts = data.iter().filter_map(|info| {
        let (_, place) = places.iter().find(|(key, _)| info.key == **key)?;
        Some(text(&info.value).map(|text| (*place, text)))
    });
    texts.collect()
}

fn for_stream(info: &Info) -> Option<(LogStream, Bytes)> {
    let key = info.key.as_c_str();
    match &info.value {
        value if key == keys::LOG_STDERR => Some((LogStream::Stderr, text(value)?)),
        value if key == keys::LOG_STDOUT => Some((LogStream::Stdout, text(value)?)),
        Value::ByteObject(bytes) if key == keys::LOG_MESSAGE => {
            Some((LogStream::Stderr, help::text(bytes)?))
        }
        _ => None,
    }
}

fn text(value: &Value) -> Option<Bytes> {
    match value {
        Value::String(Some(text)) => Some(Bytes::copy_from_slice(text.to_bytes())),
        Value::ByteObject(bytes) => Some(bytes.clone()),
        _ => None,
    }
}

/// Returns the facility and severity that the directives say, or the default; `None` if what they say is none.
fn priority(directives: &[Info]) -> Option<u8> {
    let Some(said) = find(directives, keys::LOG_SYSLOG_PRIORITY) else {
        return Some(PRIORITY);
    };
    let said = said.as_count().filter(|said| *said <= LAST_PRIORITY)?;
    let said = u8::try_from(said).ok()?;
    Some(if said < FACILITY_USER {
        FACILITY_USER | said
    } else {
        said
    })
}
