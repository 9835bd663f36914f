//! Values with their bytes, as unmodified libraries encode them. Section numbers refer to `docs/formats/pmix.md`.

use std::ffi::CString;

use bytes::Bytes;

use super::{FORMATS, read, written};
use crate::{
    Error, Malformed,
    codec::{
        Family, Format, Int, Items, Pid, Reader, Size, Text, Time, Wire, Writer, layout::layout,
    },
    tests::strategy,
    value::{
        DataArray, DataType, Elements, Envar, Info, InfoFlags, PmixRank, Proc, Record, Status,
        Timeval, Topology, Value,
    },
};

/// Returns the bytes of a value as a field of a structure.
fn field<T: Wire>(format: Format, value: &T) -> String {
    let mut writer = Writer::new(format);
    value.write(&mut writer);
    hex(writer.as_bytes())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(digits: &str) -> Vec<u8> {
    let digits: String = digits.split_whitespace().collect();
    (0..digits.len() / 2)
        .map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap())
        .collect()
}

fn text(text: &str) -> Text {
    Some(CString::new(text).unwrap())
}

/// Checks the bytes of a value with its type in both families.
#[track_caller]
fn both(value: &Value, flex: &str, fixed: &str) {
    for (format, expected) in [(Format::V4, flex), (Format::V3, fixed)] {
        let expected = unhex(expected);
        assert_eq!(field(format, value), hex(&expected), "{value:?}");
        let mut reader = Reader::new(format, &expected);
        assert_eq!(&Value::read(&mut reader).unwrap(), value);
        assert!(reader.is_empty());
    }
}

#[test]
fn unsigned_numbers_are_squeezed_to_seven_bits_a_byte() {
    // Section 5.2: at most nine bytes, and the ninth carries eight bits.
    for (number, bytes) in [
        (0_u64, "00"),
        (1, "01"),
        (127, "7f"),
        (128, "8001"),
        (300, "ac02"),
        (16_383, "ff7f"),
        (16_384, "808001"),
        (u64::from(u32::MAX), "ffffffff0f"),
        ((1 << 56) - 1, "ffffffffffffff7f"),
        (1 << 56, "808080808080808001"),
        (1 << 63, "808080808080808080"),
        (u64::MAX, "ffffffffffffffffff"),
    ] {
        assert_eq!(field(Format::V4, &number), bytes);
        let bytes = unhex(bytes);
        assert_eq!(u64::read(&mut Reader::new(Format::V4, &bytes)), Ok(number));
    }
}

#[test]
fn signed_numbers_have_their_sign_in_the_lowest_bit() {
    for (number, bytes) in [
        (0_i64, "00"),
        (-1, "01"),
        (1, "02"),
        (-2, "03"),
        (63, "7e"),
        (-64, "7f"),
        (300, "d804"),
        (-200, "8f03"),
        (-402, "a306"),
        (i64::from(i32::MIN), "ffffffff0f"),
        (i64::MAX, "feffffffffffffffff"),
        (i64::MIN, "ffffffffffffffffff"),
    ] {
        assert_eq!(field(Format::V4, &number), bytes);
        let bytes = unhex(bytes);
        assert_eq!(i64::read(&mut Reader::new(Format::V4, &bytes)), Ok(number));
    }
}

#[test]
fn a_number_that_is_longer_than_it_need_be_is_the_same_number() {
    for bytes in ["8000", "808000", "808080808080808000"] {
        let bytes = unhex(bytes);
        let mut reader = Reader::new(Format::V4, &bytes);
        assert_eq!(u32::read(&mut reader), Ok(0));
        assert!(reader.is_empty());
    }
}

#[test]
fn a_number_too_large_for_its_kind_is_refused() {
    fn refused<T: Wire + PartialEq + std::fmt::Debug>(digits: &str) {
        let bytes = unhex(digits);
        let expected = Err(Error::malformed(Malformed::NumberTooLarge));
        assert_eq!(T::read(&mut Reader::new(Format::V4, &bytes)), expected);
    }
    // One above the maximum, and one below the minimum.
    refused::<u16>("808004");
    refused::<u32>("8080808010");
    refused::<i16>("808004");
    refused::<i16>("818004");
    refused::<i32>("8080808010");
    refused::<i32>("8180808010");
    refused::<PmixRank>("8080808010");
    // A valid type, then a number that is not a valid PID.
    refused::<Pid>("0a01");
    refused::<Pid>("0f8080808010");
}

