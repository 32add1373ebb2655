// Cold starts as bars on the time axis, each with its phases.
import uPlot from "uplot";
import { LEFT, paint, timeAxis } from "hotplate/charts";
import { Figure, moment, seconds, shaped } from "hotplate/figures";
import { html, useEffect, useMemo, useRef, useState } from "hotplate/view";

const PHASES = {
  instance: "idle",
  environment: "start-1",
  process: "start-2",
  weights: "start-3",
  init: "start-4",
};
const LANE = 11;
const LANES = 10;

const unix = (text) => Date.parse(text) / 1000;

// The starts of a range with the lane of each, so that none lies on another.
function laid(starts, [from, to]) {
  const ends = [];
  return starts
    .map((one) => ({ ...one, begin: unix(one.created_at), end: one.ready_at ? unix(one.ready_at) : null }))
    .filter(({ begin, end }) => begin <= to && (end ?? to) >= from)
    .sort((a, b) => a.begin - b.begin)
    .map((one) => {
      const free = ends.findIndex((end) => end <= one.begin);
      const lane = free >= 0 ? free : ends.length % LANES;
      ends[free >= 0 ? free : ends.length] = (one.end ?? to) + (to - from) / 200;
      return { ...one, lane: lane % LANES };
    });
}

// `source` is the path that answers them.
export function ColdStarts({ source, starts, range, of, axis = false }) {
  const place = useRef(null);
  const plot = useRef(null);
  const [from, to] = range;
  const bars = useMemo(() => laid(starts, range), [starts, from, to]);
  const current = useRef(bars);
  current.current = bars;
  const lanes = bars.reduce((most, { lane }) => Math.max(most, lane + 1), 1);
  const height = lanes * LANE + 16 + (axis ? 24 : 0);
  useEffect(() => {
    const build = () => {
      plot.current?.destroy();
      plot.current = make(place.current, height, axis, current);
      plot.current.setScale("x", { min: from, max: to });
    };
    const size = new ResizeObserver(() => plot.current?.setSize({ width: place.current.clientWidth, height }));
    build();
    size.observe(place.current);
    addEventListener("theme", build);
    return () => {
      size.disconnect();
      removeEventListener("theme", build);
      plot.current.destroy();
    };
  }, [height, axis]);
  useEffect(() => plot.current.setScale("x", { min: from, max: to }), [from, to, bars]);
  const slowest = bars.reduce((most, bar) => ((bar.cold_start_s ?? -1) > (most?.cold_start_s ?? -1) ? bar : most), null);
  const text = `${bars.length} cold starts${slowest ? `; ${seconds(slowest.cold_start_s)} at most` : ""}`;
  return html`<figure data-chart="cold-starts" aria-label=${`Cold starts of ${of}: ${text}.`}>
    <figcaption><b>Cold starts</b>
      <span class="keys">${Object.entries(PHASES).map(([name, colour]) => html`<span class="key" style=${{ "--colour": `var(--${colour})` }}>${name}</span>`)}</span>
      ${slowest && html`<span class="soft" data-replica=${slowest.replica} data-start=${slowest.created_at}>at most <${Figure} source=${source} field="cold_start_s" value=${slowest.cold_start_s} as="seconds" /></span>`}</figcaption>
    <div class="plot" ref=${place} style=${{ height: `${height}px` }} aria-hidden="true">${!bars.length && html`<span class="nothing">none in this time</span>`}</div>
    <${Starts} bars=${bars} />
  </figure>`;
}

function make(place, height, axis, current) {
  return new uPlot(
    {
      width: place.clientWidth || 600,
      height,
      legend: { show: false },
      padding: [4, 8, axis ? 0 : 4, 0],
      cursor: {
        sync: { key: "time", setSeries: false, scales: ["x", null] },
        y: false,
        points: { show: false },
        drag: { x: false, y: false },
      },
      scales: { x: { time: true }, y: { range: [0, 1] } },
      axes: [timeAxis(axis), { size: LEFT, grid: { show: false }, ticks: { show: false }, values: () => [] }],
      series: [{}, { show: false }],
      hooks: { draw: [(u) => draw(u, current.current)] },
    },
    [
      [0, 1],
      [null, null],
    ],
    place,
  );
}

function draw(u, bars) {
  const { ctx, bbox } = u;
  const scale = devicePixelRatio;
  const x = (second) => u.valToPos(second, "x", true);
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  for (const { lane, begin, end, phases } of bars) {
    const y = bbox.top + (lane * LANE + 3) * scale;
    ctx.fillStyle = paint("line");
    const until = end ?? u.scales.x.max;
    ctx.fillRect(x(begin), y, Math.max(2 * scale, x(until) - x(begin)), 7 * scale);
    for (const phase of phases) {
      if (!(phase.name in PHASES)) continue;
      ctx.fillStyle = paint(PHASES[phase.name]);
      const [left, right] = [x(phase.start), x(phase.end ?? until)];
      ctx.fillRect(left, y, Math.max(1.5 * scale, right - left), 7 * scale);
    }
  }
  ctx.restore();
}

function Starts({ bars }) {
  const [open, set] = useState(false);
  const names = Object.keys(PHASES);
  return html`<details class="points" onToggle=${(event) => set(event.currentTarget.open)}>
    <summary><span class="unseen">Cold starts: </span>table</summary>
    ${
      open &&
      html`<div class="scroll" tabindex="0" role="region" aria-label="Cold starts, as a table"><table>
      <thead><tr><th scope="col">wanted</th>
        <th scope="col">replica</th>${names.map((name) => html`<th scope="col" class="num">${name}</th>`)}<th scope="col" class="num">until ready</th>
        </tr></thead>
      <tbody>${bars.toReversed().map(
        (bar) => html`<tr data-replica=${bar.replica}><th scope="row">${moment(bar.begin * 1000)}</th><td>
          <bdi>${bar.replica}</bdi></td>
        ${names.map((name) => html`<td class="num">${lasted(bar.phases.filter((phase) => phase.name === name))}</td>`)}
        <td class="num">${shaped("seconds", bar.cold_start_s)}</td></tr>`,
      )}</tbody></table></div>`
    }
  </details>`;
}

const lasted = (phases) =>
  phases.length ? seconds(phases.reduce((sum, { start, end }) => sum + ((end ?? start) - start), 0)) : "–";

// The phases of one start, one bar for each on a scale of `total` seconds from `begin`; `figure`
// makes the element of a key of theirs.
export function PhaseBars({ phases, begin, total, figure }) {
  return html`<ul class="phases">${phases.map((phase) => {
    const [from, to] = [phase.start - begin, (phase.end ?? begin + total) - begin];
    const share = (second) => `${Math.max(0, Math.min(100, (second / total) * 100))}%`;
    return html`<li data-phase=${phase.name}><span class="phase">${phase.name}</span>
      <span class="track" aria-hidden="true">
        <i style=${{ left: share(from), width: `max(2px, ${share(to - from)})`, background: `var(--${PHASES[phase.name] ?? "idle"})` }} />
        </span>
      <span class="num">lasted ${phase.end === null ? html`<span class="soft">still</span>` : figure("lasted_s", phase.lasted_s)}, <span class="soft">waited ${figure("share_s", phase.share_s)}</span></span>
        </li>`;
  })}</ul>`;
}
