/**
 * Switches between the light and the dark theme. The default is the system's setting; localStorage keeps a person's
 * choice.
 * @module
 */

import { byId } from './dom.js';

const key = 'doona-theme';

/** Makes the button with id "theme" switch the theme. Its text names the other theme. */
export function themeButton(): void {
  const button = byId('theme');
  const system = matchMedia('(prefers-color-scheme: dark)');
  const isDark = () => (localStorage.getItem(key) ?? (system.matches ? 'dark' : 'light')) === 'dark';
  const show = () => {
    const chosen = localStorage.getItem(key);
    if (chosen) document.documentElement.dataset['theme'] = chosen;
    button.textContent = isDark() ? 'Light' : 'Dark';
    button.setAttribute('aria-label', `Switch to ${isDark() ? 'light' : 'dark'} colors`);
  };
  button.addEventListener('click', () => {
    localStorage.setItem(key, isDark() ? 'light' : 'dark');
    show();
  });
  system.addEventListener('change', show);
  show();
}
