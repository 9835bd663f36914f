//! Processes that end, and become others, between two looks.

use std::process::{Child, Command};

use super::*;

/// A process that is killed at the end.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn start(program: &str, arguments: &[&str]) -> Self {
        Self(Command::new(program).args(arguments).spawn().unwrap())
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.0.id()).unwrap())
    }

    fn started(&self) -> u64 {
        os::start_time(self.pid()).unwrap()
    }
}

#[test]
fn who_has_the_number_of_a_process_now_is_not_looked_at() {
    let running = Running::start("sleep", &["1000"]);
    let mut looker = Looker::new(report::Detail::Folded);
    let (pid, started) = (running.pid(), running.started());
    assert!(matches!(looker.look(pid, started), Seen::Threads(_)));
    // As if it had ended, and this one had its number.
    let seen = looker.look(pid, started - 1);
    assert!(matches!(seen, Seen::Missing(Missing::Gone)), "{seen:?}");
    assert!(looker.codes.is_empty());
}
