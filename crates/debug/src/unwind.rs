//! Unwinds the stack of a stopped thread: from its registers to its frames.
//!
//! The thread already runs again meanwhile: the stack is read from a copy that was taken while the thread was stopped
//! ([`Capture`]). Unwinding rules come from `.eh_frame` and `.debug_frame`; without rules, frame pointers are followed. A stack
//! is complete only if it ends in the function that every thread begins with.

mod calls;
mod site;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fmt, ops::Range, rc::Rc, sync::Arc};

use ::calls::FUNCTIONS;
use base::{Arch, Registers};
use bytes::Bytes;
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module};
use serde::{Deserialize, Serialize};

use self::{
    calls::{Effort, TailCalls, To},
    site::{Level, Site},
};
use crate::{
    arch::{self, Caches, State, Unwinder},
    image::{Files, Image, Joining, Reading, Section},
    maps::{FileId, Mapping},
    memory::{Copied, Memory, Unreadable},
    recorded::region,
    stack::{End, Frame, FrameId, FrameKind, Frames, Stack},
};

/// A copy of a thread's state, taken while it was stopped.
#[derive(Clone, Debug)]
pub struct Capture {
    /// The registers.
    pub registers: Registers,
    /// The memory from the stack pointer upwards.
    pub bytes: Vec<u8>,
}

/// Maximum number of frames unwound in one stack.
pub const MAX_FRAMES: usize = 1 << 16;

/// Maximum number of entries in each cache, of addresses and of calls.
const MAX_KNOWN: usize = 1 << 18;

/// The code that a process has mapped.
pub struct Code {
    modules: Vec<Loaded>,
    /// The address ranges that can be read, in ascending order.
    readable: Vec<Range<u64>>,
    /// Those of them that may change, in ascending order.
    writable: Vec<Range<u64>>,
    arch: Arch,
    unwinder: Unwinder,
}

struct Loaded {
    range: Range<u64>,
    bias: u64,
    image: ImageId,
    path: String,
}

/// Parsed files, and caches of what is known of addresses in them; shared by all processes.
pub struct Images {
    arch: Arch,
    images: Vec<Option<Rc<Image>>>,
    by_file: BTreeMap<FileId, ImageId>,
    /// The files that are no programs. They stay mapped, as the images do, so that no other file gets one of their inodes.
    others: Vec<Bytes>,
    /// The vDSO, which is the same in all processes.
    vdso: Option<ImageId>,
    caches: Caches,
    named: BTreeMap<(ImageId, u64), Vec<FrameId>>,
    /// Results of the method `tail_calls`, by the call and by the start of the function that the thread went on to.
    tail_calls: BTreeMap<(Address, Address), Option<TailCalls>>,
    effort: Effort,
    /// The physical frames of the last stack, innermost first.
    levels: Vec<Level>,
    /// Calls of MPI by the address to which they return; `None` for those of which nothing can be read.
    sites: BTreeMap<Address, Option<Rc<Site>>>,
    reading: Reading,
}

/// The build of a file that a process has mapped.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Build {
    /// The file name without directories.
    pub file: Arc<str>,
    /// The build id in hexadecimal digits, which the linker derives from the content; `None` if the file has none.
    pub build_id: Option<String>,
}

impl fmt::Display for Build {
    /// Writes the build id as in `build id 80aeae7f`, to follow the name of the file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.build_id {
            Some(build_id) => write!(f, "build id {build_id}"),
            None => f.write_str("without a build id"),
        }
    }
}

/// File name prefixes of MPI libraries; the version of their interface follows.
const MPI: [&str; 3] = ["libmpi.so", "libmpich.so", "libmpi_abi.so"];

/// An index in [`Images`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ImageId(usize);

/// An address as in the file.
type Address = (ImageId, u64);

