//! The instructions that a thread has executed before a call, as far as the code leaves only one way to it.
//!
//! From the call the way is followed backwards: to the instruction before, or, where nothing leads on from there, to the only jump that
//! leads here. It begins where there are several ways, or after another call, which may return or continue with an exception. Ways that
//! cannot be known make the whole block unknown: those by tables of jumps, and bytes that are no instructions.

use std::{collections::BTreeMap, ops::Range};

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess, OpKind,
    Register, UsedMemory,
};

use crate::image::Exceptions;

/// Maximum number of instructions before a call that are looked at.
const BLOCK_MAX: usize = 128;

/// Instructions that were executed one after the other, the last one directly before the call.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(super) steps: Vec<Step>,
    /// The address of the call, as in the file.
    call: u64,
    /// The function with the call.
    function: Range<u64>,
    /// Addresses to which no other jump may lead.
    closed: Vec<Range<u64>>,
}

/// An instruction, and what it changes.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) instruction: Instruction,
    /// The general registers that it may change, a bit for each.
    writes: u16,
    /// The memory that it may change.
    pub(super) stores: Vec<UsedMemory>,
}

/// The jumps of a function that lead to one of its instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sources {
    /// The one at this address.
    One(u64),
    Several,
}

impl Block {
    /// Returns the block before the call that returns to `back`. `code` is the function with the call, and `start` its address.
    pub(crate) fn before(
        code: &[u8],
        start: u64,
        back: u64,
        exceptions: Exceptions,
    ) -> Option<Self> {
        let all = decoded(code, start)?;
        let entries = entries(&all)?;
        let index = |address| all.binary_search_by_key(&address, Instruction::ip).ok();
        let mut at = all
            .binary_search_by_key(&back, Instruction::next_ip)
            .ok()
            .filter(|&at| is_call(&all[at]))?;
        let call = all[at].ip();
        let mut steps = Vec::new();
        let mut closed = Vec::new();
        let mut end = all[at].next_ip();
        let mut factory = InstructionInfoFactory::new();
        // The beginning of the function is where callers enter it.
        while let Some(before) = at.checked_sub(1)
            && steps.len() < BLOCK_MAX
        {
            let here = all[at].ip();
            at = match (leads_on(&all[before]), entries.get(&here)) {
                (true, None) if !is_call(&all[before]) => before,
                (false, Some(Sources::One(jump))) if exceptions == Exceptions::Leave => {
                    closed.push(here..end);
                    let jump = index(*jump)?;
                    end = all[jump].next_ip();
                    jump
                }
                _ => break,
            };
            steps.push(Step::of(all[at], &mut factory));
        }
        steps.reverse();
        // Other code may lead to the first instruction.
        closed.push(all[at].ip().saturating_add(1)..end);
        let length = u64::try_from(code.len()).ok()?;
        Some(Self {
            steps,
            call,
            function: start..start.checked_add(length)?,
            closed,
        })
    }

    /// Returns where jumps outside of the function enter the block, in code that begins at `address`. Compilers put unlikely parts of a
    /// function far from the others, and these parts jump back.
    pub(crate) fn entries_from(&self, code: &[u8], address: u64) -> impl Iterator<Item = u64> {
        let found = memchr::memchr2_iter(0xe9, 0x0f, code);
        let targets = found.filter_map(move |at| {
            let start = address.wrapping_add(at as u64);
            let at = match (code[at], code.get(at + 1)?) {
                (0xe9, _) => at + 1,
                (_, 0x80..=0x8f) => at + 2,
                _ => return None,
            };
            let distance = i32::from_le_bytes(code.get(at..at + 4)?.try_into().ok()?);
            let end = address.wrapping_add(at as u64 + 4);
            let target = end.wrapping_add_signed(distance.into());
            (!self.function.contains(&start)).then_some(target)
        });
        targets.filter(|target| self.closed.iter().any(|range| range.contains(target)))
    }

    /// Returns the part of the block after the last place at which it is entered; `None` if that is inside of an instruction.
    pub(crate) fn after(mut self, entries: impl Iterator<Item = u64>) -> Option<Self> {
        let mut first = 0;
        for entry in entries {
            let at = match entry {
                _ if entry == self.call => self.steps.len(),
                _ => self
                    .steps
                    .iter()
                    .position(|step| step.instruction.ip() == entry)?,
            };
            first = first.max(at);
        }
        self.steps.drain(..first);
        Some(self)
    }
}

impl Step {
    fn of(instruction: Instruction, factory: &mut InstructionInfoFactory) -> Self {
        let is_changed = |access: OpAccess| {
            matches!(
                access,
                OpAccess::Write
                    | OpAccess::CondWrite
                    | OpAccess::ReadWrite
                    | OpAccess::ReadCondWrite
            )
        };
        let info = factory.info(&instruction);
        let registers = info.used_registers().iter();
        let registers = registers.filter(|used| is_changed(used.access()));
        let writes = registers
            .filter_map(|used| number(used.register()))
            .fold(0, |all, number| all | 1 << number);
        let stores = info.used_memory().iter();
        let stores = stores.filter(|used| is_changed(used.access()));
        Self {
            instruction,
            writes,
            stores: stores.copied().collect(),
        }
    }

    /// Returns true if the instruction may change a general register.
    pub(super) const fn writes(&self, register: usize) -> bool {
        self.writes >> register & 1 != 0
    }
}

/// Returns the number of a general register, of which the given one may be a part.
pub(super) fn number(register: Register) -> Option<usize> {
    let full = register.full_register();
    full.is_gpr64().then(|| full.number())
}

/// Returns all instructions of a function; `None` if some bytes are none.
fn decoded(code: &[u8], start: u64) -> Option<Vec<Instruction>> {
    let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    let mut all = Vec::new();
    while decoder.can_decode() {
        let instruction = decoder.decode();
        // At the end of the address space, addresses begin again.
        if instruction.is_invalid() || instruction.next_ip() <= instruction.ip() {
            return None;
        }
        all.push(instruction);
    }
    Some(all)
}

/// Returns the jumps of a function by where they lead; `None` if that cannot be known.
fn entries(all: &[Instruction]) -> Option<BTreeMap<u64, Sources>> {
    let mut entries = BTreeMap::new();
    for instruction in all {
        match instruction.flow_control() {
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
                if instruction.op0_kind() != OpKind::NearBranch64 {
                    return None;
                }
                entries
                    .entry(instruction.near_branch_target())
                    .and_modify(|sources| *sources = Sources::Several)
                    .or_insert_with(|| Sources::One(instruction.ip()));
            }
            // Jumps through a slot of the linker lead to other functions, those through a register or a table to any place of this one.
            FlowControl::IndirectBranch if !instruction.is_ip_rel_memory_operand() => return None,
            FlowControl::XbeginXabortXend => return None,
            _ => {}
        }
    }
    Some(entries)
}

/// Returns true if the next instruction may be executed next.
fn leads_on(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::Next
            | FlowControl::ConditionalBranch
            | FlowControl::Call
            | FlowControl::IndirectCall
    )
}

/// Returns true for calls of functions, and of the kernel.
fn is_call(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::Call | FlowControl::IndirectCall
    )
}
