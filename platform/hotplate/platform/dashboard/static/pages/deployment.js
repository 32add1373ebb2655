// One time axis: requests, queue, replicas, cold starts, latencies, and why it was so at that moment.
import { one } from "hotplate/api";
import { Chart, cursor } from "hotplate/charts";
import { ColdStarts } from "hotplate/coldstarts";
import { NAME, SOURCE, Tab } from "hotplate/deployment";
import { Events } from "hotplate/events";
import { Ago, Figure, moment } from "hotplate/figures";
import { RangePicker, range, setRange } from "hotplate/ranges";
import { useMarked } from "hotplate/resources";
import { gpuSeries, queueSeries, replicaSeries, requestSeries, useDrawn, useSeries } from "hotplate/series";
import { Empty, Waiting } from "hotplate/shell";
import { html, useMemo } from "hotplate/view";

const MARKS = [
  [/^Rollout|^Created|^Canary/, "accent", "◆"],
  [/Crash|Failed|Cut/, "bad", "✕"],
  [/Refused/, "busy", "▲"],
];
const STARTS = `${one(NAME)}/cold_starts?count=300`;
const DECISIONS = `${one(NAME)}/decisions?count=1000`;
const EVENTS = `${one(NAME)}/events?count=500`;
const NONE = [];

const quantiles = (values) => [
  { key: "p50", label: "p50", colour: "start-2", kind: "line", values: values.p50 ?? NONE },
  { key: "p95", label: "p95", colour: "busy-fill", kind: "line", values: values.p95 ?? NONE },
  { key: "p99", label: "p99", colour: "bad-fill", kind: "line", values: values.p99 ?? NONE },
];
const named = (series, field) => series.map((each) => ({ ...each, field: `${field}.${each.key}` }));

function useMarks(events) {
  return useMemo(
    () =>
      (events ?? []).flatMap((event) => {
        const [, colour, glyph] = MARKS.find(([kinds]) => kinds.test(event.kind)) ?? [];
        return glyph ? [{ at: Date.parse(event.at) / 1000, colour, glyph }] : [];
      }),
    [events],
  );
}

function Decision({ decisions, found }) {
  const at = cursor.value;
  const past = at !== null;
  const inForce = past ? decisions?.find((each) => Date.parse(each.at) / 1000 <= at) : decisions?.[0];
  const figure = (field, as) =>
    html`<${Figure} source=${DECISIONS} field=${field} value=${inForce[field]} as=${as} />`;
  return html`<section class="decision" aria-label="Decision in force">
    <h2>${past ? html`Why, at ${moment(at * 1000)}` : "Why so many replicas, now"}</h2>
    ${
      inForce
        ? html`<p data-decision=${inForce.at} data-service=${inForce.service}><b class="big">${figure("desired")}</b> wanted of ${figure("service", "text")}, revision ${figure("revision")}: ${figure("reason", "text")}
          <span class="soft"> · decided <${Ago} at=${inForce.at} source=${DECISIONS} field="at" /></span></p>`
        : found.live.services.map(
            (service) =>
              html`<p data-service=${service.service} data-revision=${service.revision}><b class="big">
                <${Figure} source=${SOURCE} field="live.services.desired" value=${service.desired} />
                </b> wanted of <bdi>${service.service}</bdi>: <${Figure} source=${SOURCE} field="live.services.reason" value=${service.reason || null} as="text" />
                </p>`,
          )
    }
  </section>`;
}

function Numbers({ found }) {
  const total = (key) => html`<${Figure} source=${SOURCE} field=${`totals.${key}`} value=${found.totals[key]} />`;
  const rate = (key) =>
    html`<${Figure} source=${SOURCE} field=${`rates.${key}`} value=${found.rates[key]} as="rate" />`;
  return html`<dl class="numbers">
    <div><dt>Replicas ready</dt><dd>${total("ready")} <span class="soft">of ${total("wanted")}</span></dd></div>
    <div><dt>Requests</dt><dd>${rate("requests_per_s")}</dd></div>
    <div><dt>Errors</dt><dd>${rate("errors_per_s")}</dd></div>
    <div><dt>In flight</dt><dd>${total("in_flight")}</dd></div>
    <div><dt>Queued</dt><dd>${total("queued")}</dd></div>
  </dl>`;
}

function Axis({ found }) {
  const { from, to } = range();
  const { data, error, source } = useSeries(`${SOURCE}/series`, from, to);
  const last = found.live.replicas.map(({ ready_at }) => ready_at ?? "").reduce((a, b) => (a > b ? a : b), "");
  const starts = useMarked(STARTS, last);
  const decisions = useMarked(DECISIONS, found.decisions[0]?.at);
  const events = useMarked(EVENTS, found.events[0]?.at);
  const drawn = useDrawn(data);
  const marks = useMarks(events.data.value);
  const shared = { at: drawn?.at ?? NONE, range: [from, to], source, of: NAME, onRange: setRange };
  const within = (events.data.value ?? []).filter(
    ({ at }) => Date.parse(at) / 1000 >= from && Date.parse(at) / 1000 <= to,
  );
  const hasGpus = drawn && [...drawn.gpuBusy, ...drawn.gpuIdle].some((value) => value);
  const chart = (name, title, series, as, more) =>
    html`<${Chart} ...${shared} name=${name} title=${title} series=${series} as=${as} ...${more} />`;
  return html`<${Numbers} found=${found} />
    <div class="over"><${RangePicker} /></div>
    ${error && error.status !== 404 && html`<p class="empty bad">${error.message}</p>`}
    <div class="axis">
      ${drawn && chart("requests", "Requests", requestSeries(drawn), "rate", { marks, height: 130 })}
      ${drawn && chart("queue", "In flight and queued", queueSeries(drawn), "number", { height: 90 })}
      ${drawn && chart("replicas", "Replicas", replicaSeries(drawn), "number", { marks, height: 90 })}
      <${ColdStarts} source=${STARTS} starts=${starts.data.value ?? NONE} range=${[from, to]} of=${NAME} axis=${!drawn} />
      ${drawn && chart("latency", "Time to the whole answer", named(quantiles(drawn.answer), "answer_s"), "seconds")}
      ${drawn && chart("latency", "Wait in the queue", named(quantiles(drawn.wait), "wait_s"), "seconds", { height: 80 })}
      ${drawn && chart("errors", "Failed, of all answers", [{ key: "errors", label: "failed", colour: "bad-fill", kind: "bars", field: "errors", values: drawn.failedShare, raw: drawn.raw.errors }], "share", { height: 60 })}
      ${hasGpus && chart("gpu", "GPUs", gpuSeries(drawn), "number", { height: 80 })}
      ${drawn && chart("memory", "Memory", [{ key: "memory", field: "memory_bytes", label: "replicas", colour: "start-2", kind: "area", values: drawn.memory }], "bytes", { height: 80, axis: true })}
    </div>
    ${!drawn && !error && html`<p class="waiting">Loading what happened…</p>`}
    <${Decision} decisions=${decisions.data.value} found=${found} />
    <h2>What happened in this time</h2>
    ${!events.data.value ? html`<${Waiting} error=${events.error.value} />` : within.length ? html`<${Events} source=${EVENTS} events=${within.slice(0, 60)} />` : html`<${Empty}>Nothing happened in this time.</${Empty}>`}`;
}

export default () => html`<${Tab} here="">${(found) => html`<${Axis} found=${found} />`}</${Tab}>`;
