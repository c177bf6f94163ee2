import assert from "node:assert/strict";
import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { open } from "../../src/index.js";
import { copyDirectory, filesBelow, withDirectory } from "../support/directories.js";
import { observe } from "../support/state.js";

const OPTIONS = { walFileBytes: "256KiB", segmentBytes: "64KiB", maxMessageBytes: "48KiB" } as const;

/** Files that only repeat what others say. */
function isDerived(path: string): boolean {
  return path.endsWith(".idx");
}

async function work(directory: string, round: number): Promise<void> {
  const mq = await open(directory, OPTIONS);
  const log = await mq.openLog("events");
  const jobs = await mq.openTask("jobs", { lease: "24h", maxAttempts: 1 });
  for (let index = 0; index < 200; index++) {
    await log.appendBatch([
      `${round}/${index}`,
      Buffer.alloc(1500, index),
      Buffer.alloc(index === 30 ? 48 * 1024 : 10),
    ]);
    await jobs.enqueueBatch([`${round}/${index}`, Buffer.alloc(1500, index)]);
  }
  await log.trim(round * 40);
  for (const [index, task] of (await jobs.dequeueBatch({ max: 80 })).entries()) {
    if (index % 3 === 0) await jobs.ack(task);
    if (index % 3 === 1) await jobs.nack(task, { error: "no" });
  }
  await mq.close();
}

async function look(directory: string): Promise<unknown> {
  const mq = await open(directory, OPTIONS);
  try {
    const seen = await observe(mq);
    const log = await mq.openLog("events");
    const { head, next, count } = await log.stats();
    assert.equal(count, next - head, "the count is that of a scan");
    for (let offset = head; offset < next; offset += 7) assert.equal((await log.read(offset))?.offset, offset);
    return seen;
  } finally {
    await mq.close();
  }
}

void test("case 4: derived files may be missing, cut or from another moment", async () => {
  await withDirectory(async (parent) => {
    const directory = join(parent, "data");
    const older: string[] = [];
    for (let round = 0; round < 4; round++) {
      await work(directory, round);
      older.push(join(parent, `moment-${round}`));
      copyDirectory(directory, older[round] as string);
    }
    const expected = await look(directory);
    const derived = filesBelow(directory).filter(isDerived);
    assert.ok(derived.length >= 6, `derived files: ${derived.join(" ")}`);
    const trial = join(parent, "trial");
    const spoil = async (what: string, change: (path: string) => void, paths: readonly string[]): Promise<void> => {
      rmSync(trial, { recursive: true, force: true });
      copyDirectory(directory, trial);
      for (const path of paths) change(join(trial, path));
      assert.deepEqual(await look(trial), expected, `${what}: ${paths.join(" ")}`);
      assert.deepEqual(await look(trial), expected, `${what}, opened again`);
    };
    const changes: [what: string, change: (path: string) => void][] = [
      ["deleted", (path) => rmSync(path)],
      ["cut to half", (path) => truncateSync(path, Math.floor(readFileSync(path).length / 2))],
      ["emptied", (path) => truncateSync(path, 0)],
      ["overwritten", (path) => writeFileSync(path, Buffer.alloc(readFileSync(path).length, 0xa5))],
    ];
    for (const [what, change] of changes) {
      await spoil(what, change, derived);
      for (const path of derived.filter((_, index) => index % 3 === 0)) await spoil(what, change, [path]);
    }
    for (const moment of older.slice(0, -1)) {
      await spoil(
        "from an older moment",
        (path) => {
          const old = join(moment, path.slice(trial.length));
          if (existsSync(old)) copyFileSync(old, path);
          else rmSync(path);
        },
        derived,
      );
    }
    await spoil(
      "left over from a segment that is gone",
      (path) => {
        mkdirSync(dirname(path), { recursive: true });
        for (const stale of filesBelow(older[0] as string).filter(isDerived)) {
          const target = join(trial, stale);
          if (!existsSync(target)) copyFileSync(join(older[0] as string, stale), target);
        }
      },
      derived.slice(0, 1),
    );
  });
});