#[test]
fn items_have_a_count_and_values_in_them_have_none() {
    // Section 5.3.
    assert_eq!(hex(&written(Format::V4, &Status::SUCCESS)), "0200");
    assert_eq!(hex(&written(Format::V4, &Size(1))), "0201");
    let mut writer = Writer::new(Format::V4);
    writer.items(&[Status(-200), Status(-402)]);
    assert_eq!(hex(writer.as_bytes()), "048f03a306");
    let mut reader = Reader::new(Format::V4, writer.as_bytes());
    assert_eq!(
        reader.clone().item::<Status>(),
        Err(Error::malformed(Malformed::WrongCount))
    );
    assert_eq!(reader.items(), Ok(vec![Status(-200), Status(-402)]));
    // Empty lists: `items` appends nothing, `list` appends only its count.
    let mut writer = Writer::new(Format::V4);
    writer.items::<Status>(&[]);
    writer.list::<Status>(&[]);
    assert_eq!(hex(writer.as_bytes()), "0200");
}

#[test]
fn described_items_say_the_kind_of_their_count_and_of_their_values() {
    let flex = Format {
        family: Family::Flex,
        items: Items::Described,
    };
    assert_eq!(
        hex(&written(flex, &Status(-200))),
        "09 02 14 8f03".replace(' ', "")
    );
    let fixed = Format {
        family: Family::Fixed,
        items: Items::Described,
    };
    let expected = "0009 00000001 0014 ffffff38".replace(' ', "");
    assert_eq!(hex(&written(fixed, &Status(-200))), expected);
    let another = written(flex, &Size(1));
    assert_eq!(
        read::<Status>(flex, &another),
        Err(Error::malformed(Malformed::WrongKind {
            expected: DataType::STATUS,
            got: DataType::SIZE
        }))
    );
    // A plain item where a described one is expected: its count is taken for a type.
    let plain = written(Format::V4, &Status(-200));
    assert!(matches!(
        read::<Status>(flex, &plain),
        Err(Error::Malformed {
            what: Malformed::WrongKind {
                expected: DataType::INT32,
                ..
            }
        })
    ));
}

#[test]
fn numbers_of_every_kind() {
    both(&Value::Undef, "00", "0000");
    both(&Value::Bool(true), "01 01", "0001 01");
    both(&Value::Byte(0xfe), "02 fe", "0002 fe");
    both(&Value::Int8(-2), "07 fe", "0007 fe");
    both(&Value::Int16(-2), "08 03", "0008 fffe");
    both(&Value::Int32(-200), "09 8f03", "0009 ffffff38");
    both(&Value::Int64(300), "0a d804", "000a 000000000000012c");
    both(&Value::Uint8(9), "0c 09", "000c 09");
    both(&Value::Uint16(300), "0d ac02", "000d 012c");
    both(&Value::Uint32(u32::MAX), "0e ffffffff0f", "000e ffffffff");
    both(
        &Value::Uint64(u64::MAX),
        "0f ffffffffffffffffff",
        "000f ffffffffffffffff",
    );
    both(&Value::Time(1), "13 01", "0013 0000000000000001");
    both(&Value::Status(Status(-46)), "14 5b", "0014 ffffffd2");
    both(
        &Value::Rank(PmixRank::WILDCARD),
        "28 feffffff0f",
        "0028 fffffffe",
    );
    let value = Value::Timeval(Timeval { sec: 5, usec: 7 });
    both(&value, "12 0a 0e", "0012 0000000000000005 0000000000000007");
}

