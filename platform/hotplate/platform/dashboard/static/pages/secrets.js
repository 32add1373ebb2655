// Secrets: their names and keys, never a value.
import { call } from "hotplate/api";
import { Ago, Figure } from "hotplate/figures";
import { useResource } from "hotplate/resources";
import { Ask, attempt, Empty, Waiting } from "hotplate/shell";
import { Table } from "hotplate/tables";
import { html, useState } from "hotplate/view";

const SOURCE = "/api/v1/org_secrets?all=true";
const path = (name) => `/api/v1/org_secrets/${encodeURIComponent(name)}`;
const BLANK = { name: "", description: "", type: "env", path: "", items: [{ key: "", value: "" }] };
const TYPES = { env: "variables", mountfile: "files" };

// A new secret, or new values of one as it was read: a key without a value keeps its own.
function Form({ secret, onDone, onStale }) {
  const begins = secret
    ? {
        ...BLANK,
        ...secret,
        type: secret.content.type,
        path: secret.content.path ?? "",
        items: secret.content.items.map(({ key }) => ({ key, value: "" })),
      }
    : BLANK;
  const [draft, set] = useState(begins);
  const [etag, rebase] = useState(secret?.etag);
  const item = (i, changes) =>
    set({ ...draft, items: draft.items.map((each, j) => (i === j ? { ...each, ...changes } : each)) });
  const isFile = draft.type === "mountfile";
  // A file has lines, which no password field keeps.
  const value = (text, onInput) =>
    isFile
      ? html`<textarea rows="3" autocomplete="off" spellcheck=${false} placeholder=${secret ? "as it is" : ""} value=${text} onInput=${(event) => onInput(event.target.value)} />`
      : html`<input type="password" autocomplete="off" placeholder=${secret ? "as it is" : ""} value=${text} onInput=${(event) => onInput(event.target.value)} />`;
  const save = async (event) => {
    event.preventDefault();
    const items = draft.items
      .filter(({ key }) => key)
      .map(({ key, value }) => (value === "" && secret ? { key } : { key, value }));
    const content = {
      type: draft.type,
      items,
      stage: secret?.content.stage ?? "all",
      ...(draft.path ? { path: draft.path } : {}),
    };
    const body = { name: draft.name, description: draft.description, content };
    const done = await attempt(
      () => (secret ? call("PATCH", path(secret.name), { body, etag }) : call("POST", "/api/v1/org_secrets", { body })),
      `Secret ${draft.name} is kept.`,
    );
    if (done) return set(BLANK), onDone();
    if (!secret) return;
    // What somebody else has changed meanwhile is above; to save again is to write over that.
    await onStale();
    const fresh = await call("GET", path(secret.name)).catch(() => null);
    if (fresh) rebase(fresh.etag);
  };
  return html`<form class="fields card" onSubmit=${save}>
    <h2>${secret ? html`New values of <bdi>${secret.name}</bdi>` : "A new secret"}</h2>
    ${
      !secret &&
      html`<label>Name<input required value=${draft.name} onInput=${(event) => set({ ...draft, name: event.target.value })} />
      </label>`
    }
    <label>Description<input value=${draft.description} onInput=${(event) => set({ ...draft, description: event.target.value })} />
      </label>
    <label>As<select value=${draft.type} onChange=${(event) => set({ ...draft, type: event.target.value, path: "" })}>${Object.entries(TYPES).map(([type, text]) => html`<option value=${type}>${text}</option>`)}</select></label>
    ${
      isFile &&
      html`<label>In the folder <span class="hint">as $BENTOML_HOME/keys</span><input value=${draft.path} onInput=${(event) => set({ ...draft, path: event.target.value })} />
      </label>`
    }
    ${draft.items.map(
      (each, i) => html`<div class="row">
      <label>Key<input value=${each.key} required onInput=${(event) => item(i, { key: event.target.value })} />
      </label><label>Value${value(each.value, (text) => item(i, { value: text }))}</label></div>`,
    )}
    <p class="actions"><button>Save</button>
      <button type="button" class="plain" onClick=${() => set({ ...draft, items: [...draft.items, { key: "", value: "" }] })}>One more key</button>${secret && html`<button type="button" class="plain" onClick=${onDone}>Cancel</button>`}</p>
      </form>`;
}

export default function Secrets() {
  const list = useResource(SOURCE, { every: 10 });
  const [asks, ask] = useState(null);
  const [changed, change] = useState(null);
  const items = list.data.value?.items;
  if (!items) return html`<h1>Secrets</h1><${Waiting} error=${list.error.value} />`;
  // As it is now, with what stands for it.
  const read = async (name, then) => {
    await attempt(async () => {
      const { data, etag } = await call("GET", path(name));
      then({ ...data, etag });
    });
  };
  const remove = async () => {
    const done = await attempt(
      () => call("DELETE", path(asks.name), { etag: asks.etag }),
      `Secret ${asks.name} is deleted.`,
    );
    list.reload();
    return done;
  };
  const columns = [
    {
      key: "name",
      head: "Secret",
      cls: "name",
      sort: (one) => one.name,
      cell: (one) => html`<b><bdi>${one.name}</bdi></b><div class="soft"><bdi>${one.description}</bdi></div>`,
    },
    {
      key: "keys",
      head: "Keys",
      cell: (one) => one.content.items.map(({ key }) => html`<span class="label"><bdi>${key}</bdi></span>`),
    },
    {
      key: "type",
      head: "As",
      cell: (one) =>
        html`<${Figure} source=${SOURCE} field="items.content.type" value=${one.content.type} as="text" /> <bdi class="soft">${one.content.path}</bdi>`,
    },
    { key: "by", head: "By", cell: (one) => html`<bdi>${one.creator.name}</bdi>` },
    {
      key: "changed",
      head: "Changed",
      sort: (one) => one.updated_at,
      cell: (one) => html`<${Ago} at=${one.updated_at} source=${SOURCE} field="items.updated_at" />`,
    },
    {
      key: "do",
      head: "Change",
      cell: (one) =>
        html`<button class="plain" onClick=${() => read(one.name, change)} aria-label=${`New values of ${one.name}`}>New values</button> <button class="plain" aria-label=${`Delete ${one.name}`} onClick=${() => read(one.name, ask)}>Delete</button>`,
    },
  ];
  return html`<h1>Secrets</h1>
    <p class="soft">Values are encrypted, and nobody reads them back here. Replicas that start from now on have new ones.</p>
    ${items.length ? html`<${Table} label="Secrets" columns=${columns} items=${items} row=${(one) => ({ key: one.uid, "data-secret": one.name })} />` : html`<${Empty}>There is none yet.</${Empty}>`}
    <${Form} key=${changed?.uid} secret=${changed} onDone=${() => (change(null), list.reload())} onStale=${() => list.reload()} />
    ${
      asks &&
      html`<${Ask} title=${`Delete secret ${asks.name}?`} action="Delete" danger=${true} onDo=${remove} onClose=${() => ask(null)}>
      <p>One that a deployment names is not deleted.</p></${Ask}>`
    }`;
}
