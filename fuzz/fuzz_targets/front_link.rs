//! The link between front and controller: any bytes give an allocation or messages, or break the link, and what is sent
//! again arrives as it was.
#![no_main]

use std::{
    fmt::Debug,
    io::Write,
    os::{fd::AsFd, unix::net::UnixStream},
};

use dvm::proto::{FromFront, ToFront};
use libfuzzer_sys::fuzz_target;
use runtime::link::{self, ControllerLink, FrontLink, Link, LinkError, Received};

/// What a socket holds for sure: more is not written in one go.
const INPUT_MAX: usize = 32 * 1024;
const SLOT_SIZE: usize = 64 * 1024;
const SLOTS: u32 = 2;

fn pair() -> (FrontLink, ControllerLink) {
    let region = || os::SharedRegion::new(SLOT_SIZE, SLOTS).expect("there is memory");
    // Each end has regions of its own: what one lends is foreign to the other, as from a peer that lies.
    (
        FrontLink::new(region().into_reader(), region().into_writer()),
        ControllerLink::new(
            Link::default(),
            region().into_writer(),
            region().into_reader(),
        ),
    )
}

fn sockets() -> (UnixStream, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("there are descriptors");
    for end in [&ours, &theirs] {
        end.set_nonblocking(true).expect("a socket can be made so");
    }
    (ours, theirs)
}

/// What arrives at an end, until nothing is there or the link is broken.
fn arrived<End, Message>(
    end: &mut End,
    socket: &UnixStream,
    receive: impl Fn(&mut End, &UnixStream) -> Result<Received, LinkError>,
    next: impl Fn(&mut End) -> Result<Option<Message>, LinkError>,
) -> Vec<Message> {
    let mut messages = Vec::new();
    // The peer has gone, so that the end of its bytes can be seen.
    while let Ok(received) = receive(end, socket) {
        loop {
            match next(end) {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(_) => return messages,
            }
        }
        if received == Received::Closed {
            break;
        }
    }
    messages
}

fn at_front(front: &mut FrontLink, socket: &UnixStream) -> Vec<ToFront> {
    arrived(
        front,
        socket,
        |end, socket| end.link.receive(socket.as_fd()),
        FrontLink::next_message,
    )
}

fn at_controller(controller: &mut ControllerLink, socket: &UnixStream) -> Vec<FromFront> {
    arrived(
        controller,
        socket,
        |end, socket| end.link.receive(socket.as_fd()),
        ControllerLink::next_message,
    )
}

/// A socket that gives these bytes and then its end.
fn giving(bytes: &[u8]) -> UnixStream {
    let (ours, mut theirs) = sockets();
    theirs.write_all(bytes).expect("a socket holds so much");
    ours
}

fn same<Message: PartialEq + Debug>(sent: &[Message], arrived: &[Message]) {
    // What the socket had no room for waits in the link.
    assert_eq!(sent.get(..arrived.len()), Some(arrived));
    assert_eq!(sent.is_empty(), arrived.is_empty());
}

fuzz_target!(|bytes: &[u8]| {
    let bytes = &bytes[..bytes.len().min(INPUT_MAX)];
    if let Ok(Some((allocation, _))) = link::receive_opening(giving(bytes).as_fd()) {
        let (mut front, _) = pair();
        let (ours, theirs) = sockets();
        front.open(&allocation);
        if matches!(front.flush(ours.as_fd()), Ok(Received::Open)) && !front.link.has_outgoing() {
            let again = link::receive_opening(theirs.as_fd());
            let again = again
                .expect("what was sent can be read")
                .map(|(again, _)| again);
            assert_eq!(again, Some(allocation));
        }
    }
    // Without shared memory, places break the link.
    at_front(&mut FrontLink::inline(), &giving(bytes));
    at_controller(&mut ControllerLink::inline(), &giving(bytes));
    let (mut front, mut controller) = pair();
    let to_front = at_front(&mut front, &giving(bytes));
    let from_front = at_controller(&mut controller, &giving(bytes));

    let (mut front, mut controller) = pair();
    let (ours, theirs) = sockets();
    for message in &from_front {
        front.send(message.clone());
    }
    for message in &to_front {
        controller.send(message.clone());
    }
    let _ = front.flush(ours.as_fd());
    let _ = controller.flush(theirs.as_fd());
    let _ = (
        ours.shutdown(std::net::Shutdown::Write),
        theirs.shutdown(std::net::Shutdown::Write),
    );
    same(&from_front, &at_controller(&mut controller, &theirs));
    same(&to_front, &at_front(&mut front, &ours));
});
