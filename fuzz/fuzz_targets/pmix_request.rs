//! Any payload is a request or is refused; what was read is written in a form that reads as the same, and so is what
//! is nested in it.
#![no_main]

#[path = "pmix/again.rs"]
mod again;
#[path = "pmix/choice.rs"]
mod choice;

use libfuzzer_sys::fuzz_target;
use pmix::{allocation::Wish, codec::Reader, message::Request, value::Kval};

fuzz_target!(|input: &[u8]| {
    let Some((format, _, payload)) = again::choice(input) else {
        return;
    };
    let request = again::check(
        format,
        payload,
        |payload| Request::decode(format, payload),
        |request, writer| request.encode(writer),
    );
    let Some(request) = request else { return };
    assert!(!request.display(format).to_string().contains('\n'));
    if let Request::Allocate { infos, .. } | Request::Spawn { infos, .. } = &request {
        // Whatever a client asks for is read or refused.
        drop(Wish::read(infos));
    }
    if let Request::Commit { buckets } = request {
        for (_, bucket) in buckets {
            again::check(
                format,
                &bucket.bytes,
                |bytes| Reader::new(format, bytes).each::<Kval>(),
                |facts, writer| writer.each(facts),
            );
        }
    }
});
