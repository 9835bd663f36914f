//! Options about placement and binding whose values differ in meaning from ours.

use std::{ffi::OsStr, fmt::Write as _, os::unix::ffi::OsStrExt};

use super::{Done, bad, joined, not_one_of, refused, text, value};
use crate::args::{
    compat::{Emit, Error, Given},
    error::NotOffered,
};
use crate::values::{self, ValueError};

/// The most items of a list of bindings, with repetitions expanded.
const MAX_BINDINGS: usize = 1 << 16;
/// The most hexadecimal digits of a mask of PUs.
const MAX_MASK: usize = 1 << 14;

/// Returns the text of a count, after a check that it is one.
fn count(given: &Given<'_>) -> Result<String, Error> {
    values::procs(text(given)?)
        .map(|count| count.to_string())
        .map_err(|reason| bad(given, reason))
}

pub(in super::super) fn cpus_per_proc(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    let count = values::procs(text(given)?).map_err(|reason| match reason {
        ValueError::NoProcs => bad(given, ValueError::NoCpus),
        other => bad(given, other),
    })?;
    emit.here("map-by", format!(":PE={count}"));
    Ok(())
}

pub(in super::super) fn per_package(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    emit.here("map-by", format!("ppr:{}:package", count(given)?));
    Ok(())
}

pub(in super::super) fn per_core(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    emit.here("map-by", format!("ppr:{}:core", count(given)?));
    Ok(())
}

pub(in super::super) fn ppr(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    emit.here("map-by", format!("ppr:{}", text(given)?));
    Ok(())
}

/// Translates `srun -w NAMES|FILE`.
pub(in super::super) fn node_list(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    let name = value(given, 0);
    let is_file = name.as_bytes().contains(&b'/');
    emit.here(if is_file { "hostfile" } else { "host" }, name);
    Ok(())
}

pub(in super::super) fn rankfile(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    emit.here(
        "map-by",
        joined(&[OsStr::new("rankfile:FILE="), value(given, 0)]),
    );
    Ok(())
}

pub(in super::super) fn cpu_list(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    emit.here("map-by", joined(&[OsStr::new("pe-list="), value(given, 0)]));
    Ok(())
}

/// Translates `--map-by`, including words that only Open MPI and Hydra have.
pub(in super::super) fn map_by(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    let Some(words) = value(given, 0).to_str() else {
        emit.here("map-by", value(given, 0));
        return Ok(());
    };
    // A path may contain colons; it is the last modifier.
    let lower = words.to_ascii_lowercase();
    let (words, file) = words.split_at(lower.find(":file=").unwrap_or(words.len()));
    let mut kept = Vec::new();
    for (position, word) in words.split(':').enumerate() {
        let lower = word.to_ascii_lowercase();
        match (position, lower.as_str()) {
            (0, "dist" | "distance" | "mindist") => {
                return Err(refused(given, NotOffered::Distance));
            }
            (0, "sequential") => kept.push("seq"),
            (0, "board" | "machine") => kept.push("slot"),
            (0, other) => kept.push(cache(other).unwrap_or(word)),
            (_, "nolocal") => emit.plain("nolocal"),
            (_, "display" | "displaydevel") => emit.here("display", "map"),
            (_, "displaytopo") => emit.here("display", "map,bindings"),
            (_, "displayalloc") => emit.here("display", "allocation"),
            (_, "donotlaunch") => emit.plain("dry-run"),
            // We never resolve host names.
            (_, "donotresolve") => {}
            _ => kept.push(word),
        }
    }
    let kept = kept.join(":");
    if !(kept.is_empty() && file.is_empty()) {
        emit.here("map-by", format!("{kept}{file}"));
    }
    Ok(())
}

/// Returns our word for a cache that Hydra names by its contents.
fn cache(word: &str) -> Option<&'static str> {
    Some(match word {
        "l1dcache" | "l1icache" | "l1ucache" => "l1cache",
        "l2dcache" | "l2icache" | "l2ucache" => "l2cache",
        "l3dcache" | "l3icache" | "l3ucache" => "l3cache",
        _ => return None,
    })
}