#[test]
fn numbers_of_the_machines_size_say_their_kind_in_version_3() {
    // Section 5.7. A PID includes its type in every version, and a UINT is encoded as an INT.
    both(&Value::Size(300), "04 ac02", "0004 000f 000000000000012c");
    both(&Value::Int(-1), "06 01", "0006 0009 ffffffff");
    both(&Value::Uint(300), "0b d804", "000b 0009 0000012c");
    both(&Value::Uint(u32::MAX), "0b 01", "000b 0009 ffffffff");
    both(&Value::Pid(300), "05 0e ac02", "0005 000e 0000012c");
    // Any other integer type is accepted if the number fits.
    for (digits, pid) in [
        ("0f05", 5),
        ("0b05", 0),
        ("0a0a", 5),
        ("0d05", 5),
        ("0c05", 5),
        ("070a", 10),
    ] {
        let bytes = unhex(digits);
        let expected = if pid == 0 {
            Err(Error::malformed(Malformed::WrongKind {
                expected: DataType::INT64,
                got: DataType::UINT,
            }))
        } else {
            Ok(Pid(pid))
        };
        assert_eq!(
            Pid::read(&mut Reader::new(Format::V4, &bytes)),
            expected,
            "{digits}"
        );
    }
    let long = unhex("000a 0000000000000005");
    assert_eq!(Int::read(&mut Reader::new(Format::V3, &long)), Ok(Int(5)));
    let long = unhex("0009 ffffffff");
    let refused = Err(Error::malformed(Malformed::NumberTooLarge));
    assert_eq!(Size::read(&mut Reader::new(Format::V3, &long)), refused);
    assert_eq!(field(Format::V3, &Time(1)), "0000000000000001");
}

#[test]
fn a_string_that_is_absent_is_another_than_an_empty_one() {
    both(&Value::String(None), "03 00", "0003 00000000");
    both(&Value::String(text("")), "03 02 00", "0003 00000001 00");
    both(
        &Value::String(text("ab")),
        "03 06 616200",
        "0003 00000003 616200",
    );
    for (digits, what) in [
        ("0261", Malformed::NoNul),
        ("046161", Malformed::NoNul),
        ("06610000", Malformed::InnerNul),
        ("01", Malformed::NegativeCount),
        ("0661", Malformed::Truncated),
    ] {
        let bytes = unhex(digits);
        let got = Text::read(&mut Reader::new(Format::V4, &bytes));
        assert_eq!(got, Err(Error::malformed(what)), "{digits}");
    }
}

#[test]
fn floating_numbers_travel_as_text_with_six_places() {
    both(
        &Value::Double(3.25),
        "11 12 332e32353030303000",
        "0011 00000009 332e32353030303000",
    );
    both(
        &Value::Float(-0.5),
        "10 14 2d302e35303030303000",
        "0010 0000000a 2d302e35303030303000",
    );
    for (number, text) in [
        (0.1, "0.100000"),
        (1e-7, "0.000000"),
        (-1e-7, "-0.000000"),
        (1e20, "100000000000000000000.000000"),
        (f64::INFINITY, "inf"),
        (f64::NEG_INFINITY, "-inf"),
        (f64::NAN, "nan"),
    ] {
        let bytes = written(Format::V4, &Value::Double(number));
        assert_eq!(&bytes[3..bytes.len() - 1], text.as_bytes());
        let Ok(Value::Double(again)) = read(Format::V4, &bytes) else {
            panic!("{text} is a number");
        };
        assert!(
            (again - number).abs() < 1e-6 || again.total_cmp(&number).is_eq(),
            "{text}"
        );
    }
    for text in ["", "x", "1.0 2", "0x1p3"] {
        let mut writer = Writer::new(Format::V4);
        DataType::DOUBLE.write(&mut writer);
        self::text(text).write(&mut writer);
        let got = Value::read(&mut Reader::new(Format::V4, writer.as_bytes()));
        assert_eq!(got, Err(Error::malformed(Malformed::NotANumber)), "{text}");
    }
    let absent = unhex("1100");
    let got = Value::read(&mut Reader::new(Format::V4, &absent));
    assert_eq!(got, Err(Error::malformed(Malformed::NotANumber)));
}

