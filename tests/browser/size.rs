//! The console with a synthetic fleet: rows on one screen, and how fast it is with thousands of machines.

use super::{IN_TIME, SOON, live, no_complaints};
use dormer_testkit::{Browser, TempDir, long, started, test_dir};
use std::{
    io::{BufRead as _, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

/// Longest time until the first content is painted, and from a key in the search until the list is filtered.
const PAINT_MS_MAX: f64 = 1_000.0;
const FILTER_MS_MAX: f64 = 200.0;
/// How often each is measured; the median counts.
const TIMES: usize = 9;

/// `dormer bench console --serve`: a console over a store with many machines, 200 of which change each second.
pub(super) struct SyntheticFleet {
    child: Child,
    /// It ends with its input.
    _input: ChildStdin,
    _output: BufReader<ChildStdout>,
    pub(super) url: String,
    _folder: TempDir,
}

impl SyntheticFleet {
    pub(super) fn of(machines: u32) -> Self {
        let folder = test_dir("synthetic-fleet");
        let mut child = Command::new(env!("CARGO_BIN_EXE_dormer"))
            .args(["bench", "console", "--serve", "--machines"])
            .arg(machines.to_string())
            .arg("--folder")
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("dormer starts");
        let input = child.stdin.take().expect("a pipe");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut url = String::new();
        output.read_line(&mut url).expect("an address");
        assert!(url.starts_with("http://"), "no address: {url:?}");
        Self {
            child,
            _input: input,
            _output: output,
            url: format!("{}/", url.trim_end()),
            _folder: folder,
        }
    }
}

impl Drop for SyntheticFleet {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

#[test]
fn thirty_machines_are_on_one_screen() {
    dormer_testkit::full!();
    let browser = started!(Browser::start());
    let fleet = SyntheticFleet::of(40);
    browser.size(1440, 900);
    browser.open(&fleet.url);
    live(&browser);
    let all = "return document.querySelectorAll('.machines tbody tr').length === 40";
    browser.until("all are listed", SOON, all);
    let whole = browser.script(
        "return [...document.querySelectorAll('.machines tbody tr')]
            .filter((row) => row.getBoundingClientRect().bottom <= innerHeight).length",
    );
    assert!(whole.as_u64() >= Some(30), "{whole} rows");
    no_complaints(&browser);
}

/// Milliseconds from the last key of `number` until its machine alone is listed.
fn filtered(browser: &Browser, number: &str) -> f64 {
    browser.script(&format!(
        "const q = document.getElementById('q');
        q.focus();
        q.select();
        window.typed = window.filtered = null;
        window.wanted = '-{number}';
        if (window.watched) return;
        window.watched = true;
        document.addEventListener('input', () => {{ window.typed = performance.now(); }}, true);
        new MutationObserver(() => {{
            const rows = document.querySelectorAll('.machines tbody tr');
            if (window.typed && rows.length === 1 && rows[0].innerText.includes(window.wanted))
                window.filtered ??= performance.now() - window.typed;
        }}).observe(document.body, {{childList: true, subtree: true, characterData: true}});"
    ));
    browser.press(number);
    let typed = browser.script("return document.getElementById('q').value");
    assert_eq!(typed, number, "what is typed stays as it is");
    let found = browser.until("it is filtered", IN_TIME, "return window.filtered");
    found.as_f64().expect("milliseconds")
}

#[test]
fn five_thousand_machines_are_painted_within_a_second_and_filtered_within_a_fifth() {
    let part = long!("console");
    let browser = started!(Browser::start());
    let fleet = SyntheticFleet::of(5_000);
    browser.size(1440, 900);
    let paints = (0..TIMES).map(|_| {
        browser.open(&fleet.url);
        live(&browser);
        let paint = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime";
        let paint = browser.until("it is painted", IN_TIME, paint);
        paint.as_f64().expect("milliseconds")
    });
    let paint = median(paints.collect());
    let filter = median(
        (0..TIMES)
            .map(|at| filtered(&browser, &format!("{:05}", 4_999 - 517 * at)))
            .collect(),
    );
    no_complaints(&browser);
    assert!(paint <= PAINT_MS_MAX, "{paint:.0} ms until the first paint");
    assert!(
        filter <= FILTER_MS_MAX,
        "{filter:.0} ms until it is filtered"
    );
    part.passed(&[
        (
            "first contentful paint in ms, median of 9",
            format!("{paint:.0}"),
        ),
        ("a filter in ms, median of 9", format!("{filter:.0}")),
    ]);
}
