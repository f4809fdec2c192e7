// Reports once with the peer, @divviup/dap, and stores the time since the navigation began, in ms.
import { send } from './peer.js';

await send('count', new URLSearchParams(location.search).get('relay'));
window.reported = performance.now();
console.log('reported');
