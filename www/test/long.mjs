// www/test.sh --long preloads this script. Tests that have a longer form then run the longer form.
/** @type {any} */ (globalThis).doonaLong = true;
