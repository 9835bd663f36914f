//! Computes what the instructions before a call have put into its arguments.
//!
//! An argument is followed backwards: from its register to the instruction that has set it, and from there to the registers and the
//! memory that this instruction has read. The way ends at a constant, at a register that the callee preserves, or in memory, which is
//! read as it is now. What cannot be followed is unknown.

use std::{cell::Cell, ops::Range};

use iced_x86::{Instruction, Mnemonic, OpKind, Register, UsedMemory};

use super::{
    super::{Origin, Value},
    STACK_POINTER as RSP,
    block::{Block, Step, number},
};
use crate::memory::Memory;

/// Maximum number of instructions looked at for one call. Each operand can lead to two others, and those to two more.
pub(crate) const STEPS_MAX: usize = 1 << 18;
/// Maximum number of values that depend on each other.
const DEPTH_MAX: usize = 16;

/// The registers of a dividend, and then of the quotient and the remainder.
const RAX: usize = 0;
const RDX: usize = 2;
/// The registers of the first arguments: `rdi`, `rsi`, `rdx`, `rcx`, `r8`, `r9`.
const ARGUMENTS: [usize; 6] = [7, 6, 2, 1, 8, 9];
/// The size of an argument on the stack.
const SLOT: u64 = 8;

/// A call of a stopped thread.
pub(crate) struct Slice<'a> {
    pub(crate) block: &'a Block,
    /// The difference between mapped addresses and those in the file.
    pub(crate) bias: u64,
    /// The general registers directly before the call, of those that the callee preserves.
    pub(crate) registers: [Option<u64>; 16],
    /// Memory of the callee and below it, which has changed since the call.
    pub(crate) changed: Range<u64>,
    pub(crate) memory: &'a dyn Memory,
    /// Whether memory can have been changed by the program.
    pub(crate) is_writable: &'a dyn Fn(u64) -> bool,
    /// The number of instructions that may still be looked at.
    pub(crate) left: Cell<usize>,
}

