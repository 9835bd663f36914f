//! Regions with any bytes in them.

use std::{mem::offset_of, sync::Arc};

use calls::{COUNT, layout};
use proptest::prelude::*;

use super::super::{
    RankCalls,
    region::{Content, Extent, PENDING_MAX, Region, read, read_left},
};
use crate::memory::{Memory, Unreadable};

/// A region whose bytes repeat a few.
struct Repeated {
    header: Vec<u8>,
    bytes: Vec<u8>,
}

const AT: u64 = 0x7000_0000;

impl Memory for Repeated {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Unreadable> {
        let offset = address
            .checked_sub(AT)
            .filter(|offset| *offset < layout::SIZE as u64);
        let Some(offset) = offset else {
            return Err(Unreadable { address });
        };
        let from = usize::try_from(offset).unwrap();
        for (at, byte) in (from..).zip(buffer) {
            *byte = match self.header.get(at) {
                Some(byte) => *byte,
                None => self.bytes[at % self.bytes.len()],
            };
        }
        Ok(())
    }
}

const HERE: Region = Region {
    address: AT,
    pid: None,
};

fn calls(content: Content) -> Option<RankCalls> {
    match content {
        Content::Calls(calls) => Some(*calls),
        Content::Nothing | Content::Unreadable => None,
    }
}

/// The header of a region of this program: magic, version, number of functions, kind of library.
fn header(rest: &[u8]) -> Vec<u8> {
    let mut header = layout::MAGIC.to_ne_bytes().to_vec();
    header.extend(layout::VERSION.to_ne_bytes());
    header.extend(u32::try_from(COUNT).unwrap().to_ne_bytes());
    header.extend(1_u32.to_ne_bytes());
    header.extend(rest);
    header
}

proptest! {
    // Each decodes a megabyte.
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_bytes_are_bounded(
        rest in prop::collection::vec(any::<u8>(), 84),
        bytes in prop::collection::vec(any::<u8>(), 1..300),
    ) {
        let memory = Repeated { header: header(&rest), bytes };
        let mut place = |_| Some(Arc::from("a.c:1"));
        let calls = calls(read(&memory, HERE, Extent::Last(63), &mut place)).unwrap();
        prop_assert!(calls.is_bounded());
        // Whatever it says, it can be shown.
        let _ = super::super::words::history(base::Rank(0), &calls);
        let _ = super::super::overview::Overview::of(&super::job([calls]));
    }
}

#[test]
fn other_versions_and_regions_of_others_are_not_readable() {
    // The pid is 7.
    let mut rest = [0; 84];
    rest[0] = 7;
    let whole = header(&rest);
    let read = |header: Vec<u8>, pid| {
        let bytes = vec![0];
        let region = Region { address: AT, pid };
        let memory = Repeated { header, bytes };
        read(&memory, region, Extent::Current, &mut |_| None)
    };
    for pid in [None, Some(7)] {
        assert!(calls(read(whole.clone(), pid)).is_some());
    }
    assert_eq!(read(whole.clone(), Some(8)), Content::Unreadable);
    for at in [0, 8, 12, 16] {
        let mut other = whole.clone();
        other[at] ^= 0x40;
        assert_eq!(read(other, None), Content::Unreadable, "{at}");
    }
    let mut unknown = whole;
    unknown[16] = 0;
    assert_eq!(read(unknown, None), Content::Nothing);
    // It is being made.
    assert_eq!(read(vec![0; 104], Some(7)), Content::Nothing);
}

/// The first bytes of a region.
struct Cut(Vec<u8>, usize);

impl Memory for Cut {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Unreadable> {
        let at = usize::try_from(address - AT).unwrap();
        let found = self.0[..self.1].get(at..at + buffer.len());
        buffer.copy_from_slice(found.ok_or(Unreadable { address })?);
        Ok(())
    }
}

