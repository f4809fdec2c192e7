/**
 * Tests explain() with the tasks of testdata/v1. www/test/cases.mjs tests it with tasks that a server serves.
 * @module
 */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { fromHex } from './bytes.js';
import { explain as explainWith, localeOf } from './explain.js';
import { languages, sentences } from './explain-texts.js';
import { type Guarantee, groupPrivacy, guaranteeOf } from './guarantee.js';
import { checkExplainOptions } from './options.js';
import { type Task, parseTask } from './task.js';

const budget = { epsilon: 10, delta: 1e-5, days: 365, decider: 'worker' as const };
const explain = (task: Task, guarantee: Guarantee) => explainWith(task, guarantee, budget, { language: 'en' });

const vectors: { canonical: string }[] = JSON.parse(readFileSync('../testdata/v1/task.json', 'utf8'));
const tasks = vectors.map(({ canonical }) => parseTask(fromHex(canonical, canonical.length / 2)!));

test('explain names what counts participants: an issuer of tokens, or addresses, never both', () => {
  const kinds = new Set<string>();
  for (const task of tasks) {
    const guarantee = guaranteeOf(task, 2, 3);
    const names = explain(task, guarantee).unverified.map(({ name }) => name);
    if (guarantee.minimumHonest === 0) {
      assert.deepEqual(names, ['relays', 'participation', 'origins', 'storage'], 'relays add the noise');
      continue;
    }
    assert.equal(names.includes('issuer'), task.clients.kind === 'token');
    assert.equal(names.includes('addresses'), task.clients.kind === 'address');
    kinds.add(task.clients.kind);
  }
  assert.equal(kinds.size, 2);
});

test('a single relay is called the only one', () => {
  const [task] = tasks;
  const alone = { ...task!, relays: task!.relays.slice(0, 1), slots: { ...task!.slots, padding: 'full' } };
  const relays = explain(alone, guaranteeOf(alone, 2, 3)).unverified.find(({ name }) => name === 'relays');
  assert.equal(relays?.text, 'that the only relay does not collude with the verifier');
});

test('which relay must be honest follows from the padding, the slots and the protocol', () => {
  const [task] = tasks;
  for (const [protocol, padding, perLane, relay] of [
    ['realsum', 'full', 1, 'any'], ['vectorsum', 'full', 1, 'any'], ['splitmix', 'full', 8, 'whole'],
      ['rappor', 'full', 5, 'whole'],
    ['correlated', 'full', 300, 'first'], ['vectormean', 'full', 128, 'first'], ['correlated', 'none', 300, 'first'],
  ] as const) {
    const other = { ...task!, protocol,
      slots: { ...task!.slots, padding, lanes: protocol === 'vectorsum' ? 3 : 1, perLane } };
    const guarantee = guaranteeOf(other, 2, 3);
    assert.equal(guarantee.relay, relay, protocol);
    const { unverified } = explain(other, guarantee);
    assert.equal(unverified.some(({ name }) => name === 'whole-clients'), relay === 'whole', protocol);
    const words = relay === 'first'
      ? 'that the first relay does not collude with the verifier' : 'that at least one of the 2 relays does not collude with the verifier';
    assert.equal(unverified.find(({ name }) => name === 'relays')?.text, words, protocol);
  }
});

test('what remains if nobody else is honest, and if all relays collude', () => {
  const [task] = tasks;
  const noisy = { ...task!, claim: { ...task!.claim, assumption: 'none' as const } };
  for (const [of, epsilon0, alone, words] of [
    [task!, 2, 2, 'If nobody else who reports is honest, only a promise with epsilon 2 remains. If all relays collude with the verifier, only a promise with epsilon 2 remains.'],
    [task!, Infinity, null, 'If nobody else who reports is honest, no protection remains. If all relays collude with the verifier, no protection remains.'],
    [noisy, 2, 1, 'If nobody else who reports is honest, the guarantee still holds. If all relays collude with the verifier, only a promise with epsilon 2 remains.'],
    [noisy, Infinity, 1, 'If nobody else who reports is honest, the guarantee still holds. If all relays collude with the verifier, no protection remains.'],
  ] as const) {
    const guarantee = guaranteeOf(of, epsilon0, 3);
    assert.equal(guarantee.epsilonNoHonest, alone === 1 ? guarantee.epsilon : alone);
    const { text, worstCase } = explain(of, guarantee);
    assert.ok(worstCase.startsWith(words), worstCase);
    const besides = of === noisy && epsilon0 === 2;
    assert.equal(text.includes('randomized answers hide yours besides'), besides, text);
  }
});

