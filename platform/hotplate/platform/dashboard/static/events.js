// What happened, in the sentences of `hotplate events`.
import { toDeployment } from "hotplate/address";
import { Ago } from "hotplate/figures";
import { html } from "hotplate/view";

const BAD = /Failed|Crashed|Refused|Lost|Stopped|Cut|Out$|Unserved/;

export function Events({ events, named = false }) {
  return html`<ol class="events">
    ${events.map(
      (event) => html`<li key=${event.at + event.kind} class=${BAD.test(event.kind) ? "bad" : ""}>
        <${Ago} at=${event.at} />
        <span
          ><b><span aria-hidden="true">${BAD.test(event.kind) ? "▲ " : ""}</span>${event.kind}</b>${" "}
          ${
            named && event.deployment
              ? html`<a href=${toDeployment(event.deployment)}>
            <bdi>${event.deployment}</bdi></a>${" "}`
              : null
          }
          <bdi>${event.message}</bdi></span
        >
      </li>`,
    )}
  </ol>`;
}
