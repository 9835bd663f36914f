//! Messages that repeat the last one of their thread, with the same function, communicator, peer and tag. Most messages do, and what is
//! written for them is known: so they have a way of their own ([`arch`](crate::arch)), which needs a third of the instructions.

use core::{
    ffi::c_void,
    mem::offset_of,
    ptr,
    sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering::Relaxed},
};

use calls::{
    Class, Function,
    layout::{Call, Counter, state},
};

/// The last message of a thread in one direction. Only the thread itself sets it; any thread may forget it.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Message {
    /// Number of the stub, or 0 if there is no message.
    pub(crate) stub: AtomicU32,
    pub(crate) peer: AtomicI32,
    pub(crate) tag: AtomicI32,
    /// The argument that is the communicator, with what a handle of 32 bits has beside it.
    pub(crate) communicator: AtomicU64,
    /// What a [`Call`] has of it.
    pub(crate) handle: AtomicU64,
    /// What a [`Call`] has from its function to its peer.
    pub(crate) function_to_peer: [AtomicU32; 4],
    pub(crate) counter: AtomicPtr<Counter>,
    /// The library's function.
    pub(crate) function: AtomicPtr<c_void>,
}

const _: () = assert!(
    offset_of!(Call, state) == offset_of!(Call, function) + 4
        && offset_of!(Call, communicator) == offset_of!(Call, function) + 8
        && offset_of!(Call, peer) == offset_of!(Call, function) + 12
        && offset_of!(Call, result) == offset_of!(Call, repeated) + 4
);

impl Message {
    pub(crate) const fn none() -> Self {
        Self {
            stub: AtomicU32::new(0),
            peer: AtomicI32::new(0),
            tag: AtomicI32::new(0),
            communicator: AtomicU64::new(0),
            handle: AtomicU64::new(0),
            function_to_peer: [const { AtomicU32::new(0) }; 4],
            counter: AtomicPtr::new(ptr::null_mut()),
            function: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Remembers a message of a recorded call. `communicator` is its argument.
    #[cold]
    pub(crate) fn remember(
        &self,
        stub: u32,
        call: &Call,
        communicator: u64,
        counter: &Counter,
        function: *const c_void,
    ) {
        let peer = call.peer.load(Relaxed);
        self.peer.store(peer, Relaxed);
        self.tag.store(call.tag.load(Relaxed), Relaxed);
        self.communicator.store(communicator, Relaxed);
        self.handle.store(call.handle.load(Relaxed), Relaxed);
        let serial = call.communicator.load(Relaxed);
        let words = [stub / 2, state::IN_PROGRESS, serial, peer.cast_unsigned()];
        for (at, word) in self.function_to_peer.iter().zip(words) {
            at.store(word, Relaxed);
        }
        self.counter
            .store(ptr::from_ref(counter).cast_mut(), Relaxed);
        self.function.store(function.cast_mut(), Relaxed);
        self.stub.store(stub, Relaxed);
    }

    pub(crate) fn forget(&self) {
        // Most threads have none, and what is only read stays in the caches of all processors.
        if self.stub.load(Relaxed) != 0 {
            self.stub.store(0, Relaxed);
        }
    }
}

/// A way of messages.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    Send,
    Receive,
}

/// Returns the way of the messages of a function, if its arguments are those of `MPI_Send` or `MPI_Recv` in their order.
pub(crate) const fn way(function: &Function) -> Option<Way> {
    use calls::Role::{Communicator, Count, Peer, Tag};
    let has = matches!(function.argument(Count), Some(1))
        && matches!(function.argument(Peer), Some(3))
        && matches!(function.argument(Tag), Some(4))
        && matches!(function.argument(Communicator), Some(5));
    match (function.class, function.arguments) {
        (Class::Send, 6) if has => Some(Way::Send),
        (Class::Receive, 7) if has => Some(Way::Receive),
        _ => None,
    }
}
