// The same with the peer, as soon as it can.
import { send } from './peer.js';

await send('count', new URLSearchParams(location.search).get('relay'));
