// Which time is shown, as the address says it: the last so long, or from one moment to another.
import { asked, put } from "hotplate/address";
import { secondsNow } from "hotplate/charts";
import { tick } from "hotplate/clock";
import { span } from "hotplate/figures";
import { html } from "hotplate/view";

const RANGES = {
  "15m": [900, "15 min"],
  "1h": [3600, "1 h"],
  "6h": [21_600, "6 h"],
  "24h": [86_400, "24 h"],
  "7d": [604_800, "7 d"],
};

// How often what is shown of so long a time is asked for anew.
const fresh = (last) => (last > 21_600 ? 60 : last > 900 ? 10 : 5);

// `{ from, to, last }`: Unix seconds; `last` is how long where it ends now.
export function range(usual = "1h") {
  const [from, to] = [Number(asked("from")), Number(asked("to"))];
  if (from > 0 && to > from) return { from, to, last: 0 };
  const [last] = RANGES[asked("range", usual)] ?? RANGES[usual];
  const end = Math.ceil(secondsNow() / fresh(last)) * fresh(last);
  tick.value;
  return { from: end - last, to: end, last };
}

export const setRange = ([from, to]) => put({ from, to, range: null }, { push: true });

export function RangePicker({ usual = "1h" }) {
  const { from, to, last } = range(usual);
  const chosen = last ? asked("range", usual) : "";
  const choose = (name) => put({ range: name === usual ? null : name, from: null, to: null }, { push: true });
  return html`<div class="picker" role="group" aria-label="Time shown">
    ${Object.entries(RANGES).map(
      ([name, [, text]]) =>
        html`<button class="plain" aria-pressed=${name === chosen} onClick=${() => choose(name)}>${text}</button>`,
    )}
    ${
      !last &&
      html`<span class="soft">${span(from * 1000, to * 1000)}</span>
      <button class="plain" onClick=${() => choose(usual)}>Back to now</button>`
    }
  </div>`;
}
