//! The console in a real Chromium, as a person on call uses it: what is stuck, why, and mended; by the keyboard alone;
//! on a narrow screen; after its connection was cut.
//!
//! `DORMER_SCREENSHOTS=docs/screenshots cargo test --test integration browser::` also writes the pictures
//! of README and docs/tour.md.

mod redraw;
mod relay;
mod size;

use dormer_testkit::{
    Browser, Process, ProcessSpec, Start, TempDir, block_until,
    browser::{ENTER, ESCAPE, TAB},
    free_port, started, test_dir,
};
use relay::Relay;
use serde_json::Value;
use std::{path::PathBuf, time::Duration};

/// Bring-ups take seconds; a busy machine gets this much.
const IN_TIME: Duration = Duration::from_secs(120);
/// What a page does by itself takes less than a second.
const SOON: Duration = Duration::from_secs(30);
/// A page that receives nothing for 15 s connects anew.
const SILENCE: Duration = Duration::from_secs(60);
/// Most bytes of a picture.
const PICTURE_MAX: usize = 150_000;

/// A demonstration whose failed machines are left to a person.
struct Site {
    _folder: TempDir,
    _demo: Process,
    port: u16,
}

impl Site {
    fn new(machines: u32, failing: u32) -> Self {
        let folder = test_dir("console");
        let port = free_port();
        let arguments = [
            format!("--machines={machines}"),
            format!("--faults=configure-fails={failing}"),
            format!("--listen=127.0.0.1:{port}"),
            "--leave-failed".into(),
            "--hold".into(),
        ];
        let spec = ProcessSpec {
            program: env!("CARGO_BIN_EXE_dormer").into(),
            args: std::iter::once("demo".to_owned())
                .chain(arguments)
                .collect(),
            env: vec![("TMPDIR".into(), folder.path().display().to_string())],
            log: folder.path().join("log"),
            folder: None,
        };
        let mut demo = Process::start(&spec).expect("the demonstration starts");
        let answers = || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
        assert!(
            block_until(IN_TIME, || answers() || !demo.is_running()),
            "{}",
            demo.log_tail()
        );
        Self {
            _folder: folder,
            _demo: demo,
            port,
        }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }
}

/// Waits until the page shows what the server says: its own stream has spoken.
fn live(browser: &Browser) {
    browser.until(
        "live",
        SOON,
        "return document.getElementById('live').dataset.on === 'yes'",
    );
}

/// Waits until `count` machines are stuck, all of one cause.
fn stuck(browser: &Browser, count: usize) {
    let script = format!(
        "const causes = document.querySelectorAll('.needs li[data-urgency=stuck]');
        return causes.length === 1 && causes[0].querySelectorAll('.names a').length === {count}"
    );
    browser.until("all that is stuck is named", IN_TIME, &script);
}

