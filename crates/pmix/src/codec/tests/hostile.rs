//! Hostile input: false lengths, and unbounded nesting.

use super::{FORMATS, read, written};
use crate::{
    Bound, Error, Malformed,
    codec::{Format, Int, MAX_DEPTH, Reader, Size, Text, Wire, Writer},
    tests::strategy,
    value::{App, DataArray, DataType, Info, Kval, Packed, Query, Record, Status, Value},
};

/// Decodes a value whose first field is a false count, and returns the error. This allocates nothing for the announced elements,
/// which have not arrived.
fn announced<T: Wire + std::fmt::Debug>(format: Format, head: impl FnOnce(&mut Writer)) -> Error {
    let mut writer = Writer::new(format);
    head(&mut writer);
    writer.raw(&[1; 40]);
    T::read(&mut Reader::new(format, writer.as_bytes())).unwrap_err()
}

#[test]
fn a_short_message_may_announce_what_it_likes() {
    const MUCH: [u64; 4] = [41, 1 << 31, 1 << 60, u64::MAX];
    let truncated = Error::malformed(Malformed::Truncated);
    for (format, much) in FORMATS
        .into_iter()
        .flat_map(|format| MUCH.map(|much| (format, much)))
    {
        assert_eq!(
            announced::<bytes::Bytes>(format, |writer| Size(much).write(writer)),
            truncated
        );
        assert_eq!(
            announced::<Packed>(format, |writer| {
                1_u8.write(writer);
                Size(much).write(writer);
            }),
            truncated
        );
        for kind in [
            DataType::BYTE,
            DataType::BOOL,
            DataType::INFO,
            DataType::DATA_ARRAY,
        ] {
            let error = announced::<DataArray>(format, |writer| {
                kind.write(writer);
                Size(much).write(writer);
            });
            assert_eq!(error, truncated, "{kind:?}");
        }
        for kind in [
            DataType::MODEX,
            DataType::INFO_ARRAY,
            DataType::COORD,
            DataType::ENDPOINT,
            DataType::GEOMETRY,
        ] {
            let error = announced::<Value>(format, |writer| {
                kind.write(writer);
                match kind {
                    DataType::COORD => 0_u8.write(writer),
                    DataType::GEOMETRY => Size(0).write(writer),
                    _ => {}
                }
                if matches!(kind, DataType::ENDPOINT | DataType::GEOMETRY) {
                    Text::None.write(writer);
                    Text::None.write(writer);
                }
                Size(much).write(writer);
            });
            assert_eq!(error, truncated, "{kind:?}");
        }
        assert_eq!(
            announced::<App>(format, |writer| {
                Text::None.write(writer);
                Int(0).write(writer);
                0_i32.write(writer);
                Text::None.write(writer);
                Int(1).write(writer);
                Size(much).write(writer);
            }),
            truncated
        );
        assert_eq!(
            announced::<Query>(format, |writer| {
                0_i32.write(writer);
                Size(much).write(writer);
            }),
            truncated
        );
        // A list has its count twice. The count of the item, which follows, is smaller.
        let mut writer = Writer::new(format);
        writer.item(&Size(much));
        let items = writer.as_bytes().len();
        writer.items(&[Status::SUCCESS; 3]);
        let mut reader = Reader::new(format, writer.as_bytes());
        assert_eq!(
            reader.list::<Status>(),
            Err(Error::malformed(Malformed::WrongCount)),
            "{items}"
        );
    }
}

#[test]
fn the_counts_that_are_signed_may_not_be_negative_nor_more_than_there_is() {
    for format in FORMATS {
        for (count, what) in [
            (-1, Malformed::NegativeCount),
            (i32::MIN, Malformed::NegativeCount),
            (i32::MAX, Malformed::Truncated),
        ] {
            let expected = Error::malformed(what);
            assert_eq!(
                announced::<Text>(format, |writer| count.write(writer)),
                expected
            );
            assert_eq!(
                announced::<Query>(format, |writer| count.write(writer)),
                expected
            );
            assert_eq!(
                announced::<App>(format, |writer| {
                    Text::None.write(writer);
                    Int(count).write(writer);
                }),
                expected
            );
            assert_eq!(
                announced::<App>(format, |writer| {
                    Text::None.write(writer);
                    Int(0).write(writer);
                    count.write(writer);
                }),
                expected
            );
            assert_eq!(
                announced::<Value>(format, |writer| {
                    DataType::REGATTR.write(writer);
                    Text::None.write(writer);
                    Text::None.write(writer);
                    DataType::BOOL.write(writer);
                    count.write(writer);
                }),
                expected
            );
        }
    }
    // The count of an item.
    for (digits, what) in [
        (&[0x01][..], Malformed::NegativeCount),
        (&[0xfe, 0xff, 0xff, 0xff, 0x0f, 0], Malformed::Truncated),
        (
            &[0xfe, 0xff, 0xff, 0xff, 0x1f, 0],
            Malformed::NumberTooLarge,
        ),
        (&[0x80; 12], Malformed::NumberTooLarge),
        (&[0x80; 8], Malformed::Truncated),
    ] {
        let got = Reader::new(Format::V4, digits).items::<u8>();
        assert_eq!(got, Err(Error::malformed(what)), "{digits:02x?}");
    }
}

