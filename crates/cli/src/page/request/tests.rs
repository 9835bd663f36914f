use proptest::prelude::*;

use super::{super::access::tests::access, *};

const PORT: u16 = 7000;

fn cookie() -> String {
    format!("rally-page-7000={}", "b".repeat(32))
}

fn head(text: &str) -> Head {
    let text = text.trim_start().replace('\n', "\r\n");
    match parse(format!("{text}\r\n\r\n").as_bytes()) {
        Parsed::Head(head) => head,
        other => panic!("{other:?}: {text}"),
    }
}

/// Returns what a request of this first line and these fields gets. The session is added.
fn judged(line: &str, fields: &str) -> Result<Wanted, Refusal> {
    let text = format!("{line} HTTP/1.1\nCookie: {}\n{fields}", cookie());
    judge(&head(&text), &Peer::Own, PORT, &mut access())
}

fn got(line: &str) -> Result<Wanted, Refusal> {
    judged(line, "Host: 127.0.0.1:7000")
}

#[test]
fn paths_lead_to_what_they_name() {
    let job = JobId(3);
    let view = |index, stream, mark: &str| {
        Ok(Wanted::Job(JobView {
            job,
            index,
            stream,
            mark: mark.to_owned(),
        }))
    };
    for (line, expected) in [
        ("GET /", Ok(Wanted::Asset(Asset::Page))),
        ("GET /page.js", Ok(Wanted::Asset(Asset::Script))),
        ("GET /state", Ok(Wanted::State)),
        ("GET /job/3", view(None, Stream::Output, "")),
        (
            "GET /job/3?mark=1.2&task=4&stream=errors",
            view(Some(4), Stream::Errors, "1.2"),
        ),
        ("GET /report/7", Ok(Wanted::Report(7))),
        ("GET /job/x", Err(Refusal::NotFound)),
        ("GET /job/+3", Err(Refusal::NotFound)),
        ("GET /job/3?task=x", Err(Refusal::NotFound)),
        ("GET /job/99999999999", Err(Refusal::NotFound)),
        ("GET /job/3/report/4", Err(Refusal::NotFound)),
        ("GET /../etc/passwd", Err(Refusal::NotFound)),
        ("GET http://127.0.0.1:7000/", Err(Refusal::NotFound)),
        ("GET /job/3/report", Err(Refusal::Method)),
        ("HEAD /", Err(Refusal::Method)),
        ("DELETE /job/3", Err(Refusal::Method)),
        // Without `Origin`.
        (
            "POST /job/3/report",
            Err(Refusal::ForeignOrigin(String::new())),
        ),
    ] {
        assert_eq!(got(line), expected, "{line}");
    }
    let own = "Host: localhost:7000\nOrigin: http://localhost:7000\nContent-Length: 0";
    assert_eq!(
        judged("POST /job/3/report?task=4", own),
        Ok(Wanted::MakeReport(TaskId {
            job,
            index: Some(4)
        }))
    );
    assert_eq!(judged("POST /state", own), Err(Refusal::Method));
}

#[test]
fn foreign_names_and_origins_are_refused() {
    let host = |name: &str| Err(Refusal::ForeignHost(name.to_owned()));
    let origin = |name: &str| Err(Refusal::ForeignOrigin(name.to_owned()));
    let good = Ok(Wanted::State);
    for (fields, expected) in [
        ("Host: 127.0.0.1:7000", good.clone()),
        ("host: LOCALHOST:7000", good.clone()),
        ("Host: evil.example:7000", host("evil.example:7000")),
        (
            "Host: 127.0.0.1.evil.example:7000",
            host("127.0.0.1.evil.example:7000"),
        ),
        ("Host: 127.0.0.1:7001", host("127.0.0.1:7001")),
        ("Host: 127.0.0.1", host("127.0.0.1")),
        ("Host: [::1]:7000", host("[::1]:7000")),
        ("X: y", host("")),
        (
            "Host: 127.0.0.1:7000\nOrigin: http://127.0.0.1:7000\nSec-Fetch-Site: same-origin",
            good.clone(),
        ),
        ("Host: 127.0.0.1:7000\nSec-Fetch-Site: none", good),
        (
            "Host: 127.0.0.1:7000\nOrigin: http://localhost:7000",
            origin("http://localhost:7000"),
        ),
        (
            "Host: 127.0.0.1:7000\nOrigin: https://127.0.0.1:7000",
            origin("https://127.0.0.1:7000"),
        ),
        ("Host: 127.0.0.1:7000\nOrigin: null", origin("null")),
        (
            "Host: 127.0.0.1:7000\nOrigin: http://evil.example",
            origin("http://evil.example"),
        ),
        (
            "Host: 127.0.0.1:7000\nSec-Fetch-Site: cross-site",
            origin("cross-site"),
        ),
        // Another port of this computer, perhaps of another user.
        (
            "Host: 127.0.0.1:7000\nSec-Fetch-Site: same-site",
            origin("same-site"),
        ),
    ] {
        assert_eq!(judged("GET /state", fields), expected, "{fields}");
    }
}

