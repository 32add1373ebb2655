// Charts on one time axis: one cursor goes through all of a page, and each has its points beside it.
import uPlot from "uplot";
import { now } from "hotplate/clock";
import { moment, shaped, zoned } from "hotplate/figures";
import { html, signal, useEffect, useRef, useState } from "hotplate/view";

// Where the cursor is, in Unix seconds; null = nowhere.
export const cursor = signal(null);
const together = uPlot.sync("time");

// A canvas knows no `light-dark()`, so the colours are asked of an element that has them.
const probe = document.createElement("i");
export function paint(name, share = 100) {
  if (!probe.isConnected) document.body.append(Object.assign(probe, { hidden: true }));
  probe.style.color = share < 100 ? `color-mix(in srgb, var(--${name}) ${share}%, var(--bg))` : `var(--${name})`;
  return getComputedStyle(probe).color;
}

const axisFont = '11px system-ui, "Segoe UI", Roboto, sans-serif';
export const LEFT = 52;

const [day, minute, second] = ["{MM}-{DD}", "{HH}:{mm}", "{HH}:{mm}:{ss}"].map((text) => uPlot.fmtDate(text));

// Marks of the x axis, `step` seconds apart: at midnight with the day, and where the hour changes
// between them with the zone, as an hour may come twice.
export function stamps(marks, step) {
  const shape = step >= 86_400 ? day : step >= 60 ? minute : second;
  const plain = marks.map((mark) => new Date(mark * 1000)).map((at) => (at.getHours() || at.getMinutes() || step < 3600 ? shape : day)(at));
  return (step < 86_400 && zoned(marks)) || plain;
}

// The x axis of all charts, drawn by the last one only.
export function timeAxis(shown) {
  return {
    stroke: paint("dim"),
    grid: { stroke: paint("line"), width: 1 },
    ticks: { show: false },
    font: axisFont,
    size: shown ? 24 : 0,
    space: 90,
    values: shown ? (_, marks, __, ___, step) => stamps(marks, step) : () => [],
  };
}

// Marks of the y axis: counts are whole, bytes have powers of two.
const powers = (base, from, to) => Array.from({ length: to - from + 1 }, (_, i) => base ** (from + i));
const STEPS = {
  number: [1, 2, 5].flatMap((first) => powers(10, 0, 9).map((power) => first * power)).sort((a, b) => a - b),
  bytes: powers(2, 10, 50),
};

const last = (values) => values.findLast((value) => value !== null && value !== undefined) ?? null;

// The index of the point in which a moment is.
function pointAt(at, moment) {
  let [low, high] = [0, at.length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (at[middle] <= moment) low = middle;
    else high = middle - 1;
  }
  return low;
}

function sentence(title, series, as, of) {
  const parts = series.map(({ label, values }) => {
    const known = values.filter((value) => value !== null);
    if (!known.length) return `${label}: nothing known`;
    const most = known.reduce((a, b) => Math.max(a, b));
    return `${label}: ${shaped(as, last(values))} last, ${shaped(as, most)} at most`;
  });
  return `${title}${of ? ` of ${of}` : ""} over time. ${parts.join("; ")}.`;
}

// Values one on top of the other, as what is drawn first must be the sum of all.
function stacked(series) {
  let sums = null;
  const drawn = series.map(({ values }) => {
    const below = sums ?? values.map(() => null);
    sums = values.map((value, i) => (value === null && below[i] === null ? null : (value ?? 0) + (below[i] ?? 0)));
    return sums;
  });
  return drawn;
}

function Key({ series, at, as, source, field }) {
  const answered = series.raw ?? series.values;
  const known = answered.findLastIndex((each) => each !== null && each !== undefined);
  const index = cursor.value === null ? known : pointAt(at, cursor.value);
  const value = series.values[index] ?? null;
  const raw = answered[index] ?? null;
  const dash = series.kind === "step" || series.kind === "line" ? "dash" : "";
  return html`<span class=${`key ${dash}`} style=${{ "--colour": `var(--${series.colour})` }}
    >${series.label}${" "}<b
      class="figure"
      data-source=${source}
      data-field=${series.field ?? field}
      data-value=${raw ?? ""}
      >${shaped(as, value)}</b
    ></span
  >`;
}

