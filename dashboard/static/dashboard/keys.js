// Keyboard shortcuts. They move, open, or focus a button; none of them performs an action.

const SWITCH = "arrester-keys";
const GO_MS = 1500;
let goPressedAt = 0;

const on = () => localStorage.getItem(SWITCH) !== "off";
const busy = (target) => target.closest?.("input:not([type=checkbox]), textarea, select, [contenteditable]") || document.querySelector("dialog[open]");
const links = () => [...document.querySelectorAll("[data-rows] > [id] a.row-link, [data-rows] > [id] > a.cell")]
  .filter((link) => link.offsetParent);

function move(step) {
  const all = links();
  const at = all.findIndex((link) => link.closest("[id]").contains(document.activeElement));
  const next = all[at === -1 ? (step > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + step, 0), all.length - 1)];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

// A button that opens a dialog is pressed; any other button is only focused.
function focusButton(key) {
  const target = document.querySelector(`[data-key="${key}"]:not(:disabled)`);
  if (!target) return false;
  target.focus();
  if (target.closest("[hx-target]")?.getAttribute("hx-target") === "#dialog" || target.matches("a")) target.click();
  return true;
}

function selectRow() {
  document.activeElement?.closest("[data-rows] > [id]")?.querySelector("input[type=checkbox]")?.click();
}

const KEYS = {
  j: () => move(1),
  k: () => move(-1),
  x: selectRow,
  "/": () => document.querySelector("form.filters input[type=search]")?.focus(),
  "[": () => document.querySelector("a[rel=prev]")?.click(),
  "]": () => document.querySelector("a[rel=next]")?.click(),
  ".": () => document.querySelector("[data-live-switch]")?.click(),
  "?": () => document.getElementById("keys")?.showModal(),
  g: () => { goPressedAt = Date.now(); },
};

// ── search ───────────────────────────────────────────────────────────────────────────────────

const search = document.getElementById("search");

function openSearch(event) {
  if (!search || document.querySelector("dialog[open]")) return;
  event.preventDefault();
  search.showModal();
  search.querySelector("input").select();
}

document.addEventListener("click", (event) => {
  if (event.target.closest("[data-search]") && !event.ctrlKey && !event.metaKey) openSearch(event);
});
document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key === "k" && on()) openSearch(event);
});
// The arrows move between field and results; Enter in the field opens the first one, when it is
// that of the text: the answer to the last letters may still come.
let opensFirst = false;

function openFirst() {
  const found = search.querySelector("[data-found]");
  const text = search.querySelector("input").value.trim();
  if (found?.dataset.found !== text) return;
  opensFirst = false;
  const first = search.querySelector("#found a");
  if (first) first.click();
  else search.querySelector("form").submit();
}

search?.querySelector("#found").addEventListener("htmx:afterSwap", () => { if (opensFirst) openFirst(); });
search?.querySelector("input").addEventListener("input", () => { opensFirst = false; });
search?.addEventListener("keydown", (event) => {
  const stops = [search.querySelector("input"), ...search.querySelectorAll("#found a")];
  const at = stops.indexOf(document.activeElement);
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (event.key === "Escape") {
    // Otherwise the first press only empties the field.
    event.preventDefault();
    search.close();
  } else if (step && at >= 0) {
    event.preventDefault();
    stops[Math.min(Math.max(at + step, 0), stops.length - 1)].focus();
  } else if (event.key === "Enter" && at === 0 && stops[0].value.trim()) {
    event.preventDefault();
    opensFirst = true;
    openFirst();
  }
});

document.addEventListener("keydown", (event) => {
  const { key, target } = event;
  if (event.ctrlKey || event.metaKey || event.altKey || busy(target)) return;
  if (key !== "?" && !on()) return;
  const afterGo = Date.now() - goPressedAt < GO_MS;
  goPressedAt = 0;
  if (afterGo) {
    const link = document.querySelector(`[data-go="${CSS.escape(key)}"]`);
    if (link) { event.preventDefault(); location.assign(link.href); }
  } else if (Object.hasOwn(KEYS, key)) {
    event.preventDefault();
    KEYS[key]();
  } else if (["r", "e", "m"].includes(key) && focusButton(key)) {
    event.preventDefault();
  }
});

function showSwitch() {
  const box = document.querySelector("[data-keys-switch]");
  if (box) box.checked = on();
}

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-keys-switch]")) localStorage.setItem(SWITCH, event.target.checked ? "on" : "off");
});
document.addEventListener("click", (event) => {
  if (event.target.closest("[data-keys]")) document.getElementById("keys").showModal();
});
showSwitch();
