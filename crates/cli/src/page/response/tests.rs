use super::*;

#[test]
fn every_refusal_says_what_to_do() {
    let name = || "evil.example".to_owned();
    let all = [
        Refusal::OtherUser,
        Refusal::UnknownUser("no process has the other end".to_owned()),
        Refusal::Malformed,
        Refusal::TooLong,
        Refusal::Late,
        Refusal::ForeignHost(name()),
        Refusal::ForeignOrigin(name()),
        Refusal::ForeignOrigin(String::new()),
        Refusal::NoKey,
        Refusal::UsedLink,
        Refusal::WrongLink,
        Refusal::Method,
        Refusal::Body,
        Refusal::NotFound,
    ];
    let text = all.map(|refusal| format!("{}: {}", status(&refusal), sentence(&refusal)));
    insta::assert_snapshot!(text.join("\n"), @r"
    403 Forbidden: This page is for the user who has started `rally page`, and you are another one.
    403 Forbidden: This page is for the user who has started `rally page`, and the kernel does not say who you are: no process has the other end.
    400 Bad Request: This is no request of HTTP/1.1 that this page understands.
    431 Request Header Fields Too Large: The request has more than 16384 bytes, or too many header fields.
    408 Request Timeout: The request did not arrive in time.
    403 Forbidden: The page is not called `evil.example`. Use the link that `rally page` has printed. If you forward the port to another computer, use the same number there (`rally page --port` sets it).
    403 Forbidden: Only the page itself may ask for this, and no other site (`evil.example`). Use the link that `rally page` has printed.
    403 Forbidden: Only the page itself may ask for this.
    403 Forbidden: This browser has no key for the page. Use the link that `rally page` has printed. If it was used, run `rally page` again.
    403 Forbidden: This link was used. It works once: in the browser that has used it, the page is at the address without the token. For another browser, run `rally page` again.
    403 Forbidden: This is not the link that `rally page` has printed. Copy all of it.
    405 Method Not Allowed: The page understands GET, and POST for orders.
    413 Content Too Large: The page takes no data.
    404 Not Found: There is no such thing here.
    ");
}

fn head(response: &Response) -> String {
    let text = String::from_utf8(response.bytes()).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let length = format!("Content-Length: {}", body.len());
    assert!(head.contains(&length), "{head}");
    head.replace('\r', "")
}

#[test]
fn header_fields_keep_others_out() {
    let enter = Response::enter("rally-page-7000=x; Path=/; HttpOnly; SameSite=Strict".to_owned());
    let all = [
        head(&enter),
        head(&Response::json("{}".to_owned())),
        head(&Response::report(b"<p>".to_vec())),
    ];
    insta::assert_snapshot!(all.join("\n\n"), @r"
    HTTP/1.1 200 OK
    Content-Type: text/html; charset=utf-8
    Content-Length: 148
    Set-Cookie: rally-page-7000=x; Path=/; HttpOnly; SameSite=Strict
    Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'
    Cross-Origin-Opener-Policy: same-origin
    X-Content-Type-Options: nosniff
    Referrer-Policy: no-referrer
    Cross-Origin-Resource-Policy: same-origin
    Cache-Control: no-store
    Connection: close

    HTTP/1.1 200 OK
    Content-Type: application/json
    Content-Length: 2
    Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'
    Cross-Origin-Opener-Policy: same-origin
    X-Content-Type-Options: nosniff
    Referrer-Policy: no-referrer
    Cross-Origin-Resource-Policy: same-origin
    Cache-Control: no-store
    Connection: close

    HTTP/1.1 200 OK
    Content-Type: text/html; charset=utf-8
    Content-Length: 3
    Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'; sandbox allow-scripts
    X-Content-Type-Options: nosniff
    Referrer-Policy: no-referrer
    Cross-Origin-Resource-Policy: same-origin
    Cache-Control: no-store
    Connection: close
    ");
}

/// The policy forbids what is in line: then the page would not work.
#[test]
fn the_page_has_nothing_in_line() {
    for part in [
        "<style",
        "style=",
        "onclick",
        "onload",
        "javascript:",
        "http://",
        "https://",
    ] {
        assert!(!PAGE.contains(part), "{part}");
    }
    assert_eq!(PAGE.matches("<script").count(), 1);
    for part in [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        ".style",
    ] {
        assert!(!SCRIPT.contains(part), "{part}");
    }
    assert!(!STYLE.contains("url(") && !STYLE.contains("@import"));
}
