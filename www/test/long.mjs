// Preloaded by www/test.sh --long: tests that have a longer form of the same body take it.
/** @type {any} */ (globalThis).doonaLong = true;
