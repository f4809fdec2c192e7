// Reloads the report every few seconds and replaces it if it changed. It keeps what the reader opened,
// scrolled or focused.
const every = 5000;

async function refresh() {
  try {
    const response = await fetch(location.href, { cache: 'no-store' });
    if (response.redirected) location.reload(); // to the page to sign in: the session has ended
    if (!response.ok) return;
    const next = new DOMParser().parseFromString(await response.text(), 'text/html').getElementById('report');
    const now = document.getElementById('report');
    if (!next || next.innerHTML === original) return;
    original = next.innerHTML;
    for (const details of now.querySelectorAll('details[open]')) next.querySelector(`#${details.id}`)?.setAttribute('open', '');
    const scrolled = [...now.querySelectorAll('.scroll')].map((e) => [e.getAttribute('aria-label'), e.scrollLeft, e.scrollTop]);
    const focused = now.contains(document.activeElement) ? document.activeElement.getAttribute('aria-label') : null;
    now.replaceWith(next);
    for (const e of next.querySelectorAll('.scroll')) {
      const [, left, top] = scrolled.find(([label]) => label === e.getAttribute('aria-label')) ?? [];
      if (left !== undefined) e.scrollTo(left, top);
      if (focused && focused === e.getAttribute('aria-label')) e.focus();
    }
  } catch {
    // The verifier is stopped or restarting: try again at the next interval.
  }
}

let original = document.getElementById('report').innerHTML;
setInterval(refresh, every);
