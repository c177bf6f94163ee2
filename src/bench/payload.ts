/** Numbers in [0, limit) that look random and are the same in every run (xorshift32). `seed` must not be 0. */
export function random(seed: number): (limit: number) => number {
  let state = seed >>> 0;
  return (limit) => {
    state ^= state << 13;
    state >>>= 0;
    state ^= state >>> 17;
    state ^= state << 5;
    state >>>= 0;
    return Math.floor((state / 2 ** 32) * limit);
  };
}

/** `count` different payloads of random bytes, which no layer below can compress away. */
export function payloadsOf(bytes: number, count: number): Buffer[] {
  const next = random(0x9e3779b9);
  return Array.from({ length: count }, () => {
    const payload = Buffer.alloc(bytes);
    for (let i = 0; i < bytes; i++) payload[i] = next(256);
    return payload;
  });
}
