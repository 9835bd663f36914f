//! The call of MPI in a stack, and the registers of its caller: what is needed to read its arguments from the code
//! ([`crate::call_site`]).
//!
//! The registers that functions preserve are where the functions between the call and the innermost frame have saved them, as their
//! unwinding rules say.

use std::{cell::Cell, rc::Rc};

use ::calls::{FUNCTIONS, Flavor};
use framehop::FrameAddress;

use super::{
    Address, Capture, Code, Images, Loaded, MPI,
    calls::{Effort, NotNow, place},
};
use crate::{
    arch::{self, Block, Known, STEPS_MAX, Slice},
    call_site::{self, CallSite, Handles},
    image::{Files, Saved},
    memory::{Copied, Memory},
    stack::{FrameKind, Frames, Stack},
};

/// Maximum number of frames between the innermost one and the caller of MPI. Libraries have some dozens.
const LEVELS_MAX: usize = 256;
/// Maximum number of calls of which the code is kept: some kilobytes each.
const SITES_MAX: usize = 1024;
/// The bytes below the stack pointer that a function may use.
const RED_ZONE: u64 = 128;
/// The number of arguments in registers, and the size of the others.
const IN_REGISTERS: u64 = 6;
const SLOT: u64 = 8;

/// A physical frame of a stack.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    pub(super) at: FrameAddress,
    /// Its stack pointer.
    pub(super) stack: u64,
    /// The number of frames that are shown of those inside it.
    pub(super) first: usize,
}

/// What is the same for a call in all processes that have mapped its file.
#[derive(Debug)]
pub(super) struct Site {
    /// The number of the function of MPI.
    number: u32,
    flavor: Flavor,
    handles: Handed,
    block: Block,
}

/// Where the handles of communicators are known from.
#[derive(Clone, Copy, Debug)]
enum Handed {
    /// The library defines them.
    Same(Handles),
    /// They are addresses of variables of this file.
    At(super::ImageId, Handles),
}

/// The variables of Open MPI whose addresses are handles.
const VARIABLES: [&str; 2] = ["ompi_mpi_comm_world", "ompi_mpi_comm_self"];

impl Images {
    /// Returns what the code tells of the call of MPI that a thread is in, directly after its stack was unwound.
    pub fn call_site(
        &mut self,
        code: &Code,
        capture: &Capture,
        stack: &Stack,
        memory: &dyn Memory,
        files: &dyn Files,
        frames: &mut Frames,
    ) -> Option<CallSite> {
        let (inner, number) = self.call_in(stack, frames)?;
        let (callee, caller) = (self.levels.get(inner)?, self.levels.get(inner + 1)?);
        let FrameAddress::ReturnAddress(back) = caller.at else {
            return None;
        };
        let (changed, caller) = (callee.stack, *caller);
        let lowest = self.levels.first()?.stack.min(changed);
        let memory = Copied {
            start: capture.registers.stack(),
            bytes: &capture.bytes,
            rest: memory,
        };
        let site = self.site(code, caller.at, number, &memory, files, frames)?;
        let registers = self.registers(code, capture, inner + 1, &memory)?;
        let (loaded, _) = place(code, caller.at)?;
        let arguments = u64::from(FUNCTIONS.get(number as usize)?.arguments);
        let passed = arguments.saturating_sub(IN_REGISTERS) * SLOT;
        let slice = Slice {
            block: &site.block,
            bias: loaded.bias,
            registers,
            changed: lowest.saturating_sub(RED_ZONE)..caller.stack.saturating_add(passed),
            memory: &memory,
            is_writable: &|address| code.may_change(address),
            left: Cell::new(STEPS_MAX),
        };
        let handles = site.handles.here(code)?;
        let mut found = CallSite::read(number, site.flavor, handles, |index, size| {
            slice.argument(index, size)
        })?;
        found.place = self.place_of_call(code, back.get(), &memory, files, frames);
        Some(found)
    }

    /// Returns the outermost frame of MPI, by its index among the physical ones, and the number of its function.
    fn call_in(&self, stack: &Stack, frames: &Frames) -> Option<(usize, u32)> {
        let pairs = self.levels.windows(2).take(LEVELS_MAX).enumerate();
        let mut calls = pairs.filter_map(|(at, pair)| {
            // The function that was called is the outermost of those that are shown for it.
            let shown = pair[1].first.checked_sub(1)?;
            let id = stack.frames.iter().rev().nth(shown)?;
            let frame = frames.get(*id);
            let is_native = frame.kind == FrameKind::Native && shown >= pair[0].first;
            let name = frame.function.as_deref().filter(|_| is_native)?;
            Some((at, call_site::shown(name)?))
        });
        calls.next_back()
    }