/// The name of the vDSO, the code that the kernel maps into each process.
const VDSO: &str = "[vdso]";
/// The first functions of a thread: no stack continues beyond them.
const STARTS: [&str; 9] = [
    "_start",
    "_dl_start_user",
    "__libc_start_main",
    "__libc_start_main_impl",
    "__libc_start_call_main",
    "clone",
    "clone3",
    "__clone",
    "start_thread",
];

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let modules = self.modules.len();
        f.debug_struct("Code")
            .field("modules", &modules)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Images {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let images = self.images.len();
        f.debug_struct("Images")
            .field("images", &images)
            .finish_non_exhaustive()
    }
}

impl Images {
    /// Returns an empty cache for processes of this architecture.
    #[must_use]
    pub fn new(arch: Arch, reading: Reading) -> Self {
        Self {
            arch,
            images: Vec::new(),
            by_file: BTreeMap::new(),
            others: Vec::new(),
            vdso: None,
            caches: Caches::default(),
            named: BTreeMap::new(),
            tail_calls: BTreeMap::new(),
            effort: Effort::default(),
            levels: Vec::new(),
            sites: BTreeMap::new(),
            reading,
        }
    }

    /// Returns the code of a process with these mappings. New files are opened through `files`; the vDSO is read from `memory`.
    pub fn code(&mut self, maps: &[Mapping], files: &dyn Files, memory: &dyn Memory) -> Code {
        let readable = maps.iter().filter(|mapping| mapping.readable);
        let writable = readable.clone().filter(|mapping| mapping.writable);
        let mut code = Code {
            modules: Vec::new(),
            readable: readable.map(|mapping| mapping.range.clone()).collect(),
            writable: writable.map(|mapping| mapping.range.clone()).collect(),
            arch: self.arch,
            unwinder: Unwinder::new(self.arch),
        };
        for mapping in maps.iter().filter(|mapping| mapping.executable) {
            let Some(image) = self.image(mapping, files, memory) else {
                continue;
            };
            let Some(parsed) = &self.images[image.0] else {
                continue;
            };
            let Some(bias) = parsed.bias(mapping.range.start, mapping.offset) else {
                continue;
            };
            code.unwinder.add(module(parsed, mapping, bias));
            code.modules.push(Loaded {
                range: mapping.range.clone(),
                bias,
                image,
                path: mapping.path.clone(),
            });
        }
        code
    }

    fn image(
        &mut self,
        mapping: &Mapping,
        files: &dyn Files,
        memory: &dyn Memory,
    ) -> Option<ImageId> {
        let known = match mapping.file {
            Some(file) => self.by_file.get(&file),
            None if mapping.path == VDSO => self.vdso.as_ref(),
            None => return None,
        };
        if let Some(known) = known {
            return Some(*known);
        }
        let bytes = match mapping.file {
            Some(_) => files.open_mapped(mapping),
            None => {
                let length = mapping.range.end - mapping.range.start;
                let length = usize::try_from(length).ok()?;
                memory
                    .bytes(mapping.range.start, length)
                    .ok()
                    .map(Bytes::from)
            }
        };
        // A file that is not a program is cached, to open it only once. A file that could not be read is not.
        let bytes = bytes?;
        let image = Image::parse(&mapping.path, bytes.clone()).ok();
        if image.is_none() {
            self.others.push(bytes);
        }
        let id = ImageId(self.images.len());
        self.images.push(image.map(Rc::new));
        match mapping.file {
            Some(file) => drop(self.by_file.insert(file, id)),
            None => self.vdso = Some(id),
        }
        Some(id)
    }

    /// Begins a sample of a process: resets the bound on the effort for it.
    pub fn begin(&mut self) {
        self.effort = Effort::default();
    }

