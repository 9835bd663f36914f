//! What the first byte of an input chooses: a format by its lowest two bits, the rest by those above them. The seeds
//! are made by `crates/pmix/tests/traces/seeds.rs`, which has this file as well.

use pmix::codec::{Family, Format, Items};

pub(crate) const FORMATS: [Format; 4] = [
    Format::V4,
    Format::V3,
    Format {
        family: Family::Flex,
        items: Items::Described,
    },
    Format {
        family: Family::Fixed,
        items: Items::Described,
    },
];
