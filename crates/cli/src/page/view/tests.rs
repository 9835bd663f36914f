use std::{fs, io::Write as _};

use super::{output::plain, *};

#[test]
fn output_becomes_text() {
    for (bytes, expected) in [
        (&b"plain\n"[..], "plain\n"),
        (b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07\x1b(Bend", "red end"),
        (b"10%\r50%\r100%\ndone\r\n", "100%\ndone\n"),
        (b"a\x08\x07\x00b\tc", "ab\tc"),
        ("\u{fc} \u{6f22}".as_bytes(), "\u{fc} \u{6f22}"),
        (
            b"<img src=x onerror=alert(1)>",
            "<img src=x onerror=alert(1)>",
        ),
    ] {
        assert_eq!(plain(bytes), expected, "{}", String::from_utf8_lossy(bytes));
    }
    // Bytes that are no text neither fail nor hide what follows in the next line.
    assert!(plain(b"\xff\xfe\nnext").ends_with("\nnext"));
}

fn tail(path: &Path, mark: &str) -> serde_json::Value {
    serde_json::to_value(output::tail(path, mark)).unwrap()
}

#[test]
fn the_end_of_a_file_is_shown_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("out");
    assert_eq!(tail(&path, "")["none"], "nothing was printed yet");
    fs::write(&path, "one\n").unwrap();
    let first = tail(&path, "");
    assert_eq!(first["text"], "one\n");
    let mark = first["mark"].as_str().unwrap();
    assert_eq!(tail(&path, mark)["text"], serde_json::Value::Null);
    let mut file = fs::File::options().append(true).open(&path).unwrap();
    file.write_all(b"two\n").unwrap();
    assert_eq!(tail(&path, mark)["text"], "one\ntwo\n");
    for number in 0..20_000 {
        writeln!(file, "line {number}").unwrap();
    }
    let long = tail(&path, "");
    let text = long["text"].as_str().unwrap();
    let first = text.lines().next().unwrap();
    assert!(
        text.len() <= 64 << 10 && first.starts_with("line "),
        "{first}"
    );
    assert!(text.ends_with("line 19999\n"));
    let all = fs::metadata(&path).unwrap().len();
    assert_eq!(long["skipped"].as_u64().unwrap() + text.len() as u64, all);
    let none = &tail(directory.path(), "")["none"];
    assert_eq!(none, "the output does not go to a file");
}
