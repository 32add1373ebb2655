// The roll-out under way, its versions, and what may be done about it.
import { call } from "hotplate/api";
import { NAME, SOURCE } from "hotplate/deployment";
import { Ago, Figure, number, Status } from "hotplate/figures";
import { useResource } from "hotplate/resources";
import { Ask, attempt, may } from "hotplate/shell";
import { html, useState } from "hotplate/view";

export const ROLLOUT = `${SOURCE}/rollout`;
const V2 = `/api/v2/deployments/${encodeURIComponent(NAME)}`;
const UNDER_WAY = ["starting", "shifting", "paused"];

export function Rollout() {
  const rollout = useResource(ROLLOUT, { every: 2 });
  const [asks, ask] = useState(null);
  const found = rollout.data.value;
  if (!found) return null;
  const act = async (action, more = {}) => {
    const done = await attempt(
      () => call("POST", ROLLOUT, { body: { action, ...more }, etag: rollout.etag }),
      `${action}: done`,
    );
    rollout.reload();
    return done;
  };
  const button = (action, text, title, more) =>
    html`<button class="plain" onClick=${() => ask({ action, title, more })}>${text}</button>`;
  const isUnderWay = UNDER_WAY.includes(found.phase);
  return html`<section class="card">
    <h2>Roll-out to revision <${Figure} source=${ROLLOUT} field="to" value=${found.to} /> <${Status} source=${ROLLOUT} field="phase" value=${found.phase} />
      </h2>
    <p><${Figure} source=${ROLLOUT} field="reason" value=${found.reason || null} as="text" /> <span class="soft">· strategy <${Figure} source=${ROLLOUT} field="strategy" value=${found.strategy} as="text" /> · since <${Ago} at=${found.since} source=${ROLLOUT} field="since" />
      </span></p>
    <${Versions} versions=${found.versions} onPromote=${(version) => ask({ action: "promote", title: `Make version ${version} the deployment's main one?`, more: { version } })} />
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
    ${asks && html`<${Ask} title=${asks.title} action=${asks.action} onDo=${() => act(asks.action, asks.more)} onClose=${() => ask(null)} />`}
  </section>`;
}

const failed = ({ "5xx": bad = 0, broken = 0 }) => bad + broken;

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
      const answers = Object.values(one.answers).reduce((a, b) => a + b, 0);
      const figure = (field, value, as) =>
        html`<${Figure} source=${ROLLOUT} field=${`versions.${field}`} value=${value} as=${as} />`;
      return html`<tr key=${one.version} data-version=${one.version} data-revision=${one.revision}>
        <td class="name"><b>${one.version}</b> <span class="soft">revision ${one.revision}</span></td>
          <td data-head="Bento">${figure("bento", one.bento, "text")}</td>
        <td class="num" data-head="Weight">${figure("weight", one.weight, "percent")}</td>
          <td class="num" data-head="Share now">${figure("share", one.share, "share")}</td>
        <td class="num" data-head="Ready of wanted">${figure("ready", one.ready)} of ${figure("wanted", one.wanted)}</td>
        <td class="num" data-head="Answers">${number(answers)}</td>
          <td class=${`num ${failed(one.answers) ? "is-bad" : ""}`} data-head="Failed">${number(failed(one.answers))}</td>
        ${versions.length > 1 && html`<td>${one.version !== "main" && may("developer") && html`<button class="plain" onClick=${() => onPromote(one.version)}>Promote</button>`}</td>`}
      </tr>`;
    })}</tbody></table>`;
}

// A request that leaves all as it is, as the stock client would send it.
async function asItIs() {
  const { data } = await call("GET", V2);
  const [main, ...versions] = data.latest_revision.targets;
  const tag = ({ bento }) => `${bento.repository.name}:${bento.version}`;
  const config = ({ config: { envs, secrets, services, access_authorization } }) => ({
    envs,
    secrets,
    services,
    access_authorization,
  });
  const routing = data.manifest?.routing;
  const asked = { bento: tag(main), ...config(main), labels: data.labels };
  if (routing)
    asked.canary = {
      route_type: routing.route_type,
      route_by: routing.route_by ?? "",
      versions: Object.fromEntries(
        Object.keys(routing.weights)
          .filter((name) => name !== "main")
          .map((name, i) => [name, { bento: tag(versions[i]), ...config(versions[i]), weight: routing.weights[name] }]),
      ),
    };
  return asked;
}

// A slider for each version of a canary; `main` has what they leave. Kept when let go.
function Weights({ versions }) {
  const others = versions.filter(({ version }) => version !== "main");
  const [weights, set] = useState(Object.fromEntries(others.map(({ version, weight }) => [version, weight])));
  if (!others.length || !may("developer")) return null;
  const keep = () =>
    attempt(async () => {
      const body = await asItIs();
      for (const [name, weight] of Object.entries(weights))
        if (body.canary?.versions[name]) body.canary.versions[name].weight = weight;
      await call("PUT", V2, { body });
    }, "The weights are kept.");
  const sum = Object.values(weights).reduce((a, b) => a + b, 0);
  return html`<div class="fields">${others.map(
    ({ version }) => html`<label>
      <span>Weight of <bdi>${version}</bdi>: <b>${weights[version]} %</b> <span class="soft">main has ${100 - sum} %</span>
      </span>
    <input type="range" min="0" max=${100 - sum + weights[version]} value=${weights[version]} onInput=${(event) => set({ ...weights, [version]: Number(event.target.value) })} onChange=${keep} />
      </label>`,
  )}</div>`;
}
