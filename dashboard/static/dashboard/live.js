// Live updates: the server reports the changed applications, and the page refreshes.
//
// A region with `data-live` is refreshed; its value names the applications that it shows, and is empty for all. On the
// event `arrester:changed` htmx fetches the region and morphs it in place: unchanged elements keep focus, selection,
// scroll and opened details. Dialogs are outside of these regions. All windows of a browser share one stream
// (`stream.js`, in a shared worker): HTTP/1.1 allows six connections only.

import { check, isLost } from "./connection.js";

const GATHER_MS = 300;
const POLL_MS = 5000;
const HIDDEN_POLL_MS = 30_000;
const SWITCH = "arrester-live";

const body = document.body;
const streamUrl = new URL("stream.js", import.meta.url);
const changed = new Set();
let port = null;
let position = body.dataset.position;
let gathering = null;
let connected = false;
let titled = Date.now();
const begun = new WeakMap();
let acted = 0;

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
  changed.add(application);
  gathering ??= setTimeout(() => {
    gathering = null;
    const now = new Set(changed);
    changed.clear();
    if (active()) refresh(now);
  }, GATHER_MS);
}

function receive({ data: message }) {
  if (message.kind === "state") {
    // A stream that ends is the first sign of a server that ends; one that opens, of a server that is back.
    if (message.connected !== connected && (connected || isLost())) check();
    show(message.connected);
  }
  if (message.kind !== "changed") return;
  position = message.position || position;
  for (const name of message.names) gather(name);
}

function send(kind) {
  port?.postMessage({ kind, position, url: new URL(body.dataset.liveUrl, location).href });
}

// A browser without shared workers (some phones) has one visible page: it gets its own worker.
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
  port.addEventListener("message", receive);
}

// Subscribe with the position of this page; a page with an older position is refreshed.
function follow() {
  if (active()) {
    open();
    send("look");
  } else {
    send("leave");
    connected = false;
  }
  show(connected);
}

// The title of a hidden page has the number of problems; nothing else of it is refreshed.
async function pollTitle() {
  titled = Date.now();
  const response = await fetch(body.dataset.problemsUrl).catch(() => null);
  if (!response?.ok || response.redirected) return;
  const number = Number(await response.text());
  const title = document.title.replace(/^\([\d,]+\) /, "");
  document.title = number ? `(${number.toLocaleString("en")}) ${title}` : title;
}

function poll() {
  if (document.hidden && wanted() && Date.now() - titled >= HIDDEN_POLL_MS) pollTitle();
  if (!active()) return;
  open();
  send("look");
  // `connection.js` tries again.
  if (isLost()) return;
  // A refresh that takes so long may be sent to a server that hangs.
  if (document.querySelector("[data-live].htmx-request")) check();
  if (!connected) refresh(new Set(["*"]));
  else for (const region of document.querySelectorAll("[data-poll]")) htmx.trigger(region, "arrester:changed");
}

function show(isConnected) {
  connected = isConnected;
  const state = !wanted() ? "off" : isLost() ? "unreachable" : connected ? "on" : "polling";
  const words = { on: "Live", off: "Live off", polling: "Polling", unreachable: "Unreachable" };
  const seconds = `every ${POLL_MS / 1000} s`;
  const titles = {
    on: "This page is updated at each change. Click to stop.",
    off: "This page is not updated. Click to update it live.",
    polling: `No event stream: this page is updated ${seconds}. Click to stop.`,
    unreachable: `The server does not answer: it is tried again ${seconds}.`,
  };
  for (const button of document.querySelectorAll("[data-live-switch]")) {
    button.dataset.state = state;
    button.setAttribute("aria-pressed", String(wanted()));
    button.querySelector("[data-word]").textContent = words[state];
    button.title = titles[state];
  }
}

function resume() {
  follow();
  // Changes while the page was hidden.
  if (active()) refresh(new Set(["*"]));
}

document.addEventListener("click", (event) => {
  if (!event.target.closest("[data-live-switch]")) return;
  localStorage.setItem(SWITCH, wanted() ? "off" : "on");
  resume();
});
document.addEventListener("visibilitychange", resume);
body.addEventListener("arrester:connection", () => {
  if (isLost()) show(connected);
  else resume();
});
// A refresh that began before the result of an act may show the state before it: it is repeated.
body.addEventListener("htmx:beforeSend", ({ detail }) => begun.set(detail.xhr, performance.now()));
body.addEventListener("htmx:beforeSwap", ({ detail }) => {
  if (detail.target.id !== "live") return;
  if (detail.requestConfig.verb !== "get") acted = performance.now();
  else if (begun.get(detail.xhr) < acted) {
    detail.shouldSwap = false;
    gather("*");
  }
});
window.addEventListener("pagehide", () => { send("leave"); connected = false; });
window.addEventListener("pageshow", (event) => { if (event.persisted) resume(); });

if (body.dataset.liveUrl) {
  follow();
  setInterval(poll, POLL_MS);
}
