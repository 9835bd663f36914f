//! Lists and sets that users type: what is read is written in a form that reads as the same.
#![no_main]

use std::{fmt::Display, str::FromStr};

use base::{CpuSet, HostList, RankSet};
use libfuzzer_sys::fuzz_target;

fn check<T: FromStr + Display + PartialEq>(text: &str) {
    let Ok(value) = text.parse::<T>() else { return };
    let again = value.to_string();
    assert!(
        again.parse::<T>().is_ok_and(|read| read == value),
        "{text:?} was written as {again:?}"
    );
}

fuzz_target!(|text: &str| {
    check::<HostList>(text);
    check::<RankSet>(text);
    check::<CpuSet>(text);
});
