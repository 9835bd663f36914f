//! A root and a process below it, with somebody between them who has the secret and changes the records. Both ends keep their
//! promises to their callers, and everything ends.
#![no_main]

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use base::Time;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use overlay::{
    Address,
    lanes::Lane,
    node::{Config, Conn, GatherId, Input, Node, Output, Patience, Timing},
    secure::{Build, Entropy, Secret, Secure},
};

const SECRET: Secret = Secret::new([7; 32]);
const ROUNDS: usize = 40;

fn config(me: u32) -> Config {
    Config {
        me: Address(me),
        build: Build::new("fuzz"),
        secret: SECRET,
        timing: Timing::default(),
        at: vec![SocketAddr::from(([10, 0, 0, 1], 1000))],
    }
}

/// A node, its connection, and the other end of that connection.
struct End {
    node: Node,
    conn: Option<Conn>,
    middle: Secure,
    joined: BTreeSet<Address>,
    lost: BTreeSet<Address>,
    answered: BTreeSet<(GatherId, Address)>,
}

impl End {
    fn new(node: Node, conn: Option<Conn>, middle: Secure) -> Self {
        Self {
            node,
            conn,
            middle,
            joined: BTreeSet::new(),
            lost: BTreeSet::new(),
            answered: BTreeSet::new(),
        }
    }

    fn listen(&mut self) {
        while let Some(output) = self.node.poll() {
            match output {
                Output::Close(conn) if Some(conn) == self.conn => self.conn = None,
                Output::Joined(who) => assert!(self.joined.insert(who), "it joins once"),
                Output::Lost { members, .. } => {
                    assert!(!members.is_empty());
                    for member in members {
                        assert!(self.joined.contains(&member));
                        assert!(self.lost.insert(member), "it is lost once");
                    }
                }
                Output::Received { from, .. } => {
                    let is_root = from == Address::ROOT;
                    assert!(is_root || self.joined.contains(&from));
                }
                Output::Asked { id, .. } => {
                    self.node.answer_gather(id, Bytes::from_static(b"answer"));
                }
                Output::Part { id, of, .. } => {
                    for one in of {
                        assert!(self.answered.insert((id, one)), "no answer counts twice");
                    }
                }
                _ => {}
            }
        }
    }

    /// Passes bytes between the node and the one between, who returns the records that have come.
    fn carry(&mut self, now: Time) -> Vec<Bytes> {
        if let Some(conn) = self.conn {
            let bytes = self.middle.outgoing().to_vec();
            self.middle.written(bytes.len());
            self.node.handle(now, Input::Bytes(conn, &bytes));
            let bytes = self.node.outgoing(now, conn).to_vec();
            self.node.written(now, conn, bytes.len());
            self.middle.take(&bytes);
        }
        self.listen();
        let mut records = Vec::new();
        while let Ok(Some(record)) = self.middle.record() {
            records.push(record);
        }
        records
    }
}

fn change(record: &[u8], script: &mut impl Iterator<Item = u8>) -> Vec<Vec<u8>> {
    let record = record.to_vec();
    match script.next().unwrap_or(0) % 16 {
        0..=9 => vec![record],
        10 => vec![],
        11 => vec![record.clone(), record],
        12 => {
            let length = 1 + usize::from(script.next().unwrap_or(0)) % record.len();
            vec![record[..length].to_vec()]
        }
        13 => {
            let length = usize::from(script.next().unwrap_or(0)) % 64;
            let invented: Vec<u8> = script.by_ref().take(length).collect();
            if invented.is_empty() {
                vec![record]
            } else {
                vec![record, invented]
            }
        }
        _ => {
            let at = usize::from(script.next().unwrap_or(0)) % record.len();
            let mut record = record;
            record[at] = script.next().unwrap_or(0);
            vec![record]
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut script = bytes.iter().copied();
    let mut now = Time::ZERO;
    let from = SocketAddr::from(([10, 0, 0, 2], 2000));
    let tree = [(1, 0), (2, 1), (3, 1)].map(|(one, parent)| (Address(one), Address(parent)));
    let mut root = Node::root(config(0), Entropy::new([1; 32]), tree);
    let to_root = root.accept(now, from);
    let mut member = Node::member(now, config(1), Entropy::new([2; 32]), vec![from]);
    let Some(Output::Dial(to_member, _)) = member.poll() else {
        panic!("it dials");
    };
    let build = Build::new("fuzz");
    let mut ends = [
        End::new(
            root,
            to_root,
            Secure::dial(&build, &SECRET, &mut Entropy::new([3; 32])),
        ),
        End::new(
            member,
            Some(to_member),
            Secure::accept(&build, &SECRET, &mut Entropy::new([4; 32])),
        ),
    ];
    let everyone = BTreeSet::from([1, 2, 3].map(Address));
    for round in 0..ROUNDS {
        now = now + Duration::from_millis(100);
        ends[0].node.cast(
            now,
            &everyone,
            Lane::ALL[round % 2],
            &Bytes::from_static(b"cast"),
        );
        let _ = ends[0].node.gather(
            now,
            &everyone,
            Lane::ALL[round % 2],
            &Bytes::from_static(b"ask"),
            Patience {
                merging: Duration::from_millis(500),
                whole: Duration::from_secs(1),
            },
        );
        ends[1]
            .node
            .send(Lane::ALL[round % 2], Bytes::from_static(b"send"));
        for from in [0, 1] {
            for record in ends[from].carry(now) {
                for record in change(&record, &mut script) {
                    if ends[1 - from].middle.is_open() {
                        ends[1 - from].middle.seal(&record);
                    }
                }
            }
        }
    }
    if bytes.iter().all(|byte| *byte == 0) {
        assert_eq!(
            ends[0].joined,
            BTreeSet::from([Address(1)]),
            "nothing was changed"
        );
    }
    // The connection ends, and then everything.
    for end in &mut ends {
        if let Some(conn) = end.conn.take() {
            end.node.handle(now, Input::Closed(conn));
        }
        end.listen();
        for _ in 0..1000 {
            let Some(next) = end.node.deadline() else {
                break;
            };
            now = now.max(next);
            end.node.handle(now, Input::Tick);
            end.listen();
        }
        assert_eq!(end.node.deadline(), None);
        assert!(end.node.is_alone());
    }
});