/// A script that failed, or something that the page's policy forbade, is a fault of ours.
fn no_complaints(browser: &Browser) {
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{complaints:#?}");
}

/// Checks what a screen reader and a keyboard need: a language, one first heading, headings in their order, names of
/// fields, buttons, links and pictures, ids that occur once, and headings of columns.
const ACCESSIBLE: &str = r#"
    const bad = [];
    const shown = (it) => it.getClientRects().length > 0;
    const all = (selector) => [...document.querySelectorAll(selector)];
    if (!document.documentElement.lang) bad.push("no language");
    const ranks = all("h1, h2, h3").filter(shown).map((it) => Number(it.tagName[1]));
    if (ranks[0] !== 1 || ranks.filter((it) => it === 1).length !== 1) bad.push("first headings: " + ranks);
    ranks.forEach((level, at) => { if (at && level > ranks[at - 1] + 1) bad.push("a heading is left out: " + ranks); });
    const name = (it) => (it.getAttribute("aria-label") || it.innerText || it.title
        || [...(it.labels || [])].map((label) => label.innerText).join(" ")
        || (document.getElementById(it.getAttribute("aria-labelledby")) || {}).innerText || "").trim();
    for (const it of all("button, a[href], input:not([type=hidden]), select, [role=img], progress, nav, [role=region], [role=group], summary"))
        if (shown(it) && !name(it)) bad.push("no name: " + it.outerHTML.slice(0, 120));
    const ids = all("[id]").map((it) => it.id);
    ids.forEach((id, at) => { if (ids.indexOf(id) !== at) bad.push("twice: #" + id); });
    for (const it of all("[aria-labelledby]"))
        if (!document.getElementById(it.getAttribute("aria-labelledby"))) bad.push("labelled by nothing: " + it.outerHTML.slice(0, 80));
    for (const it of all("th")) if (!it.textContent.trim()) bad.push("an empty heading of a column");
    for (const it of all("[tabindex]")) if (it.tabIndex > 0) bad.push("an order of its own: " + it.outerHTML.slice(0, 80));
    return bad;
"#;

/// The page passes [`ACCESSIBLE`] and, where axe-core is cached or npm has it, axe-core's rules. Contrast is
/// computed in `src/console/palette.rs`.
fn accessible(browser: &Browser, page: &str) {
    let found = browser.script(ACCESSIBLE);
    assert_eq!(found, Value::Array(Vec::new()), "{page}");
    let axe = match dormer_testkit::axe() {
        Start::Started(axe) => axe,
        Start::Skipped(skipped) => return skipped.announce("the rules of axe-core"),
    };
    browser.script(&format!("{axe}; window.axe = axe;"));
    browser.script(
        "window.axeFound = null;
        axe.run({resultTypes: ['violations']}).then((found) => {
            window.axeFound = found.violations.filter((it) => ['serious', 'critical'].includes(it.impact))
                .map((it) => it.id + ': ' + it.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(' | '));
        });",
    );
    let done = browser.until(
        "axe-core is done",
        SOON,
        "return window.axeFound && {found: window.axeFound}",
    );
    assert_eq!(done["found"], Value::Array(Vec::new()), "{page}");
}

/// Writes a picture for the documents, if one is asked for.
fn picture(browser: &Browser, name: &str) {
    let Some(folder) = std::env::var_os("DORMER_SCREENSHOTS").map(PathBuf::from) else {
        return;
    };
    let bytes = browser.picture();
    assert!(
        bytes.len() < PICTURE_MAX,
        "{name} has {} bytes",
        bytes.len()
    );
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join(format!("{name}.png")), bytes).expect("written");
}

#[test]
fn the_machine_that_is_stuck_is_found_understood_and_mended_without_a_reload() {
    dormer_testkit::full!();
    let browser = started!(Browser::start());
    let site = Site::new(6, 1);
    browser.size(1280, 720);
    browser.open(&site.url());
    browser.script("window.same = true");
    stuck(&browser, 1);
    let output = browser.until(
        "the others come up while one looks on",
        IN_TIME,
        "return document.querySelector('a.chip [data-state=Joined]')?.closest('a').innerText.startsWith('5')
            && window.same && document.title + ' ' + document.querySelector('.needs').innerText",
    );
    let output = output.as_str().unwrap_or_default();
    assert!(
        output.starts_with("(1) ") && output.contains("AccessDenied"),
        "{output}"
    );
    accessible(&browser, "the fleet");
    picture(&browser, "fleet");

    browser.click(".needs a");
    let why = "return document.querySelector('.why.failed')?.innerText";
    let why = browser.until("why it is stuck", SOON, why);
    let why = why.as_str().unwrap_or_default();
    assert!(
        why.contains("Failed for")
            && why.contains(", while ")
            && why.contains("Do now")
            && why.contains("dormer retry"),
        "{why}"
    );
    live(&browser);
    accessible(&browser, "the machine");
    picture(&browser, "machine");

    browser.script("window.same = true");
    browser.write("#why", "the account is an administrator now");
    browser.click("button[data-key^='retry-']");
    browser.until(
        "it is taken",
        SOON,
        "return document.getElementById('said').innerText === 'Retry accepted.'",
    );
    let asked = "console asked: retry (“the account is an administrator now”)";
    let output = format!("return document.querySelector('.history').innerText.includes('{asked}')");
    browser.until("the history has it, and why", SOON, &output);
    // In its story, too: in a world that runs fast it may be on its way to its upgrade the next moment.
    let joined =
        "return window.same && [...document.querySelectorAll('.top .state, .history .state')]
        .some((it) => it.dataset.state === 'Joined')";
    browser.until("it joins", IN_TIME, joined);
    browser.script("scrollTo(0, 0)");
    picture(&browser, "mended");
    no_complaints(&browser);
    other_pages(&browser, &site);

    browser.open(&format!("{}rollouts/windows", site.url()));
    let turns = "return document.querySelectorAll('.timeline rect[data-kind=good]').length >= 2
        && document.querySelector('.timeline rect[data-kind=busy]') !== null
        && document.body.innerText.includes('remain if')";
    browser.until("the rollout goes on, and says how long", IN_TIME, turns);
    accessible(&browser, "the rollout");
    picture(&browser, "rollout");
    browser.click("button[data-key^='pause-']");
    browser.until(
        "it pauses",
        SOON,
        "return document.body.innerText.includes('Paused by console')",
    );
    browser.click("button[data-key^='resume-']");
    browser.until(
        "it goes on",
        SOON,
        "return !document.body.innerText.includes('Paused by')",
    );
    no_complaints(&browser);
}

