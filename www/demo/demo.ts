/**
 * The demo page. A person adds one report per epoch to a real batch. The demo fills the batch with simulated clients,
 * and the page says so.
 * @module
 */

import { type Doona, DoonaError, type Receipt, connect } from '../sdk/index.js';
import { attackSwitch } from './attack.js';
import { byId, fitDetails } from './dom.js';
import { describeError } from './errors.js';
import { showFilling, showHistory } from './history.js';
import { type Picker, picker } from './picker.js';
import { type Practice, draws, startPractice } from './practice.js';
import { showPromise } from './promise.js';
import { type OwnReport, showStages } from './stages.js';
import { type State, fetchState, fill } from './state.js';
import { themeButton } from './theme.js';
import { number, secondsUntil } from './format.js';

const task = 'live';

/** The time that sending a report takes, without filling its batch, in seconds. */
const sendSeconds = 2;

/** The poll intervals in milliseconds: while the person's batch fills, and at other times. */
const [pollFilling, pollIdle] = [150, 1000];

/**
 * The limit on ε. It is large because the demo's task has hundreds of short epochs, each with its own ε, so that a
 * visitor need not wait a day for the next epoch. A real page sets about 10; see the README.
 */
const demoEpsilon = 1e5;

class Page {
  readonly #doona: Doona;
  readonly #picker: Picker;
  #practice: Practice | null = null;
  #state: State;
  #own: OwnReport = { epoch: -1, progress: 'none', before: 0, bytes: 0, text: '' };
  /**
   * How many reports of the epoch are released up to and including this person's batch; Infinity until that batch is
   * full.
   */
  #releasedAt = Infinity;
  /** Whether a report is in progress. */
  #busy = false;
  #timer = 0;

  constructor(doona: Doona, state: State) {
    this.#doona = doona;
    this.#state = state;
    this.#picker = picker(state, () => this.#pickerChanged());
    showPromise(doona);
    fitDetails();
    byId('form').addEventListener('submit', (event) => {
      event.preventDefault();
      void this.#report();
    });
    setStatus('Ready. This device has checked the task, its owner and what it promises.');
    addEventListener('resize', () => this.#show()); // Redraws the chart at its new width.
    this.#show();
    void this.#startPractice();
    void this.#poll();
  }

  /** Starts practice messages (practice.ts). Reporting works without them. */
  async #startPractice(): Promise<void> {
    this.#practice = await startPractice(this.#state).catch(() => null);
    if (this.#practice) {
      byId('practice-note').textContent = `${draws} practice messages for this value`;
      byId('practice-text').textContent = `The bars: each message is one of ${this.#practice.symbols}, by the module that will draw yours. None is sent. Any message can come from any value.`;
      byId('practice').hidden = false;
    }
    this.#pickerChanged();
  }