// `series`: `{ key, label, colour, values, kind: area | bars | line | step, field }`; areas are
// stacked in their order. `range` is `[from, to]` in Unix seconds.
export function Chart({
  name,
  title,
  at,
  series,
  range,
  as = "number",
  source,
  of = "",
  height = 110,
  axis = false,
  marks = [],
  onRange,
  note = "",
}) {
  const place = useRef(null);
  const plot = useRef(null);
  const state = useRef({});
  state.current = { marks, onRange, range };
  const shape = series.map((one) => one.label + one.kind).join();

  useEffect(() => {
    const build = () => {
      plot.current?.destroy();
      plot.current = make(place.current, { series, as, height, axis, state });
      feed();
    };
    const size = new ResizeObserver(() => {
      const width = place.current.clientWidth;
      if (plot.current && width && width !== plot.current.width) plot.current.setSize({ width, height });
    });
    build();
    size.observe(place.current);
    const look = matchMedia("(prefers-color-scheme: dark)");
    addEventListener("theme", build);
    look.addEventListener("change", build);
    return () => {
      size.disconnect();
      removeEventListener("theme", build);
      look.removeEventListener("change", build);
      plot.current?.destroy();
      plot.current = null;
    };
  }, [shape, axis, height]);

  function feed() {
    const areas = stacked(series.filter((one) => one.kind === "area"));
    let next = 0;
    const drawn = series.map((one) => (one.kind === "area" ? areas[next++] : one.values));
    // The largest sum lies below all others.
    plot.current.setData([at, ...drawn.toReversed()], false);
    plot.current.batch(() => plot.current.setScale("x", { min: range[0], max: range[1] }));
  }
  useEffect(() => {
    if (plot.current) feed();
  }, [at, range[0], range[1], marks, ...series.map(({ values }) => values)]);

  // By keyboard: a point back or on, from the last one where the cursor is nowhere.
  function step(event) {
    const way = { ArrowLeft: -1, ArrowRight: 1, Escape: 0 }[event.key];
    if (way === undefined || event.target !== event.currentTarget || !at.length) return;
    const index = cursor.value === null ? at.length + Math.min(way, 0) : pointAt(at, cursor.value) + way;
    const second = at[Math.min(Math.max(index, 0), at.length - 1)];
    const left = way ? Math.max(0, plot.current.valToPos(second, "x")) : -10;
    plot.current.setCursor({ left, top: way ? 0 : -10 }, true, true);
    event.preventDefault();
  }

  const empty = !series.some(({ values }) => values.some((value) => value !== null));
  return html`<figure data-chart=${name} aria-label=${sentence(title, series, as, of)} tabindex="0" onKeyDown=${step}>
    <figcaption>
      <b>${title}</b> <span class="keys"
        >${series.map((one) => html`<${Key} key=${one.key} series=${one} at=${at} as=${as} source=${source} />`)}</span
      >${note && html`<span class="soft">${note}</span>`}
    </figcaption>
    <div class="plot" ref=${place} style=${{ height: `${height}px` }} aria-hidden="true">
      ${empty && html`<span class="nothing">nothing in this time</span>`}
    </div>
    <${Points} title=${title} at=${at} series=${series} as=${as} />
  </figure>`;
}

