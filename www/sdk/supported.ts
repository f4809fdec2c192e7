/**
 * Whether WebCrypto can seal here.
 * @module
 */

/** Whether this WebCrypto has what sealing and the checks of a bundle need. */
export async function supported(): Promise<boolean> {
  try {
    await Promise.all([
      crypto.subtle.generateKey('X25519', false, ['deriveBits']),
      crypto.subtle.generateKey('Ed25519', false, ['sign', 'verify']),
    ]);
    return true;
  } catch {
    return false;
  }
}
