// A page that measures its largest contentful paint, slowest interaction and longest long task, in ms. It reports with
// the SDK if its address names a task.
window.measured = { lcp: 0, inp: 0, blocked: 0 };
const { measured } = window;
new PerformanceObserver((list) => {
  for (const { startTime } of list.getEntries()) measured.lcp = startTime;
}).observe({ type: 'largest-contentful-paint', buffered: true });
new PerformanceObserver((list) => {
  for (const { duration, interactionId } of list.getEntries()) if (interactionId) measured.inp = Math.max(measured.inp, duration);
}).observe({ type: 'event', durationThreshold: 16, buffered: true });
new PerformanceObserver((list) => {
  for (const { duration } of list.getEntries()) measured.blocked = Math.max(measured.blocked, duration);
}).observe({ type: 'longtask', buffered: true });
const output = document.querySelector('output');
document.querySelector('button').addEventListener('click', () => (output.textContent = String(Number(output.textContent) + 1)));

const asked = new URLSearchParams(location.search);
if (asked.has('task')) {
  const { connect } = await import('./doona.js');
  const options = { task: asked.get('task'), owner: asked.get('owner'), maxEpsilon: 1, maxTotalEpsilon: 4, spread: 0 };
  const doona = await connect(options);
  await doona.report(JSON.parse(asked.get('value')));
}
window.reported = true;
