//! Finds functions that left the stack by a tail call, between a call and the function that it led to.
//!
//! A function that ends with a jump into another one leaves no frame: only the return address shows which function was called.
//! The call instruction before it names the callee, directly or through a slot that the dynamic linker has filled:
//!
//! | instruction | origin | target |
//! |---|---|---|
//! | `call target` | default | `target`, or the stub of a library function |
//! | `call *slot` | `-fno-plt` | the pointer in the slot |
//! | `jmp *slot` | a PLT stub, possibly after `endbr64` | the pointer in the slot |
//! | `jmp target` | a stub of the linker | `target` |
//!
//! From there the jumps in the callee's code are followed until one leads to the function that the thread is in. A call through a
//! register has no known callee, nor does a target where no function begins.
//!
//! Hostile code can contain very many jumps, all of which would have to be followed: [`Effort`] bounds the search. A search that
//! was cut off by that, or by a slot that could not be read, is repeated in the next sample.

use std::{collections::BTreeMap, ops::Range};

use framehop::FrameAddress;

use super::{Address, Code, Images, Loaded, remember};
use crate::{
    arch::{self, Target},
    image::{Files, Image},
    memory::Memory,
    stack::{Frame, FrameId, Frames},
};

impl Jump {
    /// Returns this jump if it is at `at`, or [`Self::Somewhere`] if there are several.
    fn or(self, at: u64) -> Self {
        if self == Self::At(at) {
            self
        } else {
            Self::Somewhere
        }
    }
}

/// Functions that ended with a tail call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TailCalls {
    /// Their frames, innermost first.
    pub(super) frames: Vec<FrameId>,
    /// The function that they jumped to.
    pub(super) to: To,
}

/// The target of the last tail call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum To {
    /// A part of the innermost of these functions, or a nameless function of the same file. It is shown by the name of the
    /// former.
    SameFunction,
    /// Another function.
    OtherFunction,
}

/// An address in a mapped file, as in the file.
type Place<'a> = (&'a Loaded, u64);

/// The number of steps that remain for a sample of one process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort(usize);

/// Maximum number of steps for a sample of one process. A step follows one stub, or searches [`BYTES_OF_STEP`] of a function.
/// Programs need a few hundred; this many take less than a second.
pub(super) const MAX_STEPS: usize = 1 << 18;
/// Bytes of code that are searched in one step.
const BYTES_OF_STEP: usize = 256;

impl Default for Effort {
    fn default() -> Self {
        Self(MAX_STEPS)
    }
}

impl Effort {
    fn spend(&mut self, steps: usize) -> Result<(), NotNow> {
        self.0 = self.0.checked_sub(steps).ok_or(NotNow)?;
        Ok(())
    }
}

/// The error if an answer cannot be found in this sample: memory could not be read, or the effort is exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotNow;

/// A function that a search has reached.
struct Reached<'a> {
    loaded: &'a Loaded,
    range: Range<u64>,
    /// The index of the function that jumps to it, among those reached, and the jump. `None` for the called function.
    from: Option<(usize, Jump)>,
}

/// The location of a jump to another function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Jump {
    /// At this address.
    At(u64),
    /// At one of several addresses, or at an unknown one.
    Somewhere,
}

/// A function that ended with a tail call.
struct Step<'a> {
    loaded: &'a Loaded,
    start: u64,
    jump: Jump,
}

/// Maximum number of stubs in a chain: usually one of the linker and one for the dynamic linker.
const MAX_STUBS: usize = 4;
/// Maximum number of functions that are searched for a jump.
const MAX_SEARCHED: usize = 32;
/// Maximum number of bytes searched in one function; the rest is ignored.
const MAX_CODE: usize = 1 << 14;

/// Name prefixes of code that compilers and linkers generate only to lead on to a function.
const STUBS: [&str; 5] = [
    "__x86_indirect_thunk",
    "__llvm_retpoline",
    "non-virtual thunk to",
    "virtual thunk to",
    "covariant return thunk",
];