impl Slice<'_> {
    /// Returns the first `size` bytes of an argument, by its index among arguments that are numbers or addresses.
    pub(crate) fn argument(&self, index: usize, size: u64) -> Option<Value> {
        let end = self.block.steps.len();
        let value = match ARGUMENTS.get(index) {
            Some(&register) => self.register(register, end, 0)?,
            None => {
                let above = SLOT.checked_mul((index - ARGUMENTS.len()) as u64)?;
                let address = self.registers[RSP]?.checked_add(above)?;
                self.stored(address, size, end, 0)?
            }
        };
        Some(value.cut(size))
    }

    /// Returns a general register before the instruction `at`.
    fn register(&self, register: usize, at: usize, depth: usize) -> Option<Value> {
        if register == RSP {
            return Some(Value::code(self.stack_pointer(at)?));
        }
        let steps = &self.block.steps;
        self.spend(steps.len())?;
        if depth == DEPTH_MAX {
            return None;
        }
        if let Some(value) = self.registers[register]
            && !steps[at..].iter().any(|step| step.writes(register))
        {
            return Some(Value::code(value));
        }
        let at = steps[..at].iter().rposition(|step| step.writes(register))?;
        self.result(register, at, depth + 1)
    }

    /// Returns what the instruction `at` puts into a register.
    fn result(&self, register: usize, at: usize, depth: usize) -> Option<Value> {
        let instruction = &self.block.steps[at].instruction;
        match instruction.mnemonic() {
            Mnemonic::Cdqe => return Some(self.register(RAX, at, depth)?.extended(4)),
            Mnemonic::Cdq => {
                let sign = self.register(RAX, at, depth)?.extended(4);
                return Some(sign.with(Value::code(32), shifted).cut(4));
            }
            Mnemonic::Idiv => return self.divided(register, at, depth),
            _ => {}
        }
        let target = instruction.op0_register();
        let size = target.size() as u64;
        // What changes a part of a register, or a register that it does not name, is unknown.
        if instruction.op0_kind() != OpKind::Register
            || number(target) != Some(register)
            || !matches!(size, 4 | 8)
        {
            return None;
        }
        let own = || self.register(register, at, depth);
        let other = || self.operand(instruction, 1, at, depth);
        let is_same = instruction.op1_kind() == OpKind::Register
            && instruction.op1_register() == target
            && instruction.op_count() == 2;
        let value = match instruction.mnemonic() {
            Mnemonic::Xor | Mnemonic::Sub if is_same => Value::code(0),
            Mnemonic::Mov | Mnemonic::Movzx => other()?,
            Mnemonic::Movsx | Mnemonic::Movsxd => other()?.extended(width(instruction, 1)?),
            Mnemonic::Lea => self.effective(instruction, at, depth)?,
            Mnemonic::Add => own()?.with(other()?, u64::wrapping_add),
            Mnemonic::Sub => own()?.with(other()?, u64::wrapping_sub),
            Mnemonic::Xor => own()?.with(other()?, |one, other| one ^ other),
            Mnemonic::And => own()?.with(other()?, |one, other| one & other),
            Mnemonic::Or => own()?.with(other()?, |one, other| one | other),
            Mnemonic::Inc => own()?.with(Value::code(1), u64::wrapping_add),
            Mnemonic::Dec => own()?.with(Value::code(1), u64::wrapping_sub),
            Mnemonic::Neg => Value::code(0).with(own()?, u64::wrapping_sub),
            Mnemonic::Not => own()?.with(Value::code(u64::MAX), |one, other| one ^ other),
            Mnemonic::Imul if instruction.op_count() == 2 => {
                own()?.with(other()?, u64::wrapping_mul)
            }
            Mnemonic::Imul if instruction.op_count() == 3 => {
                let factor = Value::code(instruction.immediate(2));
                other()?.with(factor, u64::wrapping_mul)
            }
            Mnemonic::Shl | Mnemonic::Shr | Mnemonic::Sar
                if instruction.op1_kind() == OpKind::Immediate8 =>
            {
                let places = Value::code(instruction.immediate(1) % (size * 8));
                match instruction.mnemonic() {
                    Mnemonic::Shl => own()?.with(places, |word, places| word << places),
                    Mnemonic::Shr => own()?.cut(size).with(places, |word, places| word >> places),
                    _ => own()?.extended(size).with(places, shifted),
                }
            }
            Mnemonic::Pop => self.loaded(self.stack_pointer(at)?, SLOT, at, depth)?,
            _ => return None,
        };
        Some(value.cut(size))
    }

    /// Returns the quotient or the remainder of the division `at`, as programs compute their neighbors: `(rank + 1) % ranks`.
    fn divided(&self, register: usize, at: usize, depth: usize) -> Option<Value> {
        let instruction = &self.block.steps[at].instruction;
        (width(instruction, 0)? == 4).then_some(())?;
        let low = self.register(RAX, at, depth)?.cut(4);
        let high = self.register(RDX, at, depth)?.cut(4);
        let divisor = self.operand(instruction, 0, at, depth)?.extended(4);
        let dividend = high.with(low, |high, low| high << 32 | low);
        let origin = dividend.origin.max(divisor.origin);
        let (dividend, divisor) = (dividend.word.cast_signed(), divisor.word.cast_signed());
        let word = match register {
            RAX => dividend.checked_div(divisor)?,
            RDX => dividend.checked_rem(divisor)?,
            _ => return None,
        };
        let word = word.cast_unsigned();
        Some(Value { word, origin }.cut(4))
    }

    /// Returns an operand of the instruction `at`, without what is beyond its size.
    fn operand(
        &self,
        instruction: &Instruction,
        operand: u32,
        at: usize,
        depth: usize,
    ) -> Option<Value> {
        let size = width(instruction, operand)?;
        let value = match instruction.op_kind(operand) {
            OpKind::Register => {
                let register = instruction.op_register(operand);
                // `ah` is no part at the beginning of a register.
                if is_high(register) {
                    return None;
                }
                self.register(number(register)?, at, depth)?
            }
            OpKind::Memory => {
                let address = self.effective(instruction, at, depth)?;
                let loaded = self.loaded(address.word, size, at, depth)?;
                loaded.from(address.origin)
            }
            OpKind::Immediate8
            | OpKind::Immediate16
            | OpKind::Immediate32
            | OpKind::Immediate64
            | OpKind::Immediate8to16
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate32to64 => Value::code(instruction.immediate(operand)),
            _ => return None,
        };
        Some(value.cut(size))
    }

    /// Returns the address that the operand in memory of the instruction `at` has.
    fn effective(&self, instruction: &Instruction, at: usize, depth: usize) -> Option<Value> {
        self.sum(
            (instruction.memory_base(), instruction.memory_index()),
            instruction.memory_index_scale(),
            instruction.memory_displacement64(),
            instruction.segment_prefix(),
            (at, depth),
        )
    }

    /// Returns the address of memory that the instruction `at` changes.
    fn target(&self, used: &UsedMemory, at: usize, depth: usize) -> Option<u64> {
        let segment = match used.segment() {
            segment @ (Register::FS | Register::GS) => segment,
            _ => Register::None,
        };
        let address = self.sum(
            (used.base(), used.index()),
            used.scale(),
            used.displacement(),
            segment,
            (at, depth),
        )?;
        Some(address.word)
    }

    fn sum(
        &self,
        (base, index): (Register, Register),
        scale: u32,
        displacement: u64,
        segment: Register,
        (at, depth): (usize, usize),
    ) -> Option<Value> {
        // Variables of the thread: the register that leads to them is not known.
        if matches!(segment, Register::FS | Register::GS) {
            return None;
        }
        let mut sum = match base {
            // The decoder has added the address of the next instruction.
            Register::RIP => Value::code(self.bias),
            Register::None => Value::code(0),
            base if base.is_gpr64() => self.register(number(base)?, at, depth)?,
            _ => return None,
        };
        if index != Register::None {
            index.is_gpr64().then_some(())?;
            let index = self.register(number(index)?, at, depth)?;
            let scaled = index.with(Value::code(scale.into()), u64::wrapping_mul);
            sum = sum.with(scaled, u64::wrapping_add);
        }
        Some(sum.with(Value::code(displacement), u64::wrapping_add))
    }

    /// Returns what the instruction `at` reads from memory.
    fn loaded(&self, address: u64, size: u64, at: usize, depth: usize) -> Option<Value> {
        if let Some(stored) = self.stored(address, size, at, depth) {
            return Some(stored);
        }
        self.spend(self.block.steps.len())?;
        let end = address.checked_add(size)?;
        for (at, step) in self.block.steps.iter().enumerate().skip(at) {
            for store in &step.stores {
                let changed = self.range(store, at, depth)?;
                if changed.start < end && address < changed.end {
                    return None;
                }
            }
        }
        if self.changed.start < end && address < self.changed.end {
            return None;
        }
        let mut bytes = [0; 8];
        let wanted = bytes.get_mut(..usize::try_from(size).ok()?)?;
        self.memory.read(address, wanted).ok()?;
        let origin = if (self.is_writable)(address) {
            Origin::Memory
        } else {
            Origin::Code
        };
        let word = u64::from_le_bytes(bytes);
        Some(Value { word, origin })
    }

    /// Returns what is in memory before the instruction `at`, if one before it has put it there.
    fn stored(&self, address: u64, size: u64, at: usize, depth: usize) -> Option<Value> {
        self.spend(self.block.steps.len())?;
        let end = address.checked_add(size)?;
        for (at, step) in self.block.steps[..at].iter().enumerate().rev() {
            for store in &step.stores {
                let changed = self.range(store, at, depth)?;
                if changed.start == address && changed.end >= end {
                    return Some(self.source(step, at, depth)?.cut(size));
                }
                if changed.start < end && address < changed.end {
                    return None;
                }
            }
        }
        None
    }

    /// Returns what the instruction `at` puts into memory.
    fn source(&self, step: &Step, at: usize, depth: usize) -> Option<Value> {
        if depth == DEPTH_MAX {
            return None;
        }
        let operand = match step.instruction.mnemonic() {
            Mnemonic::Mov => 1,
            Mnemonic::Push => 0,
            _ => return None,
        };
        self.operand(&step.instruction, operand, at, depth + 1)
    }

    /// Returns the memory that the instruction `at` changes.
    fn range(&self, store: &UsedMemory, at: usize, depth: usize) -> Option<Range<u64>> {
        if depth == DEPTH_MAX || self.block.steps[at].instruction.is_string_instruction() {
            return None;
        }
        let start = self.target(store, at, depth + 1)?;
        let size = store.memory_size().size() as u64;
        (size > 0).then_some(())?;
        Some(start..start.checked_add(size)?)
    }

    /// Returns the stack pointer before the instruction `at`.
    fn stack_pointer(&self, at: usize) -> Option<u64> {
        self.spend(self.block.steps.len())?;
        let mut stack = self.registers[RSP]?;
        for step in &self.block.steps[at..] {
            stack = stack.wrapping_sub(moves(step)?);
        }
        Some(stack)
    }

    fn spend(&self, steps: usize) -> Option<()> {
        self.left.set(self.left.get().checked_sub(steps + 1)?);
        Some(())
    }
}

