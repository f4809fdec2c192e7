// Reports once with the SDK. The parameter `when` is "idle" (the SDK's default: when the page is idle) or "now".
import { connect } from './doona.js';

const asked = new URLSearchParams(location.search);
const { task, owner, when } = Object.fromEntries(asked);
const doona = await connect({ task, owner, when, maxEpsilon: 1, maxTotalEpsilon: 4 });
await doona.report(1);
