//! Tests of the form of output, and that no byte of it is lost.

use std::collections::BTreeMap;

use dvm::proto::ChunkEnd;
use proptest::prelude::*;

use super::*;

/// 2026-11-21T11:35:48.123Z
const NOW: WallClock = (1_795_260_948, 123_999_999);

fn chunk(rank: u32, stream: Stream, bytes: &[u8]) -> Chunk {
    let end = if bytes.ends_with(b"\n") {
        ChunkEnd::Line
    } else {
        ChunkEnd::Partial
    };
    Chunk {
        job: JobId(1),
        rank: Rank(rank),
        stream,
        bytes: Bytes::copy_from_slice(bytes),
        end,
    }
}

fn out(rank: u32, text: &str) -> Chunk {
    chunk(rank, Stream::Stdout, text.as_bytes())
}

fn renderer(label: Label, timestamps: Timestamps, format: Format) -> Renderer {
    onto(Streams::Apart, label, timestamps, format)
}

fn onto(streams: Streams, label: Label, timestamps: Timestamps, format: Format) -> Renderer {
    let look = Look {
        label,
        timestamps,
        format,
    };
    let mut renderer = Renderer::with_look(look, streams);
    let row = |rank: u32| TableRow {
        rank: Rank(rank),
        host: format!("n{}", rank / 8),
        executable: "./a".into(),
        pid: 1,
    };
    renderer.learn(JobId(1), 16, &(0..16).map(row).collect::<Vec<_>>());
    renderer
}

