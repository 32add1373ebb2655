// Who changed what, and who was refused.
import { asked, put } from "hotplate/address";
import { call, ROOT } from "hotplate/api";
import { Ago, Figure } from "hotplate/figures";
import { useResource } from "hotplate/resources";
import { attempt, Empty, Waiting } from "hotplate/shell";
import { html, useState } from "hotplate/view";

const COUNT = 100;
const shown = (changes) =>
  Object.entries(changes)
    .map(([key, value]) => `${key}: ${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join("\n");

function source() {
  const filters = Object.fromEntries(
    ["actor", "action"].map((name) => [name, asked(name)]).filter(([, value]) => value),
  );
  return `${ROOT}/audit?${new URLSearchParams({ count: COUNT, ...filters })}`;
}

function Lines({ path }) {
  const { data, error } = useResource(path, { every: 5 });
  const [older, add] = useState([]);
  const found = data.value;
  if (!found) return html`<${Waiting} error=${error.value} />`;
  const known = new Set(found.items.map(({ id }) => id));
  const items = [...found.items, ...older.filter(({ id }) => !known.has(id))];
  if (!items.length) return html`<${Empty}>Nothing of this kind is kept.</${Empty}>`;
  const more = () =>
    attempt(async () => add([...older, ...(await call("GET", `${path}&before=${items.at(-1).id}`)).data.items]));
  return html`<p class="soft"><${Figure} source=${path} field="total" value=${found.total} /> in all</p><table class="list" aria-label="Audit"><thead>
    <tr><th scope="col">When</th><th scope="col">Who</th><th scope="col">Did</th><th scope="col">To</th>
    <th scope="col">What changed</th><th scope="col">From</th></tr></thead>
    <tbody>${items.map(
      (
        line,
      ) => html`<tr key=${line.id} data-line=${line.id}><td><${Ago} at=${line.at} source=${path} field="items.at" />
        </td><td><b><bdi>${line.actor || "nobody known"}</bdi></b> <span class="soft"><bdi>${line.token}</bdi>
        </span></td>
      <td><span class=${line.outcome === "refused" ? "is-bad" : ""}>
        <${Figure} source=${path} field="items.action" value=${line.action} as="text" />${line.outcome === "refused" ? " ✕ refused" : ""}${line.count > 1 && html` ×<${Figure} source=${path} field="items.count" value=${line.count} />`}</span>
        </td>
      <td><${Figure} source=${path} field="items.object" value=${line.object} as="text" /></td><td class="wide">${
        Object.keys(line.changes).length > 0 &&
        html`<details>
        <summary>changes</summary>
        <pre class="code wrap" tabindex="0">${shown(line.changes)}</pre></details>`
      }</td><td class="soft">
        <${Figure} source=${path} field="items.address" value=${line.address} as="text" /></td></tr>`,
    )}</tbody></table>
    ${
      items.length < found.total &&
      html`<p class="actions">
      <button class="plain" onClick=${more}>Older ones</button></p>`
    }`;
}

export default function Audit() {
  const path = source();
  const filter = (name, text) =>
    html`<input type="search" placeholder=${text} aria-label=${text} value=${asked(name)} onChange=${(event) => put({ [name]: event.target.value })} />`;
  return html`<h1>Audit</h1>
    <div class="controls">${filter("actor", "Who")} ${filter("action", "What, as deployment.update")}</div>
    <${Lines} key=${path} path=${path} />`;
}
