/**
 * Checks whether WebCrypto can seal, and retries operations that randomly fail in some browsers.
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

/** The number of attempts to make a key pair. At WebKitGTK's failure rate, all attempts fail once in 10¹¹ cases. */
const attempts = 5;

/**
 * Runs `make`, which creates a key pair, and retries it. WebKitGTK randomly fails to create an X25519 pair, 13 times in
 * 3,000; without a retry a report would be lost. Retries do not depend on the reported value.
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
