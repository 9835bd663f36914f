//! Any payload is an answer of a shape, or a push, or is refused, as a client reads them; what was read is written in a
//! form that reads as the same, and so are the facts that are nested in it.
#![no_main]

#[path = "pmix/again.rs"]
mod again;
#[path = "pmix/choice.rs"]
mod choice;
#[path = "pmix/shapes.rs"]
mod shapes;

use std::fmt::Debug;

use libfuzzer_sys::fuzz_target;
use pmix::{
    codec::{Format, Wire},
    frame::Tag,
    keys,
    message::{Answer, Facts, Push, Shape},
    value::{Kval, Nspace, PmixRank, Proc, Value},
};

fuzz_target!(|input: &[u8]| {
    let Some((format, chosen, payload)) = again::choice(input) else {
        return;
    };
    match shapes::SHAPES.get(chosen) {
        Some(shape) => answer(format, *shape, payload),
        None => {
            push(format, Tag::Event, payload);
            push(format, Tag::Output, payload);
        }
    }
});

fn answer(format: Format, shape: Shape, payload: &[u8]) {
    let answer = again::check(
        format,
        payload,
        |payload| Answer::decode(format, shape, payload),
        |answer, writer| answer.encode(writer),
    );
    let Some(answer) = answer else { return };
    assert!(!answer.display(format).to_string().contains('\n'));
    match &answer {
        Answer::JobInfo { facts, .. }
        | Answer::Spawned { facts, .. }
        | Answer::Refreshed { facts, .. } => {
            ranks(format, facts);
        }
        Answer::Buffers { buffers, .. } => {
            for buffer in buffers {
                nested::<Proc>(format, buffer);
                nested::<Nspace>(format, buffer);
            }
        }
        Answer::Group(group) => {
            for buffer in &group.buffers {
                nested::<Nspace>(format, buffer);
            }
        }
        _ => {}
    }
}

fn push(format: Format, tag: Tag, payload: &[u8]) {
    let push = again::check(
        format,
        payload,
        |payload| Push::decode(format, tag, payload),
        |push, writer| {
            push.as_ref()
                .expect("both are tags of pushes")
                .encode(writer)
        },
    );
    if let Some(Some(push)) = push {
        assert_eq!(push.tag(), tag);
        assert!(!push.display(format).to_string().contains('\n'));
    }
}

/// The facts of each rank, which are packed in those of their job.
fn ranks(format: Format, facts: &[Kval]) {
    for fact in facts {
        if let (true, Value::ByteObject(bytes)) = (fact.key == *keys::PROC_BLOB, &fact.value) {
            nested::<PmixRank>(format, bytes);
        }
    }
}

fn nested<Owner: Wire + Debug + PartialEq>(format: Format, bytes: &[u8]) {
    let facts = again::check(
        format,
        bytes,
        |bytes| Facts::<Owner>::decode(format, bytes),
        |facts, writer| writer.raw(&facts.encode(format)),
    );
    if let Some(facts) = facts {
        ranks(format, &facts.facts);
    }
}
