// What happened, in the sentences of `hotplate events`.
import { toDeployment } from "hotplate/address";
import { Ago, Figure } from "hotplate/figures";
import { html } from "hotplate/view";

const BAD = /Failed|Crashed|Refused|Lost|Stopped|Cut|Out$|Unserved/;

// `source` is the path that answers them.
export function Events({ source, events, named = false }) {
  const figure = (field, value) => html`<${Figure} source=${source} field=${field} value=${value} as="text" />`;
  return html`<ol class="events">
    ${events.map(
      (
        event,
      ) => html`<li key=${event.at + event.kind + event.deployment} class=${BAD.test(event.kind) ? "bad" : ""} data-event=${event.at}>
        <${Ago} at=${event.at} source=${source} field="at" />
        <span
          ><b><span aria-hidden="true">${BAD.test(event.kind) ? "▲ " : ""}</span>${figure("kind", event.kind)}</b>${" "}
          ${
            named && event.deployment
              ? html`<a href=${toDeployment(event.deployment)}>
            <bdi>${event.deployment}</bdi></a>${" "}`
              : null
          }
          ${figure("message", event.message)}</span
        >
      </li>`,
    )}
  </ol>`;
}
