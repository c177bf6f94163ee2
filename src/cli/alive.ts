/** Longer than any command runs; the longest a timer may be. */
const INTERVAL_MS = 2 ** 31 - 1;

/** Runs the body with the process kept alive: waiting on a queue alone does not do that, as befits a library. */
export async function keepAlive<T>(body: () => Promise<T>): Promise<T> {
  const timer = setInterval(() => {}, INTERVAL_MS);
  try {
    return await body();
  } finally {
    clearInterval(timer);
  }
}
