//! What is inside a message: requests, answers, pushes (wire document, section 7).

mod answer;
mod push;
mod request;

pub use self::{
    answer::{Answer, GroupAnswer, GroupForm, Shape},
    push::Push,
    request::{Command, Request},
};
