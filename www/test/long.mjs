// www/test.sh --long preloads this script: tests with a longer form then run it.
/** @type {any} */ (globalThis).doonaLong = true;
