/**
 * Explains a task's guarantee in words, for a consent notice and its author: the promise, what remains of it in the
 * worst case, and what no device can verify (docs/threat-model.md).
 * @module
 */

import type { Budget } from './budget.js';
import { invalidOption } from './errors.js';
import { type Guarantee, groupPrivacy } from './guarantee.js';
import type { Task } from './task.js';

/** An assumption on which the promise depends and which this device cannot verify. */
export interface Assumption {
  /**
   * `whole-clients` means: any one relay may be the only honest one, but the first relay must keep each client's
   * messages in one batch. `issuer` appears if the task requires tokens, otherwise `addresses`. `page` appears if the
   * page, not a worker, decides whether the budget admits a report.
   */
  readonly name: 'honest-clients' | 'relays' | 'participation' | 'no-flooding' | 'whole-clients' | 'issuer' | 'addresses' | 'storage' | 'origins' | 'page';
  readonly text: string;
}

/** The promise to a visitor who reports from `count` devices or browsers in one epoch. */
export interface Devices {
  readonly count: number;
  readonly epsilon: number;
  readonly delta: number;
  readonly text: string;
}

/** The guarantee of a task in words, and the numbers in these words. */
export interface Explanation {
  /** The whole explanation as plain text, one paragraph per line. Fit for a consent notice. */
  readonly text: string;
  /** The promise to one visitor. */
  readonly promise: string;
  /** What protection remains if somebody can tell one client's messages from the messages of others. */
  readonly worstCase: string;
  /** The promise to a visitor with several devices. */
  readonly devices: Devices;
  /** What this device checked before the page reported any value. */
  readonly checked: readonly string[];
  /** What this device cannot verify. */
  readonly unverified: readonly Assumption[];
  readonly guarantee: Guarantee;
}

/** Options of `explain`. */
export interface ExplainOptions {
  /** The number of devices or browsers from which a visitor may report. Default 2. Range 1 to 1000. */
  readonly devices?: number;
}

/**
 * Where the budget decision runs: in the engine's worker, or on the page if it passes its own store or no worker runs.
 */
export type Decider = 'worker' | 'page';

export function explain(task: Task, guarantee: Guarantee, budget: Budget & { readonly decider: Decider },
  options: ExplainOptions = {}): Explanation {
  const promise = promiseOf(guarantee);
  const devices = devicesOf(guarantee, options.devices ?? 2);
  const worstCase = worstCaseOf(guarantee);
  const checked = [
    'that the question is the one that its owner signed',
    'that every party uses the keys that the owner signed, one per epoch for all clients',
    'that the parameters of the randomization give the promise, by a computation of its own',
    `that all reports at this origin from this browser together keep ${budgetOf(budget)}`,
  ];
  const unverified = [...assumptions(task, guarantee), oneOrigin, ...(budget.decider === 'page' ? [ownPage] : []),
    storageOf(budget)];
  const often = guarantee.epochs === 1 ? 'once' : `once in each of ${guarantee.epochs} periods`;
  const exact = guarantee.minimumHonest === 0 && guarantee.localEpsilon === null;
  const sent = exact
    ? 'is sent as it is, among random answers that every relay adds' : 'is randomized on your device before anything is sent';
  const text = [
    `Your answer to "${task.name}" ${sent}, at most ${often}; what is sent is encrypted in layers and mixed with the reports of others by ${plural(guarantee.relays, 'relay')}.`,
    promise,
    devices.text,
    worstCase,
    ...amplificationOf(task, guarantee),
    'Your device has checked all that a device can check. It takes on trust:',
    ...unverified.map(({ text }) => `- ${text}.`),
  ].join('\n');
  return { text, promise, worstCase, devices, checked, unverified, guarantee };
}

function promiseOf(g: Guarantee): string {
  const together = g.epochs === 1
    ? '' : ` All ${g.epochs} periods together: epsilon ${roundUp(g.totalEpsilon)}, delta ${roundUp(g.totalDelta)}.`;
  return `Whatever is learned or published from a report would be nearly as likely had you given any other answer: no outcome more than ${factor(g.epsilon)} times as likely, except with a probability of ${roundUp(g.delta)} (differential privacy with epsilon ${roundUp(g.epsilon)}, delta ${roundUp(g.delta)}).${together}`;
}

/**
 * Computes the promise by group privacy, not by adding up: all reports of the visitor hide among the same other clients
 * (docs/proofs/group.md).
 */
function devicesOf(g: Guarantee, count: number): Devices {
  if (!(Number.isInteger(count) && count >= 1 && count <= 1000)) {
    throw invalidOption('devices', count, 'a whole number from 1 to 1000');
  }
  const { epsilon, delta } = groupPrivacy(g.epsilon, g.delta, count);
  const promised = delta < 1 ? `epsilon ${roundUp(epsilon)}, delta ${roundUp(delta)}` : 'nothing';
  const text = `Somebody who reports from ${plural(count, 'device or browser', 'devices or browsers')} in one period is promised ${promised} for all of that period together.`;
  return { count, epsilon, delta, text };
}

