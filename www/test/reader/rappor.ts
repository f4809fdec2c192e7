/**
 * The protocol rappor (docs/SPEC.md, section 11).
 * @module
 */

import { toNumber } from './source.ts';
import { checkSlots, isPowerOfTwo, Malformed, oneOf, onlyParams, type Task, whole } from './task.ts';
import { bytesOf, decode, encode, fixed, inLane, numberOf, type Protocol } from './values.ts';

export function rappor(task: Task): Protocol {
  oneOf('rule', task, 'others');
  oneOf('query', task, 'count', 'sum', 'mean');
  onlyParams(task, 'f', 'k');
  const k = whole(task, 'k', 1n, task.query === 'count' ? 1n : 4096n);
  const f = task.params.get('f')!;
  const fits = f.num > 0n && 2n * f.num < f.den && f.num < 1n << 53n && f.den <= 1n << 62n && isPowerOfTwo(f.den);
  if (!fits) throw new Malformed('params.f');
  const most = task.perLane;
  if (most > k) throw new Malformed('slots.perLane');
  checkSlots(task, 'full', 1n, most, bytesOf(k));

  const read = (lane: number, message: Uint8Array) => {
    inLane(lane, 0);
    return decode(message, k, bytesOf(k));
  };

  return {
    randomize: (source, value) => {
      const u = numberOf(task, value);
      let c: bigint;
      do c = source.binomial(k, f);
      while (most < k && c > most - 1n);
      const bits = new Array<boolean>(Number(k)).fill(false);
      for (; c > 0n; c--) {
        let i: number;
        do i = Number(source.below(k));
        while (bits[i]);
        bits[i] = true;
      }
      const x = Number(source.round(fixed(u), k));
      if (x > 0) bits[x - 1] = !bits[x - 1];
      return [bits.flatMap((bit, i) => (bit ? [encode(BigInt(i), bytesOf(k))] : []))];
    },
    check: (lane, message) => void read(lane, message),
    estimate: (batches) => {
      const n = batches.reduce((sum, b) => sum + b.users, 0);
      const sum = batches.flatMap((b) => b.lanes[0]!).reduce((s, m) => s + read(0, m) + 1n, 0n);
      const flip = toNumber(f);
      const levels = (Number(sum) - (n * flip * Number(k * (k + 1n))) / 2) / (1 - 2 * flip);
      return [task.lo * n + ((task.hi - task.lo) / Number(k)) * levels];
    },
  };
}
