// What a page does by itself: theme, dialogs, ticking times, copying, and what a refresh must not undo.

const THEME = "arrester-theme";
const root = document.documentElement;

// ── theme ────────────────────────────────────────────────────────────────────────────────────

function theme() {
  return root.dataset.theme ?? "system";
}

function showTheme() {
  for (const button of document.querySelectorAll("[data-theme-switch]")) {
    button.dataset.state = theme();
    button.title = `Theme: ${theme()}`;
    button.querySelector("[data-word]").textContent = `Theme: ${theme()}`;
  }
}

function nextTheme() {
  const order = ["system", "light", "dark"];
  const next = order[(order.indexOf(theme()) + 1) % order.length];
  if (next === "system") {
    delete root.dataset.theme;
    localStorage.removeItem(THEME);
  } else {
    root.dataset.theme = next;
    localStorage.setItem(THEME, next);
  }
  showTheme();
}

// ── times ────────────────────────────────────────────────────────────────────────────────────

// The same words as the server's `ago`.
function ago(seconds) {
  if (seconds < 0) return "just now";
  const steps = [[60, 1, "s"], [3600, 60, "min"], [172800, 3600, "h"], [Infinity, 86400, "d"]];
  const [, unit, name] = steps.find(([limit]) => seconds < limit);
  return `${Math.floor(seconds / unit)} ${name} ago`;
}

function left(seconds) {
  if (seconds <= 0) return "any moment now";
  const minutes = Math.floor(seconds / 60);
  return `in ${minutes}:${String(Math.floor(seconds % 60)).padStart(2, "0")} min`;
}

// The difference between the server's clock and this one, so that a wrong clock here tells no lies.
const skew = Date.now() - Date.parse(document.body.dataset.now);

function tick() {
  const now = Date.now() - skew;
  for (const time of document.querySelectorAll("time[data-ago], time[data-left]")) {
    const seconds = (now - Date.parse(time.dateTime)) / 1000;
    const text = "ago" in time.dataset ? ago(seconds) : left(-seconds);
    if (time.textContent !== text) time.textContent = text;
  }
}

// ── dialogs ──────────────────────────────────────────────────────────────────────────────────

const dialog = document.getElementById("dialog");

document.body.addEventListener("htmx:afterSwap", (event) => {
  if (event.detail.target.id === "dialog" && dialog.childElementCount && !dialog.open) dialog.showModal();
});
document.body.addEventListener("arrester:done", () => dialog?.close());
dialog?.addEventListener("close", () => dialog.replaceChildren());

// A shutdown asks for the application's name: the button waits until it is there.
document.addEventListener("input", (event) => {
  const form = event.target.closest("form[data-confirm]");
  if (form) checkForm(form);
});

function checkForm(form) {
  const name = form.querySelector("[data-confirm-with]");
  const typed = !name || name.value === name.dataset.confirmWith;
  form.querySelector("[type=submit]").disabled = !typed;
}

// Enter in a text field never fires an action.
document.addEventListener("keydown", (event) => {
  const field = event.target;
  if (event.key === "Enter" && field.matches("dialog input")) event.preventDefault();
});

// ── clicks ───────────────────────────────────────────────────────────────────────────────────

document.addEventListener("click", async (event) => {
  const target = event.target.closest("[data-theme-switch], [data-close], [data-copy], [data-dismiss]");
  if (!target) return;
  if (target.matches("[data-theme-switch]")) nextTheme();
  if (target.matches("[data-close]")) dialog.close();
  if (target.matches("[data-dismiss]")) target.closest(".notice").remove();
  if (target.matches("[data-copy]")) await copy(target);
});

async function copy(button) {
  const text = document.getElementById(button.dataset.copy).textContent;
  try {
    await navigator.clipboard.writeText(text);
    said(button, "Copied");
  } catch {
    // Clipboards need https or localhost: select it instead, the rest is Ctrl-C.
    getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
    said(button, "Selected");
  }
}

function said(button, word) {
  const before = button.textContent;
  button.textContent = word;
  setTimeout(() => { button.textContent = before; }, 1500);
}

// ── what a refresh must not undo ─────────────────────────────────────────────────────────────

Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, node) =>
  !(name === "open" && node.matches("details"));
// What somebody is typing.
Idiomorph.defaults.callbacks.beforeNodeMorphed = (node) =>
  !(node.nodeType === Node.ELEMENT_NODE && node.matches("form.filters"));

document.querySelector(".sections [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });
document.body.addEventListener("htmx:afterSettle", tick);
showTheme();
tick();
setInterval(tick, 1000);
