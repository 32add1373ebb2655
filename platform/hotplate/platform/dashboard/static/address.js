// What the page's address says besides its path: ranges, filters, the organization.
import { page } from "hotplate/api";
import { signal } from "hotplate/view";

const query = signal(new URLSearchParams(location.search));

export const asked = (name, otherwise = "") => query.value.get(name) ?? otherwise;

// Changes members of the query; null or "" takes one away.
export function put(changes, { push = false } = {}) {
  const next = new URLSearchParams(query.value);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === "") next.delete(name);
    else next.set(name, value);
  }
  const text = next.toString();
  history[push ? "pushState" : "replaceState"](null, "", text ? `?${text}` : location.pathname);
  query.value = next;
}

addEventListener("popstate", () => (query.value = new URLSearchParams(location.search)));

// The address of another page, for the same organization.
export function to(path, members = {}) {
  const next = new URLSearchParams(members);
  if (page.acting) next.set("organization", page.acting);
  const text = next.toString();
  return text ? `${path}?${text}` : path;
}
export const toDeployment = (name, tab = "", members = {}) =>
  to(`/deployments/${encodeURIComponent(name)}${tab && `/${tab}`}`, members);

// An address that may be followed: nothing but http and https.
export const safe = (url) => (/^https?:\/\//i.test(url ?? "") ? url : undefined);
