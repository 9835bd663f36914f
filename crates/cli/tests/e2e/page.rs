//! `rally page`: who gets what, asked by a plain client. `cargo xtask test` opens the page in a browser.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::{Read as _, Write as _},
    net::TcpStream,
    thread,
};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::harness::{DEADLINE, Running, Sandbox, Stream, eventually};

/// A machine with a page, and the key of a browser.
pub(crate) struct Page<'a> {
    sandbox: &'a Sandbox,
    server: Running,
    port: u16,
    link: String,
}

/// An answer of the server.
#[derive(Debug)]
pub(crate) struct Answer {
    status: u16,
    fields: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl<'a> Page<'a> {
    pub(crate) fn open(sandbox: &'a Sandbox, hosts: &str) -> Self {
        sandbox.run_rally(&["up", "--host", hosts]).expect_code(0);
        let server = sandbox.start(&mut sandbox.rally(&["page", "--message-format=json"]));
        server.expect(Stream::Stdout, "\n");
        let line: Value = serde_json::from_str(&server.so_far(Stream::Stdout)).unwrap();
        assert_eq!(line["machine"], "main");
        let port = u16::try_from(line["port"].as_u64().unwrap()).unwrap();
        let url = line["url"].as_str().unwrap();
        let link = url
            .strip_prefix(&format!("http://127.0.0.1:{port}"))
            .unwrap();
        Self {
            sandbox,
            server,
            port,
            link: link.to_owned(),
        }
    }

    /// Sends a request with these header fields, besides `Host`.
    pub(crate) fn ask(&self, line: &str, fields: &[&str]) -> Answer {
        let host = format!("Host: 127.0.0.1:{}", self.port);
        self.ask_as(&host, line, fields)
    }

    fn ask_as(&self, host: &str, line: &str, fields: &[&str]) -> Answer {
        let mut text = format!("{line} HTTP/1.1\r\n{host}\r\n");
        for field in fields {
            write!(text, "{field}\r\n").unwrap();
        }
        self.send(format!("{text}\r\n").as_bytes())
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream
    }

    fn send(&self, bytes: &[u8]) -> Answer {
        let mut stream = self.connect();
        stream.write_all(bytes).unwrap();
        Answer::of(stream)
    }

    /// Uses the link, and returns the header field with the key.
    pub(crate) fn enter(&self) -> String {
        let entered = self.ask(&format!("GET {}", self.link), &[]).expect(200);
        let cookie = &entered.fields["set-cookie"];
        let (pair, rest) = cookie.split_once(';').unwrap();
        assert_eq!(rest, " Path=/; HttpOnly; SameSite=Strict");
        format!("Cookie: {pair}")
    }

    pub(crate) fn json(&self, path: &str, key: &str) -> Value {
        let answer = self.ask(&format!("GET {path}"), &[key]).expect(200);
        serde_json::from_str(&answer.body).unwrap()
    }

    pub(crate) fn submit(&self, args: &[&str]) -> String {
        let all = [&["submit", "--parsable"], args].concat();
        let finished = self.sandbox.run_rally(&all).expect_code(0);
        finished.out().trim_end().to_owned()
    }

    /// Waits until the page shows this of a job.
    pub(crate) fn expect(&self, path: &str, key: &str, is: impl Fn(&Value) -> bool) -> Value {
        let found = eventually(DEADLINE, || {
            Some(self.json(path, key)).filter(|value| is(value))
        });
        found.unwrap_or_else(|| panic!("{}", self.json(path, key)))
    }

    /// Returns the header field by which the page says that it asks.
    fn origin(&self) -> String {
        format!("Origin: http://127.0.0.1:{}", self.port)
    }

    /// Has a report on a job begun, as soon as it runs.
    pub(crate) fn order_report(&self, job: &str, key: &str) {
        let order = format!("POST /job/{job}/report");
        let begun = eventually(DEADLINE, || {
            let answer = self.ask(&order, &[key, &self.origin()]);
            (answer.status == 202).then_some(())
        });
        assert!(begun.is_some());
    }

    /// Waits for the first report, which is on this job.
    pub(crate) fn report(&self, job: &str, key: &str) -> Answer {
        let shown = self.expect(&format!("/job/{job}"), key, |shown| {
            shown["reports"][0]["state"] != "making"
        });
        assert_eq!(shown["reports"][0]["state"], "ready", "{shown}");
        self.ask("GET /report/1", &[key]).expect(200)
    }

    pub(crate) fn close(self) {
        self.sandbox.run_rally(&["down", "--now"]).expect_code(0);
        let ended = self.server.end().expect_code(0);
        ended.expect_err(&["machine `main` has ended, and the page with it"]);
    }
}

impl Answer {
    fn of(mut stream: TcpStream) -> Self {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").expect(&text);
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap();
        let fields = lines.map(|line| {
            let (name, value) = line.split_once(": ").unwrap();
            (name.to_lowercase(), value.to_owned())
        });
        Self {
            status: status.parse().unwrap(),
            fields: fields.collect(),
            body: body.to_owned(),
        }
    }

    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{self:?}");
        self
    }

