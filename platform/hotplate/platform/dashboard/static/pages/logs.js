// Logs as they come, of one replica or of all, or of the build of the environment.
import { asked, put } from "hotplate/address";
import { now, tick } from "hotplate/clock";
import { NAME, SOURCE, Tab } from "hotplate/deployment";
import { timed, useLines } from "hotplate/loglines";
import { useResource } from "hotplate/resources";
import { Empty, Waiting } from "hotplate/shell";
import { Line, plain } from "hotplate/terminal";
import { html, useLayoutEffect, useRef, useState } from "hotplate/view";

const DRAWN = 1000;
const SINCE = { "": "all that is kept", 60: "the last minute", 600: "the last 10 min", 3600: "the last hour" };

function pattern(text, isRegular) {
  if (!text) return null;
  const source = isRegular ? text : text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  try {
    return new RegExp(source, "i");
  } catch (error) {
    return error;
  }
}

function save(lines) {
  const file = new Blob([lines.map((line) => `${line.replica ? `${line.replica} ` : ""}${line.text}`).join("\n")], {
    type: "text/plain",
  });
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(file), download: `${NAME}.log` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

function Log({ lines, note, filter, wrapped, named, follows, follow }) {
  const box = useRef(null);
  useLayoutEffect(() => {
    if (follows && box.current) box.current.scrollTop = box.current.scrollHeight;
  });
  const scrolled = () => {
    const { scrollTop, scrollHeight, clientHeight } = box.current;
    follow(scrollHeight - scrollTop - clientHeight < 24);
  };
  const shown = lines.slice(-DRAWN);
  return html`<div class=${`log ${wrapped ? "wrapped" : ""}`} ref=${box} onScroll=${scrolled} tabindex="0" role="log" aria-live="off" aria-label=${`Log of ${NAME}`}>
      ${lines.length > DRAWN && html`<div class="from">… ${lines.length - DRAWN} lines before are in the file</div>`}
      ${!lines.length && html`<div class="from">No line fits.</div>`}
      ${shown.map(
        (
          line,
        ) => html`<div key=${line.id} data-replica=${line.replica}>${named && line.replica && html`<span class="from">${line.replica.slice(-5)}</span>`}<bdi>
        <${Line} text=${line.text} pattern=${filter} /></bdi></div>`,
      )}
    </div>
    <p class="controls soft">
      <span>${follows ? "It follows what comes." : html`<button class="plain" onClick=${() => follow(true)}>Follow what comes</button>`}</span>
      <span>${lines.length} lines${note}</span></p>`;
}

function Build() {
  const { data, error } = useResource(`${SOURCE}/build_log`, { every: 3 });
  const found = data.value;
  if (!found) return html`<${Waiting} error=${error.value} />`;
  if (!found.log) return html`<${Empty}>No environment was built here for this revision.</${Empty}>`;
  const lines = timed(
    found.log.split("\n").map((text, id) => ({ id, replica: "", text })),
    new Map(),
  );
  return html`<${Filtered} lines=${lines} dropped=${0} />`;
}

function Filtered({ lines, dropped, named }) {
  const [follows, follow] = useState(true);
  const held = useRef(lines); // what somebody reads who has scrolled up stays where it is
  if (follows) held.current = lines;
  const filter = pattern(asked("text"), asked("regular"));
  if (filter instanceof Error) return html`<p class="empty bad" role="alert">${filter.message}</p>`;
  const since = asked("since") ? now() - asked("since") * 1000 : null;
  if (since !== null) tick.value; // lines grow too old without any that come
  const found = held.current.filter(
    (line) =>
      (since === null || (line.at !== null && line.at >= since)) && (!filter || filter.test(plain(line.text))),
  );
  const timeless = since === null ? 0 : held.current.filter(({ at }) => at === null).length;
  const note = [
    timeless && `; ${timeless} that were there before say no time and are left out`,
    dropped && `; ${dropped} came too fast and were left out`,
  ];
  return html`<${Log} lines=${found} note=${note.filter(Boolean).join("")} filter=${filter} wrapped=${asked("wrap")} named=${named} follows=${follows} follow=${follow} />
    <p class="controls">
      <button class="plain" onClick=${() => save(found)} disabled=${!found.length}>Save as a file</button></p>`;
}

function Replicas({ replica }) {
  const { lines, dropped, error, known } = useLines(SOURCE, NAME, replica);
  if (!lines.length && error) return html`<${Waiting} error=${error} />`;
  if (!lines.length) return html`<${Empty}>${known ? "Nothing is printed yet." : "Waiting for lines…"}</${Empty}>`;
  return html`<${Filtered} lines=${lines} dropped=${dropped} named=${!replica} />`;
}

function Logs({ found }) {
  const replica = asked("replica");
  const replicas = found.live.replicas.map(({ id }) => id);
  if (replica && replica !== "build" && !replicas.includes(replica)) replicas.push(replica);
  const check = (name, text) =>
    html`<label>
      <input type="checkbox" checked=${Boolean(asked(name))} onChange=${(event) => put({ [name]: event.target.checked ? "1" : null })} />${text}</label>`;
  return html`<div class="controls" role="group" aria-label="What of the log">
      <label>Of <select value=${replica} onChange=${(event) => put({ replica: event.target.value })}>
        <option value="">all replicas</option>${replicas.map((id) => html`<option value=${id}>${id}</option>`)}<option value="build">the build</option>
      </select></label>
      <label>Since <select value=${asked("since")} onChange=${(event) => put({ since: event.target.value })}>${Object.entries(SINCE).map(([value, text]) => html`<option value=${value}>${text}</option>`)}</select>
        </label>
      <input type="search" placeholder="Text" aria-label="Lines with this text" value=${asked("text")} onInput=${(event) => put({ text: event.target.value })} />
      ${check("regular", "regular expression")} ${check("wrap", "wrap lines")}
    </div>
    ${replica === "build" ? html`<${Build} />` : html`<${Replicas} key=${replica} replica=${replica} />`}`;
}

export default () => html`<${Tab} here="logs">${(found) => html`<${Logs} found=${found} />`}</${Tab}>`;
