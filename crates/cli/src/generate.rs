//! Files that packaging generates with the binary: a man page, and shell completions.

use std::io::{self, Write};

use clap_complete::{Shell, generate};

use crate::args::{Generated, definition};

/// The command that completions are for.
const NAME: &str = "rally";

/// Writes a file generated from the command line's definition.
pub(crate) fn write(what: Generated, out: &mut dyn Write) -> io::Result<()> {
    let mut command = definition();
    let shell = match what {
        Generated::Man => return man(&command, out),
        Generated::Bash => Shell::Bash,
        Generated::Zsh => Shell::Zsh,
        Generated::Fish => Shell::Fish,
        Generated::Elvish => Shell::Elvish,
    };
    let mut text = Vec::new();
    generate(shell, &mut command, NAME, &mut text);
    out.write_all(&text)
}

/// Writes one page for `rally` that includes the options of `rally run`, which users need most.
fn man(command: &clap::Command, out: &mut dyn Write) -> io::Result<()> {
    let page = clap_mangen::Man::new(command.clone());
    page.render_title(out)?;
    page.render_name_section(out)?;
    page.render_synopsis_section(out)?;
    page.render_description_section(out)?;
    page.render_subcommands_section(out)?;
    if let Some(run) = command.find_subcommand("run") {
        let run = clap_mangen::Man::new(run.clone());
        run.render_options_section(out)?;
        run.render_extra_section(out)?;
    }
    page.render_version_section(out)
}
