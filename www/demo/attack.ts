/**
 * Shows the switch "nobody else is honest". The demo plays an attacker that controls all clients except one, the
 * verifier, and all relays except one. It attacks two tasks: in one the clients add the noise, in the other the relays.
 * @module
 */

import { byId, html, svg } from './dom.js';
import { describeError } from './errors.js';
import { type Sight, attack } from './state.js';
import { atMost, exact, number } from './format.js';

const answers = ['No', 'Yes'];

/** How often the attacker guessed right (`right`), and how often it guessed (`of`). */
interface Score { right: number; of: number }

const titles = { clients: 'Noise by clients', relays: 'Noise by relays' };

/** Sets up the switch and the two answer buttons. Each click on an answer runs the attack. */
export function attackSwitch(): void {
  const box = byId<HTMLInputElement>('alone-switch');
  const scores = { clients: { right: 0, of: 0 }, relays: { right: 0, of: 0 } };
  const buttons = answers.map((text, answer) => {
    const button = html('button', { type: 'button', class: 'small' }, text);
    button.addEventListener('click', () => void play(answer));
    return button;
  });
  byId('alone-answers').append(...buttons);
  box.addEventListener('change', () => {
    byId('alone').hidden = !box.checked;
  });

  const play = async (answer: number) => {
    for (const button of buttons) button.disabled = true;
    setStatus(`The victim says ${answers[answer]!}, and 999 clients of the attacker say what it wants them to…`);
    try {
      const sights = await attack(answer);
      byId('alone-sights').replaceChildren(...sights.map((sight) => attackCard(sight, scores[sight.noise])));
      setStatus(`The victim said ${answers[answer]!}. Both tasks promise ε = ${atMost(sights[0]!.epsilon)}; this is what the attacker sees.`);
    } catch (error) {
      setStatus(describeError(error));
    }
    for (const button of buttons) button.disabled = false;
  };
}

function setStatus(text: string): void {
  byId('alone-status').textContent = text;
}

/**
 * Shows the attack on one task: the messages that are not the attacker's own, the attacker's guess, and its score so
 * far.
 */
function attackCard(sight: Sight, score: Score): HTMLElement {
  const right = sight.guess === sight.answer;
  score.of++;
  if (right) score.right++;
  const [no, yes] = sight.left;
  const left = no + yes;
  const what = left === 1 ? 'One message is not its own: the victim’s.'
    : `${number(left)} messages are not its own: the victim’s and ${number(left - 1)} dummies. Which is which does not show.`;
  return html('section', { 'aria-label': titles[sight.noise], 'data-noise': sight.noise },
    html('h3', {}, titles[sight.noise]),
    html('p', {}, what),
    bars(sight.left),
    html('p', { class: 'answer' }, html('b', {}, answers[sight.guess]!), ' ',
      exact(100 * sight.certainty), ' % sure'),
    html('p', { class: 'quiet' }, `is the best guess there is: ${right ? 'right' : 'wrong'} this time, and right in ${score.right} of ${score.of} so far. ${boundText(sight)}`),
  );
}

function boundText(sight: Sight): string {
  if (sight.epsilon_no_honest === null) return 'No bound is left.';
  const most = `Nobody can be more than ${atMost(100 * sight.most)} % sure`;
  return sight.epsilon_no_honest > sight.epsilon
    ? `${most}: without honest clients ε′ = ${atMost(sight.epsilon_no_honest)} is left of the promise.`
    : `${most}, but with a chance of δ: the promise holds, ε′ = ${atMost(sight.epsilon_no_honest)}. It needs no other client.`;
}

/** Returns a bar for each answer. Its length shows how many messages with that answer remain after the attack. */
function bars(left: readonly [number, number]): HTMLElement {
  const most = Math.max(...left, 1);
  return html('div', { class: 'left' }, ...answers.map((text, answer) => html('div', {}, html('span', {}, text),
    svg('svg', { viewBox: '0 0 100 10', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
      svg('rect', { width: (100 * left[answer]!) / most, height: 10 })), exact(left[answer]!))));
}
