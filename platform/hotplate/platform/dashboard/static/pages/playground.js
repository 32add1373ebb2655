// A call of the deployment from here: a form from the bento's schema, and the answer as it comes.
import { asked, put } from "hotplate/address";
import { raw } from "hotplate/api";
import { SOURCE, Tab } from "hotplate/deployment";
import { bytes, seconds } from "hotplate/figures";
import { useResource } from "hotplate/resources";
import { asCurl, asPython, isFile, sample } from "hotplate/samples";
import { Empty, Waiting } from "hotplate/shell";
import { visible } from "hotplate/terminal";
import { html, useEffect, useRef, useState } from "hotplate/view";

const SHOWN = 200_000;
const isPlain = (schema) =>
  ["string", "integer", "number", "boolean"].includes(schema?.type) && !schema.enum && !isFile(schema);
const written = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));

function read(schema, text) {
  if (schema?.type === "string" || typeof text !== "string") return text;
  try {
    return JSON.parse(text);
  } catch {
    return text; // the deployment says what is wrong with it
  }
}

function Field({ name, schema, value, onChange, needed }) {
  const label = html`<span>
    <bdi>${name}</bdi>${needed ? html` <span class="soft">needed</span>` : ""} <span class="hint">${schema.description ?? schema.type ?? ""}</span>
    </span>`;
  if (isFile(schema))
    return html`<label>${label}<input type="file" multiple=${schema.type === "array"} onChange=${(event) => onChange(event.target.files)} />
      </label>`;
  if (schema.type === "boolean")
    return html`<label class="check">
      <input type="checkbox" checked=${value === true} onChange=${(event) => onChange(event.target.checked)} />${label}</label>`;
  if (schema.enum)
    return html`<label>${label}<select value=${value} onChange=${(event) => onChange(event.target.value)}>${schema.enum.map((each) => html`<option>${String(each)}</option>`)}</select>
      </label>`;
  if (isPlain(schema) && schema.type !== "string")
    return html`<label>${label}<input type="number" step="any" value=${value} onInput=${(event) => onChange(event.target.value)} />
      </label>`;
  return html`<label>${label}<textarea rows=${isPlain(schema) ? 2 : 5} value=${value} onInput=${(event) => onChange(event.target.value)} spellcheck=${false} />
    </label>`;
}

// `[answer, send, stop]`: what is known so far of the call that was sent last, `{ status, own, type,
// isText, text, size, first, took, done, error }`, times in seconds.
function useCall() {
  const [answer, set] = useState(null);
  const stop = useRef(null);
  const send = async (body) => {
    stop.current?.abort();
    stop.current = new AbortController();
    const began = performance.now();
    const since = () => (performance.now() - began) / 1000;
    let said = { text: "", size: 0, done: false };
    const tell = (more) => set((said = { ...said, ...more, took: since() }));
    tell({});
    try {
      const got = await raw("POST", `${SOURCE}/call`, {
        body,
        signal: stop.current.signal,
        headers: { Accept: "*/*" },
      });
      const own = got.headers.has("Hotplate-Deployment");
      tell({ status: got.status, own, type: got.headers.get("Content-Type") ?? "", first: since() });
      const isText = /json|text|xml|event-stream|javascript/.test(got.headers.get("Content-Type") ?? "text");
      const reader = got.body.getReader();
      const decoder = new TextDecoder();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        const text =
          isText && said.text.length < SHOWN ? said.text + decoder.decode(value, { stream: true }) : said.text;
        tell({ text, size: said.size + value.length });
      }
      tell({ done: true, isText });
    } catch (error) {
      tell({ done: true, error: error.name === "AbortError" ? "It was given up." : error.message });
    }
  };
  useEffect(() => () => stop.current?.abort(), []);
  return [answer, send, () => stop.current?.abort()];
}

function Answer({ answer, onStop }) {
  if (!answer) return html`<${Empty}>The answer comes here.</${Empty}>`;
  const bad = answer.error || answer.status >= 400;
  return html`<section aria-live="polite"><p class=${bad ? "is-bad" : ""}>
      ${answer.status ? html`<b>${answer.status}</b>${answer.own === false ? " by the platform" : ""}` : answer.error ? "" : "It waits like any caller…"} ${answer.first !== undefined ? html`<span class="soft">first byte after ${seconds(answer.first)}, ${answer.done ? "whole" : "so far"} ${bytes(answer.size)} after ${seconds(answer.took)}</span>` : null}
      ${!answer.done && html` <button class="plain" type="button" onClick=${onStop}>Give up</button>`}</p>
    ${answer.error && html`<p class="bad" role="alert">${answer.error}</p>`}
    ${answer.isText === false ? html`<p class="soft">${bytes(answer.size)} of ${answer.type}, which is not shown.</p>` : html`<pre class="code wrap" tabindex="0" aria-label="The answer">${visible(answer.text)}</pre>`}</section>`;
}

