//! Checks that the Python package has the version of the binaries.

use std::path::Path;

use super::Complaints;
use crate::wheel::Project;

pub(super) fn check(root: &Path) -> Complaints {
    let checked = Project::read(root).and_then(|project| project.check_version());
    match checked {
        Ok(()) => Complaints::new(),
        Err(why) => vec![format!("{why:#}")],
    }
}
