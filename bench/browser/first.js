// Reports once with the SDK, as soon as possible, and stores the time since the navigation began, in ms.
import { connect } from './doona.js';

const asked = new URLSearchParams(location.search);
const options = { task: asked.get('task'), owner: asked.get('owner'), maxEpsilon: 1, maxTotalEpsilon: 4, spread: 0, when: 'now' };
const doona = await connect(options);
await doona.report(1);
window.reported = performance.now();
console.log('reported');
