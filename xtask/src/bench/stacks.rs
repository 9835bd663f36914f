//! How long `dbgr`'s work with stacks takes.

use anyhow::Result;

use crate::env::{cargo, text_of};

/// A million simulated ranks: `debug`'s example measures itself.
pub(super) fn measure() -> Result<String> {
    let said = text_of(&mut cargo(&[
        "run",
        "--release",
        "--quiet",
        "-p",
        "debug",
        "--example",
        "merge_million",
    ]))?;
    Ok(format!(
        "```text\n{said}\n```\n\nTarget: at most 2 s at one place.\n"
    ))
}