    /// Returns the stack of a thread. `code` is the code of its process, and `capture` the copy of the thread.
    pub fn unwind(
        &mut self,
        code: &Code,
        capture: &Capture,
        memory: &dyn Memory,
        files: &dyn Files,
        frames: &mut Frames,
    ) -> Stack {
        let memory = Copied {
            start: capture.registers.stack(),
            bytes: &capture.bytes,
            rest: memory,
        };
        self.levels.clear();
        let mut found = Vec::new();
        let mut state = State::from(&capture.registers);
        let mut at = FrameAddress::from_instruction_pointer(capture.registers.instruction());
        let mut end = End::Bound;
        while found.len() < MAX_FRAMES {
            self.levels.push(Level {
                at,
                stack: state.stack(),
                first: found.len(),
            });
            let here = self.named(code, at, &memory, files, frames);
            let outermost = here.last().copied();
            found.extend_from_slice(&here);
            if outermost.is_some_and(|frame| frames.get(frame).kind == FrameKind::Signal) {
                let interrupted = arch::interrupted(code.arch, &memory, state.stack());
                let Some(interrupted) = interrupted else {
                    end = End::Lost;
                    break;
                };
                // The interrupted function made no call here: look up this instruction, and not the one before as for a return
                // address.
                at = FrameAddress::from_instruction_pointer(interrupted.instruction());
                state = State::from(&interrupted);
                continue;
            }
            let next = code
                .unwinder
                .caller(at, &mut state, &mut self.caches, |address| {
                    memory.word(address).map_err(drop)
                });
            let is_told = matches!(next, Ok(None));
            let caller = next
                .ok()
                .flatten()
                .and_then(FrameAddress::from_return_address);
            if let Some(frame) = self.recorded(code, at, state.stack(), &memory, files)
                && found
                    .last()
                    .map(|&inner| frames.get(inner).function == frame.function)
                    != Some(true)
            {
                found.push(frames.intern(frame));
            }
            let Some(caller) = caller else {
                // In a stripped program `_start` has no name, but its callee does. The first function of other threads is in the
                // C library.
                let mut outer = found.iter().rev().map(|&frame| frames.get(frame));
                let is_bottom = outer
                    .next()
                    .is_some_and(|it| is_start(it) || (is_told && is_nameless_c(it)));
                end = if is_bottom || outer.next().is_some_and(is_start) {
                    End::Start
                } else {
                    End::Lost
                };
                break;
            };
            if let Some(last) = outermost
                && let Some(tail_calls) =
                    self.tail_calls(code, caller, (at, last), &memory, files, frames)
            {
                if tail_calls.to == To::SameFunction {
                    found.pop();
                }
                found.extend(tail_calls.frames);
            }
            at = caller;
        }
        found.reverse();
        Stack {
            frames: found.into(),
            end,
        }
    }

    /// Returns file and line, or else the function, of a call that returns to this address.
    pub fn place_of_call(
        &mut self,
        code: &Code,
        site: u64,
        memory: &dyn Memory,
        files: &dyn Files,
        frames: &mut Frames,
    ) -> Option<Arc<str>> {
        let at = FrameAddress::from_return_address(site)?;
        let named = self.named(code, at, memory, files, frames);
        let named = || named.iter().map(|&frame| frames.get(frame));
        let line = named().find_map(|frame| {
            let source = frame.source.as_ref()?;
            let file = source.file.rsplit('/').next().unwrap_or_default();
            Some(format!("{file}:{}", source.line))
        });
        // The bindings for Fortran call MPI: their names say nothing.
        let is_binding = |name: &str| {
            let name = name.to_ascii_uppercase();
            name.starts_with("MPI_") || name.starts_with("PMPI_")
        };
        let name = || {
            let name = named().find_map(|frame| Some(frame.function.as_deref()?.to_owned()));
            name.filter(|name| !is_binding(name))
        };
        line.or_else(name).map(Arc::from)
    }

