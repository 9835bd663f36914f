//! What the user types: keys from the bytes of a terminal.
//!
//! A key that is no character comes as an escape sequence, and the Esc key is the byte with which these begin. So a lone one is the key
//! only if nothing follows for [`ESCAPE_WAIT`].

use std::time::Duration;

use base::Time;
use vte::{Params, Parser, Perform};

/// How long the rest of a sequence may take. Terminals send a sequence at once, but a connection may split it.
pub(super) const ESCAPE_WAIT: Duration = Duration::from_millis(50);

/// The byte with which sequences begin.
const ESCAPE: u8 = 0x1b;

/// A key, with its modifiers if it has a meaning with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    /// A letter with Ctrl, in lower case.
    Ctrl(char),
    Enter,
    Tab,
    BackTab,
    Esc,
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
}

/// A step in a list or a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
}

impl Move {
    /// Returns what a key means in a list or a text.
    pub(super) const fn of(key: Key) -> Option<Self> {
        Some(match key {
            Key::Up | Key::Char('k') => Self::Up,
            Key::Down | Key::Char('j') => Self::Down,
            Key::PageUp | Key::Ctrl('b' | 'u') => Self::PageUp,
            Key::PageDown | Key::Ctrl('f' | 'd') | Key::Char(' ') => Self::PageDown,
            Key::Home | Key::Char('g') => Self::Home,
            Key::End | Key::Char('G') => Self::End,
            _ => return None,
        })
    }
}

/// Makes keys from bytes.
#[derive(Default)]
pub(super) struct Keyboard {
    parser: Parser,
    found: Found,
    /// A sequence has begun at the end of what was typed. It is to go on until then.
    waits_until: Option<Time>,
}

/// The keys so far.
#[derive(Debug, Default)]
struct Found {
    keys: Vec<Key>,
    /// ESC O was seen: the next character names a key.
    is_after_o: bool,
}

impl std::fmt::Debug for Keyboard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keyboard")
            .field("waits_until", &self.waits_until)
            .finish_non_exhaustive()
    }
}

impl Keyboard {
    /// Returns the keys that these bytes complete.
    pub(super) fn typed(&mut self, now: Time, bytes: &[u8]) -> Vec<Key> {
        let mut keys = self.late(now);
        self.parser.advance(&mut self.found, bytes);
        if let Some(last) = bytes.last() {
            self.waits_until = (*last == ESCAPE).then(|| now + ESCAPE_WAIT);
        }
        keys.append(&mut self.found.keys);
        keys
    }

    /// Returns the Esc key if it was typed and no sequence has followed.
    pub(super) fn late(&mut self, now: Time) -> Vec<Key> {
        if self.waits_until.is_none_or(|until| now < until) {
            return Vec::new();
        }
        self.waits_until = None;
        self.parser = Parser::new();
        vec![Key::Esc]
    }

    /// Returns when to call [`Self::late`].
    pub(super) const fn deadline(&self) -> Option<Time> {
        self.waits_until
    }
}

/// Returns the key of a final letter, which several kinds of sequences have in common.
const fn of_letter(letter: char) -> Option<Key> {
    Some(match letter {
        'A' => Key::Up,
        'B' => Key::Down,
        'C' => Key::Right,
        'D' => Key::Left,
        'H' => Key::Home,
        'F' => Key::End,
        'Z' => Key::BackTab,
        _ => return None,
    })
}

impl Perform for Found {
    fn print(&mut self, character: char) {
        if std::mem::take(&mut self.is_after_o) {
            self.keys.extend(of_letter(character));
        } else if !character.is_control() {
            self.keys.push(Key::Char(character));
        }
    }

    fn execute(&mut self, byte: u8) {
        self.is_after_o = false;
        self.keys.push(match byte {
            b'\r' | b'\n' => Key::Enter,
            b'\t' => Key::Tab,
            1..=26 => Key::Ctrl(char::from(byte - 1 + b'a')),
            _ => return,
        });
    }

    fn csi_dispatch(&mut self, params: &Params, _: &[u8], _: bool, action: char) {
        let number = params
            .iter()
            .next()
            .and_then(|first| first.first().copied());
        self.keys.extend(match (action, number) {
            ('~', Some(1 | 7)) => Some(Key::Home),
            ('~', Some(4 | 8)) => Some(Key::End),
            ('~', Some(5)) => Some(Key::PageUp),
            ('~', Some(6)) => Some(Key::PageDown),
            ('~', _) => None,
            (letter, _) => of_letter(letter),
        });
    }

    fn esc_dispatch(&mut self, _: &[u8], _: bool, byte: u8) {
        self.is_after_o = byte == b'O';
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_keys() {
        use Key::*;
        for (bytes, keys) in [
            (&b"q?1"[..], &[Char('q'), Char('?'), Char('1')][..]),
            ("ü漢".as_bytes(), &[Char('ü'), Char('漢')]),
            (b"\x03\x0c\x1a", &[Ctrl('c'), Ctrl('l'), Ctrl('z')]),
            (b"\r\n\t", &[Enter, Enter, Tab]),
            (b"\x1b[A\x1b[B\x1b[C\x1b[D", &[Up, Down, Right, Left]),
            // With application keys, as in some terminals.
            (b"\x1bOA\x1bOB\x1bOHx", &[Up, Down, Home, Char('x')]),
            (
                b"\x1b[5~\x1b[6~\x1b[1~\x1b[4~",
                &[PageUp, PageDown, Home, End],
            ),
            (b"\x1b[H\x1b[F\x1b[Z", &[Home, End, BackTab]),
            // With Ctrl or Shift.
            (b"\x1b[1;5A\x1b[6;2~", &[Up, PageDown]),
            // Alt, a function key, a mouse, a paste, a reply of the terminal.
            (b"\x1bq\x1b[15~\x1b[<0;3;4M\x1b[200~\x1b[?1;2c", &[]),
            (b"\xff\x9b\x7f\0", &[]),
        ] {
            let mut keyboard = Keyboard::default();
            let found = keyboard.typed(Time::ZERO, bytes);
            let found: Vec<Key> = found
                .into_iter()
                .filter(|key| *key != Char('\u{fffd}'))
                .collect();
            assert_eq!(found, keys, "{bytes:?}");
        }
    }

    #[test]
    fn a_split_sequence_is_one_key_and_a_lone_escape_another() {
        let mut keyboard = Keyboard::default();
        let soon = Time::ZERO + ESCAPE_WAIT / 2;
        assert_eq!(keyboard.typed(Time::ZERO, b"\x1b"), []);
        assert_eq!(keyboard.late(soon), []);
        assert_eq!(keyboard.typed(soon, b"["), []);
        assert_eq!(keyboard.typed(soon, b"A"), [Key::Up]);
        assert_eq!(keyboard.deadline(), None);
        assert_eq!(keyboard.typed(soon, b"\x1b"), []);
        let later = keyboard.deadline().unwrap();
        assert_eq!(keyboard.late(later), [Key::Esc]);
        assert_eq!(keyboard.typed(later, b"q"), [Key::Char('q')]);
        // Also if the next key comes before anybody has looked.
        assert_eq!(keyboard.typed(later, b"\x1b"), []);
        assert_eq!(
            keyboard.typed(later + ESCAPE_WAIT, b"A"),
            [Key::Esc, Key::Char('A')]
        );
    }
}
