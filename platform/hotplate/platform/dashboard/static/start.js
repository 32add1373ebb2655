// Puts the page into its frame, and says when it is of use.
import { page } from "hotplate/api";
import { Keys } from "hotplate/keys";
import { pending } from "hotplate/resources";
import { Looks, Notices } from "hotplate/shell";
import { effect, html, render } from "hotplate/view";

const main = document.querySelector("main");
const { default: Page } = await import(page.module);
main.replaceChildren();
render(html`<${Page} />`, main);
render(html`<${Notices} /><${Keys} />`, document.querySelector("#notices"));
for (const place of document.querySelectorAll(".who, .menu nav")) {
  const looks = document.createElement("div");
  place.append(looks);
  render(html`<${Looks} />`, looks);
}

// Once what the page began with is answered and drawn, and nothing of that asks for more: effects
// of what is drawn come after the frame that shows it.
const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
let settled = false;
effect(() => {
  if (settled || pending.value > 0) return;
  frame()
    .then(frame)
    .then(() => {
      if (settled || pending.value > 0) return;
      settled = true;
      main.removeAttribute("aria-busy");
    });
});
