//! Options about the environment of procs.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
};

use super::{Done, joined, text, value};
use crate::args::compat::{Emit, Given};

fn assignment(given: &Given<'_>) -> OsString {
    joined(&[value(given, 0), OsStr::new("="), value(given, 1)])
}

pub(in super::super) fn set_everywhere(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    emit.everywhere("set-env", assignment(given));
    Ok(())
}

pub(in super::super) fn set_here(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    emit.here("set-env", assignment(given));
    Ok(())
}

/// Translates `-x`. Open MPI applies the `-x` of the first app to all apps.
pub(in super::super) fn export(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    if given.segment == 0 {
        emit.everywhere("set-env", value(given, 0));
    } else {
        emit.here("set-env", value(given, 0));
    }
    Ok(())
}

pub(in super::super) fn inherit_everywhere(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    emit.everywhere("inherit-env", value(given, 0));
    Ok(())
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "it stands in the table beside others that can fail"
)]
pub(in super::super) fn inherit_all_everywhere(_given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    emit.everywhere("inherit-env", "all");
    Ok(())
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "it stands in the table beside others that can fail"
)]
pub(in super::super) fn inherit_none_everywhere(_given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    emit.everywhere("inherit-env", "none");
    Ok(())
}

pub(in super::super) fn unset_list(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    for name in text(given)?.split(',').filter(|name| !name.is_empty()) {
        if given.typed.trim_start_matches('-').starts_with('g') {
            emit.everywhere("unset-env", name);
        } else {
            emit.here("unset-env", name);
        }
    }
    Ok(())
}

/// Translates `srun --export=ALL,A=1,B`: with `ALL` the other items are added, without it only the named variables are
/// inherited.
pub(in super::super) fn slurm_export(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    emit.overrule();
    let mut names = Vec::new();
    let mut settings = Vec::new();
    let mut base = None;
    for word in value(given, 0).as_bytes().split(|byte| *byte == b',') {
        match word {
            b"ALL" => base = Some("all"),
            b"NONE" | b"NIL" => base = base.or(Some("none")),
            b"" => {}
            _ if word.contains(&b'=') => settings.push(OsStr::from_bytes(word)),
            _ => names.push(word),
        }
    }
    match base {
        Some(base) => emit.here("inherit-env", base),
        None if names.is_empty() => emit.here("inherit-env", "none"),
        None => emit.here("inherit-env", OsString::from_vec(names.join(&b','))),
    }
    for setting in settings {
        emit.here("set-env", setting);
    }
    Ok(())
}

pub(in super::super) fn prepend(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    emit.here("prepend-env", assignment(given));
    Ok(())
}

pub(in super::super) fn append(given: &Given<'_>, emit: &mut Emit<'_>) -> Done {
    emit.here("append-env", assignment(given));
    Ok(())
}
