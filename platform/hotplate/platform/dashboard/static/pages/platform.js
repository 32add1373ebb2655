// The machine or cluster: nodes, roles, disks, environments, standbys.
import { call, ROOT } from "hotplate/api";
import { Ago, bytes, Figure, Status } from "hotplate/figures";
import { useResource } from "hotplate/resources";
import { attempt, Empty, Waiting } from "hotplate/shell";
import { toDeployment } from "hotplate/address";
import { html, useState } from "hotplate/view";

const SOURCE = `${ROOT}/platform`;
const STANDBY = `${ROOT}/standby`;
const ENVIRONMENTS = `${ROOT}/environments`;

function Meter({ taken, all, label }) {
  return html`<span class="meter" role="img" aria-label=${label}>
    <i style=${{ flexGrow: taken, background: "var(--calm)" }} />
    <i style=${{ flexGrow: Math.max(all - taken, 0) }} /></span>`;
}

function Nodes({ nodes }) {
  return nodes.map(
    (node) => html`<section class="card" data-node=${node.name} key=${node.name}><h3><bdi>${node.name}</bdi></h3>
    ${["cpus", "memory_bytes", "gpus"]
      .filter((key) => node.in_all[key] || key !== "gpus")
      .map((key) => {
        const as = key === "memory_bytes" ? "bytes" : "number";
        const name = { cpus: "CPUs", memory_bytes: "Memory", gpus: "GPUs" }[key];
        return html`<p class="row">
          <span style=${{ minWidth: "16rem" }}>${name} <${Figure} source=${SOURCE} field=${`nodes.taken.${key}`} value=${node.taken[key]} as=${as} /> <span class="soft">taken of <${Figure} source=${SOURCE} field=${`nodes.in_all.${key}`} value=${node.in_all[key]} as=${as} />
          </span></span>
        <span style=${{ flex: "1 1 12rem" }}>
          <${Meter} taken=${node.taken[key]} all=${node.in_all[key]} label=${`${name} taken`} /></span></p>`;
      })}
    ${
      Object.keys(node.labels).length > 0 &&
      html`<p>${Object.entries(node.labels).map(
        ([key, value]) => html`<span class="label">
      <bdi>${key}=${value}</bdi></span>`,
      )}</p>`
    }</section>`,
  );
}

function Roles({ roles }) {
  return html`<table class="list" aria-label="Roles"><thead><tr><th scope="col">Role</th><th scope="col">Runs</th>
    <th scope="col">Since</th><th scope="col" class="num">Restarts</th><th scope="col">Its last end</th></tr></thead>
    <tbody>${roles.map(
      (role) => html`<tr key=${role.name} data-role=${role.name}><td class="name"><b>${role.name}</b></td>
      <td><span class=${`state ${role.runs === false ? "failed" : "running"}`}>
        <span class="glyph" aria-hidden="true">${role.runs === false ? "✕" : "●"}</span>
        <${Figure} source=${SOURCE} field="roles.runs" value=${role.runs ?? true} as="flag" /></span></td>
      <td><${Ago} at=${role.since} source=${SOURCE} field="roles.since" /></td><td class="num" data-head="Restarts">
        <${Figure} source=${SOURCE} field="roles.restarts" value=${role.restarts} /></td>
      <td class="wide soft">
        <${Figure} source=${SOURCE} field="roles.last_end" value=${role.last_end || null} as="text" /></td></tr>`,
    )}</tbody></table>`;
}

function Standbys() {
  const standby = useResource(STANDBY, { every: 3 });
  const [draft, set] = useState(null);
  const found = standby.data.value;
  if (!found) return html`<${Waiting} error=${standby.error.value} />`;
  // What is changed, of the settings as they were read then.
  const { changes, etag } = draft ?? { changes: {}, etag: standby.etag };
  const settings = { ...found.settings, ...changes };
  const change = (key, value) => set({ changes: { ...changes, [key]: value }, etag });
  const put = async (body) => {
    const done = await attempt(() => call("PUT", STANDBY, { body, etag }), "The standby settings are kept.");
    await standby.reload();
    set(done ? null : { changes, etag: standby.etag });
  };
  const save = (event) => {
    event.preventDefault();
    put({ settings: changes });
  };
  const now = (key) =>
    settings[key] !== found.settings[key] && html` <span class="hint">now ${found.settings[key]}</span>`;
  const field = (key, text, step = "any") =>
    html`<label><span>${text}${now(key)}</span><input type="number" min="0" step=${step} value=${settings[key]} onInput=${(event) => change(key, Number(event.target.value))} />
      </label>`;
  return html`<p>They take <${Figure} source=${STANDBY} field="memory_bytes" value=${found.memory_bytes} as="bytes" /> <span class="soft">of <${Figure} source=${STANDBY} field="budget_bytes" value=${found.budget_bytes} as="bytes" /> at most.</span>
    </p>
    <table class="list" aria-label="Standbys"><thead><tr><th scope="col">Pool</th>
      <th scope="col" class="num">Ready</th><th scope="col" class="num">Making</th>
      <th scope="col" class="num">Wanted</th><th scope="col" class="num">Hits of starts</th>
      <th scope="col" class="num">Memory</th><th scope="col">Why</th></tr></thead>
    <tbody>${found.pools.map((pool) => {
      const figure = (key, as) =>
        html`<${Figure} source=${STANDBY} field=${`pools.${key}`} value=${pool[key]} as=${as} />`;
      return html`<tr key=${pool.pool} data-pool=${pool.pool}><td class="name"><bdi class="mono">${pool.pool}</bdi>
        </td><td class="num" data-head="Ready">${figure("ready")}</td>
        <td class="num" data-head="Making">${figure("making")}</td>
        <td class="num" data-head="Wanted">${figure("wanted")}</td>
        <td class="num" data-head="Hits of starts">${figure("hits")} of ${figure("starts")}</td>
        <td class="num" data-head="Memory">${figure("memory_bytes", "bytes")}</td>
        <td class="wide">${figure("reason", "text")}</td></tr>`;
    })}</tbody></table>
    ${!found.pools.length && html`<${Empty}>No environment has had a start yet.</${Empty}>`}
    <form class="fields" style=${{ maxWidth: "60rem" }} onSubmit=${save}><div class="row">
      <label><span>Mode${now("mode")}</span><select value=${settings.mode} onChange=${(event) => change("mode", event.target.value)}>${["automatic", "fixed", "off"].map((mode) => html`<option>${mode}</option>`)}</select>
      </label>
      ${field("count", "Count, where fixed", 1)} ${field("memory_share", "Share of memory")} ${field("unused_s", "Unused after, s")} ${field("min_starts", "Starts before the first", 1)}</div>
      <p class="actions">
        <button disabled=${!draft}>Save</button>${found.set.length > 0 && html`<button type="button" class="plain" onClick=${() => put({ settings: null })}>Take back what was set (${found.set.join(", ")})</button>`}</p>
        </form>`;
}