/// Translates Open MPI's `--rank-by`. On one node `span` makes no difference for objects that are visited in turn.
pub(in super::super) fn rank_by(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    let words = text(given)?.to_ascii_lowercase();
    let policy = match words.split_once(':') {
        Some((object, "span")) => object,
        Some(("", "fill")) => "fill",
        _ => &words,
    };
    let policy = match policy {
        "board" | "machine" => "slot",
        other => other,
    };
    emit.here("rank-by", policy);
    Ok(())
}

/// Translates `--bind-to`, including words that only Open MPI and Hydra have.
pub(in super::super) fn bind_to(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    let words = text(given)?;
    let lower = words.to_ascii_lowercase();
    if lower == "rr" {
        emit.here("bind-list", "each");
        return Ok(());
    }
    if let Some(list) = lower.strip_prefix("user:") {
        emit.here("bind-list", list);
        return Ok(());
    }
    match lower.as_str() {
        "cpu-list" | "cpulist" | "cpu-list:shared" => return Ok(()),
        "cpu-list:ordered" | "cpulist:ordered" => {
            emit.here("map-by", ":ORDERED");
            return Ok(());
        }
        _ => {}
    }
    let mut kept = Vec::new();
    for (position, word) in words.split(':').enumerate() {
        let lower = word.to_ascii_lowercase();
        match (position, lower.as_str()) {
            (0, other) => kept.push(cache(other).unwrap_or(word)),
            (_, "report") => emit.here("display", "bindings"),
            _ => kept.push(word),
        }
    }
    emit.here("bind-to", kept.join(":"));
    Ok(())
}

/// Translates `srun -m NODES[:PACKAGES[:CORES]][,Pack|NoPack]`. Within a node the second field decides; cyclic over nodes is
/// `node`.
pub(in super::super) fn distribution(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    const KNOWN: [&str; 6] = [
        "block",
        "cyclic",
        "plane=N",
        "arbitrary",
        "block:cyclic",
        "block:block",
    ];
    let words = text(given)?.to_ascii_lowercase();
    let (shape, extra) = words.split_once(',').unwrap_or((&words, ""));
    let mut fields = shape.split(':');
    let nodes = fields.next().unwrap_or_default();
    let packages = fields.next().unwrap_or("*");
    let cores = fields.next().unwrap_or("*");
    let is_plane = nodes.strip_prefix("plane").is_some_and(|size| {
        size.is_empty()
            || size
                .strip_prefix('=')
                .is_some_and(|size| values::procs(size).is_ok())
    });
    let policy = match (nodes, packages) {
        // Planes are blocks of procs, which all go to the same node.
        _ if is_plane => "slot",
        ("block" | "*", "block" | "*") => "slot",
        ("block" | "*", "cyclic" | "fcyclic") => "package",
        ("cyclic", _) => "node",
        ("arbitrary", "*") => "slot",
        _ => return Err(not_one_of(given, &KNOWN)),
    };
    let known = ["*", "block", "cyclic", "fcyclic"];
    if !known.contains(&cores)
        || !matches!(extra, "" | "pack" | "nopack")
        || fields.next().is_some()
    {
        return Err(not_one_of(given, &KNOWN));
    }
    emit.here("map-by", policy);
    Ok(())
}

/// Translates `srun --cpu-bind=[verbose,]TYPE`.
pub(in super::super) fn cpu_bind(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    const KNOWN: [&str; 12] = [
        "none",
        "cores",
        "threads",
        "sockets",
        "ldoms",
        "rank",
        "map_cpu:LIST",
        "mask_cpu:LIST",
        "map_ldom:LIST",
        "mask_ldom:LIST",
        "verbose",
        "quiet",
    ];
    let mut rest = text(given)?;
    while !rest.is_empty() {
        let (name, list) = rest.split_once([':', '=']).unwrap_or((rest, ""));
        let lists = match name {
            "map_cpu" => Some(("", Notation::Numbers)),
            "mask_cpu" => Some(("", Notation::Masks)),
            "map_ldom" => Some(("numa:", Notation::Numbers)),
            "mask_ldom" => Some(("numa:", Notation::Masks)),
            _ => None,
        };
        if let Some((prefix, notation)) = lists {
            let list = bindings(list, notation).map_err(|reason| bad(given, reason))?;
            emit.here("bind-list", format!("{prefix}{list}"));
            break;
        }
        let (word, tail) = rest.split_once(',').unwrap_or((rest, ""));
        rest = tail;
        match word {
            "v" | "verbose" => emit.here("display", "bindings"),
            "q" | "quiet" => {}
            "none" | "no" => emit.here("bind-to", "none"),
            "cores" | "core" => emit.here("bind-to", "core"),
            "threads" | "thread" => emit.here("bind-to", "hwthread"),
            "sockets" | "socket" => emit.here("bind-to", "package"),
            "ldoms" | "ldom" => emit.here("bind-to", "numa"),
            "rank" => emit.here("map-by", "hwthread"),
            "rank_ldom" => {
                emit.here("map-by", "numa");
                emit.here("bind-to", "numa");
            }
            _ => return Err(not_one_of(given, &KNOWN)),
        }
    }
    Ok(())
}

