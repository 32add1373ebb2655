// The replicas that there are: state, phases of their starts, slots, memory.
import { toDeployment } from "hotplate/address";
import { PhaseBars } from "hotplate/coldstarts";
import { NAME, SOURCE, Tab } from "hotplate/deployment";
import { Ago, Figure, Status, seconds } from "hotplate/figures";
import { Empty } from "hotplate/shell";
import { html } from "hotplate/view";

const fact = (name, value) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`;

function Replica({ one }) {
  const figure = (field, value, as = "number") =>
    html`<${Figure} source=${SOURCE} field=${`live.replicas.${field}`} value=${value} as=${as} />`;
  const begin = one.phases[0]?.start ?? Date.parse(one.wanted_at) / 1000;
  const end = one.phases.reduce((most, phase) => Math.max(most, phase.end ?? phase.start), begin);
  const started = one.ready_at ? (Date.parse(one.ready_at) - Date.parse(one.wanted_at)) / 1000 : null;
  return html`<section class="card" data-replica=${one.id}>
    <h2><bdi class="mono">${one.id}</bdi> <${Status} source=${SOURCE} field="live.replicas.state" value=${one.state} />
      </h2>
    ${
      (one.reason || one.out) &&
      html`<p class=${one.out ? "is-bad" : ""}>
      <bdi>${one.out || one.reason}</bdi>${one.out_since && html` · <${Ago} at=${one.out_since} />`}</p>`
    }
    <dl class="facts-list">
      ${fact("Service", figure("service", one.service, "text"))}
      ${fact("Revision", figure("revision", one.revision))}
      ${fact("Node", figure("node", one.node, "text"))}
      ${fact("Slots", html`${figure("slots.number", one.slots?.number)} <span class="soft">${one.slots?.source}</span>`)}
      ${fact("Memory", figure("memory_bytes", one.memory_bytes, "bytes"))}
      ${one.cpu_cores !== undefined && fact("CPUs", figure("cpu_cores", one.cpu_cores))}
      ${one.gpus?.length ? fact("GPUs", one.gpus.join(", ")) : null}
      ${fact("Restarts", figure("restarts", one.restarts))}
      ${one.abandoned_handlers ? fact("Abandoned handlers", figure("abandoned_handlers", one.abandoned_handlers)) : null}
      ${fact("Made", html`<${Ago} at=${one.created_at} source=${SOURCE} field="live.replicas.created_at" />`)}
      ${fact("Ready", html`<${Ago} at=${one.ready_at} source=${SOURCE} field="live.replicas.ready_at" />`)}
      ${fact("Cold start", started === null ? "–" : seconds(started))}
    </dl>
    ${one.phases.length > 0 && html`<${PhaseBars} phases=${one.phases} begin=${begin} total=${Math.max(end - begin, 0.001)} />`}
    ${
      one.log_tail?.length > 0 &&
      html`<details><summary>The end of its log</summary>
      <pre class="code" tabindex="0">${one.log_tail.join("\n")}</pre></details>`
    }
    <p><a href=${toDeployment(NAME, "logs", { replica: one.id })}>Its log</a></p>
  </section>`;
}

function Replicas({ found }) {
  const { services, replicas } = found.live;
  return html`${services.map(
    (service) => html`<dl class="facts-list" data-service=${service.service} data-revision=${service.revision}>
        ${fact("Service", html`<bdi>${service.service}</bdi> <span class="soft">revision ${service.revision}</span>`)}
        ${fact("Wanted", html`<${Figure} source=${SOURCE} field="live.services.desired" value=${service.desired} /> <span class="soft">granted <${Figure} source=${SOURCE} field="live.services.granted" value=${service.granted} />, ${service.min_replicas} to ${service.max_replicas}</span>`)}
        ${fact("In flight", html`<${Figure} source=${SOURCE} field="live.services.in_flight" value=${service.in_flight} />`)}
        ${fact("Queued", html`<${Figure} source=${SOURCE} field="live.services.queued" value=${service.queued} />`)}
        ${fact("Slots", html`<${Figure} source=${SOURCE} field="live.services.slots" value=${service.slots} as="text" />`)}
      </dl>`,
  )}
    ${
      replicas.length
        ? replicas.map((one) => html`<${Replica} key=${one.id} one=${one} />`)
        : html`<${Empty}>There is no replica now. ${found.status === "scaled-to-zero" ? "The next request starts one." : ""}</${Empty}>`
    }`;
}

export default () => html`<${Tab} here="replicas">${(found) => html`<${Replicas} found=${found} />`}</${Tab}>`;
