// Update relative times, and show absolute times in UTC or in the zone of the browser.

const ZONE = "arrester-zone";

export const isLocal = () => localStorage.getItem(ZONE) === "local";

// The same texts as the server's `ago`.
function ago(seconds) {
  if (seconds < 0) return "just now";
  const steps = [[60, 1, "s"], [3600, 60, "min"], [172800, 3600, "h"], [Infinity, 86400, "d"]];
  const [, unit, name] = steps.find(([limit]) => seconds < limit);
  return `${Math.floor(seconds / unit)} ${name} ago`;
}

function left(seconds) {
  if (seconds <= 0) return "now";
  const minutes = Math.floor(seconds / 60);
  if (minutes >= 60) return `in ${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `in ${minutes}:${String(Math.floor(seconds % 60)).padStart(2, "0")} min`;
}

const two = (number) => String(number).padStart(2, "0");

export function day(date) {
  return isLocal()
    ? `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`
    : date.toISOString().slice(0, 10);
}

export function clock(date) {
  return isLocal()
    ? `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`
    : date.toISOString().slice(11, 19);
}

function zone(date) {
  if (!isLocal()) return "UTC";
  const minutes = -date.getTimezoneOffset();
  const hours = Math.floor(Math.abs(minutes) / 60);
  return `UTC${minutes < 0 ? "−" : "+"}${two(hours)}:${two(Math.abs(minutes) % 60)}`;
}

// The difference between the clocks of the server and the browser.
const skew = Date.now() - Date.parse(document.body.dataset.now);

const FORMS = {
  ago: (date, now) => ago((now - date) / 1000),
  left: (date, now) => left((date - now) / 1000),
  clock: (date) => `${day(date)} ${clock(date)}`,
  time: (date) => clock(date),
  minute: (date) => clock(date).slice(0, 5),
  moment: (date) => `${day(date).slice(5)} ${clock(date).slice(0, 5)}`,
  day: (date) => day(date).slice(5),
  // The ticks of a chart: the time of a day, and at its begin the day.
  tick: (date) => (clock(date) === "00:00:00" ? day(date).slice(5) : clock(date).slice(0, 5)),
};

export function tick() {
  const now = Date.now() - skew;
  for (const time of document.querySelectorAll("time[data-form], text[data-form]")) {
    const date = new Date(time.dateTime ?? time.dataset.time);
    const text = FORMS[time.dataset.form](date, now);
    if (time.textContent !== text) time.textContent = text;
  }
}

// The title of a time is set when the pointer enters: a page may have thousands of times.
function name(time) {
  const date = new Date(time.dateTime);
  time.title = `${day(date)} ${clock(date)}.${String(date.getMilliseconds()).padStart(3, "0")} ${zone(date)}`;
}

function showZone() {
  const word = zone(new Date());
  for (const each of document.querySelectorAll("[data-zone]")) each.textContent = word;
  for (const button of document.querySelectorAll("[data-zone-switch]")) {
    button.setAttribute("aria-label", `Time zone ${word}: change`);
    button.title = isLocal() ? "Times in the zone of the browser. Press for UTC." : "Times in UTC. Press for the zone of the browser.";
  }
}

function update() {
  showZone();
  tick();
}

document.addEventListener("mouseover", (event) => {
  const time = event.target.closest?.("time");
  if (time) name(time);
});
document.addEventListener("click", (event) => {
  if (!event.target.closest("[data-zone-switch]")) return;
  if (isLocal()) localStorage.removeItem(ZONE);
  else localStorage.setItem(ZONE, "local");
  update();
});
document.body.addEventListener("htmx:afterSwap", update);
update();
setInterval(tick, 1000);
