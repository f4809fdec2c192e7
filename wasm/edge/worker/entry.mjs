// The worker's entry. A request below /doona/ is Go's; every other passes to the origin unchanged,
// and what was seen of it goes to Go afterwards.
//
// Starting Go costs about 10 ms, so one instance serves many requests. That is sound because
// nothing in it outlives its request: context is looked up by the request that is running, and
// Go's timers, which the runtime would cancel with the request that set them, never fire.
import { DurableObject } from 'cloudflare:workers';
import { AsyncLocalStorage } from 'node:async_hooks';
import './wasm_exec.js';
import module from './app.wasm';

// syumai/workers keeps a few JavaScript functions for every request it serves; a new instance
// after this many bounds them.
const lifetime = 1000;

// How long a body may take to arrive, in milliseconds. One that takes longer fails, whoever sends it.
const bodyPatience = 10_000;

const current = new AsyncLocalStorage();
let live;

function start() {
  const go = new Go();
  go.importObject.gojs['runtime.scheduleTimeoutEvent'] = (sp) => go.mem.setInt32((sp >>> 0) + 16, 1, true);
  go.importObject.gojs['runtime.clearTimeoutEvent'] = () => {};
  // What Go prints when it fails may hold a value, "index out of range [4]"; worker() says that it did.
  go.importObject.gojs['runtime.wasmWrite'] = () => {};
  const binding = {};
  const context = {
    binding,
    get env() { return current.getStore().env; },
    get ctx() { return current.getStore().ctx; },
  };
  const instance = new WebAssembly.Instance(module, { ...go.importObject, workers: { ready() {} } });
  go.run(instance, context);
  return { go, binding, served: 0 };
}

// worker returns a running instance: a new one where there is none, it failed, or it served enough.
function worker() {
  if (live?.go.exited) console.error('doona: the module failed; reports that had not left are lost');
  if (!live || live.go.exited || live.served >= lifetime) live = start();
  live.served++;
  return live.binding;
}

// timed bounds the time that a request's body takes, by a timer of the request itself.
function timed(request) {
  const body = request.body?.pipeThrough(new IdentityTransformStream(), { signal: AbortSignal.timeout(bodyPatience) });
  return body ? new Request(request, { body }) : request;
}

function observe(request, response, began) {
  try {
    worker().observe(
      request.cf?.country ?? request.headers.get('CF-IPCountry') ?? '',
      response?.headers.get('CF-Cache-Status') ?? '',
      Date.now() - began,
      response?.status ?? 0,
      request.headers.get('CF-Connecting-IP') ?? '',
    );
  } catch {
    console.error('doona: the module failed; the request was answered without a report');
  }
}

export default {
  fetch(request, env, ctx) {
    return current.run({ env, ctx }, async () => {
      if (new URL(request.url).pathname.startsWith('/doona/')) return worker().handleRequest(timed(request));
      const began = Date.now();
      let response;
      try {
        response = await fetch(request);
        return response;
      } finally {
        observe(request, response, began);
      }
    });
  },
};

// Visitors counts, for one epoch of one task, the reports of each network: by keyed hashes, under a key of this epoch
// alone. All of it is erased when the epoch is over.
export class Visitors extends DurableObject {
  constructor(ctx, env) {
    super(ctx, env);
    this.sql = ctx.storage.sql;
  }

  // claim counts a report, and says whether the network had fewer than most. end is in milliseconds since 1970.
  async claim(network, most, end) {
    this.sql.exec('create table if not exists network (hash blob primary key, reports integer not null) without rowid');
    this.sql.exec('create table if not exists secret (key blob)');
    if (this.sql.exec('select key from secret').toArray().length === 0) {
      this.sql.exec('insert into secret values (?)', crypto.getRandomValues(new Uint8Array(32)));
      await this.ctx.storage.setAlarm(end);
    }
    const secret = this.sql.exec('select key from secret').one().key;
    const key = await crypto.subtle.importKey('raw', secret, { name: 'HMAC', hash: 'SHA-256' }, false, ['sign']);
    const hash = await crypto.subtle.sign('HMAC', key, new TextEncoder().encode(network));
    return this.sql.exec('insert into network values (?, 1) on conflict do update set reports = reports + 1 ' +
      'where reports < ? returning 1', hash, most).toArray().length === 1;
  }

  alarm() {
    return this.ctx.storage.deleteAll();
  }
}
