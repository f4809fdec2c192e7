/**
 * Explains a task's guarantee in words, for a consent notice and its author: the promise, what remains of it in the
 * worst case, and what no device can verify (docs/threat-model.md). It is a script of its own, which pages load at the
 * first explanation.
 * @module
 */

import type { Budget } from './budget.js';
import { type Language, type SentenceName, languages, sentences } from './explain-texts.js';
import { type Guarantee, groupPrivacy } from './guarantee.js';
import type { Price } from './store.js';
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
  /** The language of all texts, for the attribute `lang`. */
  readonly language: Language;
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
  /**
   * The language of the texts: a tag such as "de" or "de-AT". There are texts in English, German, French and Spanish;
   * for other languages they are in English. Default: the first of the page's language (`<html lang>`) and the
   * browser's in which there are texts. Numbers are written as in the region of the tag, such as "de-CH".
   */
  readonly language?: string;
}

export type { Language };

/**
 * Where the budget decision runs: in the engine's worker, or on the page if it passes its own store or no worker runs.
 */
export type Decider = 'worker' | 'page';

/** The budget of a page, with what the reports of a task cost in one of its windows. */
type Spending = Budget & { readonly decider: Decider; readonly price?: Price };

export function explain(task: Task, guarantee: Guarantee, budget: Spending,
  options: ExplainOptions = {}): Explanation {
  const speech = new Speech(localeOf(options.language));
  const { say } = speech;
  const promise = promiseOf(task, guarantee, speech);
  const devices = devicesOf(guarantee, options.devices ?? 2, speech);
  const worstCase = worstCaseOf(guarantee, speech);
  const checked = [
    say('checkedQuestion'),
    say('checkedKeys'),
    say('checkedPromise'),
    say('checkedBudget', { budget: budgetOf(budget, speech) }),
  ];
  // The ledger is in the storage of one origin. Browsers give frames in pages of other sites a separate storage.
  const unverified: readonly Assumption[] = [...assumptions(task, guarantee, speech),
    { name: 'origins', text: say('origins') },
    ...(budget.decider === 'page' ? [{ name: 'page', text: say('page') } as const] : []),
    // Says which reports of a visitor the ledger does not count.
    { name: 'storage', text: say('storage') + (budget.days === Infinity ? ''
      : say('roomAgain', { days: speech.days(budget.days) })) }];
  const often = guarantee.epochs === 1 ? say('once')
    : say('oncePerPeriod', { epochs: speech.count(guarantee.epochs) });
  const exact = guarantee.minimumHonest === 0 && guarantee.localEpsilon === null;
  const relays = speech.several(guarantee.relays, 'relay', 'relays');
  const text = [
    say('intro', { name: task.name, sent: say(exact ? 'exact' : 'randomized'), often, relays }),
    promise,
    ...spendsOf(budget, speech),
    devices.text,
    worstCase,
    ...amplificationOf(task, guarantee, speech),
    say('trust'),
    ...unverified.map(({ text }) => `- ${text}.`),
  ].join('\n');
  return { language: speech.language, text, promise, worstCase, devices, checked, unverified, guarantee };
}

/** The language of the sentences, and the tag with which Intl writes numbers: "de" and "de-CH". */
export interface Locale {
  readonly language: Language;
  readonly tag: string;
}

/** Returns the locale of an explanation. */
export function localeOf(wanted?: string): Locale {
  const { document, navigator } = globalThis as Partial<typeof globalThis>;
  for (const tag of wanted === undefined ? [document?.documentElement?.lang, navigator?.language] : [wanted]) {
    const found = languages.find((one) => tag?.slice(0, 2).toLowerCase() === one && !/^[a-z]/i.test(tag.slice(2)));
    if (found) return { language: found, tag: validTag(tag!) ?? found };
  }
  return { language: 'en', tag: 'en' };
}

