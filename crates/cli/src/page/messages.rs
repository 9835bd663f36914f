//! The messages of `rally page`.

use message::Message;

use crate::exit::ExitCode;

message::kinds! {
    /// All kinds of messages about the page.
    pub(crate) const KINDS;

    OPEN: Note "page/open"
"`rally page` has printed a link for a browser on this computer. It works once, and only for you: the browser that opens it can see the \
page until `rally page` ends. Another browser needs another `rally page`. To see the page on another computer, forward the port with ssh, to \
the same number there."

    OVER: Note "page/over"
"The machine has ended, and the page with it. Browsers that show the page say so too."

    NO_PORT: Error "page/no-port"
"`rally page` cannot listen on a port of the loopback interface: another process has the port of `--port`, or a limit is reached. The exit \
code is 123."
}

pub(super) fn open(machine: &str, port: u16, host: &str) -> Message {
    let what = format!("the page of machine `{machine}` is open until Ctrl-C; the link works once");
    Message::new(&OPEN, what).with_help(format!(
        "from another computer: `ssh -N -L {port}:127.0.0.1:{port} {host}`, then the same link"
    ))
}

pub(super) fn over(machine: &str) -> Message {
    Message::new(
        &OVER,
        format!("machine `{machine}` has ended, and the page with it"),
    )
}

pub(super) fn no_port(port: Option<u16>, error: &os::Error) -> (Message, ExitCode) {
    let message = match port {
        Some(port) => Message::new(&NO_PORT, format!("cannot listen on port {port}: {error}"))
            .with_help("choose another `--port`, or leave it out"),
        None => Message::new(&NO_PORT, format!("cannot listen on a port: {error}")),
    };
    (message, ExitCode::Resources)
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
        let all = [
            open("main", 7000, "n1"),
            over("main"),
            no_port(Some(7000), &busy).0,
            no_port(None, &busy).0,
        ];
        let text = all.map(|message| message::text(&message, MessageFormat::Text));
        insta::assert_snapshot!(text.join("\n"), @r"
        note: the page of machine `main` is open until Ctrl-C; the link works once
          help: from another computer: `ssh -N -L 7000:127.0.0.1:7000 n1`, then the same link

        note: machine `main` has ended, and the page with it

        error: cannot listen on port 7000: cannot take a loopback port: Address already in use
          help: choose another `--port`, or leave it out

        error: cannot listen on a port: cannot take a loopback port: Address already in use
        ");
    }
}
