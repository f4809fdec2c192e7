/**
 * Tests the vectors of tasks and of the origins that tasks list (docs/SPEC.md, section 4).
 * @module
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { hex, names, read } from './files.ts';
import { Malformed, isOrigin, mayReport, parseTask } from './task.ts';

test('task.json: the origins of each task', () => {
  for (const { canonical, document } of read('task')) {
    assert.deepEqual(parseTask(hex(canonical)).origins, document.clients.origins ?? []);
  }
});

for (const name of names('bad_task_origin')) {
  const { task, description } = read(name);
  test(`${name}.json: ${description}`, () => {
    assert.throws(() => parseTask(hex(task)), (error) => error instanceof Malformed && error.field === 'clients.origins');
  });
}

test('origin.json: a task may list origins only in the form that browsers write', () => {
  const { valid, invalid, listed, answers } = read('origin');
  for (const origin of valid) assert.ok(isOrigin(origin), origin);
  for (const { origin, description } of invalid) assert.ok(!isOrigin(origin), `${origin}: ${description}`);
  for (const { origin, allowed } of answers) assert.equal(mayReport(listed, origin), allowed, origin);
});
