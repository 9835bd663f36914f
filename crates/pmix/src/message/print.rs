//! Human-readable messages, one per line.
//!
//! Printing a message decodes the buffers in it, which requires the format of the connection.

use std::fmt::{self, Display, Formatter, Write};

use super::{Answer, Facts, GroupAnswer, Push, Request};
use crate::{
    codec::{Format, Reader, Wire},
    handshake::{Hello, Welcome},
    keys,
    value::{
        Kval, Nspace, PmixRank, Proc, Value,
        print::{List, Opaque, Plain, Quoted},
    },
};

/// A message with a `Display`: shortened with `{}`, in full with `{:#}`.
#[derive(Clone, Copy, Debug)]
pub struct Readable<'a, Message> {
    message: &'a Message,
    format: Format,
}

/// Adds `display` to message types.
macro_rules! readable {
    ($($message:ident),*) => {$(
        impl $message {
            /// Returns the message for printing on one line.
            #[must_use]
            pub const fn display(&self, format: Format) -> Readable<'_, Self> {
                Readable { message: self, format }
            }
        }
    )*};
}

readable!(Request, Answer, Push);

/// Prints parts separated by spaces.
macro_rules! line {
    ($f:expr, $first:expr $(, $part:expr)*) => {{
        $first.fmt($f)?;
        $(
            $f.write_char(' ')?;
            $part.fmt($f)?;
        )*
        Ok(())
    }};
}

impl Display for Readable<'_, Request> {
    #[expect(clippy::too_many_lines, reason = "one arm for each request")]
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.message.command())?;
        if matches!(self.message, Request::JobInfo | Request::Finalize) {
            return Ok(());
        }
        f.write_char(' ')?;
        match self.message {
            Request::JobInfo | Request::Finalize => Ok(()),
            Request::Abort {
                status,
                message,
                procs,
            } => line!(f, status, Quoted(message), List(procs)),
            Request::Commit { buckets } => {
                for (index, (scope, bucket)) in buckets.iter().enumerate() {
                    let before = if index == 0 { "" } else { " " };
                    write!(f, "{before}{scope:?} ")?;
                    match Reader::new(self.format, &bucket.bytes).each() {
                        Ok(facts) => facts_of(f, self.format, &facts)?,
                        Err(_) => Opaque(&bucket.bytes).fmt(f)?,
                    }
                }
                Ok(())
            }
            Request::Fence { procs, infos } | Request::Disconnect { procs, infos } => {
                line!(f, List(procs), List(infos))
            }
            Request::JobControl { targets, infos } => line!(f, List(targets), List(infos)),
            Request::Get {
                nspace,
                rank,
                infos,
                key,
            } => {
                write!(f, "{nspace}:{rank} ")?;
                match key {
                    Some(key) => line!(f, key, List(infos)),
                    None => line!(f, "everything", List(infos)),
                }
            }
            Request::Publish { uid, infos } => line!(f, format_args!("uid {uid}"), List(infos)),
            Request::Lookup { uid, keys, infos } | Request::Unpublish { uid, keys, infos } => {
                line!(f, format_args!("uid {uid}"), List(keys), List(infos))
            }
            Request::Spawn { infos, apps } => line!(f, List(infos), List(apps)),
            Request::Connect { procs, infos, data } => {
                line!(f, List(procs), List(infos), List(data))
            }
            Request::Notify {
                status,
                range,
                infos,
            } => line!(f, status, format_args!("to {range:?}"), List(infos)),
            Request::Register { codes, infos } => line!(f, List(codes), List(infos)),
            Request::Deregister { codes } => List(codes).fmt(f),
            Request::Query { queries } => List(queries).fmt(f),
            Request::Log {
                time,
                data,
                directives,
            } => line!(f, format_args!("at {time}"), List(data), List(directives)),
            Request::Allocate { directive, infos } => {
                line!(f, format_args!("{directive:?}"), List(infos))
            }
            Request::Monitor {
                monitor,
                error,
                infos,
            } => line!(f, monitor, error, List(infos)),
            Request::GetCredential { infos } | Request::FabricRegister { infos } => {
                List(infos).fmt(f)
            }
            Request::ValidateCredential { credential, infos } => {
                line!(f, Opaque(credential), List(infos))
            }
            Request::IofPull {
                procs,
                infos,
                channels,
                id,
            } => line!(
                f,
                List(procs),
                channels,
                format_args!("as {id}"),
                List(infos)
            ),
            Request::IofPush {
                procs,
                infos,
                bytes,
            } => match bytes {
                Some(bytes) => line!(f, List(procs), Opaque(bytes), List(infos)),
                None => line!(f, List(procs), "end", List(infos)),
            },
            Request::IofDeregister { infos, id } => line!(f, id, List(infos)),
            Request::GroupConstruct {
                group,
                procs,
                infos,
            } => line!(f, Quoted(group), List(procs), List(infos)),
            Request::GroupDestruct {
                group,
                procs,
                infos,
            } => match procs {
                Some(procs) => line!(f, Quoted(group), List(procs), List(infos)),
                None => line!(f, Quoted(group), List(infos)),
            },
            Request::GroupLeave { group, infos } => line!(f, Quoted(group), List(infos)),
            Request::FabricUpdate { index } => index.fmt(f),
            Request::RefreshCache { nspace, rank } => write!(f, "{nspace}:{rank}"),
            Request::SessionControl { session, infos } => line!(f, session, List(infos)),
            Request::ResolvePeers { node, nspace } => line!(f, Quoted(node), Quoted(nspace)),
            Request::ResolveNode { nspace } => Quoted(nspace).fmt(f),
            Request::Opaque { payload, .. } => Opaque(payload).fmt(f),
        }
    }
}

