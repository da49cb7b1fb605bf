// Whether the server answers, and which requests failed.
//
// While the server does not answer, a banner shows for how long and when the page tries again, buttons that act are
// disabled with the reason, and typed text stays. A failed request is named in a notice, or in the dialog that sent it.

const RETRY_MS = 5000;
const ANSWER_MS = 5000;
const POST_MS = 30_000;
// From a proxy, or without PostgreSQL. A 500 is the fault of one page.
const AWAY = [502, 503, 504];
const ACTS = "button:not([type=button]), button[hx-get]";

const body = document.body;
const banner = document.getElementById("offline");
const skew = Date.now() - Date.parse(body.dataset.now);
let lost = null;
let asking = null;

export const isLost = () => lost !== null;

// ── is the server there? ─────────────────────────────────────────────────────────────────────

// Ask the server now; `arrester:connection` is sent when it is lost, and when it is back.
export function check() {
  if (!body.dataset.problemsUrl) return;
  asking ??= ask().then((reason) => {
    asking = null;
    const before = lost;
    lost = reason ? { reason, since: before?.since ?? Date.now(), next: Date.now() + RETRY_MS } : null;
    if (!before !== !lost) body.dispatchEvent(new Event("arrester:connection"));
    if (before || lost) show();
  });
}

// Return why the server cannot be used; empty if it can.
async function ask() {
  try {
    const response = await fetch(body.dataset.problemsUrl, { signal: AbortSignal.timeout(ANSWER_MS) });
    if (!AWAY.includes(response.status)) return "";
    return messageIn(await response.text()) || `The server cannot be used: ${response.status} ${response.statusText}.`;
  } catch {
    return navigator.onLine ? "The server does not answer." : "This device has no network.";
  }
}

function messageIn(html) {
  return new DOMParser().parseFromString(html, "text/html").querySelector("main p")?.textContent.trim();
}

// ── what the person sees ─────────────────────────────────────────────────────────────────────

function show() {
  banner.hidden = !lost;
  setText(banner.querySelector("[data-word]"), lost ? `${lost.reason} This page shows its last known state.` : "");
  for (const control of document.querySelectorAll(ACTS)) mark(control);
  showInDialogs();
  showTime();
}

// Not `disabled`: other scripts, and htmx during a request, set that. A click is stopped below.
function mark(control) {
  const marked = control.hasAttribute("data-title");
  if (lost && !marked) {
    control.dataset.title = control.title;
    control.setAttribute("aria-disabled", "true");
  }
  if (lost) control.title = lost.reason;
  else if (marked) {
    control.title = control.dataset.title;
    control.removeAttribute("data-title");
    control.removeAttribute("aria-disabled");
  }
}

// The banner is behind an open dialog.
function showInDialogs() {
  for (const line of document.querySelectorAll("[data-offline]")) if (!lost) line.remove();
  const dialog = lost && document.querySelector("dialog[open]");
  if (!dialog) return;
  let line = dialog.querySelector("[data-offline]");
  if (!line) {
    line = document.createElement("p");
    line.dataset.offline = "";
    line.className = "banner bad";
    line.setAttribute("role", "alert");
    dialog.prepend(line);
  }
  setText(line, `${lost.reason} Typed text stays here.`);
}

function showTime() {
  if (!lost) return;
  const passed = Math.round((Date.now() - lost.since) / 1000);
  const left = Math.ceil((lost.next - Date.now()) / 1000);
  const age = passed < 60 ? `${passed} s` : `${Math.floor(passed / 60)} min ${passed % 60} s`;
  const next = asking || left <= 0 ? "Trying again now." : `Next try in ${left} s.`;
  banner.querySelector("time").dateTime = new Date(lost.since - skew).toISOString();
  setText(banner.querySelector("[data-age]"), `(${age}). ${next}`);
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function tick() {
  if (!lost || document.hidden) return;
  if (Date.now() >= lost.next) check();
  showTime();
}

function stop(event) {
  if (!lost || !(event.type === "submit" || event.target.closest?.(ACTS))) return;
  event.preventDefault();
  event.stopImmediatePropagation();
}

// ── failed requests ──────────────────────────────────────────────────────────────────────────

// Return the words on the control that sent a request; empty for a refresh of the page.
function nameOf(element, config) {
  if (element.matches("[data-live]")) return "";
  const sender = config.triggeringEvent?.submitter ?? element;
  const button = sender.matches("form") ? sender.querySelector("button:not([type=button])") : sender;
  const words = button?.getAttribute("aria-label") ?? button?.textContent ?? "";
  return words.replace(/\s+/g, " ").replace(/…$/, "").trim() || "The request";
}

function report(name, text) {
  const place = document.querySelector("dialog[open]") ?? document.getElementById("notices");
  const notice = document.getElementById("failed").content.firstElementChild.cloneNode(true);
  notice.dataset.failed = name;
  notice.querySelector("p").textContent = text;
  dismiss(name);
  place.prepend(notice);
}

function dismiss(name) {
  for (const notice of document.querySelectorAll("[data-failed]")) if (notice.dataset.failed === name) notice.remove();
}

// The events of htmx for this are sent from the form, and lost if a refresh has removed it meanwhile.
function watch({ target, detail }) {
  const { xhr, requestConfig } = detail;
  const name = nameOf(target, requestConfig);
  const isRead = requestConfig.verb === "get";
  const isOnce = target.querySelector("[name=id]") !== null;
  xhr.addEventListener("error", () => unanswered(name, "no answer", isRead, isOnce));
  xhr.addEventListener("timeout", () => unanswered(name, "no answer in time", isRead, isOnce));
}

function unanswered(name, why, isRead, isOnce) {
  check();
  // The banner is enough for a refresh.
  if (!name) return;
  const next = isRead ? "Try again when the server answers."
    : `It is unknown whether the server has executed it. ${isOnce
      ? "Repeat it when the server answers: the same form is executed once."
      : "Check the result before you repeat it."}`;
  report(name, `${name}: ${why}. ${next}`);
}

function answered({ target, detail }) {
  const { xhr, requestConfig } = detail;
  const name = nameOf(target, requestConfig);
  if (!xhr?.status) return;
  if (xhr.status < 400) {
    dismiss(name);
    if (lost) check();
    return;
  }
  if (AWAY.includes(xhr.status)) check();
  const shown = [400, 409].includes(xhr.status) && xhr.getResponseHeader("HX-Reswap") !== "none";
  if (shown || xhr.getResponseHeader("HX-Redirect") || (!name && AWAY.includes(xhr.status))) return;
  const text = messageIn(xhr.responseText) || `${xhr.status} ${xhr.statusText}`;
  report(name, name ? `${name}: ${text}` : `This page cannot be updated, and shows an earlier state: ${text}`);
}

body.addEventListener("htmx:configRequest", ({ detail }) => { if (detail.verb !== "get") detail.timeout = POST_MS; });
body.addEventListener("htmx:beforeSend", watch);
body.addEventListener("htmx:afterRequest", answered);
body.addEventListener("htmx:afterSwap", () => { if (lost) show(); });
document.addEventListener("click", stop, true);
document.addEventListener("submit", stop, true);
document.addEventListener("visibilitychange", () => { if (lost && !document.hidden) check(); });
window.addEventListener("online", check);
window.addEventListener("offline", check);
banner?.querySelector("[data-retry]").addEventListener("click", check);
setInterval(tick, 1000);
