//! Loopback connections and their users.
#![expect(
    unsafe_code,
    reason = "limits, users and user namespaces, which a test's own process may change"
)]

use std::{
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

use base::ExitStatus;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, connect, getsockname,
    listen, setsockopt, socket, sockopt,
};
use os::{
    AcceptOutcome, Accepted, Clock, ConnectOutcome, Event, Forked, Interest, Loop, PeerIdentity,
    ReadOutcome, SocketOwners, UnknownPeer, WriteOutcome,
};

use crate::{
    Test,
    world::{PATIENCE, World, eventually},
};

pub(crate) const TESTS: &[Test] = &[
    (
        "socket::many_connections_are_accepted_and_known",
        many_connections_are_accepted_and_known,
    ),
    (
        "socket::both_address_families_are_known",
        both_address_families_are_known,
    ),
    (
        "socket::another_user_is_seen_as_that_user",
        another_user_is_seen_as_that_user,
    ),
    (
        "socket::a_user_without_a_uid_is_nobody",
        a_user_without_a_uid_is_nobody,
    ),
    (
        "socket::who_writes_and_leaves_is_nobody",
        who_writes_and_leaves_is_nobody,
    ),
    ("socket::who_resets_is_left_out", who_resets_is_left_out),
    (
        "socket::a_successor_on_the_same_port_is_not_taken_for_the_peer",
        a_successor_on_the_same_port_is_not_taken_for_the_peer,
    ),
    (
        "socket::without_descriptors_connections_wait",
        without_descriptors_connections_wait,
    ),
    (
        "socket::connecting_says_what_came_of_it",
        connecting_says_what_came_of_it,
    ),
    (
        "socket::bytes_go_both_ways_and_ends_are_told",
        bytes_go_both_ways_and_ends_are_told,
    ),
];

/// A uid other than ours.
const STRANGER: u32 = 12_345;
/// Uid of Debian's `nobody`, and the overflow uid, which stands for users without one.
const NOBODY: u32 = 65_534;

fn us() -> PeerIdentity {
    PeerIdentity::User(os::effective_uid())
}

/// Waits for the next connection and accepts it.
fn accept_next(listener: &OwnedFd, owners: &mut SocketOwners) -> Accepted {
    wait_for(listener, Interest::Read);
    match os::accept(listener.as_fd(), owners).unwrap() {
        AcceptOutcome::Connection(accepted) => accepted,
        other => panic!("no connection: {other:?}"),
    }
}

fn wait_for(fd: &OwnedFd, interest: Interest) {
    let mut events = Loop::new(&[]).unwrap();
    events.add(fd.try_clone().unwrap(), interest).unwrap();
    let mut buffer = Vec::new();
    events
        .wait(Some(Clock::now() + PATIENCE), &mut buffer)
        .unwrap();
    assert!(
        matches!(buffer[..], [Event::Readable(_) | Event::Writable(_)]),
        "{buffer:?}"
    );
}

fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// Closes this connection with a reset instead of an end of file.
fn reset(stream: TcpStream) {
    let at_once = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    setsockopt(&stream, sockopt::Linger, &at_once).unwrap();
}

fn many_connections_are_accepted_and_known() {
    const CONNECTIONS: usize = 400;
    let _ = os::raise_descriptor_limit();
    let (listener, port) = os::listen_loopback().unwrap();
    let mut owners = SocketOwners::new().unwrap();
    let none = os::accept(listener.as_fd(), &mut owners).unwrap();
    assert!(matches!(none, AcceptOutcome::WouldBlock), "{none:?}");
    let mut clients = Vec::new();
    let mut accepted = Vec::new();
    // As many at a time as the shortest usual backlog holds.
    for _ in 0..CONNECTIONS / 100 {
        for _ in 0..100 {
            clients.push(os::connect_loopback(local(port)).unwrap());
        }
        for _ in 0..100 {
            accepted.push(accept_next(&listener, &mut owners));
        }
    }
    let mut addresses = Vec::new();
    for accepted in &accepted {
        assert_eq!(accepted.peer, us());
        assert_eq!(accepted.address.ip(), IpAddr::V4(Ipv4Addr::LOCALHOST));
        let stream = TcpStream::from(accepted.fd.try_clone().unwrap());
        assert!(stream.nodelay().unwrap());
        assert!(closes_on_exec(&accepted.fd));
        let nothing = os::read(accepted.fd.as_fd(), &mut [0]).unwrap();
        assert_eq!(nothing, ReadOutcome::WouldBlock);
        addresses.push(accepted.address);
    }
    let mut expected: Vec<SocketAddr> = clients
        .into_iter()
        .map(|client| {
            assert!(closes_on_exec(&client));
            let stream = TcpStream::from(client);
            assert!(stream.nodelay().unwrap());
            let address = stream.local_addr().unwrap();
            // Reset it, or it would occupy its port for a minute.
            reset(stream);
            address
        })
        .collect();
    addresses.sort();
    expected.sort();
    assert_eq!(addresses, expected);
    assert!(closes_on_exec(&listener));
}

