// Settings as YAML, and what differs between two of them.
import { html } from "hotplate/view";

const PLAIN = /^[A-Za-z_/][\w./ -]*$/;
const WORDS = /^(true|false|null|yes|no|on|off|~)$/i;

const scalar = (value) =>
  typeof value === "string" && (!PLAIN.test(value) || WORDS.test(value) || value.endsWith(" "))
    ? JSON.stringify(value)
    : String(value);
const isEmpty = (value) => value !== null && typeof value === "object" && !Object.keys(value).length;

// A JSON value as lines of YAML.
export function yaml(value, indent = "") {
  if (value === null || typeof value !== "object") return [`${indent}${scalar(value)}`];
  if (isEmpty(value)) return [`${indent}${Array.isArray(value) ? "[]" : "{}"}`];
  if (Array.isArray(value))
    return value.flatMap((item) => {
      const [first, ...rest] = yaml(item, `${indent}  `);
      return [`${indent}- ${first.trimStart()}`, ...rest];
    });
  return Object.entries(value).flatMap(([key, member]) => {
    const name = `${indent}${PLAIN.test(key) ? key : JSON.stringify(key)}:`;
    return member === null || typeof member !== "object" || isEmpty(member)
      ? [`${name} ${yaml(member)[0]}`]
      : [name, ...yaml(member, `${indent}  `)];
  });
}

// Lines `{ sign, text }` of both, the longest common ones once.
function difference(before, after) {
  const longest = Array.from({ length: before.length + 1 }, () => new Uint16Array(after.length + 1));
  for (let i = before.length - 1; i >= 0; i--)
    for (let j = after.length - 1; j >= 0; j--)
      longest[i][j] =
        before[i] === after[j] ? longest[i + 1][j + 1] + 1 : Math.max(longest[i + 1][j], longest[i][j + 1]);
  const found = [];
  let [i, j] = [0, 0];
  while (i < before.length || j < after.length) {
    if (i < before.length && j < after.length && before[i] === after[j]) {
      found.push({ sign: " ", text: before[i] });
      [i, j] = [i + 1, j + 1];
    } else if (j >= after.length || (i < before.length && longest[i + 1][j] >= longest[i][j + 1]))
      found.push({ sign: "-", text: before[i++] });
    else found.push({ sign: "+", text: after[j++] });
  }
  return found;
}

export function Difference({ before, after, label }) {
  const lines = difference(before, after);
  return html`${lines.every(({ sign }) => sign === " ") && html`<p class="soft">Nothing differs.</p>`}
    <pre class="code" tabindex="0" aria-label=${label}>${lines.map(({ sign, text }) =>
      sign === " "
        ? `  ${text}\n`
        : sign === "+"
          ? html`<ins>+ ${text}${"\n"}</ins>`
          : html`<del>- ${text}${"\n"}</del>`,
    )}</pre>`;
}