impl Images {
    /// Returns the functions between the call before the return address `caller` and the function at `at`, whose frame is
    /// `found`: those that have left the stack by a tail call. `None` if there are none, or they are unknown.
    pub(super) fn tail_calls(
        &mut self,
        code: &Code,
        caller: FrameAddress,
        (at, found): (FrameAddress, FrameId),
        memory: &dyn Memory,
        files: &dyn Files,
        frames: &mut Frames,
    ) -> Option<TailCalls> {
        let (caller, at) = (place(code, caller)?, place(code, at)?);
        let goal = self.image_of(at.0)?.function(at.1);
        let goal = goal.map(|range| (at.0.image, range.start));
        let key = goal.map(|goal| ((caller.0.image, caller.1), goal));
        // The dynamic linker fills the slots equally in all processes that have mapped these files.
        if let Some(known) = key.and_then(|key| self.tail_calls.get(&key)) {
            return known.clone();
        }
        let mut effort = self.effort;
        let ways = self.ways(code, caller, (at, goal), memory, &mut effort);
        self.effort = effort;
        let way = ways.ok()?;
        let tail_calls = way.and_then(|way| self.telling(code, &way, found, memory, files, frames));
        if let Some(key) = key {
            remember(&mut self.tail_calls, key, tail_calls.clone());
        }
        tail_calls
    }

