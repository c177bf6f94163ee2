/**
 * How much larger than the default, which suits continuous integration, the sized tests run: `VARVE_TEST_SCALE=10`
 * for a release.
 */
const SCALE = positive("VARVE_TEST_SCALE", 1);

/** `count` at the default scale. */
export function scaled(count: number): number {
  return Math.max(1, Math.round(count * SCALE));
}

/** A positive number from the environment, so that a typing mistake never turns a test into one of no rounds. */
export function positive(variable: string, fallback: number): number {
  const text = process.env[variable];
  if (text === undefined || text === "") return fallback;
  const value = Number(text);
  if (!(Number.isFinite(value) && value > 0)) throw new Error(`${variable} must be a positive number, not "${text}"`);
  return value;
}
