/**
 * Keeps the event loop turning while the body waits. varve's own timers do not, so a test that waits for nothing but a
 * lease to run out would end before it. The signal ends it early, for a test that was given up.
 */
export async function awake<T>(body: () => Promise<T>, signal?: AbortSignal): Promise<T> {
  const timer = setInterval(() => {}, 1000);
  signal?.addEventListener("abort", () => clearInterval(timer));
  try {
    return await body();
  } finally {
    clearInterval(timer);
  }
}
