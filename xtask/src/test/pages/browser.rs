//! A headless browser that does what a test says, over the pipe of its debugging protocol: messages of JSON, each with a zero byte
//! behind it.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use data_encoding::BASE64;
use serde_json::{Value, json};

use crate::env::target;

/// Time for an answer, and for a condition on a page.
const LIMIT: Duration = Duration::from_secs(120);
/// Pause between two looks at a condition.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A browser with one tab.
pub(super) struct Browser {
    process: Child,
    messages: Receiver<Value>,
    last: u64,
    tab: Option<String>,
    /// What has happened in the tab.
    events: Vec<Value>,
}

impl Browser {
    pub(super) fn start(program: &Path) -> Result<Self> {
        let own = target().join("pages/browser");
        // The browser reads descriptor 3 and writes descriptor 4.
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null"]);
        command.arg(program);
        command.args(["--no-sandbox", "--disable-gpu", "--hide-scrollbars"]);
        command.args(["--remote-debugging-pipe", "about:blank"]);
        command.arg(format!("--user-data-dir={}", own.display()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.stderr(Stdio::null()).spawn()?;
        let output = process.stdout.take().context("no pipe")?;
        let (sender, messages) = mpsc::channel();
        thread::spawn(move || {
            for message in BufReader::new(output).split(0).map_while(Result::ok) {
                let value = serde_json::from_slice(&message).unwrap_or_default();
                if sender.send(value).is_err() {
                    return;
                }
            }
        });
        let mut browser = Self {
            process,
            messages,
            last: 0,
            tab: None,
            events: Vec::new(),
        };
        let made = browser.call("Target.createTarget", json!({"url": "about:blank"}))?;
        let target = &made["targetId"];
        let attach = json!({"targetId": target, "flatten": true});
        let attached = browser.call("Target.attachToTarget", attach)?;
        browser.tab = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Network", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}))?;
        }
        Ok(browser)
    }

    /// Calls a method of the protocol.
    pub(super) fn call(&mut self, method: &str, parameters: Value) -> Result<Value> {
        self.last += 1;
        let mut message = json!({"id": self.last, "method": method, "params": parameters});
        if let Some(tab) = &self.tab {
            message["sessionId"] = json!(tab);
        }
        let input = self.process.stdin.as_mut().context("no pipe")?;
        input.write_all(format!("{message}\0").as_bytes())?;
        loop {
            let mut answer = self
                .messages
                .recv_timeout(LIMIT)
                .with_context(|| format!("the browser does not answer to {method}"))?;
            if answer["id"] == json!(self.last) {
                if !answer["error"].is_null() {
                    bail!("{method}: {}", answer["error"]);
                }
                return Ok(answer["result"].take());
            }
            self.events.push(answer);
        }
    }

    pub(super) fn open(&mut self, url: &str) -> Result<()> {
        self.call("Page.navigate", json!({"url": url})).map(drop)
    }

    /// Returns the value of an expression on the page.
    pub(super) fn value(&mut self, expression: &str) -> Result<Value> {
        self.value_in(None, expression)
    }

    /// Returns the value of an expression in the only frame within the page.
    pub(super) fn value_in_frame(&mut self, expression: &str) -> Result<Value> {
        let tree = self.call("Page.getFrameTree", json!({}))?;
        let frame = &tree["frameTree"]["childFrames"][0]["frame"]["id"];
        let world = self.call("Page.createIsolatedWorld", json!({"frameId": frame}))?;
        self.value_in(Some(&world["executionContextId"]), expression)
    }

    fn value_in(&mut self, context: Option<&Value>, expression: &str) -> Result<Value> {
        let mut parameters =
            json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        if let Some(context) = context {
            parameters["contextId"] = context.clone();
        }
        let mut result = self.call("Runtime.evaluate", parameters)?;
        if !result["exceptionDetails"].is_null() {
            bail!("`{expression}`: {}", result["exceptionDetails"]);
        }
        Ok(result["result"]["value"].take())
    }

    /// Waits until an expression is true.
    pub(super) fn wait_for(&mut self, expression: &str) -> Result<()> {
        self.wait(expression, |browser| browser.value(expression))
    }

    /// Waits until an expression is true in the only frame within the page.
    pub(super) fn wait_for_in_frame(&mut self, expression: &str) -> Result<()> {
        self.wait(expression, |browser| browser.value_in_frame(expression))
    }

    fn wait(
        &mut self,
        expression: &str,
        mut look: impl FnMut(&mut Self) -> Result<Value>,
    ) -> Result<()> {
        let until = Instant::now() + LIMIT;
        // A document that is just being replaced answers with an error.
        while !matches!(look(self), Ok(Value::Bool(true))) {
            if Instant::now() > until {
                let text = self.value("document.body.innerText")?;
                let said = self.complaints();
                bail!("never true: `{expression}`; the page: {text}; the browser says: {said:?}");
            }
            thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    pub(super) fn set_width(&mut self, width: u32, height: u32) -> Result<()> {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size)
            .map(drop)
    }

    /// Returns a screenshot, as PNG.
    pub(super) fn picture(&mut self) -> Result<Vec<u8>> {
        let taken = self.call("Page.captureScreenshot", json!({"format": "png"}))?;
        let data = taken["data"].as_str().context("no picture")?;
        Ok(BASE64.decode(data.as_bytes())?)
    }

    /// Returns the addresses of all requests so far.
    pub(super) fn requests(&self) -> Vec<String> {
        let events = self.events.iter();
        let sent = events.filter(|event| event["method"] == "Network.requestWillBeSent");
        let url = |event: &Value| {
            event["params"]["request"]["url"]
                .as_str()
                .map(str::to_owned)
        };
        sent.filter_map(url).collect()
    }

    /// Returns errors, violations of policies, and what scripts have logged.
    pub(super) fn complaints(&self) -> Vec<String> {
        const NAMES: [&str; 3] = [
            "Runtime.exceptionThrown",
            "Runtime.consoleAPICalled",
            "Log.entryAdded",
        ];
        let events = self.events.iter();
        let said = events.filter(|event| NAMES.iter().any(|name| event["method"] == *name));
        said.map(|event| event["params"].to_string()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
