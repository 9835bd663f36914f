//! Messages between the servers of different nodes, about collectives and gets. Hosts carry them unread.
//!
//! They are packed like PMIx values, in one format whatever the clients use. They come from a server of the same
//! version, and are still decoded with the bounds of the codec.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::{
    Error, Malformed,
    codec::{Format, Reader, Size, Writer},
    planted::{self, Bug},
    value::{Info, Nspace, PmixRank, Proc, Status},
};

/// The kind of a collective.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Fence,
    Connect,
    Disconnect,
    /// Construction of the group with this name.
    Construct(Nspace),
    /// Destruction of the group with this name.
    Destruct(Nspace),
}

impl Kind {
    /// Returns true if a planted bug lets collectives of this kind complete while one member is missing.
    pub(super) fn is_early(&self) -> bool {
        match self {
            Self::Fence => planted::is(Bug::FenceOneEarly),
            Self::Connect => planted::is(Bug::ConnectOneEarly),
            Self::Destruct(_) => planted::is(Bug::DestructOneEarly),
            Self::Disconnect | Self::Construct(_) => false,
        }
    }
}

/// Maximum size in bytes of what a host carries to another server in one message: all shares of a collective, a question,
/// an answer, an event. What would be larger fails with OUT_OF_RESOURCE.
pub const MAX_CARRIED: usize = 40 << 20;

/// The format of messages between servers.
pub(super) const FORMAT: Format = Format::V4;

/// Identifies a collective, equally on every node: its kind and the members that its callers name, packed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GatherId(pub Bytes);

/// The members that a collective needs to succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    All,
    /// Only the members that are not lost.
    Remaining,
}

const FENCE: u8 = 0;
const CONNECT: u8 = 1;
const DISCONNECT: u8 = 2;
const CONSTRUCT: u8 = 3;
const CONSTRUCT_OPTIONAL: u8 = 4;
const DESTRUCT: u8 = 5;

impl GatherId {
    /// Returns the id of a collective over these members.
    pub(super) fn new(kind: &Kind, need: Need, members: &[Proc]) -> Self {
        let mut writer = Writer::new(FORMAT);
        let (number, group) = match (kind, need) {
            (Kind::Fence, _) => (FENCE, None),
            (Kind::Connect, _) => (CONNECT, None),
            (Kind::Disconnect, _) => (DISCONNECT, None),
            (Kind::Construct(group), Need::All) => (CONSTRUCT, Some(group)),
            (Kind::Construct(group), Need::Remaining) => (CONSTRUCT_OPTIONAL, Some(group)),
            (Kind::Destruct(group), _) => (DESTRUCT, Some(group)),
        };
        writer.item(&number);
        if let Some(group) = group {
            writer.item(group);
        }
        let mut ranks: BTreeMap<&Nspace, Vec<PmixRank>> = BTreeMap::new();
        for member in members {
            ranks.entry(&member.nspace).or_default().push(member.rank);
        }
        for (nspace, mut ranks) in ranks {
            ranks.sort_unstable();
            ranks.dedup();
            writer.item(nspace);
            writer.items(&ranks);
        }
        Self(writer.into_bytes().into())
    }

    /// Returns true if a collective fails when a member is lost after it has called.
    pub(super) fn needs_callers(&self) -> bool {
        match self.decode() {
            Ok((kind, need, _)) => {
                need == Need::All && matches!(kind, Kind::Connect | Kind::Construct(_))
            }
            Err(_) => true,
        }
    }

    /// Returns the kind, the need and the members that the id was made of.
    pub(super) fn decode(&self) -> Result<(Kind, Need, Vec<Proc>), Error> {
        let mut reader = Reader::new(FORMAT, &self.0);
        let number: u8 = reader.item()?;
        let (kind, need) = match number {
            FENCE => (Kind::Fence, Need::All),
            CONNECT => (Kind::Connect, Need::All),
            DISCONNECT => (Kind::Disconnect, Need::All),
            CONSTRUCT => (Kind::Construct(reader.item()?), Need::All),
            CONSTRUCT_OPTIONAL => (Kind::Construct(reader.item()?), Need::Remaining),
            DESTRUCT => (Kind::Destruct(reader.item()?), Need::Remaining),
            _ => return Err(Error::malformed(Malformed::NumberTooLarge)),
        };
        let mut members = Vec::new();
        while !reader.is_empty() {
            let nspace: Nspace = reader.item()?;
            let ranks: Vec<PmixRank> = reader.items()?;
            members.extend(ranks.into_iter().map(|rank| Proc {
                nspace: nspace.clone(),
                rank,
            }));
        }
        Ok((kind, need, members))
    }
}

/// What a node sends for a collective once all members on it have called.
#[derive(Clone, Debug, PartialEq)]
pub enum Share {
    /// The members have called; the collective needs no data.
    Called,
    /// The members have called, but the server cannot do its part: the collective fails on all nodes with this status.
    Failed(Status),
    /// A fence without data.
    Fence,
    /// A fence with the data that members have committed for other nodes.
    FenceWithData(Vec<Contribution>),
    /// A group construction.
    Construct {
        /// The group's context id if this node is the lowest of its nodes.
        context: u64,
        /// Members that callers on this node add (GROUP_ADD_MEMBERS).
        added: Vec<Proc>,
        members: Vec<Joined>,
    },
}

