// For comparison: sends one report with the peer, @divviup/dap, as soon as the script runs.
import { send } from './peer.js';

await send('count', new URLSearchParams(location.search).get('relay'));
