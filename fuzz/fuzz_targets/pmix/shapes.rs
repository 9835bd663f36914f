//! What the bits above those of the format choose, where an input is an answer. What is beyond the last is a push.

use pmix::message::{GroupForm, Shape};

pub(crate) const SHAPES: [Shape; 14] = [
    Shape::JobInfo,
    Shape::Status,
    Shape::Buffers,
    Shape::Found,
    Shape::Spawned,
    Shape::Infos,
    Shape::Credential,
    Shape::Number,
    Shape::Group(GroupForm::ContextOnly),
    Shape::Group(GroupForm::Members),
    Shape::Group(GroupForm::Infos),
    Shape::Refreshed,
    Shape::Procs,
    Shape::Nodes,
];