/** Returns a tag in canonical form, or undefined if Intl would throw on it: a page's author may have misspelt it. */
function validTag(tag: string): string | undefined {
  try {
    return Intl.getCanonicalLocales(tag.replaceAll('_', '-'))[0];
  } catch {
    return undefined;
  }
}

/** Says sentences in one language, with numbers as its region writes them. */
class Speech {
  readonly language: Language;
  readonly #tag: string;
  readonly #index: number;

  constructor({ language, tag }: Locale) {
    this.language = language;
    this.#tag = tag;
    this.#index = languages.indexOf(language);
  }

  /** Returns a sentence with its placeholders filled. */
  readonly say = (name: SentenceName, values: Readonly<Record<string, string>> = {}): string =>
    // One pass: a task's name may look like a placeholder.
    sentences[name][this.#index]!.replace(/\{(\w+)\}/g, (_, key: string) => values[key]!);

  /** Returns a whole number. */
  count(n: number): string {
    return new Intl.NumberFormat(this.#tag).format(n);
  }

  /** Returns a number of at most `digits` significant digits, as a power of ten if it is very small or large. */
  number(x: number, digits = 3): string {
    const format = new Intl.NumberFormat(this.#tag, { maximumSignificantDigits: digits });
    if (x === 0 || (x >= 1e-6 && x < 1e6)) return format.format(x);
    const [mantissa, power = ''] = x.toExponential(digits - 1).split('e');
    const times = format.format(Number(mantissa)); // A decimal fraction, which is already rounded.
    return `${times}·10${[...power].map((digit) => superscripts[digit] ?? '').join('')}`;
  }

  /**
   * Returns a positive number, rounded up to three significant digits. It tolerates floating-point error, so 0.3 does
   * not become 0.301.
   */
  roundUp(x: number): string {
    const step = 10 ** (Math.floor(Math.log10(x)) - 2);
    return this.number(Number((Math.ceil(x / step - 1e-9) * step).toPrecision(3)));
  }

  /** Returns e^ε, rounded up. Above ε = 700, where a double would overflow, it returns the text "e^…". */
  factor(epsilon: number): string {
    return epsilon > 700 ? `e^${this.roundUp(epsilon)}` : this.roundUp(Math.exp(epsilon));
  }

  figures(epsilon: number, delta: number): string {
    return this.say('figures', { epsilon: this.roundUp(epsilon), delta: this.roundUp(delta) });
  }

  several(n: number, one: SentenceName, other: SentenceName, text = this.count(n)): string {
    return this.say(new Intl.PluralRules(this.language).select(n) === 'one' ? one : other, { n: text });
  }

  days(n: number): string {
    return this.several(n, 'day', 'days', this.number(n, 6));
  }
}

const superscripts: Readonly<Record<string, string>> = { '-': '⁻', 0: '⁰', 1: '¹', 2: '²', 3: '³', 4: '⁴', 5: '⁵',
  6: '⁶', 7: '⁷', 8: '⁸', 9: '⁹' };

function promiseOf({ epochs: { pace, events } }: Task, g: Guarantee, speech: Speech): string {
  const [epsilon, delta] = [speech.roundUp(g.epsilon), speech.roundUp(g.delta)];
  const together = g.epochs === 1 ? '' : speech.say('together', { epochs: speech.count(g.epochs),
    epsilon: speech.roundUp(g.totalEpsilon), delta: speech.roundUp(g.totalDelta) });
  const capped = g.reports === g.epochs ? '' : speech.say('capped', { reports: speech.count(g.reports) });
  const paced = pace && g.epochs > 1
    ? speech.say('paced', { reports: speech.count(pace.reports), window: speech.count(pace.window) }) : '';
  const rare = events
    ? speech.say('rare', { most: speech.count(events.most), window: speech.count(events.window) }) : '';
  return speech.say('promise', { factor: speech.factor(g.epsilon), epsilon, delta }) + together + capped + paced + rare;
}

/** Says what the most reports of a visitor in one window of the budget cost, and of how much. */
function spendsOf({ epsilon, days, price }: Spending, speech: Speech): string[] {
  if (!price || epsilon === Infinity || days === Infinity || price.reports === 1) return [];
  return [speech.say('spends', { reports: speech.count(price.reports), time: speech.days(days),
    spent: speech.roundUp(price.all.epsilon), limit: speech.roundUp(epsilon) })];
}

/**
 * Computes the promise by group privacy, not by adding up: all reports of the visitor hide among the same other clients
 * (docs/proofs/group.md).
 */
function devicesOf(g: Guarantee, count: number, speech: Speech): Devices {
  const { epsilon, delta } = groupPrivacy(g.epsilon, g.delta, count);
  const promised = delta < 1 ? speech.figures(epsilon, delta) : speech.say('nothing');
  const text = speech.say('several', { devices: speech.several(count, 'device', 'devices'), promised });
  return { count, epsilon, delta, text };
}

/** Describes the same worst case as the verifier's reports and `doona task check`, in words for a visitor. */
function worstCaseOf(g: Guarantee, speech: Speech): string {
  const { say } = speech;
  const left = g.localEpsilon === null ? say('noneLeft') : say('epsilonLeft', { epsilon: speech.roundUp(g.localEpsilon) });
  const most = g.localEpsilon === null ? '' : say('local', { factor: speech.factor(g.localEpsilon) });
  return say('worstCase', { alone: g.minimumHonest === 0 ? say('holds') : left, left }) + most;
}

/**
 * If the promise needs no honest client but clients randomize as well, says that honest participants reduce ε further.
 * The reduced ε takes too long to compute on a page; the verifier's reports give it as `epsilon_honest`.
 */
function amplificationOf(task: Task, g: Guarantee, speech: Speech): string[] {
  if (g.minimumHonest > 0 || g.localEpsilon === null) return [];
  return [speech.say('amplified', { least: speech.count(task.batch.min), batch: speech.count(g.batch),
    epsilon: speech.roundUp(g.epsilon) })];
}

function assumptions(task: Task, g: Guarantee, speech: Speech): Assumption[] {
  const { say } = speech;
  const relay = g.relay === 'first' ? say('firstRelay') : g.relays === 1 ? say('onlyRelay')
    : say('anyRelay', { relays: speech.count(g.relays) });
  const participation: Assumption = { name: 'participation', text: say('participation') };
  if (g.minimumHonest === 0) return [{ name: 'relays', text: say('addsNoise', { relay }) }, participation];
  const left = g.localEpsilon === null
    ? say('clientLosesAll') : say('clientKeeps', { epsilon: speech.roundUp(g.localEpsilon) });
  const all: Assumption[] = [
    { name: 'honest-clients', text: say('honestClients', { least: speech.count(g.minimumHonest),
      batch: speech.count(g.batch) }) },
    { name: 'relays', text: relay },
    participation,
    { name: 'no-flooding', text: say('noFlooding', { left }) },
  ];
  if (g.relay === 'whole') all.push({ name: 'whole-clients', text: say('wholeClients') });
  const counted = task.clients.kind === 'token' ? 'issuer' : 'addresses';
  all.push({ name: counted, text: say(counted) });
  return all;
}

function budgetOf({ epsilon, delta, days }: Budget, speech: Speech): string {
  const { say } = speech;
  const loss = epsilon === Infinity ? say('noEpsilonLimit') : say('epsilonLimit', { epsilon: speech.roundUp(epsilon) });
  // A budget with δ = 1 has no limit on δ: only the claim of each task limits it.
  const most = delta === 1 ? say('noDeltaLimit', { loss }) : say('deltaLimit', { loss, delta: speech.roundUp(delta) });
  return days === Infinity ? say('always', { most }) : say('everyWindow', { most, days: speech.days(days) });
}
