/**
 * The protocol vectorsum (docs/SPEC.md, section 11).
 * @module
 */

import { gammaOf } from './response.ts';
import { toNumber } from './source.ts';
import { checkSlots, Malformed, oneOf, onlyParams, type Task, whole } from './task.ts';
import { bytesOf, decode, encode, fixed, type Protocol, vectorOf } from './values.ts';

export function vectorsum(task: Task): Protocol {
  oneOf('query', task, 'vector');
  onlyParams(task, 'gamma', 'k', 't');
  const gamma = gammaOf(task);
  const d = task.bins;
  const k = whole(task, 'k', 1n, 65536n);
  const t = whole(task, 't', 1n, d < 65535n ? d : 65535n);
  const symbols = k + 1n;
  const size = bytesOf(d * symbols);
  checkSlots(task, 'full', t, 1n, size);
  const first = (b: bigint) => (b * d + t - 1n) / t;

  /** Decodes a message. Returns its coordinate and its symbol. */
  const read = (lane: number, message: Uint8Array) => {
    if (lane < 0 || BigInt(lane) >= t) throw new Malformed('message');
    const v = decode(message, d * symbols, size);
    const [l, y] = [v / symbols, v % symbols];
    if (l < first(BigInt(lane)) || l >= first(BigInt(lane) + 1n)) throw new Malformed('message');
    return { l: Number(l), y: Number(y) };
  };

  return {
    randomize: (source, value) => {
      const u = vectorOf(task, value);
      return Array.from({ length: Number(t) }, (_, lane) => {
        const b = BigInt(lane);
        const l = first(b) + source.below(first(b + 1n) - first(b));
        const y = source.randomizedResponse(source.round(fixed(u[Number(l)]!), k), symbols, gamma);
        return [encode(l * symbols + y, size)];
      });
    },
    check: (lane, message) => void read(lane, message),
    estimate: (batches) => {
      const g = toNumber(gamma);
      const out: number[] = [];
      for (let lane = 0; lane < t; lane++) {
        const messages = batches.flatMap(({ lanes }) => lanes[lane]!.map((m) => read(lane, m)));
        const from = Number(first(BigInt(lane)));
        const s = Number(first(BigInt(lane) + 1n)) - from;
        for (let l = from; l < from + s; l++) {
          const own = messages.filter((m) => m.l === l);
          const z = (own.reduce((sum, m) => sum + m.y / Number(k), 0) - (own.length * g) / 2) / (1 - g);
          out.push(task.lo * messages.length + (task.hi - task.lo) * (messages.length / 2 + s * (z - own.length / 2)));
        }
      }
      return out;
    },
  };
}
