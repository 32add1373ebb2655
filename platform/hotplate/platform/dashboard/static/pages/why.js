// Every decision with what it was made from, and what another policy would have done.
import { asked, put } from "hotplate/address";
import { call, one } from "hotplate/api";
import { NAME, SOURCE, Tab } from "hotplate/deployment";
import { Ago, Figure, number, seconds, shaped } from "hotplate/figures";
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
    <tbody>${found.map(
      (each) => html`<tr key=${each.at + each.service}>
      <td><${Ago} at=${each.at} /></td><td class="num" data-head="Wanted"><b>${each.desired}</b></td>
        <td class="num" data-head="There were">${each.replicas}</td>
      <td class="wide"><bdi>${each.reason}</bdi> <span class="soft">
        <bdi>${each.service}</bdi> ${each.revision}</span></td>
      <td class="num" data-head="In flight">${shaped("number", each.inputs.in_flight)}</td>
        <td class="num" data-head="Queued">${shaped("number", each.inputs.queued)}</td>
      <td class="num" data-head="Ready">${shaped("number", each.inputs.ready)}</td>
        <td class="num" data-head="Starting">${shaped("number", each.inputs.starting)}</td>
      <td class="num" data-head="A request takes">${each.inputs.service_s ? seconds(each.inputs.service_s) : "–"}</td>
        </tr>`,
    )}</tbody></table>`;
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
