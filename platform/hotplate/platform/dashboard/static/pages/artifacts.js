// Bentos or models: sizes, who uses what, and what nobody wants any more.
import { asked, put, to, toDeployment } from "hotplate/address";
import { call, ROOT } from "hotplate/api";
import { Ago, Figure, Status } from "hotplate/figures";
import { ofList, useResource } from "hotplate/resources";
import { Ask, attempt, Empty, may, Waiting } from "hotplate/shell";
import { Table } from "hotplate/tables";
import { html, useState } from "hotplate/view";

const KIND = location.pathname === "/models" ? "model" : "bento";
const SOURCE = `/api/v1/${KIND}s?count=1000`;
const tag = (one) => `${one.repository.name}:${one.version}`;
const path = (one) =>
  `/api/v1/${KIND}_repositories/${encodeURIComponent(one.repository.name)}/${KIND}s/${encodeURIComponent(one.version)}`;

// Who uses each: deployments by the bento of their latest revision, models by those bentos.
function users(deployments, bentos) {
  const found = new Map();
  const add = (key, user) => found.set(key, [...(found.get(key) ?? []), user]);
  for (const one of deployments ?? []) add(one.bento, one.name);
  if (KIND === "bento") return found;
  const ofModels = new Map();
  for (const bento of bentos ?? [])
    for (const name of found.get(tag(bento)) ?? [])
      for (const model of bento.manifest?.models ?? []) ofModels.set(model, [...(ofModels.get(model) ?? []), name]);
  return ofModels;
}

const useBentos = KIND === "model" ? () => useResource("/api/v1/bentos?count=1000").data.value?.items : () => null;

export default function Artifacts() {
  const list = useResource(SOURCE, { every: 10 });
  const deployments = may("developer")
    ? useResource(`${ROOT}/deployments`, { topic: "deployments", join: ofList }).data.value
    : [];
  const bentos = useBentos();
  const [asks, ask] = useState(null);
  const all = list.data.value?.items;
  const title = KIND === "model" ? "Models" : "Bentos";
  if (!all) return html`<h1>${title}</h1><${Waiting} error=${list.error.value} />`;
  const uses = users(deployments, bentos);
  const text = asked("search").toLowerCase();
  const found = all.filter((one) => tag(one).toLowerCase().includes(text));
  const size = (one) => one.manifest?.size_bytes ?? null;
  const remove = async () => {
    const done = await attempt(() => call("DELETE", path(asks)), `${tag(asks)} is deleted.`);
    list.reload();
    return done;
  };
  const columns = [
    {
      key: "name",
      head: KIND === "model" ? "Model" : "Bento",
      cls: "name",
      sort: tag,
      cell: (one) =>
        KIND === "model"
          ? html`<a href=${to(`/models/${encodeURIComponent(one.repository.name)}/${encodeURIComponent(one.version)}`)}>
            <bdi>${tag(one)}</bdi></a>`
          : html`<b><bdi>${tag(one)}</bdi></b>`,
    },
    {
      key: "upload",
      head: "Upload",
      cell: (one) => html`<${Status} source=${SOURCE} field="items.upload_status" value=${one.upload_status} />`,
    },
    {
      key: "size",
      head: "Size",
      num: true,
      sort: size,
      cell: (one) =>
        html`<${Figure} source=${SOURCE} field="items.manifest.size_bytes" value=${size(one)} as="bytes" />`,
    },
    {
      key: "made",
      head: "Made",
      sort: (one) => one.created_at,
      cell: (one) => html`<${Ago} at=${one.created_at} source=${SOURCE} field="items.created_at" />`,
    },
    {
      key: "uses",
      head: "Used by",
      cell: (one) => {
        const names = uses.get(tag(one)) ?? [];
        return names.length
          ? names.map((name) => html`<a href=${toDeployment(name)}><bdi>${name}</bdi></a> `)
          : html`<span class="soft">nobody</span>`;
      },
    },
    {
      key: "delete",
      head: "Delete",
      cell: (one) =>
        may("developer") &&
        html`<button class="plain" aria-label=${`Delete ${tag(one)}`} onClick=${() => ask(one)}>Delete</button>`,
    },
  ];
  return html`<div class="head"><h1>${title}</h1>
    <input type="search" class="search" placeholder="Name or version" aria-label=${`Search ${title}`} value=${asked("search")} onInput=${(event) => put({ search: event.target.value })} />
    </div>
    <p class="soft"><${Figure} source=${SOURCE} field="total" value=${list.data.value.total} /> in all</p>
    ${
      !all.length
        ? html`<${Empty}>There is none yet. <code>${KIND === "model" ? "bentoml models push" : "bentoml build --push"}</code>
      </${Empty}>`
        : html`<${Table} label=${title} columns=${columns} items=${found} usual="-made" row=${(one) => ({ key: one.uid, [`data-${KIND}`]: tag(one) })} />`
    }
    ${
      asks &&
      html`<${Ask} title=${`Delete ${tag(asks)}?`} action="Delete" danger=${true} onDo=${remove} onClose=${() => ask(null)}>
      <p>What a deployment or a revision that is kept needs is not deleted.</p></${Ask}>`
    }`;
}