function make(place, { series, as, height, axis, state }) {
  const columns = series.map((one) => ({
    label: one.label,
    stroke: paint(one.colour),
    width: one.kind === "bars" ? 0 : one.kind === "area" ? 1.25 : 1.5,
    fill: one.kind === "area" ? paint(one.colour, 35) : one.kind === "bars" ? paint(one.colour) : undefined,
    dash: one.kind === "step" ? [4, 3] : undefined,
    paths:
      one.kind === "bars"
        ? uPlot.paths.bars({ size: [0.9, 24] })
        : one.kind === "line"
          ? uPlot.paths.linear()
          : uPlot.paths.stepped({ align: 1 }),
    points: { show: one.kind === "line" ? undefined : false, size: 4 },
    spanGaps: false,
  }));
  return new uPlot(
    {
      width: place.clientWidth || 600,
      height,
      legend: { show: false },
      padding: [6, 8, axis ? 0 : 4, 0],
      cursor: {
        sync: { key: together.key, setSeries: false, scales: ["x", null] },
        y: false,
        points: { show: false },
        drag: { x: true, y: false, setScale: false },
      },
      select: { show: true },
      scales: { x: { time: true }, y: { range: (_, low, high) => [0, nice(high, as)] } },
      axes: [
        timeAxis(axis),
        {
          stroke: paint("dim"),
          grid: { stroke: paint("line"), width: 1 },
          ticks: { show: false },
          font: axisFont,
          size: LEFT,
          gap: 4,
          space: 28,
          incrs: STEPS[as],
          values: (_, marks) => marks.map((mark) => shaped(as, mark)),
        },
      ],
      series: [{}, ...columns.toReversed()],
      hooks: {
        setCursor: [
          (u) => (cursor.value = u.cursor.left < 0 || u.cursor.left == null ? null : u.posToVal(u.cursor.left, "x")),
        ],
        setSelect: [
          (u) => {
            if (u.select.width < 6) return;
            const [from, to] = [u.select.left, u.select.left + u.select.width].map((x) => u.posToVal(x, "x"));
            u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
            if (u.cursor.event) state.current.onRange?.([Math.floor(from), Math.ceil(to)]);
          },
        ],
        draw: [(u) => drawMarks(u, state.current.marks)],
      },
    },
    [[], ...series.map(() => [])],
    place,
  );
}

// The end of the y axis: whole counts keep whole marks, and nothing is drawn at the very top.
function nice(high, as) {
  if (!high || high <= 0) return as === "seconds" ? 0.1 : as === "bytes" ? 1 << 20 : 1;
  return high * 1.1;
}

function drawMarks(u, marks) {
  const { ctx, bbox } = u;
  ctx.save();
  for (const { at, colour: name, glyph } of marks) {
    const x = Math.round(u.valToPos(at, "x", true)) + 0.5;
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.strokeStyle = ctx.fillStyle = paint(name);
    ctx.setLineDash([2 * devicePixelRatio, 2 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    if (glyph) {
      ctx.font = `${10 * devicePixelRatio}px system-ui, sans-serif`;
      ctx.textAlign = "center";
      ctx.fillText(glyph, x, bbox.top + 9 * devicePixelRatio);
    }
  }
  ctx.restore();
}

// The points of a chart as a table: a canvas says nothing.
function Points({ title, at, series, as }) {
  const [open, set] = useState(false);
  return html`<details class="points" onToggle=${(event) => set(event.currentTarget.open)}>
    <summary><span class="unseen">${title}: </span>table</summary>
    ${
      open &&
      html`<div class="scroll" tabindex="0" role="region" aria-label=${`${title}, as a table`}>
      <table>
        <thead>
          <tr><th scope="col">from</th>${series.map((one) => html`<th scope="col" class="num">${one.label}</th>`)}</tr>
        </thead>
        <tbody>
          ${at.map(
            (second, i) =>
              html`<tr><th scope="row">${moment(second * 1000)}</th>${series.map((one) => html`<td class="num">${shaped(as, one.values[i] ?? null)}</td>`)}</tr>`,
          )}
        </tbody>
      </table>
    </div>`
    }
  </details>`;
}

export const secondsNow = () => now() / 1000;
