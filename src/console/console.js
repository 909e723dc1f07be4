// Keeps the page up to date, and sends what its buttons ask. Everything shown is rendered by the server.
"use strict";

const said = document.getElementById("said");
const live = document.getElementById("live");

function say(text) {
  said.textContent = text;
  if (text) setTimeout(() => { if (said.textContent === text) said.textContent = ""; }, 8000);
}

let loading = false;
let again = false;

async function load() {
  if (loading) { again = true; return; }
  loading = true;
  const begun = performance.now();
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.querySelector("main");
    const selecting = String(getSelection()) !== "";
    if (fresh && !selecting) document.querySelector("main").replaceWith(fresh);
  } catch { /* the stream below says when the server is back */ }
  // A large fleet takes a while to fetch and to lay out: at most a fifth of the time is spent on it.
  const pause = Math.max(500, 4 * (performance.now() - begun));
  setTimeout(() => { loading = false; if (again) { again = false; load(); } }, pause);
}

function follow() {
  const changes = new EventSource("/api/v1/changes");
  let whole = false;
  changes.addEventListener("reset", () => { whole = false; });
  changes.addEventListener("complete", () => { whole = true; load(); });
  for (const kind of ["run", "forgotten"]) changes.addEventListener(kind, () => { if (whole) load(); });
  changes.onopen = () => { live.textContent = "live"; live.dataset.on = "yes"; };
  changes.onerror = () => { live.textContent = "not connected"; live.dataset.on = "no"; };
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-post]");
  if (!button) return;
  if (button.dataset.sure && !confirm(button.dataset.sure)) return;
  button.disabled = true;
  const id = "console-" + Array.from(crypto.getRandomValues(new Uint8Array(12)), (b) => b.toString(16).padStart(2, "0")).join("");
  try {
    const answer = await fetch(button.dataset.post, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ id, who: "console" }),
    });
    const told = await answer.json();
    say(answer.ok ? "It was taken." : told.error + ": " + told.whatToDo);
  } catch (error) {
    say("No answer: " + error);
  }
  button.disabled = false;
  load();
});

follow();
// What lies between two changes (how far a task is, how long ago something was) is fetched now and then.
setInterval(load, 5000);