/// Data that one process has committed for other nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Contribution {
    pub proc: Proc,
    /// The KVALs, packed one after the other.
    pub data: Bytes,
}

/// One process that constructs a group, and its infos for the other members.
#[derive(Clone, Debug, PartialEq)]
pub struct Joined {
    pub proc: Proc,
    pub infos: Vec<Info>,
}

impl Share {
    /// Packs the share.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut writer = Writer::new(FORMAT);
        match self {
            Self::Called => writer.item(&0_u8),
            Self::Failed(status) => {
                writer.item(&1_u8);
                writer.item(status);
            }
            Self::Fence => writer.item(&2_u8),
            Self::FenceWithData(data) => {
                writer.item(&3_u8);
                for Contribution { proc, data } in data {
                    writer.item(proc);
                    writer.item(data);
                }
            }
            Self::Construct {
                context,
                added,
                members,
            } => {
                writer.item(&4_u8);
                writer.item(&Size(*context));
                writer.list(added);
                write_joined(&mut writer, members);
            }
        }
        writer.into_bytes().into()
    }

    /// Unpacks a share.
    ///
    /// # Errors
    /// Returns an error if the bytes are not a share.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(FORMAT, bytes);
        let number: u8 = reader.item()?;
        let share = match number {
            0 => Self::Called,
            1 => Self::Failed(reader.item()?),
            2 => Self::Fence,
            3 => {
                let mut data = Vec::new();
                while !reader.is_empty() {
                    data.push(Contribution {
                        proc: reader.item()?,
                        data: reader.item()?,
                    });
                }
                Self::FenceWithData(data)
            }
            4 => {
                let Size(context) = reader.item()?;
                Self::Construct {
                    context,
                    added: reader.list()?,
                    members: read_joined(&mut reader)?,
                }
            }
            _ => return Err(Error::malformed(Malformed::NumberTooLarge)),
        };
        end(&reader)?;
        Ok(share)
    }
}

/// Packs the members that construct a group. They come last in a message, because their number is not packed.
pub(super) fn write_joined(writer: &mut Writer, members: &[Joined]) {
    for Joined { proc, infos } in members {
        writer.item(proc);
        writer.list(infos);
    }
}

/// Unpacks the members that construct a group, up to the end of the message.
pub(super) fn read_joined(reader: &mut Reader<'_>) -> Result<Vec<Joined>, Error> {
    let mut members = Vec::new();
    while !reader.is_empty() {
        members.push(Joined {
            proc: reader.item()?,
            infos: reader.list()?,
        });
    }
    Ok(members)
}

/// Returns an error if bytes remain.
pub(super) fn end(reader: &Reader<'_>) -> Result<(), Error> {
    if reader.is_empty() {
        Ok(())
    } else {
        Err(Error::malformed(Malformed::WrongCount))
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::tests::strategy;

    fn infos() -> impl Strategy<Value = Vec<Info>> {
        vec(strategy::info(), 0..4)
    }

    fn shares() -> impl Strategy<Value = Share> {
        let contribution =
            (strategy::process(), vec(any::<u8>(), 0..40)).prop_map(|(proc, data)| Contribution {
                proc,
                data: data.into(),
            });
        let joined =
            (strategy::process(), infos()).prop_map(|(proc, infos)| Joined { proc, infos });
        prop_oneof![
            Just(Share::Called),
            Just(Share::Fence),
            strategy::status().prop_map(Share::Failed),
            vec(contribution, 0..5).prop_map(Share::FenceWithData),
            (
                any::<u64>(),
                vec(strategy::process(), 0..3),
                vec(joined, 0..5)
            )
                .prop_map(|(context, added, members)| Share::Construct {
                    context,
                    added,
                    members
                }),
        ]
    }

    fn kinds() -> impl Strategy<Value = (Kind, Need)> {
        let name = || strategy::nspace();
        prop_oneof![
            Just((Kind::Fence, Need::All)),
            Just((Kind::Connect, Need::All)),
            Just((Kind::Disconnect, Need::All)),
            name().prop_map(|name| (Kind::Construct(name), Need::All)),
            name().prop_map(|name| (Kind::Construct(name), Need::Remaining)),
            name().prop_map(|name| (Kind::Destruct(name), Need::Remaining)),
        ]
    }

    proptest! {
        #[test]
        fn a_share_reads_back_as_it_was_written(share in shares()) {
            prop_assert_eq!(Share::decode(&share.encode()), Ok(share));
        }

        /// The id is the same for every order of the members, and decodes to their sorted list.
        #[test]
        fn an_id_does_not_depend_on_the_order_of_members(
            (kind, need) in kinds(),
            mut members in vec(strategy::process(), 0..8),
        ) {
            let id = GatherId::new(&kind, need, &members);
            members.reverse();
            prop_assert_eq!(&GatherId::new(&kind, need, &members), &id);
            members.sort_unstable();
            members.dedup();
            prop_assert_eq!(id.decode(), Ok((kind, need, members)));
        }

        #[test]
        fn bytes_are_a_share_or_are_refused(bytes in vec(any::<u8>(), 0..100)) {
            let _ = Share::decode(&bytes);
            let _ = GatherId(bytes.into()).decode();
        }
    }
}
