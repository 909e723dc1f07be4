//! What a person typed, chose, opened or focused stays while the page is drawn again.

use super::{SOON, live, no_complaints, size::SyntheticFleet};
use dormer_testkit::{Browser, started};

/// Draws the page again, as an event of its stream does, with its present content after a `change`.
const REDRAW: &str = "
    const redraw = (change) => {
        const main = document.getElementById('main').cloneNode(true);
        change(main);
        show({title: document.title, main: main.innerHTML, trouble: null});
    };
";

/// A machine without an address: nothing happens to it but the changes of the synthetic fleet.
const MACHINE: &str = "machines/00000003-9003-49ff-8ec4-b416090ac595";

/// What a script returns that may use [`REDRAW`].
fn redrawn(browser: &Browser, script: &str) -> serde_json::Value {
    browser.script(&[REDRAW, script].concat())
}

#[test]
fn what_is_typed_into_the_search_stays_while_notes_come_and_go_and_machines_change() {
    dormer_testkit::full!();
    let browser = started!(Browser::start());
    let fleet = SyntheticFleet::of(40);
    browser.open(&fleet.url);
    live(&browser);
    browser.press("/");
    for key in "1a-00017".chars() {
        browser.press(&key.to_string());
        redrawn(
            &browser,
            r#"
            const note = '<p class="note" data-key="asked-drain">Drain asked for by ann</p>';
            for (const extra of [note, '<p>and 1 more cause</p>']) {
                redraw((main) => main.querySelector('.rollouts').insertAdjacentHTML('beforebegin', extra));
                redraw((main) => main.querySelector('.rollouts').previousElementSibling.remove());
            }"#,
        );
    }
    assert_eq!(
        browser.script("return document.activeElement.id + ' ' + document.activeElement.value"),
        "q 1a-00017"
    );
    browser.until(
        "that machine alone is listed",
        SOON,
        "const rows = document.querySelectorAll('.machines tbody tr');
        return rows.length === 1 && rows[0].innerText.includes('1a-00017')",
    );
    no_complaints(&browser);
}

#[test]
fn a_row_keeps_the_focus_details_stay_closed_and_a_choice_stays_chosen() {
    dormer_testkit::full!();
    let browser = started!(Browser::start());
    let fleet = SyntheticFleet::of(40);
    browser.open(&fleet.url);
    live(&browser);
    let kept = redrawn(
        &browser,
        r#"
        const rows = (within) => [...within.querySelectorAll('.machines tbody tr')];
        const link = rows(document)[2].querySelector('a');
        link.focus();
        redraw((main) => rows(main)[0].remove());
        redraw((main) => rows(main)[0].before(rows(main)[1]));
        const focused = document.activeElement === link && link.closest('tr') === rows(document)[0];

        const details = '<details open><summary>1 item differs</summary></details>';
        redraw((main) => main.querySelector('.rollouts').insertAdjacentHTML('beforebegin', details));
        document.querySelector('#main > details').open = false;
        redraw((main) => main.querySelector(':scope > details').setAttribute('open', ''));
        const closed = !document.querySelector('#main > details').open;

        const choices = (names) => '<label id="choices">Cause <select>'
            + names.map((name) => '<option value="' + name + '">' + name + '</option>').join('') + '</select></label>';
        redraw((main) => main.querySelector('form').insertAdjacentHTML('beforeend', choices(['any', 'b', 'c'])));
        const select = document.querySelector('#choices select');
        select.value = 'c';
        redraw((main) => { main.querySelector('#choices').outerHTML = choices(['any', 'a', 'b', 'c']); });
        return [focused, closed, select.isConnected && select.value].join(' ');"#,
    );
    assert_eq!(kept, "true true c");
    no_complaints(&browser);
}

