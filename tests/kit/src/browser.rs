//! A real Chromium without a window, driven by ChromeDriver over the WebDriver protocol.
//!
//! WebDriver is a handful of JSON requests over HTTP on loopback. The crates that speak it (`fantoccini`, `thirtyfour`)
//! bring a typed protocol, cookies and an HTTP client of their own, more than twenty crates; what the tests ask is
//! here in one file, blocking, as a person is.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::{Process, ProcessSpec};
use crate::skip::{self, Skipped, Start};
use crate::{block_until, free_port, test_dir};

/// The name in `tests/servers/required.txt`.
const NAME: &str = "chromium";
/// What the programs are called, by Debian, by others, and by Google; `DORMER_CHROMIUM` and `DORMER_CHROMEDRIVER` name
/// ones to be taken as they are.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];
const DRIVERS: [&str; 2] = ["chromedriver", "chromium.chromedriver"];
/// ChromeDriver is up within a second, and so is Chromium; a busy machine gets this much.
const START_MAX: Duration = Duration::from_secs(60);
/// An answer takes milliseconds.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// How a browser is started: it sends no request of its own, and leaves nothing behind.
const ARGUMENTS: [&str; 11] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
];
/// A key that has no message, as WebDriver has it.
pub const TAB: char = '\u{e004}';
/// Likewise.
pub const ENTER: char = '\u{e007}';
/// Likewise.
pub const ESCAPE: char = '\u{e00c}';

/// A browser with one page. Dropping it kills it with its driver, and removes its folder.
#[derive(Debug)]
pub struct Browser {
    driver: Process,
    port: u16,
    session: String,
    _folder: TempDir,
}

impl Browser {
    /// Starts Chromium. Blocks until it answers.
    ///
    /// # Panics
    /// When both programs are there but do not come up: the driver's log is in the message.
    pub fn start() -> Start<Self> {
        if let Err(skipped) = skip::may_start(NAME) {
            return Start::Skipped(skipped);
        }
        let found = program("DORMER_CHROMIUM", &BROWSERS)
            .and_then(|browser| Ok((browser, program("DORMER_CHROMEDRIVER", &DRIVERS)?)));
        match found {
            Ok((browser, driver)) => Start::Started(
                Self::launch(&browser, driver).unwrap_or_else(|error| panic!("{error:#}")),
            ),
            Err(reason) => Start::Skipped(Skipped {
                server: NAME.into(),
                reason,
            }),
        }
    }

