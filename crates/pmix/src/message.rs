//! The contents of messages: requests, answers and pushes (section 7 of `docs/formats/pmix.md`).

mod answer;
mod facts;
mod print;
mod push;
mod request;
#[cfg(test)]
mod tests;

pub(crate) use self::answer::NamesForm;
pub use self::{
    answer::{Answer, GroupAnswer, GroupForm, Shape},
    facts::Facts,
    print::Readable,
    push::Push,
    request::{Command, Request},
};
