//! Writes pages of made-up jobs into a directory, to be looked at.
//!
//! ```text
//! cargo run -p debug --example report_pages -- target/pages
//! ```
#![expect(
    clippy::expect_used,
    reason = "a page that cannot be written is the end of this program"
)]

#[path = "../tests/report/made.rs"]
mod made;

use std::path::PathBuf;

use debug::report::html;

fn main() {
    let directory = PathBuf::from(std::env::args_os().nth(1).expect("a directory"));
    for (name, report) in [
        ("four", made::four()),
        ("helped", made::helped()),
        ("many", made::many(200)),
        ("hostile", made::hostile()),
    ] {
        let file = directory.join(format!("{name}.html"));
        #[expect(clippy::disallowed_methods, reason = "it is what this program is for")]
        std::fs::write(file, html(&report)).expect("the directory can be written");
    }
}
