//! Values of every type, for the property tests of codec and messages.
//!
//! All of them decode to the value that was encoded. Values that do not have tests of their own: numbers with more digits than
//! are encoded, and arrays of nothing.

use std::ffi::{CStr, CString};

use bytes::Bytes;
use proptest::{collection::vec, option, prelude::*};

use crate::codec::layout::{Field, layout};
use crate::value::{
    AllocDirective, App, DataArray, DataType, Elements, Envar, Info, InfoFlags, IofChannels,
    JobState, Key, Kval, Nspace, Packed, Pdata, Persistence, PmixRank, Proc, ProcInfo, ProcState,
    Query, Range, Record, Scope, Status, Text, Timeval, Topology, Value,
};

/// Deepest nesting of generated values; the codec allows more.
const DEPTH: u32 = 3;

/// Types whose encoding is a list of fields.
pub(crate) const RECORDS: [DataType; 14] = [
    DataType::MODEX,
    DataType::INFO_ARRAY,
    DataType::COORD,
    DataType::REGATTR,
    DataType::GEOMETRY,
    DataType::DEVICE_DIST,
    DataType::ENDPOINT,
    DataType::PROC_STATS,
    DataType::DISK_STATS,
    DataType::NET_STATS,
    DataType::NODE_STATS,
    DataType::DEVICE,
    DataType::RESOURCE_UNIT,
    DataType::NODE_PID,
];

/// Generates any C string of at most `max` bytes.
fn c_string(max: usize) -> impl Strategy<Value = CString> {
    vec(1..=u8::MAX, 0..=max).prop_map(|bytes| CString::new(bytes).unwrap())
}

pub(crate) fn text() -> impl Strategy<Value = Text> {
    option::of(c_string(20))
}

pub(crate) fn key() -> impl Strategy<Value = Key> {
    c_string(511).prop_map(|name| Key::new(&name).unwrap())
}

pub(crate) fn nspace() -> impl Strategy<Value = Nspace> {
    c_string(255).prop_map(|name| Nspace::new(&name).unwrap())
}

pub(crate) fn rank() -> impl Strategy<Value = PmixRank> {
    prop_oneof![0..4_u32, u32::MAX - 5..=u32::MAX, any::<u32>()].prop_map(PmixRank)
}

pub(crate) fn process() -> impl Strategy<Value = Proc> {
    (nspace(), rank()).prop_map(|(nspace, rank)| Proc { nspace, rank })
}

pub(crate) fn status() -> impl Strategy<Value = Status> {
    prop_oneof![-500..=0_i32, any::<i32>()].prop_map(Status)
}

pub(crate) fn opaque() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..20).prop_map(Bytes::from)
}

/// Generates numbers that are exact in decimal with six places.
fn sixty_fourths() -> impl Strategy<Value = f64> {
    any::<i16>().prop_map(|number| f64::from(number) / 64.0)
}

/// Generates each form of a compressed list.
fn regex() -> impl Strategy<Value = Value> {
    let strings = prop_oneof![
        Just("raw:node1,node2\0".to_owned()),
        Just("pmix[node[1:1-4]]\0".to_owned()),
        Just("\0".to_owned()),
    ]
    .prop_map(String::into_bytes);
    let blobs = opaque().prop_map(|data| {
        let mut bytes = b"blob:\0component=zlib:\0".to_vec();
        bytes.extend_from_slice(format!("size={}:\0", data.len()).as_bytes());
        bytes.extend_from_slice(&data);
        bytes
    });
    prop_oneof![strings, blobs].prop_map(|bytes| Value::Regex(bytes.into()))
}

fn numbers() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<bool>().prop_map(Value::Bool),
        any::<u8>().prop_map(Value::Byte),
        any::<u64>().prop_map(Value::Size),
        any::<u32>().prop_map(Value::Pid),
        any::<i32>().prop_map(Value::Int),
        any::<i8>().prop_map(Value::Int8),
        any::<i16>().prop_map(Value::Int16),
        any::<i32>().prop_map(Value::Int32),
        any::<i64>().prop_map(Value::Int64),
        any::<u32>().prop_map(Value::Uint),
        any::<u8>().prop_map(Value::Uint8),
        any::<u16>().prop_map(Value::Uint16),
        any::<u32>().prop_map(Value::Uint32),
        any::<u64>().prop_map(Value::Uint64),
        any::<i16>().prop_map(|number| Value::Float(f32::from(number) / 64.0)),
        sixty_fourths().prop_map(Value::Double),
        (any::<i64>(), any::<i64>()).prop_map(|(sec, usec)| Value::Timeval(Timeval { sec, usec })),
        any::<u64>().prop_map(Value::Time),
    ]
}

