// By keyboard alone: what a key does, and the list of all.
import { asked, to } from "hotplate/address";
import { page } from "hotplate/api";
import { html, signal, useEffect, useRef } from "hotplate/view";

const shown = signal(false);
const places = {
  o: ["/", "overview"],
  d: ["/deployments", "deployments"],
  b: ["/bentos", "bentos"],
  m: ["/models", "models"],
  c: ["/costs", "costs"],
  p: ["/platform", "platform"],
};
const tabs = { 1: "", 2: "replicas", 3: "logs", 4: "revisions", 5: "why", 6: "playground", 7: "settings" };
let went = 0;

const isTyping = (target) => target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
  if (document.querySelector("dialog[open]") && event.key !== "?") return;
  if (event.key === "?") shown.value = !shown.value;
  else if (event.key === "/") {
    const search = document.querySelector("main input[type=search]");
    if (search) search.focus();
    else location.href = to("/deployments", { search: asked("search"), focus: "1" });
  } else if (event.key === "g") went = event.timeStamp;
  else if (event.timeStamp - went < 1500 && places[event.key]) location.href = to(places[event.key][0]);
  else if (page.ofName && event.key in tabs && location.pathname.startsWith("/deployments/"))
    location.href = to(`/deployments/${encodeURIComponent(page.ofName)}${tabs[event.key] && `/${tabs[event.key]}`}`);
  else return;
  event.preventDefault();
});

export function Keys() {
  const dialog = useRef(null);
  useEffect(() => {
    if (shown.value) dialog.current?.showModal();
  }, [shown.value]);
  if (!shown.value) return null;
  const rows = [
    ["/", "search"],
    ...Object.entries(places).map(([key, [, name]]) => [`g ${key}`, `go to ${name}`]),
    ["1 … 7", "the tabs of a deployment"],
    ["← →", "move the cursor through the charts, while one has the focus; Esc: away"],
    ["?", "this list"],
    ["Esc", "close"],
  ];
  return html`<dialog ref=${dialog} onClose=${() => (shown.value = false)} aria-labelledby="keys">
    <h2 id="keys">Keys</h2>
    <dl class="keys">${rows.map(([key, what]) => html`<dt><kbd>${key}</kbd></dt><dd>${what}</dd>`)}</dl>
    <form method="dialog"><button class="plain">Close</button></form>
  </dialog>`;
}
