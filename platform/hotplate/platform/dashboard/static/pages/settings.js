// The configuration, changed with the same checks as by the API; and what ends a deployment.
import { call, one } from "hotplate/api";
import { NAME, SOURCE, Tab, useDeployment } from "hotplate/deployment";
import { Difference, yaml } from "hotplate/differences";
import { Figure } from "hotplate/figures";
import { DEPLOYMENT, requestOf } from "hotplate/request";
import { resource, useResource } from "hotplate/resources";
import { Ask, attempt, may, say } from "hotplate/shell";
import { html, useState } from "hotplate/view";
import { to } from "hotplate/address";

const POLICY = {
  scale_up_stabilization_window: "scale-up window, s",
  scale_down_stabilization_window: "scale-down window, s",
};
const lines = (list) => list.map(({ name, key, value }) => `${name ?? key}=${value}`).join("\n");
const pairs = (text, key) =>
  text
    .split("\n")
    .filter((line) => line.trim())
    .map((line) => {
      const at = line.indexOf("=");
      return { [key]: (at < 0 ? line : line.slice(0, at)).trim(), value: at < 0 ? "" : line.slice(at + 1) };
    });

const draftOf = (found) => ({
  services: Object.fromEntries(
    Object.entries(found.config.services).map(([name, service]) => [
      name,
      { ...service, scaling: { ...service.scaling } },
    ]),
  ),
  envs: lines(found.config.envs),
  labels: lines(found.labels),
  secrets: found.config.secrets.map((each) => each.name ?? each),
  access: found.config.access_authorization,
});

function asked(found, draft) {
  return {
    ...requestOf(found),
    services: draft.services,
    envs: pairs(draft.envs, "name"),
    labels: pairs(draft.labels, "key"),
    secrets: draft.secrets,
    access_authorization: draft.access,
  };
}

function Service({ name, service, types, onChange }) {
  const scale = (changes) => onChange({ ...service, scaling: { ...service.scaling, ...changes } });
  const policy = (key, text) => {
    const next = { ...service.scaling.policy, [key]: text === "" ? undefined : Number(text) };
    scale({ policy: Object.values(next).some((value) => value !== undefined) ? next : null });
  };
  const count = (key, text) =>
    html`<label>${text}<input type="number" min="0" value=${service.scaling[key]} onInput=${(event) => scale({ [key]: Number(event.target.value) })} />
      </label>`;
  return html`<fieldset class="card"><legend><b><bdi>${name}</bdi></b></legend><div class="row">
      ${count("min_replicas", "Replicas, at least")} ${count("max_replicas", "at most")}
      ${Object.entries(POLICY).map(
        ([
          key,
          text,
        ]) => html`<label>${text}<input type="number" min="0" value=${service.scaling.policy?.[key] ?? ""} placeholder="learnt" onInput=${(event) => policy(key, event.target.value)} />
        </label>`,
      )}
      <label>Instance type<select value=${service.instance_type ?? ""} onChange=${(event) => onChange({ ...service, instance_type: event.target.value || null })}>
        <option value="">as the bento says</option>${types.map((type) => html`<option>${type}</option>`)}</select>
        </label>
      <label>Strategy<select value=${service.deployment_strategy ?? ""} onChange=${(event) => onChange({ ...service, deployment_strategy: event.target.value || null })}>
        <option value="">beside, then switch</option>${["RollingUpdate", "Recreate", "RampedSlowRollout", "BestEffortControlledRollout"].map((each) => html`<option>${each}</option>`)}</select>
        </label>
    </div></fieldset>`;
}

