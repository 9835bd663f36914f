//! State that an event loop shares with a thread whose work may block. The loop wakes the thread by a condition variable, the thread the
//! loop by a descriptor.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    task::Poll,
    thread,
};

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::{error::Error, pipe, signal::SignalSet};

#[derive(Debug)]
pub(crate) struct Mailbox<T> {
    state: Mutex<T>,
    changed: Condvar,
    notify: EventFd,
}

impl<T> Mailbox<T> {
    /// Makes a mailbox. The second value is a descriptor that becomes readable when the thread calls [`Self::wake_loop`].
    ///
    /// # Errors
    /// `EMFILE`.
    pub(crate) fn new(state: T) -> Result<(Arc<Self>, OwnedFd), Error> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let notify =
            EventFd::from_flags(flags).map_err(Error::nix("create an event descriptor"))?;
        let watched = pipe::duplicate(notify.as_fd())?;
        let mailbox = Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            notify,
        };
        Ok((Arc::new(mailbox), watched))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and lets the thread look at it.
    pub(crate) fn change(&self, act: impl FnOnce(&mut T)) {
        act(&mut self.lock());
        self.changed.notify_one();
    }

    /// Waits until `take` finds in the state what the thread waits for.
    pub(crate) fn wait_for<R>(&self, mut take: impl FnMut(&mut T) -> Poll<R>) -> R {
        let mut state = self.lock();
        loop {
            if let Poll::Ready(found) = take(&mut state) {
                return found;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Makes the loop's descriptor readable.
    pub(crate) fn wake_loop(&self) {
        // This fails only if the counter is full, and then the descriptor is readable anyway.
        let _ = self.notify.write(1);
    }

    /// Makes the loop's descriptor unreadable again.
    pub(crate) fn clear(&self) {
        // An error means that it was not readable.
        let _ = self.notify.read();
    }
}

/// Starts a thread that gets no signal: a thread inherits its creator's signal mask, and signals must go to the loop's descriptor.
pub(crate) fn start(
    name: &str,
    stack_size: usize,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<thread::JoinHandle<()>> {
    let builder = thread::Builder::new().name(name.to_owned());
    let builder = builder.stack_size(stack_size);
    SignalSet::with_all_blocked(|| builder.spawn(run))
}