fn closes_on_exec(fd: &OwnedFd) -> bool {
    // SAFETY: asks for a flag of a descriptor.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) & libc::FD_CLOEXEC != 0 }
}

fn both_address_families_are_known() {
    let mut owners = SocketOwners::new().unwrap();
    for (listen, from) in [
        ("127.0.0.1:0", "127.0.0.1"),
        ("127.0.0.1:0", "::ffff:127.0.0.1"),
        ("[::1]:0", "::1"),
        ("[::]:0", "127.0.0.1"),
        ("[::]:0", "::1"),
    ] {
        let listener = match TcpListener::bind(listen) {
            Ok(listener) => listener,
            Err(error) => {
                println!("not tested without IPv6: {listen}: {error}");
                continue;
            }
        };
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let ip: IpAddr = from.parse().unwrap();
        let client = match os::connect_loopback((ip, port).into()) {
            Err(error) if ip.is_ipv6() => {
                println!("not tested without IPv6: {from}: {error}");
                continue;
            }
            other => other.unwrap(),
        };
        let accepted = accept_next(&listener.into(), &mut owners);
        assert_eq!(accepted.peer, us(), "{listen} {from}");
        assert_eq!(accepted.address.ip(), ip.to_canonical());
        // The other direction works too, now that the connection is accepted.
        assert_eq!(owners.peer_of(client.as_fd()), us(), "{listen} {from}");
    }
}

fn become_user(uid: u32) -> bool {
    // SAFETY: changes the users of this process, which is a test's own.
    unsafe { libc::setresuid(uid, uid, uid) == 0 }
}

/// Returns true if we are root, in a user namespace that has this uid.
fn can_become(uid: u32) -> bool {
    match os::fork().unwrap() {
        Forked::Parent(child) => World::new().exit_of(child) == ExitStatus::SUCCESS,
        Forked::Child => os::exit_at_once((!become_user(uid)).into()),
    }
}

/// Accepts the connection of a child that becomes `uid`, connects, and waits until we close it.
fn accept_from_child(uid: u32) -> Accepted {
    let (listener, port) = os::listen_loopback().unwrap();
    let child = match os::fork().unwrap() {
        Forked::Parent(child) => child,
        Forked::Child => {
            assert!(uid == os::effective_uid() || become_user(uid));
            let mut stream = TcpStream::connect(local(port)).unwrap();
            assert_eq!(stream.read(&mut [0]).unwrap(), 0);
            os::exit_at_once(0);
        }
    };
    let accepted = accept_next(&listener, &mut SocketOwners::new().unwrap());
    let fd = accepted.fd.as_fd();
    nix::sys::socket::shutdown(fd.as_raw_fd(), nix::sys::socket::Shutdown::Write).unwrap();
    assert_eq!(World::new().exit_of(child), ExitStatus::SUCCESS);
    accepted
}

fn another_user_is_seen_as_that_user() {
    assert_eq!(accept_from_child(os::effective_uid()).peer, us());
    for uid in [STRANGER, NOBODY] {
        if !can_become(uid) {
            println!("not tested for user {uid}, who only root can become: our own child alone");
            continue;
        }
        // If all users have a uid, `nobody` is a user like any other.
        let map = std::fs::read_to_string("/proc/self/uid_map").unwrap();
        let expected = if uid != NOBODY || map.split_whitespace().eq(["0", "0", "4294967295"]) {
            PeerIdentity::User(uid)
        } else {
            PeerIdentity::Unknown(UnknownPeer::NoUid)
        };
        assert_eq!(accept_from_child(uid).peer, expected);
    }
}

fn a_user_without_a_uid_is_nobody() {
    let (listener, port) = os::listen_loopback().unwrap();
    // SAFETY: changes the namespace of this process, which is a test's own and has one thread.
    if unsafe { libc::unshare(libc::CLONE_NEWUSER) } != 0 {
        println!("not tested: user namespaces are not allowed here");
        return;
    }
    // No user has a uid in a new namespace: neither do we, and a foreign user would look exactly like us.
    let _client = os::connect_loopback(local(port)).unwrap();
    let accepted = accept_next(&listener, &mut SocketOwners::new().unwrap());
    assert_eq!(
        accepted.peer,
        PeerIdentity::Unknown(UnknownPeer::NoUid),
        "we are {}",
        os::effective_uid()
    );
}