    #[track_caller]
    fn says(self, status: u16, words: &str) {
        assert!(self.body.contains(words), "{self:?}");
        self.expect(status);
    }
}

#[test]
fn only_the_link_opens_the_page_and_only_once() {
    let sandbox = Sandbox::new();
    let page = Page::open(&sandbox, "localhost:2");
    let link = format!("GET {}", page.link);
    page.ask("GET /", &[]).says(403, "run `rally page` again");
    page.ask("GET /state", &[]).says(403, "no key");
    page.ask("GET /open/0123456789abcdef0123456789abcdef", &[])
        .says(403, "not the link");
    // A name that leads here, as with DNS rebinding: the link is not even used up.
    page.ask_as("Host: rebound.example", &link, &[])
        .says(403, "not called `rebound.example`");
    let foreign = ["Origin: http://evil.example"];
    page.ask(&link, &foreign).says(403, "evil.example");
    let key = page.enter();
    page.ask(&link, &[]).says(403, "works once");
    page.ask(&link, &[&key]).says(403, "works once");

    let shown = page.ask("GET /", &[&key]).expect(200);
    assert!(shown.fields["content-security-policy"].starts_with("default-src 'none'"));
    assert_eq!(shown.fields["cache-control"], "no-store");
    assert_eq!(shown.fields["x-content-type-options"], "nosniff");
    assert_eq!(page.json("/state", &key)["machine"]["machine"], "main");
    page.ask("GET /state", &[&key, foreign[0]]).expect(403);
    page.ask("GET /state", &[&key, "Sec-Fetch-Site: same-site"])
        .expect(403);
    page.ask_as("Host: rebound.example", "GET /state", &[&key])
        .expect(403);
    page.ask("POST /job/1/report", &[&key])
        .says(403, "Only the page itself");
    page.ask("POST /job/1/report", &[&key, foreign[0]])
        .expect(403);
    page.ask("GET /job/1/report", &[&key]).expect(405);
    page.ask("GET /../../etc/passwd", &[&key]).expect(404);
    page.ask("GET /report/1", &[&key]).expect(404);
    page.ask("GET /job/99", &[&key])
        .says(409, "the machine knows no job 99");

    // The page is there for its user only, whatever others know.
    let other = nix::unistd::geteuid().is_root();
    if other {
        let script = "import sys, urllib.request, urllib.error
request = urllib.request.Request(sys.argv[1], headers={'Cookie': sys.argv[2]})
try: print(urllib.request.urlopen(request).read())
except urllib.error.HTTPError as error: print(error.code, error.read().decode())";
        let mut client = sandbox.command("setpriv");
        client.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        client.args(["/usr/bin/python3", "-c", script]);
        client.arg(format!("http://127.0.0.1:{}/state", page.port));
        client.arg(key.strip_prefix("Cookie: ").unwrap());
        let refused = sandbox.run(client.current_dir("/")).expect_code(0).out();
        assert!(
            refused.starts_with("403 ") && refused.contains("you are another one"),
            "{refused}"
        );
    }
    page.close();
}