/// A message whose counter is cut off was not "sent 0 times".
#[test]
fn a_cut_region_is_not_one_with_fewer_calls() {
    let mut whole = header(&[0; 84]);
    whole.resize(layout::SIZE, 0);
    // One of each.
    for at in [
        offset_of!(layout::Header, threads),
        offset_of!(layout::Header, communicators),
        offset_of!(layout::Header, counters),
    ] {
        whole[at] = 1;
    }
    let ends = [
        layout::THREADS + layout::THREAD_SIZE,
        layout::COMMUNICATORS + layout::CommunicatorView::SIZE,
        layout::COUNTERS + layout::CounterView::SIZE,
    ];
    let longest = ends.into_iter().max().unwrap();
    for length in ends.into_iter().chain([0, 100, layout::PAGE, layout::SIZE]) {
        for length in [length.saturating_sub(1), length] {
            let memory = Cut(whole.clone(), length);
            let content = read(&memory, HERE, Extent::Current, &mut |_| None);
            assert_eq!(calls(content).is_some(), length >= longest, "{length}");
        }
    }
}

#[test]
fn what_is_left_is_that_of_the_process() {
    // 10 s after boot.
    const STARTED: Option<u64> = Some(1000);
    let began = |seconds: u64, rank: u32| {
        let mut rest = [0; 84];
        // The phase is INITIALIZED.
        rest[4] = 1;
        rest[8..12].copy_from_slice(&rank.to_ne_bytes());
        rest[68..76].copy_from_slice(&(seconds * 1_000_000_000).to_ne_bytes());
        let mut region = header(&rest);
        region.resize(layout::SIZE, 0);
        region
    };
    let (before, own, later) = (began(9, 1), began(11, 2), began(12, 3));
    let left = |regions: &[&Vec<u8>], started| {
        let regions: Vec<Vec<u8>> = regions.iter().map(|it| (*it).clone()).collect();
        let left = calls(read_left(&regions, started, Extent::Current))?;
        assert!(left.ended);
        left.rank
    };
    assert_eq!(left(&[&own], STARTED), Some(2));
    assert_eq!(left(&[&later, &before, &own], STARTED), Some(2));
    assert_eq!(left(&[&before], STARTED), None);
    // Which of them it is cannot be known.
    assert_eq!(left(&[&own], None), Some(2));
    assert_eq!(left(&[&own, &later], None), None);
    assert_eq!(left(&[], STARTED), None);
    for length in [0, 7, 50, 103, 104, 5000] {
        let short = own[..length].to_vec();
        let _ = read_left(&[short], STARTED, Extent::Last(63));
    }
}

/// Writes numbers into a region.
fn put(region: &mut [u8], at: usize, bytes: &[u8]) {
    region[at..at + bytes.len()].copy_from_slice(bytes);
}

/// All records of all threads wait for as many requests as there can be.
#[test]
fn requests_of_one_rank_are_bounded_together() {
    let waits = calls::FUNCTIONS
        .iter()
        .position(|it| it.name == "MPI_Waitall");
    let waits = u32::try_from(waits.unwrap()).unwrap().to_ne_bytes();
    let mut region = header(&[0; 84]);
    region.resize(layout::SIZE, 0);
    let threads = u32::try_from(layout::THREADS_MAX).unwrap();
    put(
        &mut region,
        offset_of!(layout::Header, threads),
        &threads.to_ne_bytes(),
    );
    for thread in 0..layout::THREADS_MAX {
        let begin = layout::THREADS + thread * layout::THREAD_SIZE;
        let id = offset_of!(layout::Thread, thread);
        put(&mut region, begin + id, &7_u32.to_ne_bytes());
        for record in 0..layout::CALLS_MAX {
            let at = begin + layout::ThreadView::SIZE + record * layout::CallView::SIZE;
            let number = (record as u64 + 1).to_ne_bytes();
            let state = layout::state::IN_PROGRESS | layout::state::NESTED;
            for (field, bytes) in [
                (offset_of!(layout::Call, sequence), &number[..]),
                (offset_of!(layout::Call, seal), &number),
                (offset_of!(layout::Call, function), &waits),
                (offset_of!(layout::Call, state), &state.to_ne_bytes()),
                (offset_of!(layout::Call, count), &4096_i64.to_ne_bytes()),
                (offset_of!(layout::Call, object), &AT.to_ne_bytes()),
            ] {
                put(&mut region, at + field, bytes);
            }
        }
    }
    // The handle that is read there is that of one request.
    let handle = u64::from(u32::from_ne_bytes(*region.first_chunk().unwrap()));
    let requests = offset_of!(layout::Header, requests);
    put(&mut region, requests, &1_u32.to_ne_bytes());
    let of_handle = layout::REQUESTS + offset_of!(layout::Request, handle);
    put(&mut region, of_handle, &handle.to_ne_bytes());
    let length = region.len();
    let memory = Cut(region, length);
    let found = calls(read(&memory, HERE, Extent::Last(63), &mut |_| None)).unwrap();
    assert!(found.is_bounded());
    let all = found.threads.iter().flat_map(|it| &it.calls);
    assert_eq!(all.clone().count(), 64 * 63);
    let known: usize = all.clone().map(|it| it.pending.len()).sum();
    assert!((1..=PENDING_MAX).contains(&known), "{known}");
    assert!(all.into_iter().any(|it| it.unknown == 4096));
}

