// Every decision with what it was made from, and what another policy would have done.
import { asked, put } from "hotplate/address";
import { call, one } from "hotplate/api";
import { NAME, SOURCE, Tab } from "hotplate/deployment";
import { Ago, Figure, number, seconds } from "hotplate/figures";
import { useResource } from "hotplate/resources";
import { Empty, Waiting } from "hotplate/shell";
import { html, useState } from "hotplate/view";

const DECISIONS = `${one(NAME)}/decisions?count=200`;

function Decisions() {
  const { data, error } = useResource(DECISIONS, { every: 2 });
  const all = data.value;
  if (!all) return html`<${Waiting} error=${error.value} />`;
  const services = [...new Set(all.map(({ service }) => service))];
  const service = asked("service");
  const found = all.filter((each) => !service || each.service === service);
  if (!all.length) return html`<${Empty}>Nothing was decided yet.</${Empty}>`;
  return html`${
    services.length > 1 &&
    html`<p class="controls">
    <label>Service <select value=${service} onChange=${(event) => put({ service: event.target.value })}>
    <option value="">all</option>${services.map((name) => html`<option>${name}</option>`)}</select></label></p>`
  }
    <table class="list" aria-label="Decisions"><thead><tr><th scope="col">When</th>
      <th scope="col" class="num">Wanted</th><th scope="col" class="num">There were</th><th scope="col">Why</th>
      <th scope="col" class="num">In flight</th><th scope="col" class="num">Queued</th>
      <th scope="col" class="num">Ready</th><th scope="col" class="num">Starting</th>
      <th scope="col" class="num">A request takes</th></tr></thead>
    <tbody>${found.map((each) => {
      const figure = (field, as, value = each[field]) =>
        html`<${Figure} source=${DECISIONS} field=${field} value=${value} as=${as} />`;
      const input = (key, as) => figure(`inputs.${key}`, as, each.inputs[key]);
      return html`<tr key=${each.at + each.service} data-decision=${each.at} data-service=${each.service}>
      <td><${Ago} at=${each.at} source=${DECISIONS} field="at" /></td>
        <td class="num" data-head="Wanted"><b>${figure("desired")}</b></td>
        <td class="num" data-head="There were">${figure("replicas")}</td>
      <td class="wide">${figure("reason", "text")} <span class="soft">
        ${figure("service", "text")} ${figure("revision")}</span></td>
      <td class="num" data-head="In flight">${input("in_flight")}</td>
        <td class="num" data-head="Queued">${input("queued")}</td>
      <td class="num" data-head="Ready">${input("ready")}</td>
        <td class="num" data-head="Starting">${input("starting")}</td>
      <td class="num" data-head="A request takes">${input("service_s", "seconds")}</td></tr>`;
    })}</tbody></table>`;
}

function Simulation() {
  const [price, setPrice] = useState("600");
  const [state, set] = useState({ outcome: null, error: null, runs: false });
  const run = async (event) => {
    event.preventDefault();
    set({ outcome: null, error: null, runs: true });
    try {
      const { data } = await call("POST", `${SOURCE}/simulate`, { body: { price_gpu_s: Number(price) } });
      set({ outcome: data.policies, error: null, runs: false });
    } catch (error) {
      set({ outcome: null, error, runs: false });
    }
  };
  const rows = Object.entries(state.outcome ?? {});
  return html`<section class="card"><h2>What another policy or price would have done</h2>
    <p class="soft">The requests that are kept of this deployment, once more, under each policy: what it had cost, and who had waited.</p>
    <form class="row" onSubmit=${run}>
      <label>One avoided cold start is worth <input type="number" min="0" max="1000000" step="any" value=${price} onInput=${(event) => setPrice(event.target.value)} style=${{ width: "7rem" }} /> GPU-seconds</label>
      <button disabled=${state.runs}>${state.runs ? "Simulating…" : "Simulate"}</button></form>
    ${state.error && html`<p class="bad" role="alert">${state.error.message}</p>`}
    ${
      rows.length > 0 &&
      html`<table class="list" aria-label="Simulated"><thead><tr><th scope="col">Policy</th>
        <th scope="col" class="num">GPU-hours</th><th scope="col" class="num">busy</th>
        <th scope="col" class="num">idle</th><th scope="col" class="num">starting</th>
        <th scope="col" class="num">Starts</th><th scope="col" class="num">Wait p50</th>
        <th scope="col" class="num">p95</th><th scope="col" class="num">p99</th></tr></thead>
      <tbody>${rows.map(
        ([name, each]) => html`<tr data-policy=${name}><td class="name"><b>${name}</b></td>
        <td class="num" data-head="GPU-hours">${number(each.gpu_hours.total)}</td>
        <td class="num" data-head="busy">${number(each.gpu_hours.busy)}</td>
        <td class="num" data-head="idle">${number(each.gpu_hours.idle)}</td>
        <td class="num" data-head="starting">${number(each.gpu_hours.starting)}</td>
        <td class="num" data-head="Starts">${each.starts}</td>
        <td class="num" data-head="Wait p50">${seconds(each.wait_s.p50)}</td>
        <td class="num" data-head="p95">${seconds(each.wait_s.p95)}</td>
        <td class="num" data-head="p99">${seconds(each.wait_s.p99)}</td></tr>`,
      )}</tbody></table>`
    }
  </section>`;
}

function Why({ found }) {
  return html`${found.live.services.map(
    (service) => html`<p data-service=${service.service} data-revision=${service.revision}>
    <b class="big"><${Figure} source=${SOURCE} field="live.services.desired" value=${service.desired} />
    </b> wanted of <bdi>${service.service}</bdi>: <${Figure} source=${SOURCE} field="live.services.reason" value=${service.reason || null} as="text" />
    </p>`,
  )}
    <${Simulation} /><h2>Decisions</h2><${Decisions} />`;
}

export default () => html`<${Tab} here="why">${(found) => html`<${Why} found=${found} />`}</${Tab}>`;