function Method({ method, found, versions }) {
  const input = method.input ?? {};
  // Where its one argument is the whole body, that has no name.
  const isRoot = Boolean(input.root_input);
  const members = isRoot ? [["body", { ...input, root_input: undefined }]] : Object.entries(input.properties ?? {});
  const [given, give] = useState(
    Object.fromEntries(
      members.map(([name, schema]) => {
        const value = sample(schema, name);
        return [name, isFile(schema) ? null : isPlain(schema) ? value : written(value)];
      }),
    ),
  );
  const [version, choose] = useState("");
  const [task, setTask] = useState("");
  const [answer, send, stop] = useCall();
  // A number that is left empty is left out; a text may be empty where it is needed.
  const isText = (schema, name) => schema?.type === "string" && input.required?.includes(name);
  const values = Object.fromEntries(
    members
      .filter(([name, schema]) => !isFile(schema) && (given[name] !== "" || isText(schema, name)))
      .map(([name, schema]) => [name, read(schema, given[name])]),
  );
  const names = (chosen) => (chosen?.length ? [...chosen].map((file) => file.name) : ["file.bin"]);
  const ofFiles = members.filter(([, schema]) => isFile(schema));
  const files = Object.fromEntries(ofFiles.map(([name]) => [name, names(given[name])]));
  const isTask = method.is_task;
  const path = isTask ? `${method.route}/submit` : method.route;
  const whole = isRoot ? values.body : values;
  const call = {
    url: found.url,
    path,
    name: method.name,
    values: whole,
    files,
    lists: ofFiles.filter(([, schema]) => schema.type === "array").map(([name]) => name),
    isRoot,
    isProtected: found.config.access_authorization,
    version,
    streams: method.output?.is_stream,
    isTask,
  };
  const submit = (event) => {
    event.preventDefault();
    if (!Object.keys(files).length)
      return send({ method: "POST", path, headers: { "Content-Type": "application/json" }, body: whole, version });
    // All of the fields that describe the call, so that none of the method's own is taken for one.
    const form = new FormData();
    const headers = JSON.stringify(isRoot ? {} : { "Content-Type": "multipart/form-data" });
    for (const [key, value] of Object.entries({ method: "POST", path, headers, version })) form.append(key, value);
    for (const [name, value] of Object.entries(values)) form.append(name, JSON.stringify(value));
    for (const name of Object.keys(files)) for (const file of given[name] ?? []) form.append(name, file);
    send(form);
  };
  const ask = (what) =>
    send({
      method: what === "cancel" ? "PUT" : "GET",
      path: `${method.route}/${what}?task_id=${encodeURIComponent(task)}`,
    });
  return html`<div class="split"><form class="fields" onSubmit=${submit}>
      ${method.doc && html`<p><bdi>${method.doc}</bdi></p>`}
      ${members.map(([name, schema]) => html`<${Field} key=${name} name=${name} schema=${schema} value=${given[name]} needed=${input.required?.includes(name)} onChange=${(value) => give({ ...given, [name]: value })} />`)}
      ${
        versions.length > 1 &&
        html`<label>Version<select value=${version} onChange=${(event) => choose(event.target.value)}>
        <option value="">as the weights say</option>${versions.map(({ version: each }) => html`<option>${each}</option>`)}</select>
        </label>`
      }
      <p class="actions"><button>${isTask ? "Submit the task" : "Call"}</button></p>
      ${
        isTask &&
        html`<fieldset class="card"><legend>A task that was submitted</legend><div class="row">
          <label>Its id<input value=${task} onInput=${(event) => setTask(event.target.value.trim())} /></label>
        ${["status", "get", "cancel"].map((what) => html`<button type="button" class="plain" disabled=${!task} onClick=${() => ask(what)}>${what}</button>`)}</div>
          </fieldset>`
      }
    </form>
    <div><${Answer} answer=${answer} onStop=${stop} /></div></div>
    <div class="split"><div><h2>The same with curl</h2><pre class="code curl" tabindex="0">${asCurl(call)}</pre></div>
    <div><h2>The same in Python</h2><pre class="code python" tabindex="0">${asPython(call)}</pre></div></div>`;
}

function Playground({ found }) {
  const [name, version] = found.bento.split(":");
  const bento = useResource(
    `/api/v1/bento_repositories/${encodeURIComponent(name)}/bentos/${encodeURIComponent(version)}`,
  );
  const manifest = bento.data.value?.manifest;
  if (!manifest) return html`<${Waiting} error=${bento.error.value} />`;
  const routes = (manifest.schema?.routes ?? []).filter((each) => typeof each?.route === "string");
  if (found.wanted !== "running")
    return html`<${Empty}>This deployment is terminated; start it in its settings.</${Empty}>`;
  if (!routes.length)
    return html`<${Empty}>The service has no methods of its own; what it answers at <bdi>${found.url}</bdi> is up to it.</${Empty}>`;
  const chosen = routes.find(({ route }) => route === asked("method")) ?? routes[0];
  return html`<div class="controls" role="group" aria-label="Method">${routes.map((each) => html`<button class="plain mono" aria-pressed=${each === chosen} onClick=${() => put({ method: each.route })}>${each.route}${each.is_task ? " task" : ""}</button>`)}</div>
    ${found.config.access_authorization && html`<p class="soft">Callers need a token of the scope <code>endpoint</code>; from here you call as yourself.</p>`}
    <${Method} key=${chosen.route} method=${chosen} found=${found} versions=${found.live.rollout?.versions ?? []} />`;
}

export default () => html`<${Tab} here="playground">${(found) => html`<${Playground} found=${found} />`}</${Tab}>`;
