// What a change of a deployment asks: all of it, so what a page does not change is as it is.
import { page } from "hotplate/api";

export const DEPLOYMENT = `/api/v2/deployments/${encodeURIComponent(page.ofName ?? "")}`;

// A request that leaves all as the API answers it; without its canary it would end that.
export function requestOf({ bento, config, labels, canary }) {
  const { services, envs, secrets, access_authorization } = config;
  return { bento, services, envs, labels, secrets, access_authorization, ...(canary ? { canary } : {}) };
}