fn small_sets() -> impl Strategy<Value = Value> {
    prop_oneof![
        status().prop_map(Value::Status),
        any::<u8>().prop_map(|number| Value::Persistence(Persistence(number))),
        any::<u8>().prop_map(Value::Pointer),
        any::<u8>().prop_map(|number| Value::Scope(Scope(number))),
        any::<u8>().prop_map(|number| Value::Range(Range(number))),
        any::<u8>().prop_map(Value::Command),
        any::<u32>().prop_map(|number| Value::InfoFlags(InfoFlags(number))),
        any::<u16>().prop_map(|number| Value::DataType(DataType(number))),
        any::<u8>().prop_map(|number| Value::ProcState(ProcState(number))),
        rank().prop_map(Value::Rank),
        any::<u8>().prop_map(|number| Value::AllocDirective(AllocDirective(number))),
        any::<u16>().prop_map(|number| Value::IofChannels(IofChannels(number))),
        any::<u8>().prop_map(|number| Value::JobState(JobState(number))),
        any::<u8>().prop_map(Value::LinkState),
        any::<u64>().prop_map(Value::Devtype),
        any::<u16>().prop_map(Value::Loctype),
        any::<u64>().prop_map(Value::StorMedium),
        any::<u64>().prop_map(Value::StorAccess),
        any::<u64>().prop_map(Value::StorPersist),
        any::<u16>().prop_map(Value::StorAccessType),
        any::<u8>().prop_map(Value::ResblockDirective),
    ]
}

fn texts_and_bytes() -> impl Strategy<Value = Value> {
    prop_oneof![
        text().prop_map(Value::String),
        text().prop_map(Value::Cpuset),
        text().prop_map(Value::Nspace),
        process().prop_map(|proc| Value::Proc(Box::new(proc))),
        packed().prop_map(Value::Buffer),
        opaque().prop_map(Value::ByteObject),
        opaque().prop_map(Value::CompressedString),
        opaque().prop_map(Value::CompressedByteObject),
        opaque().prop_map(Value::DataBuffer),
        regex(),
        (text(), text(), any::<u8>()).prop_map(|(name, value, separator)| {
            Value::Envar(Box::new(Envar {
                name,
                value,
                separator,
            }))
        }),
        (process(), text(), text(), any::<u32>(), any::<u8>()).prop_map(
            |(proc, hostname, executable, pid, state)| {
                Value::ProcInfo(Box::new(ProcInfo {
                    proc,
                    hostname,
                    executable,
                    pid,
                    state: ProcState(state),
                }))
            }
        ),
        topology().prop_map(|topology| Value::Topology(Box::new(topology))),
    ]
}

fn topology() -> impl Strategy<Value = Topology> {
    let some = (c_string(20), vec(any::<u8>(), 32)).prop_map(|(xml, support)| Topology {
        xml: Some(xml),
        support: support.into(),
    });
    let none = Just(Topology {
        xml: None,
        support: Bytes::new(),
    });
    prop_oneof![some, none]
}

pub(crate) fn packed() -> impl Strategy<Value = Packed> {
    (any::<u8>(), opaque()).prop_map(|(kind, bytes)| Packed { kind, bytes })
}

/// Generates values that contain no others.
fn leaves() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Undef),
        numbers(),
        small_sets(),
        texts_and_bytes()
    ]
}

/// Generates values of every type.
pub(crate) fn value() -> impl Strategy<Value = Value> {
    leaves().prop_recursive(DEPTH, 24, 4, |inner| {
        let infos = || vec(info_of(inner.clone()), 0..3);
        prop_oneof![
            inner
                .clone()
                .prop_map(|value| Value::Value(Box::new(value))),
            info_of(inner.clone()).prop_map(|info| Value::Info(Box::new(info))),
            (key(), inner.clone())
                .prop_map(|(key, value)| Value::Kval(Box::new(Kval { key, value }))),
            (process(), key(), inner.clone())
                .prop_map(|(proc, key, value)| Value::Pdata(Box::new(Pdata { proc, key, value }))),
            app_of(infos()).prop_map(|app| Value::App(Box::new(app))),
            query_of(infos()).prop_map(|query| Value::Query(Box::new(query))),
            infos().prop_map(Value::infos),
            (inner.clone(), 0..4_usize).prop_map(|(value, count)| array(&value, count)),
            proptest::sample::select(&RECORDS[..])
                .prop_flat_map(move |kind| record(kind, inner.clone())),
        ]
    })
}

/// Creates an array of one value repeated, so that all elements have one type.
fn array(value: &Value, count: usize) -> Value {
    let kind = value.kind();
    let elements = match value {
        Value::Undef => return Value::array(DataType::BOOL, Vec::new()),
        Value::Byte(byte) | Value::Uint8(byte) => Elements::Bytes(vec![*byte; count].into()),
        value => Elements::Values(vec![value.clone(); count]),
    };
    Value::Array(Box::new(DataArray { kind, elements }))
}

