//! What a visitor gets: bytes of HTTP, with the header fields that keep everybody else out.

use super::request::{Asset, HEAD_MAX, Refusal};

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
const ICON: &str = include_str!("icon.svg");

/// The policy of the page: everything comes from here, nothing is in line, and no text becomes HTML. Other windows have no hold on it.
const PAGE_POLICY: &str = "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'\r\n\
    Cross-Origin-Opener-Policy: same-origin";
/// The policy of a hang report, which is one file with a style and a script in it. In its sandbox, which has an origin of its own,
/// it reaches neither the page nor the server.
const REPORT_POLICY: &str = "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'self'; sandbox allow-scripts";

const HTML: &str = "text/html; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Response {
    status: &'static str,
    kind: &'static str,
    policy: &'static str,
    cookie: Option<String>,
    body: Vec<u8>,
}

impl Response {
    const fn new(status: &'static str, kind: &'static str, body: Vec<u8>) -> Self {
        Self {
            status,
            kind,
            policy: PAGE_POLICY,
            cookie: None,
            body,
        }
    }

    pub(super) fn asset(asset: Asset) -> Self {
        let (kind, text) = match asset {
            Asset::Page => (HTML, PAGE),
            Asset::Style => ("text/css; charset=utf-8", STYLE),
            Asset::Script => ("text/javascript; charset=utf-8", SCRIPT),
            Asset::Icon => ("image/svg+xml", ICON),
        };
        Self::new("200 OK", kind, text.as_bytes().to_vec())
    }

    /// Gives a visitor a session. The document leads to the page, instead of a redirection: after a click on another site, browsers
    /// would follow a redirection without the new cookie.
    pub(super) fn enter(cookie: String) -> Self {
        let text = "<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=refresh content=\"0;url=/\">\
            <title>rally</title><p><a href=\"/\">Go on</a></p></html>\n";
        Self {
            cookie: Some(cookie),
            ..Self::new("200 OK", HTML, text.as_bytes().to_vec())
        }
    }

    pub(super) fn json(text: String) -> Self {
        Self::new("200 OK", "application/json", text.into_bytes())
    }

    pub(super) fn report(html: Vec<u8>) -> Self {
        Self {
            policy: REPORT_POLICY,
            ..Self::new("200 OK", HTML, html)
        }
    }

    /// The order was accepted.
    pub(super) const fn accepted() -> Self {
        Self::new("202 Accepted", TEXT, Vec::new())
    }

    /// An order or a question that cannot be carried out now, with the reason.
    pub(super) fn conflict(why: &str) -> Self {
        Self::new("409 Conflict", TEXT, why.as_bytes().to_vec())
    }

    /// The machine has ended.
    pub(super) const fn gone() -> Self {
        Self::new("410 Gone", TEXT, Vec::new())
    }

    /// The machine does not answer.
    pub(super) fn unavailable(why: &str) -> Self {
        Self::new("503 Service Unavailable", TEXT, why.as_bytes().to_vec())
    }

    pub(super) fn refused(refusal: &Refusal) -> Self {
        let text = sentence(refusal) + "\n";
        Self::new(status(refusal), TEXT, text.into_bytes())
    }

    /// Returns the bytes to send.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let Self {
            status,
            kind,
            policy,
            cookie,
            body,
        } = self;
        let length = body.len();
        let cookie = cookie
            .as_ref()
            .map_or_else(String::new, |cookie| format!("Set-Cookie: {cookie}\r\n"));
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{cookie}\
             {policy}\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
             Cross-Origin-Resource-Policy: same-origin\r\n\
             Cache-Control: no-store\r\nConnection: close\r\n\r\n"
        );
        [head.as_bytes(), body].concat()
    }
}

const fn status(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::OtherUser
        | Refusal::UnknownUser(_)
        | Refusal::ForeignHost(_)
        | Refusal::ForeignOrigin(_)
        | Refusal::NoKey
        | Refusal::UsedLink
        | Refusal::WrongLink => "403 Forbidden",
        Refusal::Malformed => "400 Bad Request",
        Refusal::TooLong => "431 Request Header Fields Too Large",
        Refusal::Late => "408 Request Timeout",
        Refusal::Method => "405 Method Not Allowed",
        Refusal::Body => "413 Content Too Large",
        Refusal::NotFound => "404 Not Found",
    }
}

/// Returns what is wrong, and what to do.
pub(super) fn sentence(refusal: &Refusal) -> String {
    match refusal {
        Refusal::OtherUser => "This page is for the user who has started `rally page`, and you are another one.".to_owned(),
        Refusal::UnknownUser(why) => {
            format!("This page is for the user who has started `rally page`, and the kernel does not say who you are: {why}.")
        }
        Refusal::Malformed => "This is no request of HTTP/1.1 that this page understands.".to_owned(),
        Refusal::TooLong => format!("The request has more than {HEAD_MAX} bytes, or too many header fields."),
        Refusal::Late => "The request did not arrive in time.".to_owned(),
        Refusal::ForeignHost(host) => format!(
            "The page is not called `{host}`. Use the link that `rally page` has printed. If you forward the port to another \
             computer, use the same number there (`rally page --port` sets it)."
        ),
        Refusal::ForeignOrigin(origin) if origin.is_empty() => "Only the page itself may ask for this.".to_owned(),
        Refusal::ForeignOrigin(origin) => {
            format!("Only the page itself may ask for this, and no other site (`{origin}`). Use the link that `rally page` has printed.")
        }
        Refusal::NoKey => "This browser has no key for the page. Use the link that `rally page` has printed. If it was used, run `rally page` \
             again."
            .to_owned(),
        Refusal::UsedLink => "This link was used. It works once: in the browser that has used it, the page is at the address without the \
             token. For another browser, run `rally page` again."
            .to_owned(),
        Refusal::WrongLink => "This is not the link that `rally page` has printed. Copy all of it.".to_owned(),
        Refusal::Method => "The page understands GET, and POST for orders.".to_owned(),
        Refusal::Body => "The page takes no data.".to_owned(),
        Refusal::NotFound => "There is no such thing here.".to_owned(),
    }
}

#[cfg(test)]
mod tests;
