// One connection for all tabs of a browser: this runs in a SharedWorker, or in the page itself
// where there is none. A tab says which topics it wants, and hears what the server says of them.

const SILENCE_MS = 40_000; // the server says something every 15 s
const LOOK_MS = 2000; // timers stand still while a machine sleeps, and its clock goes on
const GONE_MS = 150_000; // tabs in the background are woken once a minute
const WAITS_MS = [300, 1000, 2000, 4000];
const KEPT_LINES = 2000;
const KEPT_CHARACTERS = 2 << 20;

// What a tab that comes later has to know of a topic, from what came before and what comes now.
function joined(topic, before, data) {
  if (topic === "deployments") {
    const changed = new Map(data.whole || !before ? [] : before.items.map((one) => [one.name, one]));
    for (const one of data.items ?? []) changed.set(one.name, one);
    for (const name of data.gone ?? []) changed.delete(name);
    return { items: [...changed.values()], gone: [], whole: true };
  }
  if (topic === "events") return { items: [...data.items, ...(before?.items ?? [])].slice(0, 200) };
  if (!topic.startsWith("logs:")) return data;
  const lines = [...(before?.lines ?? []), ...data.lines].slice(-KEPT_LINES);
  let characters = (before?.characters ?? 0) + data.lines.reduce((sum, { text }) => sum + text.length, 0);
  if (lines.length === KEPT_LINES) characters = lines.reduce((sum, { text }) => sum + text.length, 0);
  while (characters > KEPT_CHARACTERS) characters -= lines.shift().text.length;
  return { lines, dropped: (before?.dropped ?? 0) + data.dropped, characters };
}

class Stream {
  #tabs = new Map();
  #asked = "";
  #id = "";
  #last = new Map();
  #state = { state: "connecting" };
  #stop = null;
  #tries = 0;

