/**
 * Whose pages may report: those of the origins that a task lists, and none in a frame of another site.
 * @module
 */

import { DoonaError } from './errors.js';

/** The most characters of an origin. */
const maxOrigin = 255;

/** Names of labels, as they stand before a domain. */
const domainLabels = /^[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*$/;

/** Whether pages of an origin may report to a task that lists these; without any, all may. */
export function allowsOrigin(origins: readonly string[], origin: string): boolean {
  if (origins.length === 0) return true;
  return origin.length <= maxOrigin && origins.some((listed) => isListed(origin, listed));
}

/** Whether an origin is the listed one, or one that its "*." stands for. */
function isListed(origin: string, listed: string): boolean {
  const [scheme, domain] = listed.split('://*');
  if (domain === undefined) return origin === listed;
  const [start, end] = [`${scheme}://`, origin.length - domain.length];
  return origin.startsWith(start) && origin.endsWith(domain) && domainLabels.test(origin.slice(start.length, end));
}

/**
 * Refuses to report for a page of an origin that the task does not list, before the relay has to. Programs have none.
 * @throws DoonaError `origin-refused`
 */
export function checkOrigin(origins: readonly string[]): void {
  const { location, origin } = globalThis;
  if (!location || !origin || allowsOrigin(origins, origin)) return;
  const listed = origins.join(', ').slice(0, 200);
  throw new DoonaError('origin-refused', `couldn't accept the task: it takes no reports of ${origin}, only of ${listed}`,
    'clients.origins');
}

/**
 * Refuses to report for a page that a page of another origin has framed: an advertisement could else have its visitors
 * report without their having come. Nor would the ledger know them there: browsers give a framed page another storage.
 * @throws DoonaError `frame-refused`
 */
export function checkFrame(): void {
  if (globalThis.top === undefined || !isFramed()) return; // a program or a worker, whose page is asked
  throw new DoonaError('frame-refused', "couldn't report from a frame in a page of another origin: " +
    'want the page itself, or frames: true', 'frames');
}

/** Whether a frame around this page is of another origin, or may be. A sandboxed frame's origin is its own. */
function isFramed(): boolean {
  const { origin, top } = globalThis;
  try {
    for (let at: Window = globalThis.window; at !== top; at = at.parent) {
      if (origin === opaque || at.parent === at || at.parent.origin !== origin) return true;
    }
  } catch {
    return true; // another origin's window tells nothing
  }
  return false;
}

/** The origin of pages that have none, as a text: no two are the same. */
const opaque = 'null';