    /// Returns the functions from the called one to the last one before the function at `at`. Only the called one is returned if
    /// no jumps, or several ways, lead on. `None` if the function at `at` was itself called, or the callee is unknown.
    fn ways<'a>(
        &self,
        code: &'a Code,
        caller: Place<'a>,
        (at, goal): (Place<'a>, Option<Address>),
        memory: &dyn Memory,
        effort: &mut Effort,
    ) -> Result<Option<Vec<Step<'a>>>, NotNow> {
        let image = self.image_of(caller.0);
        let Some(target) =
            image.and_then(|image| arch::call_before(code.arch, image, caller.1.wrapping_add(1)))
        else {
            return Ok(None);
        };
        let Some((loaded, range)) = self.follow(code, caller.0, target, memory, effort)? else {
            return Ok(None);
        };
        if at.0.image == loaded.image && range.contains(&at.1) {
            return Ok(None);
        }
        let alone = Step {
            loaded,
            start: range.start,
            jump: Jump::Somewhere,
        };
        let Some(goal) = goal else {
            return Ok(Some(vec![alone]));
        };
        let mut seen = BTreeMap::from([((loaded.image, range.start), 0)]);
        let mut reached = vec![Reached {
            loaded,
            range,
            from: None,
        }];
        let mut before_goal = BTreeMap::new();
        let mut searched = 0;
        while searched < reached.len().min(MAX_SEARCHED) {
            let (loaded, range) = (reached[searched].loaded, reached[searched].range.clone());
            let code_of = self
                .image_of(loaded)
                .and_then(|image| image.code_in(range.clone(), MAX_CODE));
            let bytes = code_of.unwrap_or_default();
            effort.spend(1 + bytes.len() / BYTES_OF_STEP)?;
            for (at, target) in arch::jumps_in(code.arch, bytes, &range) {
                let Some((loaded, range)) = self.follow(code, loaded, target, memory, effort)?
                else {
                    continue;
                };
                let function = (loaded.image, range.start);
                if function == goal {
                    let jump = before_goal.entry(searched).or_insert(Jump::At(at));
                    *jump = jump.or(at);
                } else if let Some(&known) = seen.get(&function) {
                    if let Some((from, jump)) = &mut reached[known].from
                        && *from == searched
                    {
                        *jump = jump.or(at);
                    }
                } else {
                    seen.insert(function, reached.len());
                    reached.push(Reached {
                        loaded,
                        range,
                        from: Some((searched, Jump::At(at))),
                    });
                }
            }
            searched += 1;
        }
        let mut way = Vec::new();
        let only = before_goal.len() == 1;
        let mut last = before_goal.first_key_value().filter(|_| only);
        let mut last = last.take().map(|(&place, &jump)| (place, jump));
        while let Some((place, jump)) = last {
            let Reached {
                loaded,
                range,
                from,
            } = &reached[place];
            way.insert(
                0,
                Step {
                    loaded,
                    start: range.start,
                    jump,
                },
            );
            last = *from;
        }
        if way.is_empty() {
            way.push(alone);
        }
        Ok(Some(way))
    }

    /// Returns the frames of the functions on a way, without those that add nothing to `found`, the frame at its end.
    fn telling(
        &mut self,
        code: &Code,
        way: &[Step<'_>],
        found: FrameId,
        memory: &dyn Memory,
        files: &dyn Files,
        frames: &mut Frames,
    ) -> Option<TailCalls> {
        let found = frames.get(found).clone();
        let is_told = |frame: &Frame| {
            frame.function.as_deref().is_some_and(|name| {
                // The parts that a compiler splits off a function have its name.
                Some(name) != found.function.as_deref()
                    && !STUBS.iter().any(|stub| name.starts_with(stub))
            })
        };
        let mut telling: Vec<Frame> = Vec::new();
        for step in way.iter().rev() {
            let at = match step.jump {
                Jump::At(at) => at,
                Jump::Somewhere => step.start,
            };
            let at = FrameAddress::from_instruction_pointer(at.wrapping_add(step.loaded.bias));
            let named = self.named(code, at, memory, files, frames);
            let mut named = named.iter().map(|&id| frames.get(id).clone());
            match step.jump {
                Jump::At(_) => telling.extend(named.filter(is_told)),
                // The thread left the function at an unknown line.
                Jump::Somewhere => {
                    telling.extend(named.next_back().filter(is_told).map(|frame| Frame {
                        source: None,
                        ..frame
                    }))
                }
            }
        }
        let innermost = telling.first()?;
        let to = if found.function.is_none() && innermost.module == found.module {
            To::SameFunction
        } else {
            To::OtherFunction
        };
        Some(TailCalls {
            frames: telling.into_iter().map(|it| frames.intern(it)).collect(),
            to,
        })
    }

    /// Returns the function that a target leads to, through all stubs.
    pub(super) fn follow<'a>(
        &self,
        code: &'a Code,
        mut loaded: &'a Loaded,
        mut target: Target,
        memory: &dyn Memory,
        effort: &mut Effort,
    ) -> Result<Option<(&'a Loaded, Range<u64>)>, NotNow> {
        for _ in 0..=MAX_STUBS {
            effort.spend(1)?;
            let address = match target {
                Target::Address(address) => address,
                Target::Slot(slot) => {
                    let slot = slot.wrapping_add(loaded.bias);
                    // If bytes only look like a jump, the slot is likely not mapped.
                    if !code.may_be_data(slot) {
                        return Ok(None);
                    }
                    let held = memory.word(slot).map_err(|_| NotNow)?;
                    let Some(found) = code.find(held) else {
                        return Ok(None);
                    };
                    loaded = found;
                    held.wrapping_sub(loaded.bias)
                }
            };
            let Some(image) = self.image_of(loaded) else {
                return Ok(None);
            };
            let function = image.function(address).filter(|it| it.start == address);
            // Unwinding rules treat all PLT stubs as one function that begins at the first stub: a jump without a symbol is a
            // stub.
            match arch::jump_at(code.arch, image, address) {
                Some(next) if !image.has_symbol(address) => target = next,
                _ => return Ok(function.map(|range| (loaded, range))),
            }
        }
        Ok(None)
    }

    pub(super) fn image_of(&self, loaded: &Loaded) -> Option<&Image> {
        self.images[loaded.image.0].as_deref()
    }
}

/// Returns the location of a code address. For a return address it is that of the last byte of the call.
pub(super) fn place(code: &Code, at: FrameAddress) -> Option<Place<'_>> {
    let address = at.address_for_lookup();
    let loaded = code.find(address)?;
    Some((loaded, address.wrapping_sub(loaded.bias)))
}
