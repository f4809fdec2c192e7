/**
 * Tests the vectors of every protocol: the vector's random bytes must give its messages and slots, the messages must
 * give its estimate, and every invalid vector must be refused for its reason.
 * @module
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { hex, names, read, toHex } from './files.ts';
import { open, slotsOf } from './protocols.ts';
import { Source } from './source.ts';
import { Malformed, parseTask } from './task.ts';
import type { Batch, Lanes } from './values.ts';

const protocols = ['histogram', 'realsum', 'splitmix', 'correlated', 'rappor', 'vectorsum', 'vectorgrid', 'vectormean',
  'augmented', 'strings'];

const written = (lanes: Lanes) => lanes.map((lane) => lane.map(toHex));

const batchOf = ({ users, lanes, draws, dummies }: any): Batch => ({
  users,
  draws,
  dummies,
  lanes: lanes.map((lane: string[]) => lane.map(hex)),
});

/** Fails unless two estimates are equal up to rounding: the order of additions may differ. */
function close(got: number[], want: number[]): void {
  assert.equal(got.length, want.length);
  const most = Math.max(1, ...want.map(Math.abs));
  got.forEach((x, i) => assert.ok(Math.abs(x - want[i]!) <= 1e-12 * most, `${x} and not ${want[i]}`));
}

test('every protocol with vectors is tested', () => {
  const withReports = names('').filter((name) => read(name)[0]?.reports);
  assert.deepEqual(withReports.sort(), [...protocols].sort());
});

/** Converts a part of a task from JSON to the types that {@link parseTask} returns. */
function typed(part: any): any {
  if (typeof part === 'number') return BigInt(part);
  if (Array.isArray(part)) return part.map(typed);
  if (typeof part !== 'object' || part === null) return part;
  return Object.fromEntries(Object.entries(part).map(([key, value]) => [key, typed(value)]));
}

test('task.json: claim, stream, limits and noise', () => {
  for (const { canonical, document } of read('task')) {
    const { total, assumption, stream, noise, limits } = parseTask(hex(canonical));
    assert.deepEqual(total, document.claim.total);
    assert.equal(assumption, document.claim.assumption ?? 'min-honest');
    assert.deepEqual(stream && { ...stream, before: toHex(stream.before) },
      document.stream && typed({ before: '', ...document.stream }));
    const { cap, pace, events } = document;
    assert.deepEqual(limits, { ...(cap && { cap }), ...(pace && { pace }), ...(events && { events: typed(events) }) });
    const cells = { which: [], tilt: undefined, total: undefined };
    assert.deepEqual(noise, document.noise &&
      typed({ ...(document.noise.kind === 'cells' && cells), ...document.noise }));
  }
});

for (const name of protocols) {
  for (const v of read(name)) {
    test(`${name}.json: ${v.name}`, () => {
      const task = parseTask(hex(v.task));
      assert.equal(task.protocol, name);
      const protocol = open(task);
      const source = new Source(hex(v.bytes));
      for (const report of v.reports) {
        const messages = protocol.randomize(source, report.value);
        assert.deepEqual(written(messages), report.messages, `of ${report.value}`);
        assert.equal(source.used, report.messagesEnd);
        assert.deepEqual(written(slotsOf(task, source, messages)), report.slots);
        assert.equal(source.used, report.slotsEnd);
      }
      const batches: Batch[] = [];
      for (const batch of v.batches) {
        batches.push(batchOf(batch));
        close(protocol.estimate(batches), batch.total);
      }
      assert.ok(v.batches.length > 0 && v.reports.length > 1);
    });
  }

  const bad = names(`bad_${name}_`);
  test(`${name}: has invalid vectors`, () => assert.ok(bad.length >= 3));
  for (const file of bad) {
    const fault = read(file);
    test(`${file}: ${fault.description}`, () => {
      const field = fault.expect.replace(/^field:/, '');
      const refused = (error: unknown) => error instanceof Malformed && error.field === field;
      const task = parseTask(hex(fault.task));
      if (fault.kind === 'mechanism') return assert.throws(() => open(task), refused);
      const protocol = open(task);
      const uses: Record<string, () => void> = {
        value: () => void protocol.randomize(new Source(new Uint8Array(4096)), fault.value),
        message: () => protocol.check(fault.lane, hex(fault.message)),
        messages: () => void protocol.estimate([batchOf(fault)]),
      };
      assert.throws(uses[fault.kind]!, refused);
    });
  }
}
