// The replicas that there are: state, phases of their starts, slots, memory.
import { toDeployment } from "hotplate/address";
import { PhaseBars } from "hotplate/coldstarts";
import { NAME, SOURCE, Tab } from "hotplate/deployment";
import { Ago, Figure, Status } from "hotplate/figures";
import { Empty } from "hotplate/shell";
import { html } from "hotplate/view";

const fact = (name, value) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`;

function Replica({ one }) {
  const figure = (field, value, as = "number") =>
    html`<${Figure} source=${SOURCE} field=${`live.replicas.${field}`} value=${value} as=${as} />`;
  const begin = one.phases[0]?.start ?? Date.parse(one.wanted_at) / 1000;
  const end = one.phases.reduce((most, phase) => Math.max(most, phase.end ?? phase.start), begin);
  return html`<section class="card" data-replica=${one.id}>
    <h2><bdi class="mono">${one.id}</bdi> <${Status} source=${SOURCE} field="live.replicas.state" value=${one.state} />
      </h2>
    ${
      (one.reason || one.out) &&
      html`<p class=${one.out ? "is-bad" : ""}>
      ${one.out ? figure("out", one.out, "text") : figure("reason", one.reason, "text")}${one.out_since && html` · <${Ago} at=${one.out_since} source=${SOURCE} field="live.replicas.out_since" />`}</p>`
    }
    <dl class="facts-list">
      ${fact("Service", figure("service", one.service, "text"))}
      ${fact("Revision", figure("revision", one.revision))}
      ${fact("Node", figure("node", one.node, "text"))}
      ${fact("Slots", html`${figure("slots.number", one.slots?.number)} <span class="soft">${one.slots?.source}</span>`)}
      ${fact("Memory", figure("memory_bytes", one.memory_bytes, "bytes"))}
      ${fact("CPUs", figure("cpus", one.cpus))}
      ${fact("GPUs", figure("gpus", one.gpus))}
      ${fact("Restarts", figure("restarts", one.restarts))}
      ${one.abandoned_handlers ? fact("Abandoned handlers", figure("abandoned_handlers", one.abandoned_handlers)) : null}
      ${fact("Made", html`<${Ago} at=${one.created_at} source=${SOURCE} field="live.replicas.created_at" />`)}
      ${fact("Ready", html`<${Ago} at=${one.ready_at} source=${SOURCE} field="live.replicas.ready_at" />`)}
      ${fact("Cold start", figure("cold_start_s", one.cold_start_s, "seconds"))}
    </dl>
    ${one.phases.length > 0 && html`<${PhaseBars} phases=${one.phases} begin=${begin} total=${Math.max(end - begin, 0.001)} figure=${(key, value) => figure(`phases.${key}`, value, "seconds")} />`}
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
  const of = (service, key, as) =>
    html`<${Figure} source=${SOURCE} field=${`live.services.${key}`} value=${service[key]} as=${as} />`;
  return html`${services.map(
    (service) => html`<dl class="facts-list" data-service=${service.service} data-revision=${service.revision}>
        ${fact("Service", html`${of(service, "service", "text")} <span class="soft">revision ${of(service, "revision")}</span>`)}
        ${fact("Wanted", html`${of(service, "desired")} <span class="soft">granted ${of(service, "granted")}, ${of(service, "min_replicas")} to ${of(service, "max_replicas")}</span>`)}
        ${fact("In flight", of(service, "in_flight"))}
        ${fact("Queued", of(service, "queued"))}
        ${fact("Slots", of(service, "slots", "text"))}
      </dl>`,
  )}
    ${
      replicas.length
        ? replicas.map((one) => html`<${Replica} key=${one.id} one=${one} />`)
        : html`<${Empty}>There is no replica now. ${found.status === "scaled-to-zero" ? "The next request starts one." : ""}</${Empty}>`
    }`;
}

export default () => html`<${Tab} here="replicas">${(found) => html`<${Replicas} found=${found} />`}</${Tab}>`;
