// How all is, in ten seconds.
import { toDeployment, to } from "hotplate/address";
import { page, ROOT } from "hotplate/api";
import { Chart } from "hotplate/charts";
import { now } from "hotplate/clock";
import { Events } from "hotplate/events";
import { Figure, Status, number } from "hotplate/figures";
import { range } from "hotplate/ranges";
import { ofEvents, ofList, useResource } from "hotplate/resources";
import { queueSeries, requestSeries, useDrawn, useSeries } from "hotplate/series";
import { Empty, may, Waiting } from "hotplate/shell";
import { BAD, inFlight, queued, ready } from "hotplate/summaries";
import { html } from "hotplate/view";

const LIST = `${ROOT}/deployments`;
const PLATFORM = `${ROOT}/platform`;
const NONE = [];

function sentence(all, short) {
  const bad = all.filter(({ status }) => BAD.includes(status));
  const serving = all.filter(({ status }) => status === "running").length;
  const asleep = all.filter(({ status }) => status === "scaled-to-zero").length;
  const waits = all.reduce((sum, one) => sum + queued(one), 0);
  const runs = all.reduce((sum, one) => sum + inFlight(one), 0);
  const parts = [`${serving} ${serving === 1 ? "deployment serves" : "deployments serve"}`];
  if (asleep) parts.push(`${asleep} ${asleep === 1 ? "sleeps" : "sleep"} at zero`);
  parts.push(`${number(runs)} in flight`, waits ? `${number(waits)} wait` : "nobody waits");
  const trouble = bad.length + short.length;
  return {
    bad,
    text: `${trouble ? `${trouble} ${trouble === 1 ? "thing needs" : "things need"} you` : "All is well"}: ${parts.join(", ")}.`,
  };
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

// GPUs by what they do: of nodes as they are, of use as the last step of the series says.
function Gpus({ nodes, data, source }) {
  const all = nodes.reduce((sum, node) => sum + node.in_all.gpus, 0);
  const taken = nodes.reduce((sum, node) => sum + node.taken.gpus, 0);
  if (!all) return null;
  const last = (values) => (values?.findLast((value) => value !== null) ?? 0) / (data?.step_s ?? 1);
  const uses = [
    ["busy", "calm", last(data?.gpu_s?.busy)],
    ["idle", "idle", last(data?.gpu_s?.idle)],
    ["starting", "busy-fill", last(data?.gpu_s?.starting)],
    ["free", "line", all - taken],
  ];
  return html`<section><h2>GPUs</h2>
    <p class="meter" aria-hidden="true">${uses.map(([, colour, count]) => html`<i style=${{ flexGrow: count, background: `var(--${colour})` }} />`)}</p>
    <p class="keys">${uses.map(
      ([
        use,
        colour,
        count,
      ]) => html`<span class="key" style=${{ "--colour": `var(--${colour})` }}>${use} <b data-source=${use === "free" ? PLATFORM : source}>${number(count)}</b>
      </span>`,
    )} <span class="soft">of ${all}</span></p></section>`;
}

function Costs() {
  const midnight = new Date(now());
  midnight.setHours(0, 0, 0, 0);
  const path = `${ROOT}/costs?from=${Math.floor(midnight / 1000)}&to=${Math.floor(midnight / 1000) + 86_400}&by=organization`;
  const { data } = useResource(path, { every: 60 });
  const items = data.value?.items;
  if (!items) return null;
  const sum = (of) => items.reduce((all, item) => all + (of(item) ?? 0), 0);
  const hours = (of) => sum((item) => (of(item).busy + of(item).idle + of(item).starting) / 3600);
  const [gpuHours, replicaHours] = [hours(({ gpu_s }) => gpu_s), hours(({ replica_s }) => replica_s)];
  const cost = items.some((item) => item.cost !== null) ? sum((item) => item.cost) : null;
  const [amount, unit] = cost !== null ? [cost, ""] : gpuHours ? [gpuHours, "GPU-h"] : [replicaHours, "replica-h"];
  return html`<div>
    <dt>Cost today</dt>
    <dd><a class="quiet" href=${to("/costs")}>${number(amount)} <span class="soft">${unit}</span></a></dd>
  </div>`;
}

const useOptional = (allowed, path, options) => (allowed ? useResource(path, options) : null);

export default function Overview() {
  if (!may("developer"))
    return html`<h1>Overview</h1>
      <p>You may call protected deployments: <a href=${to("/api_tokens")}>your API tokens</a>.</p>`;
  const list = useResource(LIST, { topic: "deployments", join: ofList });
  const platform = useOptional(page.operator, PLATFORM, { topic: "platform" });
  const events = useResource(`${ROOT}/events?count=30`, { topic: "events", join: ofEvents });
  const { from, to: end } = range();
  const { data, source } = useSeries(`${ROOT}/series`, from, end);
  const drawn = useDrawn(data);
  const all = list.data.value;
  if (!all) return html`<h1>Overview</h1><${Waiting} error=${list.error.value} />`;
  const short = platform?.data.value?.short ?? NONE;
  const { bad, text } = sentence(all, short);
  const shared = { at: drawn?.at, range: [from, end], source };
  const total = (of) => all.reduce((sum, one) => sum + of(one), 0);
  const rates = all.map((one) => one.rates?.requests_per_s).filter((rate) => rate !== undefined && rate !== null);
  return html`<h1>Overview</h1>
    <p class="lead">${all.length ? text : "Nothing is deployed yet."}</p>
    ${
      !all.length &&
      html`<${Empty}>In the folder of a service: <code>bentoml deploy</code>. Log in first: <code>bentoml cloud login</code>
      </${Empty}>`
    }
    <${Trouble} bad=${bad} short=${short} />
    <dl class="numbers">
      <div><dt>Deployments</dt><dd><a class="quiet" href=${to("/deployments")}>${all.length}</a></dd></div>
      <div><dt>Replicas ready</dt><dd>${total(ready)}</dd></div>
      <div><dt>Requests</dt>
        <dd>${rates.length ? html`${number(rates.reduce((a, b) => a + b, 0))}<span class="soft">/s</span>` : "–"}</dd>
        </div>
      <div><dt>In flight</dt><dd>${total(inFlight)}</dd></div>
      <div><dt>Queued</dt><dd>${total(queued)}</dd></div>
      <${Costs} />
    </dl>
    <${Gpus} nodes=${platform?.data.value?.nodes ?? NONE} data=${data} source=${source} />
    ${
      drawn &&
      html`<section><h2>The last hour</h2><div class="axis">
      <${Chart} ...${shared} name="requests" title="Requests" series=${requestSeries(drawn)} as="rate" height=${140} />
      <${Chart} ...${shared} name="queue" title="In flight and queued" series=${queueSeries(drawn)} height=${110} axis=${true} />
        </div></section>`
    }
    <section><h2>Last events</h2>
      ${!events.data.value ? html`<${Waiting} error=${events.error.value} />` : events.data.value.length ? html`<${Events} events=${events.data.value.slice(0, 15)} named=${true} />` : html`<${Empty}>Nothing has happened yet.</${Empty}>`}</section>`;
}