/// Wraps a value in this many levels.
fn nested(levels: u64, wrap: impl Fn(Value) -> Value) -> Value {
    (0..levels).fold(Value::Bool(true), |value, _| wrap(value))
}

#[test]
fn values_inside_values_end_at_a_depth() {
    let kval = |value| Kval {
        key: strategy::named(c"k"),
        value,
    };
    type Wrap = fn(Value) -> Value;
    let wraps: [(&str, Wrap); 6] = [
        ("value", |value| Value::Value(Box::new(value))),
        ("info", |value| {
            Value::Info(Box::new(Info::new(strategy::named(c"k"), value)))
        }),
        ("array", |value| Value::array(value.kind(), vec![value])),
        ("array of infos", |value| {
            Value::infos(vec![Info::new(strategy::named(c"k"), value)])
        }),
        ("app", |value| {
            let info = vec![Info::new(strategy::named(c"k"), value)];
            Value::App(Box::new(App {
                info,
                ..App::default()
            }))
        }),
        ("record", |value| {
            let infos = Value::infos(vec![Info::new(strategy::named(c"k"), value)]);
            let record = Record {
                kind: DataType::INFO_ARRAY,
                fields: vec![infos],
            };
            Value::Record(Box::new(record))
        }),
    ];
    for format in FORMATS {
        for (name, wrap) in wraps {
            // The deepest nesting seen from a real program.
            let fair = written(format, &kval(nested(5, wrap)));
            assert!(read::<Kval>(format, &fair).is_ok(), "{name}");
            // Unlimited nesting would overflow the stack.
            for levels in [MAX_DEPTH + 1, 500] {
                let deep = written(format, &kval(nested(levels, wrap)));
                let refused = read::<Kval>(format, &deep);
                let expected = Error::Limit {
                    which: Bound::Depth,
                    value: MAX_DEPTH + 1,
                };
                assert_eq!(refused, Err(expected), "{name}");
            }
        }
    }
}

#[test]
fn the_depth_is_counted_along_one_path_only() {
    let flat = Value::infos(vec![
        Info::new(
            strategy::named(c"k"),
            nested(3, |value| Value::Value(Box::new(value)))
        );
        100
    ]);
    for format in FORMATS {
        let bytes = written(format, &flat);
        assert_eq!(read::<Value>(format, &bytes).as_ref(), Ok(&flat));
    }
}

#[test]
fn a_byte_of_a_message_takes_no_more_than_forty_bytes_of_memory() {
    // An info has the highest ratio of memory to bytes: four bytes with an empty key. A list holds it behind a pointer, and its
    // key is allocated with two reference counts.
    let bytes = written(Format::V4, &Info::new(strategy::named(c""), Value::Undef));
    let memory = size_of::<Value>() + size_of::<Info>() + 3 * size_of::<usize>();
    assert!(memory <= 40 * (bytes.len() - 1), "{memory}");
    // Among the structures that a list holds by value, these have the highest ratio.
    for (memory, bytes) in [
        (size_of::<App>(), written(Format::V4, &App::default())),
        (size_of::<Query>(), written(Format::V4, &Query::default())),
    ] {
        assert!(memory <= 40 * (bytes.len() - 1), "{memory}");
    }
}

#[test]
fn names_end_at_their_bounds() {
    for (length, which) in [(255, Bound::Nspace), (511, Bound::PmixKey)] {
        for more in 0..2 {
            let name = std::ffi::CString::new(vec![b'n'; length + more]).unwrap();
            let bytes = written(Format::V4, &Some(name));
            let refused = match which {
                Bound::Nspace => read::<crate::value::Nspace>(Format::V4, &bytes).err(),
                _ => read::<crate::value::Key>(Format::V4, &bytes).err(),
            };
            let value = (length + more) as u64;
            let expected = (more == 1).then_some(Error::Limit { which, value });
            assert_eq!(refused, expected);
        }
    }
}