test('numbers are rounded up, against the task', () => {
  const [task] = tasks;
  for (const [epsilon0, words] of [[1.001, 'epsilon 1.01 remains'], [0.3, 'epsilon 0.3 remains'],
    [12.3456, 'epsilon 12.4 remains'], [9.999, 'epsilon 10 remains']] as const) {
    assert.ok(explain(task!, guaranteeOf(task!, epsilon0, 3)).worstCase.includes(words), words);
  }
});

test('explain names the budget of all reports, and what the ledger cannot see', () => {
  const [task] = tasks;
  const guarantee = guaranteeOf(task!, 2, 3);
  const year = explain(task!, guarantee);
  assert.ok(year.checked.at(-1)!.endsWith('stay within this limit: epsilon 10, delta 0.00001, in every stretch of 365 days'),
    year.checked.at(-1));
  const { name, text } = year.unverified.at(-1)!;
  assert.equal(name, 'storage');
  assert.match(text, /Safari clears it after seven days without a visit; after 365 days the budget has room again$/);
  assert.ok(year.text.includes(text));
  const ever = explainWith(task!, guarantee, { epsilon: 4, delta: 1, days: Infinity, decider: 'worker' },
    { language: 'en' });
  assert.ok(ever.checked.at(-1)!.endsWith('stay within this limit: epsilon 4, beside a delta without a limit, for all time'),
    ever.checked.at(-1));
  assert.match(ever.unverified.at(-1)!.text, /without a visit$/);
});

test('explain says what the most reports spend of the budget, and how a pace spreads them', () => {
  const [task] = tasks;
  const all = { ...guaranteeOf(task!, 2, 3), epochs: 365, reports: 56 };
  const price = { first: { epsilon: 1, delta: 1e-7 }, reports: 56, all: { epsilon: 3.0999, delta: 1e-5 } };
  const words = 'A visitor who answers as often as possible, 56 times in 365 days, spends epsilon 3.1 of 10.';
  assert.ok(explainWith(task!, all, { ...budget, price }, { language: 'en' }).text.includes(words));
  assert.ok(!explain(task!, all).text.includes('spends'), 'without a price');
  for (const endless of [{ epsilon: Infinity }, { days: Infinity }]) {
    assert.ok(!explainWith(task!, all, { ...budget, price, ...endless }, { language: 'en' }).text.includes('spends'));
  }
  const pace = { reports: 4, window: 28 };
  const paced = { ...task!, epochs: { ...task!.epochs, cap: { reports: 56, window: 365 }, pace } };
  assert.ok(explain(paced, all).promise.endsWith(' This browser reports at most 56 times in them. ' +
    'It spreads them: at most 4 in every 28 periods, counted from a random one.'));
});

test('explain says that the ledger is of one origin, and whether the page decides about the budget', () => {
  const [task] = tasks;
  const guarantee = guaranteeOf(task!, 2, 3);
  const names = (decider: 'worker' | 'page') =>
    explainWith(task!, guarantee, { ...budget, decider }).unverified.map(({ name }) => name).slice(-3);
  assert.deepEqual(names('worker').slice(1), ['origins', 'storage']);
  assert.deepEqual(names('page'), ['origins', 'page', 'storage']);
  const { checked, text, unverified } = explain(task!, guarantee);
  assert.match(checked.at(-1)!, /^that all reports at this origin from this browser together stay within this limit: /);
  const origins = unverified.find(({ name }) => name === 'origins')!;
  assert.match(origins.text, /counted apart, and each count has the whole budget$/);
  assert.ok(text.includes(origins.text));
});

test('several devices: the text names the guarantee of their reports together', () => {
  const [task] = tasks;
  const guarantee = { ...guaranteeOf(task!, 2, 3), epsilon: 1, delta: 1e-6 };
  const { devices, text } = explain(task!, guarantee);
  assert.equal(devices.text, 'Somebody who reports from 2 devices or browsers in one period is promised epsilon 2, delta 0.00000372 for all of that period together.');
  assert.ok(text.includes(devices.text));
  assert.equal(devices.count, 2);
  assert.ok(devices.delta > 3.71828182e-6 && devices.delta < 3.71828183e-6, String(devices.delta));
  const five = explainWith(task!, { ...guarantee, epsilon: 2 }, budget, { devices: 5, language: 'en' }).devices;
  assert.match(five.text, /5 devices or browsers .* epsilon 10, delta 0.00345 /);
  assert.match(explainWith(task!, guarantee, budget, { devices: 1, language: 'en' }).devices.text,
    /1 device or browser .* epsilon 1, delta 0.000001 /);
  assert.match(explainWith(task!, guarantee, budget, { devices: 19, language: 'en' }).devices.text,
    /is promised nothing for all/);
  for (const wrong of [0, 1.5, -1, NaN, 1001]) {
    assert.throws(() => checkExplainOptions({ devices: wrong }), { code: 'invalid-option', field: 'devices' });
  }
});