/// A communicator of a rank of four, with these members.
fn of_members(series: Option<(u32, i32, u32)>, list: &[u32]) -> u32 {
    let mut region = header(&[0; 84]);
    region.resize(layout::SIZE, 0);
    let listed = u32::try_from(list.len()).unwrap();
    let (first, stride, size) = series.unwrap_or((0, 0, listed));
    let flags = if series.is_some() {
        0
    } else {
        layout::flags::LISTED
    };
    let at = layout::COMMUNICATORS;
    for (field, number) in [
        (offset_of!(layout::Header, size), 4),
        (offset_of!(layout::Header, communicators), 1),
        (at + offset_of!(layout::Communicator, serial), 1),
        (at + offset_of!(layout::Communicator, handle), 1),
        (at + offset_of!(layout::Communicator, first), first),
        (
            at + offset_of!(layout::Communicator, stride),
            stride.cast_unsigned(),
        ),
        (at + offset_of!(layout::Communicator, size), size),
        (at + offset_of!(layout::Communicator, flags), flags),
    ] {
        put(&mut region, field, &number.to_ne_bytes());
    }
    for (index, member) in list.iter().enumerate() {
        let at = layout::MEMBERS + 4 * index;
        put(&mut region, at, &member.to_ne_bytes());
    }
    let length = region.len();
    let memory = Cut(region, length);
    let found = calls(read(&memory, HERE, Extent::Current, &mut |_| None)).unwrap();
    found.communicators[0].members.len()
}

#[test]
fn members_are_different_ranks_of_the_job() {
    for (series, members) in [
        ((0, 1, 4), 4),
        ((3, -1, 4), 4),
        ((2, 0, 1), 1),
        ((0, 0, 4), 0),
        ((0, 2, 4), 0),
        ((1, -1, 4), 0),
        ((4, 1, 1), 0),
        ((0, i32::MIN, 4), 0),
    ] {
        assert_eq!(of_members(Some(series), &[]), members, "{series:?}");
    }
    assert_eq!(of_members(None, &[2, 0, 3]), 3);
    assert_eq!(of_members(None, &[2, 0, 2]), 0);
}

#[test]
fn an_operation_is_that_with_its_number() {
    use layout::{function_and_root, operation};
    for (ordinal, function, root) in [(1, 0, 0), (70_000, 585, 3), (16, 9, u32::MAX)] {
        let written = operation(ordinal, function, root);
        let found = function_and_root(written, ordinal);
        assert_eq!(found, Some((function, root.cast_signed())));
        assert_eq!(function_and_root(written, ordinal + 16), None);
    }
    // Nothing was written.
    assert_eq!(function_and_root(0, 16), None);
}
