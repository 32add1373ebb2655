// The roll-out under way, its versions, and what may be done about it.
import { call } from "hotplate/api";
import { SOURCE } from "hotplate/deployment";
import { Ago, Figure, Status } from "hotplate/figures";
import { DEPLOYMENT, requestOf } from "hotplate/request";
import { resource, useResource } from "hotplate/resources";
import { Ask, attempt, may, Waiting } from "hotplate/shell";
import { html, useState } from "hotplate/view";

export const ROLLOUT = `${SOURCE}/rollout`;
const UNDER_WAY = ["starting", "shifting", "paused"];

export function Rollout() {
  const rollout = useResource(ROLLOUT, { every: 2 });
  const [asks, ask] = useState(null);
  const found = rollout.data.value;
  if (!found) return html`<${Waiting} error=${rollout.error.value} />`;
  const act = async ({ action, more, etag }) => {
    const done = await attempt(
      () => call("POST", ROLLOUT, { body: { action, ...more }, etag }),
      `${action}: done`,
    );
    rollout.reload();
    return done;
  };
  // What is asked is of the roll-out as it is shown now, whatever becomes of it meanwhile.
  const begin = (asked) => ask({ ...asked, etag: rollout.etag });
  const button = (action, text, title) =>
    html`<button class="plain" onClick=${() => begin({ action, title })}>${text}</button>`;
  const isUnderWay = UNDER_WAY.includes(found.phase);
  return html`<section class="card">
    <h2>Roll-out to revision <${Figure} source=${ROLLOUT} field="to" value=${found.to} /> <${Status} source=${ROLLOUT} field="phase" value=${found.phase} />
      </h2>
    <p><${Figure} source=${ROLLOUT} field="reason" value=${found.reason || null} as="text" /> <span class="soft">· strategy <${Figure} source=${ROLLOUT} field="strategy" value=${found.strategy} as="text" /> · since <${Ago} at=${found.since} source=${ROLLOUT} field="since" />
      </span></p>
    <${Versions} versions=${found.versions} onPromote=${(version) => begin({ action: "promote", title: `Make version ${version} the deployment's main one?`, more: { version } })} />
    <${Weights} key=${found.versions.map(({ version, weight }) => version + weight).join()} versions=${found.versions} />
    ${
      may("developer") &&
      html`<p class="actions">
      ${button("undo", "Undo", "Return to the last revision that became ready?")}
      ${isUnderWay && found.phase !== "paused" && button("pause", "Pause", "Pause this roll-out?")}
      ${found.phase === "paused" && button("resume", "Resume", "Go on with this roll-out?")}
      ${isUnderWay && button("abort", "Abort", "Give this roll-out up? The revision that serves goes on.")}
      ${button("restart", "Restart", "Replace all replicas, as a new revision?")}
    </p>`
    }
    ${asks && html`<${Ask} title=${asks.title} action=${asks.action} onDo=${() => act(asks)} onClose=${() => ask(null)} />`}
  </section>`;
}

function Versions({ versions, onPromote }) {
  if (!versions.length) return null;
  return html`<table class="list" aria-label="Versions"><thead><tr>
      <th scope="col">Version</th><th scope="col">Bento</th><th scope="col" class="num">Weight</th>
        <th scope="col" class="num">Share now</th>
      <th scope="col" class="num">Ready of wanted</th><th scope="col" class="num">Answers</th>
        <th scope="col" class="num">Failed</th>${
          versions.length > 1 &&
          html`<th scope="col">
        <span class="unseen">Promote</span></th>`
        }
    </tr></thead><tbody>${versions.map((one) => {
      const figure = (field, value, as) =>
        html`<${Figure} source=${ROLLOUT} field=${`versions.${field}`} value=${value} as=${as} />`;
      return html`<tr key=${one.version} data-version=${one.version} data-revision=${one.revision}>
        <td class="name"><b><bdi>${one.version}</bdi></b> <span class="soft">revision ${figure("revision", one.revision)}</span></td>
          <td data-head="Bento">${figure("bento", one.bento, "text")}</td>
        <td class="num" data-head="Weight">${figure("weight", one.weight, "percent")}</td>
          <td class="num" data-head="Share now">${figure("share", one.share, "share")}</td>
        <td class="num" data-head="Ready of wanted">${figure("ready", one.ready)} of ${figure("wanted", one.wanted)}</td>
        <td class="num" data-head="Answers">${figure("answered", one.answered)}</td>
          <td class=${`num ${one.failed ? "is-bad" : ""}`} data-head="Failed">${figure("failed", one.failed)}</td>
        ${versions.length > 1 && html`<td>${one.version !== "main" && may("developer") && html`<button class="plain" onClick=${() => onPromote(one.version)}>Promote</button>`}</td>`}
      </tr>`;
    })}</tbody></table>`;
}

// A slider for each version of a canary; `main` has what they leave. Kept when let go.
function Weights({ versions }) {
  const others = versions.filter(({ version }) => version !== "main");
  const asItIs = Object.fromEntries(others.map(({ version, weight }) => [version, weight]));
  const [weights, set] = useState(asItIs);
  if (!others.length || !may("developer")) return null;
  const keep = async () => {
    const done = await attempt(async () => {
      const { data, etag } = await call("GET", SOURCE);
      const body = requestOf(data);
      for (const [name, version] of Object.entries(body.canary?.versions ?? {}))
        version.weight = weights[name] ?? version.weight;
      await call("PUT", DEPLOYMENT, { body, etag });
      await resource(ROLLOUT).reload(); // what is done next is about these weights
    }, "The weights are kept.");
    if (!done) set(asItIs);
  };
  const sum = Object.values(weights).reduce((a, b) => a + b, 0);
  return html`<div class="fields">${others.map(
    ({ version }) => html`<label>
      <span>Weight of <bdi>${version}</bdi>: <b>${weights[version]} %</b> <span class="soft">main has ${100 - sum} %</span>
      </span>
    <input type="range" min="0" max=${100 - sum + weights[version]} value=${weights[version]} onInput=${(event) => set({ ...weights, [version]: Number(event.target.value) })} onChange=${keep} />
      </label>`,
  )}</div>`;
}
