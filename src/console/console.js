// Keeps the page up to date, and sends the requests of its buttons. The server renders everything: the event stream of
// this page's own URL sends the content whenever it has changed. The script merges it into the page, so that focus,
// selection, typed text and scroll position stay.
"use strict";

const at = (id) => document.getElementById(id);
// A screen reader announces a status or an alert whenever its text is set, also to what it was.
const write = (id, text) => { if (at(id).textContent !== text) at(id).textContent = text; };

// ---- Content ----

// Makes `old` equal to `fresh`, and touches only what differs.
function fit(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  if (old.nodeName !== fresh.nodeName) {
    old.replaceWith(fresh);
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) {
    old.nodeValue = fresh.nodeValue;
    return;
  }
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && !stays(old, name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value && !stays(old, name)) old.setAttribute(name, value);
  }
  fitChildren(old, fresh);
}

// Buttons whose requests have no answer yet.
const sending = new WeakSet();

// Details stay open or closed, as a person left them. A button waits until its request is answered.
function stays(old, name) {
  return (name === "open" && old.nodeName === "DETAILS") || (name === "aria-disabled" && sending.has(old));
}

function fitChildren(old, fresh) {
  const known = childrenOf(old);
  const wanted = childrenOf(fresh);
  for (const [key, child] of known) if (!wanted.has(key)) child.remove();
  let next = old.firstChild;
  for (const [key, child] of wanted) {
    const same = known.get(key);
    if (!same) {
      old.insertBefore(child, next);
      continue;
    }
    // What is moved loses the focus, so the others make room for what has it.
    while (same !== next && same.contains(document.activeElement)) {
      const other = next;
      next = next.nextSibling;
      old.append(other);
    }
    if (same === next) next = next.nextSibling;
    else old.insertBefore(same, next);
    fit(same, child);
  }
}

// Children by what identifies them in `parent`: a key, otherwise their kind; and a number among equal ones. So a field stays
// the same element when something before it comes or goes.
function childrenOf(parent) {
  const counts = new Map();
  const children = new Map();
  for (const child of parent.childNodes) {
    const key = keyOf(child);
    const kind = key ? "=" + key : child.nodeName;
    const count = (counts.get(kind) || 0) + 1;
    counts.set(kind, count);
    children.set(kind + " " + count, child);
  }
  return children;
}

// A data-key or an id identifies an element, and a choice's value identifies the choice.
function keyOf(node) {
  if (node.nodeType !== Node.ELEMENT_NODE) return "";
  return node.dataset.key || node.id || (node.nodeName === "OPTION" ? "option-" + node.value : "");
}

// Times are sent in UTC, and shown in the reader's zone, which the head of the page names.
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const two = (number) => String(number).padStart(2, "0");
function localize(part) {
  for (const time of part.querySelectorAll("time[data-at]")) {
    const at = new Date(time.dateTime);
    if (isNaN(at)) continue;
    const day = at.getFullYear() + "-" + two(at.getMonth() + 1) + "-" + two(at.getDate());
    time.textContent = day + " " + two(at.getHours()) + ":" + two(at.getMinutes()) + ":" + two(at.getSeconds());
  }
}
function nameZone() {
  const minutes = -new Date().getTimezoneOffset();
  const hours = two(Math.floor(Math.abs(minutes) / 60)) + ":" + two(Math.abs(minutes) % 60);
  at("zone").textContent = "Times: " + zone + (zone === "UTC" ? "" : " (UTC" + (minutes < 0 ? "−" : "+") + hours + ")");
}

function show({ title, main, trouble }) {
  // The page does not change while a person selects text to copy.
  if (String(getSelection()) !== "" && !document.activeElement.matches("input")) {
    waiting = { title, main, trouble };
    live("wait", PAUSED);
    return;
  }
  if (waiting && at("live").dataset.on === "wait") live("yes", "live");
  waiting = null;
  document.title = title;
  at("trouble").hidden = !trouble;
  write("trouble", trouble ? "Not up to date: " + trouble : "");
  const fresh = new DOMParser().parseFromString("<main>" + main + "</main>", "text/html").querySelector("main");
  localize(fresh);
  fitChildren(at("main"), fresh);
  recheck();
}

