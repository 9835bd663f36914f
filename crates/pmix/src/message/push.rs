//! Messages that a server sends without a request.

use bytes::Bytes;

use super::Command;
use crate::{
    Error, Malformed,
    codec::{CommandNumber, Format, Reader, Size, Writer},
    frame::Tag,
    value::{DataType, Info, IofChannels, Proc, Range, Status},
};

/// Message that a server sends without a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Push {
    Event {
        status: Status,
        source: Proc,
        infos: Vec<Info>,
        /// `None` when a server replays an event without its range.
        range: Option<Range>,
    },
    Output {
        source: Proc,
        channels: IofChannels,
        /// Number that the receiver chose when it asked for output; 0 if the receiver spawned the job.
        id: u64,
        infos: Vec<Info>,
        /// Output; no bytes mean the end of the stream.
        bytes: Bytes,
    },
}

impl Push {
    /// Returns the tag of the message.
    #[must_use]
    pub const fn tag(&self) -> Tag {
        match self {
            Self::Event { .. } => Tag::Event,
            Self::Output { .. } => Tag::Output,
        }
    }

    /// Encodes the payload.
    pub fn encode(&self, writer: &mut Writer) {
        match self {
            Self::Event {
                status,
                source,
                infos,
                range,
            } => {
                writer.item(&CommandNumber(Command::Notify.number()));
                writer.item(status);
                writer.item(source);
                writer.list(infos);
                if let Some(range) = range {
                    writer.item(range);
                }
            }
            Self::Output {
                source,
                channels,
                id,
                infos,
                bytes,
            } => {
                writer.item(source);
                writer.item(channels);
                writer.item(&Size(*id));
                writer.list(infos);
                writer.item(bytes);
            }
        }
    }

    /// Decodes the payload of a message with this tag; `None` if the tag is not one of pushes.
    ///
    /// # Errors
    /// The payload is not a push.
    pub fn decode(format: Format, tag: Tag, payload: &[u8]) -> Result<Option<Self>, Error> {
        let reader = &mut Reader::new(format, payload);
        match tag {
            Tag::Event => {
                let CommandNumber(number) = reader.item()?;
                if number != Command::Notify.number() {
                    return Err(Error::malformed(Malformed::WrongKind {
                        expected: DataType::COMMAND,
                        got: DataType::UNDEF,
                    }));
                }
                Ok(Some(Self::Event {
                    status: reader.item()?,
                    source: reader.item()?,
                    infos: reader.list()?,
                    range: if reader.is_empty() {
                        None
                    } else {
                        Some(reader.item()?)
                    },
                }))
            }
            Tag::Output => Ok(Some(Self::Output {
                source: reader.item()?,
                channels: reader.item()?,
                id: reader.item::<Size>()?.0,
                infos: reader.list()?,
                bytes: if reader.is_empty() {
                    Bytes::new()
                } else {
                    reader.item()?
                },
            })),
            Tag::Heartbeat | Tag::Request(_) | Tag::Reserved(_) => Ok(None),
        }
    }
}
