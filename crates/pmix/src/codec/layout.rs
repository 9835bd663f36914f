//! The fields of structures that are decoded only to be skipped, kept or encoded again.
//!
//! Source: `docs/formats/pmix.md`, section 5.4. No program was seen to send types 61 to 64 or the retired types 29 and 44. Their
//! sources are OpenPMIx 5.0, and OpenPMIx 2.2 and 3.2, respectively.

use crate::value::DataType;

/// Field of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    One(DataType),
    /// A SIZE, then that many values.
    Sized(DataType),
    /// An INT32, then that many values.
    Counted(DataType),
}

use DataType as T;
use Field::{Counted, One, Sized};

/// Returns the fields of a structure in wire order; `None` if the type is not one of these structures.
#[must_use]
pub const fn layout(kind: DataType) -> Option<&'static [Field]> {
    Some(match kind {
        // The C structure also has a process, which is not transmitted.
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
