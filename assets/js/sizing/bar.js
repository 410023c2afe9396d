// The card to scale: what is free on it, and what is reserved of it for what.

/**
 * Two rows over one scale, each a list of [name, bytes] from the left.
 * @param {{total: number, free: number, reserved: number, weights: number, other: number}} memory in bytes
 */
export function layoutBar({ total, free, reserved, weights, other }) {
  const taken = weights + other;
  const kv = Math.max(0, reserved - taken);
  const scale = Math.max(total, taken);
  const used = taken + kv;
  return {
    scale,
    reservedShare: reserved / scale,
    freeShare: free / scale,
    card: [
      ['free', free],
      ['others', total - free],
    ],
    plan: [
      ['weights', weights],
      ['other', other],
      ['kv', kv],
      ['not_reserved', Math.max(0, total - used)],
    ],
  };
}
