/**
 * The address of the script in a script tag, which has no import.meta. www/build injects it into that build.
 * @module
 */

export const scriptURL = (document.currentScript as HTMLScriptElement | null)?.src || location.href;