#[test]
fn names_and_output_of_jobs_are_shown() {
    let sandbox = Sandbox::new();
    let page = Page::open(&sandbox, "localhost:2");
    let key = page.enter();
    let name = "<img src=x onerror=alert(1)>\u{1b}[2J";
    let script = "printf 'a\\033[31mb\\033[0m <script>\\n'; printf error >&2; until test -e go; do sleep 0.01; done; echo later; exec sleep 1000";
    let job = page.submit(&[
        "-n",
        "2",
        "--job-name",
        name,
        "--output-to",
        "out",
        "--errors-to",
        "err",
        "sh",
        "-c",
        script,
    ]);
    let waits = page.submit(&["-n", "1", "true"]);
    let path = format!("/job/{job}");
    let shown = page.expect(&path, &key, |shown| {
        let text = shown["printed"]["text"].as_str().unwrap_or_default();
        text.matches("<script>").count() == 2
    });
    assert_eq!(shown["name"], name);
    assert_eq!(shown["printed"]["text"], "ab <script>\nab <script>\n");
    let mark = shown["printed"]["mark"].as_str().unwrap();
    let same = page.json(&format!("{path}?mark={mark}"), &key);
    assert_eq!(same["printed"]["text"], Value::Null);
    sandbox.file("go", "");
    page.expect(&format!("{path}?mark={mark}"), &key, |shown| {
        let text = shown["printed"]["text"].as_str().unwrap_or_default();
        text.ends_with("later\nlater\n")
    });
    let errors = format!("{path}?stream=errors");
    page.expect(&errors, &key, |shown| {
        shown["printed"]["text"] == "errorerror"
    });
    let state = page.json("/state", &key);
    let jobs = state["jobs"].as_array().unwrap();
    assert_eq!(jobs[0]["state"], "running");
    let why = jobs[1]["waits"].as_str().unwrap();
    assert!(why.contains("waits for the end of 1"), "{why}");
    let why = page.json(&format!("/job/{waits}"), &key);
    assert_eq!(why["explained"]["ahead_count"], 0);
    assert_eq!(why["printed"]["none"], "nothing was printed yet");
    page.close();
}

#[test]
fn a_report_is_made_at_a_click() {
    let sandbox = Sandbox::new();
    let page = Page::open(&sandbox, "localhost:2");
    let key = page.enter();
    let job = page.submit(&["-n", "2", "sleep", "1000"]);
    let path = format!("/job/{job}");
    page.order_report(&job, &key);
    let again = page.ask(&format!("POST {path}/report"), &[&key, &page.origin()]);
    // On a busy computer, the first one may be ready by now.
    if again.status != 202 {
        again.says(409, "another report is being made");
    }
    let report = page.report(&job, &key);
    assert!(report.body.contains("2 ranks of `sleep`"), "{report:?}");
    let policy = &report.fields["content-security-policy"];
    assert!(policy.ends_with("sandbox allow-scripts"), "{policy}");
    sandbox.run_rally(&["cancel", &job]).expect_code(0);
    page.expect(&path, &key, |shown| shown["state"] == "canceled");
    page.ask(&format!("POST {path}/report"), &[&key, &page.origin()])
        .says(409, "job 1 is over");
    page.close();
}

#[test]
fn what_is_slow_large_or_many_blocks_nobody() {
    let sandbox = Sandbox::new();
    let page = Page::open(&sandbox, "localhost:2");
    let key = page.enter();
    let long = format!("X: {}", "x".repeat(100_000));
    page.ask("GET /", &[&key, &long]).expect(431);
    page.ask("GET /", &[&key, "Content-Length: 3"]).expect(413);
    page.send(b"\x16\x03\x01\r\n\r\n").expect(400);
    // More connections than the server has room for, which send nothing, or only a beginning.
    let silent: Vec<TcpStream> = (0..60).map(|_| page.connect()).collect();
    let slow: Vec<TcpStream> = (0..20).map(|_| page.connect()).collect();
    for mut stream in &slow {
        stream.write_all(b"GET / HTTP/1.1\r\nHost").unwrap();
    }
    let late = thread::scope(|scope| {
        let late = scope.spawn(|| slow.into_iter().map(Answer::of).collect::<Vec<_>>());
        assert_eq!(page.json("/state", &key)["machine"]["machine"], "main");
        late.join().unwrap()
    });
    for answer in late {
        answer.expect(408);
    }
    for mut stream in silent {
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"");
    }
    page.close();
}

#[test]
fn a_page_ends_by_a_signal_and_its_port_can_be_chosen() {
    let sandbox = Sandbox::new();
    let page = Page::open(&sandbox, "localhost:2");
    page.enter();
    let taken = page.port.to_string();
    let refused = sandbox
        .run_rally(&["page", "--port", &taken])
        .expect_code(123);
    refused.expect_err(&["cannot listen on port", "choose another `--port`"]);
    page.server.signal(Signal::SIGINT);
    page.server.end().expect_code(130);
    // Connections of the first one that are still closing do not matter.
    let again = sandbox.start(&mut sandbox.rally(&["page", "--port", &taken]));
    again.expect(Stream::Stdout, &format!("http://127.0.0.1:{taken}/open/"));
    again.expect(Stream::Stderr, "the link works once");
    sandbox.run_rally(&["down"]).expect_code(0);
    again.end().expect_code(0);
    let none = sandbox.run_rally(&["page"]).expect_code(120);
    none.expect_err(&["no machine runs on this host"]);
}