  #pickerChanged(): void {
    const value = this.#picker.value();
    this.#picker.practice(typeof value === 'string' ? null : this.#practice?.draw(value) ?? null);
    this.#show();
  }

  async #poll(): Promise<void> {
    try {
      this.#state = await fetchState(task);
      if (this.#own.progress === 'filling' && this.#released()) {
        setStatus('Released: your report is in the estimate, and nobody knows which it is.');
        this.#own = { ...this.#own, progress: 'released' };
      }
      this.#show();
    } catch {
      // The demo is busy or stopped: poll again.
    }
    this.#pollIn(this.#own.progress === 'filling' ? pollFilling : pollIdle);
  }

  #pollIn(milliseconds: number): void {
    clearTimeout(this.#timer);
    this.#timer = window.setTimeout(() => void this.#poll(), milliseconds);
  }

  #show(): void {
    const { epoch } = this.#state;
    const reported = this.#own.epoch === epoch.number;
    const left = secondsUntil(epoch.ends_at);
    byId<HTMLButtonElement>('send').disabled = reported || this.#busy;
    byId('epoch').textContent = reported
      ? `You have reported in epoch ${epoch.number}. The next epoch starts in ${left} s.`
      : `Epoch ${epoch.number}, one report per person; the next epoch starts in ${left} s.`;
    showFilling(this.#state, this.#own);
    showStages(this.#state, this.#own.progress === 'none' ? { ...this.#own, text: this.#picker.text() } : this.#own);
    void showHistory(task, this.#state).catch(() => undefined); // The next poll retries.
  }

  async #report(): Promise<void> {
    this.#busy = true;
    setStatus('One moment…');
    this.#show();
    try {
      const value = this.#picker.value();
      await this.#waitForTime();
      while (!(await this.#reportAndFill(value))) {
        setStatus('The epoch ended before its batch was full: your report goes into the next one, randomized anew.');
        await this.#nextEpoch();
      }
    } catch (error) {
      const unused = error instanceof DoonaError && error.code === 'invalid-value';
      this.#own = { ...this.#own, progress: 'none', ...(unused && { epoch: -1 }) };
      setStatus(describeError(error), true);
    } finally {
      this.#busy = false;
    }
    this.#show();
  }

  /** Waits for the next epoch if this one ends before a batch could be filled. */
  async #waitForTime(): Promise<void> {
    this.#state = await fetchState(task);
    const { length } = this.#doona.task.epochs;
    const needed = Math.min(2 * this.#state.epoch.fill_seconds + sendSeconds, length / 2);
    if (secondsUntil(this.#state.epoch.ends_at) >= needed) return;
    setStatus('This epoch ends too soon to fill a batch: your report goes into the next one.');
    await this.#nextEpoch();
  }

  async #nextEpoch(): Promise<void> {
    this.#own = { ...this.#own, progress: 'none' };
    this.#show();
    const { number: last } = this.#state.epoch;
    while (this.#state.epoch.number === last) {
      await new Promise((resolve) => setTimeout(resolve, pollIdle / 2));
      this.#state = await fetchState(task);
    }
  }

  /**
   * Whether the estimate includes this person's report. Other batches of the epoch may be released earlier, without it.
   */
  #released(): boolean {
    return this.#state.history.some((row) => row.epoch === this.#own.epoch && row.users >= this.#releasedAt);
  }

  /** Reports and asks the demo to fill the batch. Returns false if the epoch ends before the batch is full. */
  async #reportAndFill(value: number | readonly number[] | string): Promise<boolean> {
    const { number: now, simulated } = this.#state.epoch;
    const { epoch } = this.#doona;
    this.#releasedAt = Infinity;
    this.#own = { epoch, progress: 'sending', before: now === epoch ? simulated : 0, bytes: 0, text: this.#picker.text() };
    setStatus(isExact(this.#state) ? 'Sealing…' : 'Randomizing and sealing…');
    this.#show();
    let receipt: Receipt;
    try {
      receipt = await this.#doona.report(value);
    } catch (error) {
      if (error instanceof DoonaError && error.code === 'epoch-closed') return false;
      throw error;
    }
    this.#own = { ...this.#own, epoch: receipt.epoch, progress: 'sent', bytes: receipt.bytes };
    if (receipt.repeated) {
      setStatus(`You have already reported in epoch ${receipt.epoch}; what you sent first stands.`);
      return true;
    }
    this.#own = { ...this.#own, progress: 'filling' };
    const alone = this.#state.assumption === 'none' ? 'would wait for the end of the epoch' : 'would never be opened';
    setStatus(`Sent: ${number(receipt.bytes)} sealed bytes. Alone it ${alone}, so the demo now adds ${number(this.#state.batch - 1)} simulated clients.`);
    this.#show();
    this.#pollIn(pollFilling);
    const reports = await fill(task, receipt.epoch, true);
    if (reports === null) return false;
    this.#releasedAt = reports;
    setStatus(reports % this.#state.batch === 0 ? 'The batch is full. The relays are shuffling it…'
      : 'The epoch is over. The relays are shuffling what it has…');
    return true;
  }
}

/** Whether clients send exact answers because only relays add noise. */
function isExact(state: State): boolean {
  return state.assumption === 'none' && state.gamma === null;
}

function setStatus(text: string, bad = false): void {
  const status = byId('status');
  status.textContent = text;
  status.classList.toggle('bad', bad);
}

async function start(): Promise<void> {
  themeButton();
  attackSwitch();
  try {
    const state = await fetchState(task);
    byId('title').textContent = state.title;
    byId('simulated').textContent =
      `The other clients are simulated: for each report of yours the demo plays ${number(state.batch - 1)} other clients, over real HTTP and with real encryption, so it knows the truth to compare with. A deployment knows only the estimate.`;
    const doona = await connect({
      task: state.task_url,
      owner: state.owner,
      maxEpsilon: demoEpsilon,
      maxTotalEpsilon: demoEpsilon,
      spread: 300,
    });
    new Page(doona, state);
  } catch (error) {
    setStatus(describeError(error), true);
  }
}

void start();
