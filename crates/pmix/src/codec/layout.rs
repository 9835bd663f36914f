//! The fields of structures that nobody here looks into, so that they can be read past, kept and written again.
//!
//! Source: `docs/formats/pmix.md`, section 5.4; of the kinds 61 to 64 the OpenPMIx 5.0 sources, of the retired ones (29, 44)
//! those of OpenPMIx 2.2 and 3.2, because no program was seen to send one.

use crate::value::DataType;

/// One field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    One(DataType),
    /// A SIZE, then so many values.
    Sized(DataType),
    /// An INT32, then so many values.
    Counted(DataType),
}

use DataType as T;
use Field::{Counted, One, Sized};

/// The fields of a structure in their order, when it is one of these.
#[must_use]
pub const fn layout(kind: DataType) -> Option<&'static [Field]> {
    Some(match kind {
        // The C structure has a process as well, which is not transmitted.
        T::MODEX => &[Sized(T::BYTE)],
        T::INFO_ARRAY => &[Sized(T::INFO)],
        T::COORD => &[One(T::UINT8), Sized(T::UINT32)],
        T::REGATTR => &[
            One(T::STRING),
            One(T::STRING),
            One(T::DATA_TYPE),
            Counted(T::STRING),
        ],
        T::GEOMETRY => &[
            One(T::SIZE),
            One(T::STRING),
            One(T::STRING),
            Sized(T::COORD),
        ],
        T::DEVICE_DIST => &[
            One(T::STRING),
            One(T::STRING),
            One(T::DEVTYPE),
            One(T::UINT16),
            One(T::UINT16),
        ],
        T::ENDPOINT => &[One(T::STRING), One(T::STRING), Sized(T::BYTE)],
        T::PROC_STATS => &[
            One(T::STRING),
            One(T::PROC),
            One(T::PID),
            One(T::STRING),
            One(T::BYTE),
            One(T::TIMEVAL),
            One(T::INT32),
            One(T::INT16),
            One(T::FLOAT),
            One(T::FLOAT),
            One(T::FLOAT),
            One(T::INT16),
            One(T::TIMEVAL),
        ],
        T::DISK_STATS => &[
            One(T::STRING),
            One(T::UINT64),
            One(T::UINT64),
            One(T::UINT64),
            One(T::UINT64),
            One(T::UINT64),
            One(T::UINT64),
            One(T::UINT64),
            One(T::UINT64),
            One(T::UINT64),
            One(T::UINT64),
            One(T::UINT64),
        ],
        T::NET_STATS => &[
            One(T::STRING),
            One(T::UINT64),
            One(T::UINT64),
            One(T::UINT64),
            One(T::UINT64),
            One(T::UINT64),
            One(T::UINT64),
        ],
        T::NODE_STATS => &[
            One(T::STRING),
            One(T::FLOAT),
            One(T::FLOAT),
            One(T::FLOAT),
            One(T::FLOAT),
            One(T::FLOAT),
            One(T::FLOAT),
            One(T::FLOAT),
            One(T::FLOAT),
            One(T::FLOAT),
            One(T::FLOAT),
            One(T::FLOAT),
            One(T::TIMEVAL),
            Sized(T::DISK_STATS),
            Sized(T::NET_STATS),
        ],
        T::DEVICE => &[One(T::STRING), One(T::STRING), One(T::DEVTYPE)],
        T::RESOURCE_UNIT => &[One(T::DEVTYPE), One(T::SIZE)],
        T::NODE_PID => &[One(T::STRING), One(T::UINT32), One(T::PID)],
        _ => return None,
    })
}
