//! What a browser asks, and whether it gets an answer.
//!
//! [`judge`] is a pure function, and checks in this order:
//!
//! | check | refuses | why |
//! |---|---|---|
//! | the user at the other end, as the kernel names it | all users but ours | a key that has leaked is of no use to them |
//! | `Host` | all but `127.0.0.1:PORT` and `localhost:PORT` | a foreign name that leads here (DNS rebinding) |
//! | `Origin`, `Sec-Fetch-Site` | pages of other origins | they can make a browser send our cookie |
//! | method and body | all but GET, and POST for orders; bodies | – |
//! | the token of the link, or the cookie of the session | whoever has neither | – |

use base::JobId;
use dvm::queue::TaskId;
use os::PeerIdentity;

use super::access::{Access, Token};

/// Bytes of a request, which has no body.
pub(super) const HEAD_MAX: usize = 16 << 10;
/// Header fields of a request.
const FIELDS_MAX: usize = 64;
/// Bytes of a foreign name in a refusal.
const NAME_MAX: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Get,
    Post,
    Other,
}

/// The first line and the header fields of a request, as far as they matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) method: Method,
    pub(super) target: String,
    pub(super) host: Option<String>,
    pub(super) origin: Option<String>,
    /// `Sec-Fetch-Site`.
    pub(super) site: Option<String>,
    pub(super) cookies: String,
    pub(super) has_body: bool,
}

/// The result of parsing what has arrived of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    Incomplete,
    Head(Head),
    Bad(Refusal),
}

/// Who is at the other end of a connection, according to the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    Own,
    /// Another user.
    User(u32),
    /// Why the user is unknown.
    Unknown(String),
}

impl Peer {
    pub(super) fn of(identity: PeerIdentity, own: u32) -> Self {
        match identity {
            PeerIdentity::User(uid) if uid == own => Self::Own,
            PeerIdentity::User(uid) => Self::User(uid),
            PeerIdentity::Unknown(why) => Self::Unknown(why.to_string()),
        }
    }
}

/// Why a request gets no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    OtherUser,
    UnknownUser(String),
    Malformed,
    TooLong,
    Late,
    ForeignHost(String),
    ForeignOrigin(String),
    NoKey,
    UsedLink,
    WrongLink,
    Method,
    Body,
    NotFound,
}

/// A file of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asset {
    Page,
    Style,
    Script,
    Icon,
}

/// A stream of a job's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Output,
    Errors,
}

/// What a page shows of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JobView {
    pub(super) job: JobId,
    /// The task of an array; `None`: the first one that has an output.
    pub(super) index: Option<u32>,
    pub(super) stream: Stream,
    /// The mark of the output that the page has.
    pub(super) mark: String,
}

/// What a visitor who may come in wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// A session.
    Enter,
    Asset(Asset),
    State,
    Job(JobView),
    /// A hang report is to be made.
    MakeReport(TaskId),
    /// The hang report with this number.
    Report(u32),
}

/// Parses the bytes that have arrived of a request.
pub(super) fn parse(bytes: &[u8]) -> Parsed {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_MAX => return Parsed::Incomplete,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Parsed::Bad(Refusal::TooLong);
        }
        Err(_) => return Parsed::Bad(Refusal::Malformed),
    }
    head(&request).map_or(Parsed::Bad(Refusal::Malformed), Parsed::Head)
}

/// Returns `None` if a field that must occur once does so twice, or is no text.
fn head(request: &httparse::Request<'_, '_>) -> Option<Head> {
    let mut head = Head {
        method: match request.method? {
            "GET" => Method::Get,
            "POST" => Method::Post,
            _ => Method::Other,
        },
        target: request.path?.to_owned(),
        host: None,
        origin: None,
        site: None,
        cookies: String::new(),
        has_body: false,
    };
    for field in request.headers.iter() {
        let once = if field.name.eq_ignore_ascii_case("host") {
            &mut head.host
        } else if field.name.eq_ignore_ascii_case("origin") {
            &mut head.origin
        } else if field.name.eq_ignore_ascii_case("sec-fetch-site") {
            &mut head.site
        } else {
            if field.name.eq_ignore_ascii_case("transfer-encoding")
                || (field.name.eq_ignore_ascii_case("content-length") && field.value != b"0")
            {
                head.has_body = true;
            } else if field.name.eq_ignore_ascii_case("cookie") {
                head.cookies
                    .push_str(std::str::from_utf8(field.value).ok()?);
                head.cookies.push(';');
            }
            continue;
        };
        if once.is_some() {
            return None;
        }
        *once = Some(std::str::from_utf8(field.value).ok()?.trim().to_owned());
    }
    Some(head)
}

