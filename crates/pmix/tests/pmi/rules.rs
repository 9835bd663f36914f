//! Protocol violations of a rank and their consequences.

use base::Rank;
use pmix::pmi::{Answer, Client, Dialect, Error, Input, Output, Request};

use super::pair::{BARRIER, Pair};

/// Returns the error that closes the connection of a rank that sends these bytes after its `init`.
fn closed_by(dialect: Dialect, bytes: &[u8]) -> String {
    let mut pair = Pair::initialized(2, dialect);
    pair.raw(0, bytes);
    let closed = pair.closed.iter().map(|(rank, why)| {
        assert_eq!(*rank, Rank(0));
        why.to_string()
    });
    let text = closed.collect::<Vec<_>>().join("|");
    // The other rank is not affected.
    assert!(matches!(
        pair.ask(1, &Request::GetKvsName),
        Answer::KvsName(_)
    ));
    let closed = pair.closed.len();
    pair.raw(0, bytes);
    assert!(
        text.is_empty() || pair.closed.len() == closed,
        "it is closed once"
    );
    text
}

#[test]
fn whoever_breaks_the_rules_is_closed_and_nobody_else() {
    let cases: [(&str, &[u8]); 11] = [
        (
            "init of another version",
            b"cmd=init pmi_version=2 pmi_subversion=0\n",
        ),
        ("after finalize", b"cmd=finalize\ncmd=get_maxes\n"),
        ("finalize in a barrier", b"cmd=barrier_in\ncmd=finalize\n"),
        ("a barrier in a barrier", b"cmd=barrier_in\ncmd=barrier_in\n"),
        ("no command", b"hello\n"),
        ("not text", b"cmd=\xff\n"),
        ("a NUL", b"cmd=get key=a\0b\n"),
        ("no key", b"cmd=get =1\n"),
        ("a word before any field", b"cmd=get x y=1\n"),
        (
            "a question between the parts of a spawn",
            b"mcmd=spawn\nnprocs=1\nexecname=a\ntotspawns=2\nspawnssofar=1\nendcmd\ncmd=get_maxes\n",
        ),
        ("PMI-2 after all", b"    17cmd=job-getid;\n"),
    ];
    let mut text = String::new();
    for (what, bytes) in cases {
        text.push_str(&format!("{what}: {}\n", closed_by(Dialect::One, bytes)));
    }
    insta::assert_snapshot!(text, @"
    init of another version: peer misbehaved: expected no other init, got `init`
    after finalize: peer misbehaved: expected nothing after finalize, got `get_maxes`
    finalize in a barrier: peer misbehaved: expected neither finalize nor another barrier before barrier_out, got `finalize`
    a barrier in a barrier: peer misbehaved: expected neither finalize nor another barrier before barrier_out, got `barrier_in`
    no command: malformed message: the command does not start with `cmd=` or `mcmd=`
    not text: malformed message: the command is not UTF-8 text
    a NUL: malformed message: the command is not UTF-8 text
    no key: malformed message: a field has no key
    a word before any field: malformed message: a field has no key
    a question between the parts of a spawn: peer misbehaved: expected the other parts of the spawn, got `get_maxes`
    PMI-2 after all: malformed message: the command does not start with `cmd=` or `mcmd=`
    ");
}

#[test]
fn the_same_in_pmi_2() {
    let cases: [(&str, &[u8]); 9] = [
        ("fullinit twice", b"    13cmd=fullinit;"),
        ("a line", b"cmd=finalize\n"),
        ("no number", b"abcdefcmd=job-getid;"),
        ("a number in the midst", b" 1 6  cmd=job-getid;"),
        ("a negative number", b"   -16cmd=job-getid;"),
        ("nothing", b"     0"),
        ("no command", b"     6hello;"),
        ("not text", b"     7cmd=\xff;x"),
        ("no key", b"    11cmd=get;=1;"),
    ];
    let mut text = String::new();
    for (what, bytes) in cases {
        text.push_str(&format!("{what}: {}\n", closed_by(Dialect::Two, bytes)));
    }
    insta::assert_snapshot!(text, @"
    fullinit twice: peer misbehaved: expected no other init, got `fullinit`
    a line: malformed message: the command does not start with its length
    no number: malformed message: the command does not start with its length
    a number in the midst: malformed message: the command does not start with its length
    a negative number: malformed message: the command does not start with its length
    nothing: malformed message: the command does not start with `cmd=` or `mcmd=`
    no command: malformed message: the command does not start with `cmd=` or `mcmd=`
    not text: malformed message: the command is not UTF-8 text
    no key: malformed message: a field has no key
    ");
}

#[test]
fn what_comes_before_init_is_not_answered() {
    let cases: [&[u8]; 5] = [
        b"cmd=get_maxes\n",
        b"cmd=dance\n",
        b"cmd=init\n",
        b"cmd=init pmi_version=2 pmi_subversion=0\n    16cmd=job-getid;",
        b"    13cmd=fullinit;\n",
    ];
    let mut text = String::new();
    for bytes in cases {
        let mut pair = Pair::new(1, Dialect::One);
        pair.raw(0, bytes);
        let closed: Vec<_> = pair.closed.iter().map(|(_, why)| why.to_string()).collect();
        text.push_str(&format!("{}\n", closed.join("|")));
    }
    insta::assert_snapshot!(text, @"
    peer misbehaved: expected init first, got `get_maxes`
    peer misbehaved: expected init first, got `dance`
    malformed message: the field `pmi_version` is missing

    malformed message: the command does not start with `cmd=` or `mcmd=`
    ");
}

#[test]
fn another_version_is_refused_with_words() {
    let mut pair = Pair::new(1, Dialect::One);
    pair.server.handle(Input::Bytes {
        client: Rank(0),
        bytes: b"cmd=init pmi_version=3 pmi_subversion=0\n",
    });
    let outputs: Vec<_> = std::iter::from_fn(|| pair.server.poll()).collect();
    assert_eq!(
        outputs,
        [
            Output::Send {
                client: Rank(0),
                bytes: b"cmd=response_to_init rc=1 pmi_version=1 pmi_subversion=2\n".to_vec()
            },
            Output::Close {
                client: Rank(0),
                why: Error::PeerIncompatible { ours: 1, theirs: 3 }
            },
        ]
    );
}

#[test]
fn a_client_minds_its_manners_and_its_servers() {
    let mut client = Client::new(Dialect::One);
    assert!(client.request(&super::pair::put("a\nb", "")).is_err());
    client.init().unwrap();
    assert!(client.request(&Request::GetMaxes).is_err(), "one at a time");
    assert!(
        client.receive(b"cmd=barrier_out rc=0\n").is_err(),
        "not what was asked"
    );
    assert!(client.request(&BARRIER).is_err(), "nothing after the end");
    assert!(
        Client::new(Dialect::One)
            .receive(b"cmd=barrier_out rc=0\n")
            .is_err(),
        "an answer to nothing"
    );
}
