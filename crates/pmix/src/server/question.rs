//! Questions of one server to another, and their answers. The hosts carry them without unpacking them.
//!
//! | question | answer |
//! |---|---|
//! | [`Question::Get`] | the data that the process has committed for other nodes, each item a KVAL |
//! | [`Question::Construct`] | [`Constructed`] |
//! | [`Question::Loss`] | those of the processes that are lost or have ended, at least one |
//!
//! Every answer may be a status instead.

use bytes::Bytes;

use super::share::{FORMAT, Joined, end, read_joined, write_joined};
use crate::{
    Error, Malformed,
    codec::{Reader, Size, Writer},
    value::{Info, Key, Nspace, Proc, Status},
};

/// A question of one server to another.
#[derive(Clone, Debug, PartialEq)]
pub enum Question {
    /// Data of a process on the other node.
    Get(GetQuestion),
    /// Processes construct a group that the other node coordinates.
    Construct(ConstructQuestion),
    /// The loss or end of one of these processes of the other node. Answered when it happens.
    Loss(Vec<Proc>),
}

/// A get about a process of another node.
#[derive(Clone, Debug, PartialEq)]
pub struct GetQuestion {
    pub target: Proc,
    pub patience: Patience,
    /// The key that is asked for; `None` for all committed data.
    pub key: Option<Key>,
    /// Qualifiers that select one of several values of the key.
    pub qualifiers: Vec<Info>,
}

/// Whether a get may wait for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Wait until the process commits the data, or never can.
    Waits,
    /// Answer immediately from the data that is present.
    AtOnce,
}

/// The call of a process that constructs a group, or the equal calls of several on one node.
#[derive(Clone, Debug, PartialEq)]
pub struct ConstructQuestion {
    pub group: Nspace,
    /// The members that they name; empty for a process that a leader adds.
    pub named: Vec<Proc>,
    /// Members that they add.
    pub added: Vec<Proc>,
    /// The status with which the construction must fail, because their node cannot take part.
    pub refused: Option<Status>,
    pub callers: Vec<Joined>,
}

/// The result of a construction, for all callers on one node.
#[derive(Clone, Debug, PartialEq)]
pub struct Constructed {
    /// The tickets of their questions.
    pub tickets: Vec<u64>,
    /// The members by which the group was named, for the order of its members.
    pub named: Vec<Proc>,
    /// The context id, if a member asked for one.
    pub context: Option<u64>,
    pub members: Vec<Joined>,
}

const GET: u8 = 0;
const CONSTRUCT: u8 = 1;
const LOSS: u8 = 2;

impl Question {
    /// Packs the question.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut writer = Writer::new(FORMAT);
        match self {
            Self::Get(get) => {
                writer.item(&GET);
                writer.item(&get.target);
                writer.item(&(get.patience == Patience::Waits));
                writer.items(get.key.as_slice());
                if get.key.is_some() {
                    writer.list(&get.qualifiers);
                }
            }
            Self::Construct(construct) => {
                writer.item(&CONSTRUCT);
                writer.item(&construct.group);
                writer.list(&construct.named);
                writer.list(&construct.added);
                writer.list(construct.refused.as_slice());
                write_joined(&mut writer, &construct.callers);
            }
            Self::Loss(procs) => {
                writer.item(&LOSS);
                writer.list(procs);
            }
        }
        writer.into_bytes().into()
    }

    /// Unpacks a question.
    ///
    /// # Errors
    /// Returns an error if the bytes are not a question.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(FORMAT, bytes);
        let question = match reader.item::<u8>()? {
            GET => {
                let target = reader.item()?;
                let patience = if reader.item::<bool>()? {
                    Patience::Waits
                } else {
                    Patience::AtOnce
                };
                let (mut key, mut qualifiers) = (None, Vec::new());
                if !reader.is_empty() {
                    key = Some(reader.item()?);
                    qualifiers = reader.list()?;
                }
                Self::Get(GetQuestion {
                    target,
                    patience,
                    key,
                    qualifiers,
                })
            }
            CONSTRUCT => Self::Construct(ConstructQuestion {
                group: reader.item()?,
                named: reader.list()?,
                added: reader.list()?,
                refused: at_most_one(reader.list()?)?,
                callers: read_joined(&mut reader)?,
            }),
            LOSS => Self::Loss(reader.list()?),
            _ => return Err(Error::malformed(Malformed::NumberTooLarge)),
        };
        end(&reader)?;
        Ok(question)
    }
}