/// The plan, what people asked for, and the settings.
fn other_pages(browser: &Browser, site: &Site) {
    for (page, shows) in [
        (
            "rollouts",
            "document.querySelectorAll('tbody tr').length === 1",
        ),
        (
            "plan",
            "/machines? would change/.test(document.getElementById('main').innerText)",
        ),
        (
            "activity",
            "/retry/.test(document.querySelector('tbody tr').innerText)
             && /console/.test(document.querySelector('td[data-label^=Sent]').innerText)",
        ),
        (
            "settings",
            "document.querySelectorAll('#payloads ~ table tbody tr').length >= 1",
        ),
    ] {
        browser.open(&format!("{}{page}", site.url()));
        live(browser);
        browser.until(page, SOON, &format!("return {shows}"));
        accessible(browser, page);
        picture(browser, page);
    }
    no_complaints(browser);
}

#[test]
fn a_fleet_is_searched_filtered_and_asked_by_the_keyboard_alone_and_fits_a_narrow_screen() {
    dormer_testkit::full!();
    let browser = started!(Browser::start());
    let site = Site::new(8, 2);
    browser.open(&site.url());
    live(&browser);
    stuck(&browser, 2);
    searched(&browser);
    asked_by_keys(&browser);
    narrow(&browser, &site);
    no_complaints(&browser);
}

/// `/` leads to the search; what is typed narrows the list at once, and stays under the cursor.
fn searched(browser: &Browser) {
    browser.press("/");
    browser.press("AccessDenied");
    let rows = |count: usize| {
        format!(
            "return document.querySelectorAll('tbody tr').length === {count}
        && document.activeElement.id === 'q' && document.activeElement.value.length > 0"
        )
    };
    browser.until("only those two are listed", SOON, &rows(2));
    assert_eq!(browser.script("return location.search"), "?q=AccessDenied");
    browser.press(" nowhere");
    browser.until(
        "none is so",
        SOON,
        "return document.getElementById('found').innerText.startsWith('No machine matches')",
    );
    browser.click("#found a");
    browser.until(
        "all are back",
        SOON,
        "return document.querySelectorAll('tbody tr').length === 8",
    );
    browser.click("a.chip[href='/?state=Failed']");
    browser.until(
        "by state",
        SOON,
        "return document.querySelectorAll('tbody tr').length === 2
        && document.querySelector('.chip[aria-current]').innerText.includes('Failed')",
    );
}

/// From link to button by the tabulator; what is dangerous is asked about, and Escape leaves it.
fn asked_by_keys(browser: &Browser) {
    tab_to(
        browser,
        "document.activeElement.closest('.needs .names') !== null",
    );
    browser.press(&ENTER.to_string());
    browser.until(
        "the machine's page",
        SOON,
        "return location.pathname.startsWith('/machines/')",
    );
    live(browser);
    tab_to(
        browser,
        "document.activeElement.innerText.startsWith('More actions')",
    );
    browser.press(&ENTER.to_string());
    tab_to(browser, "document.activeElement.innerText === 'Recreate'");
    browser.press(&ENTER.to_string());
    let asks = "const it = document.getElementById('sure');
        return it.open && document.activeElement.id === 'sure-why' && it.innerText.includes('its Machine is deleted')";
    browser.until("it asks first", SOON, asks);
    browser.press(&ESCAPE.to_string());
    browser.until(
        "nothing is asked",
        SOON,
        "return !document.getElementById('sure').open
        && document.activeElement.innerText === 'Recreate'",
    );
    tab_to(browser, "document.activeElement.innerText === 'Hold'");
    browser.press(&ENTER.to_string());
    browser.until(
        "it is held",
        SOON,
        "return document.querySelector('.history').innerText.includes('console asked: hold')",
    );
    let story = browser.script("return document.querySelector('.history').innerText");
    assert!(
        !story.as_str().unwrap_or_default().contains("recreate"),
        "{story}"
    );
}

