/**
 * Checks whether this page may report. It must be of an origin that the task lists, and no page of another origin may
 * frame it.
 * @module
 */

import { DoonaError } from './errors.js';

/** The length limit of an origin, in characters. */
const maxOrigin = 255;

/** One or more DNS labels: the names that "*." matches. */
const domainLabels = /^[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*$/;

/** Whether pages of an origin may report to a task with this list of origins. An empty list allows all. */
export function allowsOrigin(origins: readonly string[], origin: string): boolean {
  if (origins.length === 0) return true;
  return origin.length <= maxOrigin && origins.some((listed) => isListed(origin, listed));
}

/** Whether an origin equals a listed one or matches its "*.". */
function isListed(origin: string, listed: string): boolean {
  const [scheme, domain] = listed.split('://*');
  if (domain === undefined) return origin === listed;
  const [start, end] = [`${scheme}://`, origin.length - domain.length];
  return origin.startsWith(start) && origin.endsWith(domain) && domainLabels.test(origin.slice(start.length, end));
}

/**
 * Refuses to report from a page whose origin the task does not list. The relay would refuse the report too. Programs,
 * such as Node, have no origin and may report.
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
 * Refuses to report if a page of another origin frames this page. Otherwise an advertisement could frame a site and
 * make its viewers report although they never visited the site. Their ledger would be separate too: browsers give a
 * framed page a storage of its own.
 * @throws DoonaError `frame-refused`
 */
export function checkFrame(): void {
  if (globalThis.top === undefined || !isFramed()) return; // A program, or a worker whose page checks.
  throw new DoonaError('frame-refused', "couldn't report from a frame in a page of another origin: " +
    'want the page itself, or frames: true', 'frames');
}

/**
 * Whether any page around this one is, or may be, of another origin. A sandboxed frame has an opaque origin, which
 * counts as another origin.
 */
function isFramed(): boolean {
  const { origin, top } = globalThis;
  try {
    for (let at: Window = globalThis.window; at !== top; at = at.parent) {
      if (origin === opaque || at.parent === at || at.parent.origin !== origin) return true;
    }
  } catch {
    return true; // Access to another origin's window throws.
  }
  return false;
}

/** The text of an opaque origin. No two opaque origins are the same. */
const opaque = 'null';