    /// Returns the call that returns to an address, if it is a call of this function.
    fn site(
        &mut self,
        code: &Code,
        caller: FrameAddress,
        number: u32,
        memory: &dyn Memory,
        files: &dyn Files,
        frames: &mut Frames,
    ) -> Option<Rc<Site>> {
        let (loaded, address) = place(code, caller)?;
        let key: Address = (loaded.image, address);
        if let Some(known) = self.sites.get(&key) {
            return known.clone().filter(|site| site.number == number);
        }
        let called = self.called(code, (loaded, address), memory, files, frames);
        let site = match called {
            Ok(Some(called)) if called == number => self.read_site(code, (loaded, address), number),
            Ok(_) => None,
            Err(NotNow) => return None,
        };
        let site = site.map(Rc::new);
        if self.sites.len() == SITES_MAX {
            self.sites.clear();
        }
        self.sites.insert(key, site.clone());
        site
    }

    fn read_site(
        &self,
        code: &Code,
        (loaded, address): (&Loaded, u64),
        number: u32,
    ) -> Option<Site> {
        let image = self.image_of(loaded)?;
        let block = arch::block_before(code.arch, image, address.checked_add(1)?)?;
        let library = code.modules.iter().find(|loaded| {
            let name = self.image_of(loaded).map(|image| &**image.name());
            name.is_some_and(|name| MPI.iter().any(|mpi| name.starts_with(mpi)))
        })?;
        let image = self.image_of(library)?;
        let variables = |loaded: &Loaded| {
            let [world, own] = self.image_of(loaded)?.symbols(VARIABLES);
            let address = |found: Option<(u64, u64)>| found.map(|(address, _)| address);
            let handles = Handles {
                world: address(world),
                own: address(own),
            };
            (handles != Handles::default()).then_some(Handed::At(loaded.image, handles))
        };
        let flavor = if image.name().starts_with("libmpi_abi") {
            Flavor::Standard
        } else if variables(library).is_some() {
            Flavor::OpenMpi
        } else {
            Flavor::Mpich
        };
        let handles = match Handles::of(flavor) {
            Some(handles) => Handed::Same(handles),
            // A program may have a copy of the variables, which is then the one that counts.
            None => code
                .modules
                .first()
                .and_then(variables)
                .or_else(|| variables(library))?,
        };
        Some(Site {
            number,
            flavor,
            handles,
            block,
        })
    }

    /// Returns the number of the function of MPI that the call at an address calls. A function that was called and has left the stack
    /// by a tail call can have other arguments.
    fn called(
        &mut self,
        code: &Code,
        (loaded, address): (&Loaded, u64),
        memory: &dyn Memory,
        files: &dyn Files,
        frames: &mut Frames,
    ) -> Result<Option<u32>, NotNow> {
        let target = self
            .image_of(loaded)
            .and_then(|image| arch::call_before(code.arch, image, address.wrapping_add(1)));
        let Some(target) = target else {
            return Ok(None);
        };
        let mut effort = Effort::default();
        let Some((callee, range)) = self.follow(code, loaded, target, memory, &mut effort)? else {
            return Ok(None);
        };
        let start = range.start.wrapping_add(callee.bias);
        let at = FrameAddress::from_instruction_pointer(start);
        let named = self.named(code, at, memory, files, frames);
        let outermost = named.last().map(|id| frames.get(*id));
        let name = outermost.and_then(|frame| frame.function.as_deref());
        Ok(name.and_then(call_site::shown))
    }

    /// Returns the registers that functions preserve in the physical frame `outer`.
    fn registers(
        &self,
        code: &Code,
        capture: &Capture,
        outer: usize,
        memory: &dyn Memory,
    ) -> Option<Known> {
        let mut known = arch::known(&capture.registers);
        for pair in self.levels.get(..=outer)?.windows(2) {
            let image = place(code, pair[0].at)
                .and_then(|(loaded, address)| Some((self.image_of(loaded)?, address)));
            let rule = image.map(|(image, address)| image.saved(address));
            let rule = |register| match (&rule, pair[1].at) {
                (Some(rule), FrameAddress::ReturnAddress(_)) => rule(register),
                // A signal has interrupted the code: all its registers are elsewhere.
                _ => Saved::Unknown,
            };
            let read = |address| memory.word(address).ok();
            known = arch::preserved(code.arch, &known, pair[1].stack, rule, read);
        }
        Some(known)
    }
}

impl Handed {
    /// Returns the handles in a process.
    fn here(self, code: &Code) -> Option<Handles> {
        match self {
            Self::Same(handles) => Some(handles),
            Self::At(image, handles) => {
                let loaded = code.modules.iter().find(|loaded| loaded.image == image)?;
                let mapped = |address: Option<u64>| Some(address?.wrapping_add(loaded.bias));
                Some(Handles {
                    world: mapped(handles.world),
                    own: mapped(handles.own),
                })
            }
        }
    }
}
