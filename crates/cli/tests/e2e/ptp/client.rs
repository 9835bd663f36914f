//! A client as strict as those of Eclipse are by accident: what they die of is an error here.

use std::{
    collections::BTreeSet,
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    time::{Duration, Instant},
};

use ptp::{Decoder, Framing, Packet, encode};

use crate::harness::{DEADLINE, Finished, Running, Sandbox};

/// Events about elements, and messages: they have the transaction of START_EVENTS.
const fn is_news(id: u32) -> bool {
    matches!(id, 1 | 220..=245)
}

pub(crate) struct Client {
    pub(crate) socket: TcpStream,
    framing: Framing,
    decoder: Decoder,
    /// Transactions of commands without an answer.
    pending: BTreeSet<u32>,
    /// The transaction of START_EVENTS.
    start: Option<u32>,
    /// Everything that has come, as text.
    pub(crate) heard: Vec<String>,
    /// How much of it a test has waited for.
    seen: usize,
}

/// Returns a packet as a test compares it.
fn shown(packet: &Packet) -> String {
    let args = packet.args.iter();
    let args = args.map(|arg| String::from_utf8(arg.clone()).expect("ASCII"));
    format!("{} {}", packet.id, args.collect::<Vec<_>>().join(" "))
}

/// Starts a proxy that connects to a client, with these further arguments.
pub(crate) fn start(sandbox: &Sandbox, framing: Framing, args: &[&str]) -> (Client, Running) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let port = format!("--port={port}");
    let mut command = sandbox.rally(&["ptp-proxy", "--proxy=tcp", "--host=localhost", &port]);
    let running = sandbox.start(command.args(args));
    let (socket, _) = listener.accept().unwrap();
    (Client::over(socket, framing), running)
}

impl Client {
    pub(crate) fn over(socket: TcpStream, framing: Framing) -> Self {
        socket
            .set_read_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        Self {
            socket,
            framing,
            decoder: Decoder::new(),
            pending: BTreeSet::new(),
            start: None,
            heard: Vec::new(),
            seen: 0,
        }
    }

    /// Begins a session in which events are sent.
    pub(crate) fn open(&mut self) {
        self.command(1, 0, &["version=2.0", "baseId=1000"]);
        self.expect("0 ");
        self.command(3, 0, &[]);
        self.expect("224 ");
    }

    pub(crate) fn command(&mut self, id: u32, transaction: u32, args: &[&str]) {
        let packet = Packet {
            id,
            transaction,
            args: args.iter().map(|arg| arg.as_bytes().to_vec()).collect(),
        };
        if id == 3 {
            self.start = Some(transaction);
        } else {
            self.pending.insert(transaction);
        }
        let bytes = encode(&packet, self.framing).unwrap();
        self.socket.write_all(&bytes).unwrap();
    }

    /// Reads until the next packet that begins so, and returns it.
    pub(crate) fn expect(&mut self, text: &str) -> String {
        let until = Instant::now() + DEADLINE;
        loop {
            while self.seen < self.heard.len() {
                self.seen += 1;
                let last = &self.heard[self.seen - 1];
                if last.starts_with(text) {
                    return last.clone();
                }
            }
            assert!(Instant::now() < until, "no `{text}`: {:#?}", self.heard);
            assert!(self.read(), "no `{text}` before the end: {:#?}", self.heard);
        }
    }

    /// Reads until the proxy closes the connection.
    pub(crate) fn expect_end(&mut self) {
        let until = Instant::now() + DEADLINE;
        while self.read() {
            assert!(Instant::now() < until, "no end: {:#?}", self.heard);
        }
    }

    /// Reads once. Returns false at the end.
    fn read(&mut self) -> bool {
        let mut buffer = [0; 65_536];
        match self.socket.read(&mut buffer) {
            Ok(0) => return false,
            Ok(count) => self.decoder.push(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return false,
            Err(error) => panic!("{error}"),
        }
        while let Some(packet) = self.decoder.next_packet().unwrap() {
            self.hear(&packet);
        }
        true
    }

    fn hear(&mut self, packet: &Packet) {
        assert!(packet.args.iter().flatten().all(u8::is_ascii), "{packet:?}");
        assert!(
            packet.args.iter().all(|arg| !arg.starts_with(b"=")),
            "{packet:?}"
        );
        let transaction = packet.transaction;
        match packet.id {
            // The definitions precede the OK.
            251 => assert!(self.pending.contains(&transaction), "{packet:?}"),
            id if is_news(id) => assert_eq!(Some(transaction), self.start, "{packet:?}"),
            _ if Some(transaction) == self.start && !self.pending.contains(&transaction) => {
                self.start = None;
            }
            _ => assert!(self.pending.remove(&transaction), "{packet:?}"),
        }
        self.heard.push(shown(packet));
    }

    /// Fails unless these packets have come, in this order.
    pub(crate) fn heard_in_order(&self, expected: &[&str]) {
        let mut heard = self.heard.iter();
        for event in expected {
            let found = heard.any(|other| other == event);
            assert!(found, "no `{event}` in its place: {:#?}", self.heard);
        }
    }

    /// Returns the text of a stream of a process, with all events joined.
    pub(crate) fn output(&self, job: &str, rank: u32, stream: &str) -> String {
        let begin = format!("233 {job} 1 {rank} 1 {stream}=");
        let parts = self.heard.iter();
        parts
            .filter_map(|event| event.strip_prefix(&begin))
            .collect()
    }

    /// Submits a shell script, and returns the number of its job.
    pub(crate) fn submit(&mut self, sandbox: &Sandbox, procs: u32, script: &str) -> String {
        let directory = format!("workingDir={}", sandbox.work().display());
        let procs = format!("jobNumProcs={procs}");
        let script = format!("progArgs={script}");
        let words = ["jobSubId=J", "execName=sh", "progArgs=-c", &script];
        self.command(5, 1, &[&words[..], &[&procs, &directory]].concat());
        self.new_job()
    }

    /// Returns the number of the next new job.
    pub(crate) fn new_job(&mut self) -> String {
        let event = self.expect("220 ");
        event.split(' ').nth(3).unwrap().to_owned()
    }

    /// Ends the session as a client should.
    pub(crate) fn quit(mut self, proxy: Running) -> Finished {
        self.command(0, 9, &[]);
        self.expect("6 ");
        self.socket.shutdown(Shutdown::Both).unwrap();
        drop(self.socket);
        proxy.end()
    }
}
