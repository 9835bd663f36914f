//! The messages of `rally ptp-proxy`.

use std::net::SocketAddr;

use message::Message;
use ptp::Over;

use crate::{exit::ExitCode, machine::Failure};

message::kinds! {
    /// All kinds of messages about the proxy.
    pub(crate) const KINDS;

    NOT_LOOPBACK: Error "proxy/not-loopback"
"The protocol of Eclipse PTP has no passwords: whoever connects runs programs as you. So the proxy listens only on the loopback interface, \
where the kernel says who connects. A client on another computer can come through ssh: `ssh -R PORT:localhost:PORT` on its side lets the \
proxy connect to it with `--host=localhost --port=PORT`. `--anyone-may-connect` listens on any address, for networks in which nobody else is."

    NO_HOST: Error "proxy/no-host"
"The name after `--host` has no address: it is misspelt, or the name service does not know it."

    NO_CLIENT: Error "proxy/no-client"
"The proxy could not connect to the client. Eclipse listens before it starts the proxy, and for one connection only. If it runs on another \
computer, its port has to be forwarded."

    NOT_LISTENING: Error "proxy/not-listening"
"The proxy cannot listen on the address: another process has the port, or a limit is reached."

    STRANGER: Error "proxy/stranger"
"Another user has the other end of a connection on this computer, or the kernel does not say who has it. It was closed before a byte of it \
was handled. A client of another user cannot use your proxy."

    WAITS: Note "proxy/waits"
"The client does not listen yet, or never will. The proxy tries a few times, with a second between two tries, before it gives up."

    NO_MACHINE: Error "proxy/no-machine"
"No machine runs, and the proxy could not start one of its own, for the reason that `rally up` has given before."

    RUNS_ALREADY: Note "proxy/runs-already"
"Another proxy has started the machine for proxies, and this one uses it too. Options after `--` are for a machine that is started."

    LISTENS: Note "proxy/listens"
"The proxy waits for a client. It takes one connection, and ends with it."

    OVER: Note "proxy/over"
"The client has quit, as it should."

    CUT: Error "proxy/cut"
"The connection has ended without a QUIT of the client: Eclipse was closed or killed, or the network failed, or the client sent what is no \
packet, or did not read. What becomes of the jobs that it has started, `--on-disconnect` says: by default they are ended."
}

/// Returns the counted noun.
fn jobs(count: usize) -> String {
    match count {
        1 => "1 job".to_owned(),
        count => format!("{count} jobs"),
    }
}

pub(super) fn not_loopback(address: SocketAddr) -> Failure {
    let message = Message::new(
        &NOT_LOOPBACK,
        format!("`{address}` is no loopback address, and the protocol has no passwords"),
    )
    .with_help("listen on 127.0.0.1 and forward the port with ssh, or add --anyone-may-connect");
    (message, ExitCode::Usage)
}

pub(super) fn no_host(host: &str, why: &str) -> Failure {
    let message = Message::new(&NO_HOST, format!("cannot find the host `{host}`: {why}"))
        .with_help("check the name after --host");
    (message, ExitCode::Resources)
}

pub(super) fn no_client(host: &str, port: u16, why: &str) -> Failure {
    let message = Message::new(
        &NO_CLIENT,
        format!("cannot connect to the client at {host}, port {port}: {why}"),
    )
    .with_help("start the client first; it listens, and the proxy connects");
    (message, ExitCode::Resources)
}

/// Says that a try has failed and another one follows.
pub(super) fn waits(host: &str, port: u16, why: &str) -> Message {
    Message::new(
        &WAITS,
        format!("no client at {host}, port {port}, yet: {why}; trying again"),
    )
}

pub(super) fn not_listening(address: SocketAddr, error: &os::Error) -> Failure {
    let message = Message::new(
        &NOT_LISTENING,
        format!("cannot listen on {address}: {error}"),
    )
    .with_help("choose another port, or 0 for a free one");
    (message, ExitCode::Resources)
}

/// Options for the proxy's own machine have no effect.
pub(super) fn runs_already(name: &str) -> Message {
    Message::new(
        &RUNS_ALREADY,
        format!("machine `{name}` runs already; the options for it have no effect"),
    )
}

pub(super) fn no_machine(why: &str) -> Failure {
    let message = Message::new(&NO_MACHINE, format!("`rally up` has failed: {why}"))
        .with_help("start a machine with `rally up`, or pass its options after `--`");
    (message, ExitCode::Resources)
}

pub(super) fn stranger(who: &str) -> Message {
    Message::new(&STRANGER, format!("closed a connection: {who}"))
}

pub(super) fn gone() -> Message {
    Message::new(
        &STRANGER,
        "closed a connection: its other end has gone or is closing, so nobody knows whose it is",
    )
    .with_help("a client keeps both directions of its connection open until it has quit")
}

pub(super) fn listens(address: SocketAddr, machine: &str) -> Message {
    Message::new(
        &LISTENS,
        format!("the proxy of machine `{machine}` waits for a client on {address}"),
    )
}

/// Says why the session is over, and what becomes of the jobs that live.
pub(super) fn over(why: &Over, living: usize, continues: bool) -> Message {
    let kind = match why {
        Over::Quit => &OVER,
        _ => &CUT,
    };
    let rest = match (living, continues) {
        (0, _) => String::new(),
        (1, true) => "; its job goes on".to_owned(),
        (1, false) => "; its job is ended".to_owned(),
        (count, true) => format!("; its {} go on", jobs(count)),
        (count, false) => format!("; its {} are ended", jobs(count)),
    };
    Message::new(kind, format!("{why}{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::MessageFormat;

    #[test]
    fn every_sentence() {
        let busy = os::Error::Call {
            operation: "take a loopback port",
            errno: 98,
        };
        let address = SocketAddr::from(([10, 0, 0, 1], 12345));
        let all = [
            not_loopback(address).0,
            no_host("eclipse", "Name or service not known").0,
            no_client("localhost", 12345, "Connection refused").0,
            waits("localhost", 12345, "Connection refused"),
            not_listening(address, &busy).0,
            runs_already("ptp"),
            no_machine("exit status: 121").0,
            stranger("user 1000 has its other end"),
            gone(),
            listens(address, "main"),
            over(&Over::Quit, 0, false),
            over(&Over::Closed, 1, false),
            over(&Over::Cut, 2, false),
            over(&Over::Unread, 1, true),
            over(&Over::UsedUp, 3, true),
        ];
        let text = all.map(|message| message::text(&message, MessageFormat::Text));
        insta::assert_snapshot!(text.join("\n"));
    }
}
