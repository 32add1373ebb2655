// Lines of logs as they come: the last ones are kept, and drawn a few times a second.
import { call } from "hotplate/api";
import { connection, listen } from "hotplate/live";
import { signal, useEffect } from "hotplate/view";

const KEPT = 5000;
const KEPT_CHARACTERS = 4 << 20;
const DRAW_MS = 200;
const POLL_MS = 2000;
const STAMP = /\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?/;

// When a line says that it was written, in milliseconds; null where it says nothing.
function stamp(text) {
  const found = STAMP.exec(text.slice(0, 80))?.[0];
  if (!found) return null;
  const at = Date.parse(
    found
      .replace(" ", "T")
      .replace(",", ".")
      .replace(/([+-]\d\d)(\d\d)$/, "$1:$2"),
  );
  return Number.isNaN(at) ? null : at;
}

// When each was written, in milliseconds: when it came, where somebody saw that, else as it says
// itself, else as the one before it of the same replica; null = nobody knows. A log keeps no times.
export function timed(lines, last) {
  for (const line of lines) {
    const at = typeof line.at === "number" ? line.at * 1000 : (stamp(line.text) ?? last.get(line.replica) ?? null);
    last.set(line.replica, at);
    line.at = at;
  }
  return lines;
}

// The last of them, as many as are kept.
function kept(lines) {
  let characters = 0;
  const from = lines.findLastIndex(({ text }, i) => {
    characters += text.length;
    return characters > KEPT_CHARACTERS || i < lines.length - KEPT;
  });
  return from < 0 ? lines : lines.slice(from + 1);
}

// `{ lines, dropped, error, known }`, each line `{ id, replica, text, at }`, of one replica or of all.
export function useLines(source, name, replica) {
  const state = (useLines.states ??= new Map());
  const key = `${source} ${replica}`;
  if (!state.has(key)) state.set(key, signal({ lines: [], dropped: 0, error: null, known: false }));
  const shown = state.get(key);
  useEffect(() => {
    let [waiting, dropped, count, timer, anew] = [[], 0, 0, null, false];
    const draw = () => {
      timer = null;
      const before = anew ? { lines: [], dropped: 0 } : shown.value;
      const lines = kept([...before.lines, ...waiting]);
      shown.value = { lines, dropped: before.dropped + dropped, error: null, known: true };
      [waiting, dropped, anew] = [[], 0, false];
    };
    const last = new Map();
    const add = (lines, lost = 0) => {
      const named = lines.slice(-KEPT).map((line) => ({ ...line, id: (count += 1) }));
      waiting.push(...timed(named, last));
      waiting = kept(waiting);
      dropped += lost;
      timer ??= setTimeout(draw, DRAW_MS);
    };
    const begin = () => {
      [waiting, dropped, anew] = [[], 0, true];
      last.clear();
      timer ??= setTimeout(draw, DRAW_MS);
    };
    begin();
    const silent = listen(replica ? `logs:${name}/${replica}` : `logs:${name}`, ({ data, reset, anew: again }) => {
      if (reset || again) begin();
      if (data) add(data.lines, data.dropped);
    });
    const ask = async () => {
      if (connection.value.state === "live" || document.hidden) return;
      try {
        const { data } = await call(
          "GET",
          `${source}/logs?lines=500${replica ? `&replica=${encodeURIComponent(replica)}` : ""}`,
        );
        if (connection.value.state === "live") return; // which has said the same meanwhile
        begin();
        for (const [from, texts] of Object.entries(data)) add(texts.map((text) => ({ replica: from, text })));
      } catch (error) {
        if (connection.value.state === "live") return;
        shown.value = { ...shown.value, error, known: true };
      }
    };
    const asking = setInterval(ask, POLL_MS);
    ask();
    return () => {
      silent();
      clearInterval(asking);
      clearTimeout(timer);
    };
  }, [source, name, replica]);
  return shown.value;
}
