// Keeps the page true: the server says which applications moved, the page reads itself again.
//
// What refreshes is marked with `data-live` (its value: the applications it shows, empty for all). htmx fetches it
// on the event `arrester:changed` and morphs it in place: what did not change is not touched, so that focus,
// selection, scroll and opened details survive. Dialogs stand outside of these regions.

const GATHER_MS = 300;
const POLL_MS = 5000;
const SWITCH = "arrester-live";

const body = document.body;
const moved = new Set();
let source = null;
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

function connect() {
  disconnect();
  source = new EventSource(`${body.dataset.liveUrl}?position=${encodeURIComponent(position)}`);
  source.addEventListener("open", () => show(true));
  source.addEventListener("error", () => show(false));
  source.addEventListener("changed", (event) => {
    position = event.lastEventId || position;
    for (const name of event.data.split(" ")) gather(name);
  });
}

function disconnect() {
  source?.close();
  source = null;
  connected = false;
}

// A dropped connection is taken up again by the browser or, when it has given up, here; meanwhile we poll.
function poll() {
  if (!active()) return;
  if (source?.readyState === EventSource.CLOSED) connect();
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

function follow() {
  if (active()) {
    connect();
    // What happened while nobody looked.
    refresh(new Set(["*"]));
  } else {
    disconnect();
  }
  show(connected);
}

document.addEventListener("click", (event) => {
  if (!event.target.closest("[data-live-switch]")) return;
  localStorage.setItem(SWITCH, wanted() ? "off" : "on");
  follow();
});
document.addEventListener("visibilitychange", follow);
body.addEventListener("htmx:sendError", () => { reachable = false; show(connected); });
body.addEventListener("htmx:afterRequest", (event) => {
  if (event.detail.xhr?.status > 0) { reachable = event.detail.xhr.status < 500; show(connected); }
});
window.addEventListener("pagehide", disconnect);
window.addEventListener("pageshow", (event) => { if (event.persisted) follow(); });

if (body.dataset.liveUrl) {
  if (active()) connect();
  show(false);
  setInterval(poll, POLL_MS);
}