#[test]
fn only_the_own_user_with_a_key_comes_in() {
    let text = |target: &str, cookie: &str| {
        head(&format!(
            "GET {target} HTTP/1.1\nHost: 127.0.0.1:7000\nCookie: {cookie}"
        ))
    };
    let mut access = access();
    let mut ask = |target: &str, cookie: &str, peer: &Peer| {
        judge(&text(target, cookie), peer, PORT, &mut access)
    };
    let cookie = cookie();
    let link = format!("/open/{}", "a".repeat(32));
    assert_eq!(ask("/state", "", &Peer::Own), Err(Refusal::NoKey));
    assert_eq!(
        ask("/state", "rally-page-7000=x", &Peer::Own),
        Err(Refusal::NoKey)
    );
    // Another user does not even use the link up.
    assert_eq!(ask(&link, "", &Peer::User(7)), Err(Refusal::OtherUser));
    assert_eq!(
        ask("/state", &cookie, &Peer::User(7)),
        Err(Refusal::OtherUser)
    );
    let unknown = Peer::Unknown("the connection has ended".to_owned());
    let expected = Refusal::UnknownUser("the connection has ended".to_owned());
    assert_eq!(ask("/state", &cookie, &unknown), Err(expected));
    assert_eq!(ask("/open/x", "", &Peer::Own), Err(Refusal::WrongLink));
    assert_eq!(ask(&link, "", &Peer::Own), Ok(Wanted::Enter));
    assert_eq!(ask(&link, "", &Peer::Own), Err(Refusal::UsedLink));
    assert_eq!(ask(&link, &cookie, &Peer::Own), Err(Refusal::UsedLink));
    assert_eq!(ask("/state", &cookie, &Peer::Own), Ok(Wanted::State));
}

/// A page that is not ours cannot use the link up by another name, nor by a form.
#[test]
fn a_link_is_used_only_by_its_own_name_and_method() {
    let mut access = access();
    let link = format!("/open/{}", "a".repeat(32));
    let mut ask = |method: &str, fields: &str| {
        let head = head(&format!("{method} {link} HTTP/1.1\n{fields}"));
        judge(&head, &Peer::Own, PORT, &mut access)
    };
    assert!(ask("GET", "Host: evil.example:7000").is_err());
    assert!(ask("GET", "Host: 127.0.0.1:7000\nOrigin: http://evil.example").is_err());
    assert!(ask("GET", "Host: 127.0.0.1:7000\nContent-Length: 5").is_err());
    let own = "Host: 127.0.0.1:7000\nOrigin: http://127.0.0.1:7000";
    assert_eq!(ask("HEAD", own), Err(Refusal::Method));
    assert_eq!(ask("POST", own), Err(Refusal::Method));
    // A terminal in a browser.
    let clicked = "Host: 127.0.0.1:7000\nSec-Fetch-Site: cross-site";
    assert_eq!(ask("GET", clicked), Ok(Wanted::Enter));
}

#[test]
fn what_is_no_request_is_refused() {
    let bad = |refusal| Parsed::Bad(refusal);
    let long = format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(HEAD_MAX));
    let many = format!(
        "GET / HTTP/1.1\r\n{}\r\n",
        "X: y\r\n".repeat(FIELDS_MAX + 1)
    );
    for (bytes, expected) in [
        (&b""[..], Parsed::Incomplete),
        (b"GET / HTTP/1.1\r\nHost: x\r\n", Parsed::Incomplete),
        (b"\x16\x03\x01\x02\x00", bad(Refusal::Malformed)),
        (b"GET / HTTP/3.0\r\n\r\n", bad(Refusal::Malformed)),
        (
            b"GET /\xff HTTP/1.1\r\nHost : x\r\n\r\n",
            bad(Refusal::Malformed),
        ),
        (
            b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            bad(Refusal::Malformed),
        ),
        (
            b"GET / HTTP/1.1\r\nOrigin: a\r\norigin: a\r\n\r\n",
            bad(Refusal::Malformed),
        ),
        (
            b"GET / HTTP/1.1\r\nHost: \xff\r\n\r\n",
            bad(Refusal::Malformed),
        ),
        (long.as_bytes(), bad(Refusal::TooLong)),
        (many.as_bytes(), bad(Refusal::TooLong)),
    ] {
        assert_eq!(parse(bytes), expected, "{}", String::from_utf8_lossy(bytes));
    }
    for fields in ["Content-Length: 1", "Transfer-Encoding: chunked"] {
        let fields = format!("Host: 127.0.0.1:7000\n{fields}");
        assert_eq!(judged("GET /", &fields), Err(Refusal::Body), "{fields}");
    }
}

proptest! {
    /// Whatever comes is an answer, and without a key it is a refusal.
    #[test]
    fn no_bytes_open_the_page(
        target in "/[ -~]{0,60}",
        fields in prop::collection::vec(("[A-Za-z-]{1,16}", "[ -~]{0,40}"), 0..8),
        rest in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let fields: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let text = format!("GET {target} HTTP/1.1\r\nHost: 127.0.0.1:7000\r\n{fields}");
        for end in [&b"\r\n"[..], &rest] {
            if let Parsed::Head(head) = parse(&[text.as_bytes(), end].concat()) {
                prop_assert!(judge(&head, &Peer::Own, PORT, &mut access()).is_err());
            }
        }
        parse(&rest);
    }
}
