// What is around every page: its states, notices, looks and keys.
import { page, signedOut } from "hotplate/api";
import { connection } from "hotplate/live";
import { html, signal, useEffect, useRef, useState } from "hotplate/view";

// Sentences that the page has to say about what was done: `{ id, text, bad }`.
export const said = signal([]);
let count = 0;

export function say(text, bad = false) {
  const id = (count += 1);
  said.value = [...said.value.slice(-3), { id, text, bad }];
  if (!bad) setTimeout(() => unsay(id), 6000);
}
const unsay = (id) => (said.value = said.value.filter((one) => one.id !== id));

// Does something about what is shown; a refusal is said on the page. Returns whether it was done.
export async function attempt(deed, done = "") {
  try {
    await deed();
    if (done) say(done);
    return true;
  } catch (error) {
    say(error.message, true);
    return false;
  }
}

export function Notices() {
  const { state, message } = connection.value;
  const here = encodeURIComponent(location.pathname + location.search);
  return html`${
    signedOut.value
      ? html`<p class="notice bad">
          Your sign-in has expired. <a href=${`/login?next=${here}`}>Sign in again</a> and come back to this page.
        </p>`
      : state === "cut"
        ? html`<p class="notice busy">
            Cut off from the control plane: what you see is of before. It is tried again by itself.
          </p>`
        : state === "ended" && message
          ? html`<p class="notice busy">Nothing comes by itself any more: ${message}</p>`
          : null
  }
    ${said.value.map(
      (one) =>
        html`<p key=${one.id} class=${`notice ${one.bad ? "bad" : "good"}`}>
          <span>${one.text}</span>
          <button class="plain" aria-label="Close" onClick=${() => unsay(one.id)}>×</button>
        </p>`,
    )}`;
}

const LOOKS = { "": "System", light: "Light", dark: "Dark" };

export function Looks() {
  const [look, set] = useState(document.documentElement.dataset.theme ?? "");
  const choose = (event) => {
    const chosen = event.target.value;
    set(chosen);
    if (chosen) document.documentElement.dataset.theme = chosen;
    else delete document.documentElement.dataset.theme;
    try {
      localStorage.setItem("hotplate.theme", chosen);
    } catch {
      // It is for this page only, then.
    }
    dispatchEvent(new Event("theme"));
  };
  return html`<label class="looks"
    ><span>Look</span>
    <select value=${look} onChange=${choose}>
      ${Object.entries(LOOKS).map(([value, text]) => html`<option value=${value}>${text}</option>`)}
    </select></label
  >`;
}

// What a page shows while it has no data: nothing yet, or why there is none.
export function Waiting({ error, children }) {
  if (!error) return html`<p class="waiting" role="status"><span class="shimmer" />Loading…</p>`;
  return html`<p class="empty bad" role="alert">${error.message}</p>${children}`;
}

export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;

// A dialog that asks before something is done; `word` has to be typed where it is given.
export function Ask({ title, word = "", action, danger = false, onDo, onClose, children }) {
  const dialog = useRef(null);
  const [typed, type] = useState("");
  useEffect(() => dialog.current.showModal(), []);
  const submit = async (event) => {
    event.preventDefault();
    if (await onDo()) onClose();
  };
  return html`<dialog ref=${dialog} onClose=${onClose} aria-labelledby="asks">
    <form onSubmit=${submit}>
      <h2 id="asks">${title}</h2>
      ${children}
      ${
        word &&
        html`<p>
        <label>Type <bdi class="mono">${word}</bdi> to go on<br />
          <input value=${typed} onInput=${(e) => type(e.target.value)} autocomplete="off" /></label>
      </p>`
      }
      <p class="actions">
        <button class=${danger ? "danger" : ""} disabled=${word && typed !== word}>${action}</button>
        <button type="button" class="plain" onClick=${() => dialog.current.close()}>Cancel</button>
      </p>
    </form>
  </dialog>`;
}

const rank = { "endpoint-user": 0, developer: 1, admin: 2 };
// Whether who is signed in has that role; what a call may do is the API's to say.
export const may = (role) => Boolean(page.operator) || rank[page.role] >= rank[role];
