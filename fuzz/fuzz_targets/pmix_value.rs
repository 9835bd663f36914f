//! Any bytes are values or are refused, in every format; what was read is written in a form that reads as the same.
#![no_main]

#[path = "pmix/again.rs"]
mod again;
#[path = "pmix/choice.rs"]
mod choice;

use std::fmt::Debug;

use libfuzzer_sys::fuzz_target;
use pmix::{
    codec::{Format, Reader, Wire},
    value::{App, Info, Kval, Pdata, Proc, ProcInfo, Query, Value},
};

fuzz_target!(|input: &[u8]| {
    let Some((format, chosen, bytes)) = again::choice(input) else {
        return;
    };
    // Items until the end, each with a count; or one value as a field, whose first bytes are its kind.
    let items = again::check(
        format,
        bytes,
        |bytes| Reader::new(format, bytes).each::<Value>(),
        |values, writer| writer.each(values),
    );
    for value in items.into_iter().flatten() {
        assert!(!value.to_string().contains('\n'));
    }
    match chosen {
        0 => field::<Value>(format, bytes),
        1 => field::<Info>(format, bytes),
        2 => field::<App>(format, bytes),
        3 => field::<Query>(format, bytes),
        4 => field::<Kval>(format, bytes),
        5 => field::<Pdata>(format, bytes),
        6 => field::<ProcInfo>(format, bytes),
        7 => field::<Proc>(format, bytes),
        _ => {}
    }
});

fn field<T: Wire + Debug + PartialEq>(format: Format, bytes: &[u8]) {
    again::check(
        format,
        bytes,
        |bytes| T::read(&mut Reader::new(format, bytes)),
        |value, writer| value.write(writer),
    );
}