/// Decides what a request gets.
pub(super) fn judge(
    head: &Head,
    peer: &Peer,
    port: u16,
    access: &mut Access,
) -> Result<Wanted, Refusal> {
    match peer {
        Peer::Own => {}
        Peer::User(_) => return Err(Refusal::OtherUser),
        Peer::Unknown(why) => return Err(Refusal::UnknownUser(why.clone())),
    }
    let host = head.host.as_deref().unwrap_or_default();
    if ![format!("127.0.0.1:{port}"), format!("localhost:{port}")]
        .iter()
        .any(|own| own.eq_ignore_ascii_case(host))
    {
        return Err(Refusal::ForeignHost(short(host)));
    }
    // Browsers send it with each POST. Only the page itself gives orders.
    let is_own = |origin: &String| origin.eq_ignore_ascii_case(&format!("http://{host}"));
    match &head.origin {
        Some(origin) if !is_own(origin) => return Err(Refusal::ForeignOrigin(short(origin))),
        None if head.method == Method::Post => {
            return Err(Refusal::ForeignOrigin(String::new()));
        }
        Some(_) | None => {}
    }
    if head.has_body {
        return Err(Refusal::Body);
    }
    let (path, query) = head.target.split_once('?').unwrap_or((&head.target, ""));
    if let Some(token) = path.strip_prefix("/open/") {
        // A link may be clicked on any page, such as a terminal in a browser.
        if head.method != Method::Get {
            return Err(Refusal::Method);
        }
        return match access.try_token(token) {
            Token::Opens => Ok(Wanted::Enter),
            Token::Used => Err(Refusal::UsedLink),
            Token::Wrong => Err(Refusal::WrongLink),
        };
    }
    // `none`: the user has typed the address.
    match head.site.as_deref() {
        Some("same-origin" | "none") | None => {}
        Some(site) => return Err(Refusal::ForeignOrigin(short(site))),
    }
    if !access.has_session(&head.cookies) {
        return Err(Refusal::NoKey);
    }
    let wanted = wanted(path, query).ok_or(Refusal::NotFound)?;
    let is_order = matches!(wanted, Wanted::MakeReport(_));
    match (head.method, is_order) {
        (Method::Get, false) | (Method::Post, true) => Ok(wanted),
        _ => Err(Refusal::Method),
    }
}

/// Returns what a path means; `None` if it means nothing.
fn wanted(path: &str, query: &str) -> Option<Wanted> {
    let asset = match path {
        "/" => Asset::Page,
        "/page.css" => Asset::Style,
        "/page.js" => Asset::Script,
        "/icon.svg" => Asset::Icon,
        "/state" => return Some(Wanted::State),
        _ => return of_job(path, query),
    };
    Some(Wanted::Asset(asset))
}

fn of_job(path: &str, query: &str) -> Option<Wanted> {
    let field = |name: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
    };
    let index = match field("task") {
        Some(digits) => Some(number(digits)?),
        None => None,
    };
    let mut parts = path.strip_prefix('/')?.split('/');
    match (parts.next()?, parts.next()?, parts.next(), parts.next()) {
        ("job", job, None, None) => Some(Wanted::Job(JobView {
            job: JobId(number(job)?),
            index,
            stream: match field("stream") {
                Some("errors") => Stream::Errors,
                _ => Stream::Output,
            },
            mark: field("mark").unwrap_or_default().to_owned(),
        })),
        ("job", job, Some("report"), None) => {
            let job = JobId(number(job)?);
            Some(Wanted::MakeReport(TaskId { job, index }))
        }
        ("report", report, None, None) => Some(Wanted::Report(number(report)?)),
        _ => None,
    }
}

/// Parses a number that has digits only.
fn number(digits: &str) -> Option<u32> {
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_plain)
}

/// Shortens a foreign name for a refusal.
fn short(name: &str) -> String {
    name.chars().take(NAME_MAX).collect()
}

#[cfg(test)]
mod tests;
