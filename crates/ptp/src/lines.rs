//! The framing for people and scripts (section 4): a line is a packet.
//!
//! It has the name of the command or event, the transaction, and the arguments, separated by single spaces. In an argument, `\xNN` stands for a
//! byte: a space, a control character, a backslash, or any other one. An empty argument is `\e`.

use crate::packet::{Bound, MAX_ARGS, Malformed, Packet, shown};

/// The commands. Their numbers are their places.
const COMMANDS: [&str; 14] = [
    "QUIT",
    "INIT",
    "MODEL_DEF",
    "START_EVENTS",
    "STOP_EVENTS",
    "SUBMIT_JOB",
    "TERMINATE_JOB",
    "FILTER_EVENTS",
    "SUSPEND_EVENTS",
    "RESUME_EVENTS",
    "SET_FILTERS",
    "CLEAR_FILTERS",
    "GET_ATTRIBUTES",
    "QUERY_ATTRIBUTES",
];

/// The events, by their numbers.
const EVENTS: [(u32, &str); 25] = [
    (0, "OK"),
    (1, "MESSAGE"),
    (5, "ERROR"),
    (6, "SHUTDOWN"),
    (211, "SUBMITJOB_ERROR"),
    (212, "TERMINATEJOB_ERROR"),
    (220, "NEW_JOB"),
    (221, "NEW_MACHINE"),
    (222, "NEW_NODE"),
    (223, "NEW_PROCESS"),
    (224, "NEW_QUEUE"),
    (230, "JOB_CHANGE"),
    (231, "MACHINE_CHANGE"),
    (232, "NODE_CHANGE"),
    (233, "PROCESS_CHANGE"),
    (234, "QUEUE_CHANGE"),
    (240, "REMOVE_ALL"),
    (241, "REMOVE_JOB"),
    (242, "REMOVE_MACHINE"),
    (243, "REMOVE_NODE"),
    (244, "REMOVE_PROCESS"),
    (245, "REMOVE_QUEUE"),
    (251, "ATTR_DEF"),
    (252, "ATTRS_GET"),
    (253, "ATTRS_QUERY"),
];

/// The number of a line that is no command. Its argument says why.
pub(crate) const MISTAKE: u32 = 0xffff;

fn id(name: &[u8]) -> Option<u32> {
    let command = COMMANDS.iter().position(|known| known.as_bytes() == name);
    let command = command.and_then(|place| u32::try_from(place).ok());
    command.or_else(|| {
        let known = EVENTS.iter().find(|(_, known)| known.as_bytes() == name);
        known.map(|(id, _)| *id)
    })
}

fn mistake(transaction: u32, why: String) -> Packet {
    Packet {
        id: MISTAKE,
        transaction,
        args: vec![why.into_bytes()],
    }
}

/// Reads a line without its line feed. People mistype: a mistake is a packet, too, which is answered.
pub(crate) fn decode(line: &[u8]) -> Result<Packet, Malformed> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut words = line.split(|byte| *byte == b' ').filter(|it| !it.is_empty());
    let name = words.next().unwrap_or_default();
    let transaction = words.next().and_then(|digits| {
        let digits = std::str::from_utf8(digits).ok()?;
        digits.parse().ok()
    });
    let Some(transaction) = transaction else {
        let name = shown(name);
        return Ok(mistake(
            0,
            format!("`{name}` is followed by no number of a transaction"),
        ));
    };
    let Some(id) = id(name) else {
        let name = shown(name);
        return Ok(mistake(
            transaction,
            format!("there is no command `{name}`"),
        ));
    };
    let mut args = Vec::new();
    for word in words {
        if args.len() == MAX_ARGS {
            return Err(Malformed::TooLarge(Bound::Args));
        }
        let Some(arg) = unescaped(word) else {
            let word = shown(word);
            let why = format!(
                "a backslash is followed by two digits as in `\\x20`, or begins the word `\\e`: `{word}`"
            );
            return Ok(mistake(transaction, why));
        };
        args.push(arg);
    }
    Ok(Packet {
        id,
        transaction,
        args,
    })
}

/// `None`: another use of a backslash.
fn unescaped(word: &[u8]) -> Option<Vec<u8>> {
    if word == br"\e" {
        return Some(Vec::new());
    }
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'\\' {
            bytes.push(*byte);
            continue;
        }
        let [b'x', high, low, ..] = *rest else {
            return None;
        };
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let value = digit(high).zip(digit(low))?;
        bytes.push(u8::try_from(value.0 << 4 | value.1).ok()?);
        rest = &rest[3..];
    }
    Some(bytes)
}

/// Returns the line of an event, with its line feed.
pub(crate) fn encode(packet: &Packet) -> Vec<u8> {
    let known = EVENTS.iter().find(|(id, _)| *id == packet.id);
    let name = known.map_or("UNKNOWN", |(_, name)| *name);
    let mut line = format!("{name} {}", packet.transaction).into_bytes();
    for arg in &packet.args {
        line.push(b' ');
        if arg.is_empty() {
            line.extend(br"\e");
        }
        for byte in arg {
            match byte {
                0..=b' ' | b'\\' | 0x7f.. => line.extend(format!("\\x{byte:02x}").as_bytes()),
                byte => line.push(*byte),
            }
        }
    }
    line.push(b'\n');
    line
}