#[test]
fn compressed_lists_end_by_their_own_form() {
    // Section 5.6.
    let forms: [&[u8]; 5] = [
        b"raw:node1,node2\0",
        b"pmix[node[1:1-4]]\0",
        b"\0",
        b"blob:\0component=zlib:\0size=3:\0\x01\0\x02",
        b"blob:\0component=zlib:\0size=0:\0",
    ];
    for form in forms {
        let value = Value::Regex(Bytes::copy_from_slice(form));
        for format in FORMATS {
            let mut writer = Writer::new(format);
            writer.items(&[value.clone(), Value::Bool(true)]);
            let mut reader = Reader::new(format, writer.as_bytes());
            assert_eq!(reader.items(), Ok(vec![value.clone(), Value::Bool(true)]));
        }
    }
    let broken: [&[u8]; 8] = [
        b"",
        b"raw:node1",
        b"blob:\0",
        b"blob:\0component=zlib:\0",
        b"blob:\0component=zlib:\0size=3\0abc",
        b"blob:\0component=zlib:\0length=3:\0abc",
        b"blob:\0component=zlib:\0size=-3:\0abc",
        b"blob:\0component=zlib:\0size=18446744073709551615:\0abc",
    ];
    for form in broken {
        let mut bytes = vec![0x31];
        bytes.extend_from_slice(form);
        let got = Value::read(&mut Reader::new(Format::V4, &bytes));
        assert_eq!(
            got,
            Err(Error::malformed(Malformed::NoRegexEnd)),
            "{}",
            form.escape_ascii()
        );
    }
    let short = b"\x31blob:\0component=zlib:\0size=4:\0abc";
    let got = Value::read(&mut Reader::new(Format::V4, short));
    assert_eq!(got, Err(Error::malformed(Malformed::Truncated)));
}

#[test]
fn arrays() {
    let array = |kind, elements| Value::Array(Box::new(DataArray { kind, elements }));
    let numbers = Value::array(DataType::INT32, vec![Value::Int32(1), Value::Int32(-1)]);
    both(
        &numbers,
        "27 09 02 02 01",
        "0027 0009 000f0000000000000002 00000001 ffffffff",
    );
    let bytes = array(
        DataType::BYTE,
        Elements::Bytes(Bytes::from_static(b"\x01\x02")),
    );
    both(
        &bytes,
        "27 02 02 0102",
        "0027 0002 000f0000000000000002 0102",
    );
    let empty = Value::array(DataType::INFO, Vec::new());
    both(&empty, "27 18 00", "0027 0018 000f0000000000000000");
    let nothing = array(DataType::UNDEF, Elements::Nothing(0));
    both(&nothing, "27 00 00", "0027 0000 000f0000000000000000");
}

#[test]
fn arrays_of_nothing_have_a_count_in_some_versions_and_in_some_not() {
    let array = |elements| {
        let kind = DataType::UNDEF;
        Value::Array(Box::new(DataArray { kind, elements }))
    };
    // libpmix 6 writes a null pointer as the type alone. Infos follow here, so that the end of the buffer is not what reveals it.
    let infos = |elements| {
        [array(elements), Value::Bool(true)].map(|value| Info::new(strategy::named(c"k"), value))
    };
    let absent = infos(Elements::Absent);
    let mut writer = Writer::new(Format::V4);
    writer.list(&absent);
    assert_eq!(
        hex(writer.as_bytes()),
        "0202 04 046b00 00 27 00 046b00 00 01 01".replace(' ', "")
    );
    let mut reader = Reader::new(Format::V4, writer.as_bytes());
    assert_eq!(reader.list::<Info>().unwrap(), absent);
    // Version 3 has no such form.
    let mut writer = Writer::new(Format::V3);
    writer.list(&absent);
    let mut reader = Reader::new(Format::V3, writer.as_bytes());
    assert_eq!(reader.list::<Info>().unwrap(), infos(Elements::Nothing(0)));
    // Only version 3 transmits the number of elements of an array of nothing.
    let bytes = written(Format::V3, &array(Elements::Nothing(1 << 60)));
    assert_eq!(
        read(Format::V3, &bytes),
        Ok(array(Elements::Nothing(1 << 60)))
    );
    let bytes = written(Format::V4, &array(Elements::Nothing(1 << 60)));
    assert_eq!(read(Format::V4, &bytes), Ok(array(Elements::Nothing(0))));
    // `Nothing` with a type that does have bytes is encoded without elements.
    let wrong = DataArray {
        kind: DataType::BOOL,
        elements: Elements::Nothing(3),
    };
    let bytes = written(Format::V4, &wrong);
    assert_eq!(
        read(Format::V4, &bytes),
        Ok(DataArray {
            kind: DataType::BOOL,
            elements: Elements::Values(Vec::new())
        })
    );
}

