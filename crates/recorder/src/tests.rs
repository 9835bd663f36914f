//! The tables of a real region, in a file of this process. All tests share it, so they are one.

use std::{fs, os::unix::fs::MetadataExt as _, sync::atomic::Ordering::Relaxed, thread};

use calls::{
    FUNCTIONS, Function, Provision,
    layout::{self, COUNTERS_MAX, Request},
};

use crate::{
    counters::{self, Direction},
    late_stubs::{self, NUMBERS, STUB_SIZE},
    library, names,
    region::{self, Table},
    threads,
};

#[test]
fn stubs_begin_with_their_places() {
    for (place, stub) in NUMBERS.iter().enumerate() {
        let code = late_stubs::address(u32::from(*stub)).unwrap();
        // SAFETY: the stubs are constant.
        let code = unsafe { *code.cast::<[u8; STUB_SIZE]>() };
        // `mov eax, place` and `jmp`.
        assert_eq!(code[0], 0xb8);
        assert_eq!(code[1..5], u32::try_from(place).unwrap().to_le_bytes());
        assert_eq!(code[5], 0xe9);
    }
    let late = |function: &&Function| function.provision == Provision::Late;
    assert_eq!(NUMBERS.len(), 2 * FUNCTIONS.iter().filter(late).count());
    let send = library::number("MPI_Send");
    assert!(late_stubs::address(2 * send).is_none());
}

#[test]
fn names_are_those_of_the_functions() {
    for (number, function) in FUNCTIONS.iter().enumerate() {
        let name = names::name(number);
        assert_eq!([names::PREFIX, name].concat(), function.name.as_bytes());
        assert_eq!(names::find(name), Some(number));
    }
    for none in ["", "A", "Abort2", "Zzz"] {
        assert_eq!(names::find(none.as_bytes()), None);
    }
}

extern "C" fn forked() {}

#[test]
fn counts_are_exact_and_full_tables_say_so() {
    let directory = std::env::temp_dir().join(format!("rally-recorder-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    // SAFETY: no other test of this process reads or changes the environment.
    unsafe { std::env::set_var(layout::DIRECTORY_VARIABLE, &directory) };
    assert!(region::is_there(forked));
    let file = directory.join(format!("{}{}", layout::FILE_PREFIX, std::process::id()));
    let used = || fs::metadata(&file).unwrap().blocks() * 512;
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    assert!(used() < 64 << 10, "{}", used());
    // Threads share a counter.
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..1000 {
                    counters::add(1, Direction::Send, 3, 7, 0);
                }
            });
        }
    });
    assert_eq!(counters::add(1, Direction::Send, 3, 7, 0), 8001);
    // Each thread that is alive has an entry of its own.
    let own = threads::admit();
    let other = thread::scope(|scope| {
        let other = scope.spawn(|| std::ptr::from_ref(threads::admit()) as usize);
        other.join().unwrap()
    });
    assert_ne!(std::ptr::from_ref(own) as usize, other);
    // The table has room for so many, and no more.
    let header = region::header();
    let wanted = i32::try_from(COUNTERS_MAX).unwrap() + 10;
    let counted = (0..wanted).filter(|tag| counters::add(2, Direction::Receive, 0, *tag, 0) == 1);
    // Threads that add the same counter at the same time waste an entry each.
    let counted = counted.count();
    assert!(
        (COUNTERS_MAX - 8..COUNTERS_MAX).contains(&counted),
        "{counted}"
    );
    let lost = header.counters_lost.load(Relaxed) as usize;
    assert_eq!(counted + lost, COUNTERS_MAX + 10);
    // Those that have room go on to be counted.
    assert_eq!(counters::add(2, Direction::Receive, 0, 0, 0), 2);
    assert_eq!(size_of::<Request>(), layout::RequestView::SIZE);
    // An entry is there only with all before it, and nobody asks again after a refusal.
    let table = Table::new(layout::REQUESTS, 100, 0);
    assert!(!table.has(0));
    assert!(table.reserve(50) && table.has(0) && table.has(80) && !table.has(81));
    fs::remove_dir_all(&directory).unwrap();
    assert!(!table.reserve(81) && !table.has(81) && !table.reserve(82) && table.reserve(80));
}
