/**
 * Whose pages may report: the origins that a task lists.
 * @module
 */

/** Names of labels, as they stand before a domain. */
const labels = /^[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*$/;

/** Whether pages of an origin may report to a task that lists these; without any, all may. */
export function allows(origins: readonly string[], origin: string): boolean {
  return origins.length === 0 || origins.some((listed) => isListed(origin, listed));
}

/** Whether an origin is the listed one, or one that its "*." stands for. */
function isListed(origin: string, listed: string): boolean {
  const [scheme, domain] = listed.split('://*');
  if (domain === undefined) return origin === listed;
  const [start, end] = [`${scheme}://`, origin.length - domain.length];
  return origin.startsWith(start) && origin.endsWith(domain) && labels.test(origin.slice(start.length, end));
}
