// Charts: the values of a column at the pointer, on touch and by keys; a dragged range becomes the time range of the page.
//
// The values are those of the table behind the chart, so both have the same texts. All charts of a page show the column
// of the same time. A refresh replaces all that is drawn here; it is drawn again for the same times.

import { clock, day } from "./times.js";

const SCROLL = "arrester-scroll";
// A shorter drag is a click.
const DRAG_PX = 5;
const SVG = "http://www.w3.org/2000/svg";

// The chart whose values are shown, by its id; the time at the pointer, and that at which a selection began.
let shown = null;
let dragged = null;

const figureOf = (target) => target.closest?.("[data-chart]");
const plotOf = (figure) => figure.querySelector("svg.chart");
const start = (figure) => Date.parse(figure.dataset.start);
const step = (figure) => Number(figure.dataset.step) * 1000;
const last = (figure) => Number(figure.dataset.columns) - 1;
const clamped = (figure, column) => Math.min(Math.max(column, 0), last(figure));
const moment = (figure, column) => start(figure) + column * step(figure);
const columnOf = (figure, time) => clamped(figure, Math.floor((time - start(figure)) / step(figure)));

function columnAt(figure, x) {
  const box = plotOf(figure).getBoundingClientRect();
  return clamped(figure, Math.floor(((x - box.left) / box.width) * (last(figure) + 1)));
}

// ── values ───────────────────────────────────────────────────────────────────────────────────

// The name, the value and the colour of each series in a column; a row that the table leaves out has zeros only.
function values(figure, column) {
  const table = figure.parentElement.querySelector(`#${figure.id} ~ .table-behind table`);
  const [, ...heads] = table.tHead.rows[0].cells;
  const row = table.querySelector(`tr[data-at="${column}"]`);
  return heads.map((head, index) => ({
    name: head.textContent,
    ink: head.dataset.ink,
    isNumber: head.matches(".number"),
    text: row ? text(row.cells[index + 1]) : "0",
  })).filter((each) => each.isNumber || (row && each.text));
}

// A value, or the events of a column; equal ones are counted.
function text(cell) {
  const counts = new Map();
  for (const { textContent } of cell.querySelectorAll("a")) counts.set(textContent, (counts.get(textContent) ?? 0) + 1);
  if (!counts.size) return cell.textContent;
  return [...counts].map(([event, count]) => (count > 1 ? `${count} × ${event}` : event)).join(", ");
}

function period(figure, from, to) {
  const [begin, end] = [new Date(moment(figure, from)), new Date(moment(figure, to + 1))];
  const hours = (date) => clock(date).slice(0, 5);
  const until = day(begin) === day(end) ? hours(end) : `${day(end).slice(5)} ${hours(end)}`;
  return `${day(begin).slice(5)} ${hours(begin)} to ${until}`;
}

