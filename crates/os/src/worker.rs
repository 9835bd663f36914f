//! A thread for work that may block: a store on a slow disk, a file on a dead server. The event loop goes on meanwhile.

use std::{
    collections::VecDeque,
    fmt,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::{
    clock::{Clock, sleep},
    error::Error,
    pipe,
    signal::SignalSet,
};

/// Pause between two looks whether the thread has ended.
const FINISH_PAUSE: Duration = Duration::from_millis(1);
/// Size of the thread's stack.
const STACK_SIZE: usize = 512 << 10;

/// Carries out orders one after another, on a thread of its own, and gives an answer for each, in the same order.
///
/// Dropping it lets the thread end after its current order; orders that were not begun are dropped. [`Worker::finish_within`]
/// waits for all of them.
pub struct Worker<Order, Answer> {
    shared: Arc<Shared<Order, Answer>>,
    thread: Option<thread::JoinHandle<()>>,
}

struct Shared<Order, Answer> {
    state: Mutex<State<Order, Answer>>,
    changed: Condvar,
    notify: EventFd,
}

struct State<Order, Answer> {
    orders: VecDeque<Order>,
    answers: VecDeque<Answer>,
    /// The thread is to end when there are no orders.
    closed: bool,
}

impl<Order, Answer> fmt::Debug for Worker<Order, Answer> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.lock();
        f.debug_struct("Worker")
            .field("orders", &state.orders.len())
            .field("answers", &state.answers.len())
            .finish_non_exhaustive()
    }
}

impl<Order: Send + 'static, Answer: Send + 'static> Worker<Order, Answer> {
    /// Starts the thread, which calls `act` for each order. The second value is a descriptor that becomes readable when there are
    /// answers: add it to the loop, and call [`Self::answers`] when it is readable.
    ///
    /// # Errors
    ///
    /// `EMFILE`, or `EAGAIN` at the limit of processes.
    pub fn start(
        name: &str,
        mut act: impl FnMut(Order) -> Answer + Send + 'static,
    ) -> Result<(Self, OwnedFd), Error> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let notify =
            EventFd::from_flags(flags).map_err(Error::nix("create an event descriptor"))?;
        let watched = pipe::duplicate(notify.as_fd())?;
        let state = State {
            orders: VecDeque::new(),
            answers: VecDeque::new(),
            closed: false,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
            notify,
        });
        let theirs = Arc::clone(&shared);
        let builder = thread::Builder::new()
            .name(name.to_owned())
            .stack_size(STACK_SIZE);
        // A thread inherits its creator's signal mask, and signals must go to the loop's descriptor.
        let thread = SignalSet::with_all_blocked(|| {
            builder.spawn(move || {
                while let Some(order) = theirs.take() {
                    let answer = act(order);
                    theirs.lock().answers.push_back(answer);
                    // This fails only if the counter is full, and then the descriptor is readable anyway.
                    let _ = theirs.notify.write(1);
                }
            })
        });
        let thread = thread.map_err(Error::std("start a thread"))?;
        let worker = Self {
            shared,
            thread: Some(thread),
        };
        Ok((worker, watched))
    }

    /// Adds an order. The caller bounds how many there are.
    pub fn order(&self, order: Order) {
        self.shared.lock().orders.push_back(order);
        self.shared.changed.notify_one();
    }

    /// Returns the answers since the last call, and makes the watched descriptor unreadable again.
    #[must_use]
    pub fn answers(&self) -> VecDeque<Answer> {
        // An error means that it was not readable.
        let _ = self.shared.notify.read();
        std::mem::take(&mut self.shared.lock().answers)
    }

    /// Waits until all orders were carried out, at most so long. Returns false if an order takes longer: its thread is left alone.
    pub fn finish_within(mut self, limit: Duration) -> bool {
        self.close();
        let until = Clock::now() + limit;
        let Some(thread) = self.thread.take() else {
            return true;
        };
        while !thread.is_finished() {
            if Clock::now() >= until {
                return false;
            }
            sleep(FINISH_PAUSE);
        }
        true
    }
}

impl<Order, Answer> Worker<Order, Answer> {
    fn close(&self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_one();
    }
}

impl<Order, Answer> Drop for Worker<Order, Answer> {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.shared.lock().orders.clear();
            self.close();
        }
    }
}

impl<Order, Answer> Shared<Order, Answer> {
    fn lock(&self) -> MutexGuard<'_, State<Order, Answer>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next order; `None` if the worker was dropped.
    fn take(&self) -> Option<Order> {
        let mut state = self.lock();
        loop {
            if let Some(order) = state.orders.pop_front() {
                return Some(order);
            }
            if state.closed {
                return None;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::wait_readable;

    #[test]
    fn answers_come_in_order_and_wake_the_loop() {
        let (worker, watched) = Worker::start("test", |number: u32| number * 2).unwrap();
        for number in 0..100 {
            worker.order(number);
        }
        let mut answers = Vec::new();
        while answers.len() < 100 {
            let until = Clock::now() + Duration::from_secs(60);
            assert!(wait_readable(watched.as_fd(), Some(until)).unwrap());
            answers.extend(worker.answers());
        }
        let expected: Vec<u32> = (0..100).map(|number| number * 2).collect();
        assert_eq!(answers, expected);
        let at_once = Some(Clock::now());
        assert!(!wait_readable(watched.as_fd(), at_once).unwrap());
    }

    #[test]
    fn finishing_waits_for_all_orders_and_dropping_does_not() {
        let (sender, receiver) = mpsc::channel();
        let act = move |number: u32| {
            let _ = sender.send(number);
        };
        let (worker, _watched) = Worker::start("test", act).unwrap();
        for number in 0..50 {
            worker.order(number);
        }
        assert!(worker.finish_within(Duration::from_secs(60)));
        assert_eq!(receiver.iter().count(), 50);
        let (hold, held) = mpsc::channel::<()>();
        let act = move |_: u32| {
            let _ = held.recv();
        };
        let (worker, _watched) = Worker::start("test", act).unwrap();
        worker.order(1);
        worker.order(2);
        assert!(
            !worker.finish_within(Duration::from_millis(1)),
            "the first order takes long"
        );
        drop(hold);
    }
}
