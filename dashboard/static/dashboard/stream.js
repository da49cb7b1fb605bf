// The one stream of server-sent events that all windows of a browser share; runs in a worker.
//
// A window says `look` every few seconds with the position that it shows, and `leave` when nobody sees it. The
// stream is open while somebody looks; a window that fell silent (its process was killed) no longer counts.

const SILENT_MS = 20_000;
const CONNECTING = 0, OPEN = 1;

const windows = new Map();
let source = null;
let position = "";

function tell(said, port) {
  if (port) port.postMessage(said);
  else for (const each of windows.keys()) each.postMessage(said);
}

function connect(url, from) {
  position = from;
  source = new EventSource(`${url}?position=${encodeURIComponent(from)}`);
  source.addEventListener("open", () => tell({ kind: "state", connected: true }));
  source.addEventListener("error", () => tell({ kind: "state", connected: false }));
  source.addEventListener("changed", (event) => {
    position = event.lastEventId || position;
    tell({ kind: "changed", names: event.data.split(" "), position });
  });
}

function disconnect() {
  source?.close();
  source = null;
  position = "";
}

function look(port, said) {
  windows.set(port, Date.now());
  // The browser takes a dropped stream up by itself; one that the server refused is CLOSED, and begun anew here.
  if (source?.readyState !== OPEN && source?.readyState !== CONNECTING) connect(said.url, said.position);
  tell({ kind: "state", connected: source.readyState === OPEN }, port);
  if (position && said.position !== position) tell({ kind: "changed", names: ["*"], position }, port);
}

function leave(port) {
  windows.delete(port);
  if (!windows.size) disconnect();
}

function serve(port) {
  port.addEventListener("message", ({ data: said }) => {
    if (said.kind === "look") look(port, said);
    else leave(port);
  });
  // Not all browsers say so yet; where they do not, silence does.
  port.addEventListener("close", () => leave(port));
  port.start?.();
}

setInterval(() => {
  for (const [port, at] of windows) if (Date.now() - at > SILENT_MS) leave(port);
}, SILENT_MS / 4);

if ("onconnect" in self) self.addEventListener("connect", (event) => serve(event.ports[0]));
else serve(self);
