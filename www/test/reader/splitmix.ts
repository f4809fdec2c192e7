/**
 * The protocol splitmix (docs/SPEC.md, section 11).
 * @module
 */

import { toNumber } from './source.ts';
import { checkSlots, Malformed, oneOf, onlyParams, type Task, whole } from './task.ts';
import { bytesOf, decode, encode, fixed, inLane, numberOf, type Protocol } from './values.ts';

const modulo = (v: bigint, q: bigint) => ((v % q) + q) % q;

export function splitmix(task: Task): Protocol {
  oneOf('query', task, 'count', 'sum', 'mean');
  onlyParams(task, 'm', 'p', 'q', 's');
  oneOf('rule', task, 'components', 'section5.1', 'paper');
  const p = whole(task, 'p', 1n, task.query === 'count' ? 1n : 1n << 31n);
  const s = task.params.get('s')!;
  if (s.num <= 0n || toNumber(s) < 2 ** -39 || toNumber(s) > 100) throw new Malformed('params.s');
  const m = whole(task, 'm', 1n, 65535n);
  const q = whole(task, 'q', 2n, 1n << 56n);
  // Without the 2T of section 11: the check of the claim covers the noise.
  if (q < task.size * p) throw new Malformed('params.q');
  checkSlots(task, 'full', 1n, m, bytesOf(q));
  const sign = { weight: 1n, jumps: { rate: s, max: 0n } };

  const read = (lane: number, message: Uint8Array) => {
    inLane(lane, 0);
    return decode(message, q, bytesOf(q));
  };

  return {
    randomize: (source, value) => {
      let x = source.round(fixed(numberOf(task, value)), p);
      for (const { atom, size } of source.events([sign, sign], task.min)) x += atom === 0 ? size : -size;
      const shares: bigint[] = [];
      let rest = x;
      for (let i = 1n; i < m; i++) {
        const share = source.below(q);
        shares.push(share);
        rest -= share;
      }
      shares.push(modulo(rest, q));
      return [shares.map((share) => encode(share, bytesOf(q)))];
    },
    check: (lane, message) => void read(lane, message),
    estimate: (batches) => {
      let [n, sum] = [0, 0n];
      for (const { users, lanes } of batches) {
        if (BigInt(lanes[0]!.length) !== BigInt(users) * m) throw new Malformed('batch');
        const z = lanes[0]!.reduce((total, message) => total + read(0, message), 0n) % q;
        sum += 2n * z > BigInt(users) * p + q ? z - q : z;
        n += users;
      }
      return [task.lo * n + ((task.hi - task.lo) * Number(sum)) / Number(p)];
    },
  };
}