impl Constructed {
    /// Packs the result.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut writer = Writer::new(FORMAT);
        let tickets: Vec<Size> = self.tickets.iter().copied().map(Size).collect();
        writer.list(&tickets);
        writer.list(&self.named);
        let context: Vec<Size> = self.context.into_iter().map(Size).collect();
        writer.list(&context);
        write_joined(&mut writer, &self.members);
        writer.into_bytes().into()
    }

    /// Unpacks a result.
    ///
    /// # Errors
    /// Returns an error if the bytes are not a result.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(FORMAT, bytes);
        let tickets: Vec<Size> = reader.list()?;
        let named = reader.list()?;
        let context = at_most_one(reader.list()?)?;
        Ok(Self {
            tickets: tickets.into_iter().map(|Size(ticket)| ticket).collect(),
            named,
            context: context.map(|Size(context)| context),
            members: read_joined(&mut reader)?,
        })
    }
}

/// Returns the only value of a list; `None` if it is empty.
fn at_most_one<T>(mut values: Vec<T>) -> Result<Option<T>, Error> {
    let first = values.pop();
    if values.is_empty() {
        Ok(first)
    } else {
        Err(Error::malformed(Malformed::WrongCount))
    }
}

/// Packs the answer to [`Question::Loss`].
pub(super) fn write_lost(procs: &[Proc]) -> Bytes {
    let mut writer = Writer::new(FORMAT);
    writer.list(procs);
    writer.into_bytes().into()
}

/// Unpacks the answer to [`Question::Loss`].
pub(super) fn read_lost(bytes: &[u8]) -> Result<Vec<Proc>, Error> {
    let mut reader = Reader::new(FORMAT, bytes);
    let procs = reader.list()?;
    end(&reader)?;
    Ok(procs)
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, option, prelude::*};

    use super::*;
    use crate::tests::strategy;

    fn infos() -> impl Strategy<Value = Vec<Info>> {
        vec(strategy::info(), 0..4)
    }

    fn procs() -> impl Strategy<Value = Vec<Proc>> {
        vec(strategy::process(), 0..4)
    }

    fn gets() -> impl Strategy<Value = Question> {
        (
            strategy::process(),
            any::<bool>(),
            option::of((strategy::key(), infos())),
        )
            .prop_map(|(target, waits, what)| {
                let (key, qualifiers) = what.map_or((None, Vec::new()), |(key, qualifiers)| {
                    (Some(key), qualifiers)
                });
                Question::Get(GetQuestion {
                    target,
                    patience: if waits {
                        Patience::Waits
                    } else {
                        Patience::AtOnce
                    },
                    key,
                    qualifiers,
                })
            })
    }

    fn joined() -> impl Strategy<Value = Joined> {
        (strategy::process(), infos()).prop_map(|(proc, infos)| Joined { proc, infos })
    }

    fn questions() -> impl Strategy<Value = Question> {
        let construct = (
            strategy::nspace(),
            procs(),
            procs(),
            option::of(strategy::status()),
            vec(joined(), 0..4),
        );
        prop_oneof![
            gets(),
            construct.prop_map(|(group, named, added, refused, callers)| {
                Question::Construct(ConstructQuestion {
                    group,
                    named,
                    added,
                    refused,
                    callers,
                })
            }),
            procs().prop_map(Question::Loss),
        ]
    }

    fn results() -> impl Strategy<Value = Constructed> {
        (
            vec(any::<u64>(), 0..4),
            procs(),
            option::of(any::<u64>()),
            vec(joined(), 0..4),
        )
            .prop_map(|(tickets, named, context, members)| Constructed {
                tickets,
                named,
                context,
                members,
            })
    }

    proptest! {
        #[test]
        fn a_question_reads_back_as_it_was_written(question in questions()) {
            prop_assert_eq!(Question::decode(&question.encode()), Ok(question));
        }

        #[test]
        fn a_result_reads_back_as_it_was_written(result in results()) {
            prop_assert_eq!(Constructed::decode(&result.encode()), Ok(result));
        }

        #[test]
        fn lost_processes_read_back_as_they_were_written(procs in procs()) {
            prop_assert_eq!(read_lost(&write_lost(&procs)), Ok(procs));
        }

        #[test]
        fn bytes_are_a_question_or_are_refused(bytes in vec(any::<u8>(), 0..100)) {
            let _ = Question::decode(&bytes);
            let _ = Constructed::decode(&bytes);
            let _ = read_lost(&bytes);
        }
    }
}