function Form({ found }) {
  const [base, rebase] = useState({ found, etag: resource(SOURCE).etag });
  const [draft, set] = useState(draftOf(found));
  const [conflict, collide] = useState(null);
  const types = useResource("/api/v1/instance_types").data.value ?? [];
  const known = useResource("/api/v1/org_secrets?all=true").data.value?.items ?? [];
  const names = [...new Set([...known.map(({ name }) => name), ...draft.secrets])];
  const mine = asked(base.found, draft);
  const theirs = asked(base.found, draftOf(base.found));
  const isChanged = JSON.stringify(mine) !== JSON.stringify(theirs);
  const save = async (event) => {
    event.preventDefault();
    let done = false;
    try {
      await call("PUT", DEPLOYMENT, { body: mine, etag: base.etag ?? resource(SOURCE).etag });
      say("The settings are saved; a roll-out begins where they need one.");
      done = true;
    } catch (error) {
      say(error.message, true);
      if (error.status !== 412) return;
    }
    const fresh = await call("GET", SOURCE).catch(() => null);
    if (!fresh) return;
    if (done) take(fresh, true);
    else collide({ now: asked(fresh.data, draftOf(fresh.data)), fresh });
  };
  const take = (fresh, theirs) => {
    rebase({ found: fresh.data, etag: fresh.etag });
    if (theirs) set(draftOf(fresh.data));
    collide(null);
  };
  const change = (name, service) => set({ ...draft, services: { ...draft.services, [name]: service } });
  return html`<form class="fields" style=${{ maxWidth: "60rem" }} onSubmit=${save}>
    ${Object.entries(draft.services).map(([name, service]) => html`<${Service} key=${name} name=${name} service=${service} types=${types.map((type) => type.display_name)} onChange=${(next) => change(name, next)} />`)}
    <label><span>Variables <span class="hint">NAME=value, one a line</span></span>
      <textarea value=${draft.envs} onInput=${(event) => set({ ...draft, envs: event.target.value })} spellcheck=${false} />
      </label>
    <label><span>Labels <span class="hint">key=value, one a line; those that begin with hotplate/ are settings</span>
      </span><textarea value=${draft.labels} onInput=${(event) => set({ ...draft, labels: event.target.value })} spellcheck=${false} />
      </label>
    ${
      names.length > 0 &&
      html`<fieldset class="card"><legend>Secrets</legend>
      <div class="row">${names.map(
        (name) => html`<label class="check">
      <input type="checkbox" checked=${draft.secrets.includes(name)} onChange=${(event) => set({ ...draft, secrets: event.target.checked ? [...draft.secrets, name] : draft.secrets.filter((each) => each !== name) })} />
      <bdi>${name}</bdi></label>`,
      )}</div></fieldset>`
    }
    <label class="check">
      <input type="checkbox" checked=${draft.access} onChange=${(event) => set({ ...draft, access: event.target.checked })} />Callers need a token</label>
    ${
      conflict &&
      html`<section class="card" role="alert"><h2>Somebody else has changed it meanwhile</h2>
        <${Difference} before=${yaml(conflict.now)} after=${yaml(mine)} label="Theirs and yours" />
      <p class="actions">
        <button type="button" class="plain" onClick=${() => take(conflict.fresh, true)}>Take theirs</button>
        <button type="button" class="plain" onClick=${() => take(conflict.fresh, false)}>Keep mine, to save it over theirs</button>
        </p></section>`
    }
    ${
      isChanged &&
      !conflict &&
      html`<details open><summary>What changes</summary>
      <${Difference} before=${yaml(theirs)} after=${yaml(mine)} label="What changes" /></details>`
    }
    ${
      may("developer") &&
      html`<p class="actions"><button disabled=${!isChanged || Boolean(conflict)}>Save</button>
      <button type="button" class="plain" disabled=${!isChanged} onClick=${() => set(draftOf(base.found))}>Put back what was</button>
      </p>`
    }
  </form>`;
}

function AsYaml({ found }) {
  const { bento, ...rest } = asked(found, draftOf(found));
  const text = yaml({ name: NAME, bento, ...rest }).join("\n");
  const copy = () => attempt(() => navigator.clipboard.writeText(text), "It is copied.");
  return html`<h2>As YAML</h2>
    <p class="soft">For <code>bentoml deployment apply -f FILE</code> <button class="link" onClick=${copy}>Copy it</button>
    </p><pre class="code" tabindex="0" aria-label="As YAML">${text}</pre>`;
}

const ACTIONS = {
  restart: ["Restart", "Replace all replicas, as a new revision?", () => call("PUT", `${DEPLOYMENT}/void_update`)],
  terminate: [
    "Terminate",
    "End its replicas? It is kept, and can be started again.",
    () => call("POST", `${DEPLOYMENT}/terminate`),
  ],
  start: ["Start", "Start it as it was?", (found) => call("PUT", DEPLOYMENT, { body: requestOf(found) })],
  delete: ["Delete", "Delete this deployment for good?", () => call("DELETE", DEPLOYMENT)],
};

function Ends({ found }) {
  const [asks, ask] = useState("");
  if (!may("developer")) return null;
  const runs = found.wanted === "running";
  const offered = runs ? ["restart", "terminate", "delete"] : ["start", "delete"];
  const act = async () => {
    const done = await attempt(() => ACTIONS[asks][2](found), `${ACTIONS[asks][0]}: done`);
    if (done && asks === "delete") location.href = to("/deployments");
    resource(one(NAME)).reload();
    return done;
  };
  return html`<h2>Restart, end, delete</h2>
    <p class="actions">${offered.map((name) => html`<button class=${name === "delete" ? "danger" : "plain"} onClick=${() => ask(name)}>${ACTIONS[name][0]}</button>`)}</p>
    ${asks && html`<${Ask} title=${ACTIONS[asks][1]} action=${ACTIONS[asks][0]} danger=${asks !== "restart" && asks !== "start"} word=${asks === "delete" ? NAME : ""} onDo=${act} onClose=${() => ask("")} />`}`;
}

function Settings() {
  const { data } = useDeployment();
  const found = data.value;
  return html`<p class="soft">Wanted: <${Figure} source=${SOURCE} field="wanted" value=${found.wanted} as="text" />
    </p><${Form} found=${found} /><${AsYaml} found=${found} /><${Ends} found=${found} />`;
}

export default () => html`<${Tab} here="settings">${() => html`<${Settings} />`}</${Tab}>`;