/// Translates `srun --hint=TYPE,...`: which cores and hardware threads suit a kind of program.
pub(in super::super) fn hint(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    emit.overrule();
    for one in text(given)?.split(',') {
        match one.to_ascii_lowercase().as_str() {
            "compute_bound" | "nomultithread" => emit.here("bind-to", "core"),
            "memory_bound" => {
                emit.here("map-by", "ppr:1:package");
                emit.here("bind-to", "core");
            }
            "multithread" => emit.here("map-by", ":HWTCPUS"),
            _ => {
                let known = [
                    "compute_bound",
                    "memory_bound",
                    "multithread",
                    "nomultithread",
                ];
                return Err(not_one_of(given, &known));
            }
        }
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Notation {
    /// `0,2,4*2`: each item is a number, in decimal, or in hexadecimal after `0x`.
    Numbers,
    /// `0x3,c*2`: each item is a mask of PUs, in hexadecimal.
    Masks,
}

/// Translates a list of Slurm into ours: `0,2,4,4` or `0+1,2+3`.
fn bindings(list: &str, notation: Notation) -> Result<String, ValueError> {
    let mut items = Vec::new();
    for item in list.split(',') {
        let (item, times) = match item.split_once('*') {
            Some((item, times)) => (item, times.parse().map_err(|_| ValueError::NotBindings)?),
            None => (item, 1_usize),
        };
        let set = match notation {
            Notation::Numbers => {
                let number = match item.strip_prefix("0x") {
                    Some(digits) => u32::from_str_radix(digits, 16),
                    None => item.parse::<u32>(),
                };
                number.map_err(|_| ValueError::NotBindings)?.to_string()
            }
            Notation::Masks => mask(item)?,
        };
        if times == 0 || items.len().saturating_add(times) > MAX_BINDINGS {
            return Err(ValueError::NotBindings);
        }
        items.extend(std::iter::repeat_n(set, times));
    }
    Ok(items.join(","))
}

/// Returns the numbers of the bits of a mask, joined by `+`.
fn mask(text: &str) -> Result<String, ValueError> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    if digits.is_empty() || digits.len() > MAX_MASK {
        return Err(ValueError::NotBindings);
    }
    let mut set = String::new();
    for (position, digit) in digits.chars().rev().enumerate() {
        let digit = digit.to_digit(16).ok_or(ValueError::NotBindings)?;
        for bit in (0..4).filter(|bit| digit & (1 << bit) != 0) {
            let joint = if set.is_empty() { "" } else { "+" };
            // Writing into a string cannot fail.
            let _ = write!(set, "{joint}{}", position * 4 + bit);
        }
    }
    if set.is_empty() {
        return Err(ValueError::NotBindings);
    }
    Ok(set)
}

/// Translates `srun --mem-bind=[verbose,]TYPE`. The kernel allocates memory near its first user, so `local` is our only
/// behaviour.
pub(in super::super) fn memory_bind(given: &Given<'_>, _emit: &mut Emit<'_>) -> Done {
    let is_so = |word: &str| {
        matches!(
            word,
            "none" | "no" | "local" | "q" | "quiet" | "v" | "verbose" | "nosort"
        )
    };
    if text(given)?.split(',').all(is_so) {
        Ok(())
    } else {
        Err(refused(given, NotOffered::MemoryBinding))
    }
}
