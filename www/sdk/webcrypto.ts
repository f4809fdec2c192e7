/**
 * Whether WebCrypto can seal here.
 * @module
 */

/** Whether this WebCrypto has what sealing and the checks of a bundle need. */
export async function canSeal(): Promise<boolean> {
  try {
    await Promise.all([
      retryKeyPair(() => crypto.subtle.generateKey('X25519', false, ['deriveBits'])),
      retryKeyPair(() => crypto.subtle.generateKey('Ed25519', false, ['sign', 'verify'])),
    ]);
    return true;
  } catch {
    return false;
  }
}

/** How often to ask for a key pair: all fail by chance once in 10¹¹. */
const attempts = 5;

/**
 * Does what needs a fresh key pair. WebKitGTK fails to make an X25519 pair at random, 13 times in 3,000; a report
 * would be lost for it. No value decides whether one is made anew.
 */
export async function retryKeyPair<T>(make: () => Promise<T>): Promise<T> {
  for (let left = attempts; ; ) {
    try {
      return await make();
    } catch (cause) {
      if (--left === 0) throw cause;
    }
  }
}
