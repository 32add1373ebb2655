// Figures: what the API says, rounded, with its unit, and where it comes from.
import { now, tick } from "hotplate/clock";
import { html } from "hotplate/view";

const NONE = "–";

export function number(value) {
  const size = Math.abs(value);
  if (size >= 1e6) return `${(value / 1e6).toFixed(size >= 1e7 ? 0 : 1)} M`;
  if (size >= 1e4) return `${(value / 1e3).toFixed(size >= 1e5 ? 0 : 1)} k`;
  if (Number.isInteger(value)) return String(value);
  if (size >= 100) return value.toFixed(0);
  if (size >= 10) return value.toFixed(1);
  if (size >= 0.01) return value.toFixed(2);
  return size === 0 ? "0" : value.toPrecision(1);
}

export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  let left = value;
  while (Math.abs(left) >= 1024 && unit < units.length - 1) [left, unit] = [left / 1024, unit + 1];
  return `${unit && left < 100 ? left.toFixed(1) : Math.round(left)} ${units[unit]}`;
}

export function seconds(value) {
  const size = Math.abs(value);
  if (size === 0) return "0 s";
  if (size < 0.9995) return `${(value * 1000).toFixed(size < 0.01 ? 1 : 0)} ms`;
  if (size < 99.5) return `${value.toFixed(size < 9.95 ? 1 : 0)} s`;
  if (size < 5970) return `${Math.round(value / 60)} min`;
  if (size < 172_800) return `${(value / 3600).toFixed(1)} h`;
  return `${(value / 86_400).toFixed(1)} d`;
}

const shapes = {
  number,
  bytes,
  seconds,
  text: String,
  rate: (value) => `${number(value)}/s`,
  share: (value) => `${number(value * 100)} %`,
  percent: (value) => `${number(value)} %`,
  flag: (value) => (value ? "yes" : "no"),
};

export const shaped = (as, value) => (value === null || value === undefined ? NONE : shapes[as](value));

const json = (value) =>
  value === null || value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value);

// `source` is the path that answers it, `field` the key there.
export function Figure({ source, field, value, as = "number", unit = "", cls = "" }) {
  const text = shaped(as, value);
  return html`<bdi
    class=${`figure ${cls}`}
    data-source=${source}
    data-field=${field}
    data-value=${json(value)}
    >${text}${unit && text !== NONE ? html`<span class="unit"> ${unit}</span>` : null}</bdi
  >`;
}

// What stands for a status besides its colour.
const MARKS = {
  running: "●",
  "scaled-to-zero": "○",
  deploying: "◐",
  "image-building": "◐",
  terminating: "◐",
  terminated: "□",
  failed: "✕",
  "image-build-failed": "✕",
  unhealthy: "▲",
  unknown: "?",
  ready: "●",
  starting: "◐",
  pending: "◐",
  draining: "◑",
  backoff: "▲",
  stopping: "◑",
  stopped: "□",
  done: "●",
  none: "○",
  shifting: "◐",
  paused: "‖",
  superseded: "○",
  building: "◐",
  success: "●",
  uploading: "◐",
};

export function Status({ source, field = "status", value }) {
  return html`<span class=${`state ${value}`}
    ><span class="glyph" aria-hidden="true">${MARKS[value] ?? "·"}</span
    ><${Figure} source=${source} field=${field} value=${value} as="text"
  /></span>`;
}

export function ago(ms) {
  const s = ms / 1000;
  const [size, before, after] = [Math.abs(s), s < 0 ? "in " : "", s < 0 ? "" : " ago"];
  if (size < 2) return "now";
  const [amount, unit] =
    size < 60
      ? [size, "s"]
      : size < 3600
        ? [size / 60, "min"]
        : size < 86_400
          ? [size / 3600, "h"]
          : [size / 86_400, "d"];
  return `${before}${Math.floor(amount)} ${unit}${after}`;
}

// As ISO 8601 writes it, in the zone of who looks.
const exact = new Intl.DateTimeFormat("sv-SE", {
  year: "numeric",
  month: "2-digit",
  day: "2-digit",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  timeZoneName: "short",
  hourCycle: "h23",
});

export const moment = (at) => exact.format(at);
export const shortMoment = (at) => exact.format(at).slice(5, 19);

// Minutes by which this zone is ahead of UTC at that moment.
const ahead = (at) => -new Date(at).getTimezoneOffset();

// The same of both ends of a time; with the zone where the hour changes within it, so that an hour
// that comes twice is told apart.
export const span = (from, to) =>
  ahead(from) === ahead(to)
    ? `${shortMoment(from)} – ${shortMoment(to)}`
    : `${exact.format(from).slice(5)} – ${exact.format(to).slice(5)}`;

const clock = new Intl.DateTimeFormat("sv-SE", { hour: "2-digit", minute: "2-digit", timeZoneName: "short", hourCycle: "h23" });

// Marks of an axis, in Unix seconds, with their zones where the hour changes between them; else
// null, as they are told apart without.
export const zoned = (marks) =>
  marks.length && ahead(marks[0] * 1000) !== ahead(marks.at(-1) * 1000)
    ? marks.map((mark) => clock.format(mark * 1000))
    : null;

// How long ago, with the exact moment at hand.
export function Ago({ at, source, field }) {
  if (!at) return html`<span class="soft" data-source=${source} data-field=${field} data-value="">${NONE}</span>`;
  tick.value;
  const when = new Date(typeof at === "number" ? at * 1000 : at);
  return html`<time
    datetime=${when.toISOString()}
    title=${moment(when)}
    data-source=${source}
    data-field=${field}
    data-value=${field ? at : null}
    >${ago(now() - when)}</time
  >`;
}
