// What an organization may have and has; changed by operators.
import { call, page, ROOT } from "hotplate/api";
import { bytes, Figure, number } from "hotplate/figures";
import { useResource } from "hotplate/resources";
import { attempt, Waiting } from "hotplate/shell";
import { html, useState } from "hotplate/view";

const shapeOf = (name) => (name.endsWith("bytes") ? "bytes" : "number");
const NAMES = { memory_bytes: "Memory", cpus: "CPUs", gpus: "GPUs", standby: "Standbys", replicas: "Replicas" };

export function Quota({ organization }) {
  const source = `${ROOT}/quotas/${encodeURIComponent(organization)}`;
  const quota = useResource(source, { every: 5 });
  const [draft, set] = useState(null);
  const found = quota.data.value;
  if (!found) return html`<${Waiting} error=${quota.error.value} />`;
  const save = async (event) => {
    event.preventDefault();
    const limit = Object.fromEntries(
      Object.entries(draft.limit).map(([name, text]) => [name, text === "" ? null : Number(text)]),
    );
    if (
      await attempt(
        () =>
          call("PUT", source, {
            body: { limit, weight: Number(draft.weight), priority: Number(draft.priority) },
            etag: draft.etag,
          }),
        "The quota is kept.",
      )
    )
      return set(null), quota.reload();
    // What somebody else has set meanwhile is above; to save again is to set it over that.
    await quota.reload();
    set({ ...draft, etag: quota.etag });
  };
  const begin = () =>
    set({
      limit: Object.fromEntries(Object.entries(found.limit).map(([name, value]) => [name, value ?? ""])),
      weight: found.weight,
      priority: found.priority,
      etag: quota.etag,
    });
  return html`<div data-organization=${organization}>${Object.entries(found.limit).map(([name, limit]) => {
    const used = found.used[name];
    return html`<p class="row">
      <span style=${{ minWidth: "16rem" }}>${NAMES[name] ?? name} <${Figure} source=${source} field=${`used.${name}`} value=${used} as=${shapeOf(name)} /> <span class="soft">used of ${limit === null ? html`no limit` : html`<${Figure} source=${source} field=${`limit.${name}`} value=${limit} as=${shapeOf(name)} />`}</span>
      </span>
        ${
          limit
            ? html`<span class="meter" style=${{ flex: "1 1 12rem" }} role="img" aria-label=${`${number(((used ?? 0) / limit) * 100)} % used`}>
          <i style=${{ flexGrow: used ?? 0, background: "var(--calm)" }} />
          <i style=${{ flexGrow: Math.max(0, limit - (used ?? 0)) }} /></span>`
            : null
        }</p>`;
  })}
    <p class="soft">Weight of its share <${Figure} source=${source} field="weight" value=${found.weight} />, priority <${Figure} source=${source} field="priority" value=${found.priority} />; the lowest goes first</p>
    ${page.operator && !draft && html`<button class="plain" onClick=${begin}>Change</button>`}
    ${
      draft &&
      html`<form class="fields" onSubmit=${save}>
        <div class="row">${Object.keys(draft.limit).map(
          (
            name,
          ) => html`<label>${NAMES[name] ?? name}${shapeOf(name) === "bytes" && draft.limit[name] ? html` <span class="hint">${bytes(Number(draft.limit[name]))}</span>` : ""}<input type="number" min="0" step="any" placeholder="no limit" value=${draft.limit[name]} onInput=${(event) => set({ ...draft, limit: { ...draft.limit, [name]: event.target.value } })} />
        </label>`,
        )}
      ${["weight", "priority"].map(
        (
          name,
        ) => html`<label>${name}<input type="number" step="any" value=${draft[name]} onInput=${(event) => set({ ...draft, [name]: event.target.value })} />
        </label>`,
      )}</div>
      <p class="actions"><button>Save</button>
        <button type="button" class="plain" onClick=${() => set(null)}>Cancel</button></p></form>`
    }</div>`;
}
