// What the server says by itself: topics, each heard by whoever listens on this page.
import { page, signedOut } from "hotplate/api";
import { signal } from "hotplate/view";

// connecting | live | cut | ended; with the sentence where it has ended.
export const connection = signal({ state: "connecting" });
const listeners = new Map();
let port = null;
let sending = null;

async function open() {
  if (typeof SharedWorker === "function") {
    try {
      return new SharedWorker(page.worker, { type: "module", name: "hotplate" }).port;
    } catch {
      // Some windows have none; then this page has a connection of its own.
    }
  }
  const { serve } = await import("hotplate/stream");
  const { port1, port2 } = new MessageChannel();
  serve(port1);
  return port2;
}

function heard({ data }) {
  if (data.state) {
    connection.value = data;
    if (data.code === "unauthorized") signedOut.value = true;
    return;
  }
  for (const listener of listeners.get(data.topic) ?? []) listener(data);
}

async function send(more = {}) {
  sending = null;
  if (!listeners.size && !port) return;
  if (!port) {
    port = open();
    port = await port;
    port.onmessage = heard;
    port.start();
  }
  const { user, organization, acting } = page;
  (await port).postMessage({ topics: [...listeners.keys()], user, organization, acting, ...more });
}

function changed() {
  sending ??= setTimeout(send, 0);
}

// `listener` gets `{ data, reset, anew }` of this topic from now on; returns what ends that.
export function listen(topic, listener) {
  if (!listeners.has(topic)) listeners.set(topic, new Set());
  listeners.get(topic).add(listener);
  changed();
  return () => {
    listeners.get(topic)?.delete(listener);
    if (!listeners.get(topic)?.size) listeners.delete(topic);
    changed();
  };
}

setInterval(() => port && send(), 25_000); // a tab that says nothing for long is taken for gone
addEventListener("pagehide", () => port?.postMessage?.({ leave: true }));
addEventListener("pageshow", (event) => event.persisted && send({ wake: true }));
document.addEventListener("visibilitychange", () => !document.hidden && port && send({ wake: true }));
