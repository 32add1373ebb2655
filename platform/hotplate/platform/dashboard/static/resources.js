// What the API answers, as pages show it: asked for once for all that show it, and kept up to date.
import { call, signedOut } from "hotplate/api";
import { connection, listen } from "hotplate/live";
import { signal, useEffect, useLayoutEffect } from "hotplate/view";

const resources = new Map();
const POLL_S = 2; // while the server cannot say by itself what changes

// How many things of this page have not been answered for the first time.
export const pending = signal(0);

// What a topic says of a list that a GET answers whole.
export const ofList = (before, said) => {
  const changed = new Map(said.whole || !before ? [] : before.map((one) => [one.name, one]));
  for (const one of said.items ?? []) changed.set(one.name, one);
  for (const name of said.gone ?? []) changed.delete(name);
  return [...changed.values()];
};
export const ofEvents = (before, said) => {
  const known = new Set((before ?? []).map((one) => JSON.stringify(one)));
  const news = said.items.filter((one) => !known.has(JSON.stringify(one)));
  return [...news, ...(before ?? [])].sort((a, b) => (a.at < b.at ? 1 : -1)).slice(0, 200);
};

class Resource {
  data = signal(null);
  error = signal(null);
  etag = null;
  #uses = 0;
  #timer = null;
  #asking = null;
  #silent = null;
  #first = true;

  constructor(path, { every = 0, topic = "", join = (_, said) => said } = {}) {
    Object.assign(this, { path, every, topic, join });
  }

  use() {
    if (this.#uses++ === 0) {
      if (this.#first) pending.value += 1;
      this.reload();
      if (this.topic) this.#silent = listen(this.topic, (said) => this.#hear(said));
      this.#plan();
    }
    return () => {
      if (--this.#uses > 0) return;
      clearInterval(this.#timer);
      this.#silent?.();
    };
  }

  #plan() {
    const polls = () =>
      this.topic ? connection.value.state !== "live" && connection.value.state !== "connecting" : this.every;
    let count = 0;
    this.#timer = setInterval(() => {
      count += 1;
      if (document.hidden || signedOut.value || !polls()) return;
      if (count % (this.topic ? POLL_S : this.every) === 0 || this.error.value) this.reload();
    }, 1000);
  }

  #hear({ data, reset }) {
    if (reset) return;
    if (data === null) return this.reload(); // it is gone, and the answer says so
    this.data.value = this.join(this.data.value, data);
    this.error.value = null;
    this.#answered();
  }

  reload() {
    return (this.#asking ??= this.#ask().finally(() => (this.#asking = null)));
  }

  async #ask() {
    try {
      const { data, etag } = await call("GET", this.path);
      this.etag = etag;
      this.data.value = data;
      this.error.value = null;
    } catch (error) {
      this.error.value = error;
      if (error.status === 404) this.data.value = null;
    }
    this.#answered();
  }

  #answered() {
    if (!this.#first) return;
    this.#first = false;
    pending.value -= 1;
  }
}

export function resource(path, options) {
  if (!resources.has(path)) resources.set(path, new Resource(path, options));
  return resources.get(path);
}

// The same of what there is more of only when `mark` is another one.
export function useMarked(path, mark) {
  const found = useResource(path, { every: 60 });
  useEffect(() => {
    if (found.data.value) found.reload();
  }, [mark]);
  return found;
}

// The resource, kept up to date while the component is there. It is asked for before the next frame
// is drawn: until then nobody could tell that the page still waits for it.
export function useResource(path, options) {
  const found = resource(path, options);
  useLayoutEffect(() => found.use(), [path]);
  return found;
}