fn tab_to(browser: &Browser, there: &str) {
    let found = (0..80).any(|_| {
        browser.press(&TAB.to_string());
        browser.script(&format!("return {there}")) == Value::Bool(true)
    });
    assert!(found, "the tabulator never reaches {there}");
}

/// No page is wider than a telephone; what has to be wide scrolls by itself.
fn narrow(browser: &Browser, site: &Site) {
    let machine = browser.script("return location.pathname");
    let machine = machine
        .as_str()
        .unwrap_or_default()
        .trim_start_matches('/')
        .to_owned();
    for dark in [false, true] {
        browser.size(320, 700);
        browser.dark(dark);
        for page in [
            "",
            &machine,
            "rollouts",
            "rollouts/windows",
            "plan",
            "activity",
            "settings",
            "dead-letters",
        ] {
            browser.open(&format!("{}{page}", site.url()));
            live(browser);
            let wide = browser.script("return document.documentElement.scrollWidth");
            assert!(
                wide.as_u64().is_some_and(|wide| wide <= 320),
                "{page} is {wide} wide"
            );
            let hidden = browser.script(
                "return [...document.querySelectorAll('.wide:has(> .timeline)')].map(it => it.scrollWidth - it.clientWidth)",
            );
            let hidden = hidden.as_array().cloned().unwrap_or_default();
            assert!(
                hidden.iter().all(|it| it.as_i64() == Some(0)),
                "{page}: a timeline is {hidden:?} wider than the screen"
            );
            if page == machine {
                assert!(!hidden.is_empty(), "its life is drawn");
            }
            let paper =
                browser.script("return getComputedStyle(document.documentElement).backgroundColor");
            assert_eq!(paper == "rgb(242, 242, 242)", !dark, "{page}: {paper}");
            accessible(browser, page);
        }
    }
}

#[test]
fn a_page_whose_connection_is_cut_or_falls_silent_is_right_again() {
    dormer_testkit::full!();
    let browser = started!(Browser::start());
    let site = Site::new(3, 1);
    let relay = Relay::start(site.port);
    browser.open(&relay.url());
    live(&browser);
    stuck(&browser, 1);
    browser.script("window.same = true");

    relay.cut();
    browser.until(
        "it says so",
        SOON,
        "return document.getElementById('live').dataset.on === 'no'",
    );
    let machine = browser.script("return document.querySelector('.needs a').getAttribute('href')");
    let machine = machine.as_str().unwrap_or_default().to_owned();
    ask(&site, &format!("{machine}/actions/retry"));
    relay.restore();
    let right = "return window.same && document.getElementById('live').dataset.on === 'yes'
        && document.querySelector('.needs') === null";
    browser.until("it is right again", IN_TIME, right);

    // As after an hour of sleep: the connection is dead without a notice.
    relay.freeze();
    ask(&site, "/rollouts/windows/actions/pause");
    let paused = "return window.same && document.body.innerText.includes('paused by')";
    browser.until("silence tells", SILENCE, paused);
}

