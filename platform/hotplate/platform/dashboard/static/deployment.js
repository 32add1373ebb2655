// What is above every page of a deployment: its name, status and tabs.
import { asked, safe, to, toDeployment } from "hotplate/address";
import { one, page } from "hotplate/api";
import { Figure, Status } from "hotplate/figures";
import { useResource } from "hotplate/resources";
import { Empty, Waiting } from "hotplate/shell";
import { html } from "hotplate/view";

export const NAME = page.ofName ?? "";
export const SOURCE = one(NAME);
export const useDeployment = () => useResource(SOURCE, { topic: `deployment:${NAME}` });

const TABS = [
  ["", "Overview"],
  ["replicas", "Replicas"],
  ["logs", "Logs"],
  ["revisions", "Revisions"],
  ["why", "Why"],
  ["playground", "Playground"],
  ["settings", "Settings"],
];

// The frame of one tab; its content is made once there is a deployment to make it of.
export function Tab({ here, children }) {
  const { data, error } = useDeployment();
  const found = data.value;
  const kept = asked("range") ? { range: asked("range") } : {};
  return html`<header class="deployment" data-deployment=${NAME}>
      <p class="soft crumbs"><a href=${to("/deployments")}>Deployments</a></p>
      <h1><bdi>${NAME}</bdi>${found && html` <${Status} source=${SOURCE} value=${found.status} />`}</h1>
      ${
        found &&
        html`<p class="sentence">
          <${Figure} source=${SOURCE} field="reason" value=${found.reason || null} as="text" /></p>
        <p class="facts soft">
          <a href=${safe(found.url)} data-source=${SOURCE} data-field="url" data-value=${found.url}>${found.url}</a>
          <span><${Figure} source=${SOURCE} field="bento" value=${found.bento} as="text" /></span>
          <span>revision <${Figure} source=${SOURCE} field="revision" value=${found.revision} />${found.serving !== null && found.serving !== found.revision ? html`, revision <${Figure} source=${SOURCE} field="serving" value=${found.serving} /> serves` : null}</span>
        </p>`
      }
    </header>
    <nav class="tabs" aria-label="About this deployment">
      ${TABS.map(([tab, text]) => html`<a href=${toDeployment(NAME, tab, tab === "" || tab === "why" ? kept : {})} aria-current=${tab === here ? "page" : undefined}>${text}</a>`)}
    </nav>
    ${
      found
        ? html`<div data-deployment=${NAME}>${children(found)}</div>`
        : error.value?.status === 404
          ? html`<${Empty}>This deployment is gone: it was deleted. <a href=${to("/deployments")}>All deployments</a>
            </${Empty}>`
          : html`<${Waiting} error=${error.value} />`
    }`;
}