    /// Returns the recorded function of MPI whose way through the recorder is at an address. `caller` is the stack of its caller.
    /// Libraries end their functions with tail calls, so this is often the only frame that names the function.
    fn recorded(
        &self,
        code: &Code,
        at: FrameAddress,
        caller: u64,
        memory: &dyn Memory,
        files: &dyn Files,
    ) -> Option<Frame> {
        let address = at.address_for_lookup();
        let loaded = code
            .find(address)
            .filter(|loaded| is_recorder(&loaded.path))?;
        let image = self.images[loaded.image.0].clone()?;
        let names = image.frames(
            address.wrapping_sub(loaded.bias),
            &loaded.path,
            files,
            Reading::Names,
        );
        let mut functions = names.iter().filter_map(|frame| frame.function.as_deref());
        functions.find(|name| region::WAYS.contains(name))?;
        let stub = memory
            .word(caller.checked_sub(region::STUB_BELOW_CALLER)?)
            .ok()?;
        let function = FUNCTIONS.get(usize::try_from(stub & 0xffff_ffff).ok()? / 2)?;
        Some(Frame {
            function: Some(function.name.into()),
            module: Some(region::LIBRARY.into()),
            source: None,
            kind: FrameKind::Native,
        })
    }

    /// Returns the functions at an address, innermost first; none if it is in the recorder of MPI calls.
    fn named(
        &mut self,
        code: &Code,
        at: FrameAddress,
        memory: &dyn Memory,
        files: &dyn Files,
        frames: &mut Frames,
    ) -> Vec<FrameId> {
        let address = at.address_for_lookup();
        let Some(loaded) = code.find(address) else {
            let is_signal = is_signal_return(code.arch, memory, at) == Ok(true);
            return vec![frames.intern(if is_signal {
                signal()
            } else {
                Frame {
                    function: None,
                    module: None,
                    source: None,
                    kind: FrameKind::Native,
                }
            })];
        };
        if is_recorder(&loaded.path) {
            return Vec::new();
        }
        let key = (loaded.image, address.wrapping_sub(loaded.bias));
        if let Some(named) = self.named.get(&key) {
            return named.clone();
        }
        let image = self.images[loaded.image.0].clone();
        let Some(image) = image else {
            return Vec::new();
        };
        let is_signal = is_signal_return(code.arch, memory, at);
        let named: Vec<FrameId> = if is_signal == Ok(true) {
            vec![frames.intern(signal())]
        } else {
            image
                .frames(key.1, &loaded.path, files, self.reading)
                .into_iter()
                .map(|frame| frames.intern(frame))
                .collect()
        };
        // If the code could not be read, the next attempt may succeed: do not cache that.
        if is_signal.is_ok() {
            remember(&mut self.named, key, named.clone());
        }
        named
    }

    /// Returns the builds of the program that a process executes and of its MPI library.
    #[must_use]
    pub fn builds(&self, code: &Code) -> Vec<Build> {
        let image = |loaded: &Loaded| self.images[loaded.image.0].as_deref();
        // The program is the first module: it is mapped below its libraries.
        let program = code.modules.first().and_then(image);
        let is_mpi = |image: &&Image| MPI.iter().any(|name| image.name().starts_with(name));
        let mpi = code.modules.iter().skip(1).filter_map(image).filter(is_mpi);
        let build = |image: &Image| Build {
            file: Arc::clone(image.name()),
            build_id: image
                .build_id()
                .map(|id| id.iter().map(|byte| format!("{byte:02x}")).collect()),
        };
        program.into_iter().chain(mpi).map(build).collect()
    }

    /// Returns whether a process with this code can connect its job with another. MPI libraries are ignored: they always refer to
    /// the functions for that.
    #[must_use]
    pub fn joining(&self, code: &Code) -> Joining {
        let images = code.modules.iter();
        let images = images.filter_map(|loaded| self.images[loaded.image.0].as_deref());
        let own = images.filter(|image| !image.name().starts_with("libmpi"));
        own.map(Image::joining).max().unwrap_or_default()
    }

