//! Properties of all values.

use proptest::{collection::vec, prelude::*};

use super::{FORMATS, read, written};
use crate::{
    codec::{Reader, Wire, Writer},
    tests::strategy,
    value::{DataType, Info, Value},
};

proptest! {
    #[test]
    fn every_value_reads_back_as_it_was_written(value in strategy::value()) {
        for format in FORMATS {
            let bytes = written(format, &value);
            let again: Value = read(format, &bytes).unwrap();
            prop_assert_eq!(&again, &value, "{:?}: {:02x?}", format, bytes);
            prop_assert_eq!(written(format, &again), bytes);
        }
    }

    #[test]
    fn a_value_that_is_cut_anywhere_is_refused(value in strategy::value()) {
        for format in FORMATS {
            let bytes = written(format, &value);
            for end in 0..bytes.len() {
                prop_assert!(read::<Value>(format, &bytes[..end]).is_err(), "{:?} at {}", format, end);
            }
        }
    }

    #[test]
    fn lists_read_back_with_their_count(infos in vec(strategy::info(), 0..4)) {
        for format in FORMATS {
            let mut writer = Writer::new(format);
            writer.list(&infos);
            writer.each(&infos);
            let mut reader = Reader::new(format, writer.as_bytes());
            prop_assert_eq!(&reader.list::<Info>().unwrap(), &infos);
            prop_assert_eq!(&reader.each::<Info>().unwrap(), &infos);
            prop_assert!(reader.is_empty());
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..200)) {
        for format in FORMATS {
            let _ = Reader::new(format, &bytes).each::<Value>();
            for kind in 0..=74 {
                // One type at a time, because random bytes seldom begin with a valid type.
                let mut begun = Writer::new(format);
                begun.item_head(Value::KIND, 1);
                DataType(kind).write(&mut begun);
                begun.raw(&bytes);
                let mut reader = Reader::new(format, begun.as_bytes());
                if let Ok(value) = reader.item::<Value>() {
                    let again = written(format, &value);
                    let once_more: Value = read(format, &again).unwrap();
                    prop_assert_eq!(written(format, &once_more), again);
                }
            }
        }
    }

    #[test]
    fn every_value_prints_in_one_line(value in strategy::value()) {
        let short = value.to_string();
        prop_assert!(!short.is_empty() && !short.contains('\n'));
        let whole = format!("{value:#}");
        prop_assert!(!whole.contains('\n'));
    }
}
