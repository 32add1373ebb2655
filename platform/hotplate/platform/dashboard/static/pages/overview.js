// How all is, in ten seconds.
import { toDeployment, to } from "hotplate/address";
import { page, ROOT } from "hotplate/api";
import { Chart } from "hotplate/charts";
import { now } from "hotplate/clock";
import { Events } from "hotplate/events";
import { Figure, Status } from "hotplate/figures";
import { range } from "hotplate/ranges";
import { ofEvents, ofList, useResource } from "hotplate/resources";
import { queueSeries, requestSeries, useDrawn, useSeries } from "hotplate/series";
import { Empty, may, Waiting } from "hotplate/shell";
import { BAD, totalsOf } from "hotplate/summaries";
import { html } from "hotplate/view";

const LIST = `${ROOT}/deployments`;
const TOTALS = `${ROOT}/totals`;
const PLATFORM = `${ROOT}/platform`;
const EVENTS = `${ROOT}/events?count=30`;
const NONE = [];

const total = (field, value, as) => html`<${Figure} source=${TOTALS} field=${field} value=${value} as=${as} />`;

function Sentence({ totals, isWell }) {
  const { running: serving = 0, "scaled-to-zero": asleep = 0 } = totals.by_status;
  return html`<p class="lead">${isWell ? "All is well" : "Something needs you"}: ${serving ? total("by_status.running", serving) : "no"} ${serving === 1 ? "deployment serves" : "deployments serve"}${asleep > 0 && html`, ${total("by_status.scaled-to-zero", asleep)} ${asleep === 1 ? "sleeps" : "sleep"} at zero`}, ${total("in_flight", totals.in_flight)} in flight, ${totals.queued ? html`${total("queued", totals.queued)} wait` : "nobody waits"}.</p>`;
}

function Trouble({ bad, short }) {
  if (!bad.length && !short.length) return null;
  return html`<section><h2>What is short or failing</h2>
    <ul class="trouble">
      ${short.map(
        (text) => html`<li><span class="state unhealthy"><span class="glyph" aria-hidden="true">▲</span>
        </span> <bdi>${text}</bdi></li>`,
      )}
      ${bad.map(
        (one) => html`<li key=${one.name} data-deployment=${one.name}><${Status} source=${LIST} value=${one.status} />
        <a href=${toDeployment(one.name)}><bdi>${one.name}</bdi></a> <bdi class="soft">${one.reason}</bdi>
        <a href=${toDeployment(one.name, "logs")}>log</a> <a href=${toDeployment(one.name, "revisions")}>revisions</a>
          </li>`,
      )}
    </ul></section>`;
}

const USES = { busy: "calm", idle: "idle", starting: "busy-fill", standby: "start-2", free: "line" };

// GPUs by what they do now.
function Gpus({ gpus }) {
  if (!gpus?.in_all) return null;
  const figure = (use) => html`<${Figure} source=${PLATFORM} field=${`gpus.${use}`} value=${gpus[use]} />`;
  return html`<section><h2>GPUs</h2>
    <p class="meter" aria-hidden="true">${Object.entries(USES).map(([use, colour]) => html`<i style=${{ flexGrow: gpus[use], background: `var(--${colour})` }} />`)}</p>
    <p class="keys">${Object.entries(USES).map(
      ([use, colour]) => html`<span class="key" style=${{ "--colour": `var(--${colour})` }}>${use} <b>${figure(use)}</b></span>`,
    )} <span class="soft">of ${figure("in_all")}</span></p></section>`;
}

function Costs() {
  const midnight = new Date(now());
  midnight.setHours(0, 0, 0, 0);
  const path = `${ROOT}/costs?from=${Math.floor(midnight / 1000)}&to=${Math.floor(midnight / 1000) + 86_400}&by=organization`;
  const { data } = useResource(path, { every: 60 });
  const sum = data.value?.sum;
  if (!sum) return null;
  // What has no price is told by what it took.
  const kind = sum.gpu_s.lived ? "gpu_s" : "replica_s";
  const [field, value, as, unit] =
    sum.cost !== null
      ? ["sum.cost", sum.cost, "number", ""]
      : [`sum.${kind}.lived`, sum[kind].lived, "seconds", kind === "gpu_s" ? "of GPUs" : "of replicas"];
  return html`<div>
    <dt>Cost today</dt>
    <dd><a class="quiet" href=${to("/costs")}><${Figure} source=${path} field=${field} value=${value} as=${as} /> <span class="soft">${unit}</span></a></dd>
  </div>`;
}

const useOptional = (allowed, path, options) => (allowed ? useResource(path, options) : null);

export default function Overview() {
  if (!may("developer"))
    return html`<h1>Overview</h1>
      <p>You may call protected deployments: <a href=${to("/api_tokens")}>your API tokens</a>.</p>`;
  const list = useResource(LIST, { topic: "deployments", join: ofList });
  const platform = useOptional(page.operator, PLATFORM, { topic: "platform" });
  const events = useResource(EVENTS, { topic: "events", join: ofEvents });
  const { from, to: end } = range();
  const { data, error, source } = useSeries(`${ROOT}/series`, from, end);
  const drawn = useDrawn(data);
  const all = list.data.value;
  if (!all) return html`<h1>Overview</h1><${Waiting} error=${list.error.value} />`;
  const short = platform?.data.value?.short ?? NONE;
  const bad = all.filter(({ status }) => BAD.includes(status));
  const totals = totalsOf(all);
  const shared = { at: drawn?.at, range: [from, end], source };
  return html`<h1>Overview</h1>
    ${
      all.length
        ? html`<${Sentence} totals=${totals} isWell=${!bad.length && !short.length} />`
        : html`<p class="lead">Nothing is deployed yet.</p><${Empty}>In the folder of a service: <code>bentoml deploy</code>. Log in first: <code>bentoml cloud login</code>
      </${Empty}>`
    }
    <${Trouble} bad=${bad} short=${short} />
    <dl class="numbers">
      <div><dt>Deployments</dt><dd><a class="quiet" href=${to("/deployments")}>${total("deployments", totals.deployments)}</a></dd></div>
      <div><dt>Replicas ready</dt><dd>${total("ready", totals.ready)} <span class="soft">of ${total("wanted", totals.wanted)}</span></dd></div>
      <div><dt>Requests</dt><dd>${total("rates.requests_per_s", totals.rates.requests_per_s, "rate")}</dd></div>
      <div><dt>In flight</dt><dd>${total("in_flight", totals.in_flight)}</dd></div>
      <div><dt>Queued</dt><dd>${total("queued", totals.queued)}</dd></div>
      <${Costs} />
    </dl>
    <${Gpus} gpus=${platform?.data.value?.gpus} />
    ${error && html`<p class="empty bad" role="alert">${error.message}</p>`}
    ${
      drawn &&
      html`<section><h2>The last hour</h2><div class="axis">
      <${Chart} ...${shared} name="requests" title="Requests" series=${requestSeries(drawn)} as="rate" height=${140} />
      <${Chart} ...${shared} name="queue" title="In flight and queued" series=${queueSeries(drawn)} height=${110} axis=${true} />
        </div></section>`
    }
    <section><h2>Last events</h2>
      ${!events.data.value ? html`<${Waiting} error=${events.error.value} />` : events.data.value.length ? html`<${Events} source=${EVENTS} events=${events.data.value.slice(0, 15)} named=${true} />` : html`<${Empty}>Nothing has happened yet.</${Empty}>`}</section>`;
}
