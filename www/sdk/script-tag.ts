/**
 * Where the script of a script tag lies, for want of import.meta; put into that build by www/build.
 * @module
 */

export const scriptURL = (document.currentScript as HTMLScriptElement).src;
