// What programs print: colours are shown, every other terminal code appears as a symbol.
import { html } from "hotplate/view";

const COLOURS = /\x1b\[([\d;]*)m/g;
// Control codes, and marks that turn the direction of what follows.
const HIDDEN = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;
const LONGEST = 4000;

const symbol = (code) => {
  const point = code.codePointAt(0);
  if (point < 0x20) return String.fromCodePoint(0x2400 + point);
  if (point === 0x7f) return "␡";
  return `‹U+${point.toString(16).toUpperCase().padStart(4, "0")}›`;
};
export const visible = (text) => text.replace(HIDDEN, symbol);
export const plain = (text) => visible(text.replace(COLOURS, ""));

// The text in pieces `{ text, classes }`, coloured as its codes say.
function pieces(line) {
  const cut = line.length > LONGEST ? `${line.slice(0, LONGEST)}… (${line.length} characters)` : line;
  const found = [];
  let [classes, from] = [[], 0];
  for (const match of cut.matchAll(COLOURS)) {
    if (match.index > from) found.push({ text: visible(cut.slice(from, match.index)), classes });
    from = match.index + match[0].length;
    for (const code of (match[1] || "0").split(";").map(Number)) {
      if (code === 0) classes = [];
      else if (code < 10) classes = [...classes, `a${code}`];
      else if ((code >= 30 && code < 40) || (code >= 90 && code < 98))
        classes = [...classes.filter((each) => each.length < 3), `a${code}`];
    }
  }
  if (from < cut.length) found.push({ text: visible(cut.slice(from)), classes });
  return found;
}

// One line, with what fits `pattern` marked.
export function Line({ text, pattern }) {
  return pieces(text).map(
    ({ text: part, classes }) =>
      html`<span class=${classes.join(" ")}>${pattern ? marked(part, pattern) : part}</span>`,
  );
}

function marked(text, pattern) {
  const found = [];
  let from = 0;
  for (const match of text.matchAll(new RegExp(pattern.source, `${pattern.flags.replace("g", "")}g`))) {
    if (!match[0]) break;
    found.push(text.slice(from, match.index), html`<mark>${match[0]}</mark>`);
    from = match.index + match[0].length;
  }
  return [...found, text.slice(from)];
}
