/**
 * Runs the body of a test before the first test of its file is defined, and returns what tells how that went. From then on
 * node:test follows every promise, which costs as much as a long simulation itself.
 */
export async function beforehand(body: () => Promise<void>): Promise<() => Promise<void>> {
  const [outcome] = await Promise.allSettled([body()]);
  return async () => {
    if (outcome.status === "rejected") throw outcome.reason;
  };
}
