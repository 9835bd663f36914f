//! Settings: their names, their values, and the precedence of their sources.
//!
//! Sources in ascending order of precedence: built-in values, the site's file, the user's file, the environment (`RALLY_*`),
//! the command line. Every value remembers its source, so that `rally config` and error messages can name it.

mod file;
mod settings;
mod show;

pub(crate) use file::{ConfigError, ConfigFile, Found, Owner, apply_file};
pub(crate) use settings::{Layers, Setting, Settings, Source};
pub(crate) use show::{json, text};