/// Another person sends a request meanwhile.
fn ask(site: &Site, path: &str) {
    let server = site.url();
    let words: Vec<&str> = path.trim_matches('/').split('/').collect();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_dormer"));
    command
        .env("DORMER_SERVER", server.trim_end_matches('/'))
        .env("USER", "ada");
    match words.as_slice() {
        ["machines", uid, "actions", action] => command.args([action, uid]),
        ["rollouts", pool, "actions", action] => command.args([*action, "--pool", pool]),
        _ => panic!("{path}"),
    };
    let output = command.output().expect("it runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// What a person confirms is what the dialog asked about, whatever the page shows by then.
#[test]
fn a_dialog_asks_again_when_its_machine_is_another_one_and_a_group_stays_as_it_was() {
    dormer_testkit::full!();
    let browser = started!(Browser::start());
    let site = Site::new(3, 2);
    browser.open(&site.url());
    live(&browser);
    stuck(&browser, 2);
    // No request leaves the page: what it would ask for is kept.
    browser.script(
        "window.asked = [];
        window.fetch = async (path) => {
            window.asked.push(path);
            return { ok: true, json: async () => ({}) };
        };",
    );
    browser.click(".needs button[data-all]");
    browser.until(
        "it asks",
        SOON,
        "return document.getElementById('sure').open",
    );
    browser.script(
        "document.querySelector('.needs button[data-all]').dataset.all += ' uid-of-another@1'",
    );
    browser.click("#sure-yes");
    browser.until(
        "both are asked for",
        SOON,
        "return window.asked.length >= 2",
    );
    let asked = browser.script("return window.asked.length + ' ' + window.asked.join(' ')");
    let asked = asked.as_str().unwrap_or_default();
    assert!(
        asked.starts_with("2 ") && !asked.contains("uid-of-another"),
        "{asked}"
    );

    browser.click(".needs a");
    live(&browser);
    browser.click("details.menu summary");
    browser.click("button[data-key^='recreate-']");
    browser.until(
        "it asks",
        SOON,
        "return document.getElementById('sure').open",
    );
    // The stream ends, and its last page is that of the successor, which has the same name.
    browser.script(
        "stream.close();
        const fresh = document.querySelector('main').innerHTML;
        const uid = document.querySelector(\"button[data-key^='recreate-']\").dataset.post.split('/')[4];
        show({title: 'win-a is Provisioned', main: fresh.replaceAll(uid, 'uid-of-its-successor'), trouble: null});",
    );
    let changed = browser.script(
        "return document.getElementById('sure-yes').disabled + ' ' + document.getElementById('sure-changed').innerText",
    );
    assert_eq!(
        changed,
        "true It has changed meanwhile: win-a is Provisioned. Cancel, and decide again."
    );
    browser.press(&ENTER.to_string());
    assert_eq!(
        browser.script("return document.getElementById('sure').open"),
        true,
        "Enter confirms nothing"
    );
    browser.press(&ESCAPE.to_string());
    no_complaints(&browser);
}

/// Remote commands on the host, unfolded by keyboard. They stay unfolded while the page updates, and fit a telephone.
#[test]
fn remote_commands_are_unfolded_by_the_keyboard_and_followed_while_the_machine_is_at_work() {
    dormer_testkit::full!();
    let browser = started!(Browser::start());
    let site = Site::new(2, 1);
    browser.size(1280, 720);
    browser.open(&site.url());
    stuck(&browser, 1);
    browser.click(".needs a");
    browser.until(
        "remote commands",
        SOON,
        "return document.querySelectorAll('.commands details').length >= 1",
    );
    live(&browser);
    browser.script("window.same = true");
    tab_to(
        &browser,
        "document.activeElement.closest('.commands details:last-of-type') !== null",
    );
    browser.press(&ENTER.to_string());
    let output = browser.until(
        "its line and what the host said",
        SOON,
        "return document.querySelector('.commands details[open] pre')?.innerText",
    );
    let output = output.as_str().unwrap_or_default();
    assert!(
        output.starts_with("$ ") && output.contains("AccessDenied"),
        "{output}"
    );
    // The other one serves: what its MachineSet lacks is this one.
    let numbers =
        "return document.querySelector('.why').innerText.includes('has 2 of 2 Machines, 1 ready')";
    browser.until("its MachineSet's numbers", IN_TIME, numbers);
    // The duration is updated every few seconds.
    let since =
        browser.script("return document.querySelector('.why dl div:last-child dd').innerText");
    let since = since.as_str().unwrap_or_default();
    let redrawn = format!(
        "return document.querySelector('.why dl div:last-child dd').innerText !== '{since}'
            && document.querySelector('.commands details[open] pre') !== null"
    );
    browser.until("it stays unfolded", SOON, &redrawn);
    browser.script("document.getElementById('commands').scrollIntoView()");
    picture(&browser, "commands");
    for dark in [false, true] {
        browser.size(320, 700);
        browser.dark(dark);
        let wide = browser.script("return document.documentElement.scrollWidth");
        assert!(wide.as_u64().is_some_and(|wide| wide <= 320), "{wide} wide");
    }
    let path = browser.script("return location.pathname");
    ask(
        &site,
        &format!("{}/actions/retry", path.as_str().unwrap_or_default()),
    );
    let others = "return window.same
        && ![...document.querySelectorAll('.commands pre')].some((it) => it.textContent.includes('AccessDenied'))
        && [...document.querySelectorAll('.commands summary')].some((it) => it.innerText.includes('exit 0'))";
    browser.until("those of the next task", IN_TIME, others);
    no_complaints(&browser);
}