impl Display for Readable<'_, Answer> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.message {
            Answer::JobInfo { nspace, facts } => {
                write!(f, "{nspace} ")?;
                facts_of(f, self.format, facts)
            }
            Answer::Status(status) => status.fmt(f),
            Answer::Buffers { status, buffers } => {
                status.fmt(f)?;
                buffers.iter().try_for_each(|buffer| {
                    f.write_char(' ')?;
                    opened(f, self.format, buffer)
                })
            }
            Answer::Found { status, data } => line!(f, status, List(data)),
            Answer::Spawned {
                status,
                nspace,
                facts,
            } => {
                write!(f, "{status} {} ", Quoted(nspace))?;
                facts_of(f, self.format, facts)
            }
            Answer::Infos { status, infos } => line!(f, status, List(infos)),
            Answer::Credential { credential, infos } => line!(f, Opaque(credential), List(infos)),
            Answer::Number { status, number } => line!(f, status, format_args!("as {number}")),
            Answer::Group(answer) => group(f, self.format, answer),
            Answer::Refreshed { status, facts } => {
                write!(f, "{status} ")?;
                facts_of(f, self.format, facts)
            }
            Answer::Procs { status, procs } => line!(f, status, List(procs)),
            Answer::Nodes { status, nodes } => line!(f, status, Quoted(nodes)),
        }
    }
}

fn group(f: &mut Formatter<'_>, format: Format, answer: &GroupAnswer) -> fmt::Result {
    write!(f, "{} ", answer.status)?;
    List(&answer.members).fmt(f)?;
    match answer.context {
        Some(context) => write!(f, " context {context}")?,
        None => f.write_str(" no context")?,
    }
    if !answer.infos.is_empty() {
        f.write_char(' ')?;
        List(&answer.infos).fmt(f)?;
    }
    answer.buffers.iter().try_for_each(|buffer| {
        f.write_char(' ')?;
        opened(f, format, buffer)
    })
}

impl Display for Readable<'_, Push> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.message {
            Push::Event {
                status,
                source,
                infos,
                range,
            } => {
                write!(f, "event {status} from {source} ")?;
                match range {
                    Some(range) => line!(f, format_args!("to {range:?}"), List(infos)),
                    None => List(infos).fmt(f),
                }
            }
            Push::Output {
                source,
                channels,
                id,
                infos,
                bytes,
            } => {
                write!(f, "output of {source} {channels} as {id} ")?;
                line!(f, Opaque(bytes), List(infos))
            }
        }
    }
}

/// A fact whose value may be a buffer.
struct Fact<'a> {
    fact: &'a Kval,
    format: Format,
}

impl Display for Fact<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.fact.value {
            Value::ByteObject(bytes) if self.fact.key == *keys::PROC_BLOB => {
                write!(f, "{}=", self.fact.key)?;
                opened(f, self.format, bytes)
            }
            _ => self.fact.fmt(f),
        }
    }
}

fn facts_of(f: &mut Formatter<'_>, format: Format, facts: &[Kval]) -> fmt::Result {
    let facts: Vec<_> = facts.iter().map(|fact| Fact { fact, format }).collect();
    List(&facts).fmt(f)
}

/// Prints a buffer of facts for any type of owner.
fn opened(f: &mut Formatter<'_>, format: Format, bytes: &[u8]) -> fmt::Result {
    fn about<Owner: Wire + Display>(
        f: &mut Formatter<'_>,
        format: Format,
        facts: &Facts<Owner>,
    ) -> fmt::Result {
        write!(f, "{} ", facts.owner)?;
        facts_of(f, format, &facts.facts)
    }
    f.write_char('{')?;
    if let Ok(facts) = Facts::<Proc>::decode(format, bytes) {
        about(f, format, &facts)?;
    } else if let Ok(facts) = Facts::<Nspace>::decode(format, bytes) {
        about(f, format, &facts)?;
    } else if let Ok(facts) = Facts::<PmixRank>::decode(format, bytes) {
        about(f, format, &facts)?;
    } else {
        Opaque(bytes).fmt(f)?;
    }
    f.write_char('}')
}

impl Display for Hello {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "hello from {:?} ", self.kind)?;
        if let Some(proc) = &self.proc {
            write!(f, "{proc} ")?;
        }
        if let Some(owner) = self.owner {
            write!(f, "uid {} gid {} ", owner.uid, owner.gid)?;
        }
        write!(
            f,
            "version {} codec {}/{} store {} security {} ",
            Plain(&self.version),
            Plain(&self.codec),
            self.buffer,
            Plain(&self.store),
            Plain(&self.security),
        )?;
        List(&self.infos()).fmt(f)
    }
}

impl Display for Welcome {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client { status, index } => write!(f, "{status} as {index}"),
            Self::Tool {
                assigned,
                server,
                security,
            } => {
                f.write_str("welcome ")?;
                if let Some(proc) = assigned {
                    write!(f, "as {proc} ")?;
                }
                write!(f, "to {server} security {security}")
            }
            Self::Refused(status) => write!(f, "refused: {status}"),
        }
    }
}