#[test]
fn structures() {
    let proc = Proc {
        nspace: crate::value::Nspace::from_text("j").unwrap(),
        rank: PmixRank(1),
    };
    both(
        &Value::Proc(Box::new(proc)),
        "16 046a00 01",
        "0016 000000026a00 00000001",
    );
    let info = Info {
        key: strategy::named(c"k"),
        flags: InfoFlags::REQUIRED,
        value: Value::Bool(false),
    };
    both(
        &Value::Info(Box::new(info)),
        "18 046b00 01 01 00",
        "0018 000000026b00 00000001 0001 00",
    );
    let envar = Envar {
        name: text("A"),
        value: None,
        separator: b':',
    };
    both(
        &Value::Envar(Box::new(envar)),
        "2e 044100 00 3a",
        "002e 000000024100 00000000 3a",
    );
    let bytes = Value::ByteObject(Bytes::from_static(b"ab"));
    both(&bytes, "1b 02 6162", "001b 000f0000000000000002 6162");
    let absent = Topology {
        xml: None,
        support: Bytes::new(),
    };
    both(&Value::Topology(Box::new(absent)), "38 00", "0038 00000000");
    let support = Bytes::from_static(&[1; 32]);
    let there = Value::Topology(Box::new(Topology {
        xml: text("x"),
        support,
    }));
    let ones = "01".repeat(32);
    both(
        &there,
        &format!("38 047800 {ones}"),
        &format!("0038 000000027800 {ones}"),
    );
}

#[test]
fn a_process_without_a_name_has_an_empty_one() {
    // Section 8.3: libpmix 5 sends such a range.
    for digits in ["0000", "020000"] {
        let bytes = unhex(digits);
        let proc = Proc::read(&mut Reader::new(Format::V4, &bytes)).unwrap();
        assert_eq!((proc.nspace.as_bytes(), proc.rank), (&b""[..], PmixRank(0)));
    }
    // A key must have a name.
    let bytes = unhex("00 00 01 00");
    let got = Info::read(&mut Reader::new(Format::V4, &bytes));
    assert_eq!(got, Err(Error::malformed(Malformed::NoName)));
}

