// A line of the last hour beside a name, asked for when it comes into sight, a few at a time.
import { call, one } from "hotplate/api";
import { now } from "hotplate/clock";
import { html, useEffect, useState } from "hotplate/view";

const AT_ONCE = 3;
const FRESH_MS = 60_000;
const [WIDTH, HEIGHT] = [96, 20];
const known = new Map();
const waiting = [];
let running = 0;

async function ask(name) {
  const to = Math.floor(now() / 60_000) * 60;
  const path = `${one(name)}/series?from=${to - 3600}&to=${to}&step=60`;
  try {
    const { data } = await call("GET", path);
    return data.requests.map((value) => value ?? 0);
  } catch {
    return null; // the list is of use without
  }
}

function next() {
  while (running < AT_ONCE && waiting.length) {
    const { name, done } = waiting.pop(); // what came into sight last is looked at now
    running += 1;
    ask(name).then((values) => {
      running -= 1;
      known.set(name, { values, at: Date.now() });
      done(values);
      next();
    });
  }
}

export function Sparkline({ name }) {
  const [values, set] = useState(known.get(name)?.values ?? null);
  useEffect(() => {
    const want = { name, done: set };
    const begin = () => {
      if (document.hidden || waiting.includes(want)) return;
      waiting.push(want);
      next();
    };
    const found = known.get(name);
    if (found) set(found.values);
    const fresh = found ? FRESH_MS - (Date.now() - found.at) : 0;
    const timer = setTimeout(begin, Math.max(fresh, 150)); // what is scrolled past is not asked for
    const again = setInterval(begin, FRESH_MS);
    return () => {
      clearTimeout(timer);
      clearInterval(again);
      const index = waiting.indexOf(want);
      if (index >= 0) waiting.splice(index, 1);
    };
  }, [name]);
  const most = values?.reduce((a, b) => Math.max(a, b), 0);
  if (!values?.length || !most)
    return html`<svg class="spark" width=${WIDTH} height=${HEIGHT} aria-hidden="true">
      <path d=${`M0 ${HEIGHT - 1.5}H${WIDTH}`} class="flat" /></svg>`;
  const x = (i) => (i / (values.length - 1 || 1)) * WIDTH;
  const y = (value) => HEIGHT - 1.5 - (value / most) * (HEIGHT - 4);
  const line = values.map((value, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  const text = `Requests of the last hour: ${most} a minute at most`;
  return html`<svg class="spark" width=${WIDTH} height=${HEIGHT} role="img" aria-label=${text}>
    <path d=${`${line}L${WIDTH} ${HEIGHT}L0 ${HEIGHT}Z`} class="below" /><path d=${line} class="line" />
  </svg>`;
}
