// GPU-seconds and replica-seconds by use: of organizations, deployments, days; with prices where
// sizes have one.
import { asked, put, toDeployment } from "hotplate/address";
import { page, ROOT } from "hotplate/api";
import { now } from "hotplate/clock";
import { Figure } from "hotplate/figures";
import { useResource } from "hotplate/resources";
import { Empty, Waiting } from "hotplate/shell";
import { Table } from "hotplate/tables";
import { html } from "hotplate/view";

const BY = { deployment: "Deployment", organization: "Organization", day: "Day" };
const DAYS = { 1: "today", 7: "7 days", 30: "30 days", 90: "90 days" };
const USES = ["busy", "idle", "starting"];

function source() {
  const midnight = new Date(now());
  midnight.setHours(24, 0, 0, 0);
  const to = Math.floor(midnight / 1000);
  return `${ROOT}/costs?from=${to - asked("days", "7") * 86_400}&to=${to}&by=${asked("by", "deployment")}`;
}

function Bar({ item, most }) {
  const parts = [...USES.map((use) => item.gpu_s?.[use] ?? 0)];
  const total = parts.reduce((a, b) => a + b, 0) || USES.reduce((sum, use) => sum + (item.replica_s?.[use] ?? 0), 0);
  const shown = parts.some(Boolean) ? parts : USES.map((use) => item.replica_s?.[use] ?? 0);
  return html`<span class="meter" aria-hidden="true">${shown.map((part, i) => html`<i style=${{ flexGrow: part, background: `var(--${["calm", "idle", "busy-fill"][i]})` }} />`)}<i style=${{ flexGrow: Math.max(0, most - total) }} />
    </span>`;
}

export default function Costs() {
  const path = source();
  const { data, error } = useResource(path, { every: 30 });
  const by = asked("by", "deployment");
  const items = data.value?.items;
  const gpus = items?.some(({ gpu_s }) => USES.some((use) => gpu_s?.[use]));
  const kept = gpus ? "gpu_s" : "replica_s";
  const total = (item) => USES.reduce((sum, use) => sum + (item[kept]?.[use] ?? 0), 0);
  const most = (items ?? []).reduce((all, item) => Math.max(all, total(item)), 1);
  const figure = (item, field, value, as) =>
    html`<${Figure} source=${path} field=${`items.${field}`} value=${value} as=${as} />`;
  const part = (use, group) => ({
    key: `${group}${use}`,
    head: `${group === "gpu_s" ? "GPU" : "Replica"} ${use}`,
    num: true,
    sort: (item) => item[group]?.[use] ?? null,
    cell: (item) => figure(item, `${group}.${use}`, item[group]?.[use], "seconds"),
  });
  const name = {
    key: "name",
    head: BY[by],
    cls: "name",
    sort: (item) => item[by],
    cell: (item) =>
      by === "deployment" && item.deployment
        ? html`<a href=${toDeployment(item.deployment)}><bdi>${item.deployment}</bdi></a><div class="soft">
          <bdi>${item.organization}</bdi></div>`
        : html`<b><bdi>${item[by] ?? "–"}</bdi></b>`,
  };
  const columns = [
    name,
    { key: "bar", head: "Use", cell: (item) => html`<${Bar} item=${item} most=${most} />` },
    {
      key: "requests",
      head: "Requests",
      num: true,
      sort: (item) => item.requests,
      cell: (item) => figure(item, "requests", item.requests),
    },
    ...(gpus ? USES.map((use) => part(use, "gpu_s")) : []),
    ...USES.map((use) => part(use, "replica_s")),
    ...(gpus
      ? [
          {
            key: "standby",
            head: "GPU standby",
            num: true,
            sort: (item) => item.standby_gpu_s,
            cell: (item) => figure(item, "standby_gpu_s", item.standby_gpu_s, "seconds"),
          },
        ]
      : []),
    {
      key: "cost",
      head: "Cost",
      num: true,
      sort: (item) => item.cost,
      cell: (item) => figure(item, "cost", item.cost),
    },
  ];
  const pick = (name, values, usual) =>
    html`<div class="picker" role="group" aria-label=${name}>${Object.entries(values).map(([value, text]) => html`<button class="plain" aria-pressed=${asked(name, usual) === value} onClick=${() => put({ [name]: value === usual ? null : value, sort: null })}>${name === "by" ? `by ${text.toLowerCase()}` : text}</button>`)}</div>`;
  return html`<div class="head"><h1>Costs</h1>
    <a href=${`${path}&format=csv${page.acting ? `&organization=${encodeURIComponent(page.acting)}` : ""}`} download="costs.csv">As CSV</a>
    </div>
    <div class="over">${pick("by", BY, "deployment")} ${pick("days", DAYS, "7")}</div>
    <p class="keys">${USES.map((use, i) => html`<span class="key" style=${{ "--colour": `var(--${["calm", "idle", "busy-fill"][i]})` }}>${use}</span>`)}</p>
    ${!items ? (error.value?.status === 404 ? html`<${Empty}>Nothing is kept of what replicas cost.</${Empty}>` : html`<${Waiting} error=${error.value} />`) : !items.length ? html`<${Empty}>Nothing ran in this time.</${Empty}>` : html`<${Table} label="Costs" columns=${columns} items=${items} row=${(item) => ({ key: `${item.organization}/${item.deployment}/${item.day}`, "data-organization": item.organization, "data-deployment": item.deployment ?? undefined, "data-day": item.day ?? undefined })} />`}`;
}
