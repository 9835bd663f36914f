//! The end of a file that a job writes, as text.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom},
    os::unix::fs::MetadataExt as _,
    path::Path,
};

use anstream::adapter::strip_bytes;
use serde::Serialize;

/// Bytes of the end of an output file on the page.
const TAIL_MAX: u64 = 64 << 10;

/// What a job has printed.
#[derive(Debug, Serialize)]
pub(super) struct Printed {
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// Why there is nothing to show.
    #[serde(skip_serializing_if = "Option::is_none")]
    none: Option<String>,
    /// Changes whenever the file does.
    mark: String,
    /// `None`: as when the file had the mark that the page has.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// Bytes before the text.
    skipped: u64,
}

impl Printed {
    pub(super) fn nowhere(why: &str) -> Self {
        Self {
            path: None,
            none: Some(why.to_owned()),
            mark: String::new(),
            text: None,
            skipped: 0,
        }
    }
}

/// Returns the end of a file, unless the page has it: then it has this mark.
pub(super) fn tail(path: &Path, mark: &str) -> Printed {
    let shown = Some(path.to_string_lossy().into_owned());
    match read(path, mark) {
        Ok(printed) => Printed {
            path: shown,
            ..printed
        },
        Err(error) => {
            let why = match error.kind() {
                io::ErrorKind::NotFound => "nothing was printed yet".to_owned(),
                _ => format!("the output cannot be read: {error}"),
            };
            Printed {
                path: shown,
                ..Printed::nowhere(&why)
            }
        }
    }
}

fn read(path: &Path, mark: &str) -> io::Result<Printed> {
    // A FIFO would block, and would lose what its reader is to get.
    let is_file = std::fs::metadata(path)?.is_file();
    if !is_file {
        return Ok(Printed::nowhere("the output does not go to a file"));
    }
    let mut file = File::from(os::open_for_reading(path)?);
    let found = file.metadata()?;
    let new = format!(
        "{}.{}.{}.{}",
        found.ino(),
        found.len(),
        found.mtime(),
        found.mtime_nsec()
    );
    let skipped = found.len().saturating_sub(TAIL_MAX);
    let mut printed = Printed {
        path: None,
        none: None,
        text: None,
        skipped,
        mark: new,
    };
    if printed.mark == mark {
        return Ok(printed);
    }
    file.seek(SeekFrom::Start(skipped))?;
    let mut bytes = Vec::new();
    file.take(TAIL_MAX).read_to_end(&mut bytes)?;
    let start = match skipped {
        0 => 0,
        // A line that has lost its beginning is left out.
        _ => memchr::memchr(b'\n', &bytes).map_or(0, |end| end + 1),
    };
    printed.skipped += start as u64;
    printed.text = Some(plain(&bytes[start..]));
    Ok(printed)
}

/// Returns output as text, without the escape sequences of terminals. If a line was overwritten (`\r`), its last form stays.
pub(super) fn plain(bytes: &[u8]) -> String {
    let stripped: Vec<u8> = strip_bytes(bytes).into_vec();
    let text = String::from_utf8_lossy(&stripped);
    let lines = text.split('\n').map(|line| {
        let line = line.strip_suffix('\r').unwrap_or(line);
        line.rsplit('\r').next().unwrap_or(line)
    });
    lines.collect::<Vec<_>>().join("\n")
}
