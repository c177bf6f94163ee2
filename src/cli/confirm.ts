import { createInterface } from "node:readline/promises";
import type { CommonOptions } from "./options.js";

/** Whether there is somebody who can be asked. */
export function canAsk(options: CommonOptions): boolean {
  return options.json !== true && process.stdin.isTTY === true && process.stderr.isTTY === true;
}

/** Asks on standard error. */
export async function confirmed(question: string): Promise<boolean> {
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  try {
    return /^y(es)?$/i.test((await terminal.question(`${question} [y/N] `)).trim());
  } finally {
    terminal.close();
  }
}
