// Figures over time as the API keeps them, and what charts make of them.
import { call } from "hotplate/api";
import { now } from "hotplate/clock";
import { pending } from "hotplate/resources";
import { useLayoutEffect, useMemo, useRef, useState } from "hotplate/view";

const POINTS = 672; // a week in quarters of an hour: no chart has more pixels for them

// `{ data, error, source }` of a path that ends in `series`, for `[from, to]` in Unix seconds. What
// was shown stays until the next answer has come.
export function useSeries(path, from, to) {
  const [shown, set] = useState({ data: null, error: null, source: path });
  const first = useRef(true);
  const asking = useRef(null);
  useLayoutEffect(() => {
    if (first.current) pending.value += 1;
    return () => asking.current?.abort();
  }, []);
  useLayoutEffect(() => {
    const step = Math.ceil((to - from) / POINTS);
    const source = `${path}?from=${Math.floor(from)}&to=${Math.floor(to)}&step=${step}`;
    asking.current?.abort();
    asking.current = new AbortController();
    const { signal } = asking.current;
    call("GET", source, { signal })
      .then(({ data }) => set({ data, error: null, source }))
      .catch((error) => error.name === "AbortError" || set((before) => ({ ...before, error, source })))
      .finally(() => {
        if (!first.current || signal.aborted) return;
        first.current = false;
        pending.value -= 1;
      });
  }, [path, from, to]);
  return shown;
}

const each = (values, change) => (values ?? []).map((value, i) => (value === null ? null : change(value, i)));

// What charts draw of `series`: rates per second, shares of time as numbers of GPUs or replicas.
export function useDrawn(data) {
  return useMemo(() => {
    if (!data?.at?.length) return null;
    // The last step is not over yet.
    const end = data.at.length - 1;
    const lasted = Math.min(data.step_s, Math.max(2, now() / 1000 - data.at[end]));
    const perSecond = (values) => each(values, (value, i) => value / (i === end ? lasted : data.step_s));
    const less = (values, others) =>
      (values ?? []).map((value, i) => (value === null ? null : Math.max(0, value - (others?.[i] ?? 0))));
    const { at, requests, errors, refused, queued, in_flight, replicas = {}, gpu_s = {} } = data;
    return {
      at,
      raw: data,
      answered: perSecond(less(requests, errors)),
      errors: perSecond(errors),
      refused: perSecond(refused),
      queued: queued ?? [],
      inFlight: in_flight ?? [],
      wanted: replicas.wanted ?? [],
      ready: replicas.ready ?? [],
      starting: replicas.starting ?? [],
      draining: replicas.draining ?? [],
      wait: data.wait_s ?? {},
      firstByte: data.first_byte_s ?? {},
      answer: data.answer_s ?? {},
      failedShare: (errors ?? []).map((value, i) => (value === null || !requests?.[i] ? null : value / requests[i])),
      gpuBusy: perSecond(gpu_s.busy),
      gpuIdle: perSecond(gpu_s.idle),
      gpuStarting: perSecond(gpu_s.starting),
      cpus: perSecond(data.cpu_s),
      memory: data.memory_bytes ?? [],
      gpuMemory: data.gpu_memory_bytes ?? [],
    };
  }, [data]);
}

export const requestSeries = (drawn) => [
  {
    key: "answered",
    field: "requests",
    label: "answered",
    colour: "calm",
    kind: "area",
    values: drawn.answered,
    raw: drawn.raw.requests,
  },
  {
    key: "failed",
    field: "errors",
    label: "failed",
    colour: "bad-fill",
    kind: "area",
    values: drawn.errors,
    raw: drawn.raw.errors,
  },
  {
    key: "refused",
    field: "refused",
    label: "refused",
    colour: "busy-fill",
    kind: "area",
    values: drawn.refused,
    raw: drawn.raw.refused,
  },
];
export const queueSeries = (drawn) => [
  { key: "in_flight", label: "in flight", field: "in_flight", colour: "calm", kind: "area", values: drawn.inFlight },
  { key: "queued", label: "queued", field: "queued", colour: "busy-fill", kind: "area", values: drawn.queued },
];
export const replicaSeries = (drawn) => [
  { key: "ready", label: "ready", field: "replicas.ready", colour: "good-fill", kind: "area", values: drawn.ready },
  {
    key: "starting",
    label: "starting",
    field: "replicas.starting",
    colour: "busy-fill",
    kind: "area",
    values: drawn.starting,
  },
  {
    key: "draining",
    label: "draining",
    field: "replicas.draining",
    colour: "idle",
    kind: "area",
    values: drawn.draining,
  },
  { key: "wanted", label: "wanted", field: "replicas.wanted", colour: "text", kind: "step", values: drawn.wanted },
];
export const gpuSeries = (drawn) => [
  {
    key: "busy",
    label: "busy",
    field: "gpu_s.busy",
    colour: "calm",
    kind: "area",
    values: drawn.gpuBusy,
    raw: drawn.raw.gpu_s?.busy,
  },
  {
    key: "starting",
    label: "starting",
    field: "gpu_s.starting",
    colour: "busy-fill",
    kind: "area",
    values: drawn.gpuStarting,
    raw: drawn.raw.gpu_s?.starting,
  },
  {
    key: "idle",
    label: "idle",
    field: "gpu_s.idle",
    colour: "idle",
    kind: "area",
    values: drawn.gpuIdle,
    raw: drawn.raw.gpu_s?.idle,
  },
];
