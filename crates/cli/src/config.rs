//! Settings: what each of them is called, what it may say, and which of several sources decides.
//!
//! Built-in values are overruled by the site's file, that by the user's file, that by the environment (`RALLY_*`), and
//! that by the command line. Every value remembers where it came from, so that `rally config` and error messages can
//! say it.

mod file;
mod settings;
mod show;

pub(crate) use file::{ConfigError, ConfigFile, Found, Owner, apply_file};
pub(crate) use settings::{Layers, Setting, Settings, Source};
pub(crate) use show::{json, text};
