//! A thread for work that may block: a store on a slow disk, a file on a dead server. The event loop goes on meanwhile.

use std::{
    collections::VecDeque, fmt, os::fd::OwnedFd, sync::Arc, task::Poll, thread, time::Duration,
};

use crate::{
    clock::{Clock, sleep},
    error::Error,
    mailbox::{self, Mailbox},
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
    shared: Arc<Mailbox<State<Order, Answer>>>,
    thread: Option<thread::JoinHandle<()>>,
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
        let (shared, watched) = Mailbox::new(State {
            orders: VecDeque::new(),
            answers: VecDeque::new(),
            closed: false,
        })?;
        let theirs = Arc::clone(&shared);
        let thread = mailbox::start(name, STACK_SIZE, move || {
            while let Some(order) = theirs.wait_for(State::take) {
                let answer = act(order);
                theirs.lock().answers.push_back(answer);
                theirs.wake_loop();
            }
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
        self.shared.change(|state| state.orders.push_back(order));
    }

    /// Returns the answers since the last call, and makes the watched descriptor unreadable again.
    #[must_use]
    pub fn answers(&self) -> VecDeque<Answer> {
        self.shared.clear();
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
        self.shared.change(|state| state.closed = true);
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

impl<Order, Answer> State<Order, Answer> {
    /// Returns the next order; `None` if there are none and the worker was dropped.
    fn take(&mut self) -> Poll<Option<Order>> {
        match self.orders.pop_front() {
            None if !self.closed => Poll::Pending,
            order => Poll::Ready(order),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{os::fd::AsFd as _, sync::mpsc};

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