    fn launch(browser: &Path, driver: PathBuf) -> Result<Self> {
        let folder = test_dir("browser");
        let port = free_port();
        let spec = ProcessSpec {
            program: driver,
            args: vec![format!("--port={port}")],
            // The driver's own child lives in this folder, too, and ends with it.
            env: vec![("TMPDIR".into(), folder.path().display().to_string())],
            log: folder.path().join("log"),
            folder: Some(folder.path().to_path_buf()),
        };
        let driver = Process::start(&spec)?;
        let up = || ask(port, "GET", "/status", None).is_ok();
        ensure!(
            block_until(START_MAX, up),
            "ChromeDriver does not answer: {}",
            driver.log_tail()
        );
        let data = format!(
            "--user-data-dir={}",
            folder.path().join("profile").display()
        );
        let arguments: Vec<&str> = ARGUMENTS.into_iter().chain([data.as_str()]).collect();
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"binary": browser, "args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let session = ask(port, "POST", "/session", Some(&wanted)).context("no session")?;
        let session = session["sessionId"]
            .as_str()
            .context("a session without an id")?
            .to_owned();
        let browser = Self {
            driver,
            port,
            session,
            _folder: folder,
        };
        browser.size(1280, 900);
        browser.dark(false);
        Ok(browser)
    }

    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let path = format!("/session/{}{path}", self.session);
        ask(self.port, method, &path, body).with_context(|| format!("{method} {path}"))
    }

    fn must(&self, path: &str, body: &Value) -> Value {
        self.ask("POST", path, Some(body))
            .unwrap_or_else(|error| panic!("{error:#}"))
    }

    fn command(&self, command: &str, parameters: &Value) -> Value {
        self.must(
            "/goog/cdp/execute",
            &json!({"cmd": command, "params": parameters}),
        )
    }

    /// Opens an address, and waits until the page is there.
    ///
    /// # Panics
    /// As all of these: when the browser does not do it.
    pub fn open(&self, url: &str) {
        self.must("/url", &json!({"url": url}));
    }

    /// The window's size, in pixels.
    pub fn size(&self, width: u32, height: u32) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.command("Emulation.setDeviceMetricsOverride", &size);
    }

    /// Whether the person prefers dark pages.
    pub fn dark(&self, dark: bool) {
        let scheme = if dark { "dark" } else { "light" };
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.command("Emulation.setEmulatedMedia", &features);
    }

    /// What a script returns in the page.
    pub fn script(&self, script: &str) -> Value {
        self.must("/execute/sync", &json!({"script": script, "args": []}))
    }

    /// Waits until a script returns something that is true, and answers that.
    ///
    /// # Panics
    /// When it does not `within` that time: the message names `what`, and has the page's text.
    pub fn until(&self, what: &str, within: Duration, script: &str) -> Value {
        let mut found = Value::Null;
        let is_true = |found: &Value| {
            !matches!(found, Value::Null | Value::Bool(false)) && found != "" && found != 0
        };
        // A page that is just being left has no answer.
        let check = || {
            let body = json!({"script": script, "args": []});
            found = self
                .ask("POST", "/execute/sync", Some(&body))
                .unwrap_or_default();
            is_true(&found)
        };
        if !block_until(within, check) {
            let text = self.script("return document.body.innerText");
            panic!("never: {what}\n{}", text.as_str().unwrap_or_default());
        }
        found
    }

    /// Clicks where a person would: on the first element of that selector, which must be seen and not be covered.
    pub fn click(&self, selector: &str) {
        let element = self.element(selector);
        self.must(&format!("/element/{element}/click"), &json!({}));
    }

    /// Types into the first element of that selector.
    pub fn write(&self, selector: &str, text: &str) {
        let element = self.element(selector);
        self.must(&format!("/element/{element}/value"), &json!({"text": text}));
    }

    /// Presses keys, wherever the focus is.
    pub fn press(&self, keys: &str) {
        let one = |key: char| {
            let key = key.to_string();
            [
                json!({"type": "keyDown", "value": key}),
                json!({"type": "keyUp", "value": key}),
            ]
        };
        let pressed: Vec<Value> = keys.chars().flat_map(one).collect();
        self.must(
            "/actions",
            &json!({"actions": [{"type": "key", "id": "keys", "actions": pressed}]}),
        );
    }

    /// What the page complained about since the last question: scripts that failed, what a policy forbade.
    pub fn complaints(&self) -> Vec<String> {
        let log = self.must("/se/log", &json!({"type": "browser"}));
        let entries = log.as_array().into_iter().flatten();
        let bad = entries.filter(|entry| entry["level"] == "SEVERE");
        bad.filter_map(|entry| entry["message"].as_str().map(str::to_owned))
            .collect()
    }

    /// What is to be seen, as a PNG.
    pub fn picture(&self) -> Vec<u8> {
        let log = self
            .ask("GET", "/screenshot", None)
            .unwrap_or_else(|error| panic!("{error:#}"));
        let text = log.as_str().unwrap_or_default();
        base64::engine::general_purpose::STANDARD
            .decode(text)
            .expect("base64")
    }

    fn element(&self, selector: &str) -> String {
        let wanted = json!({"using": "css selector", "value": selector});
        let found = self.must("/element", &wanted);
        let id = found
            .as_object()
            .and_then(|found| found.values().next()?.as_str());
        id.unwrap_or_else(|| panic!("{selector}: {found}"))
            .to_owned()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver ends its browser.
        let _ = self.ask("DELETE", "", None);
        self.driver.kill();
    }
}

/// The program that the variable names, or the first of these in `PATH`.
fn program(variable: &str, names: &[&str]) -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os(variable).filter(|named| !named.is_empty()) {
        return Ok(named.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let files = names
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    files
        .into_iter()
        .find(|file| file.is_file())
        .ok_or_else(|| {
            format!(
                "neither ${variable} nor {} in PATH (apt-get install chromium chromium-driver)",
                names.join(", ")
            )
        })
}

/// One request of the protocol, and the `value` of its answer.
fn ask(port: u16, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    let body = body.map(Value::to_string).unwrap_or_default();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    let text = answer(&mut stream)?;
    let (head, body) = text.split_once("\r\n\r\n").context("no answer")?;
    let mut answer: Value =
        serde_json::from_str(body).with_context(|| format!("{head}\n{body}"))?;
    let value = answer["value"].take();
    if !head.starts_with("HTTP/1.1 200") {
        bail!(
            "{}: {}",
            value["error"],
            value["message"].as_str().unwrap_or_default()
        );
    }
    Ok(value)
}

/// Head and body of an answer: ChromeDriver says how long it is, and may keep the connection.
fn answer(stream: &mut TcpStream) -> Result<String> {
    let mut bytes = Vec::new();
    let mut part = [0; 64 * 1024];
    loop {
        if let Some(end) = bytes.windows(4).position(|it| it == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length:"));
            let length = length.and_then(|length| length.trim().parse::<usize>().ok());
            if length.is_some_and(|length| bytes.len() >= end + 4 + length) {
                break;
            }
        }
        match stream.read(&mut part)? {
            0 => break,
            read => bytes.extend_from_slice(&part[..read]),
        }
    }
    Ok(String::from_utf8(bytes)?)
}
