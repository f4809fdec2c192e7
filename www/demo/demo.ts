/**
 * The demo page: a person adds one report per epoch to a real batch, which the demo fills with
 * simulated clients and says so.
 * @module
 */

import { type Doona, DoonaError, connect } from '../sdk/index.js';
import { byId } from './dom.js';
import { showHistory } from './history.js';
import { type Progress, showLife } from './life.js';
import { picker } from './picker.js';
import { showPromise } from './promise.js';
import { type State, fetchState, fill } from './state.js';
import { number, secondsUntil } from './words.js';

const pollEvery = 1000;

/**
 * The demo's task has hundreds of short epochs with ε each, so that a visitor need not wait a
 * day for the next. A real page sets a handful; see the README.
 */
const demoEpsilon = 1e5;

/** What became of this person's last report. */
interface Own {
  epoch: number;
  progress: Progress;
  bytes: number;
}

class Page {
  readonly #doona: Doona;
  readonly #value: () => number;
  #state: State;
  #own: Own = { epoch: -1, progress: 'none', bytes: 0 };

  constructor(doona: Doona, state: State) {
    this.#doona = doona;
    this.#state = state;
    this.#value = picker(state, doona.task.input.labels);
    showPromise(doona.guarantee);
    byId('form').addEventListener('submit', (event) => {
      event.preventDefault();
      void this.#report();
    });
    say('Ready. This device has checked the task, its owner and what it promises.');
    this.#show();
    setInterval(() => void this.#poll(), pollEvery);
  }

  async #poll(): Promise<void> {
    try {
      this.#state = await fetchState();
    } catch {
      return; // The demo is busy or gone; the next poll will tell.
    }
    if (this.#own.progress !== 'none' && this.#state.history.some((row) => row.epoch === this.#own.epoch)) {
      if (this.#own.progress !== 'released') say('Released: your report is in the estimate below, and nobody knows which it is.');
      this.#own.progress = 'released';
    }
    this.#show();
  }

  #show(): void {
    const { epoch } = this.#state;
    const reported = this.#own.epoch === epoch.number;
    const left = secondsUntil(epoch.ends_at);
    byId<HTMLButtonElement>('send').disabled = reported;
    byId('epoch').textContent = reported
      ? `You have reported in epoch ${epoch.number}: one report per person and epoch. The next epoch starts in ${left} s.`
      : `Epoch ${epoch.number}, one report per person; the next epoch starts in ${left} s.`;
    showLife(this.#state, this.#own.progress, this.#own.bytes);
    showHistory(this.#state, this.#doona.task.input.labels);
  }

  async #report(): Promise<void> {
    try {
      await this.#reportAndFill();
    } catch (error) {
      this.#own.progress = 'none';
      say((error as Error).message, true);
    }
    this.#show();
  }

  async #reportAndFill(): Promise<void> {
    this.#own = { epoch: this.#doona.epoch, progress: 'sending', bytes: 0 };
    say('Randomizing and sealing…');
    this.#show();
    const receipt = await this.#doona.report(this.#value());
    this.#own = { epoch: receipt.epoch, progress: 'sent', bytes: receipt.bytes };
    if (receipt.repeated) {
      say(`You have already reported in epoch ${receipt.epoch}; what you sent first stands.`);
      return;
    }
    this.#own.progress = 'filling';
    say(`Sent: ${number(receipt.bytes)} sealed bytes. Alone it would never be opened, so the demo now adds ${number(this.#state.batch - 1)} simulated clients.`);
    this.#show();
    await fill(receipt.epoch);
    if (this.#own.progress === 'filling') say('The batch is full. The relays are shuffling it…');
  }
}

function say(text: string, bad = false): void {
  const status = byId('status');
  status.textContent = text;
  status.classList.toggle('bad', bad);
}

async function start(): Promise<void> {
  try {
    const state = await fetchState();
    byId('title').textContent = state.title;
    byId('simulated').textContent =
      `The crowd is simulated: for each report of yours the demo plays ${number(state.batch - 1)} other clients, over real HTTP and with real encryption, so it knows the truth to compare with. A deployment knows only the estimate.`;
    const doona = await connect({
      task: state.task_url,
      owner: state.owner,
      maxEpsilon: demoEpsilon,
      maxTotalEpsilon: demoEpsilon,
      spread: 300,
    });
    new Page(doona, state);
  } catch (error) {
    say(error instanceof DoonaError ? `${error.code}: ${error.message}` : String(error), true);
  }
}

void start();
