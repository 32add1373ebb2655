// Calls of the API, by the sign-in of this browser and for the organization of this page.
import { heard } from "hotplate/clock";
import { signal } from "hotplate/view";

export const page = document.body.dataset;
export const ROOT = "/api/v1/hotplate";

// Set once the sign-in is over: nothing is asked any more until somebody signs in.
export const signedOut = signal(false);

// One sentence, as the API says it.
class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export const one = (name) => `${ROOT}/deployments/${encodeURIComponent(name)}`;

export async function raw(method, path, { body, etag, signal: aborted, headers = {} } = {}) {
  if (signedOut.value) throw new ApiError(401, "unauthorized", "sign in again");
  const sent = { Accept: "application/json", ...headers };
  if (page.acting) sent["X-Hotplate-Organization"] = page.acting;
  if (etag) sent["If-Match"] = etag;
  const isForm = body instanceof FormData;
  if (body !== undefined && !isForm) sent["Content-Type"] = "application/json";
  const began = performance.now();
  let answer;
  try {
    answer = await fetch(path, {
      method,
      headers: sent,
      body: body === undefined || isForm ? body : JSON.stringify(body),
      cache: "no-store",
      signal: aborted,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "unreachable", "the control plane does not answer; it is asked again");
  }
  heard(answer.headers.get("Date"), performance.now() - began);
  if (answer.status === 401) signedOut.value = true;
  return answer;
}

// `{ data, etag }`. Throws ApiError.
export async function call(method, path, options) {
  const answer = await raw(method, path, options);
  const data = await answer.json().catch(() => null);
  if (!answer.ok) {
    const { code = "", message = `${answer.status} ${answer.statusText}` } = data?.error ?? {};
    throw new ApiError(answer.status, code, message);
  }
  return { data, etag: answer.headers.get("ETag") };
}
