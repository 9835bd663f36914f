//! The page of `rally page`, with a machine behind it: it shows hostile names as text, follows output, and loads nothing.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{HEIGHT, Job, LIMIT, WIDTHS, browser::Browser, seen};
use crate::{
    env::{target, text_of},
    steps,
};

/// The name of a job that takes over every page that does not show it as text.
const HOSTILE: &str = "<img src=x onerror=\"document.title='owned'\">\u{202e}x";

/// What that job does: prints what no page may execute, waits for a file, prints again, and hangs.
const SCRIPT: &str = "\
printf '\\033[31mred\\033[0m <script>document.title=\"owned\"</script>\\n'
until test -e go; do sleep 0.02; done
echo it goes on
exec sleep 1000";

/// A machine in a directory of its own, which ends with the test.
struct Machine {
    place: PathBuf,
}

impl Machine {
    fn up() -> Result<Self> {
        let place = target().join("pages/machine");
        if place.exists() {
            fs::remove_dir_all(&place)?;
        }
        for private in ["state", "run", "work"] {
            fs::create_dir_all(place.join(private))?;
            fs::set_permissions(place.join(private), fs::Permissions::from_mode(0o700))?;
        }
        let machine = Self { place };
        steps::execute(&mut machine.rally(&["up", "--host", "localhost:4"]), LIMIT)?;
        Ok(machine)
    }

    fn rally(&self, args: &[&str]) -> Command {
        let mut command = Command::new(target().join("debug/rally"));
        command.args(args).current_dir(self.place.join("work"));
        command.env("RALLY_STATE_DIR", self.place.join("state"));
        command.env("XDG_RUNTIME_DIR", self.place.join("run"));
        command.env_remove("RALLY_MACHINE");
        command
    }

    fn submit(&self, args: &[&str]) -> Result<String> {
        text_of(self.rally(&["submit", "--parsable"]).args(args))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self
            .rally(&["down", "--now"])
            .stderr(Stdio::null())
            .status();
    }
}

/// Opens the page, and returns how many checks were passed.
pub(super) fn check(program: &Path, place: &Path) -> Result<()> {
    let machine = Machine::up()?;
    let job = machine.submit(&["-n", "2", "--job-name", HOSTILE, "sh", "-c", SCRIPT])?;
    machine.submit(&["-n", "4", "--job-name", "waits for room", "true"])?;
    machine.submit(&["-n", "1", "--hold", "--array", "1-9", "true"])?;
    let mut page = machine.rally(&["page", "--message-format=json"]);
    let mut server = Job(page.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?);
    let output = server.0.stdout.take().context("no output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    let link: Value = serde_json::from_str(&line).context("no link")?;
    let url = link["url"].as_str().context("no link")?;
    let origin = format!("http://127.0.0.1:{}/", link["port"]);

    let mut browser = Browser::start(program)?;
    browser.open(url)?;
    browser.wait_for("document.documentElement.dataset.ready === 'yes'")?;
    let address = browser.value("location.href")?;
    ensure!(address == json!(origin), "the address is {address}");
    let cookies = browser.value("document.cookie")?;
    ensure!(cookies == json!(""), "scripts see the key: {cookies}");
    pictures(&mut browser, place, "list")?;

    browser.value(&format!(
        "document.querySelector('[href=\"#job-{job}\"]').click()"
    ))?;
    let prints = |text: &str| {
        let text = json!(text);
        format!("document.getElementById('output').textContent.includes({text})")
    };
    let executed = "red <script>document.title=\"owned\"</script>\n";
    browser.wait_for(&prints(executed))?;
    fs::write(machine.place.join("work/go"), "")?;
    browser.wait_for(&prints("it goes on\nit goes on\n"))?;
    let shown = HOSTILE.replace('\u{202e}', "\\u{202e}");
    let title = browser.value("document.getElementById('job-title').textContent")?;
    ensure!(title == json!(format!("Job {job}: {shown}")), "{title}");
    let images = browser.value("document.images.length")?;
    ensure!(images == json!(0), "a name has become an image");
    pictures(&mut browser, place, "job")?;

    browser.value("document.getElementById('make').click()")?;
    browser.wait_for("document.querySelector('iframe') !== null")?;
    // Its script has run, and it has no origin.
    browser.wait_for_in_frame(
        "document.documentElement.dataset.ready === 'yes' && origin === 'null'",
    )?;
    let report = browser.value_in_frame("document.title")?;
    ensure!(
        report.to_string().contains("2 ranks of `sleep`"),
        "{report}"
    );
    browser.value("document.querySelector('iframe').scrollIntoView()")?;
    pictures(&mut browser, place, "report")?;

    let title = browser.value("document.title")?;
    ensure!(title == json!("main · rally"), "the title is {title}");
    let foreign: Vec<String> = browser.requests();
    let foreign = foreign.iter().find(|url| !url.starts_with(&origin));
    ensure!(foreign.is_none(), "a request leaves the page: {foreign:?}");
    let complaints = browser.complaints();
    ensure!(complaints.is_empty(), "the browser says: {complaints:?}");
    // The policy forbids what a script could try.
    browser.value(
        "addEventListener('securitypolicyviolation', it => { window.stopped = it.blockedURI }); \
         fetch('http://127.0.0.1:54321/').catch(() => {}); true",
    )?;
    browser.wait_for("window.stopped === 'http://127.0.0.1:54321/'")?;

    drop(machine);
    browser
        .wait_for("document.getElementById('trouble').textContent === 'The machine has ended.'")?;
    let ended = server.0.wait()?;
    ensure!(ended.success(), "`rally page` has ended with {ended}");
    Ok(())
}

/// Takes a picture in each width, and checks that nothing is wider.
fn pictures(browser: &mut Browser, place: &Path, name: &str) -> Result<()> {
    for width in WIDTHS {
        browser.set_width(width, HEIGHT)?;
        let wide = browser.value("document.documentElement.scrollWidth")?;
        ensure!(wide == json!(width), "{name}: {wide} pixels of {width}");
        let picture = place.join(format!("live-{name}.{width}.png"));
        fs::write(&picture, browser.picture()?)?;
        seen(&picture, width).with_context(|| picture.display().to_string())?;
    }
    Ok(())
}