/// Returns a number with a sign, shifted to the right.
fn shifted(word: u64, places: u64) -> u64 {
    (word.cast_signed() >> places).cast_unsigned()
}

/// Returns by how much an instruction raises the stack pointer.
fn moves(step: &Step) -> Option<u64> {
    if !step.writes(RSP) {
        return Some(0);
    }
    let instruction = &step.instruction;
    let is_immediate = !matches!(instruction.op1_kind(), OpKind::Register | OpKind::Memory);
    let is_own =
        instruction.op0_kind() == OpKind::Register && instruction.op0_register() == Register::RSP;
    match instruction.mnemonic() {
        Mnemonic::Push | Mnemonic::Pop if !is_own || instruction.mnemonic() == Mnemonic::Push => {
            Some(i64::from(instruction.stack_pointer_increment()).cast_unsigned())
        }
        Mnemonic::Add if is_own && is_immediate => Some(instruction.immediate(1)),
        Mnemonic::Sub if is_own && is_immediate => Some(instruction.immediate(1).wrapping_neg()),
        Mnemonic::Lea
            if is_own
                && instruction.memory_base() == Register::RSP
                && instruction.memory_index() == Register::None =>
        {
            Some(instruction.memory_displacement64())
        }
        _ => None,
    }
}

/// Returns the size of an operand in bytes.
fn width(instruction: &Instruction, operand: u32) -> Option<u64> {
    let size = match instruction.op_kind(operand) {
        OpKind::Register => instruction.op_register(operand).size(),
        OpKind::Memory => instruction.memory_size().size(),
        _ => 8,
    };
    matches!(size, 1 | 2 | 4 | 8).then_some(size as u64)
}

const fn is_high(register: Register) -> bool {
    matches!(
        register,
        Register::AH | Register::BH | Register::CH | Register::DH
    )
}
