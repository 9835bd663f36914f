//! Turns a report into the output that the user asked for.

use std::{
    env,
    io::{self, IsTerminal as _},
    os::fd::AsFd as _,
    time::{Duration, Instant},
};

use debug::report::{self, Colour, Detail, Guides, Layout, Origin, Part, Report};

use super::args::{Output, When};
use message::date;

/// The width of the text without a terminal, in columns.
const WIDTH: usize = 100;

/// Returns host, date and versions for a report that took this long.
pub(super) fn origin(took: Duration) -> Origin {
    let version = |of: &str, version: String| Part {
        of: of.to_owned(),
        version,
    };
    let own = version("dbgr", env!("CARGO_PKG_VERSION").to_owned());
    let kernel = os::kernel_release().map(|release| version("Linux", release));
    Origin {
        host: os::host_name(),
        date: date(os::wall_clock()),
        versions: [own].into_iter().chain(kernel).collect(),
        took,
    }
}

/// Returns the level of detail that the options ask for.
pub(super) const fn detail(output: &Output) -> Detail {
    if output.full {
        Detail::Full
    } else {
        Detail::Folded
    }
}

/// Returns what to print of a report.
pub(super) fn shown(report: &Report, output: &Output) -> String {
    if output.json {
        return report::json(report);
    }
    if output.folded {
        return report::folded(report);
    }
    let stdout = io::stdout();
    let terminal = stdout.is_terminal();
    let colour = match output.color {
        When::Always => Colour::Ansi,
        When::Auto if terminal && env::var_os("NO_COLOR").is_none_or(|it| it.is_empty()) => {
            Colour::Ansi
        }
        When::Auto | When::Never => Colour::Never,
    };
    let columns = terminal
        .then(|| os::window_size(stdout.as_fd()))
        .flatten()
        .map(|size| usize::from(size.columns))
        .filter(|&columns| columns > 0);
    let look = Layout {
        width: output.width.or(columns).unwrap_or(WIDTH),
        detail: detail(output),
        colour,
        guides: guides(),
    };
    let begin = Instant::now();
    let mut text = report::text(report, &look);
    if output.timing {
        text.push_str(&report.timing.sentence());
        text.push('\n');
        if let Some(mut phases) = report.timing.phases {
            phases.merging += begin.elapsed();
            text.push_str(&format!("{phases}\n"));
        }
    }
    text
}

/// Returns Unicode lines if the locale is UTF-8 or unset, otherwise ASCII.
fn guides() -> Guides {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .filter_map(env::var_os)
        .find(|value| !value.is_empty());
    let plain = locale.is_some_and(|locale| {
        let locale = locale.to_string_lossy().to_lowercase();
        !(locale.contains("utf-8") || locale.contains("utf8"))
    });
    if plain {
        Guides::Ascii
    } else {
        Guides::Unicode
    }
}