interface GroupVector { epsilon: number; delta: number; k: number; groupEpsilon: string; groupDelta: string }

test('several reports of one person never cost less than by the Go accountant', () => {
  const vectors: GroupVector[] = JSON.parse(readFileSync('../testdata/v1/group.json', 'utf8'));
  for (const { epsilon, delta, k, groupEpsilon, groupDelta } of vectors) {
    const got = groupPrivacy(epsilon, delta, k);
    const what = `${k} of ${epsilon}: ${got.epsilon}, ${got.delta}`;
    for (const [mine, theirs] of [[got.epsilon, Number(groupEpsilon)], [got.delta, Number(groupDelta)]] as const) {
      assert.ok(mine >= theirs * (1 - 1.1e-9) && mine <= theirs * (1 + 1e-11), what);
    }
    assert.ok(got.epsilon >= epsilon * k && got.delta >= Math.min(1, delta * k), what);
  }
  assert.deepEqual(groupPrivacy(800, 1e-6, 2).delta, 1);
  assert.deepEqual(groupPrivacy(800, 0, 2).delta, 0);
});

const placeholders = (sentence: string) => [...new Set(sentence.match(/\{.*?\}/g))].sort();

test('every sentence is there in every language, with the same placeholders', () => {
  for (const [name, all] of Object.entries(sentences)) {
    assert.equal(all.length, languages.length, name);
    for (const sentence of all) {
      assert.ok(sentence.trim().length > 2, name);
      assert.deepEqual(placeholders(sentence), placeholders(all[0]), `${name}: ${sentence}`);
      assert.doesNotMatch(sentence.replaceAll(/\{\w+\}/g, 'x'), /[{}]|  /, name);
    }
    // A sentence that is the same in two languages was not translated.
    if (all[0].replaceAll(/\{\w+\}/g, '').length > 25) assert.equal(new Set(all).size, languages.length, name);
  }
});

/** Tasks and guarantees that need all sentences: noise by clients or relays, tokens or addresses, several relays. */
function situations() {
  const slots = { ...tasks[0]!.slots, padding: 'full', perLane: 8 } as Task['slots'];
  return [...tasks, { ...tasks[0]!, slots, protocol: 'correlated' }, { ...tasks[0]!, slots, protocol: 'splitmix' }]
    .flatMap((task) => [2, Infinity].flatMap((epsilon0) => (['min-honest', 'none'] as const).flatMap((assumption) =>
      [1, 365].map((count) => {
        const other = { ...task, claim: { ...task.claim, assumption }, epochs: { ...task.epochs, count },
          relays: task.relays.slice(0, count === 1 ? 1 : 2) };
        return { task: other, guarantee: guaranteeOf(other, epsilon0, 3) };
      }))));
}

test('in every language, each explanation has the figures of the guarantee and fills every placeholder', () => {
  const price = { first: { epsilon: 1, delta: 1e-7 }, reports: 56, all: { epsilon: 3, delta: 1e-5 } };
  const limits = [{ ...budget, price }, { epsilon: Infinity, delta: 1, days: Infinity, decider: 'page' as const },
    { ...budget, days: 1 }];
  for (const language of languages) {
    const said = new Set<string>();
    const number = (x: number) => new Intl.NumberFormat(language, { maximumSignificantDigits: 3 }).format(x);
    situations().forEach(({ task, guarantee }, i) => {
      const got = explainWith(task, guarantee, limits[i % 3]!, { language, devices: [2, 1000, 1][i % 3]! });
      assert.equal(got.language, language);
      const all = [got.text, ...got.checked].join('\n');
      said.add(all);
      assert.doesNotMatch(all, /[{}]|undefined|NaN/, all);
      for (const part of [got.promise, got.worstCase, got.devices.text, ...got.unverified.map(({ text }) => text)]) {
        assert.ok(got.text.includes(part), part);
      }
      assert.ok(got.promise.includes(number(guarantee.epsilon)), got.promise);
      const factor = Math.exp(guarantee.epsilon);
      if (factor < 1e6) assert.ok(got.promise.includes(number(factor)), got.promise);
      if (guarantee.delta >= 1e-6) assert.ok(got.promise.includes(number(guarantee.delta)), got.promise);
      if (guarantee.epochs > 1) assert.match(got.promise, new RegExp(`365 .*${number(guarantee.totalEpsilon)}`));
      if (guarantee.localEpsilon) assert.ok(got.worstCase.includes(number(guarantee.localEpsilon)), got.worstCase);
      if (guarantee.minimumHonest === 0) return;
      const honest = got.unverified.find(({ name }) => name === 'honest-clients')!.text;
      for (const n of [guarantee.minimumHonest, guarantee.batch]) {
        assert.ok(honest.includes(new Intl.NumberFormat(language).format(n)), honest);
      }
    });
    // Each sentence is said: its longest part between placeholders appears.
    const everything = [...said].join('\n');
    for (const [name, all] of Object.entries(sentences)) {
      const parts = all[languages.indexOf(language)]!.split(/\{\w+\}/).sort((a, b) => b.length - a.length);
      assert.ok(everything.includes(parts[0]!), `${language}: ${name}`);
    }
  }
});

