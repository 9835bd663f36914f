//! The pages that `dbgr report` writes, and that of `rally page`, opened in a browser.
//!
//! A test of the text of a page cannot check what a browser does with it: whether the script runs to its end, whether an error
//! or a policy violation occurs, and whether anything is drawn. The screenshots remain in `target/pages` for inspection.

mod browser;
mod live;

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

use crate::{
    env::{cargo, target, text_of, which},
    steps::{self, Steps, Tally},
};

/// Name of the headless browser and of its package.
pub(super) const BROWSER: &str = "chromium-headless-shell";

const LIMIT: Duration = Duration::from_secs(120);
/// Virtual time for the page's script, in milliseconds. The browser advances it without waiting in real time.
const PATIENCE: &str = "--virtual-time-budget=5000";
/// Widths of a desktop window and of a phone, in pixels.
const WIDTHS: [u32; 2] = [1_280, 480];
const HEIGHT: u32 = 1_600;
/// Minimum number of pixels per 1,000 that differ from the background colour. A blank page, or one without text, has fewer.
const INK_MIN: usize = 10;
/// Minimum number of colours. Text alone has several shades, but fewer than a page with its picture.
const COLOURS_MIN: usize = 32;

/// The program of a job of two ranks, each of which waits in a different function.
const JOB: &str = "\
import os, threading, time

def load():
    time.sleep(3600)

def exchange(lock):
    lock.acquire()

def step():
    lock = threading.Lock()
    lock.acquire()
    print('ready', flush=True)
    exchange(lock) if os.environ['RALLY_RANK'] == '0' else load()

step()
";

/// A page, and the text expected in its title, as HTML.
struct Page {
    file: PathBuf,
    title: &'static str,
}

pub(super) fn step(steps: &mut Steps) {
    const NAME: &str = "pages in a browser";
    if !steps.wants(NAME) {
        return;
    }
    let Some(browser) = which(BROWSER) else {
        steps.skip(NAME, &format!("there is no `{BROWSER}`"));
        return;
    };
    steps.run(NAME, |tally| all(&browser, tally));
}

fn all(browser: &Path, tally: &mut Tally) -> Result<()> {
    let place = target().join("pages");
    fs::create_dir_all(&place)?;
    let mut example = cargo(&["run", "--locked", "-q", "-p", "debug"]);
    example
        .args(["--example", "report_pages", "--"])
        .arg(&place);
    steps::execute(&mut example, LIMIT * 5)?;
    let page = |name: &str, title| Page {
        file: place.join(name).with_extension("html"),
        title,
    };
    let pages = [
        page("four", "mpirun ./solver (pid 4711)"),
        page("many", "srun ./solver (job 400901.0)"),
        page("helped", "mpirun ./solver (pid 4711)"),
        page("hostile", "&lt;script&gt;document.title='owned'"),
        page("real", "2 ranks of `python3"),
    ];
    real(&place, &pages[4].file)?;
    for page in &pages {
        check(browser, page).with_context(|| page.file.display().to_string())?;
        tally.passed += 1;
    }
    live::check(browser, &place).context("`rally page`")?;
    tally.passed += 1;
    println!("pictures: {}", place.display());
    Ok(())
}

/// A job that gets SIGTERM on drop, whatever the result of its test.
struct Job(Child);

