// Theme, dialogs, menus, copy buttons, and state that a refresh must keep.

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

// ── current section ─────────────────────────────────────────────────────────────────────────────

// On a phone the row of sections is longer than the window.
document.querySelector(".sections-row [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

// ── dialogs and menus ────────────────────────────────────────────────────────────────────────

const dialog = document.getElementById("dialog");

document.body.addEventListener("htmx:afterSwap", (event) => {
  if (event.detail.target.id !== "dialog" || !dialog.childElementCount || dialog.open) return;
  for (const menu of document.querySelectorAll("details.menu[open]")) menu.open = false;
  dialog.showModal();
});
// A closed dialog stays closed when what it asked for is answered later; the refusal of an act is shown.
document.body.addEventListener("htmx:beforeSwap", (event) => {
  const { elt, verb } = event.detail.requestConfig;
  if (event.detail.target.id === "dialog" && verb === "get" && !elt.isConnected) event.detail.shouldSwap = false;
});
document.body.addEventListener("arrester:done", () => dialog?.close());
dialog?.addEventListener("close", () => dialog.replaceChildren());

// The type of a field of a record decides which values it may have.
document.addEventListener("change", (event) => {
  const of = event.target.dataset.kindOf;
  const field = of && event.target.form.elements[of];
  if (!field) return;
  const kind = event.target.selectedOptions[0];
  field.disabled = kind.value === "NULL";
  if (kind.dataset.pattern) field.pattern = kind.dataset.pattern;
  else field.removeAttribute("pattern");
});

// The result of a test belongs to the patch that was tested: it goes with the next change.
document.addEventListener("input", (event) => {
  const result = document.getElementById(event.target.dataset.outdates ?? "");
  // A copy: an answer that is on its way has no place any more.
  if (result) result.outerHTML = '<div id="record-test" role="status"></div>';
});

// The button to shut down is disabled until the application's name is typed.
document.addEventListener("input", (event) => {
  const form = event.target.closest("form[data-confirm]");
  if (form) checkForm(form);
});

function checkForm(form) {
  const name = form.querySelector("[data-confirm-with]");
  const typed = !name || name.value === name.dataset.confirmWith;
  form.querySelector("[type=submit]").disabled = !typed;
}

// Enter in a text field never fires an action; a menu closes on Escape.
document.addEventListener("keydown", (event) => {
  const field = event.target;
  if (event.key === "Enter" && field.matches("dialog input:not([type=search]), dialog select")) event.preventDefault();
  const menu = event.key === "Escape" && field.closest("details.menu[open]");
  if (menu) {
    menu.open = false;
    menu.querySelector("summary").focus();
  }
});
document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!menu.contains(event.target)) menu.open = false;
  }
});

// ── remembered choices: form of traces and records ────────────────────────

const CHOICE = "arrester-choice-";

function showChoices() {
  for (const group of document.querySelectorAll("[data-choice]")) {
    const buttons = [...group.querySelectorAll("[data-choose]")];
    const remembered = localStorage.getItem(CHOICE + group.dataset.choice);
    const chosen = buttons.find((button) => button.dataset.choose === remembered) ?? buttons[0];
    for (const button of buttons) button.setAttribute("aria-pressed", String(button === chosen));
    for (const form of group.querySelectorAll("[data-form-of]")) {
      form.hidden = form.dataset.formOf !== chosen?.dataset.choose;
      // What is not shown is not sent.
      if (form.matches("fieldset")) form.disabled = form.hidden;
    }
  }
}

// ── clicks ───────────────────────────────────────────────────────────────────────────────────

document.addEventListener("click", async (event) => {
  const target = event.target.closest("[data-theme-switch], [data-close], [data-copy], [data-dismiss], [data-choose]");
  if (!target) return;
  if (target.matches("[data-theme-switch]")) nextTheme();
  if (target.matches("[data-close]")) target.closest("dialog").close();
  if (target.matches("[data-dismiss]")) target.closest(".notice").remove();
  if (target.matches("[data-copy]")) await copy(target);
  if (target.matches("[data-choose]")) {
    localStorage.setItem(CHOICE + target.closest("[data-choice]").dataset.choice, target.dataset.choose);
    showChoices();
  }
});

async function copy(button) {
  const source = document.getElementById(button.dataset.copy);
  try {
    await navigator.clipboard.writeText(source.dataset.text ?? source.textContent);
    showLabel(button, "Copied");
  } catch {
    // The clipboard needs https or localhost. Otherwise select the text for Ctrl-C.
    getSelection().selectAllChildren(source);
    showLabel(button, "Selected");
  }
}

function showLabel(button, label) {
  const before = button.textContent;
  button.textContent = label;
  setTimeout(() => { button.textContent = before; }, 1500);
}

// ── state that a refresh must keep ─────────────────────────────────────────────────────────────

Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, node) =>
  !(name === "open" && node.matches("details")) && !(name === "hidden" && node.matches("[data-form-of]"))
  && !(name === "checked" && node.matches("[data-select]"));
// Typed text: filters, and a note until it is sent.
Idiomorph.defaults.callbacks.beforeNodeMorphed = (node) =>
  !(node.nodeType === Node.ELEMENT_NODE && (node.matches("form.filters") || isUnsentNote(node)));
const isUnsentNote = (node) =>
  node.matches("form.note") && !("sent" in node.dataset) && node.querySelector("textarea").value !== "";
document.body.addEventListener("htmx:beforeRequest", (event) => {
  if (event.target.matches("form.note")) event.target.dataset.sent = "";
});
document.body.addEventListener("htmx:afterRequest", (event) => {
  if (event.target.matches?.("form.note") && !event.detail.successful) delete event.target.dataset.sent;
});

document.querySelector(".sections [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });
document.body.addEventListener("htmx:afterSwap", showChoices);
showChoices();
showTheme();