#[test]
fn a_reason_stays_while_tasks_and_notes_come_and_go_and_a_button_sends_once() {
    dormer_testkit::full!();
    let browser = started!(Browser::start());
    let fleet = SyntheticFleet::of(40);
    browser.open(&format!("{}{MACHINE}", fleet.url));
    live(&browser);
    browser.write("#why", "a disk is full");
    let kept = redrawn(
        &browser,
        r#"
        const why = document.getElementById('why');
        const menu = document.querySelector('details.menu');
        menu.open = true;
        const task = '<div class="busy" data-key="3.0">probe</div>';
        for (const extra of [task, '<div class="busy">probe</div>', '<p class="note">Halted</p>']) {
            redraw((main) => main.querySelector('.actions').insertAdjacentHTML('beforebegin', extra));
            redraw((main) => main.querySelector('.actions').previousElementSibling.remove());
        }
        return [document.activeElement === why && why.value, menu.isConnected && menu.open].join(', ');"#,
    );
    assert_eq!(kept, "a disk is full, true");
    // Its answer never comes.
    let sent = redrawn(
        &browser,
        r#"
        let sent = 0;
        window.fetch = () => { sent += 1; return new Promise(() => {}); };
        const hold = document.querySelector("button[data-key^='hold-']");
        hold.focus();
        hold.click();
        redraw((main) => {
            const fresh = main.querySelector("button[data-key^='hold-']");
            for (const name of ['disabled', 'aria-disabled']) fresh.removeAttribute(name);
        });
        hold.click();
        return [sent, hold.getAttribute('aria-disabled'), document.activeElement === hold].join(' ');"#,
    );
    assert_eq!(sent, "1 true true");
    no_complaints(&browser);
}

#[test]
fn a_page_says_that_it_waits_for_selected_text_and_announces_a_status_once() {
    dormer_testkit::full!();
    let browser = started!(Browser::start());
    let fleet = SyntheticFleet::of(40);
    browser.open(&fleet.url);
    live(&browser);
    let announced = browser.script(
        "const main = document.getElementById('main').innerHTML;
        const draw = () => show({title: document.title, main, trouble: 'the store does not answer'});
        draw();
        const observer = new MutationObserver(() => {});
        for (const id of ['live', 'trouble'])
            observer.observe(document.getElementById(id), {childList: true, characterData: true, subtree: true});
        draw();
        live('yes', 'live');
        return observer.takeRecords().length",
    );
    assert_eq!(announced, 0, "nothing changed");
    let paused = redrawn(
        &browser,
        "getSelection().selectAllChildren(document.querySelector('h1'));
        redraw((main) => { main.querySelector('h1').textContent = 'Changed'; });
        return [document.querySelector('h1').textContent, document.getElementById('live').textContent].join(', ');",
    );
    assert_eq!(paused, "Fleet, paused while text is selected");
    let connected_again = browser.script(
        "live('no', 'not connected');
        stream.dispatchEvent(new Event('still'));
        return document.getElementById('live').textContent",
    );
    assert_eq!(connected_again, "paused while text is selected");
    browser.script("getSelection().removeAllRanges()");
    browser.until(
        "it is live again",
        SOON,
        "return document.getElementById('live').dataset.on === 'yes'",
    );
    no_complaints(&browser);
}

#[test]
fn a_dialog_for_several_machines_can_be_confirmed_after_one_whose_machine_changed() {
    dormer_testkit::full!();
    let browser = started!(Browser::start());
    let fleet = SyntheticFleet::of(40);
    browser.open(&fleet.url);
    live(&browser);
    let states = browser.script(
        "const states = [];
        // No button of the page has this key any more. One for several machines has none.
        for (const key of ['hold-gone', null]) {
            const button = document.createElement('button');
            Object.assign(button.dataset, {what: 'Sure?', yes: 'Yes', danger: ''});
            if (key) button.dataset.key = key;
            sure(button, []);
            states.push(document.getElementById('sure-yes').disabled);
            states.push(document.getElementById('sure-changed').hidden);
            document.getElementById('sure').close('no');
        }
        return states.join(' ');",
    );
    assert_eq!(states, "true false false true");
    no_complaints(&browser);
}
