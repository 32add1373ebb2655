// Lines of logs as they come: the last ones are kept, and drawn a few times a second.
import { call } from "hotplate/api";
import { connection, listen } from "hotplate/live";
import { signal, useEffect } from "hotplate/view";

export const KEPT = 5000;
const DRAW_MS = 200;
const POLL_MS = 2000;
const STAMP = /\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?/;

// When a line says that it was written, in milliseconds; else that of the line before.
function stamp(text, before) {
  const found = STAMP.exec(text.slice(0, 80))?.[0];
  const at = found
    ? Date.parse(
        found
          .replace(" ", "T")
          .replace(",", ".")
          .replace(/([+-]\d\d)(\d\d)$/, "$1:$2"),
      )
    : NaN;
  return Number.isNaN(at) ? before : at;
}

// `{ lines, dropped, error }`, each line `{ id, replica, text, at }`, of one replica or of all.
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
      const lines = [...before.lines, ...waiting].slice(-KEPT);
      shown.value = { lines, dropped: before.dropped + dropped, error: null, known: true };
      [waiting, dropped, anew] = [[], 0, false];
    };
    let last = Date.now();
    const add = (lines, lost = 0) => {
      for (const line of lines) {
        last = stamp(line.text, last);
        waiting.push({ ...line, id: (count += 1), at: last });
      }
      if (waiting.length > KEPT) waiting = waiting.slice(-KEPT);
      dropped += lost;
      timer ??= setTimeout(draw, DRAW_MS);
    };
    const begin = () => {
      [waiting, dropped, anew] = [[], 0, true];
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
        begin();
        for (const [from, texts] of Object.entries(data)) add(texts.map((text) => ({ replica: from, text })));
      } catch (error) {
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
