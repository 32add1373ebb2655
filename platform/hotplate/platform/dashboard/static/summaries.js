// What a deployment's summary says, in the words of `hotplate status`.
export const BAD = ["failed", "image-build-failed", "unhealthy"];

export const ready = (one) => one.live.replicas.filter(({ state }) => state === "ready").length;

// How many replicas there are to be, by the last decisions.
export function wanted(one) {
  const number = one.serving ?? one.revision;
  const serving = one.live.services.filter(({ revision }) => revision === number);
  return serving.reduce((sum, service) => sum + (service.granted ?? service.desired ?? 0), 0);
}

const total = (one, key) => one.live.services.reduce((sum, service) => sum + (service[key] ?? 0), 0);
export const queued = (one) => total(one, "queued");
export const inFlight = (one) => total(one, "in_flight");

// Seconds that the newest start took until it was ready; null = nothing has become ready.
export function lastStart(one) {
  const starts = one.live.replicas.filter(({ ready_at }) => ready_at);
  if (!starts.length) return null;
  const newest = starts.reduce((a, b) => (a.ready_at > b.ready_at ? a : b));
  return (Date.parse(newest.ready_at) - Date.parse(newest.wanted_at)) / 1000;
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
