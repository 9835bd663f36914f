//! Finds the interpreter of a process.

use std::{collections::BTreeMap, sync::Arc};

use super::{Interpreter, Version};
use crate::{
    image::Image,
    memory::Memory,
    unwind::{Code, Images},
};

/// The locations of interpreters in files, shared by all processes.
#[derive(Clone, Debug, Default)]
pub struct Runtimes {
    by_build_id: BTreeMap<Vec<u8>, Option<Runtime>>,
}

/// The location of an interpreter's state. Addresses are those in the file.
#[derive(Clone, Copy, Debug)]
struct Runtime {
    at: u64,
    /// The address of the version; `None` before 3.11.
    version: Option<u64>,
    /// The version according to the name or the constants of the file.
    named: Option<Version>,
}

const RUNTIME: &str = "_PyRuntime";
/// The section that contains only the interpreter's state: it is found even if the symbols were stripped.
const RUNTIME_SECTION: &str = ".PyRuntime";

impl Runtimes {
    /// Returns an empty cache.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Finds the interpreter of a process with this code; `None` if it has no known one.
    pub fn find(
        &mut self,
        images: &Images,
        code: &Code,
        memory: &dyn Memory,
    ) -> Option<Interpreter> {
        // Try the library first: the program may only call it. Any other program or library may contain an interpreter, too.
        let likely: [fn(&str) -> bool; 3] = [is_library, is_program, |_| true];
        likely.into_iter().find_map(|is_it| {
            let (image, bias) = images.mapped(code, is_it)?;
            let known = self.runtime(&image)?;
            let version = known
                .version
                .and_then(|version| {
                    let mut hex = [0; 4];
                    memory.read(bias.wrapping_add(version), &mut hex).ok()?;
                    Version::of_hex(u32::from_le_bytes(hex))
                })
                .or(known.named);
            let runtime = bias.wrapping_add(known.at);
            Interpreter::at(runtime, version, Arc::clone(image.name()), memory)
        })
    }

    fn runtime(&mut self, image: &Image) -> Option<Runtime> {
        let Some(build_id) = image.build_id() else {
            return runtime(image);
        };
        *self
            .by_build_id
            .entry(build_id.to_vec())
            .or_insert_with(|| runtime(image))
    }
}

fn runtime(image: &Image) -> Option<Runtime> {
    let [runtime, version] = image.symbols([RUNTIME, "Py_Version"]);
    let runtime = match runtime {
        Some((runtime, _)) => runtime,
        None => image.section(RUNTIME_SECTION)?.0,
    };
    Some(Runtime {
        at: runtime,
        version: version.map(|(version, _)| version),
        named: Version::of_name(image.name()).or_else(|| {
            let (_, constants) = image.section(".rodata")?;
            Version::of_constants(&constants)
        }),
    })
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn is_library(path: &str) -> bool {
    file_name(path).starts_with("libpython3.") && Version::of_name(path).is_some()
}

fn is_program(path: &str) -> bool {
    file_name(path).starts_with("python")
}
