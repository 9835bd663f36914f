//! The time to place a million ranks on a hundred thousand nodes, which an example of `dvm` measures and prints.

use anyhow::Result;

use crate::env::{cargo, text_of};

pub(super) fn measure() -> Result<String> {
    let said = text_of(&mut cargo(&[
        "run",
        "--release",
        "--quiet",
        "-p",
        "dvm",
        "--example",
        "place_million",
    ]))?;
    Ok(format!("```text\n{said}\n```\n\nTarget: under 2 s.\n"))
}
