// An organization: its members and their roles, its quota and what is used of it.
import { call, page, ROOT } from "hotplate/api";
import { Ago, Figure } from "hotplate/figures";
import { Quota } from "hotplate/quotas";
import { useResource } from "hotplate/resources";
import { Ask, attempt, may, say, Waiting } from "hotplate/shell";
import { html, useState } from "hotplate/view";

const NAME = page.organization;
const SOURCE = `${ROOT}/organizations/${encodeURIComponent(NAME)}`;
const MEMBERS = `${SOURCE}/members`;
const ROLES = ["admin", "developer", "endpoint-user"];
const member = (name) => `${MEMBERS}/${encodeURIComponent(name)}`;

// A change of the role that is shown: nobody else's is lost.
async function change({ name, role }, next) {
  const { data, etag } = await call("GET", member(name));
  if (data.role !== role)
    throw new Error(`somebody else has made ${name} ${data.role} meanwhile, which was ${role}; nothing was changed`);
  await call("PUT", member(name), { body: { role: next }, etag });
}

function Members() {
  const list = useResource(MEMBERS, { every: 10 });
  const [asks, ask] = useState(null);
  const [link, show] = useState(null);
  const [draft, set] = useState({ name: "", email: "", role: "developer" });
  const items = list.data.value?.items;
  if (!items) return html`<${Waiting} error=${list.error.value} />`;
  const then = async (deed, done) => {
    const ok = await attempt(deed, done);
    list.reload();
    return ok;
  };
  const invite = async (name) => {
    try {
      show({ name, ...(await call("POST", `${ROOT}/users/${encodeURIComponent(name)}/link`)).data });
    } catch (error) {
      say(error.message, true);
    }
  };
  const add = async (event) => {
    event.preventDefault();
    const body = { role: draft.role, ...(draft.email ? { email: draft.email } : {}) };
    if (await then(() => call("PUT", member(draft.name), { body }), `${draft.name} is a member.`))
      set({ name: "", email: "", role: "developer" });
  };
  return html`<table class="list" aria-label="Members"><thead><tr><th scope="col">Member</th>
    <th scope="col">Role</th><th scope="col">Operator</th><th scope="col">Seen</th><th scope="col">
    <span class="unseen">Change</span></th></tr></thead>
    <tbody>${items.map(
      (one) => html`<tr key=${one.name} data-member=${one.name}><td class="name"><b><bdi>${one.name}</bdi></b>
        <div class="soft"><bdi>${one.email}</bdi></div></td>
      <td><select aria-label=${`Role of ${one.name}`} value=${one.role} onChange=${(event) => then(() => change(one, event.target.value), `${one.name} is ${event.target.value} now.`)}>${ROLES.map((role) => html`<option>${role}</option>`)}</select>
        </td>
      <td data-head="Operator">${
        page.operator
          ? html`<label>
        <input type="checkbox" checked=${one.operator} aria-label=${`${one.name} is an operator`} onChange=${(event) => then(() => call("PUT", `${ROOT}/users/${encodeURIComponent(one.name)}/operator`, { body: { operator: event.target.checked } }), "It is kept.")} />
        </label>`
          : html`<${Figure} source=${MEMBERS} field="items.operator" value=${one.operator} as="flag" />`
      }</td>
      <td><${Ago} at=${one.last_seen_at} source=${MEMBERS} field="items.last_seen_at" /></td>
      <td class="actions"><button class="plain" onClick=${() => invite(one.name)}>Link to sign in</button>
        <button class="plain" onClick=${() => ask(one.name)}>Remove</button></td></tr>`,
    )}</tbody></table>
    <form class="row" onSubmit=${add}><label>Name<br />
      <input required value=${draft.name} onInput=${(event) => set({ ...draft, name: event.target.value })} />
      </label><label>Email<br />
      <input type="email" value=${draft.email} onInput=${(event) => set({ ...draft, email: event.target.value })} />
      </label>
      <label>Role<br />
        <select value=${draft.role} onChange=${(event) => set({ ...draft, role: event.target.value })}>${ROLES.map((role) => html`<option>${role}</option>`)}</select>
        </label><button>Add a member</button></form>
    ${
      link &&
      html`<${Ask} title=${`A link for ${link.name}`} action="Done" onDo=${async () => true} onClose=${() => show(null)}>
      <p>It signs in once, until <${Ago} at=${link.expires_at} />. It is shown now and never again.</p>
      <pre class="code wrap" tabindex="0">${link.url}</pre></${Ask}>`
    }
    ${
      asks &&
      html`<${Ask} title=${`Remove ${asks}?`} action="Remove" danger=${true} onDo=${() => then(() => call("DELETE", member(asks)), `${asks} is no member any more.`)} onClose=${() => ask(null)}>
      <p>Their own tokens and sign-ins here end.</p></${Ask}>`
    }`;
}

export default function Organization() {
  const organization = useResource(SOURCE, { every: 10 });
  const found = organization.data.value;
  const [draft, set] = useState(null);
  if (!found) return html`<h1><bdi>${NAME}</bdi></h1><${Waiting} error=${organization.error.value} />`;
  const save = async (event) => {
    event.preventDefault();
    if (
      await attempt(
        () => call("PATCH", SOURCE, { body: { description: draft.text }, etag: draft.etag }),
        "It is kept.",
      )
    )
      return set(null), organization.reload();
    // What somebody else has written meanwhile is above; to save again is to write over that.
    await organization.reload();
    set({ ...draft, etag: organization.etag });
  };
  return html`<h1><bdi>${NAME}</bdi></h1><div data-organization=${NAME}>
    <p>${found.description ? html`<${Figure} source=${SOURCE} field="description" value=${found.description} as="text" />` : html`<span class="soft">It has no description.</span>`} ${page.operator && !draft && html`<button class="link" onClick=${() => set({ text: found.description, etag: organization.etag })}>Describe it</button>`}</p>
    ${
      draft &&
      html`<form class="row" onSubmit=${save}><label>Description<br />
      <input value=${draft.text} maxlength="1000" size="50" onInput=${(event) => set({ ...draft, text: event.target.value })} /></label>
      <button>Save</button></form>`
    }
    <dl class="numbers"><div><dt>Members</dt><dd>
      <${Figure} source=${SOURCE} field="members" value=${found.members} /></dd></div><div><dt>Deployments</dt><dd>
      <${Figure} source=${SOURCE} field="deployments" value=${found.deployments} /></dd></div><div><dt>Made</dt><dd>
      <${Ago} at=${found.created_at} source=${SOURCE} field="created_at" /></dd></div></dl></div>
    <h2>Quota</h2><${Quota} organization=${NAME} />
    ${may("admin") && html`<h2>Members</h2><${Members} />`}`;
}
