// Lists whose rows wait: what is new stands behind a pill ("12 new"), and nothing moves under the pointer.
//
// A list is marked with `data-rows`, its rows have ids. What a row says is always brought up to date; that rows come,
// go or change places waits: in a list marked `wait` for the pill, in another while the pointer or focus is in it.

const pending = new Map();
let accepted = null;

const held = (list) => list.dataset.rows === "wait" || list.matches(":hover") || list.contains(document.activeElement);
const rowsOf = (list) => [...list.children].filter((row) => row.id);

// Gives the fresh list the order of the one that is on the page; returns how many of its rows are left out.
function settle(list, fresh) {
  const known = rowsOf(list);
  if (!known.length || !rowsOf(fresh).length || accepted === list.id || !held(list)) return 0;
  const coming = new Map(rowsOf(fresh).map((row) => [row.id, row]));
  const anchor = rowsOf(fresh).at(-1).nextSibling;
  const settled = known.map((row) => {
    const found = coming.get(row.id);
    coming.delete(row.id);
    if (found) return found;
    const gone = row.cloneNode(true);
    gone.classList.add("gone");
    return gone;
  });
  for (const row of rowsOf(fresh)) row.remove();
  for (const row of settled) fresh.insertBefore(row, anchor);
  return coming.size + settled.filter((row) => row.classList.contains("gone")).length;
}

document.body.addEventListener("htmx:beforeSwap", (event) => {
  const { target, xhr, requestConfig } = event.detail;
  if (target?.id !== "live" || requestConfig.triggeringEvent?.type !== "arrester:changed" || xhr.status !== 200) return;
  const parsed = new DOMParser().parseFromString(event.detail.serverResponse, "text/html");
  let changed = false;
  pending.clear();
  for (const list of document.querySelectorAll("[data-rows]")) {
    const fresh = parsed.getElementById(list.id);
    if (!fresh || !list.id) continue;
    const waiting = settle(list, fresh);
    if (waiting) pending.set(list.id, waiting);
    changed ||= waiting > 0;
  }
  accepted = null;
  if (changed) event.detail.serverResponse = parsed.head.innerHTML + parsed.body.innerHTML;
});

// The pills stand outside of what is morphed, so that a refresh leaves them alone.
function showPills() {
  const total = [...pending.values()].reduce((sum, count) => sum + count, 0);
  const pill = document.getElementById("pill");
  if (!pill) return;
  pill.hidden = total === 0;
  if (total) pill.querySelector("[data-word]").textContent = `${total} new`;
}

function accept(id) {
  accepted = id;
  for (const region of document.querySelectorAll("[data-live]")) htmx.trigger(region, "arrester:changed");
}

document.body.addEventListener("htmx:afterSwap", showPills);
document.addEventListener("click", (event) => {
  if (!event.target.closest("#pill")) return;
  for (const id of pending.keys()) document.getElementById(id)?.setAttribute("data-rows", "");
  document.activeElement?.blur();
  accept([...pending.keys()][0]);
});
// A list that only waited for the pointer to leave.
document.addEventListener("mouseout", (event) => {
  const list = event.target.closest?.("[data-rows]");
  if (!list || list.dataset.rows === "wait" || !pending.has(list.id) || list.contains(event.relatedTarget)) return;
  accept(list.id);
});

// Rows are selected, and buttons show how many.
function showTicks() {
  for (const form of document.querySelectorAll("form[data-ticked]")) {
    const boxes = [...document.querySelectorAll(`[data-tick][form="${form.id}"]:enabled`)];
    const ticked = boxes.filter((box) => box.checked).length;
    for (const button of form.querySelectorAll("button")) button.disabled = ticked === 0;
    for (const word of form.querySelectorAll("[data-word]")) word.textContent = ticked ? `${ticked} selected` : "selected";
    const all = document.querySelector(`[data-tick-all="${form.id}"]`);
    all.checked = ticked > 0 && ticked === boxes.length;
    all.indeterminate = ticked > 0 && ticked < boxes.length;
  }
}

document.addEventListener("change", ({ target }) => {
  if (target.matches("[data-tick-all]")) {
    const form = target.dataset.tickAll;
    for (const box of document.querySelectorAll(`[data-tick][form="${form}"]:enabled`)) box.checked = target.checked;
  }
  if (target.matches("[data-tick], [data-tick-all]")) showTicks();
});
document.body.addEventListener("htmx:afterSwap", showTicks);
showTicks();
