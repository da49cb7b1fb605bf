// Lists that do not move under the pointer.
//
// A list has `data-rows`, and its rows have ids. The content of rows is always updated. Added, removed and moved rows
// wait: in a list with `data-rows="wait"` for the button "Show 12 changes", in others while pointer or focus is in it.

const pending = new Map();
let accepted = null;

const isFrozen = (list) => list.dataset.rows === "wait" || list.matches(":hover") || list.contains(document.activeElement);
const rowsOf = (list) => [...list.children].filter((row) => row.id);

// Give the fresh list the order of the one on the page; return the number of rows that are added or removed.
function settle(list, fresh) {
  const known = rowsOf(list);
  if (!known.length || !rowsOf(fresh).length || accepted === list.id || !isFrozen(list)) return 0;
  const added = new Map(rowsOf(fresh).map((row) => [row.id, row]));
  const anchor = rowsOf(fresh).at(-1).nextSibling;
  const settled = known.map((row) => {
    const found = added.get(row.id);
    added.delete(row.id);
    if (found) return found;
    const removed = row.cloneNode(true);
    removed.classList.add("removed");
    return removed;
  });
  for (const row of rowsOf(fresh)) row.remove();
  for (const row of settled) fresh.insertBefore(row, anchor);
  return added.size + settled.filter((row) => row.classList.contains("removed")).length;
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

// The button is outside of the refreshed region.
function showPills() {
  const total = [...pending.values()].reduce((sum, count) => sum + count, 0);
  const pill = document.getElementById("pill");
  if (!pill) return;
  pill.hidden = total === 0;
  if (total) pill.querySelector("[data-word]").textContent = total === 1 ? "1 change" : `${total} changes`;
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
// The pointer leaves a list: show its changes.
document.addEventListener("mouseout", (event) => {
  const list = event.target.closest?.("[data-rows]");
  if (!list || list.dataset.rows === "wait" || !pending.has(list.id) || list.contains(event.relatedTarget)) return;
  accept(list.id);
});

// Selected rows: the buttons show their number.
function showSelected() {
  for (const form of document.querySelectorAll("form[data-selection]")) {
    const boxes = [...document.querySelectorAll(`[data-select][form="${form.id}"]:enabled`)];
    // A row that was discarded or redriven can no longer be selected.
    for (const box of document.querySelectorAll(`[data-select][form="${form.id}"]:disabled`)) box.checked = false;
    const chosen = boxes.filter((box) => box.checked), selected = chosen.length;
    for (const button of form.querySelectorAll("button")) button.disabled = selected === 0;
    for (const button of form.querySelectorAll("button[data-alike]")) refuse(button, chosen);
    for (const word of form.querySelectorAll("[data-word]")) word.textContent = selected ? `${selected} selected` : "selected";
    const all = document.querySelector(`[data-select-all="${form.id}"]`);
    all.checked = selected > 0 && selected === boxes.length;
    all.indeterminate = selected > 0 && selected < boxes.length;
  }
}

// A redrive is for the dead letters of one pipeline and checkpoint. Another one would be refused: its button has the reason.
function refuse(button, chosen) {
  const reason = new Set(chosen.map((box) => box.dataset.place)).size > 1
    ? "the selected ones are of several pipelines or checkpoints"
    : chosen[0]?.dataset.refused ?? "";
  button.disabled ||= reason !== "";
  const shown = document.getElementById(button.getAttribute("aria-describedby"));
  shown.hidden = reason === "";
  shown.textContent = reason && `Redrive is not possible now: ${reason}.`;
}

document.addEventListener("change", ({ target }) => {
  if (target.matches("[data-select-all]")) {
    const form = target.dataset.selectAll;
    for (const box of document.querySelectorAll(`[data-select][form="${form}"]:enabled`)) box.checked = target.checked;
  }
  if (target.matches("[data-select], [data-select-all]")) showSelected();
});
document.body.addEventListener("htmx:afterSwap", showSelected);
showSelected();
