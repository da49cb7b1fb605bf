// Keeps the page true: the server says which applications moved, the page reads itself again.
//
// What refreshes is marked with `data-live` (its value: the applications it shows, empty for all). htmx fetches it
// on the event `arrester:changed` and morphs it in place: what did not change is not touched, so that focus,
// selection, scroll and opened details survive. Dialogs stand outside of these regions. All windows of a browser
// share one stream (`stream.js`, in a shared worker): with one each, the seventh would wait for ever on HTTP/1.1.

const GATHER_MS = 300;
const POLL_MS = 5000;
const SWITCH = "arrester-live";

const body = document.body;
const streamUrl = new URL("stream.js", import.meta.url);
const moved = new Set();
let port = null;
let position = body.dataset.position;
let gathering = null;
let connected = false;
let reachable = true;

const wanted = () => localStorage.getItem(SWITCH) !== "off";
const active = () => wanted() && !document.hidden;

function refresh(applications) {
  for (const region of document.querySelectorAll("[data-live]")) {
    const shown = region.dataset.live.split(" ").filter(Boolean);
    const all = applications.has("*") || shown.length === 0;
    if (all || shown.some((name) => applications.has(name))) {
      htmx.trigger(region, "arrester:changed");
    }
  }
}

function gather(application) {
  moved.add(application);
  gathering ??= setTimeout(() => {
    gathering = null;
    const now = new Set(moved);
    moved.clear();
    if (active()) refresh(now);
  }, GATHER_MS);
}

function heard({ data: said }) {
  if (said.kind === "state") show(said.connected);
  if (said.kind !== "changed") return;
  position = said.position || position;
  for (const name of said.names) gather(name);
}

function say(kind) {
  port?.postMessage({ kind, position, url: new URL(body.dataset.liveUrl, location).href });
}

// Where browsers have no shared workers (some phones) the page has a worker of its own: one stays visible there.
function open() {
  if (port) return;
  if (window.SharedWorker) {
    const worker = new SharedWorker(streamUrl, { name: "arrester-stream" });
    worker.addEventListener("error", () => { port = null; show(false); });
    port = worker.port;
    port.start();
  } else {
    port = new Worker(streamUrl);
  }
  port.addEventListener("message", heard);
}

// Says that this page looks, and on which position it stands; whoever is behind is told to read again.
function follow() {
  if (active()) {
    open();
    say("look");
  } else {
    say("leave");
    connected = false;
  }
  show(connected);
}

function poll() {
  if (!active()) return;
  open();
  say("look");
  if (!connected) refresh(new Set(["*"]));
  else for (const region of document.querySelectorAll("[data-poll]")) htmx.trigger(region, "arrester:changed");
}

function show(isConnected) {
  connected = isConnected;
  const state = !wanted() ? "off" : !reachable ? "away" : connected ? "on" : "polling";
  const words = { on: "Live", off: "Live is off", polling: "Every 5 s", away: "Server away" };
  for (const button of document.querySelectorAll("[data-live-switch]")) {
    button.dataset.state = state;
    button.setAttribute("aria-pressed", String(wanted()));
    button.querySelector("[data-word]").textContent = words[state];
  }
}

function woken() {
  follow();
  // What happened while nobody looked.
  if (active()) refresh(new Set(["*"]));
}

document.addEventListener("click", (event) => {
  if (!event.target.closest("[data-live-switch]")) return;
  localStorage.setItem(SWITCH, wanted() ? "off" : "on");
  woken();
});
document.addEventListener("visibilitychange", woken);
body.addEventListener("htmx:sendError", () => { reachable = false; show(connected); });
body.addEventListener("htmx:afterRequest", (event) => {
  if (event.detail.xhr?.status > 0) { reachable = event.detail.xhr.status < 500; show(connected); }
});
window.addEventListener("pagehide", () => { say("leave"); connected = false; });
window.addEventListener("pageshow", (event) => { if (event.persisted) woken(); });

if (body.dataset.liveUrl) {
  follow();
  setInterval(poll, POLL_MS);
}