  constructor(acting) {
    this.acting = acting;
    setInterval(() => this.#sweep(), 30_000);
  }

  // A tab's word: the topics that it wants from now on.
  want(port, topics) {
    const known = this.#tabs.get(port);
    const before = known?.topics ?? [];
    this.#tabs.set(port, { topics, heard: Date.now() });
    port.postMessage(this.#state);
    for (const topic of topics) {
      if (!before.includes(topic) && this.#last.has(topic))
        port.postMessage({ topic, data: this.#last.get(topic), anew: true });
    }
    const missing = topics.some((topic) => !this.#asked.split(",").includes(topic));
    if (missing || (!known && this.#state.state === "ended")) this.#again();
  }

  leave(port) {
    this.#tabs.delete(port);
    if (!this.#tabs.size) this.#end();
  }

  wake() {
    if (this.#state.state === "cut") this.#again();
  }

  #sweep() {
    for (const [port, tab] of this.#tabs) if (Date.now() - tab.heard > GONE_MS) this.leave(port);
  }

  #end() {
    this.#stop?.abort();
    this.#stop = null;
    this.#asked = "";
    this.#id = "";
    this.#last.clear();
  }

  // A connection for all that is wanted now; what was asked before is answered anew.
  #again() {
    this.#end();
    const topics = new Set([...this.#tabs.values()].flatMap((tab) => tab.topics));
    this.#asked = [...topics].sort().join(",");
    if (!topics.size) return;
    this.#tries = 0;
    this.#stop = new AbortController();
    this.#run(this.#stop);
  }

  async #run(stop) {
    while (!stop.signal.aborted) {
      const reading = new AbortController();
      const ends = () => reading.abort();
      stop.signal.addEventListener("abort", ends);
      try {
        if (!(await this.#read(reading))) return;
      } catch {
        // Cut off, refused or silent: the same is done about all of them.
      }
      stop.signal.removeEventListener("abort", ends);
      if (stop.signal.aborted) return;
      this.#say({ state: "cut" });
      const wait = WAITS_MS[Math.min(this.#tries++, WAITS_MS.length - 1)];
      await new Promise((done) => setTimeout(done, wait * (0.75 + Math.random() / 2)));
    }
  }

  // Reads until the connection ends. False = it is not to be made again.
  async #read(reading) {
    const headers = { Accept: "text/event-stream" };
    if (this.#id) headers["Last-Event-ID"] = this.#id;
    if (this.acting) headers["X-Hotplate-Organization"] = this.acting;
    let heard = Date.now();
    const silence = setInterval(() => Math.abs(Date.now() - heard) > SILENCE_MS && reading.abort(), LOOK_MS);
    try {
      const topics = this.#asked.split(",").map(encodeURIComponent).join(",");
      const path = `/api/v1/hotplate/stream?topics=${topics}`;
      const answer = await fetch(path, { headers, cache: "no-store", signal: reading.signal });
      if (answer.status === 401) return this.#over({ state: "ended", code: "unauthorized" });
      if (answer.status === 403 || answer.status === 404) {
        const said = (await answer.json().catch(() => null))?.error;
        return this.#over({ state: "ended", code: said?.code ?? "", message: said?.message ?? "" });
      }
      if (!answer.ok) return true;
      if (!this.#id) this.#reset(this.#asked.split(","));
      this.#tries = 0;
      this.#say({ state: "live" });
      const parser = new EventParser((event) => this.#take(event, reading));
      const text = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await text.read();
        if (done) return this.#state.state !== "ended";
        heard = Date.now();
        parser.feed(value);
      }
    } finally {
      clearInterval(silence);
    }
  }

  #take({ id, event, data }, reading) {
    let said;
    try {
      said = JSON.parse(data);
    } catch {
      reading.abort(); // what cannot be read is asked for again
      return;
    }
    if (id) this.#id = id;
    if (event === "reset") this.#reset(said.topics ?? []);
    else if (event === "end") this.#over({ state: "ended", ...said });
    else {
      this.#last.set(event, joined(event, this.#last.get(event), said));
      this.#tell(event, { topic: event, data: said });
    }
  }

  #reset(topics) {
    for (const topic of topics) {
      this.#last.delete(topic);
      this.#tell(topic, { topic, reset: true });
    }
  }

  #over(state) {
    this.#last.clear();
    this.#say(state);
    return false;
  }

  #say(state) {
    this.#state = state;
    for (const port of this.#tabs.keys()) port.postMessage(state);
  }

  #tell(topic, message) {
    for (const [port, tab] of this.#tabs) if (tab.topics.includes(topic)) port.postMessage(message);
  }
}

// Server-sent events from text that may be cut anywhere (HTML, 9.2.6).
export class EventParser {
  #rest = "";
  #event = {};

  constructor(take) {
    this.take = take;
  }

  feed(text) {
    const lines = (this.#rest + text).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop();
    for (const line of lines) this.#line(line);
  }

  #line(line) {
    if (line === "") {
      if (this.#event.data !== undefined) this.take({ event: "message", ...this.#event });
      this.#event = {};
    } else if (!line.startsWith(":")) {
      const [, field, value] = /^([^:]*):? ?(.*)$/.exec(line);
      const before = this.#event.data;
      this.#event[field] = field === "data" && before !== undefined ? `${before}\n${value}` : value;
    }
  }
}

const streams = new Map();

// Serves one tab over this port.
export function serve(port) {
  let stream = null;
  port.onmessage = ({ data }) => {
    if (data.leave) return stream?.leave(port);
    // Another user of this browser hears nothing of what this one was told.
    const key = `${data.user ?? ""} ${data.organization ?? ""} ${data.acting ?? ""}`;
    if (!streams.has(key)) streams.set(key, new Stream(data.acting ?? ""));
    stream = streams.get(key);
    stream.want(port, data.topics);
    if (data.wake) stream.wake();
  };
  port.start();
}

if ("SharedWorkerGlobalScope" in globalThis) {
  globalThis.onconnect = (event) => serve(event.ports[0]);
  globalThis.addEventListener("online", () => streams.forEach((stream) => stream.wake()));
}
