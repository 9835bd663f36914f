//! Recorded traffic of unmodified libraries. Every stream decodes completely, prints readably, and encodes to the same bytes
//! again, including nested buffers.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test reads its files, and a helper of it fails it by panicking"
)]

#[path = "../../../../fuzz/fuzz_targets/pmix/choice.rs"]
mod choice;
mod dialogue;
mod nested;
mod recording;
mod seeds;
#[path = "../../../../fuzz/fuzz_targets/pmix/shapes.rs"]
mod shapes;

use std::{collections::BTreeMap, fmt::Write};

use dialogue::{Dialogue, Entry, Message};
use nested::Opened;
use pmix::{
    codec::{Family, Format, Reader},
    message::Facts,
    value::{Kval, Proc, Status, Value},
};
use recording::{Recording, Side};

/// Recordings in which the real server answers one get in its library's own codec, which this client does not speak. All other
/// requests of these clients are answered in the client's codec.
const IN_THE_WRONG_CODEC: [&str; 2] = [
    "g2-client3.2.3-server5.0.11-rank0-0",
    "g2-client3.2.3-server6.1.0-rank0-0",
];

fn each(mut check: impl FnMut(&Recording, &Dialogue)) {
    let recordings = recording::all();
    assert_eq!(recordings.len(), 107);
    for recording in &recordings {
        check(recording, &Dialogue::of(recording));
    }
}

#[test]
fn every_stream_decodes_to_its_end() {
    each(|recording, dialogue| {
        let name = &recording.name;
        assert_eq!(dialogue.left, [0, 0], "{name} ends in a message");
        assert_eq!(dialogue.unanswered, [], "{name} ends with open questions");
        let unreadable = dialogue.entries.iter().filter(unreadable).count();
        let expected = usize::from(IN_THE_WRONG_CODEC.contains(&name.as_str()));
        assert_eq!(unreadable, expected, "{name}\n{dialogue}");
    });
}

#[test]
fn every_stream_encodes_to_the_same_bytes() {
    each(|recording, dialogue| {
        let name = &recording.name;
        for entry in &dialogue.entries {
            let again = entry.repacked(dialogue.format);
            assert_eq!(again, entry.payload, "{name}: {:?}", entry.message);
        }
        for side in [Side::Client, Side::Server] {
            assert_eq!(dialogue.encoded(side), recording.sent_by(side), "{name}");
        }
    });
}

#[test]
fn every_buffer_inside_a_message_decodes_and_encodes_to_the_same_bytes() {
    let mut opened = Opened::default();
    each(|_, dialogue| {
        for entry in &dialogue.entries {
            opened.add(dialogue.format, &entry.message);
        }
    });
    let expected = Opened {
        buckets: 80,
        of_procs: 28,
        of_ranks: 208,
        of_jobs: 0,
    };
    assert_eq!(opened, expected);
}

#[test]
fn the_two_answers_in_the_wrong_codec_are_of_the_other_family_behind_their_status() {
    let mut seen = 0;
    each(|recording, dialogue| {
        for entry in dialogue.entries.iter().filter(unreadable) {
            assert_eq!(dialogue.format.family, Family::Fixed);
            let mut reader = Reader::new(dialogue.format, &entry.payload);
            assert_eq!(reader.item::<Status>(), Ok(Status::SUCCESS));
            let buffer: bytes::Bytes = Reader::new(Format::V4, reader.rest()).item().unwrap();
            let facts = Facts::<Proc>::decode(Format::V4, &buffer).unwrap();
            assert_eq!(facts.owner.rank.0, 1, "{}", recording.name);
            let fact = |key, value| Kval {
                key: pmix::value::Key::from_text(key).unwrap(),
                value: Value::text(value),
            };
            assert_eq!(facts.facts, [fact("a", "x"), fact("b", "x")]);
            assert_eq!(facts.encode(Format::V4), buffer);
            seen += 1;
        }
    });
    assert_eq!(seen, IN_THE_WRONG_CODEC.len());
}

/// One recording of each program and codec, and of each layout that an answer has in different versions.
const PRINTED: [&str; 11] = [
    "cli-client5.0.11-server5.0.11-rank0-0",
    "cli-client3.2.3-server6.1.0-rank0-0",
    "g2-client4.2.2-server6.1.0-rank0-0",
    "g2-client3.2.3-server5.0.11-rank0-0",
    "grp-client4.2.2-server5.0.11-rank3-0",
    "grp-client6.1.0-server6.1.0-rank0-0",
    "tool-plain-tool4.2.9-server5.0.11-0",
    "tool-stop-tool6.1.0-server6.1.0-0",
    "tool-iof-tool5.0.11-server6.1.0-0",
    "tool-stdin-tool6.1.0-server6.1.0-0",
    "tool-kill-tool4.2.2-server5.0.11-0",
];

#[test]
fn every_stream_prints_a_line_for_each_message() {
    let mut printed = 0;
    each(|recording, dialogue| {
        let text = dialogue.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), dialogue.entries.len(), "{}", recording.name);
        for line in lines {
            assert!(line.len() < 3_000, "{}: {line}", recording.name);
        }
        if PRINTED.contains(&recording.name.as_str()) {
            let mut settings = insta::Settings::clone_current();
            settings.set_snapshot_path("printed");
            settings.set_prepend_module_to_snapshot(false);
            settings.set_omit_expression(true);
            settings.bind(|| insta::assert_snapshot!(recording.name.as_str(), text));
            printed += 1;
        }
    });
    assert_eq!(printed, PRINTED.len());
}

#[test]
fn the_recordings_contain_so_much_of_everything() {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    each(|_, dialogue| {
        for entry in &dialogue.entries {
            let what = match &entry.message {
                Message::Hello(hello) => format!("handshake of {:?}", hello.kind),
                Message::Welcome(_) => "answer to a handshake".to_owned(),
                Message::Request(request) => format!("request {:?}", request.command()),
                Message::Answer { .. } | Message::Unreadable { .. } => "answer".to_owned(),
                Message::Push(push) => format!("push {:?}", push.tag()),
            };
            *counts.entry(what).or_default() += 1;
        }
    });
    let mut table = String::new();
    for (what, count) in counts {
        writeln!(table, "{count:5} {what}").unwrap();
    }
    insta::assert_snapshot!(table, @r"
      866 answer
      107 answer to a handshake
       72 handshake of Client
       35 handshake of Tool
      864 push Event
       51 push Output
       40 request Commit
       20 request Connect
       20 request Disconnect
       60 request Fence
      102 request Finalize
       50 request Get
       32 request GroupConstruct
       32 request GroupDestruct
       14 request IofPull
       10 request IofPush
        7 request JobControl
      107 request JobInfo
       20 request Lookup
        7 request Notify
       20 request Publish
      245 request Query
       35 request Register
       45 request Spawn
    ");
}

fn unreadable(entry: &&Entry) -> bool {
    matches!(entry.message, Message::Unreadable { .. })
}
