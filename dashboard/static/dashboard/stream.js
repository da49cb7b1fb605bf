// The stream of server-sent events that all windows of a browser share; it runs in a worker.
//
// A visible window sends `look` every few seconds with its position, and `leave` when it is hidden. The stream is open
// while there is a visible window. A window without messages for some time was closed.

const SILENT_MS = 20_000;
const CONNECTING = 0, OPEN = 1;

const windows = new Map();
let source = null;
let position = "";

function send(message, port) {
  if (port) port.postMessage(message);
  else for (const each of windows.keys()) each.postMessage(message);
}

function connect(url, from) {
  position = from;
  source = new EventSource(`${url}?position=${encodeURIComponent(from)}`);
  source.addEventListener("open", () => send({ kind: "state", connected: true }));
  source.addEventListener("error", () => send({ kind: "state", connected: false }));
  source.addEventListener("changed", (event) => {
    position = event.lastEventId || position;
    send({ kind: "changed", names: event.data.split(" "), position });
  });
}

function disconnect() {
  source?.close();
  source = null;
  position = "";
}

function look(port, message) {
  windows.set(port, Date.now());
  // The browser reconnects a dropped stream. A stream that the server refused is CLOSED, and is opened again here.
  if (source?.readyState !== OPEN && source?.readyState !== CONNECTING) connect(message.url, message.position);
  send({ kind: "state", connected: source.readyState === OPEN }, port);
  if (position && message.position !== position) send({ kind: "changed", names: ["*"], position }, port);
}

function leave(port) {
  windows.delete(port);
  if (!windows.size) disconnect();
}

function serve(port) {
  port.addEventListener("message", ({ data: message }) => {
    if (message.kind === "look") look(port, message);
    else leave(port);
  });
  // Some browsers do not send this event; there, SILENT_MS ends the window.
  port.addEventListener("close", () => leave(port));
  port.start?.();
}

setInterval(() => {
  for (const [port, at] of windows) if (Date.now() - at > SILENT_MS) leave(port);
}, SILENT_MS / 4);

if ("onconnect" in self) self.addEventListener("connect", (event) => serve(event.ports[0]));
else serve(self);
