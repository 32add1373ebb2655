// All deployments: searched, sorted, 1,000 of them as well.
import { asked, put, safe, toDeployment } from "hotplate/address";
import { ROOT } from "hotplate/api";
import { Figure, Status } from "hotplate/figures";
import { ofList, useResource } from "hotplate/resources";
import { Empty, Waiting } from "hotplate/shell";
import { Sparkline } from "hotplate/sparklines";
import { BAD, fits, totalsOf } from "hotplate/summaries";
import { Table } from "hotplate/tables";
import { html, useEffect, useRef } from "hotplate/view";

const SOURCE = `${ROOT}/deployments`;
const TOTALS = `${ROOT}/totals`;
const narrow = matchMedia("(max-width: 45rem)");
const total = (one, key, as) =>
  html`<${Figure} source=${SOURCE} field=${`totals.${key}`} value=${one.totals[key]} as=${as} />`;

const columns = [
  {
    key: "name",
    head: "Deployment",
    sort: (one) => one.name,
    cls: "name",
    cell: (one) => html`<a href=${toDeployment(one.name)}><bdi>${one.name}</bdi></a>
      <div class="soft clip"><bdi title=${one.bento}>
        <${Figure} source=${SOURCE} field="bento" value=${one.bento} as="text" /></bdi></div>`,
  },
  {
    key: "status",
    head: "Status",
    sort: (one) => one.status,
    cls: "status-cell",
    cell: (one) => html`<${Status} source=${SOURCE} value=${one.status} />
      <div class="soft clip" title=${one.reason}>
        <${Figure} source=${SOURCE} field="reason" value=${one.reason} as="text" /></div>`,
  },
  {
    key: "replicas",
    head: "Replicas",
    num: true,
    sort: (one) => one.totals.ready,
    cell: (one) =>
      html`<span title="ready of wanted">${total(one, "ready")} <span class="soft">of ${total(one, "wanted")}</span></span>`,
  },
  {
    key: "rate",
    head: "Requests/s",
    num: true,
    sort: (one) => one.rates?.requests_per_s ?? null,
    cell: (one) => html`<${Figure} source=${SOURCE} field="rates.requests_per_s" value=${one.rates?.requests_per_s} />`,
  },
  {
    key: "in_flight",
    head: "In flight",
    num: true,
    sort: (one) => one.totals.in_flight,
    cell: (one) => total(one, "in_flight"),
  },
  {
    key: "queued",
    head: "Queued",
    num: true,
    sort: (one) => one.totals.queued,
    cell: (one) => total(one, "queued"),
  },
  {
    key: "start",
    head: "Last cold start",
    num: true,
    sort: (one) => one.totals.last_cold_start_s,
    cell: (one) => total(one, "last_cold_start_s", "seconds"),
  },
  { key: "hour", head: "Last hour", cell: (one) => html`<${Sparkline} name=${one.name} />`, cls: "hour" },
  {
    key: "url",
    head: "URL",
    cls: "url",
    cell: (one) =>
      html`<a class="soft clip" href=${safe(one.url)} title=${one.url} data-source=${SOURCE} data-field="url" data-value=${one.url}>${one.url}</a>`,
  },
];

const STATUSES = ["running", "scaled-to-zero", "deploying", "failed", "unhealthy", "terminated"];

export default function Deployments() {
  const { data, error } = useResource(SOURCE, { topic: "deployments", join: ofList });
  const search = useRef(null);
  const text = asked("search");
  useEffect(() => {
    if (!asked("focus")) return;
    put({ focus: null });
    search.current?.focus();
  }, []);
  const all = data.value;
  const found = all?.filter((one) => fits(one, text)) ?? [];
  const totals = totalsOf(all ?? []);
  const only = (status) => put({ search: text === `status:${status}` ? "" : `status:${status}` });
  return html`<div class="head">
      <h1>Deployments</h1>
      <input type="search" ref=${search} class="search" placeholder="Name, bento, label=value, status:failed" aria-label="Search deployments" value=${text}
        onInput=${(event) => put({ search: event.target.value })} />
    </div>
    ${
      all &&
      html`<p class="counts" role="group" aria-label="By status">
      <span class="soft">${found.length < all.length && `${found.length} found of `}<${Figure} source=${TOTALS} field="deployments" value=${all.length} /> in all</span>
      ${STATUSES.filter((status) => totals.by_status[status]).map(
        (status) =>
          html`<button class=${`plain count ${BAD.includes(status) ? "is-bad" : ""}`} aria-pressed=${text === `status:${status}`} onClick=${() => only(status)}><${Figure} source=${TOTALS} field=${`by_status.${status}`} value=${totals.by_status[status]} /> ${status}</button>`,
      )}
    </p>`
    }
    ${
      !all
        ? html`<${Waiting} error=${error.value} />`
        : !all.length
          ? html`<${Empty}>Nothing is deployed yet. In the folder of a service: <code>bentoml deploy</code></${Empty}>`
          : !found.length
            ? html`<${Empty}>No deployment fits. <button class="link" onClick=${() => put({ search: "" })}>Show all</button>
              </${Empty}>`
            : html`<${Table} label="Deployments" columns=${columns} items=${found} rowHeight=${narrow.matches ? 144 : 53}
              row=${(one) => ({ key: one.name, "data-deployment": one.name })} />`
    }`;
}
