/**
 * Checks whether WebCrypto can seal, and retries its random failures.
 * @module
 */

/** Whether this WebCrypto has X25519 and Ed25519, which sealing and the checks of a bundle need. */
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

/** The number of attempts at a key pair. By WebKitGTK's failure rate, all of them fail once in 10¹¹. */
const attempts = 5;

/**
 * Runs work that needs a fresh key pair, and retries it. WebKitGTK randomly fails to make an X25519 pair, 13 times in
 * 3,000, and a report would be lost. Whether a retry happens does not depend on the value.
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