/** Describes the worst case in the same words as the verifier's reports and `doona task check`. */
function worstCaseOf(g: Guarantee): string {
  const left = g.localEpsilon === null ? 'no protection remains' : `epsilon ${roundUp(g.localEpsilon)} remains`;
  const noHonest = g.minimumHonest === 0 ? 'the guarantee still holds' : left;
  const most = g.localEpsilon === null
    ? '' : ` That is what the randomization alone gives: no message is more than ${factor(g.localEpsilon)} times as likely for one answer as for another.`;
  return `If nobody else who reports is honest, ${noHonest}. If all relays work with the verifier, ${left}.${most}`;
}

/**
 * If the promise needs no honest client but clients randomize as well, says that honest participants reduce ε further.
 * The reduced ε takes too long to compute on a page; the verifier's reports give it as `epsilon_honest`.
 */
function amplificationOf(task: Task, g: Guarantee): string[] {
  if (g.minimumHonest > 0 || g.localEpsilon === null) return [];
  return [`In a batch in which ${task.batch.min} of ${g.batch} participants are honest, their randomized answers hide yours besides, and epsilon can be less than ${roundUp(g.epsilon)}: the published reports say how much.`];
}

function assumptions(task: Task, g: Guarantee): Assumption[] {
  const { clients } = task;
  const left = g.localEpsilon === null
    ? 'nothing protects that client then' : `that client then keeps epsilon ${roundUp(g.localEpsilon)}`;
  const relay =
    g.relay === 'first'
      ? 'that the first relay does not work with the verifier'
      : g.relays === 1
        ? 'that the only relay does not work with the verifier'
        : `that at least one of the ${g.relays} relays does not work with the verifier`;
  const participation: Assumption = {
    name: 'participation',
    text: 'that it may be known that you take part: the first relay sees your network address and when you report, but not what',
  };
  if (g.minimumHonest === 0) return [{ name: 'relays', text: `${relay}, and adds the random answers it should` },
    participation];
  const all: Assumption[] = [
    { name: 'honest-clients', text: `that ${g.minimumHonest} of the ${g.batch} participants in each batch are real and honest` },
    { name: 'relays', text: relay },
    participation,
    { name: 'no-flooding', text: `that nobody fills a batch with participants of their own around one client (an n-1 attack): ${left}` },
  ];
  if (g.relay === 'whole') {
    const text = 'that the first relay leaves all messages of one client in one batch: the proof needs it, and no later relay can see it';
    all.push({ name: 'whole-clients', text });
  }
  all.push(
    clients.kind === 'token'
      ? { name: 'issuer', text: 'that the issuer of tokens gives them to real participants only, and works with neither the owner of the question nor the verifier' }
      : { name: 'addresses', text: 'that participants are real: they are counted by network address, which does not stop whoever has many addresses' },
  );
  return all;
}

function budgetOf({ epsilon, delta, days }: Budget): string {
  // A budget with δ = 1 has no limit on δ: only the claim of each task limits it.
  const loss = epsilon === Infinity ? 'no limit on epsilon' : `epsilon ${roundUp(epsilon)}`;
  const most = delta === 1 ? `${loss}, beside a delta without a limit` : `${loss}, delta ${roundUp(delta)}`;
  return days === Infinity ? `${most}, for all time` : `${most}, in every stretch of ${days} days`;
}

/** The ledger is in the storage of one origin. Browsers give frames in pages of other sites a separate storage. */
const oneOrigin: Assumption = {
  name: 'origins',
  text: 'that you report at one address of this site only: what you report at another one, such as www. beside shop., or inside a page of another site, is counted apart, and each count has the whole budget',
};

const ownPage: Assumption = {
  name: 'page',
  text: "that no other script of this page interferes: the page itself decides whether the budget admits a report, as its author gave a store of its own or the browser started no worker",
};

/** Says which reports of a visitor the ledger does not count. */
function storageOf({ days }: Budget): Assumption {
  const window = days === Infinity ? '' : `; after ${days} days there is room again`;
  const text = `that this browser keeps this site's storage: who clears it, or uses another browser or device, is counted anew, and Safari clears it after seven days without a visit${window}`;
  return { name: 'storage', text };
}

/**
 * Rounds a positive number up to three significant digits. It tolerates floating-point error, so 0.3 does not become
 * 0.301.
 */
function roundUp(x: number): string {
  const step = 10 ** (Math.floor(Math.log10(x)) - 2);
  return String(Number((Math.ceil(x / step - 1e-9) * step).toPrecision(3)));
}

/** Returns e^ε, rounded up. Above ε = 700, where a double would overflow, it returns the text "e^…". */
function factor(epsilon: number): string {
  return epsilon > 700 ? `e^${roundUp(epsilon)}` : roundUp(Math.exp(epsilon));
}

function plural(n: number, noun: string, several = `${noun}s`): string {
  return `${n} ${n === 1 ? noun : several}`;
}