impl Drop for Job {
    fn drop(&mut self) {
        if let Ok(pid) = i32::try_from(self.0.id()) {
            // An error means that the job has already exited.
            let _ = signal::kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        let _ = self.0.wait();
    }
}

/// Writes the page of a running job.
fn real(place: &Path, page: &Path) -> Result<()> {
    let script = place.join("job.py");
    fs::write(&script, JOB)?;
    let binaries = target().join("debug");
    let mut command = Command::new(binaries.join("rally"));
    // If the job hangs before it is ready, the timeout ends it, and thereby the wait for its output.
    let limit = LIMIT.as_secs().to_string();
    command.args(["run", "-n", "2", "--timeout", &limit, "/usr/bin/python3"]);
    // On SIGTERM the job reports an error on stderr, which is expected.
    command
        .arg(&script)
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    let mut job = Job(command.stdout(Stdio::piped()).spawn()?);
    // Each rank prints a line before it waits. If a rank fails, the job ends and closes the pipe.
    let said = job.0.stdout.take().context("no output")?;
    let ready = BufReader::new(said).lines().take(2).count();
    ensure!(ready == 2, "the job has ended before its time");
    let mut report = Command::new(binaries.join("dbgr"));
    report.arg("report").arg(job.0.id().to_string());
    report
        .args(["--samples", "3", "--every", "100ms", "-o"])
        .arg(page);
    steps::execute(&mut report, LIMIT)?;
    let text = fs::read_to_string(page)?;
    for part in ["load", "exchange", "job.py:"] {
        ensure!(text.contains(part), "the page of a real job lacks `{part}`");
    }
    Ok(())
}

fn check(browser: &Path, page: &Page) -> Result<()> {
    let document = text_of(open(browser, &page.file)?.arg("--dump-dom"))?;
    let title = between(&document, "<title>", "</title>").context("the document has no title")?;
    ensure!(title.contains(page.title), "its title is `{title}`");
    let head = between(&document, "<html", ">").unwrap_or_default();
    ensure!(
        head.contains("data-ready=\"yes\""),
        "its script did not come to its end"
    );
    for width in WIDTHS {
        let picture = page.file.with_extension(format!("{width}.png"));
        if picture.exists() {
            fs::remove_file(&picture)?;
        }
        let mut command = open(browser, &page.file)?;
        command
            .arg(format!("--screenshot={}", picture.display()))
            .arg(format!("--window-size={width},{HEIGHT}"));
        let output = command.stdin(Stdio::null()).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        // The page itself logs nothing: a line here is an error, or a violation of the content security policy.
        if let Some(line) = said.lines().find(|line| line.contains("CONSOLE")) {
            bail!("it says: {line}");
        }
        ensure!(output.status.success(), "{}: {said}", output.status);
        seen(&picture, width).with_context(|| picture.display().to_string())?;
    }
    Ok(())
}

/// Returns a command that opens a page in the browser; the caller adds the action.
fn open(browser: &Path, page: &Path) -> Result<Command> {
    let page = fs::canonicalize(page)?;
    let mut command = Command::new(browser);
    command.args(["--no-sandbox", "--disable-gpu", "--hide-scrollbars"]);
    command.args(["--enable-logging=stderr", PATIENCE]);
    // A separate profile directory, so that the user's profile is unchanged.
    let own = target().join("pages/browser");
    command.arg(format!("--user-data-dir={}", own.display()));
    command.arg(format!("file://{}", page.display()));
    Ok(command)
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    Some(rest.split_once(after)?.0)
}

/// Checks that a screenshot is not blank.
fn seen(picture: &Path, width: u32) -> Result<()> {
    let mut decoder = png::Decoder::new(BufReader::new(fs::File::open(picture)?));
    decoder.set_transformations(png::Transformations::EXPAND | png::Transformations::STRIP_16);
    let mut reader = decoder.read_info()?;
    let size = reader.output_buffer_size().context("it is too large")?;
    let mut bytes = vec![0; size];
    let info = reader.next_frame(&mut bytes)?;
    ensure!(
        (info.width, info.height) == (width, HEIGHT),
        "it has {} x {} pixels",
        info.width,
        info.height
    );
    bytes.truncate(info.buffer_size());
    let (ink, colours) = variety(&bytes, info.color_type.samples());
    ensure!(
        ink >= INK_MIN && colours >= COLOURS_MIN,
        "it is as good as blank: {ink} of 1,000 pixels are not of the background, in {colours} colours"
    );
    Ok(())
}

/// Returns the number of pixels per 1,000 that differ from the most frequent colour, and the number of colours.
fn variety(bytes: &[u8], of_pixel: usize) -> (usize, usize) {
    let mut pixels: Vec<&[u8]> = bytes.chunks_exact(of_pixel).collect();
    pixels.sort_unstable();
    let runs = pixels.chunk_by(|one, other| one == other);
    let most = runs.clone().map(<[_]>::len).max().unwrap_or(0);
    let ink = (pixels.len() - most) * 1_000 / pixels.len().max(1);
    (ink, runs.count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blank_picture_has_no_ink() {
        assert_eq!(variety(&[255; 3 * 1_000], 3), (0, 1));
        let mut bytes = [255; 3 * 1_000];
        bytes[..3 * 250].fill(7);
        assert_eq!(variety(&bytes, 3), (250, 2));
    }
}
