//! Which functions lie between a call and the function that it has led to.
//!
//! A function that ends with a jump into another one leaves no frame: the return address alone remembers who was called.
//! The instruction before it names that function, directly or through a slot that the dynamic linker has filled:
//!
//! | instruction | compiled as | target |
//! |---|---|---|
//! | `call target` | by default | `target`, or the stub of a library's function |
//! | `call *slot` | `-fno-plt` | what the slot holds |
//! | `jmp *slot` | a stub (PLT), after `endbr64` too | what the slot holds |
//! | `jmp target` | a stub of the linker | `target` |
//!
//! From there the jumps in its code are followed until one leads to where the thread is. Nothing is said of a call
//! through a register, nor of a target where no function begins.
//!
//! Code can look as if it had very many jumps, each of which has to be followed: [`Effort`] bounds that. What was not found
//! out because of it, or because a slot could not be read, is looked for again the next time.

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
    /// This one, or another at `at`.
    fn or(self, at: u64) -> Self {
        if self == Self::At(at) {
            self
        } else {
            Self::Somewhere
        }
    }
}

/// Functions that were left by a jump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Left {
    /// Innermost first.
    pub(super) frames: Vec<FrameId>,
    /// What they have led to.
    pub(super) to: To,
}

/// What functions have jumped to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum To {
    /// A part of the innermost of them, or a function of its file that has no name: everybody calls it by that one's.
    Same,
    /// Another function.
    Another,
}

/// An address in a file that a process has mapped, in the file's own numbering.
type Place<'a> = (&'a Loaded, u64);

/// What may yet be done for one look at a process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort(usize);

/// Steps of one look at a process: each is a stub that is followed, or a part of a function that is searched. Programs need
/// some hundred, and this many take less than a second.
pub(super) const MAX_STEPS: usize = 1 << 18;
/// Bytes that are searched in one step.
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

/// It can be known, but not now: memory could not be read, or the effort was too great.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NotNow;

/// A function that a search has come to.
struct Reached<'a> {
    loaded: &'a Loaded,
    range: Range<u64>,
    /// The place in the search of the function that jumps to it, and its jump.
    from: Option<(usize, Jump)>,
}

/// Where a function jumps to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Jump {
    /// At this address.
    At(u64),
    /// At one of several, or it is not known that it does.
    Somewhere,
}

/// A function that was left by a jump.
struct Step<'a> {
    loaded: &'a Loaded,
    start: u64,
    jump: Jump,
}

/// Stubs that follow each other at most: one of the linker, and one for the dynamic linker.
const MAX_STUBS: usize = 4;
/// Functions that are searched at most for a jump.
const MAX_SEARCHED: usize = 32;
/// Bytes of a function that are searched. The rest of a longer one is not.
const MAX_CODE: usize = 1 << 14;

/// Beginnings of what compilers and linkers call code that only leads on to a function.
const STUBS: [&str; 5] = [
    "__x86_indirect_thunk",
    "__llvm_retpoline",
    "non-virtual thunk to",
    "virtual thunk to",
    "covariant return thunk",
];

impl Images {
    /// The functions that were called by the instruction before `caller`, which is a return address, and then left by a jump
    /// into the one at `at`, of which the frame is `found`.
    pub(super) fn left(
        &mut self,
        code: &Code,
        caller: FrameAddress,
        (at, found): (FrameAddress, FrameId),
        memory: &dyn Memory,
        files: &dyn Files,
        frames: &mut Frames,
    ) -> Option<Left> {
        let (caller, at) = (place(code, caller)?, place(code, at)?);
        let goal = self.image_of(at.0)?.function(at.1);
        let goal = goal.map(|range| (at.0.image, range.start));
        let key = goal.map(|goal| ((caller.0.image, caller.1), goal));
        // The dynamic linker fills the slots of all processes alike that have mapped these files.
        if let Some(known) = key.and_then(|key| self.left.get(&key)) {
            return known.clone();
        }
        let mut effort = self.effort;
        let ways = self.ways(code, caller, (at, goal), memory, &mut effort);
        self.effort = effort;
        let way = ways.ok()?;
        let left = way.and_then(|way| self.telling(code, &way, found, memory, files, frames));
        if let Some(key) = key {
            remember(&mut self.left, key, left.clone());
        }
        left
    }

    /// The functions from the one that was called to the one before that at `at`; only the first where jumps do not lead on,
    /// or do so in several ways. Nothing where that function itself was called, or where it is not known what was.
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

    /// The frames of functions on a way that say something besides what was found at its end.
    fn telling(
        &mut self,
        code: &Code,
        way: &[Step<'_>],
        found: FrameId,
        memory: &dyn Memory,
        files: &dyn Files,
        frames: &mut Frames,
    ) -> Option<Left> {
        let found = frames.get(found).clone();
        let is_told = |frame: &Frame| {
            frame.function.as_deref().is_some_and(|name| {
                // The parts that a compiler has split a function into have its name.
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
                // It is in that function, and on none of its lines.
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
            To::Same
        } else {
            To::Another
        };
        Some(Left {
            frames: telling.into_iter().map(|it| frames.intern(it)).collect(),
            to,
        })
    }

    /// The function that a target leads to, through all stubs.
    fn follow<'a>(
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
                    // Bytes that only look like a jump mean a slot where nothing is mapped.
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
            // Rules for unwinding take all stubs for one function, of which the first stub is the beginning.
            match arch::jump_at(code.arch, image, address) {
                Some(next) if !image.has_symbol(address) => target = next,
                _ => return Ok(function.map(|range| (loaded, range))),
            }
        }
        Ok(None)
    }

    fn image_of(&self, loaded: &Loaded) -> Option<&Image> {
        self.images[loaded.image.0].as_deref()
    }
}

/// Where code is. Of a return address it is the last byte of the call.
fn place(code: &Code, at: FrameAddress) -> Option<Place<'_>> {
    let address = at.address_for_lookup();
    let loaded = code.find(address)?;
    Some((loaded, address.wrapping_sub(loaded.bias)))
}
