// Tables: sorted by their heads, and of long ones only the rows that are seen are drawn.
import { asked, put } from "hotplate/address";
import { html, useEffect, useRef, useState } from "hotplate/view";

const SPARE = 12;

// Which rows of a list are within sight; `height` of each in pixels.
function useWindow(count, height) {
  const body = useRef(null);
  const [[first, last], set] = useState([0, 60]);
  useEffect(() => {
    const look = () => {
      if (!body.current) return;
      const top = -body.current.getBoundingClientRect().top;
      const from = Math.max(0, Math.floor(top / height) - SPARE);
      const to = Math.ceil((top + innerHeight) / height) + SPARE;
      set((seen) => (seen[0] === from && seen[1] === to ? seen : [from, to]));
    };
    look();
    addEventListener("scroll", look, { passive: true });
    addEventListener("resize", look);
    return () => {
      removeEventListener("scroll", look);
      removeEventListener("resize", look);
    };
  }, [count, height]);
  return [body, Math.min(first, count), Math.min(Math.max(last, first), count)];
}

const compare = (a, b) => {
  if (a === b) return 0;
  if (a === null || a === undefined) return 1;
  if (b === null || b === undefined) return -1;
  return typeof a === "string" ? a.localeCompare(b) : a < b ? -1 : 1;
};

// `columns`: `{ key, head, cell(item), sort(item), num, cls }`; `row(item)` gives the attributes of
// its row, `rowHeight` makes that only those within sight are drawn.
export function Table({ columns, items, row = () => ({}), label, rowHeight = 0, usual = "" }) {
  const chosen = asked("sort", usual);
  const [key, down] = chosen.startsWith("-") ? [chosen.slice(1), true] : [chosen, false];
  const by = columns.find((column) => column.key === key)?.sort;
  const sorted = by ? items.toSorted((a, b) => (down ? -1 : 1) * compare(by(a), by(b))) : items;
  const [body, first, last] = useWindow(sorted.length, rowHeight || 1e9);
  const shown = rowHeight ? sorted.slice(first, last) : sorted;
  const space = (rows) =>
    rows > 0 &&
    html`<tr class="space" aria-hidden="true" style=${{ height: `${rows * rowHeight}px` }}>
      <td colspan=${columns.length} /></tr>`;
  return html`<table class="list" aria-label=${label} aria-rowcount=${rowHeight ? sorted.length + 1 : undefined}>
    <thead>
      <tr aria-rowindex=${rowHeight ? 1 : undefined}>
        ${columns.map((column) => html`<${Head} column=${column} sorted=${column.key === key && by ? (down ? "descending" : "ascending") : null} />`)}
      </tr>
    </thead>
    <tbody ref=${body}>
      ${rowHeight ? space(first) : null}
      ${shown.map((item, i) => {
        const attributes = row(item);
        return html`<tr key=${attributes.key ?? i} ...${attributes} aria-rowindex=${rowHeight ? first + i + 2 : undefined}>
          ${columns.map((column) => html`<td class=${`${column.num ? "num" : ""} ${column.cls ?? ""}`} data-head=${column.head}>${column.cell(item)}</td>`)}
        </tr>`;
      })}
      ${rowHeight ? space(sorted.length - last) : null}
    </tbody>
  </table>`;
}

function Head({ column, sorted }) {
  if (!column.sort) return html`<th scope="col" class=${column.num ? "num" : ""}>${column.head}</th>`;
  const choose = () => put({ sort: `${sorted === "ascending" ? "-" : ""}${column.key}` });
  return html`<th scope="col" class=${column.num ? "num" : ""} aria-sort=${sorted}>
    <button class="plain head" onClick=${choose}>${column.head}<span aria-hidden="true">${sorted ? (sorted === "ascending" ? " ↑" : " ↓") : ""}</span>
      </button>
  </th>`;
}
