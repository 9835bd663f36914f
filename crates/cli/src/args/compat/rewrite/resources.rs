//! Options about devices, MPI and the launcher itself.

use super::{Done, bad, not_one_of, refused, text, value};
use crate::args::{
    compat::{Emit, Given},
    error::NotOffered,
};
use crate::values::{self, ValueError};

/// Translates `srun --mpi=TYPE`. Ranks always get PMI-1, PMI-2 and PMIx.
pub(in super::super) fn mpi_type(given: &Given<'_>, _emit: &mut Emit<'_>) -> Done {
    let name = text(given)?;
    let is_ours = matches!(name, "none" | "pmi2" | "pmi1" | "openmpi" | "pmix")
        || name
            .strip_prefix("pmix_v")
            .is_some_and(|version| version.bytes().all(|byte| byte.is_ascii_digit()));
    if is_ours {
        Ok(())
    } else {
        Err(refused(given, NotOffered::MpiType))
    }
}

/// Translates Hydra's `-launcher NAME`, the way in which daemons get onto nodes.
pub(in super::super) fn launcher(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    let ours = match text(given)? {
        "ssh" | "rsh" => "ssh",
        "slurm" | "srun" => "slurm",
        "pbs" | "pbsdsh" | "tm" => "pbs",
        "lsf" => "lsf",
        "fork" => "fork",
        "auto" => "auto",
        "ll" | "sge" | "pdsh" | "manual" | "persist" => {
            emit.ignored(given);
            return Ok(());
        }
        _ => return Err(refused(given, NotOffered::Bootstrap)),
    };
    emit.here("bootstrap", ours);
    Ok(())
}

/// Returns the number in `[TYPE:]NUMBER`.
fn number_of_gpus(text: &str) -> Result<u32, ValueError> {
    let number = text.rsplit(':').next().unwrap_or_default();
    values::gpus(number)
}

pub(in super::super) fn gpus(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    let number = number_of_gpus(text(given)?).map_err(|reason| bad(given, reason))?;
    emit.here("gpus", number.to_string());
    Ok(())
}

pub(in super::super) fn gpus_per_proc(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    let words = text(given)?;
    // Every proc sees all GPUs, which is our default.
    if words.eq_ignore_ascii_case("auto") {
        return Ok(());
    }
    let number = number_of_gpus(words).map_err(|reason| bad(given, reason))?;
    emit.here("gpus-per-proc", number.to_string());
    Ok(())
}

/// Translates `srun --gres=gpu:2,NAME[:COUNT]`. GPUs are assigned; other resources are unknown to us.
pub(in super::super) fn generic_resources(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    for item in text(given)?.split(',') {
        let item = item.strip_prefix("gres/").unwrap_or(item);
        let (name, number) = item.split_once([':', '=']).unwrap_or((item, "1"));
        match name {
            "none" => {}
            "gpu" => {
                let number = number_of_gpus(number).map_err(|reason| bad(given, reason))?;
                emit.here("gpus", number.to_string());
            }
            _ => emit.ignored(given),
        }
    }
    Ok(())
}

/// Translates `srun --bcast[=PATH]`. A path with a slash at its end is a directory. Any other would be the name of the copy.
pub(in super::super) fn broadcast(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    if let Some(path) = given.values.first() {
        if !path.as_encoded_bytes().ends_with(b"/") {
            return Err(refused(given, NotOffered::ProgramCopies));
        }
        emit.here("preload-dir", path);
    }
    emit.plain("preload-binary");
    Ok(())
}

/// Translates Intel MPI's `-s WHO`. Open MPI's `-s` has no value, and requests a copy of the program on each node.
pub(in super::super) fn readers(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    if given.values.is_empty() {
        emit.plain("preload-binary");
    } else {
        emit.here("stdin", value(given, 0));
    }
    Ok(())
}

/// Translates a list of signals to pass on: those that we always pass on are accepted.
pub(in super::super) fn forward_signals(given: &Given<'_>, _emit: &mut Emit<'_>) -> Done {
    const PASSED: [&str; 10] = [
        "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGCONT", "SIGTSTP", "SIGURG",
        "SIGWINCH", "SIGIO",
    ];
    for word in text(given)?.split(',') {
        let name = word.trim().to_ascii_uppercase();
        let number = name.parse::<i32>().ok();
        let is_passed = PASSED.iter().any(|passed| {
            *passed == name
                || passed.strip_prefix("SIG") == Some(&name)
                || number.is_some_and(|number| base::Signal(number).to_string() == *passed)
        });
        if !is_passed {
            return Err(not_one_of(given, &PASSED));
        }
    }
    Ok(())
}

/// Translates Hydra's `-usize`.
pub(in super::super) fn universe(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    let word = text(given)?;
    emit.here(
        "universe",
        match word {
            "SYSTEM" => "slots",
            "INFINITE" => "infinite",
            number => number,
        },
    );
    Ok(())
}

/// Translates the MPI standard's `-initial-errhandler` into the variable of Open MPI's library.
pub(in super::super) fn initial_errhandler(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    let name = text(given)?;
    let known = [
        "mpi_errors_are_fatal",
        "mpi_errors_abort",
        "mpi_errors_return",
    ];
    if !known.contains(&name) {
        return Err(not_one_of(given, &known));
    }
    emit.everywhere("set-env", format!("OMPI_MCA_mpi_initial_errhandler={name}"));
    Ok(())
}
