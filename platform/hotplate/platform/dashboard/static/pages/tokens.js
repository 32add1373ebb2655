// API tokens: those that one may see, new ones, and their end.
import { call } from "hotplate/api";
import { now } from "hotplate/clock";
import { Ago, Figure } from "hotplate/figures";
import { useResource } from "hotplate/resources";
import { Ask, attempt, Empty, may, say, Waiting } from "hotplate/shell";
import { Table } from "hotplate/tables";
import { html, useState } from "hotplate/view";

const SOURCE = "/api/v1/api_tokens?count=1000";
const SCOPES = {
  api: "all of the API, as you may",
  read_organization: "read what the organization has",
  write_organization: "change it",
  read_cluster: "see deployments",
  write_cluster: "change deployments",
  endpoint: "call protected deployments",
  metrics: "read metrics",
};
const LIVES = { "": "for ever", 1: "1 day", 30: "30 days", 365: "a year" };

function NewToken({ onMade }) {
  const [draft, set] = useState({ name: "", scope: may("developer") ? "api" : "endpoint", days: "30", service: false });
  const make = async (event) => {
    event.preventDefault();
    const until = draft.days && new Date(now() + draft.days * 86_400_000).toISOString();
    const body = {
      name: draft.name,
      scopes: [draft.scope],
      ...(until ? { expired_at: until } : {}),
      ...(draft.service ? { service: true, role: "developer" } : {}),
    };
    try {
      onMade((await call("POST", "/api/v1/api_tokens", { body })).data);
      set({ ...draft, name: "" });
    } catch (error) {
      say(error.message, true);
    }
  };
  return html`<form class="row" onSubmit=${make}><label>Name<br />
    <input required maxlength="200" value=${draft.name} onInput=${(event) => set({ ...draft, name: event.target.value })} />
    </label>
    <label>For<br />
      <select value=${draft.scope} onChange=${(event) => set({ ...draft, scope: event.target.value })}>${Object.entries(
        SCOPES,
      )
        .filter(([scope]) => may("developer") || scope === "endpoint")
        .map(([scope, text]) => html`<option value=${scope}>${scope}: ${text}</option>`)}</select></label>
    <label>Good<br />
      <select value=${draft.days} onChange=${(event) => set({ ...draft, days: event.target.value })}>${Object.entries(LIVES).map(([days, text]) => html`<option value=${days}>${text}</option>`)}</select>
      </label>
    ${
      may("admin") &&
      html`<label class="check">
      <input type="checkbox" checked=${draft.service} onChange=${(event) => set({ ...draft, service: event.target.checked })} /> the organization's own</label>`
    }
    <button>Make a token</button></form>`;
}

export default function Tokens() {
  const list = useResource(SOURCE, { every: 10 });
  const [asks, ask] = useState(null);
  const [made, show] = useState(null);
  const items = list.data.value?.items;
  if (!items) return html`<h1>API tokens</h1><${Waiting} error=${list.error.value} />`;
  const end = async () => {
    const done = await attempt(
      () => call("DELETE", `/api/v1/api_tokens/${encodeURIComponent(asks.uid)}`),
      `Token ${asks.name} is good for nothing any more.`,
    );
    list.reload();
    return done;
  };
  const moment = (one, field) => html`<${Ago} at=${one[field]} source=${SOURCE} field=${`items.${field}`} />`;
  const columns = [
    {
      key: "name",
      head: "Token",
      cls: "name",
      sort: (one) => one.name,
      cell: (one) => html`<b><bdi>${one.name}</bdi></b><div class="soft"><bdi>${one.description}</bdi></div>`,
    },
    { key: "scopes", head: "For", cell: (one) => one.scopes.map((scope) => html`<span class="label">${scope}</span>`) },
    {
      key: "of",
      head: "Of",
      sort: (one) => one.user.name,
      cell: (one) =>
        one.is_organization_token
          ? html`the organization`
          : html`<${Figure} source=${SOURCE} field="items.user.name" value=${one.user.name} as="text" />`,
    },
    { key: "used", head: "Used", sort: (one) => one.last_used_at, cell: (one) => moment(one, "last_used_at") },
    {
      key: "ends",
      head: "Ends",
      sort: (one) => one.expired_at,
      cell: (one) =>
        one.is_expired
          ? html`<span class="is-bad">ended ${moment(one, "expired_at")}</span>`
          : one.expired_at
            ? moment(one, "expired_at")
            : html`<span class="soft">never</span>`,
    },
    { key: "made", head: "Made", sort: (one) => one.created_at, cell: (one) => moment(one, "created_at") },
    {
      key: "end",
      head: "End",
      cell: (one) => html`<button class="plain" aria-label=${`End ${one.name}`} onClick=${() => ask(one)}>End</button>`,
    },
  ];
  return html`<h1>API tokens</h1><${NewToken} onMade=${(token) => (show(token), list.reload())} />
    ${
      made &&
      html`<section class="card" role="status"><h2>Token <bdi>${made.name}</bdi></h2>
      <p>It is shown now and never again.</p>
      <pre class="code wrap" tabindex="0" aria-label="The token">${made.token}</pre>
      <button class="plain" onClick=${() => show(null)}>I have it</button></section>`
    }
    ${items.length ? html`<${Table} label="API tokens" columns=${columns} items=${items} row=${(one) => ({ key: one.uid, "data-token": one.uid })} />` : html`<${Empty}>There is no token that you may see.</${Empty}>`}
    ${
      asks &&
      html`<${Ask} title=${`End token ${asks.name}?`} action="End it" danger=${true} onDo=${end} onClose=${() => ask(null)}>
      <p>Whoever uses it is refused from now on.</p></${Ask}>`
    }`;
}