    /// Returns the first mapped program or library whose path satisfies `is_it`, and its load bias.
    #[must_use]
    pub fn mapped(&self, code: &Code, is_it: impl Fn(&str) -> bool) -> Option<(Rc<Image>, u64)> {
        let loaded = code.modules.iter().find(|loaded| is_it(&loaded.path))?;
        let image = self.images[loaded.image.0].clone()?;
        Some((image, loaded.bias))
    }
}

impl Code {
    /// Returns true if readable memory was mapped at an address.
    fn may_be_data(&self, address: u64) -> bool {
        is_in(&self.readable, address)
    }

    /// Returns true if what is at an address may change.
    fn may_change(&self, address: u64) -> bool {
        !self.may_be_data(address) || is_in(&self.writable, address)
    }

    fn find(&self, address: u64) -> Option<&Loaded> {
        let after = self
            .modules
            .partition_point(|loaded| loaded.range.start <= address);
        let loaded = self.modules.get(after.checked_sub(1)?)?;
        loaded.range.contains(&address).then_some(loaded)
    }
}

/// Returns true if one of some ranges in ascending order has an address.
fn is_in(ranges: &[Range<u64>], address: u64) -> bool {
    let after = ranges.partition_point(|range| range.start <= address);
    let range = after.checked_sub(1).and_then(|at| ranges.get(at));
    range.is_some_and(|range| range.contains(&address))
}

/// The name that debuggers give to the frame between a signal handler and the interrupted function.
const SIGNAL: &str = "<signal handler called>";

/// Returns true if a function returns to the code that calls `rt_sigreturn`.
/// Returns whether a file is the recorder of MPI calls.
fn is_recorder(path: &str) -> bool {
    path.rsplit('/').next() == Some(region::LIBRARY)
}

fn is_signal_return(arch: Arch, memory: &dyn Memory, at: FrameAddress) -> Result<bool, Unreadable> {
    match at {
        FrameAddress::ReturnAddress(address) => arch::is_signal_return(arch, memory, address.get()),
        FrameAddress::InstructionPointer(_) => Ok(false),
    }
}

fn signal() -> Frame {
    Frame {
        function: Some(SIGNAL.into()),
        module: None,
        source: None,
        kind: FrameKind::Signal,
    }
}

/// Adds an entry to a cache. A full cache is cleared, so that it stays bounded in samples that go on for days.
fn remember<K: Ord, V>(known: &mut BTreeMap<K, V>, key: K, value: V) {
    if known.len() >= MAX_KNOWN {
        known.clear();
    }
    known.insert(key, value);
}

fn is_start(frame: &Frame) -> bool {
    frame
        .function
        .as_deref()
        .is_some_and(|name| STARTS.contains(&name))
}

/// Returns true for a function of the C library that has no name. In a stripped C library the first function of a thread is one.
fn is_nameless_c(frame: &Frame) -> bool {
    let of_c = |module: &str| module.starts_with("libc.") || module.starts_with("ld-musl-");
    frame.function.is_none() && frame.module.as_deref().is_some_and(of_c)
}

fn module(image: &Image, mapping: &Mapping, bias: u64) -> Module<Bytes> {
    let range = |section: &Section| section.as_ref().map(|(range, _)| range.clone());
    let bytes = |section: &Section| section.as_ref().map(|(_, bytes)| bytes.clone());
    let unwinding = &image.unwinding;
    Module::new(
        String::new(),
        mapping.range.clone(),
        bias,
        ExplicitModuleSectionInfo {
            base_svma: 0,
            text_svma: range(&unwinding.text),
            text: bytes(&unwinding.text),
            got_svma: range(&unwinding.got),
            eh_frame_svma: range(&unwinding.eh_frame),
            eh_frame: bytes(&unwinding.eh_frame),
            eh_frame_hdr_svma: range(&unwinding.eh_frame_hdr),
            eh_frame_hdr: bytes(&unwinding.eh_frame_hdr),
            debug_frame: bytes(&unwinding.debug_frame),
            ..ExplicitModuleSectionInfo::default()
        },
    )
}