// A page that came while a person selected text.
let waiting = null;
const PAUSED = "paused while text is selected";
document.addEventListener("selectionchange", () => {
  if (waiting && String(getSelection()) === "") show(waiting);
});

// ---- The stream ----

// The server sends an event at least every few seconds. A computer that slept does not notice that its connection is
// lost; silence shows it.
const SILENCE_MAX = 15000;
let stream = null;
let heard = 0;

function live(on, text) {
  at("live").dataset.on = on;
  write("live", text);
}

function follow() {
  if (stream) stream.close();
  // A hidden page holds no connection: browsers open at most six to one server. A fixed page has no stream.
  if (document.hidden || at("main").dataset.fixed) { stream = null; return; }
  const own = stream = new EventSource(location.pathname + location.search);
  heard = Date.now();
  const hear = () => {
    heard = Date.now();
    if (waiting) live("wait", PAUSED);
    else live("yes", "live");
  };
  own.addEventListener("page", (event) => { if (own === stream) { hear(); show(JSON.parse(event.data)); } });
  own.addEventListener("still", () => { if (own === stream) hear(); });
  own.onerror = () => { if (own === stream) live("no", "not connected"); };
}

setInterval(() => {
  const silent = Date.now() - heard > SILENCE_MAX;
  if (silent && stream) live("no", "not connected");
  // A refused stream is closed for good: open a new one, unless the user must log in.
  if (stream && stream.readyState === EventSource.CLOSED) refused();
  else if (stream && silent) follow();
}, 2000);

async function refused() {
  const answer = await fetch(location.href, { method: "HEAD" }).catch(() => null);
  if (answer && answer.status === 401) location.reload();
  else follow();
}
document.addEventListener("visibilitychange", follow);
for (const event of ["online", "pageshow"]) addEventListener(event, () => { if (!stream || Date.now() - heard > 5000) follow(); });

// ---- Searching ----

// Links and the search change the list in place, so that a person can keep typing.
function go(address, keep) {
  history[keep ? "replaceState" : "pushState"](null, "", address);
  follow();
}

let typing = 0;
document.addEventListener("input", (event) => {
  const form = event.target.closest("form[role=search]");
  if (!form) return;
  clearTimeout(typing);
  // A choice is meant as it is. What is typed goes out when the keys rest for a moment.
  typing = setTimeout(() => go(addressOf(form), true), event.target.matches("select") ? 0 : 80);
});
document.addEventListener("submit", (event) => {
  if (event.target.getAttribute("role") !== "search") return;
  event.preventDefault();
  clearTimeout(typing);
  go(addressOf(event.target), false);
});
addEventListener("popstate", () => location.reload());

function addressOf(form) {
  const said = new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== ""));
  const path = new URL(form.action).pathname;
  return String(said) ? path + "?" + said : path;
}

// ---- The keyboard ----

document.addEventListener("keydown", (event) => {
  const writing = event.target.closest("input, textarea, select, dialog");
  if (writing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/" && at("q")) { event.preventDefault(); at("q").focus(); at("q").select(); }
  if (event.key === "g") location.assign("/");
});

// ---- Actions ----

function say(text) {
  at("said").textContent = text;
  if (text) setTimeout(() => { if (at("said").textContent === text) at("said").textContent = ""; }, 10000);
}

// Text of the page's own field for a reason.
const reason = () => at("why") ? at("why").value : "";

// What the open dialog asks about: the key of its button, and the requests as they were when the person pressed it.
let asking = null;

// A machine may be replaced, or enter another state, under the open dialog. The person then decides again.
function recheck() {
  if (!asking || !asking.key) return;
  const now = document.querySelector('button[data-key="' + CSS.escape(asking.key) + '"]');
  const changed = !now || JSON.stringify(requestsOf(now)) !== asking.requests;
  at("sure-changed").hidden = !changed;
  write("sure-changed", changed ? "It has changed meanwhile: " + document.title + ". Cancel, and decide again." : "");
  at("sure-yes").disabled = changed;
}

// Resolves to the reason if the person confirms, otherwise to undefined.
function sure(button, requests) {
  const dialog = at("sure");
  asking = { key: button.dataset.key, requests: JSON.stringify(requests) };
  at("sure-what").textContent = button.dataset.what;
  at("sure-danger").textContent = button.dataset.danger;
  at("sure-yes").textContent = button.dataset.yes;
  at("sure-yes").classList.toggle("danger", button.classList.contains("danger"));
  at("sure-why").value = reason();
  at("sure-changed").hidden = true;
  at("sure-yes").disabled = false;
  dialog.returnValue = "no";
  recheck();
  dialog.showModal();
  at("sure-why").focus();
  return new Promise((done) => {
    dialog.addEventListener("close", () => {
      asking = null;
      // Whoever has to decide again does not write the reason again.
      if (!at("sure-changed").hidden && at("why")) at("why").value = at("sure-why").value;
      done(dialog.returnValue === "yes" ? at("sure-why").value : undefined);
    }, { once: true });
  });
}

// Enter in the reason field confirms, instead of pressing the first button.
at("sure-why").addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  event.preventDefault();
  if (!at("sure-yes").disabled) at("sure").close("yes");
});

