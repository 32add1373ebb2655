// The time as the server has it: a browser's clock may be wrong by a day.
import { signal } from "hotplate/view";

let ahead = 0;

// Milliseconds by which the server is ahead, from the `Date` of an answer that took `lasted` ms.
export function heard(date, lasted) {
  const at = Date.parse(date ?? "");
  if (Number.isNaN(at)) return;
  const found = at + 500 + lasted / 2 - Date.now();
  if (Math.abs(found - ahead) > 1500) ahead = found;
}

export const now = () => Date.now() + ahead;

// Changes once a second, for what says how long ago something was.
export const tick = signal(0);
setInterval(() => {
  if (!document.hidden) tick.value += 1;
}, 1000);
document.addEventListener("visibilitychange", () => (tick.value += 1));
