// Who made which revision when, what differs between any two, and the way back.
import { asked, put } from "hotplate/address";
import { call, one } from "hotplate/api";
import { NAME, Tab } from "hotplate/deployment";
import { Difference, yaml } from "hotplate/differences";
import { Ago, Figure, Status } from "hotplate/figures";
import { Rollout, ROLLOUT } from "hotplate/rollout";
import { resource, useResource } from "hotplate/resources";
import { Ask, attempt, Empty, may, Waiting } from "hotplate/shell";
import { html, useState } from "hotplate/view";

const SOURCE = `${one(NAME)}/revisions`;
const lines = (revision) => yaml({ bento: revision.bento, ...revision.config });

function Revisions({ found }) {
  const list = useResource(SOURCE, { every: 5 });
  const [asks, ask] = useState(null);
  const items = list.data.value?.items;
  if (!items) return html`<${Waiting} error=${list.error.value} />`;
  const [newest, before] = items;
  const after = items.find(({ number }) => String(number) === asked("to")) ?? newest;
  const from = items.find(({ number }) => String(number) === asked("from")) ?? before;
  const back = async ({ number, etag }) => {
    const done = await attempt(
      () => call("POST", ROLLOUT, { body: { action: "undo", to: number }, etag }),
      `A new revision as ${number} was is on its way.`,
    );
    list.reload();
    resource(ROLLOUT).reload();
    return done;
  };
  const choice = (name, chosen, revision) =>
    html`<input type="radio" name=${name} aria-label=${`Compare ${name === "from" ? "from" : "to"} revision ${revision.number}`} checked=${chosen?.number === revision.number} onChange=${() => put({ [name]: revision.number })} />`;
  return html`<${Rollout} />
    <h2>Revisions</h2>
    <table class="list" aria-label="Revisions"><thead><tr><th scope="col">From</th><th scope="col">To</th>
      <th scope="col" class="num">Revision</th><th scope="col">Outcome</th><th scope="col">Bento</th>
      <th scope="col">By</th><th scope="col">Made</th><th scope="col"><span class="unseen">Put back</span></th></tr>
      </thead>
    <tbody>${items.map(
      (revision) => html`<tr key=${revision.number} data-revision=${revision.number}>
      <td data-head="From">${choice("from", from, revision)}</td>
        <td data-head="To">${choice("to", after, revision)}</td>
      <td class="num" data-head="Revision"><b>
        <${Figure} source=${SOURCE} field="items.number" value=${revision.number} /></b></td>
      <td class="wide">
        <${Status} source=${SOURCE} field="items.outcome" value=${revision.outcome} />${revision.serving && html` <span class="label">serves</span>`}<div class="soft">
        <${Figure} source=${SOURCE} field="items.reason" value=${revision.reason || null} as="text" /></div></td>
      <td><${Figure} source=${SOURCE} field="items.bento" value=${revision.bento} as="text" /></td><td>
        <${Figure} source=${SOURCE} field="items.by" value=${revision.by} as="text" /></td>
      <td><${Ago} at=${revision.created_at} source=${SOURCE} field="items.created_at" /></td>
      <td>${may("developer") && revision.number !== newest.number && found.wanted === "running" && html`<button class="plain" onClick=${() => ask({ number: revision.number, etag: resource(ROLLOUT).etag })}>Put back</button>`}</td>
        </tr>`,
    )}</tbody></table>
    ${
      from && after && from !== after
        ? html`<h2>What differs from revision ${from.number} to ${after.number}</h2>
          <${Difference} before=${lines(from)} after=${lines(after)} label="What differs" />`
        : html`<${Empty}>There is nothing to compare yet.</${Empty}>`
    }
    ${
      asks &&
      html`<${Ask} title=${`Put revision ${asks.number} back?`} action="Put back" onDo=${() => back(asks)} onClose=${() => ask(null)}>
      <p>A new revision with its bento and settings is rolled out.</p></${Ask}>`
    }`;
}

export default () => html`<${Tab} here="revisions">${(found) => html`<${Revisions} found=${found} />`}</${Tab}>`;
