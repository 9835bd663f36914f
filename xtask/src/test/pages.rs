//! The pages that `dbgr report` writes, opened in a browser.
//!
//! What a browser makes of a page no test of its text knows: whether the script came to its end, whether anything was
//! refused or failed, and whether there is a picture. The pictures stay in `target/pages`, for people to look at.

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

/// The browser without a window, which is also the name of its package.
pub(super) const BROWSER: &str = "chromium-headless-shell";

const LIMIT: Duration = Duration::from_secs(120);
/// Time of the page's own clock, after which its script must have come to its end; the browser does not wait so long.
const PATIENCE: &str = "--virtual-time-budget=5000";
/// A screen, and a telephone.
const WIDTHS: [u32; 2] = [1_280, 480];
const HEIGHT: u32 = 1_600;
/// Of a blank page, or of one without text, there are fewer pixels that are not of its background, in 1,000.
const INK_MIN: usize = 10;
/// Text alone has shades; a page whose picture is not drawn has these few.
const COLOURS_MIN: usize = 32;

/// A job of two ranks of which each is somewhere else.
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

/// A page, and words that its title has, as HTML.
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
    println!("pictures: {}", place.display());
    Ok(())
}

/// Ends a job, however its test ends.
struct Job(Child);

impl Drop for Job {
    fn drop(&mut self) {
        if let Ok(pid) = i32::try_from(self.0.id()) {
            // It may have ended by itself; then nobody is there to get the signal.
            let _ = signal::kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        let _ = self.0.wait();
    }
}

/// The page of a job that runs.
fn real(place: &Path, page: &Path) -> Result<()> {
    let script = place.join("job.py");
    fs::write(&script, JOB)?;
    let binaries = target().join("debug");
    let mut command = Command::new(binaries.join("rally"));
    // A job that hangs before it is ready ends, and so does the wait for it.
    let limit = LIMIT.as_secs().to_string();
    command.args(["run", "-n", "2", "--timeout", &limit, "/usr/bin/python3"]);
    // That it was ended, it says as an error, and for us it is none.
    command
        .arg(&script)
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    let mut job = Job(command.stdout(Stdio::piped()).spawn()?);
    // They say so before they wait, and the job ends where one of them fails.
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
        // The page says nothing itself: whatever stands there is an error, or what the policy has refused.
        if let Some(line) = said.lines().find(|line| line.contains("CONSOLE")) {
            bail!("it says: {line}");
        }
        ensure!(output.status.success(), "{}: {said}", output.status);
        seen(&picture, width).with_context(|| picture.display().to_string())?;
    }
    Ok(())
}

/// The browser with a page, before it is said what is wanted of it.
fn open(browser: &Path, page: &Path) -> Result<Command> {
    let page = fs::canonicalize(page)?;
    let mut command = Command::new(browser);
    command.args(["--no-sandbox", "--disable-gpu", "--hide-scrollbars"]);
    command.args(["--enable-logging=stderr", PATIENCE]);
    // A directory of its own, so that it leaves nothing in that of the user.
    let own = target().join("pages/browser");
    command.arg(format!("--user-data-dir={}", own.display()));
    command.arg(format!("file://{}", page.display()));
    Ok(command)
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    Some(rest.split_once(after)?.0)
}

/// That there is something in a picture.
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

/// How many pixels of 1,000 do not have the most frequent colour, and how many colours there are.
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
