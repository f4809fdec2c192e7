// The same with the peer.
import { send } from './peer.js';

await send('count', new URLSearchParams(location.search).get('relay'));
window.reported = performance.now();
console.log('reported');