test('numbers are written as the language does, and very small or large ones as powers of ten', () => {
  const [task] = tasks;
  const guarantee = { ...guaranteeOf(task!, 12.3456, 3), delta: 1.2345e-9, batch: 12_000 };
  for (const [language, epsilon, delta, batch] of [['en', '12.4', '1.24·10⁻⁹', '12,000'],
    ['de', '12,4', '1,24·10⁻⁹', '12.000'], ['fr', '12,4', '1,24·10⁻⁹', '12\u202f000'],
    ['es', '12,4', '1,24·10⁻⁹', '12.000']] as const) {
    const { promise, worstCase, text } = explainWith(task!, guarantee, budget, { language });
    assert.ok(worstCase.includes(epsilon), worstCase);
    assert.ok(promise.includes(delta), promise);
    assert.ok(text.includes(batch), text);
  }
  assert.match(explain(task!, { ...guarantee, epsilon: 600 }).promise, /3\.78·10²⁶⁰ times/);
  assert.match(explain(task!, { ...guarantee, epsilon: 701 }).promise, /e\^701 times/);
});

test('numbers are written as in the region of the tag, and a tag that Intl refuses counts as its language', () => {
  const [task] = tasks;
  const guarantee = { ...guaranteeOf(task!, 12.3456, 3), batch: 12_000 };
  for (const [given, tag, epsilon] of [['de', 'de', '12,4'], ['de-CH', 'de-CH', '12.4'], ['es', 'es', '12,4'],
    ['es-MX', 'es-MX', '12.4'], ['es_MX', 'es-MX', '12.4'], ['FR-ca', 'fr-CA', '12,4'], ['de_', 'de', '12,4'],
    ['es_MX.UTF-8', 'es', '12,4'], ['it-CH', 'en', '12.4']] as const) {
    assert.equal(localeOf(given).tag, tag);
    const { language, worstCase, text } = explainWith(task!, guarantee, budget, { language: given });
    assert.equal(language, tag.slice(0, 2));
    assert.ok(worstCase.includes(epsilon), worstCase);
    // CLDR's sign between thousands varies with its version, in Switzerland for one.
    assert.ok(text.includes(` ${new Intl.NumberFormat(tag).format(guarantee.batch)} `), text);
  }
});

test('no sentence says how likely an outcome is but by the factor', () => {
  const [task] = tasks;
  for (const language of languages) {
    const { promise } = explainWith(task!, { ...guaranteeOf(task!, 2, 3), epsilon: 5 }, budget, { language });
    assert.doesNotMatch(promise, /nearly|fast ebenso|presque|casi/, 'at ε = 5 the factor is 149');
    assert.match(promise, /149/);
  }
});

test('a name that looks like a placeholder, or like a pattern of replacement, stays', () => {
  const [task] = tasks;
  const name = "{relays} $& $' {x}";
  assert.ok(explain({ ...task!, name }, guaranteeOf(task!, 2, 3)).text.startsWith(`Your answer to "${name}" is`));
});

test('the language: as asked for, else of the page, else of the browser, else English', () => {
  for (const [tag, language] of [['de', 'de'], ['de-AT', 'de'], ['FR-ca', 'fr'], ['es_MX', 'es'], ['it', 'en'],
    ['deu', 'en'], ['', 'en']] as const) {
    assert.equal(localeOf(tag).language, language);
  }
  for (const wrong of [7, null, {}] as any[]) {
    assert.throws(() => checkExplainOptions({ language: wrong }), { code: 'invalid-option', field: 'language' });
  }
  const { navigator } = globalThis;
  const given = (lang: string | undefined, own: string | undefined) => {
    Object.defineProperty(globalThis, 'navigator', { value: own === undefined ? undefined : { language: own },
      configurable: true });
    if (lang === undefined) Reflect.deleteProperty(globalThis, 'document');
    else Object.assign(globalThis, { document: { documentElement: { lang } } });
    return localeOf().language;
  };
  try {
    assert.deepEqual([given('fr', 'de'), given('it', 'de-CH'), given('', 'es'), given(undefined, 'de'),
      given('it', 'nl'), given(undefined, undefined)], ['fr', 'de', 'es', 'de', 'en', 'en']);
  } finally {
    Object.defineProperty(globalThis, 'navigator', { value: navigator, configurable: true });
    Reflect.deleteProperty(globalThis, 'document');
  }
});