function Environments() {
  const { data, error } = useResource(ENVIRONMENTS, { every: 10 });
  const items = data.value?.items;
  if (!items) return html`<${Waiting} error=${error.value} />`;
  if (!items.length) return html`<${Empty}>None was built yet.</${Empty}>`;
  return html`<table class="list" aria-label="Environments"><thead><tr><th scope="col">Environment</th>
    <th scope="col">State</th><th scope="col" class="num">Size</th><th scope="col">Used by</th>
    <th scope="col">Built</th><th scope="col" class="num">It took</th></tr></thead>
    <tbody>${items.map(
      (one) => html`<tr key=${one.digest} data-environment=${one.digest}><td class="name">
        <bdi class="mono" title=${one.digest}>${one.digest.slice(0, 12)}</bdi> <span class="soft">
        <bdi>${one.organization}</bdi></span></td>
      <td><${Status} source=${ENVIRONMENTS} field="items.state" value=${one.state} />${
        one.log_tail.length > 0 &&
        html`<details>
        <summary>log</summary><pre class="code" tabindex="0">${one.log_tail.join("\n")}</pre></details>`
      }</td>
      <td class="num" data-head="Size">
        <${Figure} source=${ENVIRONMENTS} field="items.size_bytes" value=${one.size_bytes} as="bytes" /></td>
      <td>${
        one.used_by.length
          ? one.used_by.map(
              (name) => html`<a href=${toDeployment(name)}><bdi>${name}</bdi>
        </a> `,
            )
          : html`<span class="soft">nobody</span>`
      }</td>
      <td><${Ago} at=${one.built_at} source=${ENVIRONMENTS} field="items.built_at" /></td>
        <td class="num" data-head="It took">
        <${Figure} source=${ENVIRONMENTS} field="items.build_s" value=${one.build_s} as="seconds" /></td></tr>`,
    )}</tbody></table>`;
}

export default function Platform() {
  const { data, error } = useResource(SOURCE, { topic: "platform" });
  const found = data.value;
  if (!found) return html`<h1>Platform</h1><${Waiting} error=${error.value} />`;
  return html`<h1>Platform</h1>
    <p class="lead">${found.short.length || !found.walls.up ? "Something is short:" : "Every part does its work."}</p>
    ${
      found.short.length > 0 &&
      html`<ul class="trouble">${found.short.map(
        (text) => html`<li class="is-bad">
      <span aria-hidden="true">▲</span> <bdi>${text}</bdi></li>`,
      )}</ul>`
    }
    ${
      !found.walls.up &&
      html`<p class="is-bad">
      <span aria-hidden="true">▲</span> Replicas are not kept apart: <${Figure} source=${SOURCE} field="walls.why" value=${found.walls.why} as="text" />
      </p>`
    }
    <h2>Nodes</h2><${Nodes} nodes=${found.nodes} />
    <h2>Roles</h2><${Roles} roles=${found.roles} />
    <h2>Disks</h2>${found.disks.map(
      (disk) => html`<p class="row" data-path=${disk.path}>
      <span style=${{ minWidth: "16rem" }}><bdi class="mono">${disk.path}</bdi><br />
      <${Figure} source=${SOURCE} field="disks.free_bytes" value=${disk.free_bytes} as="bytes" /> <span class="soft">free of <${Figure} source=${SOURCE} field="disks.total_bytes" value=${disk.total_bytes} as="bytes" />
      </span></span><span style=${{ flex: "1 1 12rem" }}>
      <${Meter} taken=${disk.total_bytes - disk.free_bytes} all=${disk.total_bytes} label=${`${bytes(disk.free_bytes)} free`} />
      </span></p>`,
    )}
    <h2>Standbys</h2><${Standbys} /><h2>Environments</h2><${Environments} />`;
}
