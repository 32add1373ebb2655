// All organizations of the installation, for operators.
import { call, ROOT } from "hotplate/api";
import { Ago, Figure } from "hotplate/figures";
import { useResource } from "hotplate/resources";
import { Ask, attempt, Waiting } from "hotplate/shell";
import { Table } from "hotplate/tables";
import { html, useState } from "hotplate/view";

const SOURCE = `${ROOT}/organizations`;
const at = (name, path = "/organization") => `${path}?organization=${encodeURIComponent(name)}`;
function used({ quota }, key, as) {
  const of = (part) =>
    html`<${Figure} source=${SOURCE} field=${`items.quota.${part}.${key}`} value=${quota[part][key]} as=${as} />`;
  return html`${of("used")} of ${quota.limit[key] === null ? "∞" : of("limit")}`;
}

export default function Organizations() {
  const list = useResource(SOURCE, { every: 5 });
  const [asks, ask] = useState(null);
  const [name, set] = useState("");
  const items = list.data.value?.items;
  if (!items) return html`<h1>Organizations</h1><${Waiting} error=${list.error.value} />`;
  const make = async (event) => {
    event.preventDefault();
    if (await attempt(() => call("POST", SOURCE, { body: { name } }), `Organization ${name} is made.`)) set("");
    list.reload();
  };
  const remove = async () => {
    const done = await attempt(
      () => call("DELETE", `${SOURCE}/${encodeURIComponent(asks.name)}${asks.deployments ? "?force=true" : ""}`),
      `Organization ${asks.name} is deleted.`,
    );
    list.reload();
    return done;
  };
  const figure = (one, field, as) =>
    html`<${Figure} source=${SOURCE} field=${`items.${field}`} value=${one[field]} as=${as} />`;
  const columns = [
    {
      key: "name",
      head: "Organization",
      cls: "name",
      sort: (one) => one.name,
      cell: (one) =>
        html`<a href=${at(one.name)}><bdi>${one.name}</bdi></a><div class="soft"><bdi>${one.description}</bdi></div>`,
    },
    { key: "members", head: "Members", num: true, sort: (one) => one.members, cell: (one) => figure(one, "members") },
    {
      key: "deployments",
      head: "Deployments",
      num: true,
      sort: (one) => one.deployments,
      cell: (one) => html`<a href=${at(one.name, "/deployments")}>${figure(one, "deployments")}</a>`,
    },
    { key: "gpus", head: "GPUs", num: true, cell: (one) => used(one, "gpus", "number") },
    { key: "memory", head: "Memory", num: true, cell: (one) => used(one, "memory_bytes", "bytes") },
    {
      key: "made",
      head: "Made",
      sort: (one) => one.created_at,
      cell: (one) => html`<${Ago} at=${one.created_at} source=${SOURCE} field="items.created_at" />`,
    },
    {
      key: "delete",
      head: "Delete",
      cell: (one) =>
        html`<button class="plain" aria-label=${`Delete ${one.name}`} onClick=${() => ask(one)}>Delete</button>`,
    },
  ];
  return html`<h1>Organizations</h1>
    <${Table} label="Organizations" columns=${columns} items=${items} row=${(one) => ({ key: one.name, "data-organization": one.name })} />
    <form class="row" onSubmit=${make}><label>Name<br />
      <input required pattern="[a-z0-9]([\\-a-z0-9]*[a-z0-9])?" maxlength="40" value=${name} onInput=${(event) => set(event.target.value)} />
      </label><button>Make an organization</button></form>
    ${
      asks &&
      html`<${Ask} title=${`Delete organization ${asks.name}?`} action="Delete" danger=${true} word=${asks.name} onDo=${remove} onClose=${() => ask(null)}>
      <p>${asks.deployments ? "Its deployments end with it." : "It has no deployments."}</p>
      </${Ask}>`
    }`;
}
