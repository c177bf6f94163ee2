/** Damage of every kind, and what a client can see of a directory, offset by offset. */

import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { isVarveError } from "../../src/index.js";
import { OPTIONS } from "../inspect/scene.js";
import { openAlone } from "../support/alone.js";
import { deadOf } from "../support/state.js";

/** Everything in the queues of a directory, by queue and offset, as text. Opens and closes it. */
export async function contentsOf(directory: string): Promise<Map<string, Map<number, string>>> {
  const mq = await openAlone(directory, OPTIONS);
  try {
    const contents = new Map<string, Map<number, string>>();
    for (const { kind, name } of await mq.queues()) {
      const records = new Map<number, string>();
      contents.set(`${kind}/${name}`, records);
      if (kind === "log") {
        const log = await mq.openLog(name);
        for await (const batch of log.batches()) {
          for (const { offset, ...rest } of batch) records.set(offset, textOf(rest));
        }
      } else {
        const tasks = await mq.openTask(name);
        const letters = new Map<number, string>();
        for (const { offset, ...rest } of await deadOf(tasks)) letters.set(offset, textOf(rest));
        contents.set(`${kind}/${name}/dead`, letters);
        const { ready, scheduled, leased } = await tasks.stats();
        records.set(-1, JSON.stringify({ ready, scheduled, leased }));
      }
    }
    return contents;
  } finally {
    await mq.close();
  }
}

function textOf(value: object): string {
  const text = (each: unknown) => (Buffer.isBuffer(each) ? each.toString("hex") : each);
  // Not in a replacer, which is given what Buffer.toJSON() makes of them: an array of all its bytes.
  return JSON.stringify(Object.entries(value).map(([name, each]) => [name, text(each)]));
}

/** The payloads of all tasks that a queue delivers, by task id. */
export async function drain(directory: string, name: string): Promise<Map<string, string>> {
  const mq = await openAlone(directory, OPTIONS);
  try {
    const tasks = await mq.openTask(name);
    const found = new Map<string, string>();
    for (;;) {
      const batch = await tasks.dequeueBatch({ max: 100 });
      if (batch.length === 0) return found;
      for (const { id, payload } of batch) found.set(id, payload.toString());
      await tasks.ackBatch(batch);
    }
  } finally {
    await mq.close();
  }
}

export async function codeOfOpen(directory: string): Promise<string | undefined> {
  try {
    await (await openAlone(directory, OPTIONS)).close();
    return undefined;
  } catch (error) {
    if (isVarveError(error)) return error.code;
    throw error;
  }
}

export function change(directory: string, file: string, edit: (bytes: Buffer) => Buffer): void {
  const path = join(directory, file);
  writeFileSync(path, edit(Buffer.from(readFileSync(path))));
}

export function overwrite(from: number, to: number, value = 0xa5): (bytes: Buffer) => Buffer {
  return (bytes) => bytes.fill(value, from, Math.min(to, bytes.length));
}

export function remove(directory: string, file: string): void {
  const path = join(directory, file);
  if (!existsSync(path)) throw new Error(`${path} is not there`);
  rmSync(path);
}
