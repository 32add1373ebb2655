// What a deployment's summary says, in the words of `hotplate status`.
export const BAD = ["failed", "image-build-failed", "unhealthy"];

// All of them together: `{ deployments, by_status, ready, wanted, in_flight, queued, rates }`, as
// `GET …/totals` answers it; here of what is known, so that it goes with what comes by itself.
export function totalsOf(all) {
  const sum = (of) => all.reduce((before, one) => before + of(one), 0);
  const by_status = {};
  for (const { status } of all) by_status[status] = (by_status[status] ?? 0) + 1;
  const counts = ["ready", "wanted", "in_flight", "queued"].map((key) => [key, sum(({ totals }) => totals[key])]);
  const rates = { requests_per_s: sum((one) => one.rates.requests_per_s) };
  return { deployments: all.length, by_status, ...Object.fromEntries(counts), rates };
}

// Whether a deployment fits the words of a search: parts of its name or bento, `status:…`, and
// labels as `key=value`.
export function fits(one, text) {
  return text
    .toLowerCase()
    .split(/\s+/)
    .filter(Boolean)
    .every((word) => {
      if (word.startsWith("status:")) return one.status.startsWith(word.slice(7));
      if (word.includes("=")) return one.labels.some(({ key, value }) => `${key}=${value}`.toLowerCase() === word);
      return one.name.toLowerCase().includes(word) || one.bento.toLowerCase().includes(word);
    });
}