function element(name, text, className = "") {
  const made = document.createElement(name);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

function swatch(ink) {
  const picture = document.createElementNS(SVG, "svg");
  const square = document.createElementNS(SVG, "rect");
  for (const each of [picture, square]) for (const side of ["width", "height"]) each.setAttribute(side, "10");
  if (ink) square.setAttribute("class", `bars ink-${ink}`);
  else square.setAttribute("fill", "none");
  picture.append(square);
  return picture;
}

function fill(readout, heading, lines) {
  const list = document.createElement("dl");
  for (const { name, text, ink, isNumber } of lines) {
    const picture = document.createElement("dt");
    picture.append(swatch(ink));
    list.append(picture, element("dt", name), element("dd", text, isNumber ? "" : "events"));
  }
  readout.replaceChildren(element("b", heading), list);
}

const charts = () => document.querySelectorAll("[data-chart]");

// The columns of the shown times in a chart.
function range(figure) {
  const ends = [columnOf(figure, shown.at), columnOf(figure, shown.from ?? shown.at)];
  return [Math.min(...ends), Math.max(...ends)];
}

function draw() {
  for (const figure of charts()) {
    const cursor = figure.querySelector("[data-cursor]");
    const width = 600 / (last(figure) + 1);
    const [first, end] = shown ? range(figure) : [0, -1];
    cursor.setAttribute("x", String(first * width));
    cursor.setAttribute("width", String((end - first + 1) * width));
    figure.querySelector("[data-readout]").hidden = figure.id !== shown?.id;
    if (figure.id === shown?.id) write(figure, first, end);
  }
}

function write(figure, first, end) {
  const [plot, readout] = [plotOf(figure), figure.querySelector("[data-readout]")];
  const column = columnOf(figure, shown.at);
  const selects = shown.from !== null;
  const lines = selects ? [] : values(figure, column);
  fill(readout, period(figure, first, end), lines);
  if (selects) readout.append(element("span", "Release, or press Enter, to zoom in", "muted"));
  place(readout, plot.getBoundingClientRect(), (column + 0.5) / (last(figure) + 1));
  plot.setAttribute("aria-valuenow", String(column));
  plot.setAttribute("aria-valuetext", [period(figure, first, end), ...lines.map((each) => `${each.name} ${each.text}`)].join(", "));
}

// Beside the column, inside of the plot.
function place(readout, { width }, share) {
  const x = share * width;
  const beside = share < 0.5 ? x + 16 : x - 16 - readout.offsetWidth;
  readout.style.left = `${Math.max(0, Math.min(beside, width - readout.offsetWidth))}px`;
}

function show(figure, at, from = null) {
  shown = { id: figure.id, at, from };
  draw();
}

function hide() {
  shown = null;
  draw();
}

// ── pages ────────────────────────────────────────────────────────────────────────────────────

const minute = (time) => new Date(time).toISOString().slice(0, 16);

function rememberScroll() {
  sessionStorage.setItem(SCROLL, JSON.stringify({ path: location.pathname, y: scrollY }));
}

function zoom(figure, one, other) {
  const [first, end] = [Math.min(one, other), Math.max(one, other)];
  const url = new URL(location);
  for (const name of ["range", "after"]) url.searchParams.delete(name);
  url.searchParams.set("from", minute(moment(figure, first)));
  url.searchParams.set("to", minute(moment(figure, end + 1)));
  rememberScroll();
  location.assign(url);
}

function openColumn(figure, column) {
  if (!figure.dataset.link || values(figure, column).every((each) => each.text === "0")) return;
  const between = `from=${minute(moment(figure, column))}&to=${minute(moment(figure, column + 1))}`;
  location.assign(figure.dataset.link + between);
}

// Another time range of the same page keeps the place on the page.
function restoreScroll() {
  const remembered = JSON.parse(sessionStorage.getItem(SCROLL) ?? "null");
  sessionStorage.removeItem(SCROLL);
  if (remembered?.path === location.pathname) scrollTo(0, remembered.y);
}

document.addEventListener("click", (event) => {
  if (event.target.closest(".ranges a")) rememberScroll();
});

// ── pointer ──────────────────────────────────────────────────────────────────────────────────

const plotted = (target) => (target.matches?.("svg.chart, svg.chart *") ? figureOf(target) : null);

document.addEventListener("pointerdown", (event) => {
  const figure = plotted(event.target);
  if (!figure || event.button !== 0) return hide();
  const at = moment(figure, columnAt(figure, event.clientX));
  dragged = { figure, at, x: event.clientX, moved: false };
  plotOf(figure).setPointerCapture(event.pointerId);
  show(figure, at);
});

document.addEventListener("pointermove", (event) => {
  if (dragged) {
    const { figure, at, x } = dragged;
    dragged.moved ||= Math.abs(event.clientX - x) >= DRAG_PX;
    show(figure, moment(figure, columnAt(figure, event.clientX)), dragged.moved ? at : null);
  } else if (event.pointerType === "mouse") {
    const figure = plotted(event.target);
    if (figure) show(figure, moment(figure, columnAt(figure, event.clientX)));
    else if (shown && shown.id !== plotted(document.activeElement)?.id) hide();
  }
});

document.addEventListener("pointerup", (event) => {
  if (!dragged) return;
  const { figure, at, moved } = dragged;
  dragged = null;
  const column = columnAt(figure, event.clientX);
  if (moved) zoom(figure, columnOf(figure, at), column);
  else if (event.pointerType === "mouse") openColumn(figure, column);
});

document.addEventListener("pointercancel", () => {
  if (!dragged) return;
  dragged = null;
  hide();
});

// ── keys ─────────────────────────────────────────────────────────────────────────────────────

const MOVES = {
  ArrowLeft: (column) => column - 1,
  ArrowRight: (column) => column + 1,
  PageUp: (column) => column - 10,
  PageDown: (column) => column + 10,
  Home: () => 0,
  End: (_, end) => end,
};

document.addEventListener("keydown", (event) => {
  const figure = plotted(event.target);
  if (!figure || event.ctrlKey || event.metaKey || event.altKey) return;
  const { at, from } = shown?.id === figure.id ? shown : { at: moment(figure, last(figure)), from: null };
  const column = columnOf(figure, at);
  if (Object.hasOwn(MOVES, event.key)) {
    const next = clamped(figure, MOVES[event.key](column, last(figure)));
    show(figure, moment(figure, next), event.shiftKey ? from ?? at : null);
  } else if (event.key === "Escape") {
    dragged = null;
    hide();
  } else if (event.key === "Enter") {
    if (from === null) openColumn(figure, column);
    else zoom(figure, columnOf(figure, from), column);
  } else return;
  event.preventDefault();
});

document.addEventListener("focusin", (event) => {
  const figure = !dragged && event.target.matches?.(":focus-visible") ? plotted(event.target) : null;
  if (figure) show(figure, moment(figure, last(figure)));
});
document.addEventListener("focusout", (event) => {
  if (!dragged && plotted(event.target)) hide();
});

document.body.addEventListener("htmx:afterSwap", () => { if (shown) draw(); });
restoreScroll();