fn printed(renderer: &mut Renderer, chunks: &[Chunk]) -> String {
    let bytes = chunks
        .iter()
        .flat_map(|chunk| renderer.render(chunk, NOW))
        .collect::<Vec<_>>();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn streams_that_share_a_place_share_no_line() {
    let chunks = [
        chunk(3, Stream::Stdout, b"no end"),
        chunk(3, Stream::Stderr, b"an error\n"),
        chunk(3, Stream::Stdout, b"a line\n"),
    ];
    let mut renderer = onto(Streams::Together, Label::Rank, Timestamps::Off, Format::Raw);
    assert_eq!(
        printed(&mut renderer, &chunks),
        "[ 3] no end\n[ 3] an error\n[ 3] a line\n"
    );
}

#[test]
fn raw_bytes_are_not_copied() {
    let mut renderer = renderer(Label::None, Timestamps::Off, Format::Raw);
    let chunk = out(3, "a\nb");
    let bytes = renderer.render(&chunk, NOW);
    assert_eq!(bytes.as_ptr(), chunk.bytes.as_ptr());
    assert_eq!(bytes, chunk.bytes);
    assert_eq!(renderer.close_line(Stream::Stdout), b"");
}

#[test]
fn lines_have_tags() {
    let chunks = [
        out(3, "one\ntwo\n"),
        out(12, "\n"),
        chunk(9, Stream::Stderr, b"tab\there\r\n"),
    ];
    let text = [
        (Label::Rank, Timestamps::Off),
        (Label::Full, Timestamps::Off),
        (Label::None, Timestamps::On),
        (Label::Rank, Timestamps::On),
    ]
    .map(|(label, timestamps)| {
        let mut renderer = renderer(label, timestamps, Format::Raw);
        printed(&mut renderer, &chunks)
            .replace('\r', "\\r")
            .replace('\t', "\\t")
    });
    insta::assert_snapshot!(text.join("--\n"), @r"
    [ 3] one
    [ 3] two
    [12] 
    [ 9] tab\there\r
    --
    [1.3@n0:stdout] one
    [1.3@n0:stdout] two
    [1.12@n1:stdout] 
    [1.9@n1:stderr] tab\there\r
    --
    2026-11-21T11:35:48.123Z one
    2026-11-21T11:35:48.123Z two
    2026-11-21T11:35:48.123Z 
    2026-11-21T11:35:48.123Z tab\there\r
    --
    2026-11-21T11:35:48.123Z [ 3] one
    2026-11-21T11:35:48.123Z [ 3] two
    2026-11-21T11:35:48.123Z [12] 
    2026-11-21T11:35:48.123Z [ 9] tab\there\r
    ");
}

#[test]
fn the_guide_shows_what_is_printed() {
    let guide = include_str!("../../../../docs/output.md");
    let chunk = chunk(3, Stream::Stderr, b"text\n");
    let looks = [
        (Label::None, Timestamps::Off, Format::Raw),
        (Label::Rank, Timestamps::Off, Format::Raw),
        (Label::Full, Timestamps::Off, Format::Raw),
        (Label::None, Timestamps::On, Format::Raw),
        (Label::Rank, Timestamps::On, Format::Raw),
        (Label::None, Timestamps::Off, Format::JsonLines),
    ];
    for (label, timestamps, format) in looks {
        let mut renderer = renderer(label, timestamps, format);
        let text = printed(&mut renderer, std::slice::from_ref(&chunk)).replace("n0", "n1");
        let row = format!("| `{}` |\n", text.trim_end());
        assert!(guide.contains(&row), "docs/output.md lacks {row}");
    }
}

#[test]
fn hosts_that_are_not_known_are_question_marks() {
    let look = Look {
        label: Label::Full,
        timestamps: Timestamps::Off,
        format: Format::Raw,
    };
    let mut renderer = Renderer::with_look(look, Streams::Apart);
    assert_eq!(
        printed(&mut renderer, &[out(3, "x\n")]),
        "[1.3@?:stdout] x\n"
    );
}

#[test]
fn a_prompt_gives_way_to_another_rank() {
    let mut renderer = renderer(Label::Rank, Timestamps::Off, Format::Raw);
    let text = printed(
        &mut renderer,
        &[
            out(0, "name? "),
            chunk(1, Stream::Stderr, b"the other stream is not in the way\n"),
            out(0, "Ada\nage? "),
            out(7, "I am here\n"),
            out(0, "36\n"),
            out(2, "end without a line feed"),
        ],
    );
    insta::assert_snapshot!(text, @"
    [ 0] name? [ 1] the other stream is not in the way
    Ada
    [ 0] age? 
    [ 7] I am here
    [ 0] 36
    [ 2] end without a line feed
    ");
    assert_eq!(renderer.close_line(Stream::Stdout), b"\n");
    assert_eq!(renderer.close_line(Stream::Stdout), b"");
    assert_eq!(renderer.close_line(Stream::Stderr), b"");
}

#[test]
fn a_message_of_ours_starts_its_own_line() {
    let mut renderer = renderer(Label::Rank, Timestamps::Off, Format::Raw);
    assert_eq!(printed(&mut renderer, &[out(4, "name? ")]), "[ 4] name? ");
    assert_eq!(renderer.close_line(Stream::Stdout), b"\n");
    assert_eq!(printed(&mut renderer, &[out(4, "Ada\n")]), "[ 4] Ada\n");
}

#[test]
fn odd_bytes_survive() {
    for label in [Label::None, Label::Rank] {
        let mut renderer = renderer(label, Timestamps::Off, Format::Raw);
        let bytes = renderer.render(&chunk(3, Stream::Stdout, b"10%\r20%\0\xff\n"), NOW);
        assert!(bytes.ends_with(b"10%\r20%\0\xff\n"), "{bytes:?}");
    }
}

#[test]
fn json_lines() {
    let chunks = [
        out(3, "one\n\"two\"\t\u{1b}[0m\n"),
        chunk(12, Stream::Stderr, b"\xff\xfe\n\nname? "),
        out(1, ""),
    ];
    let text = [Label::None, Label::Full].map(|label| {
        printed(
            &mut renderer(label, Timestamps::Off, Format::JsonLines),
            &chunks,
        )
    });
    insta::assert_snapshot!(text.join("--\n"), @r#"
    {"rank":3,"stream":"stdout","time":"2026-11-21T11:35:48.123Z","text":"one"}
    {"rank":3,"stream":"stdout","time":"2026-11-21T11:35:48.123Z","text":"\"two\"\t\u001b[0m"}
    {"rank":12,"stream":"stderr","time":"2026-11-21T11:35:48.123Z","base64":"//4="}
    {"rank":12,"stream":"stderr","time":"2026-11-21T11:35:48.123Z","text":""}
    {"rank":12,"stream":"stderr","time":"2026-11-21T11:35:48.123Z","text":"name? ","partial":true}
    --
    {"job":1,"rank":3,"host":"n0","stream":"stdout","time":"2026-11-21T11:35:48.123Z","text":"one"}
    {"job":1,"rank":3,"host":"n0","stream":"stdout","time":"2026-11-21T11:35:48.123Z","text":"\"two\"\t\u001b[0m"}
    {"job":1,"rank":12,"host":"n1","stream":"stderr","time":"2026-11-21T11:35:48.123Z","base64":"//4="}
    {"job":1,"rank":12,"host":"n1","stream":"stderr","time":"2026-11-21T11:35:48.123Z","text":""}
    {"job":1,"rank":12,"host":"n1","stream":"stderr","time":"2026-11-21T11:35:48.123Z","text":"name? ","partial":true}
    "#);
}

#[test]
fn numbers_have_digits() {
    for (number, expected) in [(0, 1), (9, 1), (10, 2), (99, 2), (100, 3), (u32::MAX, 10)] {
        assert_eq!(digits(number), expected);
        let mut text = Vec::new();
        push_number(&mut text, number);
        assert_eq!(text.len(), expected);
    }
}

/// Generates chunks that a daemon may send: any bytes, many line feeds.
fn chunks() -> impl Strategy<Value = Vec<Chunk>> {
    let byte = prop_oneof![3 => Just(b'\n'), 3 => b'a'..b'd', 1 => Just(b'['), 1 => any::<u8>()];
    let one = (0_u32..4, any::<bool>(), prop::collection::vec(byte, 0..12));
    let made = one.prop_map(|(rank, is_stdout, bytes)| {
        chunk(
            rank,
            if is_stdout {
                Stream::Stdout
            } else {
                Stream::Stderr
            },
            &bytes,
        )
    });
    prop::collection::vec(made, 0..24)
}

type PerRank = BTreeMap<(Rank, Stream), Vec<u8>>;

fn written(chunks: &[Chunk]) -> PerRank {
    let mut streams = PerRank::new();
    for chunk in chunks {
        streams
            .entry((chunk.rank, chunk.stream))
            .or_default()
            .extend_from_slice(&chunk.bytes);
    }
    streams.retain(|_, bytes| !bytes.is_empty());
    streams
}

/// Reads back what each rank wrote from labelled output. The rank of a line is in its tag.
fn without_tags(stream: Stream, bytes: &[u8], into: &mut PerRank) {
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let end = line.windows(2).position(|pair| pair == b"] ").unwrap();
        let number = std::str::from_utf8(&line[1..end]).unwrap().trim();
        let rank = Rank(number.parse().unwrap());
        into.entry((rank, stream))
            .or_default()
            .extend_from_slice(&line[end + 2..]);
    }
}

proptest! {
    #[test]
    fn without_labels_streams_are_what_was_written(chunks in chunks()) {
        let mut renderer = renderer(Label::None, Timestamps::Off, Format::Raw);
        for stream in Stream::BOTH {
            let of = |chunk: &&Chunk| chunk.stream == stream;
            let input = chunks.iter().filter(of).flat_map(|chunk| chunk.bytes.clone()).collect::<Vec<_>>();
            let output = chunks.iter().filter(of).flat_map(|chunk| renderer.render(chunk, NOW)).collect::<Vec<_>>();
            prop_assert_eq!(input, output);
        }
    }

    #[test]
    fn without_their_tags_whole_lines_are_what_was_written(mut chunks in chunks()) {
        for chunk in &mut chunks {
            if !chunk.bytes.is_empty() && !chunk.bytes.ends_with(b"\n") {
                *chunk = self::chunk(chunk.rank.0, chunk.stream, &[&chunk.bytes[..], b"\n"].concat());
            }
        }
        let mut renderer = renderer(Label::Rank, Timestamps::Off, Format::Raw);
        let mut read = PerRank::new();
        for stream in Stream::BOTH {
            let of = |chunk: &&Chunk| chunk.stream == stream;
            let output = chunks.iter().filter(of).flat_map(|chunk| renderer.render(chunk, NOW)).collect::<Vec<_>>();
            without_tags(stream, &output, &mut read);
            prop_assert_eq!(renderer.close_line(stream), b"");
        }
        prop_assert_eq!(read, written(&chunks));
    }

    /// With partial lines, only our line feeds interrupt what a rank wrote.
    #[test]
    fn a_line_never_holds_two_ranks(chunks in chunks()) {
        let mut renderer = renderer(Label::Rank, Timestamps::Off, Format::Raw);
        let mut read = PerRank::new();
        for stream in Stream::BOTH {
            let of = |chunk: &&Chunk| chunk.stream == stream;
            let output = chunks.iter().filter(of).flat_map(|chunk| renderer.render(chunk, NOW)).collect::<Vec<_>>();
            without_tags(stream, &output, &mut read);
        }
        let only_text = |streams: PerRank| {
            streams
                .into_iter()
                .map(|(key, bytes)| (key, bytes.into_iter().filter(|byte| *byte != b'\n').collect::<Vec<_>>()))
                .filter(|(_, bytes)| !bytes.is_empty())
                .collect::<Vec<_>>()
        };
        prop_assert_eq!(only_text(read), only_text(written(&chunks)));
    }

    #[test]
    fn json_gives_back_what_was_written(chunks in chunks()) {
        let mut renderer = renderer(Label::None, Timestamps::Off, Format::JsonLines);
        let output = chunks.iter().flat_map(|chunk| renderer.render(chunk, NOW)).collect::<Vec<_>>();
        let mut read = PerRank::new();
        for line in std::str::from_utf8(&output).unwrap().lines() {
            let object: serde_json::Value = serde_json::from_str(line).unwrap();
            let stream = if object["stream"] == "stdout" { Stream::Stdout } else { Stream::Stderr };
            let rank = Rank(u32::try_from(object["rank"].as_u64().unwrap()).unwrap());
            let bytes = read.entry((rank, stream)).or_default();
            match object["text"].as_str() {
                Some(text) => bytes.extend_from_slice(text.as_bytes()),
                None => bytes.extend(from_base64(&object["base64"])),
            }
            if object.get("partial").is_none() {
                bytes.push(b'\n');
            }
        }
        prop_assert_eq!(read, written(&chunks));
    }
}

fn from_base64(text: &serde_json::Value) -> Vec<u8> {
    let text = text.as_str().unwrap();
    data_encoding::BASE64.decode(text.as_bytes()).unwrap()
}
