/**
 * The address of this script if a script tag loads it: such a script has no import.meta. www/build injects this file
 * into doona.global.js.
 * @module
 */

export const scriptURL = (document.currentScript as HTMLScriptElement | null)?.src || location.href;