#[test]
fn records_have_their_fields_in_order() {
    // Section 5.4. All numbers differ, so that swapped fields are detected.
    let floats = |count: u8| {
        (0..count)
            .map(|n| format!("04 3{n}00 "))
            .collect::<String>()
    };
    let numbers = |from: u8, count: u8| {
        (from..from + count)
            .map(|n| format!("{n:02x} "))
            .collect::<String>()
    };
    let disk = format!("046400 {}", numbers(1, 11));
    let net = format!("046e00 {}", numbers(1, 6));
    for (bytes, printed) in [
        ("2f 03 02 0506", "COORD[3:UINT8, UINT32[5, 6]]"),
        (
            "30 046100 046200 03 04 046300 00",
            r#"REGATTR["a", "b", STRING:DATA_TYPE, ["c", null]]"#,
        ),
        (
            "35 07 046100 046200 01 03 01 05",
            r#"GEOMETRY[7:SIZE, "a", "b", COORD[COORD[3:UINT8, UINT32[5]]]]"#,
        ),
        (
            "36 046100 046200 03 04 05",
            r#"DEVICE_DIST["a", "b", 3:DEVTYPE, 4:UINT16, 5:UINT16]"#,
        ),
        (
            "37 046100 046200 02 7879",
            r#"ENDPOINT["a", "b", BYTE b"xy"]"#,
        ),
        (
            &format!(
                "3d 046100 046a0001 0e02 046200 03 04 06 08 0a {} 0c 0e 10",
                floats(3)
            ),
            r#"PROC_STATS["a", j:1, 2:PID, "b", 3:BYTE, 2s+3us:TIMEVAL, 4:INT32, 5:INT16, 0:FLOAT, 1:FLOAT, 2:FLOAT, 6:INT16, 7s+8us:TIMEVAL]"#,
        ),
        (
            &format!("3e {disk}"),
            r#"DISK_STATS["d", 1:UINT64, 2:UINT64, 3:UINT64, 4:UINT64, 5:UINT64, 6:UINT64, 7:UINT64, 8:UINT64, 9:UINT64, 10:UINT64, 11:UINT64]"#,
        ),
        (
            &format!("3f {net}"),
            r#"NET_STATS["n", 1:UINT64, 2:UINT64, 3:UINT64, 4:UINT64, 5:UINT64, 6:UINT64]"#,
        ),
        (
            &format!(
                "40 046100 {}043900 043800 02 04 01 {disk} 01 {net}",
                floats(9)
            ),
            r#"NODE_STATS["a", 0:FLOAT, 1:FLOAT, 2:FLOAT, 3:FLOAT, 4:FLOAT, 5:FLOAT, 6:FLOAT, 7:FLOAT, 8:FLOAT, 9:FLOAT, 8:FLOAT, 1s+2us:TIMEVAL, DISK_STATS[DISK_STATS["d", 1:UINT64, 2:UINT64, 3:UINT64, 4:UINT64, 5:UINT64, 6:UINT64, 7:UINT64, 8:UINT64, 9:UINT64, 10:UINT64, 11:UINT64]], NET_STATS[NET_STATS["n", 1:UINT64, 2:UINT64, 3:UINT64, 4:UINT64, 5:UINT64, 6:UINT64]]]"#,
        ),
        ("46 046100 046200 ac02", r#"DEVICE["a", "b", 300:DEVTYPE]"#),
        ("48 03 ac02", "RESOURCE_UNIT[3:DEVTYPE, 300:SIZE]"),
        ("49 046100 ac02 0e05", r#"NODE_PID["a", 300:UINT32, 5:PID]"#),
    ] {
        let bytes = unhex(bytes);
        let mut reader = Reader::new(Format::V4, &bytes);
        let value = Value::read(&mut reader).unwrap();
        assert!(reader.is_empty(), "{printed}");
        assert_eq!(value.to_string(), printed);
        // Numbers that are encoded as text may become longer when encoded again.
        let again = written(Format::V4, &value);
        assert_eq!(read::<Value>(Format::V4, &again).as_ref(), Ok(&value));
        if !printed.contains("FLOAT") {
            assert_eq!(field(Format::V4, &value), hex(&bytes));
        }
    }
}

#[test]
fn the_retired_kinds_are_read_past() {
    let array = |kind, elements| Value::Array(Box::new(DataArray { kind, elements }));
    let record = |kind, field| {
        Value::Record(Box::new(Record {
            kind,
            fields: vec![field],
        }))
    };
    let modex = array(
        DataType::BYTE,
        Elements::Bytes(Bytes::from_static(b"\x01\x02")),
    );
    both(
        &record(DataType::MODEX, modex),
        "1d 02 0102",
        "001d 000f0000000000000002 0102",
    );
    let infos = Value::infos(vec![Info::new(strategy::named(c"k"), Value::Bool(true))]);
    both(
        &record(DataType::INFO_ARRAY, infos),
        "2c 01 046b00 00 01 01",
        "002c 000f0000000000000001 000000026b00 00000000 0001 01",
    );
}

#[test]
fn every_kind_up_to_the_last_has_a_form() {
    // Zeros are valid for most types: every length and count is 0. The longest type needs fewer than 64.
    let zeros = [0; 64];
    for kind in 0..=73 {
        let kind = DataType(kind);
        assert!(kind.name().is_some(), "{kind:?}");
        let got = Reader::new(Format::V4, &zeros).value(kind);
        let needs_more = matches!(
            kind,
            // Zeros are invalid here: text that is a number, names, and numbers that include a type, which is never 0.
            DataType::FLOAT
                | DataType::DOUBLE
                | DataType::INFO
                | DataType::PDATA
                | DataType::KVAL
                | DataType::PID
                | DataType::PROC_INFO
                | DataType::PROC_STATS
                | DataType::NODE_STATS
                | DataType::NODE_PID
        );
        assert_eq!(got.is_err(), needs_more, "{kind:?}: {got:?}");
        if let Ok(value) = got {
            assert_eq!(value.kind(), kind);
        }
    }
    let unknown = Reader::new(Format::V4, &zeros).value(DataType(74));
    assert!(matches!(unknown, Err(Error::Unsupported { .. })));
    for kind in strategy::RECORDS {
        assert!(layout(kind).is_some(), "{kind:?}");
    }
}