// Requests of a button: one, or one for each machine of a group.
function requestsOf(button) {
  if (button.dataset.post) return [{ path: button.dataset.post, against: button.dataset.against }];
  return button.dataset.all.split(" ").map((one) => {
    const [uid, against] = one.split("@");
    return { path: "/api/v1/machines/" + uid + "/actions/" + button.dataset.action, against };
  });
}

async function send({ path, against }, why, to) {
  const random = crypto.getRandomValues(new Uint8Array(12));
  const body = { id: "console-" + Array.from(random, (byte) => byte.toString(16).padStart(2, "0")).join("") };
  if (why) body.why = why;
  if (against) body.against = Number(against);
  if (to) body.to = Number(to);
  try {
    const answer = await fetch(path, {
      method: "POST",
      headers: { "content-type": "application/json", "x-dormer-user": "console" },
      body: JSON.stringify(body),
    });
    const answered = await answer.json();
    if (answer.ok) return { ended: answered.ended || [] };
    return { refused: answered.error + ": " + answered.whatToDo };
  } catch (error) {
    return { refused: "No answer: " + error.message };
  }
}

// Requests at once, of a group.
const AT_ONCE = 4;

document.addEventListener("click", async (event) => {
  const copy = event.target.closest("button[data-copy]");
  if (copy) copied(copy);
  const button = event.target.closest("button[data-post], button[data-all]");
  if (!button || sending.has(button)) return;
  // Those that the person sees now: the page may change while the dialog is open.
  const requests = requestsOf(button);
  const { to, done } = button.dataset;
  const why = button.dataset.what ? await sure(button, requests) : reason();
  if (why === undefined) return;
  const written = reason();
  // A button that is disabled by its attribute would lose the focus.
  sending.add(button);
  button.setAttribute("aria-disabled", "true");
  const count = requests.length;
  const refusals = [];
  // What a resume ended: a pause and a hold end together.
  let ended = [];
  const worker = async () => {
    for (let next = requests.shift(); next; next = requests.shift()) {
      const answer = await send(next, why, to);
      if (answer.refused) refusals.push(answer.refused);
      else ended = answer.ended;
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  const taken = count - refusals.length;
  const was = ended.length ? ": it was " + ended.join("; ") : "";
  if (count === 1) say(refusals[0] || done + was + ".");
  else say(done + " for " + taken + " of " + count + " machines." + (refusals[0] ? " " + refusals[0] : ""));
  // A reason that was written meanwhile belongs to the next request.
  if (refusals.length === 0 && at("why") && reason() === written) at("why").value = "";
  sending.delete(button);
  button.removeAttribute("aria-disabled");
});

// Copies a command. A page that was not loaded over TLS has no clipboard: the command is selected instead.
async function copied(button) {
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    say("Copied.");
  } catch {
    getSelection().selectAllChildren(button.parentElement.querySelector("code"));
    say("Selected: copy it with your keyboard.");
  }
}

// A menu closes when the person presses Escape or turns to something else.
document.addEventListener("keydown", (event) => {
  const menu = event.key === "Escape" && event.target.closest("details.menu[open]");
  if (menu) { menu.open = false; menu.querySelector("summary").focus(); }
});
document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
});

nameZone();
localize(document);
live("wait", "connecting");
follow();
