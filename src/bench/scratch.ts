import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";

/**
 * Runs the body with a new directory below `parent` and removes it afterwards, also when a signal ends the program:
 * a benchmark leaves gigabytes behind otherwise.
 */
export async function withScratch<T>(parent: string, body: (directory: string) => Promise<T>): Promise<T> {
  mkdirSync(parent, { recursive: true });
  const directory = mkdtempSync(join(parent, "varve-bench-"));
  const remove = (): void => rmSync(directory, { recursive: true, force: true, maxRetries: 3 });
  const onSignal = (signal: NodeJS.Signals): void => {
    remove();
    process.exit(signal === "SIGINT" ? 130 : 143);
  };
  process.once("SIGINT", onSignal).once("SIGTERM", onSignal);
  try {
    return await body(directory);
  } finally {
    process.off("SIGINT", onSignal).off("SIGTERM", onSignal);
    remove();
  }
}
