//! The messages between front and controller: any bytes are decoded or refused, and what was decoded is encoded again.
#![no_main]

use std::fmt::Debug;

use dvm::proto::{FromFront, ToFront};
use libfuzzer_sys::fuzz_target;
use serde::{Serialize, de::DeserializeOwned};

fn check<T: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8]) {
    let Ok(message) = postcard::from_bytes::<T>(bytes) else {
        return;
    };
    let again = postcard::to_stdvec(&message).expect("what was decoded can be encoded");
    assert_eq!(
        postcard::from_bytes::<T>(&again).expect("what was encoded can be decoded"),
        message
    );
}

fuzz_target!(|bytes: &[u8]| {
    check::<FromFront>(bytes);
    check::<ToFront>(bytes);
});