fn who_writes_and_leaves_is_nobody() {
    let mut owners = SocketOwners::new().unwrap();
    let (listener, port) = os::listen_loopback().unwrap();
    for _ in 0..100 {
        let mut client = TcpStream::connect(local(port)).unwrap();
        client.write_all(b"believe me").unwrap();
        drop(client);
        let accepted = accept_next(&listener, &mut owners);
        assert_eq!(accepted.peer, PeerIdentity::Unknown(UnknownPeer::NoProcess));
        // Its bytes have arrived nevertheless: only the identity check keeps them out.
        let mut buffer = [0; 64];
        let read = os::read(accepted.fd.as_fd(), &mut buffer).unwrap();
        assert_eq!(read, ReadOutcome::Bytes(10));
    }
    let mut client = TcpStream::connect(local(port)).unwrap();
    client.write_all(b"believe me").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let accepted = accept_next(&listener, &mut owners);
    assert_eq!(accepted.peer, PeerIdentity::Unknown(UnknownPeer::Closing));
}

fn who_resets_is_left_out() {
    let mut owners = SocketOwners::new().unwrap();
    let (listener, port) = os::listen_loopback().unwrap();
    for _ in 0..3 {
        let mut client = TcpStream::connect(local(port)).unwrap();
        client.write_all(b"believe me").unwrap();
        reset(client);
    }
    let good = TcpStream::connect(local(port)).unwrap();
    let accepted = accept_next(&listener, &mut owners);
    assert_eq!(accepted.address, good.local_addr().unwrap());
    assert_eq!(accepted.peer, us());
    let none = os::accept(listener.as_fd(), &mut owners).unwrap();
    assert!(matches!(none, AcceptOutcome::WouldBlock), "{none:?}");
}

fn a_successor_on_the_same_port_is_not_taken_for_the_peer() {
    let mut owners = SocketOwners::new().unwrap();
    let (listener, port) = os::listen_loopback().unwrap();
    // A port taken with bind is not shared, so it is free immediately.
    let first = bound_socket(local(0));
    let from = address_of(&first);
    connect(first.as_raw_fd(), &SockaddrStorage::from(local(port))).unwrap();
    // Accepted, but without a query for its user.
    wait_for(&listener, Interest::Read);
    let blind = nix::sys::socket::accept(listener.as_raw_fd()).unwrap();
    // SAFETY: accept has just made this descriptor.
    let blind = unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(blind) };
    assert_eq!(owners.peer_of(blind.as_fd()), us());
    reset(first.into());
    let second = bound_socket(from);
    connect(second.as_raw_fd(), &SockaddrStorage::from(local(port))).unwrap();
    let accepted = accept_next(&listener, &mut owners);
    assert_eq!((accepted.address, accepted.peer), (from, us()));
    assert_eq!(
        owners.peer_of(blind.as_fd()),
        PeerIdentity::Unknown(UnknownPeer::Ended)
    );
}

fn without_descriptors_connections_wait() {
    let mut owners = SocketOwners::new().unwrap();
    let (listener, port) = os::listen_loopback().unwrap();
    let _client = os::connect_loopback(local(port)).unwrap();
    wait_for(&listener, Interest::Read);
    let (soft, hard) = os::limit(os::Resource::Descriptors);
    // The lowest free number is the first that is not allowed.
    let free = os::dev_null().unwrap().as_raw_fd().try_into().unwrap();
    limit_descriptors(free, hard);
    for _ in 0..3 {
        let exhausted = os::accept(listener.as_fd(), &mut owners).unwrap();
        assert!(
            matches!(&exhausted, AcceptOutcome::Exhausted(error) if error.errno() == libc::EMFILE),
            "{exhausted:?}"
        );
    }
    // There is none for a netlink socket either. There may be one later, so this must not select the table for ever.
    assert_eq!(SocketOwners::new().unwrap_err().errno(), libc::EMFILE);
    limit_descriptors(soft, hard);
    assert_eq!(accept_next(&listener, &mut owners).peer, us());
}

fn limit_descriptors(soft: u64, hard: u64) {
    let limit = libc::rlimit {
        rlim_cur: soft,
        rlim_max: hard,
    };
    // SAFETY: reads an owned struct and changes only this process, which is a test's own.
    let result = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    assert_eq!(result, 0);
}

