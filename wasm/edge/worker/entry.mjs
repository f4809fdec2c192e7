// The worker's entry. It passes requests below /doona/ to Go, unless they get a file. It passes all others to the site
// unchanged, and then tells Go their properties.
//
// Starting Go takes about 10 ms, so one instance serves many requests. It keeps no state of a request: the getters env
// and ctx return those of the request that runs now. Go's timers never fire, because the runtime would cancel them with
// the request that set them.
import { DurableObject } from 'cloudflare:workers';
import { AsyncLocalStorage } from 'node:async_hooks';
import './wasm_exec.js';
import module from './app.wasm';

// github.com/syumai/workers keeps a few JavaScript functions per request. So the worker replaces an instance after this
// many requests.
const lifetime = 1000;

// The most milliseconds in which a request's body must arrive. A slower body fails, whoever sends it.
const bodyPatience = 10_000;

const current = new AsyncLocalStorage();
let live;

function start() {
  const go = new Go();
  go.importObject.gojs['runtime.scheduleTimeoutEvent'] = (sp) => go.mem.setInt32((sp >>> 0) + 16, 1, true);
  go.importObject.gojs['runtime.clearTimeoutEvent'] = () => {};
  // When Go fails, its message may contain a value, as in "index out of range [4]". So the message is not printed;
  // worker() logs that the module failed.
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

// worker returns a running instance. It starts a new one if the last one failed or served its lifetime.
function worker() {
  if (live?.go.exited) console.error('doona: the module failed; reports that were not yet sent are lost');
  if (!live || live.go.exited || live.served >= lifetime) live = start();
  live.served++;
  return live.binding;
}

// timed returns a request whose body fails after bodyPatience milliseconds. The timer belongs to that request.
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

// isForTask returns whether a request is for a task. The SDK's files may be in the folder /doona/, too: their names
// have a dot, and a task's has none.
function isForTask({ method, url }) {
  const { pathname } = new URL(url);
  return pathname.startsWith('/doona/') && !((method === 'GET' || method === 'HEAD') && pathname.includes('.'));
}

export default {
  fetch(request, env, ctx) {
    return current.run({ env, ctx }, async () => {
      if (isForTask(request)) return worker().handleRequest(timed(request));
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

// Visitors is a Durable Object that counts the reports of each network in one epoch of one task, by keyed hashes. Its
// key is random. The alarm deletes key and counts after the epoch.
export class Visitors extends DurableObject {
  constructor(ctx, env) {
    super(ctx, env);
    this.sql = ctx.storage.sql;
  }

  // claim counts one report and returns true if the network had fewer than most before. At end, in milliseconds since
  // 1970, the counts are deleted.
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
