//! Tests of greeting and forwarding, with a program that is a thread.

use std::{
    io::{BufRead, BufReader},
    net::TcpListener,
};

use super::*;

/// Starts a program that listens, and runs `talk` on its connection.
fn program(
    talk: impl FnOnce(&mut dyn BufRead, &mut TcpStream) + Send + 'static,
) -> (TcpStream, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let program = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        talk(&mut reader, &mut stream);
    });
    (TcpStream::connect(address).unwrap(), program)
}

fn line(reader: &mut dyn BufRead) -> String {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    line
}

#[test]
fn both_sides_greet() {
    let (stream, program) = program(|reader, stream| {
        assert_eq!(line(reader), "cmd=singinit authtype=none\n");
        let hello =
            b"cmd=singinit pmi_version=1 pmi_subversion=2 stdio=yes authtype=none\ncmd=init";
        stream.write_all(hello).unwrap();
        let welcome = "cmd=singinit_info versionok=yes stdio=no kvsname=job@1\n";
        assert_eq!(line(reader), welcome);
    });
    greet(&stream, "job@1").unwrap();
    program.join().unwrap();
    let mut rest = String::new();
    (&stream).read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "cmd=init", "what follows is not taken");
}

#[test]
fn who_does_not_greet_is_not_served() {
    let cases: [&'static [u8]; 3] = [b"", b"cmd=init pmi_version=1\n", b"hello\n"];
    let mut said = String::new();
    for hello in cases {
        let (stream, program) = program(move |reader, stream| {
            line(reader);
            stream.write_all(hello).unwrap();
        });
        said.push_str(&format!("{}\n", greet(&stream, "job@1").unwrap_err()));
        program.join().unwrap();
    }
    insta::assert_snapshot!(said, @"
    the program has not greeted
    the program has not greeted
    the program does not speak PMI-1: malformed message: the command does not start with `cmd=` or `mcmd=`
    ");
}

/// Returns the result of serving a program that writes this and closes its connection. The server echoes each line.
fn carried(says: &'static [u8]) -> Result<(), SingletonError> {
    let (stream, program) = program(move |reader, stream| {
        stream.write_all(says).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut echo = Vec::new();
        reader.read_to_end(&mut echo).unwrap();
        assert_eq!(echo, says);
    });
    let (ours, theirs) = UnixStream::pair().unwrap();
    let server = std::thread::spawn(move || {
        let mut reader = theirs.try_clone().unwrap();
        let mut all = Vec::new();
        let mut buffer = [0; 7];
        while let Ok(length @ 1..) = reader.read(&mut buffer) {
            all.extend_from_slice(&buffer[..length]);
            (&theirs).write_all(&buffer[..length]).unwrap();
            if all == says {
                break;
            }
        }
    });
    let result = carry(&stream, &ours);
    drop(ours);
    server.join().unwrap();
    program.join().unwrap();
    result
}

#[test]
fn all_that_is_said_is_carried() {
    carried(b"cmd=init pmi_version=1 pmi_subversion=1\ncmd=finalize\n").unwrap();
}

#[test]
fn a_program_that_does_not_finalize_is_lost() {
    for says in [
        &b"cmd=init pmi_version=1 pmi_subversion=1\n"[..],
        b"cmd=finalize\ncmd=init",
        b"nonsense\ncmd=finalize\n",
    ] {
        let result = carried(says);
        let finalized = says == b"cmd=finalize\ncmd=init";
        assert_eq!(result.is_ok(), finalized, "{result:?}");
    }
}

#[test]
fn a_server_that_hangs_up_is_passed_on() {
    let (stream, program) = program(|reader, _| assert_eq!(line(reader), ""));
    let (ours, theirs) = UnixStream::pair().unwrap();
    drop(theirs);
    assert!(matches!(carry(&stream, &ours), Err(SingletonError::Lost)));
    program.join().unwrap();
}

#[test]
fn the_caller_is_our_parent_if_it_has_started_us() {
    let ours = std::process::id();
    assert_eq!(Caller::of(ours).0, parent());
    assert_eq!(Caller::of(ours + 1).0, None);
}
