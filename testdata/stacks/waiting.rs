//! Asleep below a closure and a generic function.

use std::{io::Write, thread, time::Duration};

trait Work {
    fn work(&self);
}

struct Unit<T>(T);

impl<T: Copy + Into<u64>> Work for Unit<T> {
    #[inline(never)]
    fn work(&self) {
        println!("ready");
        std::io::stdout().flush().unwrap();
        thread::sleep(Duration::from_secs(self.0.into()));
    }
}

#[inline(never)]
fn apply(work: &dyn Fn()) {
    work();
}

fn main() {
    let unit = Unit(1000_u32);
    apply(&|| unit.work());
}
