/** The directory that docs/format.md takes apart, byte for byte the same each time it is made. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { openEmbedded } from "../../src/queues/open.js";
import type { Random } from "../../src/storage/clock.js";
import { NodeDisk } from "../../src/storage/node-disk.js";
import { ManualClock } from "../support/manual-clock.js";
import { Seeded } from "../support/seeded.js";

/** Bytes before the first entry of a log file. */
const LOG_HEADER_BYTES = 4096;

class ExampleDisk extends NodeDisk {
  override bootId(): string {
    return "0b7e2c1a-5f0d-4c3b-9a88-1d2e3f405162";
  }
}

export interface Example {
  readonly marker: Buffer;
  /** As it is before the directory is closed, up to the end of its last entry. */
  readonly log: Buffer;
  readonly segment: Buffer;
  readonly snapshot: Buffer;
}

export async function makeExample(directory: string): Promise<Example> {
  const random: Random = new Seeded(20260101);
  const options = { walFileBytes: "1MiB", maxMessageBytes: "64KiB" };
  const mq = await openEmbedded(directory, options, { disk: new ExampleDisk(), clock: new ManualClock(), random });
  const events = await mq.openLog("events");
  await events.append({ payload: "hello", key: "k", headers: { a: "b" } });
  await events.append("again");
  const jobs = await mq.openTask("jobs");
  await jobs.enqueue("work", { maxAttempts: 3 });
  const task = await jobs.dequeue();
  await jobs.enqueue("later", { delay: "1h" });
  const wal = readFileSync(join(directory, "wal", "0000000000000001.wal"));
  let end = wal.length;
  while (end > LOG_HEADER_BYTES && wal[end - 1] === 0) end--;
  if (task !== undefined) await jobs.nack(task, { error: "no", delay: "1s" });
  await mq.close();
  return {
    marker: readFileSync(join(directory, "varve.json")),
    log: wal.subarray(0, end + ((8 - (end % 8)) % 8)),
    segment: readFileSync(join(directory, "log", "events", "00000000000000000000-s1.seg")),
    snapshot: readFileSync(join(directory, "snap", "0000000000000008.snap")),
  };
}

/** As `hexdump -C` prints it: sixteen bytes a line, `*` for lines of zeros that are left out. */
function hexdump(bytes: Buffer, start = 0, end = bytes.length): string {
  const lines: string[] = [];
  for (let at = start; at < end; at += 16) {
    const row = bytes.subarray(at, Math.min(at + 16, end));
    if (at > start && row.length === 16 && row.every((byte) => byte === 0)) {
      if (lines.at(-1) !== "*") lines.push("*");
      continue;
    }
    const hex = [...row].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const text = [...row].map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${hex.padEnd(47)}  |${text}|`);
  }
  return lines.join("\n");
}

/** The blocks that docs/format.md shows, by what they are of. */
export function exampleBlocks({ log, segment, snapshot }: Example): Record<string, string> {
  return {
    log: hexdump(log, 0, 0x1138),
    delivery: hexdump(log, 0x13a0, 0x13f1),
    segment: hexdump(segment),
    snapshot: hexdump(snapshot),
  };
}