fn connecting_says_what_came_of_it() {
    let (listener, port) = os::listen_loopback().unwrap();
    let client = os::connect_loopback(local(port)).unwrap();
    wait_for(&client, Interest::Write);
    assert_eq!(
        os::connect_outcome(client.as_fd()),
        Ok(ConnectOutcome::Connected)
    );
    drop(listener);
    eventually("the kernel has closed the listener", || {
        let refused = os::connect_loopback(local(port)).and_then(|client| {
            wait_for(&client, Interest::Write);
            os::connect_outcome(client.as_fd())
        });
        matches!(refused, Err(error) if error.errno() == libc::ECONNREFUSED)
    });
    let elsewhere = "192.0.2.1:80".parse().unwrap();
    assert_eq!(
        os::connect_loopback(elsewhere).unwrap_err().errno(),
        libc::EINVAL
    );
    // A backlog of one: further connections are pending.
    let listener = bound_socket(local(0));
    listen(&listener, Backlog::new(0).unwrap()).unwrap();
    let first = os::connect_loopback(address_of(&listener)).unwrap();
    wait_for(&first, Interest::Write);
    let second = os::connect_loopback(address_of(&listener)).unwrap();
    assert_eq!(
        os::connect_outcome(second.as_fd()),
        Ok(ConnectOutcome::Pending)
    );
    // A socket connected to itself has reached no server.
    let itself = bound_socket(local(0));
    let own = SockaddrStorage::from(address_of(&itself));
    connect(itself.as_raw_fd(), &own).unwrap();
    assert_eq!(
        os::connect_outcome(itself.as_fd()).unwrap_err().errno(),
        libc::ECONNREFUSED
    );
    assert_eq!(
        os::connect_outcome(bound_socket(local(0)).as_fd())
            .unwrap_err()
            .errno(),
        libc::ENOTCONN
    );
}

fn bound_socket(address: SocketAddr) -> OwnedFd {
    let fd = socket(
        AddressFamily::Inet,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    )
    .unwrap();
    bind(fd.as_raw_fd(), &SockaddrStorage::from(address)).unwrap();
    fd
}

fn address_of(fd: &OwnedFd) -> SocketAddr {
    let address: SockaddrStorage = getsockname(fd.as_raw_fd()).unwrap();
    (*address.as_sockaddr_in().unwrap()).into()
}

fn bytes_go_both_ways_and_ends_are_told() {
    let mut owners = SocketOwners::new().unwrap();
    let (listener, port) = os::listen_loopback().unwrap();
    let mut connection = || {
        let client = TcpStream::connect(local(port)).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        (client, accept_next(&listener, &mut owners).fd)
    };
    let mut buffer = [0; 64];

    let (mut client, server) = connection();
    assert_eq!(
        os::write(server.as_fd(), b"hello"),
        Ok(WriteOutcome::Bytes(5))
    );
    assert_eq!(client.read(&mut buffer).unwrap(), 5);
    client.write_all(b"good day").unwrap();
    wait_for(&server, Interest::Read);
    assert_eq!(
        os::read(server.as_fd(), &mut buffer),
        Ok(ReadOutcome::Bytes(8))
    );
    // Without a reader there is no room at some point, and the write does not block.
    let big = vec![0; 1 << 20];
    let mut turns = 0;
    while os::write(server.as_fd(), &big) != Ok(WriteOutcome::WouldBlock) {
        turns += 1;
        assert!(turns < 1000);
    }
    drop(client);

    // End of file. A write afterwards is answered by a reset; the next one fails, without SIGPIPE.
    let (client, server) = connection();
    drop(client);
    wait_for(&server, Interest::Read);
    assert_eq!(
        os::read(server.as_fd(), &mut buffer),
        Ok(ReadOutcome::Closed)
    );
    eventually("a write is refused", || {
        os::write(server.as_fd(), b"anybody?") == Ok(WriteOutcome::Closed)
    });
    assert_eq!(
        os::write(server.as_fd(), b"really?"),
        Ok(WriteOutcome::Closed)
    );

    // A reset: what came before it can still be read.
    let (mut client, server) = connection();
    client.write_all(b"last words").unwrap();
    reset(client);
    wait_for(&server, Interest::Read);
    assert_eq!(
        os::read(server.as_fd(), &mut buffer),
        Ok(ReadOutcome::Bytes(10))
    );
    assert_eq!(
        os::read(server.as_fd(), &mut buffer),
        Ok(ReadOutcome::Closed)
    );
    assert_eq!(
        os::write(server.as_fd(), b"anybody?"),
        Ok(WriteOutcome::Closed)
    );
}