/// Generates records with all their fields.
fn record(
    kind: DataType,
    inner: impl Strategy<Value = Value> + Clone + 'static,
) -> BoxedStrategy<Value> {
    let fields: Vec<BoxedStrategy<Value>> = layout(kind)
        .unwrap()
        .iter()
        .map(|field| match *field {
            Field::One(kind) => of_kind(kind),
            Field::Sized(DataType::INFO) | Field::Counted(DataType::INFO) => {
                vec(info_of(inner.clone()), 0..3)
                    .prop_map(Value::infos)
                    .boxed()
            }
            Field::Sized(kind @ (DataType::COORD | DataType::DISK_STATS | DataType::NET_STATS)) => {
                vec(record(kind, inner.clone()), 0..3)
                    .prop_map(move |values| Value::array(kind, values))
                    .boxed()
            }
            Field::Sized(kind) | Field::Counted(kind) => (of_kind(kind), 0..4_usize)
                .prop_map(|(value, count)| array(&value, count))
                .boxed(),
        })
        .collect();
    fields
        .prop_map(move |fields| Value::Record(Box::new(Record { kind, fields })))
        .boxed()
}

/// Generates values of one of the types that occur in records.
fn of_kind(kind: DataType) -> BoxedStrategy<Value> {
    match kind {
        DataType::BYTE => any::<u8>().prop_map(Value::Byte).boxed(),
        DataType::UINT8 => any::<u8>().prop_map(Value::Uint8).boxed(),
        DataType::INT16 => any::<i16>().prop_map(Value::Int16).boxed(),
        DataType::INT32 => any::<i32>().prop_map(Value::Int32).boxed(),
        DataType::UINT16 => any::<u16>().prop_map(Value::Uint16).boxed(),
        DataType::UINT32 => any::<u32>().prop_map(Value::Uint32).boxed(),
        DataType::UINT64 => any::<u64>().prop_map(Value::Uint64).boxed(),
        DataType::SIZE => any::<u64>().prop_map(Value::Size).boxed(),
        DataType::PID => any::<u32>().prop_map(Value::Pid).boxed(),
        DataType::FLOAT => any::<i16>()
            .prop_map(|number| Value::Float(f32::from(number) / 64.0))
            .boxed(),
        DataType::TIMEVAL => (any::<i64>(), any::<i64>())
            .prop_map(|(sec, usec)| Value::Timeval(Timeval { sec, usec }))
            .boxed(),
        DataType::DATA_TYPE => any::<u16>()
            .prop_map(|number| Value::DataType(DataType(number)))
            .boxed(),
        DataType::DEVTYPE => any::<u64>().prop_map(Value::Devtype).boxed(),
        DataType::STRING => text().prop_map(Value::String).boxed(),
        DataType::PROC => process()
            .prop_map(|proc| Value::Proc(Box::new(proc)))
            .boxed(),
        other => panic!("no record has a field of kind {other:?}"),
    }
}

fn info_of(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Info> {
    (key(), any::<u32>(), value).prop_map(|(key, flags, value)| Info {
        key,
        flags: InfoFlags(flags),
        value,
    })
}

fn app_of(infos: impl Strategy<Value = Vec<Info>>) -> impl Strategy<Value = App> {
    let texts = || vec(text(), 0..3);
    (text(), texts(), texts(), text(), any::<i32>(), infos).prop_map(
        |(command, argv, env, cwd, maxprocs, info)| App {
            command,
            argv,
            env,
            cwd,
            maxprocs,
            info,
        },
    )
}

fn query_of(infos: impl Strategy<Value = Vec<Info>>) -> impl Strategy<Value = Query> {
    (vec(text(), 0..3), infos).prop_map(|(keys, qualifiers)| Query { keys, qualifiers })
}

pub(crate) fn info() -> impl Strategy<Value = Info> {
    info_of(value())
}

pub(crate) fn kval() -> impl Strategy<Value = Kval> {
    (key(), value()).prop_map(|(key, value)| Kval { key, value })
}

pub(crate) fn pdata() -> impl Strategy<Value = Pdata> {
    (process(), key(), value()).prop_map(|(proc, key, value)| Pdata { proc, key, value })
}

pub(crate) fn app() -> impl Strategy<Value = App> {
    app_of(vec(info(), 0..3))
}

pub(crate) fn query() -> impl Strategy<Value = Query> {
    query_of(vec(info(), 0..3))
}

/// Generates short lists.
pub(crate) fn some<T: std::fmt::Debug>(
    strategy: impl Strategy<Value = T>,
) -> impl Strategy<Value = Vec<T>> {
    vec(strategy, 0..3)
}

/// Creates a key from text.
pub(crate) fn named(name: &CStr) -> Key {
    Key::new(name).unwrap()
}
